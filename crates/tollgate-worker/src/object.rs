//! One partition key: a Durable Object that decides and remembers.
//!
//! Invariant: a decision and its write are one synchronous step, so no other request comes between,
//! and the platform holds the reply back until the write is durable. A denial writes nothing.
//! Memory is only a copy of the row: an object that was evicted, or whose wasm instance aborted,
//! reads it again. A row that cannot be read fails the one request that finds it and is removed:
//! the count begins again, as in Envoy.
//!
//! Under `durability: relaxed` memory is ahead of the row until [`Limiter::save`], which
//! `entry.mjs` calls soon after: one write for everything admitted meanwhile. What a crash in
//! between forgets is admitted again.

use std::cell::RefCell;

use tollgate_core::Timestamp;
use tollgate_policy::{Group, Partition, Plan, Policy, WireError};
use wasm_bindgen::prelude::*;
use worker::js_sys::{Array, ArrayBuffer, Date, Function, Object, Promise, Uint8Array};
use worker::worker_sys::DurableObjectStorage;

use crate::deployment::policy;
use crate::js;
use crate::row::{self, Row};

/// The object behind `Limiter` of `entry.mjs`. No method is asynchronous, and none panics.
#[wasm_bindgen]
pub struct Limiter {
    storage: DurableObjectStorage,
    /// Asks for `save` to be called soon; it may be asked more than once.
    save_soon: Function,
    memory: RefCell<Option<Memory>>,
}

/// What storage holds, or will hold once it is saved.
#[derive(Default)]
struct Memory {
    has_table: bool,
    row: Option<Row>,
    /// The row is not written yet; when its value is idle.
    unsaved: Option<Timestamp>,
}

#[wasm_bindgen]
impl Limiter {
    /// The object over its `ctx.storage`; nothing is read yet. `save_soon` must not call back at
    /// once.
    #[wasm_bindgen(constructor)]
    pub fn new(storage: DurableObjectStorage, save_soon: Function) -> Self {
        Self { storage, save_soon, memory: RefCell::default() }
    }

    /// Decides a request of `Partition::request`; the answer is for `PartitionMut::accept`, and
    /// empty when what was stored could not be read.
    ///
    /// # Errors
    /// The bytes are no request, the other side has another policy, or storage fails. Nothing is
    /// charged then.
    pub fn check(&self, request: &[u8]) -> Result<Vec<u8>, JsValue> {
        with_policy(|policy| {
            let mut plan = Plan::from_request(policy, request).map_err(other_side)?;
            let reply = self.with_memory(|memory| {
                let now = js::now();
                plan.each_partition(|partition| partition.load(policy, memory.value()));
                plan.decide(policy, now);
                if let Some(changed) = plan.partition(0).filter(Partition::changed) {
                    self.commit(memory, policy, changed, now)?;
                }
                Ok(reply(policy, &plan))
            })?;
            Ok(reply.unwrap_or_default())
        })
    }

    /// Takes back what `check` charged for `request` when it answered `reply`. The answer says what
    /// is left then. Calling it twice takes it back twice: the caller tries once.
    ///
    /// # Errors
    /// As `check`; nothing is taken back then.
    pub fn refund(&self, request: &[u8], charged: &[u8]) -> Result<Vec<u8>, JsValue> {
        with_policy(|policy| {
            let mut plan = Plan::from_request(policy, request).map_err(other_side)?;
            let Some(mut partition) = plan.partition_mut(0) else { return Ok(Vec::new()) };
            partition.accept(policy, charged).map_err(other_side)?;
            if !partition.view().changed() {
                return Ok(reply(policy, &plan));
            }
            let refunded = self.with_memory(|memory| {
                let now = js::now();
                partition.load(policy, memory.value());
                partition.refund(policy, now);
                self.commit(memory, policy, partition.view(), now)?;
                partition.refunded(policy, now);
                Ok(())
            })?;
            Ok(refunded.map(|()| reply(policy, &plan)).unwrap_or_default())
        })
    }

    /// Writes what relaxed rules left to be written.
    ///
    /// # Errors
    /// Storage fails; it is still to be written then, and the next admission asks again.
    pub fn save(&self) -> Result<(), JsValue> {
        self.with_memory(|memory| self.write_unsaved(memory, js::now())).map(drop)
    }

    /// Deletes the storage when everything in it is idle, else sets the alarm again. The promise is
    /// settled when that is durable.
    ///
    /// # Errors
    /// Storage fails; the platform then calls again.
    pub fn alarm(&self) -> Result<Promise, JsValue> {
        let done = self.with_memory(|memory| {
            let now = js::now();
            let idle_at = match &memory.row {
                Some(row) => idle_at(row, now),
                None => Timestamp::ZERO,
            };
            if idle_at <= now {
                *memory = Memory::default();
                return self.storage.delete_all();
            }
            self.write_unsaved(memory, now)?;
            let alarm_at = row::alarm_at(Timestamp::ZERO, idle_at, now);
            if let Some(row) = &mut memory.row {
                row.alarm_at = alarm_at;
            }
            self.set_alarm(alarm_at)
        })?;
        done.map_or_else(|| self.storage.delete_all(), Ok)
    }
}

