//! The exact message for every mistake, from folders of policies with the expected texts.
//!
//! `bad/NAME.json` is rejected with the lines of `bad/NAME.txt`; `warnings/NAME.json` is accepted
//! with the warnings of its `.txt`. `NAME.worker.json` is for that surface, `NAME.json` for Envoy.
//! After a change of words, `TOLLGATE_BLESS=1 cargo test -p tollgate-language --test all bad::`
//! writes the texts; read the diff.

use std::fs;
use std::path::{Path, PathBuf};

use tollgate_policy::{Malformed, Surface};
use tollgate_test_support::golden::is_blessing;

/// The folders that read a document, where messages are made. Each message is covered by the
/// folders of policies, by `problems.rs` when it needs a document too large to keep, by
/// `explain.rs` when it is about a valid policy, by `tenants.rs` when it is about an entry, or by
/// `plugin.rs` when it is about settings next to a policy.
const WINGS: [&str; 6] = [
    "src",
    "src/json",
    "src/document",
    "src/compile",
    "../tollgate-http-syntax/src",
    "../tollgate-policy/src/spec",
];

/// Every source of these, and the one of the core that rejects quotas.
fn sources() -> Vec<String> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = vec![crates.join("../tollgate-core/src/quota.rs")];
    for wing in WINGS {
        let entries = fs::read_dir(crates.join(wing)).unwrap();
        files.extend(entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_file()));
    }
    assert!(files.iter().all(|file| file.extension().is_some_and(|e| e == "rs")), "{files:?}");
    files.iter().map(|file| fs::read_to_string(file).unwrap()).collect()
}

/// Literals with a space that no one reads.
const NO_MESSAGES: &[&str] = &[
    " weighted",                  // part of a quota's identity
    "Tollgate policy, version 1", // in the schema
    "For editors; not read.",     // in the schema
    "a boolean",                  // a scalar is shown as written, not by its kind
    "a JSON value",               // serde asks what is expected; everything is
    "{tier:?} {limiters:?}",      // hashed into a record's identity
    "{kind} {}:{name}\\n",        // hashed into a group's identity
    "match {}:{}\\n",             // hashed into a group's identity
    "any_of {}\\n",               // hashed into a group's identity
    "scope fleet\\n",             // hashed into a group's identity
    "scope share\\n",             // hashed into a group's identity
    "tollgate fleet 1",           // hashes the secret of a fleet
    "tollgate keys  1",           // hashes the secret of a plugin
    "the descriptor",             // in explanations
    "matching {:?}",              // in explanations
    " matching {:?}",             // in explanations
    "regular expression",         // part of the shape of a compiled policy
    // Built without regular expressions, which no test is.
    "needs regular expressions, which this build does not have; in Envoy use tollgate-envoy-full.wasm",
    // No document leads there.
    "has no mistake, but no policy could be made from it; please report this",
    // A window out of range is reported by `Window` before the core sees it.
    "window must be 1ms to 366d",
    // Nor does a limit out of range.
    "limit must be 1 to {MAX_LIMIT}",
];

/// Messages for clients of requests, not for the author of a document.
const OF_REQUESTS: [Malformed; 6] = [
    Malformed::Repeated,
    Malformed::Control,
    Malformed::Authority,
    Malformed::Credentials,
    Malformed::Path,
    Malformed::Long,
];

fn folder(name: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(name);
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut policies: Vec<_> =
        entries.filter(|path| path.extension().is_some_and(|e| e == "json")).collect();
    policies.sort();
    assert!(!policies.is_empty());
    policies
}

