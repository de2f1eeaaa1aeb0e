//! `tollgate replay`: packed and hostile logs, several logs, exit codes, and data that never leaks.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;

use serde_json::Value;

use crate::support::{Ran, scratch, tollgate, tollgate_reading};

fn policies() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/policies")
}

/// An empty folder for one test.
fn folder(name: &str) -> PathBuf {
    let folder = scratch(&format!("replay/{name}"));
    for policy in ["ten.json", "log.json", "api.json"] {
        fs::copy(policies().join(policy), folder.join(policy)).unwrap();
    }
    folder
}

fn access_log() -> Vec<u8> {
    fs::read(policies().join("access.log")).unwrap()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest)
}

fn json(ran: &Ran) -> Value {
    serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {ran:?}"))
}

/// A line of the common format.
fn line(second: u64, client: &str, path: &str) -> String {
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!(
        "{client} - - [31/Jan/2026:{hour:02}:{minute:02}:{second:02} +0000] \"GET {path} HTTP/1.1\" 200 5\n"
    )
}

#[test]
fn however_it_is_packed_it_is_the_same_log() {
    let folder = folder("packed");
    let log = access_log();
    let plain = tollgate_reading(&folder, &["replay", "ten.json", "-", "--json"], &log);
    assert_eq!((plain.code, json(&plain)["requests"]["denied"].as_u64()), (0, Some(14)));
    let (first, second) = log.split_at(1234);
    // Misleading names do not matter.
    for (name, bytes) in [
        ("a.log", gzip(&log)),
        ("a.gz", log.clone()),
        ("a.zst", [gzip(first), gzip(second)].concat()),
        ("a.txt", zstd(&log)),
        ("a", [zstd(first), zstd(second)].concat()),
    ] {
        fs::write(folder.join(name), &bytes).unwrap();
        let ran = tollgate(&folder, &["replay", "ten.json", name, "--json"]);
        assert_eq!((&ran.stdout, &*ran.stderr, ran.code), (&plain.stdout, "", 0), "{name}");
        let piped = tollgate_reading(&folder, &["replay", "ten.json", "-", "--json"], &bytes);
        assert_eq!(piped, ran, "{name}");
    }
}

#[test]
fn a_log_that_breaks_off_is_reported_up_to_there_and_fails() {
    let folder = folder("broken");
    let log: String = (0..5000).map(|i| line(i, "192.0.2.1", &format!("/{i}"))).collect();
    let packed = gzip(log.as_bytes());
    fs::write(folder.join("half.gz"), &packed[..packed.len() / 2]).unwrap();
    let ran = tollgate(&folder, &["replay", "ten.json", "half.gz", "--json"]);
    assert_eq!(ran.code, 1);
    assert_eq!(
        ran.stderr,
        "problem: half.gz: ends too early; the report covers the lines before it\n"
    );
    let found = json(&ran);
    let lines = found["log"]["lines"].as_u64().unwrap();
    assert!((1000..5000).contains(&lines), "{lines}");
    assert_eq!(found["log"]["damaged"][0]["log"], "half.gz");
    let text = tollgate(&folder, &["replay", "ten.json", "half.gz"]).stdout;
    assert!(text.contains("half.gz breaks off: ends too early."), "{text}");
    fs::write(folder.join("x.bz2"), b"BZh91AY&SY").unwrap();
    let ran = tollgate(&folder, &["replay", "ten.json", "x.bz2", "--format", "common"]);
    assert!(ran.code == 1 && ran.stderr.contains("bzip2"), "{ran:?}");
}

