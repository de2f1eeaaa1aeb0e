//! Changes to the quotas of a rule by its other fields. With several nodes, each has a part: limit
//! and burst are divided and rounded down. A rule that reserves holds units.
//!
//! Invariant: the parts of all nodes together are never more than the whole, and states follow one
//! another whatever their new lengths are.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use tollgate_core::{Limiter, Quota};

use crate::document::charging::Charging;
use crate::document::rule::RuleDoc;
use crate::document::scope::Scope;
use crate::json::quote::quoted_text;
use crate::policy::quota::CompiledQuota;
use crate::policy::rule::Rule;

/// The number of nodes that share a rule's limits.
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
    let holds = if quota.limiter.keeps_holds() { limiter.with_holds() } else { None };
    Ok(CompiledQuota { limiter: holds.unwrap_or(limiter), ..quota.clone() })
}

/// The part of each of `nodes` in `quotas`, one after the other. A problem is reported with the
/// index of its quota and the field to correct.
pub(super) fn parts_of(
    quotas: &[CompiledQuota],
    nodes: u32,
    problem: impl FnMut(usize, &'static str, String),
) -> Vec<CompiledQuota> {
    placed(quotas.iter().map(|quota| part_of(quota, nodes)), problem)
}

/// The quotas of a rule; where `holds` is set they hold units until the response, with longer
/// states. A leaky-queue cannot hold any, which is a problem.
pub(super) fn with_holds(
    quotas: Vec<CompiledQuota>,
    holds: Holds,
    problem: impl FnMut(usize, &'static str, String),
) -> Vec<CompiledQuota> {
    if holds == Holds::None {
        return quotas;
    }
    let each = quotas.into_iter().map(|quota| match quota.limiter.with_holds() {
        Some(limiter) => Ok(CompiledQuota { limiter, ..quota }),
        None => Err(("algorithm", NO_HOLDS.into())),
    });
    placed(each, problem)
}

/// Whether a rule holds units until the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holds {
    None,
    UntilResponse,
}

impl Holds {
    /// The value that a rule's `charge` implies.
    pub(super) const fn of(charging: Option<&Charging>) -> Self {
        match charging {
            Some(Charging::Response(charge)) if charge.reserves() => Self::UntilResponse,
            Some(Charging::Response(_) | Charging::Request) | None => Self::None,
        }
    }
}

const NO_HOLDS: &str = "\"leaky-queue\" cannot hold units until the response, because a request \
    goes on when its slot comes; use another algorithm, or leave \"reserve\" out";

/// These quotas with their states one after the other.
fn placed(
    quotas: impl Iterator<Item = Result<CompiledQuota, (&'static str, String)>>,
    mut problem: impl FnMut(usize, &'static str, String),
) -> Vec<CompiledQuota> {
    let mut placed = Vec::new();
    let mut offset = 0_usize;
    for (i, quota) in quotas.enumerate() {
        match quota {
            Ok(quota) => {
                let quota = CompiledQuota { offset, ..quota };
                offset = quota.end().unwrap_or(offset);
                placed.push(quota);
            }
            Err((field, words)) => problem(i, field, words),
        }
    }
    placed
}

impl Rule {
    /// The number of nodes that share its limits.
    pub(super) const fn nodes(&self) -> u32 {
        match self.scope {
            Scope::Share(nodes) => nodes,
            Scope::Local | Scope::Fleet => 1,
        }
    }
}
