//! Reads access logs: their formats, their order and their time.
//!
//! Invariant: no I/O. Bytes come in pieces, records go out, and memory is bounded whatever a line
//! holds. A line that cannot be read is counted and shown, never fatal.
#![forbid(unsafe_code)]
