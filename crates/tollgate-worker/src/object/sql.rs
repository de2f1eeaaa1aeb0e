//! The SQLite of an object: statements with values, and the rows that they find.
//!
//! Invariant: a failure of storage is an error for the caller, never a panic, and a column with a
//! value of another type is absent. Statements are ours; data from others is only ever a value.

use wasm_bindgen::{JsCast, JsValue};
use worker::js_sys::{Array, ArrayBuffer, Iterator, Uint8Array};
use worker::worker_sys::DurableObjectStorage;

use crate::runtime::js;

/// A value in a statement.
#[derive(Clone, Copy)]
pub(crate) enum Value<'a> {
    Number(u64),
    Text(&'a str),
    Bytes(&'a [u8]),
    Null,
}

/// The rows that a statement finds, one after the other.
pub(crate) struct Rows(Iterator);

/// One row.
pub(crate) struct Row(Array);

/// Runs `statement` with `values` in place of its question marks.
pub(crate) fn run(
    storage: &DurableObjectStorage,
    statement: &str,
    values: &[Value<'_>],
) -> Result<Rows, JsValue> {
    let values: Array = values.iter().map(|value| value.to_js()).collect();
    storage.sql().exec(statement, values).map(|cursor| Rows(cursor.raw()))
}

impl<'a> Value<'a> {
    /// A text, or NULL.
    pub(crate) fn of(text: Option<&'a str>) -> Self {
        text.map_or(Self::Null, Value::Text)
    }
}

impl Value<'_> {
    fn to_js(self) -> JsValue {
        match self {
            Self::Number(number) => JsValue::from_f64(js::number(number)),
            Self::Text(text) => JsValue::from_str(text),
            Self::Bytes(bytes) => Uint8Array::from(bytes).into(),
            Self::Null => JsValue::NULL,
        }
    }
}

impl Rows {
    /// The next row, if there is one.
    pub(crate) fn next(&self) -> Result<Option<Row>, JsValue> {
        let next = self.0.next()?;
        Ok((!next.done()).then(|| Row(next.value().unchecked_into())))
    }
}

impl Row {
    /// The whole number, not below 0, in column `i`.
    pub(crate) fn number(&self, i: u32) -> Option<u64> {
        self.0.get(i).as_f64().map(js::whole)
    }

    /// The text in column `i`.
    pub(crate) fn text(&self, i: u32) -> Option<String> {
        self.0.get(i).as_string()
    }

    /// The bytes in column `i`.
    pub(crate) fn bytes(&self, i: u32) -> Option<Vec<u8>> {
        let buffer = self.0.get(i).dyn_into::<ArrayBuffer>().ok()?;
        Some(Uint8Array::new(&buffer).to_vec())
    }
}
