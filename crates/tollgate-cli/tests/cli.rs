//! The command line itself: its output for people (snapshots), its output for programs, and its
//! exit codes.
//!
//! A snapshot is a session (see `support`) run in tests/policies. After an intended change:
//! `TOLLGATE_BLESS=1 cargo test -p tollgate-cli --test all cli::`, and review the difference.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::support::{Ran, assert_same, is_blessing, replay, scratch, tollgate};

fn folder(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests").join(name)
}

fn run(arguments: &[&str]) -> Ran {
    tollgate(&folder("policies"), arguments)
}

/// The report that `arguments` print with `--json`, and the exit code.
fn report(arguments: &[&str]) -> (Value, i32) {
    let ran = run(&[arguments, &["--json"]].concat());
    assert_eq!(ran.stderr, "", "{arguments:?}");
    (serde_json::from_str(&ran.stdout).unwrap(), ran.code)
}

#[test]
fn what_people_see() {
    let mut count = 0;
    for entry in fs::read_dir(folder("snapshots")).unwrap() {
        let path = entry.unwrap().path();
        let expected = fs::read_to_string(&path).unwrap();
        let ran = replay(&folder("policies"), &expected);
        if is_blessing() {
            fs::write(&path, &ran).unwrap();
        } else {
            assert_same(&path.display().to_string(), &expected, &ran);
        }
        count += 1;
    }
    assert!(count >= 5, "{count} snapshots");
}

#[test]
fn problems_for_machines() {
    let (report, code) = report(&["check", "bad.json"]);
    assert_eq!((code, &report["ok"], &report["rules"]), (1, &json!(false), &json!([])));
    let first = json!({"surface": null, "line": null, "path": "rules[0].quotas[0].window",
                       "message": "\"0s\" is too short; use 1ms to 366d"});
    assert!(report["problems"].as_array().unwrap().contains(&first), "{report:#}");
    let alone = report["problems"].as_array().unwrap().iter().find(|p| p["surface"] == "worker");
    assert_eq!(alone.unwrap()["path"], "rules[1].when.routes");
}

// The command reads only as much as shows that it is too much.
#[test]
fn a_file_without_end_is_too_long() {
    let (report, code) = report(&["check", "/dev/zero"]);
    let message = report["problems"][0]["message"].as_str().unwrap();
    assert_eq!((code, message), (1, "the policy is longer than 1 MiB"));
}

#[test]
fn a_good_policy_for_machines() {
    let (report, code) = report(&["check", "good.json", "--surface", "envoy"]);
    assert_eq!((code, &report["ok"], &report["surfaces"]), (0, &json!(true), &json!(["envoy"])));
    let rule = &report["rules"][1];
    assert_eq!(
        rule["quotas"][0],
        json!({"name": "api", "algorithm": "gcra", "limit": 100, "window_ms": 60000, "burst": 20,
               "buckets": null, "weighted": null, "strict": false, "max_in_window": 119,
               "bound": "at most 119 in any minute", "state_bytes": 8})
    );
    assert_eq!(rule["memory"]["worker"], json!(null));
    assert_eq!(rule["memory"]["envoy"]["capacity"], 1000);
    assert_eq!(rule["tiers"][0]["name"], "gold");
}

#[test]
fn an_explanation_for_machines() {
    let request = ["explain", "good.json", "--method", "POST", "--path", "/login"];
    let (first, code) = report(&[&request[..], &["--ip", "192.0.2.1"]].concat());
    assert_eq!((code, &first["decision"]["answer"]), (0, &json!("pass")));
    assert_eq!(first["decision"]["status"], json!(null));
    let (second, code) = report(&[&request[..], &["--ip", "192.0.2.1", "--repeat", "2"]].concat());
    assert_eq!(code, 0, "a refusal is an answer");
    assert_eq!(second["decision"], json!({"answer": "refuse", "status": 429, "wait_ms": null}));
    assert_eq!(second["before"]["passed"], 1);
    let login = &second["rules"][0];
    assert_eq!((&login["applies"], &login["verdict"]["result"]), (&json!(true), &json!("denied")));
    assert_eq!(login["verdict"]["quotas"][1]["wait_ms"], 2000);
    assert_eq!(second["rules"][1]["reason"], "it is for path /api/**");
    assert!(second["body"].as_str().unwrap().contains("\"violated-policies\":[\"login-gap\"]"));
    let hash = |report: &Value| report["rules"][0]["verdict"]["key_hash"].clone();
    assert_eq!(hash(&first), hash(&second));
    let (other, _) = report(&[&request[..], &["--ip", "192.0.2.2"]].concat());
    assert_ne!(hash(&first), hash(&other));
}

