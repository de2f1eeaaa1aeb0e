//! The call to the origin, and the reasons why there is no response.
//!
//! Invariant: the party that failed is a type: the origin, the client or this Worker. Nothing is
//! charged here.

use wasm_bindgen::prelude::*;
use worker::js_sys::{Array, Promise};
use worker::web_sys;

use crate::runtime::js;
use crate::runtime::tasks::Settled;

#[wasm_bindgen(module = "/src/host.mjs")]
extern "C" {
    #[wasm_bindgen(js_name = fetchFrom)]
    fn fetch_from(request: &web_sys::Request, url: &str, marks: &str, is_read: bool) -> Promise;
}

/// Why there is no response of the origin.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NoResponse {
    /// The origin failed, with the platform's message.
    Origin(String),
    /// The client broke its body off.
    BrokenOff,
    /// The client broke its body off or the origin failed: the platform does not report which.
    Either(String),
    /// An exception of our own: the origin was not called.
    NotSent(String),
    /// The body cannot be forwarded without a length; the origin was not called.
    LengthRequired,
}

impl NoResponse {
    /// Reads the list of `fetchFrom`. Anything else is an exception of our own.
    fn read(list: &JsValue) -> Self {
        let list = list.dyn_ref::<Array>().map(|list| (list.get(0).as_f64(), list.get(1)));
        let (kind, word) = list.unwrap_or_default();
        let word = word.as_string().unwrap_or_else(|| "no reply".to_owned());
        match kind.map(js::whole) {
            Some(0) => Self::Origin(word),
            Some(1) => Self::BrokenOff,
            Some(2) => Self::Either(word),
            Some(4) => Self::LengthRequired,
            _ => Self::NotSent(word),
        }
    }
}

/// The origin's response to `request` sent to `url` with `marks` set on it; both bodies are
/// streamed. Where the response's `is_read` here, it comes as the origin encoded it.
///
/// # Errors
/// There is no response.
pub(crate) async fn forwarded(
    request: &web_sys::Request,
    url: &str,
    marks: &str,
    is_read: bool,
) -> Result<web_sys::Response, NoResponse> {
    let answer = Settled::of(&fetch_from(request, url, marks, is_read)).await;
    answer.dyn_into().map_err(|list| NoResponse::read(&list))
}
