//! One partition key: a Durable Object that decides and remembers.
//!
//! Invariant: a decision and its write are one synchronous step, so no other request comes between,
//! and the platform holds the reply back until the write is durable. A denial writes nothing,
//! except for the first one after a quota was changed (the usage is then carried to the new quota,
//! and stays so) and for one that starts a penalty. Memory is only a copy of the row: an object
//! that was evicted, or whose wasm instance aborted, reads it again. A row that cannot be read
//! fails the one request that finds it, and the count starts again, as in Envoy; the row that takes
//! its place records that. There is no policy here: quotas come with the request and are stored in
//! the row.
//!
//! Where the key is a tenant alone, the tenant's entry is stored here, too. A request that was
//! planned with another entry gets this one as its reply and charges nothing. The entry stays when
//! the counts are idle, because no other object reports here that there is one.
//!
//! Under `durability: relaxed` memory is ahead of the row until [`Limiter::save`], which
//! `entry.mjs` calls soon after: one write for all requests allowed meanwhile. Units whose charge
//! is lost in a crash in between are allowed again.

pub(crate) mod stored_entry;
pub(crate) mod key_history;
pub(crate) mod metrics_object;
pub(crate) mod policy_object;
pub(crate) mod policy_wire;
pub(crate) mod row;
pub(crate) mod shard;
pub(crate) mod sql;
pub(crate) mod tenant_object;
pub(crate) mod tenant_wire;
pub(crate) mod versions;

use std::cell::RefCell;

use tollgate_core::Timestamp;
use tollgate_storage::{Answered, Counts, WireError};
use wasm_bindgen::prelude::*;
use worker::js_sys::{Array, ArrayBuffer, Date, Function, Object, Promise, Uint8Array};
use worker::worker_sys::{DurableObjectStorage, SqlStorageCursor};

use crate::object::stored_entry::StoredEntry;
use crate::object::tenant_wire::TenantRecord;
use crate::runtime::js;

/// The object behind `Limiter` of `entry.mjs`. No method is asynchronous, and none panics.
#[wasm_bindgen]
pub struct Limiter {
    storage: DurableObjectStorage,
    /// Asks for `save` to be called soon; it may be asked more than once.
    save_soon: Function,
    memory: RefCell<Option<Memory>>,
    /// The entry of the tenant that the key is.
    entry: StoredEntry,
}

/// The content of storage, or what it will be once it is saved.
#[derive(Default)]
struct Memory {
    has_table: bool,
    counts: Counts,
    /// The row is not written yet.
    is_unsaved: bool,
}

/// An operation on the counts, and its result.
type Step<'s> = &'s dyn Fn(&mut Counts, Timestamp) -> Result<Answered, WireError>;

#[wasm_bindgen]
impl Limiter {
    /// The object over its `ctx.storage`; nothing is read yet. `save_soon` must not call back at
    /// once.
    #[wasm_bindgen(constructor)]
    pub fn new(storage: DurableObjectStorage, save_soon: Function) -> Self {
        let (memory, entry) = (RefCell::default(), StoredEntry::default());
        Self { storage, save_soon, memory, entry }
    }

    /// Decides a request of `Partition::request`; the reply is for `PartitionMut::accept`, and
    /// empty when the stored row could not be read. Or carries out a report of
    /// `InFlightReport::request`, with its reply.
    ///
    /// # Errors
    /// The bytes are not a request, or storage fails. Nothing is charged then.
    pub fn check(&self, request: &[u8]) -> Result<Vec<u8>, JsValue> {
        if let Some(planned_with) = Counts::entry_of(request)
            && let Some(other) = self.other_entry(planned_with)?
        {
            return Ok(other);
        }
        let is_report = Counts::is_in_flight_report(request);
        self.step(Counts::is_strict(request), &|counts, now| match is_report {
            true => counts.report_in_flight(request, now),
            false => counts.answer(request, now),
        })
    }

