//! The objects of tenants' entries: one per tenant, and one that lists them all.
//!
//! The list is authoritative. A writer names the version that it saw there, and the list compares
//! and writes in one step. It then delivers the entry to the tenant's own object, which isolates
//! ask, and to the objects that count the tenant alone. So no request of a client reaches the list.
//! An entry that is not yet delivered is marked, and the alarm delivers it when the writer could
//! not. After a crash between the two writes the list is right and the other objects follow.
//!
//! Invariant: revisions grow over all tenants and never come back, and no object accepts a revision
//! below its own. An object that once got an entry and is no longer one of its places is sent its
//! removal. So a stored entry is the present one, or one that is being delivered. Whether entries
//! are stored next to the counts of a policy is known for all entries together
//! ([`Tenants::are_beside`]). Deliberately absent: the meaning of an entry; that is in the policy
//! crate.

use std::cell::Cell;

use tollgate_service::{Expect, StoreReply, StoredTenant, TenantCall, TenantReply};
use wasm_bindgen::prelude::*;
use worker::Env;
use worker::js_sys::{Array, Date, Object, Uint8Array};
use worker::worker_sys::DurableObjectStorage;

use crate::object::sql::{Row, Value, run};
use crate::object::stored_entry::StoredEntry;
use crate::object::tenant_wire::{Places, Request, TenantRecord, names};
use crate::runtime::js;
use crate::settings::Settings;
use crate::settings::namespaces::{OBJECTS, TENANTS, objects};

/// The most entries: at the greatest length they take 8 GB, and an object holds 10.
const MAX_ENTRIES: u64 = 500_000;
/// The most entries of one page. At the greatest length they take 16 MB.
const MAX_PAGE: u32 = 1_000;
/// No revision is greater: a JavaScript number holds all whole numbers up to it.
const MAX_REVISION: u64 = 1 << 53;
/// The time from a write that could not be delivered to the next try.
const RETRY_MS: u64 = 5_000;

/// `entry` is NULL for an entry that was removed and is not yet delivered. `object` is the name of
/// the tenant's object. `tenancy` and `counts` identify the counts next to which the entry is
/// stored ([`Places`]). `gone` contains where it was before and must be removed. `is_due` is 1
/// until all of them know.
const CREATE: [&str; 4] = [
    "CREATE TABLE IF NOT EXISTS tenants_v1 (id TEXT PRIMARY KEY, revision INTEGER NOT NULL, \
     entry TEXT, object TEXT NOT NULL, is_due INTEGER NOT NULL, tenancy TEXT NOT NULL, \
     counts TEXT NOT NULL, gone TEXT NOT NULL) WITHOUT ROWID",
    "CREATE INDEX IF NOT EXISTS tenants_due_v1 ON tenants_v1 (revision) WHERE is_due = 1",
    "CREATE INDEX IF NOT EXISTS tenants_tenancy_v1 ON tenants_v1 (tenancy)",
    "CREATE TABLE IF NOT EXISTS tenants_sum_v1 (one INTEGER PRIMARY KEY CHECK (one = 1), \
     revision INTEGER NOT NULL, entries INTEGER NOT NULL)",
];

/// The object behind `Tenants` of `entry.mjs`. No method is asynchronous, and none panics.
#[wasm_bindgen]
pub struct Tenants {
    storage: DurableObjectStorage,
    /// The entry in a tenant's own object.
    kept: StoredEntry,
    has_tables: Cell<bool>,
    /// A write was made since the flag was last read.
    has_written: Cell<bool>,
    /// When the alarm that was last set here rings, in milliseconds since 1970.
    alarm_ms: Cell<u64>,
}

/// The objects that have entries as `env` binds them, where the settings place them: those of this
/// class, or those that count. The reason as a text when there are none.
#[wasm_bindgen(js_name = entryObjects)]
pub fn entry_objects(env: &Env, that_count: bool) -> JsValue {
    let placement =
        Settings::read(|name| js::text_binding(env, name)).map(|settings| settings.placement);
    let name = if that_count { OBJECTS } else { TENANTS };
    let bound = objects(env, placement.unwrap_or_default(), name);
    bound.ok().flatten().unwrap_or_else(|| JsValue::from_str("they are bound to nothing"))
}

