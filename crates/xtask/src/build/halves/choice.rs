//! Which functions go into the second half.
//!
//! Invariant: a function that anything of the first half may need lies in the first half, unless a
//! name of the list says otherwise; what nobody but the second half calls lies there. A name that
//! no function has is a mistake: the compiler has made it a part of another function, and the half
//! that it stood for is in the first again.

use super::module::Whole;
use std::collections::BTreeSet;

/// What only operators' requests, and the objects behind them, ever call, and the compiler of
/// policies.
pub const OPERATORS: &[&str] = &[
    "tollgate_worker::operate::admin::answer",
    // Nodes of a fleet.
    "tollgate_worker::request::leasing::answer",
    "tollgate_worker::object::policy_object::",
    "tollgate_worker::object::metrics_object::",
    "policies_",
    "metrics_",
    // A policy that somebody writes, or that was deployed without being compiled; a tenant's entry.
    "Policy>::compile_node",
    "compilePolicy",
    "TenantEntry::read_for",
    // What only the objects behind them read and write.
    "StoreCall::from_json",
    "StoreReply::to_json",
    "StoreReply::from_json",
    "StoreCall::to_json",
    "entryObjects",
    "tenants_due",
    "tenants_rang",
    "tenants_delivered",
    // What serde says of a number where another value belongs. We take any value and say it.
    "JsonUnexpected",
    "<f64 as core",
];

/// What lies where.
pub struct Choice {
    /// Functions of the second half.
    pub second: BTreeSet<u32>,
}

impl Choice {
    pub fn make(whole: &Whole<'_>, seconds: &[&str]) -> Result<Self, String> {
        let named = |function: u32, name: &str| {
            let is_exported =
                |(exported, of): &(&str, u32)| *of == function && exported.contains(name);
            whole.name(function).contains(name) || whole.exports.iter().any(is_exported)
        };
        let mut cut = BTreeSet::new();
        for name in seconds {
            let mut found = whole.defined().filter(|function| named(*function, name)).peekable();
            if found.peek().is_none() {
                return Err(format!(
                    "no function is called {name:?}: was it made a part of another?"
                ));
            }
            cut.extend(found);
        }
        let mut first = BTreeSet::new();
        let exported = whole.exports.iter().map(|(_, function)| *function);
        let mut next: Vec<u32> = exported.chain(whole.places.iter().map(|(_, f)| *f)).collect();
        next.extend(whole.start);
        while let Some(function) = next.pop() {
            if !cut.contains(&function) && first.insert(function) {
                next.extend(whole.called_by(function));
            }
        }
        Ok(Self { second: whole.defined().filter(|function| !first.contains(function)).collect() })
    }
}
