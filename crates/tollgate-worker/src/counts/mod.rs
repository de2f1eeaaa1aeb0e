//! Calls to the objects that count: the order of several keys, waiting, denials from memory.
//!
//! Invariant: when one key denies, the charges of the others are refunded before the denial is
//! returned. Deliberately not here: the objects themselves (`object`).

pub(crate) mod charging;
pub(crate) mod denials;
pub(crate) mod lines;
pub(crate) mod object_name;
pub(crate) mod objects;
pub(crate) mod wait;
