//! The commands in docs/admin.md are run and their output compared, in its order.
//!
//! Invariant: a command is read as a shell would and sent to the contract itself;
//! `TOLLGATE_BLESS=1` writes the output again.

use std::fs;

use crate::common::*;
use tollgate_service::MemoryLimits;
use tollgate_test_support::golden::assert_file;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/admin.md");

/// A policy in which tenants have entries, too.
const FILE: &str = r#"{"version": 1, "tenant": "host", "rules": [
  {"name": "each", "key": ["client_ip"], "quotas": [{"name": "q", "limit": 10, "window": "1m"}]}
]}
"#;

const KEYS: &str = r#"{"version": 1, "jwt": {"keys": [
    {"kty": "oct", "alg": "HS256", "kid": "2026", "k": "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LXNlY3JldA"}
  ]}, "rules": [
  {"name": "org", "key": [{"jwt_claim": "org"}], "quotas": [{"limit": 10, "window": "1m"}]}
]}"#;

/// The words of a command line, variables replaced.
fn words(line: &str, variables: &[(&str, &str)]) -> Vec<String> {
    let (mut words, mut word, mut is_open) = (Vec::new(), String::new(), false);
    let mut quote = None;
    let mut rest = line.chars().peekable();
    while let Some(c) = rest.next() {
        match (c, quote) {
            ('"' | '\'', None) => (quote, is_open) = (Some(c), true),
            (c, Some(q)) if c == q => quote = None,
            ('$', None | Some('"')) => {
                let mut name = String::new();
                while let Some(c) = rest.next_if(|c| c.is_ascii_alphabetic() || *c == '_') {
                    name.push(c);
                }
                let value = variables.iter().find(|(other, _)| *other == name);
                word.push_str(value.unwrap_or_else(|| panic!("${name}")).1);
                is_open = true;
            }
            (' ', None) => {
                if is_open {
                    words.push(std::mem::take(&mut word));
                }
                is_open = false;
            }
            (c, _) => {
                word.push(c);
                is_open = true;
            }
        }
    }
    words.extend(is_open.then_some(word));
    words
}

/// The output of `curl`.
fn curl(it: &Deployment, words: &[String], tag: &mut String) -> String {
    let (mut ask, mut shows_head) = (Ask { method: "GET".into(), ..Ask::default() }, false);
    let mut words = words.iter();
    assert_eq!(words.next().map(String::as_str), Some("curl"));
    while let Some(word) = words.next() {
        match word.as_str() {
            "-i" => shows_head = true,
            "-X" => ask.method.clone_from(words.next().unwrap()),
            "-H" => {
                let (name, value) = words.next().unwrap().split_once(": ").unwrap();
                ask = ask.with(name, value);
            }
            "--data" | "--data-binary" => {
                ask.body = match words.next().unwrap().as_str() {
                    "@more.json" => FILE.replace("\"limit\": 10", "\"limit\": 20").into(),
                    "@keys.json" => KEYS.into(),
                    body => body.into(),
                }
            }
            url => ask.target = url.strip_prefix("https://example.com").expect("ours").into(),
        }
    }
    let answer = it.ask(&ask);
    if let Some(etag) = answer.fields.get("etag") {
        etag.clone_into(tag);
    }
    let mut out = String::new();
    if shows_head {
        out = format!("HTTP/1.1 {}\n{}\n", answer.status, answer.fields.lines());
    }
    out.push_str(&answer.body);
    if !out.ends_with('\n') {
        out.push('\n');
    }
    if out == "\n" { String::new() } else { out }
}

#[test]
fn the_page_is_true() {
    let it = Deployment::with(FILE, MemoryLimits::default());
    let page = fs::read_to_string(PAGE).unwrap();
    let (mut new, mut tag, mut commands) = (String::new(), String::new(), 0);
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        new.push_str(line);
        new.push('\n');
        if line != "```console" {
            continue;
        }
        let block: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
        let mut block = block.into_iter().peekable();
        while let Some(line) = block.next() {
            let Some(command) = line.strip_prefix("$ ") else { continue };
            let (mut shown, mut whole) = (format!("{line}\n"), command.to_owned());
            while whole.ends_with('\\') {
                let more = block.next().expect("the command goes on");
                shown.push_str(&format!("{more}\n"));
                whole = format!("{} {}", whole.trim_end_matches('\\'), more);
            }
            let variables = [
                ("T", "https://example.com/.well-known/tollgate"),
                ("ADMIN_TOKEN", ADMIN),
                ("READ_TOKEN", READ),
                ("ETAG", &tag.clone()),
            ];
            let printed = curl(&it, &words(&whole, &variables), &mut tag);
            new.push_str(&shown);
            new.push_str(&printed);
            commands += 1;
        }
        new.push_str("```\n");
    }
    assert!(commands >= 12, "{commands} commands");
    // Guards: denials written down by a run that was to show how it is done.
    let tenants = new.split("## Tenants").nth(1).and_then(|rest| rest.split("\n## ").next());
    let shown = tenants.unwrap().lines().filter_map(|line| line.strip_prefix("HTTP/1.1 "));
    assert_eq!(shown.collect::<Vec<_>>(), ["201", "204"]);
    assert_file(PAGE, &new);
}