    /// Refunds the charge that `check` made for `request` with `reply`. The result contains the
    /// remaining units after that. Calling it twice refunds twice: the caller tries once.
    ///
    /// # Errors
    /// As `check`; nothing is refunded then.
    pub fn refund(&self, request: &[u8], charged: &[u8]) -> Result<Vec<u8>, JsValue> {
        self.step(Counts::is_strict(request), &|counts, now| counts.refund(request, charged, now))
    }

    /// Carries out an operator's request for this key: a request of `GivenKey::request`; the reply
    /// is for `KeyState::read`, and empty when the stored row could not be read. The change is
    /// durable then.
    ///
    /// # Errors
    /// The bytes are not such a request, or storage fails; nothing is changed then.
    pub fn operate(&self, request: &[u8]) -> Result<Vec<u8>, JsValue> {
        self.step(true, &|counts, now| counts.operate(request, now))
    }

    /// Stores the entry of the tenant that the key is, as the list of entries delivers it, unless
    /// it is older than the stored one. It is durable when this returns.
    ///
    /// # Errors
    /// The bytes are not an entry, or storage fails; nothing is changed then.
    pub fn take(&self, entry: &[u8]) -> Result<(), JsValue> {
        let kept = TenantRecord::read(entry).ok_or_else(|| error("this is not an entry"))?;
        self.entry.take(&self.storage, &kept)
    }

    /// Writes the changes that relaxed rules have not written yet.
    ///
    /// # Errors
    /// Storage fails; the changes are still to be written then, and the next allowed request asks
    /// again.
    pub fn save(&self) -> Result<(), JsValue> {
        let saved = self.with_memory(|memory| {
            if memory.is_unsaved { self.write(memory, js::now()) } else { Ok(()) }
        });
        saved.map(drop)
    }

    /// Deletes the storage when everything in it is idle, else sets the alarm again. The promise is
    /// settled when that is durable.
    ///
    /// # Errors
    /// Storage fails; the platform then calls again.
    pub fn alarm(&self) -> Result<Promise, JsValue> {
        let done = self.with_memory(|memory| {
            let now = js::now();
            let idle_at = memory.counts.idle_at();
            if idle_at <= now {
                *memory = Memory::default();
                return self.forget();
            }
            // As if no alarm had been set: it rang.
            memory.counts.set_alarm_at(row::alarm_at(Timestamp::ZERO, idle_at, now));
            if memory.is_unsaved {
                self.write(memory, now)?;
            }
            self.set_alarm(memory.counts.alarm_at())
        })?;
        done.map_or_else(|| self.forget(), Ok)
    }
}

impl Limiter {
    /// The reply to a request that was planned with another entry than the one here.
    fn other_entry(&self, planned_with: u64) -> Result<Option<Vec<u8>>, JsValue> {
        self.entry.with(&self.storage, |kept| {
            let is_other = kept.in_force() != planned_with;
            is_other.then(|| Counts::other_entry(&kept.to_bytes()).reply)
        })
    }

    /// Deletes all storage, except for an entry.
    fn forget(&self) -> Result<Promise, JsValue> {
        if self.entry.with(&self.storage, |kept| kept.revision)? == 0 {
            return self.storage.delete_all();
        }
        self.exec(row::FORGET, Array::new())?;
        // Nothing rings for an entry.
        self.storage.delete_alarm(Object::new())
    }

    /// Runs one step on the usage of this key, and writes the changes: now, or soon unless it
    /// `is_strict`.
    fn step(&self, is_strict: bool, step: Step<'_>) -> Result<Vec<u8>, JsValue> {
        let mut is_ahead = false;
        let reply = self.with_memory(|memory| {
            let now = js::now();
            let answered = step(&mut memory.counts, now).map_err(other_side)?;
            if !answered.is_changed {
                return Ok(answered.reply);
            }
            memory.is_unsaved = true;
            if is_strict {
                is_ahead = true;
                self.write(memory, now)?;
                is_ahead = false;
            } else {
                self.save_soon.call0(&JsValue::UNDEFINED)?;
            }
            Ok(answered.reply)
        });
        if is_ahead {
            // The change was not written, so it was not charged.
            *self.memory.borrow_mut() = None;
        }
        Ok(reply?.unwrap_or_default())
    }

