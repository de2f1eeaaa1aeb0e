//! The corpora of `tests/fuzz`, replayed without a fuzzer: inputs that once broke a law stay fixed.
//!
//! The targets' bodies are the fuzzer's own; `tests/fuzz/README.md` describes how a file gets here.

#[path = "../../../tests/fuzz/src/lib.rs"]
mod fuzz;

use std::fs;
use std::path::Path;

use tollgate_policy::Surface;
use tollgate_test_support::golden::is_blessing;

/// Gives every file of a target's corpus to its body.
fn replay(target: &str, check: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fuzz/corpus").join(target);
    let mut files: Vec<_> =
        fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    assert!(files.len() > 10, "only {} files of {target}", files.len());
    for file in files {
        println!("{}", file.display()); // the last one shown is the one that failed
        let bytes = fs::read(&file).unwrap();
        check(&bytes);
    }
}

#[test]
fn policies() {
    replay("policy", fuzz::policy::check);
}

#[test]
fn compiled_policies() {
    replay("compiled", fuzz::compiled::check);
}

/// The fuzzer of compiled policies begins with policies in today's format. This also shows that
/// their format has changed, on purpose or not. A new field changes the shape (`src/binary/mod.rs`)
/// and so the version; where the same bytes get another meaning, raise the version there.
#[test]
fn seeds_of_compiled_policies_are_as_they_are_written() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fuzz/corpus");
    let is_blessed = is_blessing();
    let mut seeds = 0;
    for file in fs::read_dir(corpus.join("policy")).unwrap() {
        let file = file.unwrap();
        // Few, because each is written again with every change of the format.
        let name = file.file_name().into_string().unwrap();
        if !["everything", "policy-0", "recipes-"].iter().any(|of| name.starts_with(of)) {
            continue;
        }
        let text = fs::read(file.path()).unwrap();
        let text = String::from_utf8_lossy(&text);
        let document = text.split("\n---\n").next().unwrap_or_default();
        let surfaces = [Surface::Worker, Surface::Envoy];
        let compiled = surfaces.iter().find_map(|s| tollgate_language::compile(document, *s).ok());
        let Some(policy) = compiled else { continue };
        seeds += 1;
        let seed = corpus.join("compiled").join(format!("seed-{name}"));
        let body = fuzz::compiled::body(&policy);
        if is_blessed {
            fs::write(&seed, &body).unwrap();
        }
        let stored = fs::read(&seed).unwrap_or_default();
        assert!(stored == body, "{}: TOLLGATE_BLESS=1 writes it anew", seed.display());
    }
    assert!(seeds > 10, "{seeds}");
}

#[test]
fn headers() {
    replay("headers", fuzz::headers::check);
}

#[test]
fn leases() {
    replay("leases", fuzz::leases::check);
}

#[test]
fn paths() {
    replay("paths", fuzz::paths::check);
}

/// The settings that make several values one, in every order.
#[test]
fn values_of_few_pieces() {
    const PIECES: [&str; 8] = ["a", "b", ",", ", ", " ", "\t", "ab", "\x0b"];
    const LONGEST: u32 = 4;
    for number in 0..8_usize.pow(LONGEST) {
        let digits = (0..LONGEST).map(|i| number / 8_usize.pow(i) % 8);
        let list: String = digits.map(|digit| PIECES[digit]).collect();
        fuzz::values::check(list.as_bytes(), b"b");
    }
}

/// The settings in which servers differ, in every order.
#[test]
fn paths_of_few_pieces() {
    const PIECES: [&str; 11] =
        ["/a", "/..", "/", "..", "%2f", "\\", "%5C", "/.", "%2e", "%252f", "b%zz"];
    const LONGEST: u32 = 3;
    for number in 0..11_usize.pow(LONGEST) {
        let digits = (0..LONGEST).map(|i| number / 11_usize.pow(i) % 11);
        let target: String = digits.map(|digit| PIECES[digit]).collect();
        fuzz::paths::check(format!("/a\n/{{x}}/**\n\n{target}").as_bytes());
    }
}

#[test]
fn states() {
    replay("state", fuzz::state::check);
}
