//! `tollgate simulate`: its output for programs, the seed of its randomness, and its output files.
//!
//! snapshots/simulate.txt and docs/simulate.md contain its output for people.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::support::{Ran, scratch, tollgate};

fn run(arguments: &[&str]) -> Ran {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/policies");
    tollgate(&folder, &[&["simulate"], arguments].concat())
}

fn table(arguments: &[&str]) -> Value {
    let ran = run(&[arguments, &["--json"]].concat());
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{arguments:?}");
    serde_json::from_str(&ran.stdout).unwrap()
}

/// The names of fields are stable: this list changes only with a line in the change log.
#[test]
fn the_fields_are_stable() {
    let names =
        |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>().join(" ");
    let busy = ["--policy", "good.json", "--traffic", "busy.json"];
    let plain = table(&busy);
    let fields = "admitted burst delayed denied evictions evictions_half_used false_allow \
                  false_deny given_up is_cut_short keys limit lost_races most_admitted notes offered quotas \
                  rules seconds sources state_bytes waits";
    assert_eq!(names(&plain), fields);
    assert_eq!(names(&plain["waits"]), "max_us p50_us p99_us");
    assert_eq!(
        names(&plain["rules"][0]),
        "allowed delayed denied failed malformed marked name shadowed"
    );
    assert_eq!(
        names(&plain["quotas"][0]),
        "algorithm burst limit most_admitted name rule state_len tier window_us"
    );
    assert_eq!(names(&plain["sources"][0]), "admitted delayed denied name offered retries");
    let traced = table(&[&busy[..], &["--trace=3"]].concat());
    assert_eq!(traced["trace"].as_array().unwrap().len(), 3);
    assert_eq!(
        names(&traced["trace"][0]),
        "at_us client decision exact in_window node remaining retry_after_us status wait_us"
    );
    // Listing requests changes nothing else.
    let mut without = traced;
    without.as_object_mut().unwrap().remove("trace");
    assert_eq!(without, plain);
}

/// The simulation begins with the year 2000: a request per hour for January, and for ten days of
/// February, in which the limit returns once.
#[test]
fn a_month_returns_its_units_when_it_begins() {
    let folder = scratch("calendar");
    let policy = json!({ "version": 1, "rules": [{ "name": "month", "key": [], "quotas": [
        { "limit": 100, "window": "1mo", "algorithm": "fixed-window", "align": "calendar" }] }] });
    fs::write(folder.join("policy.json"), policy.to_string()).unwrap();
    let requests = (31 * 24 + 10 * 24).to_string();
    let arguments =
        ["simulate", "--policy", "policy.json", "--requests", &requests, "--wait", "1h", "--json"];
    let ran = tollgate(&folder, &arguments);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    let table: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!((&table["admitted"], &table["denied"]), (&json!(200), &json!(784)));
    assert_eq!(table["quotas"][0]["window_us"], json!(31 * 86_400_000_000_u64));
}

/// Guards: figures that look like those of tenants with entries.
#[test]
fn that_entries_of_tenants_are_not_looked_at_is_said() {
    let folder = scratch("tenants");
    let mut policy = json!({ "version": 1, "rules": [
        { "name": "api", "key": ["client_ip"], "quotas": [{ "limit": 5, "window": "10s" }] }] });
    let note = "entries of tenants are not read: they are in a store and not in the policy, so every request was decided by rules and tiers";
    for has_tenants in [false, true] {
        if has_tenants {
            policy["tenant"] = json!("client_ip");
        }
        let path = folder.join("policy.json");
        fs::write(&path, policy.to_string()).unwrap();
        let arguments = ["--policy", path.to_str().unwrap(), "--surface", "worker"];
        let notes = if has_tenants { json!([note]) } else { json!([]) };
        assert_eq!(table(&arguments)["notes"], notes);
        let text = run(&arguments).stdout.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(
            text.contains("Note: entries of tenants are not read: they"),
            has_tenants,
            "{text}"
        );
        // The only client in the log is the sender of the request.
        let replayed = ["replay", path.to_str().unwrap(), "access.log", "--surface", "worker"];
        let policies = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/policies");
        let given = ["--assume", "client=log", "--json"];
        let replayed = tollgate(&policies, &[&replayed[..], &given].concat());
        let replayed: Value = serde_json::from_str(&replayed.stdout).unwrap();
        assert_eq!(replayed["notes"], notes);
    }
}

