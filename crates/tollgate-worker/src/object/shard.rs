//! The wasm half of a shard: the units that it holds of a hot key, and its clock.
//!
//! Invariant: nothing here is stored. A new instance has new random bits, so the units that its
//! predecessor held cannot be used any more, and count as spent when their lease is over.
//! Deliberately absent: calling the key's own object; `entry.mjs` does that between two of these
//! calls.

use std::cell::RefCell;

use tollgate_core::{Span, Timestamp};
use tollgate_service::metrics::{Counters, Event};
use tollgate_storage::{Shard, ShardMode, Sharded, WireError};
use wasm_bindgen::prelude::*;
use worker::js_sys::{Array, Promise, Uint8Array};

use crate::runtime::js;

#[wasm_bindgen(module = "/src/host.mjs")]
extern "C" {
    /// Makes this many shards of the object `name` give back their units; a text when that failed.
    #[wasm_bindgen(js_name = closeShards)]
    fn close_shards(objects: &JsValue, name: &str, shards: u32, timeout_ms: u32) -> Promise;

    /// How many requests were decided in each way since the last call, in the order of [`EVENTS`].
    #[wasm_bindgen(js_name = takeShardCounts)]
    fn take_shard_counts() -> Vec<u32>;
}

const EVENTS: [Event; 4] =
    [Event::ShardHeld, Event::ShardAsked, Event::ShardSecond, Event::ShardRefused];

/// Counts the results of the requests that went to shards.
pub(crate) fn count(counters: &Counters) {
    for (event, count) in EVENTS.into_iter().zip(take_shard_counts()) {
        counters.add_many(event, count.into());
    }
}

/// Makes the shards of an object give back their units; the reply is empty when they did.
pub(crate) fn close(objects: &JsValue, name: &str, shards: u32, timeout_ms: u32) -> js::Call {
    js::Call(close_shards(objects, name, shards, timeout_ms))
}

/// The result of a request, for `entry.mjs`.
const ANSWERED: u32 = 0;
const REFUSED: u32 = 1;
const ASK: u32 = 2;
const WAIT: u32 = 3;
const NOTHING: u32 = 4;

/// The shard of `entry.mjs`.
#[wasm_bindgen]
pub struct KeyShard(RefCell<Shard>);

#[wasm_bindgen]
impl KeyShard {
    /// A shard that holds nothing.
    #[wasm_bindgen(constructor)]
    pub fn new() -> Self {
        let table = u128::from(js::random()) << 64 | u128::from(js::random());
        Self(RefCell::new(Shard::new(table)))
    }

    /// A list: the result of the request; then the reply, the question or the milliseconds to wait;
    /// then in how many milliseconds [`KeyShard::due`] must be called, if at all. The mode is 0 for
    /// a request that may wait, 1 for one that waited, 2 for one that was denied elsewhere.
    ///
    /// # Errors
    /// The bytes are not a request.
    pub fn check(&self, request: &[u8], mode: u32) -> Result<Array, JsValue> {
        self.with(|shard, now| {
            let mode = match mode {
                0 => ShardMode::Waits,
                1 => ShardMode::Asks,
                _ => ShardMode::InHand,
            };
            let (what, value) = match shard.check(request, mode, now)? {
                Sharded::Answered(reply) => (ANSWERED, bytes(&reply)),
                Sharded::Refused(reply) => (REFUSED, bytes(&reply)),
                Sharded::Ask(question) => (ASK, bytes(&question)),
                Sharded::Wait(until) => (WAIT, milliseconds(until.since(now))),
                Sharded::Nothing => (NOTHING, JsValue::UNDEFINED),
            };
            Ok(Array::of3(&what.into(), &value, &due_in(shard, now)))
        })
    }

    /// Takes the reply of the key's object to a question, or that there was none. Returns a list as
    /// [`KeyShard::check`] does, with `ANSWERED` or `REFUSED`.
    ///
    /// # Errors
    /// The bytes are not such a question, or not a reply to it.
    #[wasm_bindgen(js_name = applyReply)]
    pub fn apply_reply(&self, asked: &[u8], reply: Option<Vec<u8>>) -> Result<Array, JsValue> {
        self.with(|shard, now| {
            let (reply, is_refused) = shard.apply_reply(asked, reply.as_deref(), now)?;
            let what = if is_refused { REFUSED } else { ANSWERED };
            Ok(Array::of3(&what.into(), &bytes(&reply), &due_in(shard, now)))
        })
    }

    /// Puts back the units that this shard's own reply took; nothing where the key's object must
    /// refund.
    ///
    /// # Errors
    /// The bytes are not such a request, or not a reply to it.
    pub fn refund(&self, request: &[u8], reply: &[u8]) -> Result<Option<Vec<u8>>, JsValue> {
        self.with(|shard, now| shard.refund(request, reply, now))
    }

    /// The question that must be sent although no request waits.
    ///
    /// # Errors
    /// It was called from within itself.
    pub fn due(&self) -> Result<Option<Vec<u8>>, JsValue> {
        self.with(|shard, now| Ok(shard.due(now)))
    }

    /// In how many milliseconds [`KeyShard::due`] must be called, if at all.
    ///
    /// # Errors
    /// It was called from within itself.
    pub fn due_in(&self) -> Result<JsValue, JsValue> {
        self.with(|shard, now| Ok(due_in(shard, now)))
    }

    /// Gives everything back, by the next [`KeyShard::due`].
    ///
    /// # Errors
    /// It was called from within itself.
    pub fn close(&self) -> Result<(), JsValue> {
        self.with(|shard, _| {
            shard.close();
            Ok(())
        })
    }
}

impl KeyShard {
    fn with<T>(
        &self,
        step: impl FnOnce(&mut Shard, Timestamp) -> Result<T, WireError>,
    ) -> Result<T, JsValue> {
        let mut shard = self.0.try_borrow_mut().map_err(|_| js::error("re-entered"))?;
        step(&mut shard, js::now()).map_err(|why| js::error(&why.to_string()))
    }
}

fn due_in(shard: &mut Shard, now: Timestamp) -> JsValue {
    shard.due_in(now).map_or(JsValue::UNDEFINED, milliseconds)
}

fn milliseconds(span: Span) -> JsValue {
    JsValue::from_f64(js::number(span.as_millis_ceil()))
}

fn bytes(bytes: &[u8]) -> JsValue {
    Uint8Array::from(bytes).into()
}
