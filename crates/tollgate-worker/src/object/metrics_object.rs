//! The sums: one Durable Object that adds up the counts of the isolates.
//!
//! Invariant: counts are acknowledged, and sums returned, only once they are durable, so a sum that
//! was seen never goes down, no matter which part is killed when. Memory is a copy of the rows plus
//! the counts added since; `entry.mjs` calls [`Metrics::save`] soon after, one write for all that
//! was added meanwhile. A row that cannot be read is left out and written again.

use std::cell::RefCell;

use tollgate_core::Timestamp;
use tollgate_service::metrics::{Added, Delta, Format, Sums};
use wasm_bindgen::prelude::*;
use worker::js_sys::{Array, ArrayBuffer, Error, Uint8Array};
use worker::worker_sys::DurableObjectStorage;

use crate::runtime::js;

const FIND: &str = "SELECT name FROM sqlite_master WHERE name = 'pages_v1'";
const LOAD: &str = "SELECT number, bytes FROM pages_v1 ORDER BY number";
const CREATE: &str =
    "CREATE TABLE IF NOT EXISTS pages_v1 (number INTEGER PRIMARY KEY, bytes BLOB NOT NULL)";
const SAVE: &str = "INSERT OR REPLACE INTO pages_v1 VALUES (?, ?)";

/// The object behind `Metrics` of `entry.mjs`. No method is asynchronous, and none panics.
#[wasm_bindgen]
pub struct Metrics {
    storage: DurableObjectStorage,
    sums: RefCell<Option<Sums>>,
}

#[wasm_bindgen]
impl Metrics {
    /// The object over its `ctx.storage`; nothing is read yet.
    #[wasm_bindgen(constructor)]
    pub fn new(storage: DurableObjectStorage) -> Self {
        Self { storage, sums: RefCell::default() }
    }

    /// Adds the counts of an isolate, the bytes of a `Delta`; they are durable after `save`. Counts
    /// that were added before are not added again.
    ///
    /// # Errors
    /// The bytes are not a delta, or storage fails.
    pub fn add(&self, delta: &[u8]) -> Result<(), JsValue> {
        let delta = Delta::decode(delta).ok_or_else(|| error("no counts of this version"))?;
        self.with_sums(|sums| {
            let (Added::Now | Added::Before) = sums.add(&delta, now_s());
            Ok(())
        })
    }

    /// Writes the added counts.
    ///
    /// # Errors
    /// Storage fails; the counts are still to be written then.
    pub fn save(&self) -> Result<(), JsValue> {
        self.with_sums(|sums| self.write(sums))
    }

    /// The sums as text, once they are written: OpenMetrics if `is_open`, else Prometheus.
    ///
    /// # Errors
    /// Storage fails.
    pub fn text(&self, is_open: bool) -> Result<String, JsValue> {
        let format = if is_open { Format::OpenMetrics } else { Format::Prometheus };
        self.with_sums(|sums| {
            self.write(sums)?;
            Ok(sums.text(format, now_s()))
        })
    }
}

impl Metrics {
    /// Calls `step` with the sums, read before if they are not in memory.
    fn with_sums<T>(
        &self,
        step: impl FnOnce(&mut Sums) -> Result<T, JsValue>,
    ) -> Result<T, JsValue> {
        let mut memory = self.sums.try_borrow_mut().map_err(|_| error("re-entered"))?;
        if memory.is_none() {
            *memory = Some(self.read()?);
        }
        memory.as_mut().map_or_else(|| Err(error("no sums")), step)
    }

    fn read(&self) -> Result<Sums, JsValue> {
        let mut sums = Sums::default();
        if self.storage.sql().exec(FIND, Array::new())?.raw().next()?.done() {
            return Ok(sums);
        }
        let rows = self.storage.sql().exec(LOAD, Array::new())?.raw();
        loop {
            let next = rows.next()?;
            if next.done() {
                return Ok(sums);
            }
            let row: Array = next.value().unchecked_into();
            // The numbers are ours, from 0. Only bytes are accepted: the platform would convert
            // anything else.
            let number =
                row.get(0).as_f64().and_then(|number| u16::try_from(js::whole(number)).ok());
            let bytes = row.get(1).dyn_into::<ArrayBuffer>().ok();
            let page = number
                .zip(bytes)
                .and_then(|(number, bytes)| sums.load(number, &Uint8Array::new(&bytes).to_vec()));
            if page.is_none() {
                js::fail("metrics: a page of sums cannot be read; what it counted begins at 0");
            }
        }
    }

    fn write(&self, sums: &mut Sums) -> Result<(), JsValue> {
        let changed: Vec<u16> = sums.changed().collect();
        if changed.is_empty() {
            return Ok(());
        }
        self.storage.sql().exec(CREATE, Array::new())?;
        for number in changed {
            let bytes = Uint8Array::from(sums.page(number).as_slice());
            let values = Array::of2(&JsValue::from(number), &bytes);
            self.storage.sql().exec(SAVE, values)?;
        }
        sums.saved();
        Ok(())
    }
}

fn now_s() -> u64 {
    js::now().since(Timestamp::ZERO).as_millis_ceil() / 1000
}

fn error(message: &str) -> JsValue {
    Error::new(message).into()
}
