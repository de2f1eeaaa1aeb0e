//! `worker-bindgen MODULE FOLDER`: writes `index.js`, `index_bg.wasm` and the modules they import
//! into `FOLDER`.
//!
//! Invariant: an aborted instance can be replaced: the JavaScript notices every abort and exports
//! `__wbg_reset_state`, on which `crates/tollgate-worker/entry.mjs` relies. Nothing is optimised
//! here.

use std::process::ExitCode;
use wasm_bindgen_cli_support::Bindgen;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [module, folder] = arguments.as_slice() else {
        eprintln!("usage: worker-bindgen MODULE FOLDER");
        return ExitCode::FAILURE;
    };
    let mut bindgen = Bindgen::new();
    bindgen.input_path(module).out_name("index").typescript(false);
    bindgen.reset_state_function(true).force_enable_abort_handler(true);
    // ES modules, the one of wasm imported as such: what workerd and wrangler load.
    let written = bindgen.module(true).and_then(|bindgen| bindgen.generate(folder));
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("worker-bindgen: {error:#}");
            ExitCode::FAILURE
        }
    }
}