#[wasm_bindgen]
impl Tenants {
    /// The object over its `ctx.storage`; nothing is read yet.
    #[wasm_bindgen(constructor)]
    pub fn new(storage: DurableObjectStorage) -> Self {
        let kept = StoredEntry::default();
        let (has_tables, has_written, alarm_ms) = Default::default();
        Self { storage, kept, has_tables, has_written, alarm_ms }
    }

    /// Carries out a request of `tenant_wire`. [`Tenants::due`] returns the entries to deliver
    /// afterwards.
    ///
    /// # Errors
    /// The bytes are not a request, or storage fails; nothing was changed then.
    pub fn call(&self, request: &[u8]) -> Result<Vec<u8>, JsValue> {
        match Request::read(request) {
            Some(Request::Get) => self.kept.with(&self.storage, TenantRecord::to_bytes),
            Some(Request::Take(kept)) => self.kept.take(&self.storage, &kept).map(|()| Vec::new()),
            Some(Request::Of { call, places }) => {
                Ok(StoreReply::Tenants(self.answer(call, &places)?).to_json().into_bytes())
            }
            Some(Request::AreBeside(tenancy)) => Ok(vec![self.are_beside(tenancy)?.into()]),
            None => Err(js::error("this is not a request of a tenant's object")),
        }
    }

    /// True once after a call that wrote an entry which must be delivered.
    #[must_use]
    pub fn has_written(&self) -> bool {
        self.has_written.replace(false)
    }

    /// The entries of one revision below `below` that must be delivered, the latest first: the
    /// revision, then for each object whether it counts, its name and the bytes to give it. Empty
    /// when there is nothing to deliver.
    ///
    /// # Errors
    /// Storage fails.
    pub fn due(&self, below: f64) -> Result<Array, JsValue> {
        self.make_tables()?;
        let query = "SELECT revision, entry, object, counts, gone FROM tenants_v1 \
                     WHERE is_due = 1 AND revision < ? ORDER BY revision DESC LIMIT 1";
        let below = [Value::Number(js::whole(below).min(MAX_REVISION))];
        let Some(row) = run(&self.storage, query, &below)?.next()? else { return Ok(Array::new()) };
        let text = |column| row.text(column).unwrap_or_default();
        let kept = TenantRecord { revision: row.number(0).unwrap_or_default(), entry: row.text(1) };
        let none = TenantRecord { revision: kept.revision, entry: None };
        let delivery = |counts: bool, name: &str, bytes: &[u8]| {
            Array::of3(&counts.into(), &name.into(), &Uint8Array::from(bytes))
        };
        let all = Array::of2(
            &js::number(kept.revision).into(),
            &delivery(false, &text(2), &Request::take(&kept)),
        );
        for name in names(&text(3)) {
            all.push(&delivery(true, name, &kept.to_bytes()));
        }
        for name in names(&text(4)) {
            all.push(&delivery(true, name, &none.to_bytes()));
        }
        Ok(all)
    }

    /// Records that the alarm fired: the next write sets one.
    #[wasm_bindgen(js_name = alarmFired)]
    pub fn alarm_fired(&self) {
        self.alarm_ms.set(0);
    }

    /// Records that all objects have taken the entries that were due of this revision.
    ///
    /// # Errors
    /// Storage fails; the revision is delivered again then.
    pub fn delivered(&self, revision: f64) -> Result<(), JsValue> {
        let revision = [Value::Number(js::whole(revision))];
        let removed = "DELETE FROM tenants_v1 WHERE is_due = 1 AND revision = ? AND entry IS NULL";
        run(&self.storage, removed, &revision)?;
        let there = "UPDATE tenants_v1 SET is_due = 0, gone = '' WHERE is_due = 1 AND revision = ?";
        run(&self.storage, there, &revision).map(drop)
    }
}

