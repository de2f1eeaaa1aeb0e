//! The end of a forwarded response, and what it shows.
//!
//! Invariant: it is observed only where a rule of the request needs it; all other bodies pass as
//! the platform moves them. Nothing is buffered, and a client that reads slowly slows the origin
//! down. The end comes also when the client left or the origin broke off. Where the platform does
//! not report it, it is hidden: it shows nothing.

use std::borrow::Cow;

use tollgate_core::Timestamp;
use tollgate_policy::spec::JsonCost;
use tollgate_policy::{ActualUnits, BodyScan, ResponseFacts};
use wasm_bindgen::prelude::*;
use worker::js_sys::Promise;
use worker::web_sys;

use crate::request::body_scan::ScannedBody;
use crate::runtime::js;
use crate::runtime::tasks::Settled;

#[wasm_bindgen(module = "/src/host.mjs")]
extern "C" {
    /// The end of one response.
    #[derive(Clone)]
    pub(crate) type ResponseEnd;

    /// An end that is to come; with `counts_bytes` those of the body are counted.
    #[wasm_bindgen(js_name = responseEnd)]
    pub(crate) fn response_end(counts_bytes: bool) -> ResponseEnd;

    /// The response with `fields` added, of which this is the end. Where its body is scanned,
    /// `scanBody` gets its bytes.
    #[wasm_bindgen(method)]
    pub(crate) fn pass(
        this: &ResponseEnd,
        response: &web_sys::Response,
        fields: &str,
        is_scanned: bool,
    ) -> web_sys::Response;

    /// The number of its body, which no other has.
    #[wasm_bindgen(method, getter)]
    fn number(this: &ResponseEnd) -> f64;

    /// There is no response of the origin.
    #[wasm_bindgen(method)]
    pub(crate) fn over(this: &ResponseEnd);

    #[wasm_bindgen(method, getter, js_name = isOver)]
    fn is_over(this: &ResponseEnd) -> bool;

    /// True after an end that the platform does not report.
    #[wasm_bindgen(method, getter, js_name = isHidden)]
    pub(crate) fn is_hidden(this: &ResponseEnd) -> bool;

    /// True when the last byte of the body came from the origin.
    #[wasm_bindgen(method, getter, js_name = isWhole)]
    fn is_whole(this: &ResponseEnd) -> bool;

    #[wasm_bindgen(method, getter)]
    fn bytes(this: &ResponseEnd) -> f64;

    #[wasm_bindgen(method, js_name = ringsWithin)]
    fn rings_within(this: &ResponseEnd, milliseconds: f64) -> Promise;
}

/// The longest timer.
const LONGEST_WAIT_MS: u64 = 3_600_000;

impl ResponseEnd {
    /// Waits for it, for at most this long: false when it has not come.
    pub(crate) async fn comes_within(&self, milliseconds: u64) -> bool {
        if !self.is_over() {
            Settled::of(&self.rings_within(js::number(milliseconds))).await;
        }
        self.is_over()
    }

    /// Begins to scan the body of its response.
    pub(crate) fn scanned(&self, scan: Box<BodyScan>) -> ScannedBody {
        ScannedBody::new(js::whole(self.number()), scan)
    }

    /// The facts that it shows of a request that came at this time, once it comes.
    pub(crate) async fn facts(
        &self,
        came_at: Timestamp,
        body: Option<ScannedBody>,
    ) -> EndedResponse {
        while !self.comes_within(LONGEST_WAIT_MS).await {}
        let is_seen = !self.is_hidden();
        let duration_ms = js::now().since(came_at).as_millis_ceil();
        EndedResponse {
            body_bytes: is_seen.then(|| js::whole(self.bytes())),
            duration_ms: is_seen.then_some(duration_ms),
            scan: body.filter(|_| is_seen).and_then(|body| body.end(self.is_whole())),
        }
    }
}

/// A response that has ended.
pub(crate) struct EndedResponse {
    body_bytes: Option<u64>,
    duration_ms: Option<u64>,
    scan: Option<Box<BodyScan>>,
}

impl ResponseFacts for EndedResponse {
    fn header(&self, _: &str) -> Option<Cow<'_, [u8]>> {
        None // it was read at the head
    }

    fn body_bytes(&self) -> Option<u64> {
        self.body_bytes
    }

    fn duration_ms(&self) -> Option<u64> {
        self.duration_ms
    }

    fn json(&self, cost: &JsonCost) -> Option<ActualUnits> {
        self.scan.as_ref()?.units(cost)
    }

    fn has_ended(&self) -> bool {
        true
    }
}