#[test]
fn several_logs_are_one_by_time() {
    let folder = folder("several");
    // Twenty requests of one client in twenty seconds, alternating in two logs, and all in one.
    let all: Vec<String> = (0..20).map(|i| line(i, "192.0.2.1", &format!("/{i}"))).collect();
    let part = |from: usize| all.iter().skip(from).step_by(2).cloned().collect::<String>();
    fs::write(folder.join("one"), all.concat()).unwrap();
    fs::write(folder.join("even"), part(0)).unwrap();
    fs::write(folder.join("odd.gz"), gzip(part(1).as_bytes())).unwrap();
    // And rotated: the later half is named first.
    fs::write(folder.join("access.log"), all[10..].concat()).unwrap();
    fs::write(folder.join("access.log.1"), all[..10].concat()).unwrap();
    let run = |logs: &[&str]| {
        let ran = tollgate(&folder, &[&["replay", "ten.json", "--json"], logs].concat());
        assert_eq!((ran.code, &*ran.stderr), (0, ""), "{logs:?}");
        ran.stdout
    };
    let one = run(&["one"]);
    assert_eq!(serde_json::from_str::<Value>(&one).unwrap()["requests"]["denied"], 7);
    for logs in [
        ["even", "odd.gz"],
        ["odd.gz", "even"],
        ["access.log", "access.log.1"],
        ["access.log.1", "access.log"],
    ] {
        assert_eq!(run(&logs), one, "{logs:?}");
    }
    // An empty one changes nothing; the format of another one is detected from its own lines.
    fs::write(folder.join("empty"), "").unwrap();
    assert_eq!(run(&["empty", "one"]), one);
    let json_line = "{\"time\":\"2026-01-31T00:00:30Z\",\"client\":\"192.0.2.1\",\"status\":200}\n";
    fs::write(folder.join("other.json"), json_line).unwrap();
    let both: Value = serde_json::from_str(&run(&["other.json", "one"])).unwrap();
    assert_eq!(both["requests"]["total"], 21);
}

/// One wrong timestamp at the beginning of a log does not move all of it behind the others.
#[test]
fn a_wrong_first_time_does_not_hold_a_log_back() {
    let folder = folder("first");
    let part =
        |from: u64| (0..20).map(move |i| line(from + 30 * i, "192.0.2.1", "/")).collect::<String>();
    let wrong = line(0, "192.0.2.1", "/").replace("/2026:", "/2027:");
    fs::write(folder.join("one"), part(0)).unwrap();
    fs::write(folder.join("two"), wrong + &part(15)).unwrap();
    let ran = tollgate(&folder, &["replay", "ten.json", "one", "two", "--json"]);
    let found = json(&ran);
    assert_eq!((&found["log"]["ahead"], &found["notes"]), (&1.into(), &Value::Array(vec![])));
    // A request every fifteen seconds is within ten per minute.
    assert_eq!(
        (&found["requests"]["total"], &found["requests"]["denied"]),
        (&40.into(), &0.into())
    );
}

/// A replay without requests shows nothing about a policy, so a check with it must fail.
#[test]
fn a_replay_of_nothing_fails() {
    let folder = folder("nothing");
    let log: String = (0..3).map(|i| line(i, "192.0.2.1", "/")).collect();
    fs::write(folder.join("served"), &log).unwrap();
    fs::write(folder.join("refused"), log.replace(" 200 ", " 429 ")).unwrap();
    for (log, since, refused, outside) in
        [("served", "2027-01-01", 0, 3), ("refused", "2026-01-01", 3, 0)]
    {
        let arguments =
            ["replay", "ten.json", log, "--since", since, "--fail-if", "denied-requests>0%"];
        let ran = tollgate(&folder, &arguments);
        let message = format!(
            "problem: no request was replayed: {refused} were already denied in the log, {outside} are outside --since and --until\n"
        );
        assert_eq!((ran.code, ran.stderr), (1, message));
    }
}

