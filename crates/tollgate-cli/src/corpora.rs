//! The corpus of `tests/fuzz` for `convert`, replayed without a fuzzer: an input that once broke a
//! law must not break it again.
//!
//! Invariant: the target's body is the fuzzer's own; `tests/fuzz/README.md` describes how a file
//! gets here. It is a unit test, because a program has no library that an integration test could
//! call.

#[path = "../../../tests/fuzz/src/convert.rs"]
#[allow(unreachable_pub, clippy::expect_used, clippy::arithmetic_side_effects)]
mod convert;

use std::fs;
use std::path::Path;

#[test]
fn configurations() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fuzz/corpus/convert");
    let files = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let mut files: Vec<_> = files.collect();
    files.sort();
    assert!(files.len() > 10, "only {} files", files.len());
    for file in files {
        println!("{}", file.display()); // the last one shown is the one that failed
        convert::check(&fs::read(&file).unwrap());
    }
}
