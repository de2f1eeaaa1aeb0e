//! How exact each algorithm is: measured on traffic, and searched for by an adversary.
//!
//! Invariant: pure and deterministic. The same code gives the same tables on every machine, so
//! `docs/accuracy.md` is compared with the present output. Nothing here decides: the core makes
//! every decision, and it is compared with a history that is counted again.

pub mod document;
pub mod synthetic;
pub mod log;
pub mod bounds;
pub mod adversary;
pub mod measure;
pub mod subject;
pub mod trace;
