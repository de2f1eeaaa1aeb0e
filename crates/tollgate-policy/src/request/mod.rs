//! One request as a policy sees it: its facts, whether conditions hold for it, and its keys.
//!
//! Invariant: nothing here loads state, decides or responds.

pub(crate) mod given_key;
pub(crate) mod lookup;
pub(crate) mod claims;
pub(crate) mod key;
pub(crate) mod captures;
pub(crate) mod conditions;
pub(crate) mod matching;
pub(crate) mod limit;
pub(crate) mod lazy;
