//! The cases natively and as wasm in Node: the same responses as in `golden.txt`, byte for byte.
//!
//! After an intended change of a response, renew the file with the command in the failure message.

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
