//! `tollgate compile`: what it writes is the policy, and what it cannot write it does not touch.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects
)]

mod support;

use std::fs;
use std::path::{Path, PathBuf};

use tollgate_policy::{Policy, Surface};

use support::{tollgate, tollgate_reading};

const GOOD: &str = r#"{"version": 1, "rules": [{"name": "a", "key": ["client_ip"],
  "quotas": [{"limit": 3, "window": "1s", "algorithm": "sliding-log"}]}]}"#;

fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("compile").join(name);
    let _ = fs::remove_dir_all(&folder); // of the run before
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("policy.json"), GOOD).unwrap();
    folder
}

#[test]
fn what_is_written_is_the_policy_of_each_surface() {
    let folder = folder("written");
    for surface in Surface::ALL {
        let arguments =
            ["compile", "policy.json", "--surface", surface.name(), "-o", "policy.tollgate"];
        let ran = tollgate(&folder, &arguments);
        let bytes = fs::read(folder.join("policy.tollgate")).unwrap();
        let said = format!("policy.tollgate: {} bytes, for {}\n", bytes.len(), surface.name());
        assert_eq!((ran.code, ran.stdout.as_str(), ran.stderr.as_str()), (0, &*said, ""));
        let read = Policy::read_compiled(&bytes, surface).unwrap();
        assert_eq!(read.fingerprint(), Policy::compile(GOOD, surface).unwrap().fingerprint());
        assert!(!folder.join("policy.tollgate.partial").exists());
        // No command takes it for a document.
        for command in ["check", "explain"] {
            let ran = tollgate(&folder, &[command, "policy.tollgate"]);
            assert_eq!(ran.code, 2);
            assert!(
                ran.stderr.contains("is a compiled policy, which no person reads"),
                "{}",
                ran.stderr
            );
        }
    }
}

#[test]
fn a_module_has_the_same_bytes_as_text() {
    let folder = folder("module");
    let ran = tollgate(&folder, &["compile", "policy.json", "--surface", "worker", "-o", "p.mjs"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    let text = Policy::compile(GOOD, Surface::Worker).unwrap().to_compiled_text();
    let module = fs::read_to_string(folder.join("p.mjs")).unwrap();
    assert_eq!(module, format!("export default \"{text}\";\n"));
}

#[test]
fn a_policy_with_problems_leaves_the_file_as_it_was() {
    let folder = folder("bad");
    fs::write(folder.join("policy.tollgate"), "before").unwrap();
    fs::write(folder.join("policy.json"), GOOD.replace("1s", "0s")).unwrap();
    let arguments = ["compile", "policy.json", "--surface", "worker", "-o", "policy.tollgate"];
    let ran = tollgate(&folder, &arguments);
    assert_eq!((ran.code, ran.stdout.as_str()), (1, ""));
    assert!(
        ran.stderr.contains("rules[0].quotas[0].window: \"0s\" is too short"),
        "{}",
        ran.stderr
    );
    assert_eq!(fs::read(folder.join("policy.tollgate")).unwrap(), b"before");
}

#[test]
fn warnings_are_told_and_a_file_that_cannot_be_written_is_an_error() {
    let folder = folder("warned");
    let warned = GOOD.replace("[\"client_ip\"]", "[]");
    let arguments = ["compile", "-", "--surface", "worker", "-o", "no-such-folder/policy.tollgate"];
    let ran = tollgate_reading(&folder, &arguments, warned.as_bytes());
    assert_eq!((ran.code, ran.stdout.as_str()), (3, ""));
    assert!(ran.stderr.contains("warning: rules[0].key: sends every request"), "{}", ran.stderr);
    assert!(ran.stderr.contains("cannot write no-such-folder/policy.tollgate"), "{}", ran.stderr);
}
