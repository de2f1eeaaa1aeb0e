//! The Worker's twins: Rust built in the same way, with nothing to decide.
//!
//! Invariant: each does the least that its counterpart could do. `noop` reads the request and
//! responds. `count` sends one RPC to an object that counts in memory. `upsert` sends one to an
//! object that counts by an upsert of one row, which the platform makes durable before the
//! response. The response is as long as one of the Worker's. Only `cargo xtask bench worker` runs
//! this; it is not shipped.

use std::cell::Cell;

use wasm_bindgen::prelude::*;
use worker::js_sys::futures::JsFuture;
use worker::js_sys::{Array, Promise, Uint8Array};
use worker::web_sys::{self, Headers, ResponseInit};
use worker::worker_sys::DurableObjectStorage;
use worker::{Env, event};

/// Has the length and the content of a response of the Worker.
const ANSWER: &str = r#"{"decision":"allow","rules":[],"violated":[],"retry_after_ms":null,"headers":{"ratelimit-policy":"\"bench\";q=1000000;w=1","ratelimit":"\"bench\";r=999999;t=1"}}"#;

/// An object name as long as the Worker's.
const NAME: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

/// About as long as a request of the Worker to an object.
const REQUEST: [u8; 96] = [7; 96];

const CREATE: &str =
    "CREATE TABLE IF NOT EXISTS counts (id INTEGER PRIMARY KEY, row BLOB NOT NULL)";
const SAVE: &str =
    "INSERT INTO counts (id, row) VALUES (0, ?) ON CONFLICT (id) DO UPDATE SET row = excluded.row";

#[wasm_bindgen(module = "/src/host.mjs")]
extern "C" {
    #[wasm_bindgen(js_name = readBody)]
    fn read_body(request: &web_sys::Request) -> Promise;

    /// `count` or `upsert` of the object `name`.
    fn ask(env: &JsValue, what: &str, name: &str, request: Uint8Array) -> Promise;
}

/// Handles one request according to its path: `/noop`, `/count` or `/upsert`.
#[event(fetch)]
async fn fetch(
    request: web_sys::Request,
    env: Env,
    _context: worker::Context,
) -> worker::Result<web_sys::Response> {
    JsFuture::from(read_body(&request)).await?;
    let url = request.url();
    if let Some(what) = ["count", "upsert"].into_iter().find(|what| url.ends_with(what)) {
        JsFuture::from(ask(env.as_ref(), what, NAME, Uint8Array::from(&REQUEST[..]))).await?;
    }
    let headers = Headers::new()?;
    headers.set("content-type", "application/json")?;
    let init = ResponseInit::new();
    init.set_headers(&headers);
    Ok(web_sys::Response::new_with_opt_str_and_init(Some(ANSWER), &init)?)
}

/// The object behind `Limiter` of `entry.mjs`.
#[wasm_bindgen]
pub struct Limiter {
    storage: DurableObjectStorage,
    counted: Cell<u64>,
    has_table: Cell<bool>,
}

#[wasm_bindgen]
impl Limiter {
    /// The object over its `ctx.storage`.
    #[wasm_bindgen(constructor)]
    pub fn new(storage: DurableObjectStorage) -> Self {
        Self { storage, counted: Cell::default(), has_table: Cell::default() }
    }

    /// Counts one request, in memory.
    pub fn count(&self, request: &[u8]) -> Vec<u8> {
        self.counted.set(self.counted.get().wrapping_add(1));
        let mut reply = request.to_vec();
        reply.extend(self.counted.get().to_le_bytes());
        reply
    }

    /// The same, and writes the count of the response to storage.
    ///
    /// # Errors
    /// Storage fails.
    pub fn upsert(&self, request: &[u8]) -> Result<Vec<u8>, JsValue> {
        let reply = self.count(request);
        if !self.has_table.replace(true) {
            self.storage.sql().exec(CREATE, Array::new())?;
        }
        self.storage.sql().exec(SAVE, Array::of1(&Uint8Array::from(reply.as_slice())))?;
        Ok(reply)
    }
}
