//! `page-bindgen MODULE FOLDER`: writes `tollgate.js` and `tollgate_bg.wasm`, which a page loads as
//! ES modules, into `FOLDER`.
//!
//! Invariant: the JavaScript names no file of its own; its caller passes the module's location.
//! Nothing is optimised here.

use std::process::ExitCode;
use wasm_bindgen_cli_support::Bindgen;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [module, folder] = arguments.as_slice() else {
        eprintln!("usage: page-bindgen MODULE FOLDER");
        return ExitCode::FAILURE;
    };
    let mut bindgen = Bindgen::new();
    bindgen.input_path(module).out_name("tollgate").typescript(false);
    bindgen.omit_default_module_path(true);
    let written = bindgen.web(true).and_then(|bindgen| bindgen.generate(folder));
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("page-bindgen: {error:#}");
            ExitCode::FAILURE
        }
    }
}