/// The names of fields are stable: this list changes only with a line in the change log.
#[test]
fn the_fields_of_reports_are_stable() {
    let (check, _) = report(&["check", "good.json"]);
    let names =
        |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>().join(" ");
    assert_eq!(
        names(&check),
        "client_ip escaped_slashes exempt ok problems rules surfaces warnings"
    );
    assert_eq!(
        names(&check["rules"][0]),
        "action applies charge cost key memory mode name on_failure on_missing quotas tiers"
    );
    assert_eq!(names(&check["rules"][0]["memory"]), "envoy shared_with value_bytes worker");
    let (explain, _) =
        report(&["explain", "good.json", "--method", "POST", "--path", "/login", "--ip", "::1"]);
    assert_eq!(
        names(&explain),
        "assumed before body client decision headers ok origin_headers paths request rules surface"
    );
    assert_eq!(names(&explain["rules"][0]), "applies name reason verdict");
    assert_eq!(
        names(&explain["rules"][0]["verdict"]),
        "charged chosen_in_secret cost enforced key key_hash malformed quotas result tier"
    );
    assert_eq!(
        names(&explain["rules"][0]["verdict"]["quotas"][0]),
        "burst limit name remaining verdict wait_ms"
    );
}

#[test]
fn a_key_is_never_shown() {
    let secret = "x-api-key: s3cret-of-a-client";
    for json in [&[][..], &["--json"]] {
        let request = ["explain", "good.json", "--path", "/api/x", "--header", secret];
        let ran = run(&[&request[..], json].concat());
        assert_eq!(ran.code, 0);
        assert!(ran.stdout.contains("x-api-key") && !ran.stdout.contains("s3cret"));
    }
    let check = run(&["check", "good.json"]);
    assert!(!check.stdout.contains("k-123"), "values of keys are secrets, too");
}

#[test]
fn misuse_ends_with_2() {
    let rows: [(&[&str], &str); 35] = [
        (&[], "Usage"),
        (&["chekc", "good.json"], "unrecognized subcommand"),
        (&["check"], "required arguments"),
        (&["check", "no-such.json"], "cannot read no-such.json"),
        (&["check", "good.json", "--surface", "nginx"], "invalid value 'nginx'"),
        (&["explain", "no-such.json"], "cannot read no-such.json"),
        (&["explain", "good.json", "--ip", "localhost"], "invalid IP address"),
        (&["explain", "good.json", "--ip", "192.0.2.1:80"], "invalid IP address"),
        (&["explain", "good.json", "--path", "login"], "begin it with"),
        (&["explain", "good.json", "--method", "GE T"], "use letters, digits"),
        (&["explain", "good.json", "--header", "x-api-key"], "use 'name: value'"),
        (&["explain", "good.json", "--claim", "sub"], "use name=text or name:=JSON"),
        (&["explain", "good.json", "--claim", "sub:=alice"], "not JSON"),
        (&["explain", "good.json", "--metadata", "f=a"], "use filter/name=text"),
        (&["explain", "good.json", "--metadata", "f/a:=acme"], "not JSON"),
        (
            &["explain", "good.json", "--surface", "worker", "--metadata", "f/a=b"],
            "--metadata exists in Envoy only",
        ),
        (
            &["explain", "good.json", "--surface", "server", "--metadata", "f/a=b"],
            "not known to a server",
        ),
        (&["explain", "good.json", "--cf", "country=DE"], "use colo=, ja3=, ja4= or tls_version="),
        (&["explain", "good.json", "--cf", "ja4=a"], "--cf exists in the Worker only"),
        (&["explain", "good.json", "--certificate", "san=a"], "use uri_san=, dns_san="),
        (
            &["explain", "good.json", "--surface", "server", "--certificate", "subject=a"],
            "--certificate is not known to a server",
        ),
        (&["explain", "good.json", "--repeat", "0"], "0 is not in 1..=1000000"),
        (&["explain", "good.json", "--every", "2"], "use a whole number and a unit"),
        (&["explain", "good.json", "--curl", "curl"], "curl: the command line has no URL"),
        (&["explain", "good.json", "--curl", "curl 'x"], "--curl: a quote is not closed"),
        (&["explain", "good.json", "--", "wget", "x"], "begins with curl, not with \"wget\""),
        (&["explain", "good.json", "--path", "/", "--", "curl", "x"], "cannot be used with"),
        (&["explain", "good.json", "--url", "ftp://x"], "--url: ftp is not a scheme of HTTP"),
        (&["explain", "good.json", "--url", "x", "--host", "y"], "cannot be used with"),
        (&["embed", "envoy.yaml"], "is a configuration of Envoy already"),
        (&["compile", "envoy.yaml", "--surface", "envoy"], "is a configuration of Envoy"),
        (&["compile", "good.json"], "--surface"),
        (&["explain", "envoy.yaml", "--surface", "worker"], "the only surface is envoy"),
        (&["explain", "good.json", "--country", "DE"], "do not exist in Envoy"),
        (&["explain", "good.json", "--surface", "worker", "--route", "r"], "exists in Envoy only"),
    ];
    for (arguments, expected) in rows {
        let ran = run(arguments);
        assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{arguments:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(expected), "{arguments:?}: {}", ran.stderr);
    }
}

