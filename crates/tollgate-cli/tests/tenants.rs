//! `--tenants`: the mistakes in files of entries, with file, line and position, for every command
//! that reads them. docs/policy/tenants.md runs valid files.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::support::{Ran, scratch, tollgate};

const POLICY: &str = r#"{"version": 1, "tenant": "client_ip", "rules": [
    {"name": "api", "key": ["client_ip"], "quotas": [{"limit": 5, "window": "1m"}]}]}"#;
const LOG: &str = r#"192.0.2.1 - - [31/Jan/2026:12:00:00 +0000] "GET / HTTP/1.1" 200 1
"#;

/// A folder with the policy, a log, and these files.
fn folder(name: &str, files: &[(&str, &str)]) -> PathBuf {
    let folder = scratch(&format!("entries/{name}"));
    for (file, text) in [("policy.json", POLICY), ("access.log", LOG)].iter().chain(files) {
        fs::write(folder.join(file), text).unwrap();
    }
    folder
}

/// Every command that takes entries, without them.
const COMMANDS: [&[&str]; 4] = [
    &["check", "policy.json", "--surface", "worker"],
    &["explain", "policy.json", "--surface", "worker", "--ip", "192.0.2.1"],
    &["simulate", "--policy", "policy.json", "--surface", "worker"],
    &["replay", "policy.json", "access.log", "--surface", "worker", "--assume", "client=log"],
];

fn with(command: &[&str], files: &[&str]) -> Vec<String> {
    let tenants = files.iter().flat_map(|file| ["--tenants", file]);
    command.iter().copied().chain(tenants).map(str::to_owned).collect()
}

fn run(folder: &Path, arguments: &[String]) -> Ran {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    tollgate(folder, &arguments)
}

