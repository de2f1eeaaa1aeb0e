//! The runtime, seen from Rust: the functions of `host.mjs`, and the clock.
//!
//! Invariant: a failure of the runtime is a value here, never a panic; and the clock is read by the
//! deciding code, once per request, never by a client. Nothing here decides.

use tollgate_core::Timestamp;
use tollgate_policy::spec::Jwt;
use tollgate_service::ApiResponse;
use tollgate_service::lease::CONTENT_TYPE;
use wasm_bindgen::prelude::*;
use worker::js_sys::{self, Array, Promise, Uint8Array};
use worker::web_sys;

use crate::runtime::tasks::Settled;
use crate::settings::Binding;

#[wasm_bindgen(module = "/src/host.mjs")]
extern "C" {
    /// The policy document as bundled; empty when the entry module gave none.
    #[wasm_bindgen(js_name = policyText)]
    pub(crate) fn policy_text() -> String;

    /// The same policy, compiled when it was deployed; empty when it was not.
    #[wasm_bindgen(js_name = compiledPolicy)]
    pub(crate) fn compiled_policy() -> Vec<u8>;

    /// Writes a warning to the log of the deployment: something that is certainly not intended.
    pub(crate) fn warn(text: &str);

    /// Writes an error to the log of the deployment: something that does not work.
    pub(crate) fn fail(text: &str);

    /// One key's object, for as long as one request is decided: it bounds its calls.
    #[derive(Clone)]
    pub(crate) type KeyObject;

    /// The object `name`, or one of its shards, given up `timeout_ms` milliseconds after `since`,
    /// in milliseconds since 1970.
    #[wasm_bindgen(js_name = keyObject)]
    fn key_object_since(
        objects: &JsValue,
        name: &str,
        timeout_ms: u32,
        since: f64,
        shards: Option<u32>,
    ) -> KeyObject;

    #[wasm_bindgen(method)]
    fn check(this: &KeyObject, request: Uint8Array) -> Promise;

    #[wasm_bindgen(method, js_name = checkSoon)]
    fn check_soon(this: &KeyObject, request: Uint8Array) -> Promise;

    #[wasm_bindgen(method)]
    fn rest(this: &KeyObject) -> Promise;

    #[wasm_bindgen(method)]
    fn refund(this: &KeyObject, request: Uint8Array, reply: Uint8Array) -> Promise;

    #[wasm_bindgen(method)]
    fn settle(this: &KeyObject, request: Uint8Array) -> Promise;

    #[wasm_bindgen(js_name = askObject)]
    fn ask_object(
        objects: &JsValue,
        name: &str,
        request: Uint8Array,
        timeout_ms: u32,
        retries: u32,
    ) -> Promise;

    /// Wakes requests that wait for the work of another request.
    pub(crate) type Bell;

    /// A bell without listeners.
    pub(crate) fn bell() -> Bell;

    /// Wakes all listeners.
    #[wasm_bindgen(method)]
    pub(crate) fn ring(this: &Bell);

    #[wasm_bindgen(method, js_name = ringsWithin)]
    fn rings_within(this: &Bell, milliseconds: f64) -> Promise;

    fn sleep(milliseconds: f64) -> Promise;

    #[wasm_bindgen(js_name = operate)]
    fn operate_on(objects: &JsValue, name: &str, request: Uint8Array, timeout_ms: u32) -> Promise;

    /// True for a URL to which a request can be sent.
    #[wasm_bindgen(js_name = isUrl)]
    pub(crate) fn is_url(text: &str) -> bool;

    /// True for a namespace of Durable Objects.
    #[wasm_bindgen(js_name = isNamespace)]
    pub(crate) fn is_namespace(value: &JsValue) -> bool;

    /// The same objects, made near `hint` or only within `jurisdiction`; if that is not possible,
    /// the reason as a text.
    pub(crate) fn placed(
        objects: &JsValue,
        hint: Option<&'static str>,
        jurisdiction: Option<&'static str>,
    ) -> JsValue;

    /// The identity that distinguishes these objects from those of any other binding; empty when
    /// there is none.
    #[wasm_bindgen(js_name = identityOf)]
    pub(crate) fn identity_of(objects: &JsValue) -> String;

    /// Writes a line of JSON to the log of the deployment: an event.
    pub(crate) fn event(json: &str);

    /// 64 random bits.
    pub(crate) fn random() -> u64;

    #[wasm_bindgen(js_name = addMetrics)]
    fn add_metrics_to(objects: &JsValue, delta: Uint8Array, timeout_ms: u32) -> Promise;

    #[wasm_bindgen(js_name = writePoint)]
    fn write_point_to(dataset: &JsValue, values: Vec<JsValue>, count: f64) -> Option<String>;

    #[wasm_bindgen(js_name = metricsText)]
    fn metrics_text_of(objects: &JsValue, is_open: bool, timeout_ms: u32) -> Promise;

    /// True for a dataset to which points can be written.
    #[wasm_bindgen(js_name = isDataset)]
    pub(crate) fn is_dataset(value: &JsValue) -> bool;

    /// True for a binding from which files can be fetched.
    #[wasm_bindgen(js_name = isFetcher)]
    pub(crate) fn is_fetcher(value: &JsValue) -> bool;

    #[wasm_bindgen(js_name = assetAt)]
    fn asset_at(assets: &JsValue, request: &web_sys::Request, path: &str, fields: &str) -> Promise;

    /// A response; `fields` are lines of `name: value`.
    fn respond(status: u16, fields: &str, body: &str) -> web_sys::Response;

    #[wasm_bindgen(js_name = respond)]
    fn respond_binary(status: u16, fields: &str, body: Uint8Array) -> web_sys::Response;

    #[wasm_bindgen(js_name = withFields)]
    fn with_fields(response: &web_sys::Response, fields: &str) -> web_sys::Response;

    fn verify(
        token: &str,
        keys: JsValue,
        issuer: Option<String>,
        audiences: JsValue,
        now_ms: f64,
    ) -> Promise;

    /// `request.cf`: the edge's data about the client, or that of a group of it.
    #[wasm_bindgen(js_name = edgeFact)]
    pub(crate) fn edge_fact(
        request: &web_sys::Request,
        name: &str,
        group: Option<&str>,
    ) -> Option<String>;

    #[wasm_bindgen(js_name = readBody)]
    fn read_body(request: &web_sys::Request, limit: u32) -> Promise;
}

