//! The versions of the policy, as the policy object stores them: one row each.
//!
//! Invariant: a version is written by one statement, and numbers only grow. The number of stored
//! versions is bounded: the newest versions keep their texts, ten times as many keep their rows.
//! The last change, which defines what is in force, is kept whole whatever comes after it.
//! Deliberately absent: which policy is in force for an isolate; that is in `policy_object`.

use tollgate_policy::{Policy, Surface};
use tollgate_service::{Current, HistoryRow, Row, Source};
use wasm_bindgen::JsValue;
use worker::worker_sys::DurableObjectStorage;

use crate::object::key_history;
use crate::object::sql::{self, Value, run};

/// `fingerprint` is that of a deployed file, in hexadecimal: a number of SQLite has a sign.
/// `is_change` is 1 for a change at run time. The text comes last, so that reading the columns
/// before it does not read it.
const CREATE: &str = "CREATE TABLE IF NOT EXISTS versions_v1 (number INTEGER PRIMARY KEY, \
    before INTEGER NOT NULL, is_change INTEGER NOT NULL, fingerprint TEXT, row TEXT NOT NULL, \
    bytes INTEGER NOT NULL, text TEXT)";

const INSERT: &str = "INSERT INTO versions_v1 (number, before, is_change, fingerprint, row, bytes, text) \
    VALUES (?, ?, ?, ?, ?, ?, ?)";

const LAST_CHANGE: &str = "SELECT number, fingerprint FROM versions_v1 WHERE is_change = 1 \
    ORDER BY number DESC LIMIT 1";

const DEPLOYED_SINCE: &str = "SELECT number, fingerprint FROM versions_v1 WHERE number >= ? \
    AND fingerprint IS NOT NULL ORDER BY number";

/// The policy in force as it was compiled: one row. It is compiled from the text again when the row
/// is missing, or was written by another version of this code.
const CREATE_COMPILED: &str = "CREATE TABLE IF NOT EXISTS compiled_v1 \
    (one INTEGER PRIMARY KEY CHECK (one = 1), number INTEGER NOT NULL, bytes BLOB NOT NULL)";

const KEEP_COMPILED: &str = "INSERT INTO compiled_v1 VALUES (1, ?, ?) ON CONFLICT (one) DO UPDATE \
    SET number = excluded.number, bytes = excluded.bytes";

/// A row of the platform's SQLite holds 2 MB; a longer policy is compiled by the isolate that
/// enforces it.
const MOST_COMPILED: usize = 1_800_000;

/// Rows per text that is kept.
const ROWS_PER_TEXT: u64 = 10;

/// The data of the table that a check needs.
#[derive(Default)]
pub(crate) struct VersionSummary {
    /// The highest number that was ever given; 0 for none.
    pub(crate) newest: u64,
    pub(crate) change: Option<LastChange>,
    /// See [`Current::relieved`].
    pub(crate) relieved: u64,
    /// The deployed files that isolates asked with since then, by fingerprint, each with its
    /// number.
    deployed: Vec<(u64, u64)>,
}

/// The last change at run time.
#[derive(Clone, Copy)]
pub(crate) struct LastChange {
    pub(crate) number: u64,
    pub(crate) source: Source,
}

/// A version to be written.
pub(crate) struct NewVersion<'a> {
    pub(crate) is_change: bool,
    /// The fingerprint of a deployed file; none for a text that an operator wrote.
    pub(crate) fingerprint: Option<u64>,
    pub(crate) row: &'a Row,
    pub(crate) text: &'a str,
}

impl VersionSummary {
    /// The number of the deployed file with this fingerprint, if an isolate asked with it since the
    /// last change.
    pub(crate) fn deployed(&self, fingerprint: u64) -> Option<u64> {
        let of = self.deployed.iter().rev().find(|(known, _)| *known == fingerprint);
        of.map(|(_, number)| *number)
    }

    /// Reads the stored data, and makes the table if there is none.
    pub(crate) fn read(storage: &DurableObjectStorage) -> Result<Self, JsValue> {
        run(storage, CREATE, &[])?;
        run(storage, CREATE_COMPILED, &[])?;
        let mut known = Self::default();
        if let Some(row) = run(storage, "SELECT MAX(number) FROM versions_v1", &[])?.next()? {
            known.newest = row.number(0).unwrap_or_default();
        }
        if let Some(row) = run(storage, LAST_CHANGE, &[])?.next()? {
            let number = row.number(0).unwrap_or_default();
            known.change = Some(LastChange { number, source: source(&row, 1) });
        }
        known.relieved = key_history::relief(storage)?;
        let since = known.change.map_or(0, |change| change.number);
        let rows = run(storage, DEPLOYED_SINCE, &[Value::Number(since)])?;
        while let Some(row) = rows.next()? {
            let digits = row.text(1).unwrap_or_default();
            if let (Some(number), Ok(print)) = (row.number(0), u64::from_str_radix(&digits, 16)) {
                known.deployed.push((print, number));
            }
        }
        Ok(known)
    }