/// Guards: a mistake that one command reports and another one ignores.
#[test]
fn every_command_says_the_same_of_wrong_entries() {
    let none = "is not a list of tenants, as GET tenants gives it: ";
    for (i, (files, said)) in [
        (vec![("a.json", "[]")], format!("a.json: {none}this is a list, not an object\n")),
        (vec![("a.json", "{\"tenants\": [\n{\"id\": \"192.0.2.1\", \"enty\": {}}]}")], "a.json:2: tenants[0]: unknown field `enty`, expected one of `id`, `entry`, `etag`, `without_effect`\n".to_owned()),
        (vec![("a.json", "{\"tenants\": [\n{\"id\": \"a\", \"id\": \"b\"}]}")], "a.json:2: tenants[0]: duplicate field `id`\n".to_owned()),
        (vec![("a.json", "{\"tenants\": [{\"id\": \"192.0.2.1\"}]}")], "a.json:1: tenants[0]: missing field `entry`\n".to_owned()),
        (vec![("a.json", "{\"tenants\": []")], format!("a.json:1: {none}EOF while parsing an object")),
        (
            vec![("a.json", "{\"tenants\": [\n\n{\"id\": \"192.0.2.1\", \"entry\": {}},\n{\"id\": \"x\", \"entry\": null}]}")],
            "a.json:3: tenants[0].entry: has no effect; give it \"tier\" or \"quotas\" (tenant \"192.0.2.1\")\n\
             a.json:4: tenants[1].entry: null is not an object (tenant \"x\")\n"
                .to_owned(),
        ),
        (
            vec![("a.json", r#"{"tenants": [{"id": "shop", "entry": {"quotas": {"api": [{"limit": 1, "window": "1m"}]}}}]}"#)],
            "a.json:1: tenants[0].id: cannot be the name of a request's tenant; use at most 1024 bytes (tenant \"shop\")\n".to_owned(),
        ),
        (
            // One entry in two spellings, on two pages.
            vec![
                ("a.json", r#"{"tenants": [{"id": "2001:DB8::", "entry": {"quotas": {"api": [{"limit": 1, "window": "1m"}]}}}], "next_after": "2001:DB8::"}"#),
                ("b.json", r#"{"tenants": [{"id": "2001:db8::", "entry": {"quotas": {"api": [{"limit": 1, "window": "1m"}]}}}]}"#),
            ],
            "b.json:1: tenants[0].id: is given twice; it is also at a.json:1 (tenant \"2001:db8::\")\n".to_owned(),
        ),
        (
            vec![("a.json", r#"{"tenants": [], "next_after": "m"}"#)],
            "a.json: next_after: more entries follow \"m\", since next_after is not null: give the next page with another --tenants\n".to_owned(),
        ),
        (
            vec![("a.json", r#"{"tenants": [], "next_after": "m"}"#), ("b.json", r#"{"tenants": [{"id": "1.2.3.4", "entry": {"tier": "a"}}]}"#)],
            "a.json: next_after: more entries follow \"m\", since next_after is not null: give the next page with another --tenants\n".to_owned(),
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let folder = folder(&format!("wrong-{i}"), &files);
        let names: Vec<&str> = files.iter().map(|(name, _)| *name).collect();
        for command in COMMANDS {
            let ran = run(&folder, &with(command, &names));
            let said_at_first = ran.stderr.starts_with(&said);
            assert!(ran.code == 1 && said_at_first, "{command:?}: {ran:?}\n{said}");
            assert_eq!(ran.stdout, "", "{command:?}");
        }
        let json = run(&folder, &with(&["check", "policy.json", "--surface", "worker", "--json"], &names));
        let report: Value = serde_json::from_str(&json.stdout).unwrap();
        assert_eq!((json.code, &report["ok"]), (1, &json!(false)));
        assert!(report["problems"][0]["file"].is_string(), "{report}");
    }
}

/// Guards: an entry without effect that is not reported; and one that counts as a mistake because
/// the policy has changed since.
#[test]
fn what_the_policy_does_not_know_is_a_warning() {
    let entries = "{\"tenants\": [\n{\"id\": \"192.0.2.1\", \"entry\": {\"tier\": \"gold\", \"quotas\": {\"apj\": [{\"limit\": 1, \"window\": \"1m\"}]}}, \
                   \"etag\": \"x\", \"without_effect\": [\"tier: gone\"]}], \"next_after\": null}";
    let folder = folder("unknown", &[("a.json", entries)]);
    let warnings = "a.json:2: warning: tenants[0].entry.tier: the policy has no tier \"gold\" (tenant \"192.0.2.1\")\n\
                    a.json:2: warning: tenants[0].entry.quotas.apj: the policy has no rule \"apj\"; did you mean \"api\"? (tenant \"192.0.2.1\")\n";
    for command in [COMMANDS[0], COMMANDS[2], COMMANDS[3]] {
        let ran = run(&folder, &with(command, &["a.json"]));
        let said = format!("{}{}", ran.stdout, ran.stderr);
        assert!(ran.code == 0 && said.contains(warnings), "{command:?}: {ran:?}");
    }
}

#[test]
fn what_makes_no_sense_is_refused() {
    let good = r#"{"tenants": [{"id": "192.0.2.1", "entry": {"quotas": {"api": [{"limit": 1, "window": "1m"}]}}}]}"#;
    let nobody = POLICY.replace(r#""tenant": "client_ip", "#, "");
    let folder = folder(
        "senseless",
        &[("a.json", good), ("nobody.json", &nobody), ("b.json", "\u{feff}{\"tenants\": []}")],
    );
    for command in COMMANDS {
        let stdin = run(&folder, &with(command, &["-"]));
        assert_eq!(
            (stdin.code, &*stdin.stderr),
            (2, "error: --tenants reads files, not the standard input\n")
        );
        let missing = run(&folder, &with(command, &["none.json"]));
        assert!(
            missing.code == 2 && missing.stderr.starts_with("error: cannot read none.json: "),
            "{missing:?}"
        );
        let of_nobody: Vec<&str> = command
            .iter()
            .map(|word| if *word == "policy.json" { "nobody.json" } else { word })
            .collect();
        let ran = run(&folder, &with(&of_nobody, &["a.json"]));
        let said = "tenant: is missing: the policy does not define the tenant of a request, so --tenants has no effect\n";
        assert_eq!((ran.code, &*ran.stderr), (1, said), "{command:?}");
        // An empty list is valid, and a byte order mark before it is not a part of it.
        assert_eq!(run(&folder, &with(command, &["b.json"])).code, 0);
    }
    let table = run(&folder, &with(&[COMMANDS[2], &["--store", "envoy"]].concat(), &["a.json"]));
    let said = "error: Envoy's table keeps no tenants: leave out --tenants, or --store envoy\n";
    assert_eq!((table.code, &*table.stderr), (2, said));
}

/// Guards: a hundred thousand entries that take minutes, or quadratic memory.
#[test]
fn a_hundred_thousand_entries_are_read() {
    const COUNT: u32 = if cfg!(debug_assertions) { 10_000 } else { 100_000 };
    let one = |i: u32| {
        let address = std::net::Ipv4Addr::from(0x0a00_0000 + i);
        format!(
            r#"{{"id": "{address}", "entry": {{"quotas": {{"api": [{{"limit": {}, "window": "1m"}}]}}}}}}"#,
            1 + i % 4_000
        )
    };
    let all: Vec<String> = (0..COUNT).map(one).collect();
    let entries = format!("{{\"tenants\": [\n{}\n]}}", all.join(",\n"));
    let folder = folder("many", &[("a.json", &entries)]);
    let ran = run(&folder, &with(COMMANDS[0], &["a.json"]));
    let said = format!(
        "\nentries     {COUNT} given: 0 with a tier, {COUNT} with quotas of their own, 0 that expire\n"
    );
    assert!(ran.code == 0 && ran.stdout.contains(&said), "{ran:?}");
    let explained = ["explain", "policy.json", "--surface", "worker", "--ip", "10.0.3.7", "--json"];
    let ran = run(&folder, &with(&explained, &["a.json"]));
    let report: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(
        report["entry"],
        json!({"file": "a.json", "line": 777, "in_force": true, "note": null})
    );
    let verdict = &report["rules"][0]["verdict"];
    assert_eq!((&verdict["entry"], &verdict["quotas"][0]["limit"]), (&json!("own"), &json!(776)));
}