impl Tenants {
    /// True when every entry is stored next to the counts of `tenancy`, so that a count without an
    /// entry proves that there is none.
    fn are_beside(&self, tenancy: u64) -> Result<bool, JsValue> {
        self.make_tables()?;
        let tenancy = tenancy_text(tenancy);
        for others in [
            "SELECT 1 FROM tenants_v1 WHERE tenancy < ? LIMIT 1",
            "SELECT 1 FROM tenants_v1 WHERE tenancy > ? LIMIT 1",
        ] {
            if run(&self.storage, others, &[Value::Text(&tenancy)])?.next()?.is_some() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn make_tables(&self) -> Result<(), JsValue> {
        if !self.has_tables.get() {
            for statement in CREATE {
                run(&self.storage, statement, &[])?;
            }
            self.has_tables.set(true);
        }
        Ok(())
    }

    fn answer(&self, call: TenantCall, places: &Places) -> Result<TenantReply, JsValue> {
        self.make_tables()?;
        match call {
            TenantCall::Get { id } => self.listed(&id).map(|(row, _)| TenantReply::Entry(row)),
            TenantCall::Put { id, entry, expect } => {
                let (found, row) = self.listed(&id)?;
                if !is_expected(found.as_ref(), &expect) {
                    return Ok(TenantReply::Unexpected(found));
                }
                self.put(&id, &entry, found.is_none(), &row.moved_to(places))
            }
            TenantCall::Delete { id, expect } => {
                let (found, row) = self.listed(&id)?;
                if !is_expected(found.as_ref(), &expect) {
                    return Ok(TenantReply::Unexpected(found));
                }
                self.remove(&id, found.is_some(), &row)
            }
            TenantCall::List { after, limit } => self.list(after.as_deref(), limit.min(MAX_PAGE)),
        }
    }

    /// The entry of `id` in the list, and where it is and was stored.
    fn listed(&self, id: &str) -> Result<(Option<StoredTenant>, Location), JsValue> {
        let query = "SELECT id, revision, entry, object, tenancy, counts, gone FROM tenants_v1 \
                     WHERE id = ?";
        let row = run(&self.storage, query, &[Value::Text(id)])?.next()?;
        let text = |column| row.as_ref().and_then(|row| row.text(column)).unwrap_or_default();
        let lies = Location { object: text(3), tenancy: text(4), counts: text(5), gone: text(6) };
        Ok((row.as_ref().and_then(stored), lies))
    }

    fn put(
        &self,
        id: &str,
        entry: &str,
        is_new: bool,
        lies: &Location,
    ) -> Result<TenantReply, JsValue> {
        let (revision, entries) = self.sum()?;
        if is_new && entries >= MAX_ENTRIES {
            return Ok(TenantReply::Full);
        }
        let entries = entries.saturating_add(is_new.into());
        let revision = self.write((id, Some(entry)), lies, (revision, entries))?;
        Ok(TenantReply::Written { revision, is_new })
    }

    fn remove(&self, id: &str, is_there: bool, lies: &Location) -> Result<TenantReply, JsValue> {
        let (revision, entries) = self.sum()?;
        let entries = entries.saturating_sub(is_there.into());
        self.write((id, None), lies, (revision, entries))?;
        Ok(TenantReply::Removed)
    }

    /// The last revision, and how many entries there are.
    fn sum(&self) -> Result<(u64, u64), JsValue> {
        let sum =
            run(&self.storage, "SELECT revision, entries FROM tenants_sum_v1", &[])?.next()?;
        let of_sum = |column| sum.as_ref().and_then(|row| row.number(column)).unwrap_or_default();
        Ok((of_sum(0), of_sum(1)))
    }

    /// Writes or removes the entry of a tenant, on the condition that it has `revision`, and
    /// returns the new revision. One synchronous step: the platform writes all of it, or nothing.
    fn write(
        &self,
        (id, entry): (&str, Option<&str>),
        lies: &Location,
        (revision, entries): (u64, u64),
    ) -> Result<u64, JsValue> {
        let revision = revision.saturating_add(1);
        let values = [Value::Number(revision), Value::Number(entries)];
        let write = "INSERT INTO tenants_sum_v1 VALUES (1, ?, ?) ON CONFLICT (one) DO UPDATE \
                     SET revision = excluded.revision, entries = excluded.entries";
        run(&self.storage, write, &values)?;
        let Location { object, tenancy, counts, gone } = lies;
        let texts = [object, tenancy, counts, gone].map(|text| Value::Text(text));
        let mut values = vec![Value::Text(id), Value::Number(revision), Value::of(entry)];
        values.extend(texts);
        let write = "INSERT INTO tenants_v1 (id, revision, entry, object, tenancy, counts, gone, \
                     is_due) VALUES (?, ?, ?, ?, ?, ?, ?, 1) ON CONFLICT (id) DO UPDATE SET \
                     revision = excluded.revision, entry = excluded.entry, \
                     object = excluded.object, tenancy = excluded.tenancy, \
                     counts = excluded.counts, gone = excluded.gone, is_due = 1";
        run(&self.storage, write, &values)?;
        self.set_alarm()?;
        self.has_written.set(true);
        Ok(revision)
    }

    fn list(&self, after: Option<&str>, limit: u32) -> Result<TenantReply, JsValue> {
        let query = "SELECT id, revision, entry FROM tenants_v1 WHERE id > ? AND entry IS NOT NULL \
                     ORDER BY id LIMIT ?";
        let values = [
            // No identifier is empty.
            Value::Text(after.unwrap_or_default()),
            Value::Number(u64::from(limit).saturating_add(1)),
        ];
        let rows = run(&self.storage, query, &values)?;
        let mut entries = Vec::new();
        while let Some(row) = rows.next()? {
            if u32::try_from(entries.len()).is_ok_and(|len| len >= limit) {
                return Ok(TenantReply::List { entries, more: true });
            }
            entries.extend(stored(&row));
        }
        Ok(TenantReply::List { entries, more: false })
    }

    /// Makes sure that the entry is delivered, whatever happens to the writer. An alarm that has
    /// not rung yet stays: a writer that writes all the time would put it off for ever.
    fn set_alarm(&self) -> Result<(), JsValue> {
        let now = js::now_ms();
        let at = now.saturating_add(RETRY_MS);
        if (now.saturating_add(1)..=at).contains(&self.alarm_ms.get()) {
            return Ok(());
        }
        self.alarm_ms.set(at);
        let date = Date::new(&JsValue::from_f64(js::number(at)));
        // Not awaited: the output gate holds the reply until this is durable, too.
        self.storage.set_alarm(date, Object::new()).map(drop)
    }
}

/// Where an entry is stored, according to the list.
#[derive(Default)]
struct Location {
    object: String,
    tenancy: String,
    counts: String,
    /// Where it was stored and is not removed yet.
    gone: String,
}

impl Location {
    /// The same once it is stored at `places`: the objects that had it must be informed.
    fn moved_to(&self, places: &Places) -> Self {
        let before = names(&self.gone).chain(names(&self.counts));
        let is_left = |name: &&str| !names(&places.counts).any(|kept| kept == *name);
        let mut gone: Vec<_> = before.filter(is_left).collect();
        gone.sort_unstable();
        gone.dedup();
        Self {
            object: places.object.clone(),
            tenancy: tenancy_text(places.tenancy),
            counts: places.counts.clone(),
            gone: gone.concat(),
        }
    }
}

/// As text, because SQLite's integers have a sign.
fn tenancy_text(tenancy: u64) -> String {
    format!("{tenancy:016x}")
}

fn stored(row: &Row) -> Option<StoredTenant> {
    Some(StoredTenant { id: row.text(0)?, revision: row.number(1)?, entry: row.text(2)? })
}

fn is_expected(found: Option<&StoredTenant>, expect: &Expect) -> bool {
    match expect {
        Expect::Nothing => found.is_none(),
        Expect::Anything => found.is_some(),
        Expect::Revisions(wanted) => found.is_some_and(|it| wanted.contains(&it.revision)),
    }
}