#[test]
fn every_request_is_in_one_sum() {
    let table = table(&["--policy", "good.json", "--traffic", "busy.json"]);
    let number = |of: &Value, name: &str| of[name].as_u64().unwrap();
    for row in [&table].into_iter().chain(table["sources"].as_array().unwrap()) {
        let parts = ["admitted", "delayed", "denied"].map(|name| number(row, name));
        assert_eq!(parts.iter().sum::<u64>(), number(row, "offered"), "{row}");
    }
}

#[test]
fn a_seed_is_a_run() {
    let with = |seed: &str| {
        let page = Path::new(env!("CARGO_TARGET_TMPDIR")).join("seed.html");
        let arguments = ["--policy", "good.json", "--traffic", "busy.json", "--seed", seed];
        let html = ["--html", page.to_str().unwrap()];
        let text = run(&[&arguments[..], &html].concat());
        let forms = ["--json", "--csv", "--trace"];
        let forms = forms.map(|form| run(&[&arguments[..], &[form]].concat()).stdout);
        (text.stdout, forms, fs::read_to_string(page).unwrap())
    };
    let (one, again, other) = (with("7"), with("7"), with("8"));
    assert!(one == again, "the same seed gives the same bytes in every form");
    assert!(one.0 != other.0 && one.1[0] != other.1[0] && one.2 != other.2);
}

/// The page goes to a file, and the printed output is unchanged. A name in a document is text.
#[test]
fn a_page_is_beside_what_is_printed() {
    let page = Path::new(env!("CARGO_TARGET_TMPDIR")).join("page.html");
    let plain = ["--policy", "good.json", "--traffic", "busy.json"];
    let with = run(&[&plain[..], &["--html", page.to_str().unwrap()]].concat());
    assert_eq!(with, run(&plain));
    assert_eq!(with.stderr, "", "a line that says how far it is goes to terminals only");
    let page = fs::read_to_string(page).unwrap();
    assert!(page.contains("&lt;script&gt;alert(1)&lt;/script&gt;") && !page.contains("<script"));
    assert!(page.contains("default-src &#39;none&#39;") && page.matches("<svg").count() == 2);
}

#[test]
fn a_page_may_be_printed_alone() {
    let ran = run(&["--limit", "1", "--html", "-"]);
    assert!(ran.stdout.starts_with("<!doctype html>\n<html lang=\"en\">"), "{}", ran.stdout);
    assert!(ran.stdout.ends_with("</html>\n"));
    let both = run(&["--limit", "1", "--html", "-", "--json"]);
    assert_eq!((both.code, both.stdout.as_str()), (2, ""));
    assert!(both.stderr.contains("--html - prints the page alone"), "{}", both.stderr);
}

