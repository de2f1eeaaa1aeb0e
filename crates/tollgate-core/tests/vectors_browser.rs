//! The vectors of `tests/vectors` as wasm in a headless browser.

#![cfg(target_arch = "wasm32")]

mod support;

use support::{format, replay};
use wasm_bindgen_test::{wasm_bindgen_test, wasm_bindgen_test_configure};

wasm_bindgen_test_configure!(run_in_browser);

#[wasm_bindgen_test]
fn every_row_holds_in_a_browser() {
    let wrong: Vec<String> = format::all().iter().flat_map(replay::run).collect();
    assert!(wrong.is_empty(), "{} rows differ:\n{}", wrong.len(), wrong.join("\n"));
}
