//! Asking the objects that count: the order of several keys, waiting, denials from memory.
//!
//! Invariant: when one key denies, what the others were charged is refunded before the denial is
//! answered. Deliberately not here: the objects themselves (`object`).

pub(crate) mod charging;
pub(crate) mod denials;
pub(crate) mod lines;
pub(crate) mod object_name;
pub(crate) mod objects;
pub(crate) mod wait;
