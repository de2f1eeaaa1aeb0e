//! The runtime, seen from Rust: the functions of `host.mjs`, and the clock.
//!
//! Invariant: a failure of the runtime is a value here (`None`), never a panic; and the clock is read
//! by whoever decides, once per request, never by a client. Nothing here decides.

use tollgate_core::Timestamp;
use tollgate_policy::Jwt;
use wasm_bindgen::prelude::*;
use worker::js_sys::{self, Array, Promise, Uint8Array};
use worker::web_sys;

#[wasm_bindgen(module = "/src/host.mjs")]
extern "C" {
    /// The policy document as bundled; empty when the entry module gave none.
    #[wasm_bindgen(js_name = policyText)]
    pub(crate) fn policy_text() -> String;

    /// Writes a line to the log of the deployment.
    pub(crate) fn warn(text: &str);

    fn check(objects: &JsValue, name: &str, timeout_ms: u32, request: Uint8Array) -> Promise;

    fn refund(
        objects: &JsValue,
        name: &str,
        timeout_ms: u32,
        request: Uint8Array,
        reply: Uint8Array,
    ) -> Promise;

    fn sleep(milliseconds: f64) -> Promise;

    /// A response; `fields` are lines of `name: value`.
    pub(crate) fn respond(status: u16, fields: &str, body: &str) -> web_sys::Response;

    #[wasm_bindgen(js_name = withHeaders)]
    fn with_headers(request: &web_sys::Request, url: &str, marks: &str) -> web_sys::Request;

    #[wasm_bindgen(js_name = fetchFrom)]
    fn fetch_from(request: &web_sys::Request) -> Promise;

    #[wasm_bindgen(js_name = withFields)]
    fn with_fields(response: &web_sys::Response, fields: &str) -> web_sys::Response;

    fn verify(
        token: &str,
        keys: JsValue,
        issuer: Option<String>,
        audiences: JsValue,
        now_ms: f64,
    ) -> Promise;

    /// `request.cf`: what the edge knows about the client.
    #[wasm_bindgen(js_name = edgeFact)]
    pub(crate) fn edge_fact(request: &web_sys::Request, name: &str) -> Option<String>;

    #[wasm_bindgen(js_name = readBody)]
    fn read_body(request: &web_sys::Request, limit: u32) -> Promise;
}

/// A Durable Object is given up after this time and its rules' `on_failure` decides: an object that
/// has to start far away needs about a second.
const OBJECT_TIMEOUT_MS: u32 = 5_000;

/// A call of an object that is under way.
pub(crate) struct Call(Promise);

impl Call {
    /// Asks the object `name` to check `request`; it is under way at once.
    pub(crate) fn check(objects: &JsValue, name: &str, request: &[u8]) -> Self {
        Self(check(objects, name, OBJECT_TIMEOUT_MS, Uint8Array::from(request)))
    }

    /// Asks it to take the charge of `request`, answered by `reply`, back.
    pub(crate) fn refund(objects: &JsValue, name: &str, request: &[u8], reply: &[u8]) -> Self {
        let (request, reply) = (Uint8Array::from(request), Uint8Array::from(reply));
        Self(refund(objects, name, OBJECT_TIMEOUT_MS, request, reply))
    }

    /// What the object answered; `None` when it failed or was too slow.
    pub(crate) async fn reply(self) -> Option<Vec<u8>> {
        Some(settled::<Uint8Array>(self.0).await?.to_vec())
    }
}

/// The origin's response to `request` sent to `url` with `marks` set on it; `None` when the origin cannot be
/// reached. Both ways it is streamed.
pub(crate) async fn forwarded(
    request: &web_sys::Request,
    url: &str,
    marks: &str,
) -> Option<web_sys::Response> {
    settled(fetch_from(&with_headers(request, url, marks))).await
}

/// `response` with `fields` added to its own.
pub(crate) fn extended(response: web_sys::Response, fields: &str) -> web_sys::Response {
    if fields.is_empty() { response } else { with_fields(&response, fields) }
}

/// The claims of `token`, if one of the policy's keys signed it and it is valid now and here.
pub(crate) async fn verified(jwt: &Jwt, token: &str) -> Option<JsValue> {
    let keys: Array = jwt
        .keys
        .iter()
        .map(|key| {
            let kid = key.kid.as_deref().map_or(JsValue::UNDEFINED, JsValue::from_str);
            Array::of3(&JsValue::from_str(&key.alg), &kid, &JsValue::from_str(&key.json))
        })
        .collect();
    let audiences: Array =
        jwt.audiences.iter().map(|audience| JsValue::from_str(audience)).collect();
    let claims =
        verify(token, keys.into(), jwt.issuer.clone(), audiences.into(), js_sys::Date::now());
    settled::<js_sys::Object>(claims).await.map(JsValue::from)
}

/// The body of `request`; `None` when it is longer than `limit` or breaks off.
pub(crate) async fn body(request: &web_sys::Request, limit: u32) -> Option<Vec<u8>> {
    Some(settled::<Uint8Array>(read_body(request, limit)).await?.to_vec())
}

/// Waits for `milliseconds`.
pub(crate) async fn wait(milliseconds: u64) {
    let _ = js_sys::futures::JsFuture::from(sleep(number(milliseconds))).await;
}

async fn settled<T: JsCast>(promise: Promise) -> Option<T> {
    js_sys::futures::JsFuture::from(promise).await.ok()?.dyn_into().ok()
}

/// The time, in whole milliseconds since 1970. On the platform it stands still between I/O.
#[expect(clippy::as_conversions, reason = "a float to integer cast saturates: it cannot fail")]
pub(crate) fn now() -> Timestamp {
    Timestamp::from_millis(js_sys::Date::now() as u64)
}

/// `milliseconds` for JavaScript: exact below 2^53, which is 285,000 years.
#[expect(clippy::as_conversions, reason = "rounds above 2^53 and cannot fail")]
pub(crate) fn number(milliseconds: u64) -> f64 {
    milliseconds as f64
}
