//! The cases natively and as wasm in Node: the same answers as `golden.txt` says, to the byte.
//!
//! Renew the file after an intended change of what is answered: the command that the failure names.

use tollgate_cases::golden;
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

#[test]
fn every_answer_is_the_golden_one() {
    golden::compare(&golden::policies());
}

#[test]
fn every_state_is_the_golden_one() {
    golden::compare(&golden::limiters());
}