/// A line beyond a bound of the sorting is reported, with the bound that would suffice.
#[test]
fn what_the_sorting_could_not_do_is_told() {
    let folder = folder("late");
    let log: String = [99, 100, 80, 89, 101].map(|second| line(second, "192.0.2.1", "/")).concat();
    fs::write(folder.join("log"), log).unwrap();
    let run = |bound: &str| {
        let found = json(&tollgate(
            &folder,
            &["replay", "ten.json", "log", "--json", "--out-of-order", bound],
        ));
        let log = &found["log"];
        [&log["late"], &log["most_late_ms"], &log["hurried_seconds"], &log["crowded_seconds"]]
            .map(|number| number.as_u64().unwrap())
    };
    assert_eq!(run("10s"), [2, 20_000, 0, 0]);
    assert_eq!(run("20000ms"), [0, 0, 0, 0]);
    let ran = tollgate(&folder, &["replay", "ten.json", "log"]);
    assert!(ran.stdout.contains("left out; --out-of-order 20000ms keeps them"), "{ran:?}");
}

#[test]
fn hostile_lines_are_counted_and_never_fatal() {
    let folder = folder("hostile");
    let good = line(5, "192.0.2.1", "/ok");
    let mut log = good.clone().into_bytes();
    log.extend(vec![b'a'; 10_000_000]);
    log.push(b'\n');
    log.extend(b"\0\0\0\n\xff\xfe \x80\n");
    log.extend(good.replace("2026", "1969").into_bytes());
    log.extend(good.replace("2026", "9999").into_bytes());
    log.extend(good.replace("GET", "\\x1b[2J\u{202e}").into_bytes());
    log.extend(good.into_bytes());
    for (name, bytes) in [("plain", log.clone()), ("packed", gzip(&log))] {
        fs::write(folder.join(name), bytes).unwrap();
        let ran = tollgate(&folder, &["replay", "ten.json", name, "--format", "common", "--json"]);
        assert_eq!((ran.code, &*ran.stderr), (0, ""), "{name}");
        let found = json(&ran);
        let unparsable = found["log"]["unparsable"].as_u64().unwrap();
        let requests = found["requests"]["total"].as_u64().unwrap();
        assert!(unparsable >= 4 && requests >= 2 && unparsable + requests == 8, "{found}");
        let text = tollgate(&folder, &["replay", "ten.json", name, "--format", "common"]).stdout;
        assert!(!text.contains(['\u{1b}', '\0', '\u{202e}']), "{text}");
    }
}

#[test]
fn a_log_that_cannot_be_read_at_all_fails() {
    let folder = folder("unreadable");
    fs::write(folder.join("none"), "").unwrap();
    fs::write(folder.join("prose"), "some\nwords\n").unwrap();
    let run = |arguments: &[&str]| {
        let ran = tollgate(&folder, &[&["replay", "ten.json"], arguments].concat());
        (ran.code, ran.stderr)
    };
    assert_eq!(run(&["none"]), (1, "problem: the input contains no lines\n".to_owned()));
    let (code, error) = run(&["prose"]);
    assert!(code == 1 && error.contains("name it with --format"), "{error}");
    let hint = "problem: none of 2 lines could be read; check --format\n";
    assert_eq!(run(&["prose", "--format", "common"]), (1, hint.to_owned()));
    let (code, error) = run(&["."]);
    assert!(code == 2 && error.contains("is a directory"), "{error}");
    let utf16: Vec<u8> = "\u{feff}a\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    fs::write(folder.join("utf16"), utf16).unwrap();
    let (code, error) = run(&["utf16", "--format", "common"]);
    assert!(code == 2 && error.contains("UTF-16"), "{error}");
    let (code, error) = run(&["utf16"]);
    assert!(code == 1 && error.contains("UTF-16"), "{error}");
}

#[test]
fn bounds_hold_on_one_side_and_fail_on_the_other() {
    let run = |condition: &str| {
        let arguments = ["replay", "ten.json", "access.log", "--json", "--fail-if", condition];
        let ran = tollgate(&policies(), &arguments);
        assert_eq!(json(&ran)["fail_if"][0]["condition"], condition);
        assert_eq!(json(&ran)["fail_if"][0]["fails"], ran.code == 1);
        ran.code
    };
    // 14 of 56 requests, 1 of 7 clients, 1 of 58 lines.
    for (condition, code) in [
        ("denied-requests>25%", 0),
        ("denied-requests>=25%", 1),
        ("denied-requests>24.999999999%", 1),
        ("denied-requests>14", 0),
        ("denied-requests>13", 1),
        ("denied-clients>14.285714286%", 0),
        ("denied-clients>14.285714285%", 1),
        ("unparsable-lines>1", 0),
        ("unparsable-lines>0", 1),
        ("already-refused-lines>=1", 1),
        ("delayed-requests>0", 0),
        ("requests<56", 0),
        ("requests<57", 1),
    ] {
        assert_eq!(run(condition), code, "{condition}");
    }
}

