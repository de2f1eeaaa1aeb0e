//! How exact each algorithm is: measured on traffic, and searched for by an adversary.
//!
//! Invariant: pure and deterministic. The same code gives the same tables on every machine, so what
//! `docs/accuracy.md` says is compared with what the code gives today. Nothing here decides: every
//! decision is the core's, and what it is compared with is a history that is counted anew.

pub mod document;
pub mod synthetic;
pub mod log;
pub mod bounds;
pub mod adversary;
pub mod measure;
pub mod subject;
pub mod trace;
