//! The half of a shard that is in wasm: what it holds of a hot key, and its clock.
//!
//! Invariant: nothing here is stored. A memory that begins anew has new random bits, so what the
//! one before it held is nobody's, and counts as spent when its lease is over. Deliberately absent:
//! asking the key's own object; `entry.mjs` does that between two of these calls.

use std::cell::RefCell;

use tollgate_core::{Span, Timestamp};
use tollgate_service::metrics::{Counters, Event};
use tollgate_storage::{Shard, ShardMode, Sharded, WireError};
use wasm_bindgen::prelude::*;
use worker::js_sys::{Array, Promise, Uint8Array};

use crate::runtime::js;

#[wasm_bindgen(module = "/src/host.mjs")]
extern "C" {
    /// Has so many shards of the object `name` give back what they hold; a text when that failed.
    #[wasm_bindgen(js_name = closeShards)]
    fn close_shards(objects: &JsValue, name: &str, shards: u32, timeout_ms: u32) -> Promise;

    /// How many requests were decided by what, since this was last asked: in the order of
    /// [`EVENTS`].
    #[wasm_bindgen(js_name = takeShardCounts)]
    fn take_shard_counts() -> Vec<u32>;
}

const EVENTS: [Event; 4] =
    [Event::ShardHeld, Event::ShardAsked, Event::ShardSecond, Event::ShardRefused];

/// Counts what became of the requests that went to shards.
pub(crate) fn count(counters: &Counters) {
    for (event, count) in EVENTS.into_iter().zip(take_shard_counts()) {
        counters.add_many(event, count.into());
    }
}

/// Has the shards of an object give back what they hold: an empty reply when they did.
pub(crate) fn close(objects: &JsValue, name: &str, shards: u32, timeout_ms: u32) -> js::Call {
    js::Call(close_shards(objects, name, shards, timeout_ms))
}

/// What becomes of a request, for `entry.mjs`.
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
    /// One that holds nothing.
    #[wasm_bindgen(constructor)]
    pub fn new() -> Self {
        let table = u128::from(js::random()) << 64 | u128::from(js::random());
        Self(RefCell::new(Shard::new(table)))
    }

    /// A list: what becomes of the request, then the reply, the question or the milliseconds to
    /// wait, and in how many milliseconds [`KeyShard::due`] is to be asked, if at all. The mode is
    /// 0 for a request that may wait, 1 for one that waited, 2 for one that was refused elsewhere.
    ///
    /// # Errors
    /// The bytes are no request.
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

    /// Takes in what the key's object replied to a question, or that it did not. A list as of
    /// [`KeyShard::check`], answered or refused.
    ///
    /// # Errors
    /// The bytes are no such question, or no reply to it.
    pub fn heard(&self, asked: &[u8], reply: Option<Vec<u8>>) -> Result<Array, JsValue> {
        self.with(|shard, now| {
            let (reply, is_refused) = shard.heard(asked, reply.as_deref(), now)?;
            let what = if is_refused { REFUSED } else { ANSWERED };
            Ok(Array::of3(&what.into(), &bytes(&reply), &due_in(shard, now)))
        })
    }

    /// Puts back what a reply of its own took; nothing where the key's object is to take it back.
    ///
    /// # Errors
    /// The bytes are no such request, or no reply to it.
    pub fn refund(&self, request: &[u8], reply: &[u8]) -> Result<Option<Vec<u8>>, JsValue> {
        self.with(|shard, now| shard.refund(request, reply, now))
    }

    /// What is to be asked though no request waits.
    ///
    /// # Errors
    /// It was called from within itself.
    pub fn due(&self) -> Result<Option<Vec<u8>>, JsValue> {
        self.with(|shard, now| Ok(shard.due(now)))
    }

    /// In how many milliseconds [`KeyShard::due`] is to be asked, if at all.
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
