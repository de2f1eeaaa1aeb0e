//! The objects of tenants' entries: one for each tenant, and one that lists them all.
//!
//! The list is the truth: whoever writes names what it saw there, and the list compares and writes
//! in one step. It then hands the entry on to the tenant's own object, which isolates ask, so that
//! no request of a client meets the list. What is not yet handed on is marked, and handed on by the
//! alarm when whoever wrote it could not: after a crash between the two writes the list is right
//! and the tenant's object follows.
//!
//! Invariant: revisions grow over all tenants and never come back, and a tenant's object takes none
//! below the one that it has, so what arrives late changes nothing. For that it keeps the revision
//! of an entry that was removed. Deliberately absent: what an entry means; that is the policy's.

use std::cell::Cell;

use tollgate_service::{Expect, StoreReply, StoredTenant, TenantCall, TenantReply};
use wasm_bindgen::prelude::*;
use worker::Env;
use worker::js_sys::{Date, Object};
use worker::worker_sys::DurableObjectStorage;

use crate::js;
use crate::namespaces;
use crate::settings::Settings;
use crate::sql::{Row, Value, run};
use crate::tenant_wire::{Delivery, Kept, Request};

/// What is bound to these objects.
pub(crate) const TENANTS: &str = "TENANTS";

/// The most entries: of the greatest length they are 8 GB, and an object holds 10.
const MAX_ENTRIES: u64 = 500_000;
/// The most entries of one page. Of the greatest length they are 16 MB.
const MAX_PAGE: u32 = 1_000;
/// From a write that could not be handed on to the next try.
const RETRY_MS: u64 = 5_000;

/// `entry` is NULL for an entry that was removed and is not yet handed on. `object` is the name of
/// the tenant's object; `is_due` is 1 until that has the entry.
const CREATE: [&str; 3] = [
    "CREATE TABLE IF NOT EXISTS tenants_v1 (id TEXT PRIMARY KEY, revision INTEGER NOT NULL, \
     entry TEXT, object TEXT NOT NULL, is_due INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE INDEX IF NOT EXISTS tenants_due_v1 ON tenants_v1 (revision) WHERE is_due = 1",
    "CREATE TABLE IF NOT EXISTS tenants_sum_v1 (one INTEGER PRIMARY KEY CHECK (one = 1), \
     revision INTEGER NOT NULL, entries INTEGER NOT NULL)",
];

/// The one row of a tenant's own object.
const CREATE_KEPT: &str = "CREATE TABLE IF NOT EXISTS entry_v1 (one INTEGER PRIMARY KEY \
     CHECK (one = 1), revision INTEGER NOT NULL, entry TEXT)";

/// The object behind `Tenants` of `entry.mjs`. No method is asynchronous, and none panics.
#[wasm_bindgen]
pub struct Tenants {
    storage: DurableObjectStorage,
    has_tables: Cell<bool>,
    /// Something was written since it was last asked.
    has_written: Cell<bool>,
}

/// Objects of this class as `env` binds them, where the settings place them; the reason as a text
/// when there are none.
#[wasm_bindgen(js_name = tenantObjects)]
pub fn tenant_objects(env: &Env) -> JsValue {
    let placement =
        Settings::read(|name| js::text_binding(env, name)).map(|settings| settings.placement);
    let bound = namespaces::objects(env, placement.unwrap_or_default(), TENANTS);
    bound.ok().flatten().unwrap_or_else(|| JsValue::from_str("TENANTS is not bound"))
}

#[wasm_bindgen]
impl Tenants {
    /// The object over its `ctx.storage`; nothing is read yet.
    #[wasm_bindgen(constructor)]
    pub fn new(storage: DurableObjectStorage) -> Self {
        Self { storage, has_tables: Cell::new(false), has_written: Cell::new(false) }
    }

    /// Carries out a request of `tenant_wire`. What is to be handed on afterwards is
    /// [`Tenants::due`].
    ///
    /// # Errors
    /// It is no request, or storage fails; nothing was changed then.
    pub fn call(&self, request: &[u8]) -> Result<Vec<u8>, JsValue> {
        match Request::read(request) {
            Some(Request::Get) => self.kept().map(|kept| kept.to_bytes()),
            Some(Request::Take(kept)) => self.take(&kept).map(|()| Vec::new()),
            Some(Request::Of { call, object }) => {
                Ok(StoreReply::Tenants(self.answer(call, object)?).to_json().into_bytes())
            }
            None => Err(js::error("this is no request of a tenant's object")),
        }
    }

    /// True once after a call that wrote something which is to be handed on.
    #[must_use]
    pub fn has_written(&self) -> bool {
        self.has_written.replace(false)
    }

    /// What is to be handed on to a tenant's object, as a [`Delivery`], what was written last
    /// first; empty for nothing.
    ///
    /// # Errors
    /// Storage fails.
    pub fn due(&self) -> Result<Vec<u8>, JsValue> {
        self.make_tables()?;
        let query = "SELECT id, revision, entry, object FROM tenants_v1 \
                     WHERE is_due = 1 ORDER BY revision DESC LIMIT 1";
        let Some(row) = run(&self.storage, query, &[])?.next()? else { return Ok(Vec::new()) };
        let kept = Kept { revision: row.number(1).unwrap_or_default(), entry: row.text(2) };
        let object = row.text(3).unwrap_or_default();
        Ok(Delivery { object: &object, kept: &kept }.to_bytes())
    }

