//! What each of several nodes has of a quota: limit and burst divided, rounded down.
//!
//! Invariant: the parts of all nodes together are never more than the whole.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use tollgate_core::{Limiter, Quota};

use crate::document::rule::RuleDoc;
use crate::document::scope::Scope;
use crate::json::quote::quoted_text;
use crate::policy::quota::CompiledQuota;
use crate::policy::rule::Rule;

/// How many nodes share a rule's limits.
pub(super) fn nodes(doc: &RuleDoc) -> u32 {
    match doc.scope() {
        Scope::Share(nodes) => nodes,
        Scope::Local | Scope::Fleet => 1,
    }
}

/// The part of each of `nodes` in a quota.
fn part_of(quota: &CompiledQuota, nodes: u32) -> Result<CompiledQuota, (&'static str, String)> {
    if nodes == 1 {
        return Ok(quota.clone());
    }
    let (whole, algorithm) = (quota.limiter.quota(), quota.limiter.algorithm());
    let part = |units: u64| units.checked_div(u64::from(nodes)).unwrap_or(0);
    let too_small = |units| {
        let name = quoted_text(&quota.name);
        format!("{units} of {name}, divided by {nodes}, is below 1; use at least {nodes}")
    };
    if part(whole.limit()) == 0 {
        return Err(("limit", too_small(whole.limit())));
    }
    if part(whole.burst()) == 0 {
        return Err(("burst", too_small(whole.burst())));
    }
    let built = Quota::new(part(whole.limit()), whole.window()).and_then(|quota| {
        if whole.burst() == whole.limit() {
            Ok(quota)
        } else {
            quota.with_burst(part(whole.burst()))
        }
    });
    let built = built.map(|quota| if whole.is_strict() { quota.strict() } else { quota });
    let limiter = built.and_then(|quota| Limiter::new(algorithm, quota)).map_err(|error| {
        let part = part(whole.burst());
        ("burst", format!("of each of {nodes} nodes, {part}, is refused: {error}"))
    })?;
    Ok(CompiledQuota { limiter, ..quota.clone() })
}

/// The parts of each of `nodes` in `quotas`, one after the other; what is wrong with one is told
/// with its place among them, and the field that is to be mended.
pub(super) fn parts_of(
    quotas: &[CompiledQuota],
    nodes: u32,
    mut problem: impl FnMut(usize, &'static str, String),
) -> Vec<CompiledQuota> {
    let mut parts = Vec::new();
    let mut offset = 0_usize;
    for (i, quota) in quotas.iter().enumerate() {
        match part_of(quota, nodes) {
            Ok(part) => {
                let part = CompiledQuota { offset, ..part };
                offset = part.end().unwrap_or(offset);
                parts.push(part);
            }
            Err((field, words)) => problem(i, field, words),
        }
    }
    parts
}

impl Rule {
    /// How many nodes share its limits.
    pub(super) const fn nodes(&self) -> u32 {
        match self.scope {
            Scope::Share(nodes) => nodes,
            Scope::Local | Scope::Fleet => 1,
        }
    }
}