    /// Writes `new` with `number`, which is above all others.
    pub(crate) fn write(
        &mut self,
        storage: &DurableObjectStorage,
        number: u64,
        new: &NewVersion<'_>,
    ) -> Result<(), JsValue> {
        let fingerprint = new.fingerprint.map(|print| format!("{print:016x}"));
        let values = [
            Value::Number(number),
            Value::Number(self.newest),
            Value::Number(new.is_change.into()),
            fingerprint.as_deref().map_or(Value::Null, Value::Text),
            Value::Text(&new.row.to_json()),
            Value::Number(u64::try_from(new.text.len()).unwrap_or(u64::MAX)),
            Value::Text(new.text),
        ];
        run(storage, INSERT, &values)?;
        self.newest = number;
        if new.is_change {
            let source = if new.fingerprint.is_some() { Source::Deployed } else { Source::Written };
            self.change = Some(LastChange { number, source });
            self.deployed.clear();
        }
        self.deployed.extend(new.fingerprint.map(|print| (print, number)));
        Ok(())
    }

    /// Removes the rows beyond the bound; `kept` versions keep their texts.
    pub(crate) fn prune(
        &mut self,
        storage: &DurableObjectStorage,
        kept: u64,
    ) -> Result<(), JsValue> {
        let in_force = Value::Number(self.change.map_or(0, |change| change.number));
        let up_to = |count: u64| Value::Number(self.newest.saturating_sub(count));
        let rows = up_to(kept.saturating_mul(ROWS_PER_TEXT));
        let texts = "UPDATE versions_v1 SET text = NULL WHERE number <= ? AND number <> ? AND text IS NOT NULL";
        run(storage, texts, &[up_to(kept), in_force])?;
        run(
            storage,
            "DELETE FROM versions_v1 WHERE number <= ? AND number <> ?",
            &[rows, in_force],
        )?;
        let oldest = self.newest.saturating_sub(kept.saturating_mul(ROWS_PER_TEXT));
        self.deployed.retain(|(_, number)| *number > oldest);
        Ok(())
    }
}

/// The text of a version, if it is still kept.
pub(crate) fn text(storage: &DurableObjectStorage, number: u64) -> Result<Option<String>, JsValue> {
    let row =
        run(storage, "SELECT text FROM versions_v1 WHERE number = ?", &[Value::Number(number)])?;
    Ok(row.next()?.and_then(|row| row.text(0)))
}

/// The version `number` compiled for the Worker, which is kept from then on; `None` for one that
/// this code cannot compile, or whose text is gone.
pub(crate) fn compiled(
    storage: &DurableObjectStorage,
    number: u64,
) -> Result<Option<Vec<u8>>, JsValue> {
    let found =
        run(storage, "SELECT bytes FROM compiled_v1 WHERE number = ?", &[Value::Number(number)])?;
    if let Some(row) = found.next()?
        && let Some(bytes) = row.bytes(0)
        // Every byte of it: a damaged policy would be sent again and again, and no isolate could
        // read it.
        && Policy::read_compiled(&bytes, Surface::Worker).is_ok()
    {
        return Ok(Some(bytes));
    }
    let Some(text) = text(storage, number)? else { return Ok(None) };
    let Ok(policy) = tollgate_language::compile(&text, Surface::Worker) else { return Ok(None) };
    let mut bytes = Vec::new();
    policy.write_compiled(&mut bytes);
    if bytes.len() > MOST_COMPILED {
        return Ok(None);
    }
    run(storage, KEEP_COMPILED, &[Value::Number(number), Value::Bytes(&bytes)])?;
    Ok(Some(bytes))
}

/// A version with its text, if that is still kept.
pub(crate) fn version(
    storage: &DurableObjectStorage,
    number: u64,
) -> Result<Option<Current>, JsValue> {
    let query = "SELECT text, fingerprint, \
        (SELECT MAX(number) FROM versions_v1 WHERE is_change = 1 AND number <= ?1) \
        FROM versions_v1 WHERE number = ?1";
    let Some(row) = run(storage, query, &[Value::Number(number)])?.next()? else { return Ok(None) };
    let text = row.text(0);
    let generation = row.number(2).unwrap_or(1);
    Ok(text.map(|text| Current {
        version: number,
        generation,
        source: source(&row, 1),
        relieved: 0, // only a request for the policy in force needs it
        text: Some(text),
    }))
}

/// The versions before `before`, the newest first, at most `limit`; and whether there are more.
pub(crate) fn history(
    storage: &DurableObjectStorage,
    before: u64,
    limit: u64,
) -> Result<(Vec<HistoryRow>, bool), JsValue> {
    let query = "SELECT number, fingerprint, before, bytes, text IS NOT NULL, row FROM versions_v1 \
        WHERE number < ? ORDER BY number DESC LIMIT ?";
    let found =
        run(storage, query, &[Value::Number(before), Value::Number(limit.saturating_add(1))])?;
    let mut rows = Vec::new();
    while let Some(row) = found.next()? {
        if u64::try_from(rows.len()).unwrap_or(u64::MAX) == limit {
            return Ok((rows, true));
        }
        // A row that a later version of this code wrote may not be readable: it is left out.
        let Some(what) = row.text(5).and_then(|json| Row::from_json(&json)) else { continue };
        rows.push(HistoryRow {
            version: row.number(0).unwrap_or_default(),
            before: row.number(2).unwrap_or_default(),
            row: what,
            source: source(&row, 1),
            bytes: row.number(3).unwrap_or_default(),
            is_kept: row.number(4) == Some(1),
        });
    }
    Ok((rows, false))
}

/// Only a deployed file has a fingerprint.
fn source(row: &sql::Row, column: u32) -> Source {
    if row.text(column).is_some() { Source::Deployed } else { Source::Written }
}