    /// The tenant's object has taken `delivery`.
    ///
    /// # Errors
    /// Storage fails; it is handed on once more then.
    pub fn delivered(&self, delivery: &[u8]) -> Result<(), JsValue> {
        let Some(revision) = Delivery::revision(delivery) else { return Ok(()) };
        let revision = [Value::Number(revision)];
        let gone = "DELETE FROM tenants_v1 WHERE is_due = 1 AND revision = ? AND entry IS NULL";
        run(&self.storage, gone, &revision)?;
        let there = "UPDATE tenants_v1 SET is_due = 0 WHERE is_due = 1 AND revision = ?";
        run(&self.storage, there, &revision).map(drop)
    }
}

impl Tenants {
    /// The entry of this tenant; nothing, of revision 0, when there never was one.
    fn kept(&self) -> Result<Kept, JsValue> {
        // No table is made by whoever only asks: of tenants that nobody knows there may be any
        // number.
        let known = "SELECT 1 FROM sqlite_master WHERE name = 'entry_v1'";
        if !self.has_tables.get() && run(&self.storage, known, &[])?.next()?.is_none() {
            return Ok(Kept::default());
        }
        self.has_tables.set(true);
        let row = run(&self.storage, "SELECT revision, entry FROM entry_v1", &[])?.next()?;
        Ok(row.map_or_else(Kept::default, |row| Kept {
            revision: row.number(0).unwrap_or_default(),
            entry: row.text(1),
        }))
    }

    /// Keeps what the list hands on, unless it is older than what is there.
    fn take(&self, kept: &Kept) -> Result<(), JsValue> {
        if self.kept()?.revision >= kept.revision {
            return Ok(());
        }
        run(&self.storage, CREATE_KEPT, &[])?;
        self.has_tables.set(true);
        let values = [Value::Number(kept.revision), Value::of(kept.entry.as_deref())];
        let write = "INSERT INTO entry_v1 VALUES (1, ?, ?) ON CONFLICT (one) DO UPDATE \
                     SET revision = excluded.revision, entry = excluded.entry";
        run(&self.storage, write, &values).map(drop)
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

    fn answer(&self, call: TenantCall, object: &str) -> Result<TenantReply, JsValue> {
        self.make_tables()?;
        match call {
            TenantCall::Get { id } => self.listed(&id).map(|(row, _)| TenantReply::Entry(row)),
            TenantCall::Put { id, entry, expect } => self.put(id, Some(entry), &expect, object),
            TenantCall::Delete { id, expect } => self.put(id, None, &expect, object),
            TenantCall::List { after, limit } => self.list(after.as_deref(), limit.min(MAX_PAGE)),
        }
    }

    /// The entry of `id` in the list, and whether it has a row there.
    fn listed(&self, id: &str) -> Result<(Option<StoredTenant>, bool), JsValue> {
        let query = "SELECT id, revision, entry FROM tenants_v1 WHERE id = ?";
        let row = run(&self.storage, query, &[Value::Text(id)])?.next()?;
        Ok((row.as_ref().and_then(stored), row.is_some()))
    }

    /// Writes `entry`, or removes what is there when it is none.
    fn put(
        &self,
        id: String,
        entry: Option<String>,
        expect: &Expect,
        object: &str,
    ) -> Result<TenantReply, JsValue> {
        let (found, _) = self.listed(&id)?;
        if !is_expected(found.as_ref(), expect) {
            return Ok(TenantReply::Unexpected(found));
        }
        let sum =
            run(&self.storage, "SELECT revision, entries FROM tenants_sum_v1", &[])?.next()?;
        let of_sum = |column| sum.as_ref().and_then(|row| row.number(column)).unwrap_or_default();
        let (is_new, entries) = (found.is_none(), of_sum(1));
        let entries = match (&entry, is_new) {
            (Some(_), true) if entries >= MAX_ENTRIES => return Ok(TenantReply::Full),
            (Some(_), true) => entries.saturating_add(1),
            (None, false) => entries.saturating_sub(1),
            _ => entries,
        };
        let revision = of_sum(0).saturating_add(1);
        // One synchronous step: the platform writes all of it, or nothing.
        let values = [Value::Number(revision), Value::Number(entries)];
        let write = "INSERT INTO tenants_sum_v1 VALUES (1, ?, ?) ON CONFLICT (one) DO UPDATE \
                     SET revision = excluded.revision, entries = excluded.entries";
        run(&self.storage, write, &values)?;
        let of_entry = Value::of(entry.as_deref());
        let values = [Value::Text(&id), Value::Number(revision), of_entry, Value::Text(object)];
        let write = "INSERT INTO tenants_v1 VALUES (?, ?, ?, ?, 1) ON CONFLICT (id) DO UPDATE SET \
                     revision = excluded.revision, entry = excluded.entry, object = excluded.object, is_due = 1";
        run(&self.storage, write, &values)?;
        self.set_alarm()?;
        self.has_written.set(true);
        Ok(match entry {
            Some(_) => TenantReply::Written { revision, is_new },
            None => TenantReply::Removed,
        })
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

    /// Whatever happens to whoever writes, it is handed on.
    fn set_alarm(&self) -> Result<(), JsValue> {
        let at = js::now().since(tollgate_core::Timestamp::ZERO).as_millis_ceil();
        let date = Date::new(&JsValue::from_f64(js::number(at.saturating_add(RETRY_MS))));
        // Not awaited: the output gate holds the reply until this is durable, too.
        self.storage.set_alarm(date, Object::new()).map(drop)
    }
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
