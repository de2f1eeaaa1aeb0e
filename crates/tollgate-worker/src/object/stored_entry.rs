//! A tenant's entry as an object stores it: the tenant's own object, and the one that counts the
//! key that is the tenant alone.
//!
//! Invariant: revisions only grow, so an entry that arrives late changes nothing; for that the
//! revision of an entry that was removed stays. A read never creates the table: there may be any
//! number of unknown tenants. Deliberately absent: the meaning of an entry, and the code that
//! writes it.

use std::cell::{OnceCell, RefCell};

use wasm_bindgen::JsValue;
use worker::worker_sys::DurableObjectStorage;

use crate::object::sql::{Value, run};
use crate::object::tenant_wire::TenantRecord;

/// Its only row.
const CREATE: &str = "CREATE TABLE IF NOT EXISTS entry_v1 (one INTEGER PRIMARY KEY \
     CHECK (one = 1), revision INTEGER NOT NULL, entry TEXT)";
const FIND: &str = "SELECT 1 FROM sqlite_master WHERE name = 'entry_v1'";
const LOAD: &str = "SELECT revision, entry FROM entry_v1";
const WRITE: &str = "INSERT INTO entry_v1 VALUES (1, ?, ?) ON CONFLICT (one) DO UPDATE \
     SET revision = excluded.revision, entry = excluded.entry";

/// The entry that an object stores of its tenant; it is read once.
#[derive(Default)]
pub(crate) struct StoredEntry {
    memory: RefCell<OnceCell<TenantRecord>>,
}

impl StoredEntry {
    /// Calls `step` with the entry; it is empty, of revision 0, when there never was one.
    pub(crate) fn with<T>(
        &self,
        storage: &DurableObjectStorage,
        step: impl FnOnce(&TenantRecord) -> T,
    ) -> Result<T, JsValue> {
        let memory = self.memory.borrow();
        if let Some(kept) = memory.get() {
            return Ok(step(kept));
        }
        let kept = read(storage)?;
        Ok(step(memory.get_or_init(|| kept)))
    }

    /// Stores the entry that the list delivers, unless it is older than the stored one.
    pub(crate) fn take(
        &self,
        storage: &DurableObjectStorage,
        kept: &TenantRecord,
    ) -> Result<(), JsValue> {
        if self.with(storage, |known| known.revision)? >= kept.revision {
            return Ok(());
        }
        run(storage, CREATE, &[])?;
        let values = [Value::Number(kept.revision), Value::of(kept.entry.as_deref())];
        run(storage, WRITE, &values)?;
        self.memory.replace(OnceCell::from(kept.clone()));
        Ok(())
    }
}

fn read(storage: &DurableObjectStorage) -> Result<TenantRecord, JsValue> {
    if run(storage, FIND, &[])?.next()?.is_none() {
        return Ok(TenantRecord::default());
    }
    let row = run(storage, LOAD, &[])?.next()?;
    Ok(row.map_or_else(TenantRecord::default, |row| TenantRecord {
        revision: row.number(0).unwrap_or_default(),
        entry: row.text(1),
    }))
}