/// Guards: bounds that contain no request, and one that is silently changed.
#[test]
fn times_that_cannot_mean_anything_are_misuse() {
    for wrong in [
        &["--out-of-order", "25h"][..],
        &["--since", "2026-01-02", "--until", "2026-01-01"],
        &["--since", "2026-01-02", "--until", "2026-01-02"],
    ] {
        let arguments = [&["replay", "ten.json", "access.log"], wrong].concat();
        assert_eq!(tollgate(&policies(), &arguments).code, 2, "{wrong:?}");
    }
    let arguments = ["replay", "ten.json", "access.log", "--out-of-order", "1d"];
    assert_eq!(tollgate(&policies(), &arguments).code, 0);
}

/// Guards: an address of the log in any form of the report.
#[test]
fn nothing_private_leaks_in_any_form() {
    let folder = folder("private");
    let planted = "203.0.113.77";
    let mut log: String =
        (0..30).map(|i| line(i / 10, planted, "/account?token=planted")).collect();
    log.push_str("203.0.113.77 planted and not to be parsed\n");
    fs::write(folder.join("access.log"), log).unwrap();
    let base = ["replay", "ten.json", "access.log", "--against", "log.json", "--html", "page.html"];
    let key = ["--private-key", "00112233445566778899aabbccddeeff"];
    for extra in [&["--json"][..], &["--csv"], &[], &["--suggest"]] {
        let open = tollgate(&folder, &[&base[..], extra].concat());
        let page = fs::read_to_string(folder.join("page.html")).unwrap();
        assert!(open.stdout.contains(planted) && page.contains(planted), "the test tests nothing");
        for private in [&["--private"][..], &key] {
            let ran = tollgate(&folder, &[&base[..], extra, private].concat());
            assert_eq!(ran.code, 0, "{ran:?}");
            let page = fs::read_to_string(folder.join("page.html")).unwrap();
            for said in [&ran.stdout, &ran.stderr, &page] {
                assert!(!said.contains(planted) && !said.contains("planted"), "{said}");
            }
            assert!(ran.stdout.contains("key "), "{extra:?}");
        }
    }
    let run = |private: &[&str]| tollgate(&folder, &[&base[..], private].concat()).stdout;
    assert_eq!(run(&key), run(&key), "one key, one hash");
    assert_ne!(run(&["--private"]), run(&["--private"]), "a fresh key for each run");
}

#[test]
fn markup_never_runs_in_a_page() {
    let folder = folder("markup");
    let script = "<script>alert(1)</script>";
    let policy = format!(
        r#"{{"version": 1, "rules": [{{"name": "{script}", "key": [{{"header": "user-agent"}}], "quotas": [{{"limit": 1, "window": "1h"}}]}}]}}"#
    );
    fs::write(folder.join("markup.json"), policy).unwrap();
    let request = line(1, "192.0.2.1", &format!("/{script}")).trim_end().to_owned();
    let hostile = format!("{request} \"-\" \"{script}<img src=x onerror=alert(1)>\"\n");
    let log = format!("{0}{0}{0}{script} is no line\n", hostile);
    fs::write(folder.join("<b>.log"), log).unwrap();
    let ran = tollgate(
        &folder,
        &["replay", "markup.json", "<b>.log", "--against", "ten.json", "--html", "page.html"],
    );
    assert_eq!(ran.code, 0, "{ran:?}");
    let page = fs::read_to_string(folder.join("page.html")).unwrap();
    assert!(page.contains("&lt;script&gt;alert(1)&lt;/script&gt;"), "it is shown");
    for markup in ["<script", "<img", "<b>", "onerror=alert(1)>"] {
        assert!(!page.contains(markup), "{markup}");
    }
    assert!(page.contains("Over time"));
}

