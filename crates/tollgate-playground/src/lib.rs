//! What the playground's page calls, as wasm in a worker thread: the policy's own compiler for the
//! editor, and the simulator for the lanes.
//!
//! Invariant: nothing is decided here, and nothing leaves the page. What goes in are texts, what
//! comes out is JSON whose fields the types of this crate name; places in a text are offsets as
//! JavaScript counts them, in UTF-16 units. Deliberately absent: the page itself, which is `web/`.
//!
//! The modules stand in the order in which they import: each only what is declared below it.
#![forbid(unsafe_code)]

mod check;
mod complete;
mod context;
mod schema;
mod locate;
mod outline;
mod tokens;
mod units;

use wasm_bindgen::prelude::wasm_bindgen;

/// What the compiler says of a policy for a surface (`envoy`, `worker`, `library`, `server`), as
/// the JSON of [`check::Checked`].
///
/// Never fails: what is wrong with the text or the name of the surface is among the problems.
#[wasm_bindgen]
#[must_use]
pub fn check(text: &str, surface: &str) -> String {
    json(&check::check(text, surface))
}

/// What may be written at `offset`, in UTF-16 units, of a policy that need not be whole: the JSON
/// of a list of [`complete::Completion`], the likeliest first.
///
/// Never fails: an offset beyond the text is its end.
#[wasm_bindgen]
#[must_use]
pub fn complete(text: &str, offset: usize) -> String {
    json(&complete::complete(text, offset))
}

/// Our own types always become JSON: no map of theirs has keys that are no texts.
fn json<T: serde::Serialize>(value: &T) -> String {
    serde_json::to_string(value).unwrap_or_default()
}