#[test]
fn a_page_that_cannot_be_written_ends_with_3_and_prints_nothing() {
    let ran = run(&["--limit", "1", "--html", "no-such-folder/x.html"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (3, ""));
    assert!(ran.stderr.contains("cannot write no-such-folder/x.html: "), "{}", ran.stderr);
}

/// Flags and documents with the same meaning give the same table.
#[test]
fn flags_are_documents() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let policy = json!({ "version": 1, "rules": [{ "name": "limit", "key": [], "quotas": [
        { "limit": 5, "window": "10s", "burst": 2, "algorithm": "token-bucket", "strict": true }] }] });
    let workers = |count: u64, size: u64| {
        json!({ "clients": { "count": count }, "each": true,
                "arrivals": { "spaced": { "size": size, "wait": "300ms", "jitter": "200ms" } } })
    };
    let traffic = json!({ "length": "1m", "sources": [workers(2, 11), workers(1, 10)],
                          "servers": { "count": 2 } });
    let file = |name: &str, value: &Value| {
        let path = folder.join(name);
        fs::write(&path, value.to_string()).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (policy, traffic) = (file("five.json", &policy), file("workers.json", &traffic));
    let of_documents = table(&["--policy", &policy, "--traffic", &traffic, "--seed", "4"]);
    let of_flags = table(&[
        "--limit",
        "5",
        "--window",
        "10s",
        "--burst",
        "2",
        "--algorithm",
        "token-bucket",
        "--strict",
        "--requests",
        "32",
        "--parallel",
        "3",
        "--wait",
        "300ms",
        "--jitter",
        "200ms",
        "--nodes",
        "2",
        "--seed",
        "4",
    ]);
    assert_eq!(of_flags, of_documents);
    assert_eq!(of_flags["offered"], 32);
    assert!(of_flags["denied"].as_u64().unwrap() > 0, "{of_flags}");
}

/// Guards: a figure reported for another quota, where a rule and its tier name theirs alike; and a
/// list reported as complete, where a waiting request takes two of its lines.
#[test]
fn a_report_says_what_its_figures_are_of() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let policy = json!({ "version": 1, "rules": [{ "name": "each", "key": [],
        "quotas": [{ "limit": 7, "window": "1h" }],
        "tiers": [{ "name": "gold", "when": { "methods": ["GET"] },
                    "quotas": [{ "limit": 3, "window": "1m" }] }] }] });
    let path = folder.join("tiers.json");
    fs::write(&path, policy.to_string()).unwrap();
    let traffic = json!({ "length": "1m", "sources": [
        { "arrivals": { "bursts": { "size": 5, "every": "1m" } } }] });
    let traffic_path = folder.join("burst.json");
    fs::write(&traffic_path, traffic.to_string()).unwrap();
    let (policy, traffic) = (path.to_str().unwrap(), traffic_path.to_str().unwrap());
    let ran = run(&["--policy", policy, "--traffic", traffic]);
    assert!(ran.stdout.contains("of 3 per minute"), "{ran:?}");

    let waits = ["--limit", "5", "--window", "5s", "--delay", "10s", "--burst", "1"];
    let requests = ["--requests", "8", "--wait", "10ms"];
    let heading = |trace: &str| {
        let ran = run(&[&waits[..], &requests, &[trace]].concat());
        let is_last = ran.stdout.contains("The last requests\n");
        assert!(is_last || ran.stdout.contains("\nRequests\n"), "{ran:?}");
        is_last
    };
    assert_eq!(["--trace=8", "--trace=100"].map(heading), [true, false]);
}

/// With any number of requests the list has at most the given length.
#[test]
fn many_requests_keep_a_short_list() {
    let arguments =
        ["--limit", "100", "--requests", "100000", "--parallel", "100", "--wait", "1ms"];
    let ran = run(&[&arguments[..], &["--trace=2", "--csv"]].concat());
    assert_eq!(ran.code, 0);
    let listed = ran.stdout.lines().filter(|line| line.starts_with("trace,")).count();
    assert_eq!(listed, 3, "a head and two requests");
    assert!(ran.stdout.contains("summary,offered,100000,"), "{}", ran.stdout);
}

/// Guards: figures of nodes with a count each, for a rule that has a single one.
#[test]
fn a_count_of_the_fleet_is_simulated_as_one_node_and_refused_with_several() {
    let one = ["--policy", "fleet.json", "--traffic", "busy.json", "--nodes", "1"];
    assert!(table(&one)["admitted"].as_u64().unwrap() > 0);
    let several = ["--policy", "fleet.json", "--traffic", "busy.json", "--nodes", "3"];
    let ran = run(&several);
    assert_eq!((ran.code, ran.stdout.as_str()), (2, ""));
    let why =
        "rule \"all\" has one count for the fleet, and 3 nodes would each have their own here";
    assert!(ran.stderr.contains(why), "{}", ran.stderr);
}

/// There is no report of the final cost of a simulated request, or of one in a log.
#[test]
fn a_reported_cost_is_neither_simulated_nor_replayed() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/policies");
    for arguments in [
        &["simulate", "--policy", "reported.json", "--surface", "server"][..],
        &["replay", "reported.json", "--surface", "server", "good.json"],
    ] {
        let ran = tollgate(&folder, arguments);
        let expected = "reported.json: rule \"tokens\" has \"cost\": \"reported\"";
        assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{arguments:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(expected), "{}", ran.stderr);
    }
}