impl Limiter {
    /// Calls `step` with what storage holds, read before if it is not in memory; `None` when it
    /// could not be read, and then it is gone.
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
        if is_corrupt { Ok(None) } else { step(memory).map(Some) }
    }

    /// What storage holds, and whether that was no row: it is removed then.
    fn read(&self) -> Result<(Memory, bool), JsValue> {
        if self.first(row::FIND)?.is_none() {
            return Ok((Memory::default(), false));
        }
        let stored = self.first(row::LOAD)?;
        // Bytes only: of anything else the platform would make some, or throw.
        let bytes = stored.as_ref().and_then(|stored| stored.dyn_ref::<ArrayBuffer>());
        let row = bytes.and_then(|bytes| Row::decode(&Uint8Array::new(bytes).to_vec()));
        let is_corrupt = stored.is_some() && row.is_none();
        if is_corrupt {
            self.storage.sql().exec(row::CLEAR, Array::new())?;
        }
        Ok((Memory { has_table: true, row, unsaved: None }, is_corrupt))
    }

    /// The first column of the first row that `query` finds.
    fn first(&self, query: &str) -> Result<Option<JsValue>, JsValue> {
        let next = self.storage.sql().exec(query, Array::new())?.raw().next()?;
        Ok((!next.done()).then(|| next.value().unchecked_into::<Array>().get(0)))
    }

    /// Takes the value of `partition` for the truth and writes it: now, or soon if all of its rules
    /// are relaxed.
    fn commit(
        &self,
        memory: &mut Memory,
        policy: &Policy,
        partition: Partition<'_>,
        now: Timestamp,
    ) -> Result<(), JsValue> {
        let group = policy.groups().get(partition.group());
        let row = Row {
            group: group.map_or(0, Group::identity),
            alarm_at: memory.row.as_ref().map_or(Timestamp::ZERO, |row| row.alarm_at),
            value: partition.value().to_vec(),
        };
        let idle_at = partition.idle_at(policy);
        if group.is_none_or(Group::is_strict) {
            return self.write(memory, row, idle_at, now);
        }
        memory.row = Some(row);
        memory.unsaved = Some(idle_at);
        self.save_soon.call0(&JsValue::UNDEFINED).map(drop)
    }

    fn write_unsaved(&self, memory: &mut Memory, now: Timestamp) -> Result<(), JsValue> {
        match (memory.unsaved, memory.row.clone()) {
            (Some(idle_at), Some(row)) => self.write(memory, row, idle_at, now),
            _ => Ok(()),
        }
    }

    /// Writes `row` and sets the alarm that will delete it, then remembers both.
    fn write(
        &self,
        memory: &mut Memory,
        mut row: Row,
        idle_at: Timestamp,
        now: Timestamp,
    ) -> Result<(), JsValue> {
        let set_at = row.alarm_at;
        row.alarm_at = row::alarm_at(set_at, idle_at, now);
        if !memory.has_table {
            self.storage.sql().exec(row::CREATE, Array::new())?;
            memory.has_table = true;
        }
        let bytes = Uint8Array::from(row.encode().as_slice());
        self.storage.sql().exec(row::SAVE, Array::of1(&bytes))?;
        if row.alarm_at != set_at {
            // Not awaited: the output gate holds the reply until this is durable too.
            let _ = self.set_alarm(row.alarm_at)?;
        }
        memory.row = Some(row);
        memory.unsaved = None;
        Ok(())
    }

    fn set_alarm(&self, at: Timestamp) -> Result<Promise, JsValue> {
        let milliseconds = at.since(Timestamp::ZERO).as_millis_ceil();
        let date = Date::new(&JsValue::from_f64(js::number(milliseconds)));
        self.storage.set_alarm(date, Object::new())
    }
}

impl Memory {
    fn value(&self) -> Option<&[u8]> {
        self.row.as_ref().map(|row| row.value.as_slice())
    }
}

/// When `row` may be deleted. The state of rules that are gone may go at once; while the policy
/// cannot be read nothing may.
fn idle_at(row: &Row, now: Timestamp) -> Timestamp {
    let Ok(policy) = &*policy() else {
        return now.saturating_add(row::RETRY_ALARM_AFTER);
    };
    let group = policy.groups().iter().find(|group| group.identity() == row.group);
    group.map_or(Timestamp::ZERO, |group| group.idle_at(policy, &row.value))
}

fn with_policy<T>(step: impl FnOnce(&Policy) -> Result<T, JsValue>) -> Result<T, JsValue> {
    match &*policy() {
        Ok(policy) => step(policy),
        Err(_) => Err(error("the policy is wrong; see the health report")),
    }
}

fn reply(policy: &Policy, plan: &Plan) -> Vec<u8> {
    let mut reply = Vec::new();
    plan.reply(policy, &mut reply);
    reply
}

fn other_side(why: WireError) -> JsValue {
    error(&why.to_string())
}

fn error(message: &str) -> JsValue {
    worker::js_sys::Error::new(message).into()
}