/// The response of a reply that is ours.
pub(crate) fn send(reply: &ApiResponse) -> web_sys::Response {
    respond(reply.status, reply.fields.lines(), &reply.body)
}

/// The response to a node of a fleet.
pub(crate) fn send_binary(body: &[u8]) -> web_sys::Response {
    let fields = format!("content-type: {CONTENT_TYPE}\ncache-control: no-store\n");
    respond_binary(200, &fields, Uint8Array::from(body))
}

/// The object `name`, or one of its shards, given up a time-out after a given time.
pub(crate) fn key_object(
    objects: &JsValue,
    name: &str,
    shards: Option<u32>,
    (timeout_ms, since): (u32, Timestamp),
) -> KeyObject {
    let since = number(since.since(Timestamp::ZERO).as_millis_ceil());
    key_object_since(objects, name, timeout_ms, since, shards)
}

/// Why there is no reply.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NoReply {
    /// It did not come in time. The object may still carry out the call.
    Late,
    /// With the message of the platform or of the object, for the log.
    Failed(String),
}

/// A call to an object that is under way.
pub(crate) struct Call(pub(crate) Promise);

impl Call {
    /// Asks `object` to check `request`; it is under way at once.
    pub(crate) fn check(object: &KeyObject, request: &[u8]) -> Self {
        Self(object.check(Uint8Array::from(request)))
    }

    /// The same, where the reply must come in half of the time that is left. After that it is late
    /// for now, and [`Call::rest`] may still get it.
    pub(crate) fn check_soon(object: &KeyObject, request: &[u8]) -> Self {
        Self(object.check_soon(Uint8Array::from(request)))
    }

    /// The reply to [`Call::check_soon`] within all of the time.
    pub(crate) fn rest(object: &KeyObject) -> Self {
        Self(object.rest())
    }

    /// Asks it to refund the charge of `request`, whose reply was `reply`.
    pub(crate) fn refund(object: &KeyObject, request: &[u8], reply: &[u8]) -> Self {
        Self(object.refund(Uint8Array::from(request), Uint8Array::from(reply)))
    }

    /// Sends an operator's request to the object `name`, with a time-out in milliseconds.
    pub(crate) fn operate(objects: &JsValue, name: &str, request: &[u8], timeout_ms: u32) -> Self {
        Self(operate_on(objects, name, Uint8Array::from(request), timeout_ms))
    }

    /// Asks it to carry out `request`, which gives places back.
    pub(crate) fn settle(object: &KeyObject, request: &[u8]) -> Self {
        Self(object.settle(Uint8Array::from(request)))
    }

    /// Calls the object `name`, which is not the object of a partition key. If the platform reports
    /// that a second try may help and `is_idempotent`, it is called again.
    pub(crate) fn object(
        objects: &JsValue,
        name: &str,
        request: &[u8],
        timeout_ms: u32,
        is_idempotent: bool,
    ) -> Self {
        let request = Uint8Array::from(request);
        Self(ask_object(objects, name, request, timeout_ms, is_idempotent.into()))
    }

    /// The object's reply.
    pub(crate) async fn reply(self) -> Result<Vec<u8>, NoReply> {
        let reply = settled::<Uint8Array>(self.0).await;
        reply
            .map(|bytes| bytes.to_vec())
            .map_err(|why| if why.is_empty() { NoReply::Late } else { NoReply::Failed(why) })
    }
}

