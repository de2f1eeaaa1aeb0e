//! The corpus of the fuzz target `engine`, replayed without the fuzzer.
#![allow(
    missing_docs,
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "tests"
)]

#[path = "../../../tests/fuzz/src/engine.rs"]
mod engine;

use std::fs;
use std::path::Path;

#[test]
fn whatever_the_engine_answers_everybody_has_one_answer() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fuzz/corpus/engine");
    let mut replayed = 0;
    for entry in fs::read_dir(folder).expect("the corpus") {
        let bytes = fs::read(entry.expect("a file").path()).expect("read");
        for end in (0..=bytes.len()).step_by(1 + bytes.len() / 50) {
            engine::check(&bytes[..end]);
        }
        engine::check(&bytes);
        replayed += 1;
    }
    assert!(replayed >= 6);
}
