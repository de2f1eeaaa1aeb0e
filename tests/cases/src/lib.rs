//! Seeded random policies and traces, and the responses that every surface must give.
//!
//! A case is a policy document and a trace of requests with their times. The [`Reference`] is the
//! policy layer over a map. A surface gets the same requests at the same times, and everything in
//! its responses must be the same: status, fields with their bytes, body, waits and marks
//! ([`Seen`]). `golden.txt` keeps the reference's responses. So a target that runs the reference
//! itself (as wasm, optimised) is compared with the native one, and a change of a response shows
//! its place and its content.
//!
//! Invariant: pure and deterministic. The same number gives the same case on every target, for
//! ever; no clock, no I/O, no order that depends on a hash.
//!
//! One request at a time: it is decided, waits included, before the next one comes at its own time,
//! which may be earlier than the end of a wait. So a queue fills up. Where rules limit requests in
//! flight or read the bodies of responses, some run on and end after a later one, in any order, or
//! while a later one waits for a place. So each waits alone: several in one line, which is the
//! surface's own, are in `crates/tollgate-service/tests/drive_waiting.rs`.
//!
//! Left out, because surfaces see or do it differently:
//! - routes, countries, systems and claims: each surface has its own source for them;
//! - header values that are not UTF-8: a Worker's platform replaces invalid bytes with U+FFFD;
//! - `cookie` and `x-forwarded-for` as plain headers in conditions and keys: Envoy joins their
//!   lines in its own way;
//! - requests without a peer (a Unix socket), with a target that is not a path (`*`, a whole URL),
//!   and with one that workerd rejects (`"`, `<`, `>`, `^`, `|` and `` ` `` unescaped);
//! - backslashes, and dots next to characters that servers resolve differently, except for escaped
//!   slashes: a Worker's platform has already made one path of them;
//! - clients that leave before the response: Envoy then never learns its status, the Worker does;
//! - responses that break off, and requests in flight that are confirmed or expire: each surface
//!   learns of an end, and of the time until it, in its own way;
//! - failures of a store, the limit of waiting requests and of a table: surfaces fail differently;
//! - times between milliseconds, which a Worker's clock does not have; [`limits`] has them;
//! - a clock that goes back where one request counts in several places: the Worker charges and
//!   refunds where Envoy only looks, and a refund after the clock went back may differ by a unit.

mod bodies;
mod case;
pub mod coverage;
pub mod golden;
mod in_flight;
pub mod limits;
mod mixed;
mod packed;
mod policies;
mod reference;
mod regexes;
mod requests;
mod seen;
mod transcript;

pub use bodies::ResponseBody;
pub use case::{CASES, Case, EVENTS, Event, cases, cases_of_servers, cases_on, numbers};
pub use in_flight::LASTS_LONG;
pub use policies::ACTUAL;
pub use reference::{AppliedRule, EndedRequest, Expected, HASH_KEY, Reference};
pub use requests::Request;
pub use seen::{Digest, Seen, hidden_keys};
pub use transcript::transcript;