/// The file at `path` among `assets`, with `fields` set; `None` when there is none.
pub(crate) async fn asset(
    assets: &JsValue,
    request: &web_sys::Request,
    path: &str,
    fields: &str,
) -> Option<web_sys::Response> {
    settled(asset_at(assets, request, path, fields)).await.ok()
}

/// `response` with `fields` added to its own.
pub(crate) fn extended(response: web_sys::Response, fields: &str) -> web_sys::Response {
    if fields.is_empty() { response } else { with_fields(&response, fields) }
}

/// Sends `delta` to the sums. Returns when it is durable or given up, with the reason of a failure.
pub(crate) async fn add_metrics(
    objects: &JsValue,
    delta: &[u8],
    timeout_ms: u32,
) -> Option<String> {
    let added = add_metrics_to(objects, Uint8Array::from(delta), timeout_ms);
    let added = Settled::of(&added).await;
    let late = |why: String| if why.is_empty() { "late".to_owned() } else { why };
    added.as_string().map(late)
}

/// The sums as text: OpenMetrics, or else Prometheus.
///
/// # Errors
/// The reason why there is no text.
pub(crate) async fn metrics_text(
    objects: &JsValue,
    is_open: bool,
    timeout_ms: u32,
) -> Result<String, String> {
    let text: Array = settled(metrics_text_of(objects, is_open, timeout_ms)).await?;
    text.get(0).as_string().ok_or_else(|| "no text".to_owned())
}

/// Writes a point to `dataset` of Analytics Engine; returns the reason of a failure.
pub(crate) fn write_point(dataset: &JsValue, values: &[&str], count: u64) -> Option<String> {
    let values = values.iter().map(|value| JsValue::from_str(value)).collect();
    write_point_to(dataset, values, number(count))
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
    settled::<js_sys::Object>(claims).await.ok().map(JsValue::from)
}

/// The body of `request`; `None` when it is longer than `limit` or breaks off.
pub(crate) async fn body(request: &web_sys::Request, limit: usize) -> Option<Vec<u8>> {
    let limit = u32::try_from(limit).unwrap_or(u32::MAX);
    Some(settled::<Uint8Array>(read_body(request, limit)).await.ok()?.to_vec())
}

/// The deployment's binding of the name `name`.
pub(crate) fn binding(env: &JsValue, name: &str) -> Option<JsValue> {
    let value = js_sys::Reflect::get(env, &JsValue::from_str(name)).ok()?;
    (!value.is_undefined() && !value.is_null()).then_some(value)
}

/// The same as a setting. A number of wrangler.toml arrives as a number, not as text.
pub(crate) fn text_binding(env: &JsValue, name: &str) -> Binding {
    let Some(value) = binding(env, name) else { return Binding::Absent };
    if let Some(text) = value.as_string() {
        return Binding::Text(text);
    }
    let number = value.as_f64().and_then(|_| js_sys::JSON::stringify(&value).ok());
    number.map_or(Binding::Other, |digits| Binding::Text(digits.into()))
}

/// An error for the caller of an object.
pub(crate) fn error(message: &str) -> JsValue {
    js_sys::Error::new(message).into()
}

/// Waits for `milliseconds`.
pub(crate) async fn wait(milliseconds: u64) {
    Settled::of(&sleep(number(milliseconds))).await;
}

impl Bell {
    /// Waits until it rings, for at most this long.
    pub(crate) async fn wait(&self, milliseconds: u64) {
        Settled::of(&self.rings_within(number(milliseconds))).await;
    }
}

/// The value of `promise`, or the text with which it was rejected.
async fn settled<T: JsCast>(promise: Promise) -> Result<T, String> {
    Settled::of(&promise)
        .await
        .dyn_into()
        .map_err(|other| other.as_string().unwrap_or_else(|| "no reply".to_owned()))
}

/// The time, in whole milliseconds since 1970. On the platform it does not advance between I/O.
#[expect(clippy::as_conversions, reason = "a float to integer cast saturates: it cannot fail")]
pub(crate) fn now() -> Timestamp {
    Timestamp::from_millis(js_sys::Date::now() as u64)
}

/// The same, in milliseconds.
pub(crate) fn now_ms() -> u64 {
    whole(js_sys::Date::now())
}

/// `milliseconds` for JavaScript: exact below 2^53, which is 285,000 years.
#[expect(clippy::as_conversions, reason = "rounds above 2^53 and cannot fail")]
pub(crate) fn number(milliseconds: u64) -> f64 {
    milliseconds as f64
}

/// A number of JavaScript, rounded down to a whole one, not below 0.
#[expect(clippy::as_conversions, reason = "a float to integer cast saturates: it cannot fail")]
pub(crate) const fn whole(number: f64) -> u64 {
    number as u64
}