#[test]
fn a_policy_is_taken_from_wherever_check_takes_it() {
    let folder = policies();
    let plain = tollgate(&folder, &["replay", "ten.json", "access.log", "--json"]);
    let yaml = "version: 1\nrules:\n  - name: each\n    key: [client_ip]\n    quotas: [{limit: 10, window: 1m}]\n";
    let piped =
        tollgate_reading(&folder, &["replay", "-", "access.log", "--json"], yaml.as_bytes());
    assert_eq!(piped, plain);
    let envoy = tollgate(&folder, &["replay", "envoy.yaml", "access.log"]);
    assert!(envoy.code == 2 && envoy.stderr.contains("a replay needs one policy"), "{envoy:?}");
}

/// The names that docs/replay.md documents.
#[test]
fn the_names_of_the_json_are_kept() {
    let arguments = ["replay", "ten.json", "access.log", "--json", "--against", "log.json"];
    let found = json(&tollgate(&policies(), &arguments));
    let names =
        |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>().join(" ");
    assert_eq!(
        names(&found),
        "against clients fail_if keys log notes requests rules suggestions timeline waits"
    );
    assert_eq!(
        names(&found["log"]),
        "ahead already_refused causes crowded_seconds damaged first hurried_seconds last late lines most_late_ms \
         out_of_order outside unparsable"
    );
    let tally = "admitted delayed denied marked shadowed total unreadable";
    assert_eq!(names(&found["requests"]), tally);
    let clients = "delayed denied marked one_of requests_without shadowed total unreadable";
    assert_eq!(names(&found["clients"]), clients);
    assert_eq!(
        names(&found["rules"][0]),
        "allowed delayed denied first limited_keys limited_keys_are_exact malformed marked name quotas shadowed"
    );
    assert_eq!(
        names(&found["rules"][0]["quotas"][0]),
        "algorithm limit limited name tier window_ms"
    );
    assert_eq!(names(&found["keys"]), "counted_at_most error top");
    assert_eq!(
        names(&found["keys"]["top"][0]),
        "delayed denied error first key last marked rule shadowed"
    );
    assert_eq!(names(&found["timeline"]["bins"][0]), "at delayed denied over total");
    assert_eq!(
        names(&found["against"]),
        "changed_clients changed_requests clients newly_limited no_longer_limited requests rules"
    );
    let changed = "both newly_limited no_longer_limited";
    assert_eq!(names(&found["against"]["changed_requests"]), changed);
    assert_eq!(names(&found["against"]["no_longer_limited"][0]), "at client request");
}

/// Suggestions do not depend on the source of the log; without a second pass nothing is reported as
/// replayed.
#[test]
fn suggestions_are_tried_on_a_copy_of_what_can_be_read_once() {
    let folder = folder("suggest");
    let log = access_log();
    fs::write(folder.join("access.log"), &log).unwrap();
    let of = |ran: Ran| {
        assert_eq!(ran.code, 0, "{ran:?}");
        let said = json(&ran);
        (said["suggestions"].clone(), said["notes"].clone())
    };
    let file = tollgate(&folder, &["replay", "ten.json", "access.log", "--suggest", "--json"]);
    let (expected, notes) = of(file);
    let limit = &expected[0]["limits"][0];
    assert!(limit["replayed"]["of"].as_u64().is_some_and(|of| of > 3), "{expected}");
    assert_eq!(notes.as_array().map(Vec::len), Some(0), "{notes}");
    // A packed log is copied packed: the bound applies to those bytes.
    let packed = gzip(&log);
    assert!(packed.len() < log.len());
    let bound = packed.len().to_string();
    let once = |spool: &str, bytes: &[u8]| {
        let words = ["replay", "ten.json", "-", "--suggest", "--json", "--spool", spool];
        of(tollgate_reading(&folder, &words, bytes))
    };
    assert_eq!(once("1GiB", &log), (expected.clone(), notes.clone()));
    assert_eq!(once(&bound, &packed), (expected, notes));
    for (spool, bytes) in [("0", &packed), (&*bound, &log)] {
        let (suggested, notes) = once(spool, bytes);
        for limit in suggested[0]["limits"].as_array().unwrap() {
            assert!(limit["replayed"].is_null() && limit["limit"] == limit["counted"], "{limit}");
        }
        let note = "the suggested limits were not tried: <stdin> is longer than --spool";
        assert_eq!(notes[0].as_str(), Some(note));
    }
}

