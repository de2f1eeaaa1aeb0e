//! A policy and its decisions in words: for people, not for a surface.
//!
//! Invariant: nothing here decides. The same code as in `plan` evaluates the conditions, one at a
//! time, and decisions are read from an outcome. Keys come out hashed. The values of conditions
//! come out as in the document, so the output is for people who may read the document.

mod backing;
mod describe;
mod dynamic_module;
mod filter_module;
mod keys;
mod reads;
mod rules;
mod trusted;
pub mod words;

pub use describe::{DenyRuleInWords, RuleInWords, TierInWords};
pub use filter_module::{Ability, FILTER_MODULES, FilterModule, Requirement};
pub use keys::{KeyPartInWords, KeyValue};
pub use reads::{Read, Reader};
pub use rules::{Applicability, Explain, RuleVerdict};
