//! `wasm-bindgen-test-runner MODULE`: runs the tests of a module in Node or in a browser.
//!
//! Invariant: it is wasm-bindgen's own runner, in the version of the library that the module was
//! compiled with. It is here only to be built without what it does not need.

fn main() -> anyhow::Result<()> {
    wasm_bindgen_cli::wasm_bindgen_test_runner::run_cli_with_args(std::env::args_os())
}