/// Guards: the first Ctrl-C ends the reading and not the report. Everything written beyond a pipe's
/// 64 KiB was read before the signal comes, and nothing more comes.
#[cfg(unix)]
#[test]
fn the_first_interrupt_reports_what_was_read() {
    use std::process::{Command, Stdio};
    let mut child = Command::new(env!("CARGO_BIN_EXE_tollgate"))
        .current_dir(policies())
        .args(["replay", "ten.json", "-", "--json"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let log: String = (0..8000).map(|i| line(i, "192.0.2.1", "/")).collect();
    stdin.write_all(log.as_bytes()).unwrap();
    let sent = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
    let done = child.wait_with_output().unwrap();
    drop(stdin);
    let found: Value = serde_json::from_slice(&done.stdout).unwrap();
    let total = found["requests"]["total"].as_u64().unwrap();
    assert!((100..=8000).contains(&total), "{total}");
    assert_eq!(done.status.code(), Some(1));
    let note = found["notes"][0].as_str().unwrap();
    assert!(note.starts_with("the replay was interrupted"), "{note}");
}

/// "Nobody limited" would be false: most of the log was left out, or a rule lacked its facts.
#[test]
fn a_log_in_which_a_rule_sees_nothing_is_no_good_end() {
    let folder = folder("blind");
    let each: String = (0..50).map(|i| line(i, "-", "/")).collect();
    fs::write(folder.join("nobody"), &each).unwrap();
    let ran = tollgate(&folder, &["replay", "ten.json", "nobody", "--json"]);
    assert_eq!(ran.code, 1);
    let said = "problem: no request has a client, which the policy reads; use ";
    assert!(ran.stderr.starts_with(said), "{ran:?}");
    let notes = &json(&ran)["notes"];
    assert_eq!(notes[0], "rule \"each\" applied to no request");
    let ran = tollgate(&folder, &["replay", "ten.json", "nobody", "--assume", "client=192.0.2.1"]);
    assert_eq!((ran.code, &*ran.stderr), (0, ""));
    // The newest first, as in some exports.
    for (seconds, left_out) in [(1, 39), (60, 49)] {
        let newest = (0..50).rev().map(|i| line(i * seconds, "192.0.2.1", "/"));
        fs::write(folder.join("newest"), newest.collect::<String>()).unwrap();
        let ran = tollgate(&folder, &["replay", "ten.json", "newest"]);
        assert_eq!(ran.code, 1);
        let said = format!("problem: {left_out} of 50 lines were left out, ");
        assert!(ran.stderr.starts_with(&said), "{ran:?}");
    }
    // A name is not in any network.
    let networks = r#"{"version": 1, "rules": [{"name": "r", "when": {"client_cidrs": ["0.0.0.0/0"]},
        "key": [], "quotas": [{"limit": 1, "window": "1m"}]}]}"#;
    fs::write(folder.join("networks.json"), networks).unwrap();
    fs::write(folder.join("named"), each.replace("- - -", "a.example - -")).unwrap();
    let found = json(&tollgate(&folder, &["replay", "networks.json", "named", "--json"]));
    let notes = &found["notes"];
    assert_eq!(notes[0], "rule \"r\" applied to no request");
    assert!(notes[1].as_str().unwrap().starts_with("clients of the log are host names"), "{notes}");
}