#[test]
fn a_bad_policy_is_not_explained() {
    let ran = run(&["explain", "bad.json"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (1, ""));
    assert!(
        ran.stderr.contains("rules[0].quotas[0].window: \"0s\" is too short; use 1ms to 366d\n")
    );
}

/// A file that is not text is misuse; a text that is not a policy is a problem found.
#[test]
fn a_file_that_is_no_text() {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("bytes.json");
    fs::write(&path, b"{\"\xff\"}").unwrap();
    assert_eq!(run(&["check", path.to_str().unwrap()]).code, 2);
    fs::write(&path, b"hello").unwrap();
    let ran = run(&["check", path.to_str().unwrap()]);
    assert_eq!(
        (ran.code, ran.stderr.as_str()),
        (1, "not JSON: expected value at line 1 column 1\n")
    );
}

// Guards: a key with a new value from the client in each request, in the example of the README.
#[test]
fn a_key_that_the_client_writes_is_warned_of_and_warnings_can_fail() {
    let folder = scratch("deny-warnings");
    let api = r#"{"name": "api", "key": [{"header": "x-api-key"}], "quotas": [{"limit": 9, "window": "1m"}]}"#;
    let each =
        r#"{"name": "each", "key": ["client_ip"], "quotas": [{"limit": 99, "window": "1m"}]}"#;
    let document = |rules: &str| format!(r#"{{"version": 1, "rules": [{rules}]}}"#);
    std::fs::write(folder.join("alone.json"), document(api)).unwrap();
    std::fs::write(folder.join("backed.json"), document(&format!("{api}, {each}"))).unwrap();
    let warning = "warning: rules[0].key: has a value that the client chooses";
    for (file, words, code, is_warned) in [
        ("alone.json", &[][..], 0, true),
        ("alone.json", &["--deny-warnings"], 1, true),
        ("alone.json", &["--deny-warnings", "--surface", "server"], 1, true),
        ("backed.json", &["--deny-warnings"], 0, false),
    ] {
        let ran = tollgate(&folder, &[&["check", file][..], words].concat());
        assert_eq!((ran.code, ran.stdout.contains(warning)), (code, is_warned), "{}", ran.stdout);
    }
    let ran = tollgate(&folder, &["check", "alone.json", "--deny-warnings", "--json"]);
    let said: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(
        (ran.code, &said["ok"], &said["warnings"][0]["path"]),
        (1, &true.into(), &"rules[0].key".into())
    );
}
