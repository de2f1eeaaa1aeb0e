//! The cases as wasm in a headless browser.

#![cfg(target_arch = "wasm32")]

use tollgate_cases::golden;
use wasm_bindgen_test::{wasm_bindgen_test, wasm_bindgen_test_configure};

wasm_bindgen_test_configure!(run_in_browser);

#[wasm_bindgen_test]
fn every_answer_is_the_golden_one_in_a_browser() {
    golden::compare(&golden::policies());
}

#[wasm_bindgen_test]
fn every_state_is_the_golden_one_in_a_browser() {
    golden::compare(&golden::limiters());
}