/// Compares the result of `said` for each policy of a folder with the text next to it.
fn check(name: &str, said: fn(&str, Surface) -> String) {
    let mut wrong = String::new();
    for path in folder(name) {
        let stem = path.file_stem().unwrap().to_str().unwrap();
        let surface = stem.split_once('.').and_then(|(_, surface)| Surface::parse(surface));
        let surface = surface.unwrap_or(Surface::Envoy);
        let mut text = said(&fs::read_to_string(&path).unwrap(), surface);
        if !text.is_empty() {
            text.push('\n');
        }
        let beside = path.with_extension("txt");
        if is_blessing() {
            fs::write(&beside, &text).unwrap();
        }
        let expected = fs::read_to_string(&beside).unwrap_or_default();
        if text != expected {
            wrong.push_str(&format!("{}\nsaid:\n{text}expected:\n{expected}\n", path.display()));
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn every_mistake_has_its_message() {
    check("bad", |document, surface| match tollgate_language::compile(document, surface) {
        Ok(_) => panic!("is a policy, so it belongs elsewhere: {document}"),
        Err(problems) => problems.to_string(),
    });
}

#[test]
fn every_warning_has_its_message() {
    check("warnings", |document, surface| {
        tollgate_language::compile(document, surface)
            .unwrap_or_else(|e| panic!("{e}"))
            .warnings()
            .to_string()
    });
}

#[test]
fn messages_are_one_line_each_in_lower_case_without_a_full_stop() {
    for line in texts().lines() {
        let message = line.split_once(": ").map_or(line, |(_, message)| message);
        assert!(!line.ends_with('.'), "{line}");
        assert!(line.len() < 300, "{line}");
        assert!(!message.starts_with(char::is_uppercase), "{line}");
        assert!(line.chars().all(|c| !c.is_control()), "{line}");
    }
}

fn texts() -> String {
    let all = folder("bad").into_iter().chain(folder("warnings"));
    all.map(|path| fs::read_to_string(path.with_extension("txt")).unwrap_or_default()).collect()
}

#[test]
fn no_message_of_the_sources_is_left_out() {
    let said = texts()
        + include_str!("problems.rs")
        + include_str!("../../tollgate-policy/tests/explain.rs")
        + include_str!("../../tollgate-policy/tests/tenants.rs")
        + include_str!("plugin.rs");
    let mut missing = Vec::new();
    for literal in sources().iter().flat_map(|source| literals(source)) {
        let is_of_requests = OF_REQUESTS.iter().any(|malformed| malformed.detail() == literal);
        if !literal.contains(' ') || is_of_requests || NO_MESSAGES.contains(&literal.as_str()) {
            continue;
        }
        if !pieces(&unescaped(&literal)).iter().all(|piece| said.contains(piece)) {
            missing.push(literal);
        }
    }
    assert!(missing.is_empty(), "add a policy to tests/bad or tests/warnings for: {missing:#?}");
}

/// The texts between the placeholders of a format, wherever one is long enough to identify it.
fn pieces(format: &str) -> Vec<String> {
    let mut pieces = vec![String::new()];
    let mut rest = format.to_string();
    if rest.contains("{{") {
        rest = rest.replace("{{", "{").replace("}}", "}");
    }
    while let Some(c) = rest.chars().next() {
        let name = rest.strip_prefix('{').and_then(|r| r.split_once('}')).map(|(name, _)| name);
        let is_name = |n: &&str| n.chars().all(|c| c.is_ascii_alphanumeric() || "_:?".contains(c));
        if let Some(name) = name.filter(is_name) {
            pieces.push(String::new());
            rest.drain(..name.len() + 2);
        } else {
            pieces.last_mut().unwrap().push(c);
            rest.drain(..c.len_utf8());
        }
    }
    pieces.retain(|piece| piece.len() > 3);
    pieces
}

/// The string literals of a Rust source, without its comments, attributes, schemas, assertions and
/// unit tests.
fn literals(source: &str) -> Vec<String> {
    let source = source.split("#[cfg(test)]\nmod tests").next().unwrap();
    let mut lines = String::new();
    let mut is_skipped = false;
    for line in source.lines() {
        let code = line.trim_start();
        is_skipped |= code.starts_with("schema!(") || code.starts_with("debug_assert!(");
        if !is_skipped && !code.starts_with("//") && !code.starts_with("#[") {
            lines.push_str(line);
            lines.push('\n');
        }
        is_skipped &= !code.ends_with(");");
    }
    let mut found = Vec::new();
    let mut chars = lines.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '/' if chars.peek() == Some(&'/') => while chars.next_if(|c| *c != '\n').is_some() {},
            '\'' => skip_character(&mut chars),
            '"' => found.push(literal(&mut chars)),
            _ => {}
        }
    }
    found
}

/// Steps over `'"'` and `'\\'`, but not over a lifetime.
fn skip_character(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) {
    let escaped = chars.next_if_eq(&'\\').is_some();
    if escaped || chars.peek() == Some(&'"') {
        chars.next();
        chars.next_if_eq(&'\'');
    }
}

/// The rest of a literal, as written.
fn literal(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) -> String {
    let mut text = String::new();
    while let Some(c) = chars.next().filter(|c| *c != '"') {
        text.push(c);
        if c == '\\' {
            text.extend(chars.next());
        }
    }
    text
}

fn unescaped(literal: &str) -> String {
    let mut out = String::new();
    let mut chars = literal.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some('\n') => while chars.next_if(|c| c.is_whitespace()).is_some() {},
                Some(c) => out.push(c),
                None => {}
            },
            c => out.push(c),
        }
    }
    out
}
