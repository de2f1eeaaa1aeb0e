//! The cases natively and as wasm in Node: the same answers as `golden.txt` says, to the byte.
//!
//! Renew the file after an intended change of what is answered: `TOLLGATE_BLESS=1 cargo test -p tollgate-cases`.

mod support;

use support::{limit_digests, policy_digests};
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

#[test]
fn every_answer_is_the_golden_one() {
    support::compare(&policy_digests());
}

#[test]
fn every_state_is_the_golden_one() {
    support::compare(&limit_digests());
}