    /// Calls `step` with the stored content, read before if it is not in memory; `None` when it
    /// could not be read, and then the count starts again.
    fn with_memory<T>(
        &self,
        step: impl FnOnce(&mut Memory) -> Result<T, JsValue>,
    ) -> Result<Option<T>, JsValue> {
        let mut memory = self.memory.try_borrow_mut().map_err(|_| error("re-entered"))?;
        if let Some(memory) = memory.as_mut() {
            return step(memory).map(Some);
        }
        let (found, is_corrupt) = self.read()?;
        let memory = memory.insert(found);
        if !is_corrupt {
            return step(memory).map(Some);
        }
        // Written at once: an object that is evicted would forget that a row was lost.
        self.write(memory, js::now())?;
        Ok(None)
    }

    /// The stored content, and whether part of it was unreadable: it must be written again then.
    fn read(&self) -> Result<(Memory, bool), JsValue> {
        let has_table = !self.column(row::FIND)?.is_empty();
        let mut memory = Memory { has_table, ..Memory::default() };
        let mut is_corrupt = false;
        if memory.has_table {
            match self.row(row::LOAD, Counts::decode)? {
                Some(Some(counts)) => memory.counts = counts,
                Some(None) => {
                    is_corrupt = true;
                    memory.counts = Counts::begun_anew(js::now());
                }
                None => {}
            }
        }
        Ok((memory, is_corrupt))
    }

    /// Writes the row and sets the alarm that will delete it, then remembers both.
    fn write(&self, memory: &mut Memory, now: Timestamp) -> Result<(), JsValue> {
        let set_at = memory.counts.alarm_at();
        let alarm_at = row::alarm_at(set_at, memory.counts.idle_at(), now);
        memory.counts.set_alarm_at(alarm_at);
        if !memory.has_table {
            self.exec(row::CREATE, Array::new())?;
            memory.has_table = true;
        }
        let mut bytes = Vec::new();
        memory.counts.encode(now, &mut bytes);
        self.exec(row::SAVE, Array::of1(&Uint8Array::from(bytes.as_slice())))?;
        if alarm_at != set_at {
            // Not awaited: the output gate holds the reply until this is durable too.
            let _ = self.set_alarm(alarm_at)?;
        }
        memory.is_unsaved = false;
        Ok(())
    }
}

impl Limiter {
    /// The first column of the rows that `query` finds.
    fn column(&self, query: &str) -> Result<Vec<JsValue>, JsValue> {
        let rows = self.exec(query, Array::new())?.raw();
        let mut found = Vec::new();
        loop {
            let next = rows.next()?;
            if next.done() {
                return Ok(found);
            }
            found.push(next.value().unchecked_into::<Array>().get(0));
        }
    }

    /// The result of `read` for the row that `query` finds, if it finds one.
    fn row<T>(&self, query: &str, read: impl FnOnce(&[u8]) -> T) -> Result<Option<T>, JsValue> {
        // Only bytes are accepted: the platform would convert anything else, or throw.
        let bytes = |stored: &JsValue| {
            let bytes = stored.dyn_ref::<ArrayBuffer>();
            bytes.map(|bytes| Uint8Array::new(bytes).to_vec()).unwrap_or_default()
        };
        Ok(self.column(query)?.first().map(|stored| read(&bytes(stored))))
    }

    fn exec(&self, query: &str, values: Array) -> Result<SqlStorageCursor, JsValue> {
        self.storage.sql().exec(query, values)
    }

    fn set_alarm(&self, at: Timestamp) -> Result<Promise, JsValue> {
        let milliseconds = at.since(Timestamp::ZERO).as_millis_ceil();
        let date = Date::new(&JsValue::from_f64(js::number(milliseconds)));
        self.storage.set_alarm(date, Object::new())
    }
}

fn other_side(why: WireError) -> JsValue {
    error(&why.to_string())
}

fn error(message: &str) -> JsValue {
    worker::js_sys::Error::new(message).into()
}