/// Where the first line is not a header, its columns are a client's address and name.
#[test]
fn a_header_that_is_none_is_not_shown_in_private() {
    let folder = folder("header");
    fs::write(folder.join("a.csv"), "2026-01-31T09:00:00Z,203.0.113.77,alice\n").unwrap();
    let run = |private: &[&str]| {
        let base = ["replay", "ten.json", "a.csv", "--format", "csv:client=who"];
        tollgate(&folder, &[&base[..], private].concat())
    };
    let message = "problem: a.csv: the first line has no column \"who\"";
    let ran = run(&["--private"]);
    assert_eq!((ran.code, ran.stderr), (1, format!("{message}\n")));
    let ran = run(&[]);
    assert!(ran.stderr.starts_with(&format!("{message}, but 2026")), "{ran:?}");
}

/// 60 clients with up to 20 requests in a minute, and two that send 200; one of them is never
/// limited by the policy.
fn abused_log() -> String {
    let mut lines = Vec::new();
    for client in 0..60 {
        let times = (0..1 + client % 20).map(|i| i * 3);
        lines.extend(times.map(|at| (at, format!("10.0.0.{client}"), "/")));
    }
    for (client, target) in [("192.0.2.1", "/"), ("192.0.2.2", "/")] {
        lines.extend((0..200).map(|i| (i * 60 / 200, client.to_owned(), target)));
    }
    lines.sort();
    let line = |(at, client, target): (u32, String, &str)| {
        format!("{client} - - [01/Jan/2026:00:00:{at:02} +0000] \"GET {target} HTTP/1.1\" 200 1\n")
    };
    lines.into_iter().map(line).collect()
}

// Guards: a suggestion of the abusers' own rate, because they are more than 1 % of the clients.
#[test]
fn the_whole_range_of_limits_is_shown_and_the_gap_below_abusers_named() {
    let folder = folder("abused");
    std::fs::write(folder.join("abused.log"), abused_log()).unwrap();
    let policy = r#"{"version": 1, "rules": [{"name": "each", "key": ["client_ip"],
        "quotas": [{"limit": 1000, "window": "1m"}]}]}"#;
    std::fs::write(folder.join("loose.json"), policy).unwrap();
    let words = ["replay", "loose.json", "abused.log", "--suggest", "--touch", "4%"];
    let ran = tollgate(&folder, &words);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    let said = ran.stdout;
    assert!(said.contains("any limit here denies the same 2 clients."), "{said}");
    assert!(said.contains("192.0.2.2") && said.contains("192.0.2.1"), "{said}");
    assert!(said.contains("4 %"), "{said}");
    let ran = tollgate(&folder, &[&words[..], &["--json"]].concat());
    let said: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    let suggestion = &said["suggestions"][0];
    let heaviest = &suggestion["heaviest"];
    assert_eq!(heaviest.as_array().unwrap().len(), 10);
    assert_eq!(heaviest[0]["key"], "192.0.2.1");
    assert_eq!((&heaviest[0]["greatest"], &heaviest[0]["requests"]), (&200.into(), &200.into()));
    assert_eq!(heaviest[0]["limited"], 0);
    let gap = &suggestion["gap"];
    assert!(gap["from"].as_u64().unwrap() <= 21 && gap["to"].as_u64().unwrap() >= 100, "{gap}");
    let clients = suggestion["curve"].as_array().unwrap().iter();
    let clients: Vec<u64> =
        clients.map(|step| step["replayed"]["clients"].as_u64().unwrap()).collect();
    assert!(clients.is_sorted_by(|a, b| a >= b) && clients.len() > 6, "{clients:?}");
    // Private output shows no text of the log, and without --suggest there are no suggestions.
    let ran = tollgate(&folder, &[&words[..], &["--private"]].concat());
    assert!(!ran.stdout.contains("192.0.2") && ran.stdout.contains("key "), "{}", ran.stdout);
    assert_eq!(tollgate(&folder, &["replay", "loose.json", "abused.log", "--touch", "4%"]).code, 2);
}
