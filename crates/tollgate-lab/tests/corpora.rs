//! The corpus of `tests/fuzz`, replayed without a fuzzer: inputs that once broke a law must pass.
//!
//! The target's body is the fuzzer's own; `tests/fuzz/README.md` explains how a file gets here.

#[path = "../../../tests/fuzz/src/traffic.rs"]
mod traffic;

use std::fs;
use std::path::Path;

#[test]
fn traffic_documents() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fuzz/corpus/traffic");
    let mut files: Vec<_> =
        fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    assert!(files.len() > 10, "only {} files", files.len());
    for file in files {
        println!("{}", file.display()); // the last one shown is the one that failed
        traffic::check(&fs::read(&file).unwrap());
    }
}
