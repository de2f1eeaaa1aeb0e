//! The changes that operators made to keys, as the policy object stores them: one row each.
//!
//! Invariant: a row is one statement, numbers only grow, and the newest [`KEY_ROWS`] are kept. A
//! row contains only the hash of a key, never the key. A deployment that never changed a key has no
//! table and pays nothing for it.

use tollgate_service::{KEY_ROWS, KeyRow};
use wasm_bindgen::JsValue;
use worker::worker_sys::DurableObjectStorage;

use crate::object::sql::{Value, run};

const CREATE: &str =
    "CREATE TABLE IF NOT EXISTS keys_v1 (number INTEGER PRIMARY KEY, row TEXT NOT NULL)";

/// The number that SQLite assigns is the greatest one plus 1.
const INSERT: &str = "INSERT INTO keys_v1 (row) VALUES (?)";

const PRUNE: &str = "DELETE FROM keys_v1 WHERE number <= (SELECT MAX(number) FROM keys_v1) - ?";

const FIND: &str = "SELECT 1 FROM sqlite_master WHERE name = 'keys_v1'";

const READ: &str = "SELECT number, row FROM keys_v1 WHERE number < ? ORDER BY number DESC LIMIT ?";

/// Adds a row, and removes the oldest when there are too many.
pub(crate) fn note(storage: &DurableObjectStorage, row: &KeyRow) -> Result<(), JsValue> {
    run(storage, CREATE, &[])?;
    run(storage, INSERT, &[Value::Text(&row.to_json())])?;
    run(storage, PRUNE, &[Value::Number(KEY_ROWS)])?;
    Ok(())
}

/// The value of [`Current::relieved`](tollgate_service::Current) from the newest row; 0 where there
/// is none.
pub(crate) fn relief(storage: &DurableObjectStorage) -> Result<u64, JsValue> {
    if run(storage, FIND, &[])?.next()?.is_none() {
        return Ok(0);
    }
    let (rows, _) = read(storage, u64::MAX, 1)?;
    Ok(rows.first().map_or(0, |(number, row)| row.relief(*number)))
}

/// The rows before `before`, the newest first, at most `limit`; and whether there are more.
pub(crate) fn read(
    storage: &DurableObjectStorage,
    before: u64,
    limit: u64,
) -> Result<(Vec<(u64, KeyRow)>, bool), JsValue> {
    run(storage, CREATE, &[])?;
    let found =
        run(storage, READ, &[Value::Number(before), Value::Number(limit.saturating_add(1))])?;
    let mut rows = Vec::new();
    while let Some(row) = found.next()? {
        if u64::try_from(rows.len()).unwrap_or(u64::MAX) == limit {
            return Ok((rows, true));
        }
        // A row that a later version of this code wrote may not be readable: it is left out.
        if let Some(what) = row.text(1).and_then(|json| KeyRow::from_json(&json)) {
            rows.push((row.number(0).unwrap_or_default(), what));
        }
    }
    Ok((rows, false))
}
