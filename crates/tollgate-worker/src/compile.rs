//! Compiling a policy where a Worker is built: the package's `tollgate-compile` calls it in Node.
//!
//! Invariant: this is the compiler that is deployed with the package, so the Worker can read its
//! output. Deliberately absent: reading and writing files.

use tollgate_policy::{Surface, compiled_text};
use wasm_bindgen::prelude::*;
use worker::js_sys::Error;

/// Compiles the policy `text` for the Worker; the result is in base64.
///
/// # Errors
/// Every problem of the policy, one per line with its place.
#[wasm_bindgen(js_name = compilePolicy)]
pub fn compile_policy(text: &str) -> Result<String, Error> {
    let compiled = tollgate_language::compile(text, Surface::Worker);
    let text = compiled.map(|policy| compiled_text(|out| policy.write_compiled(out)));
    text.map_err(|why| Error::new(&why.to_string()))
}
