//! Compiling a policy where a Worker is built: the package's `tollgate-compile` calls it in Node.
//!
//! Invariant: it is the compiler that is deployed with the package, so what it writes is read
//! there. Deliberately absent: files, and where the bytes go.

use tollgate_policy::{Policy, Surface};
use wasm_bindgen::prelude::*;
use worker::js_sys::Error;

/// The policy `text` as it is compiled for the Worker, in base64.
///
/// # Errors
/// Every problem of it, each in a line with its place.
#[wasm_bindgen(js_name = compilePolicy)]
pub fn compile_policy(text: &str) -> Result<String, Error> {
    let compiled = Policy::compile(text, Surface::Worker);
    compiled.map(|policy| policy.to_compiled_text()).map_err(|why| Error::new(&why.to_string()))
}
