//! One quota of a policy, and the changes to it by the other fields of its rule. With several
//! nodes, each has a part: limit and burst are divided and rounded down. A rule that reserves holds
//! units.
//!
//! Invariant: the parts of all nodes together are never more than the whole.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use tollgate_core::{Limiter, Penalty, Quota};

use crate::spec::charging::Charging;
use crate::spec::limit_from::LimitFrom;
use crate::spec::quote::quoted_text;
use crate::spec::scope::Scope;

/// One quota: its name, %x20-7E and at most 64 characters, and the limiter that decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaSpec {
    /// The name that is reported to clients.
    pub name: String,
    /// The limiter; where requests bring their limits with them, that of the highest one.
    pub limiter: Limiter,
    /// Where a request has its limit, if it brings one with it.
    pub limit_from: Option<LimitFrom>,
}

/// A problem of one of several quotas: its index, the field to correct, and the message.
pub type QuotaProblem = (usize, &'static str, String);

impl QuotaSpec {
    /// The identity of its stored state: its name and every parameter, written in full so that
    /// renaming a field in the core loses no state.
    #[must_use]
    pub fn identity(&self) -> String {
        let quota = self.limiter.quota();
        let algorithm = self.limiter.algorithm();
        // All that came later: without it the text is unchanged.
        let weighted = if algorithm.is_weighted() { " weighted" } else { "" };
        let holds = if self.limiter.keeps_holds() { " holds" } else { "" };
        let calendar = self.limiter.calendar().map_or_else(String::new, |calendar| {
            let [_, day, ..] = calendar.to_bytes();
            format!(" {} {day} {}", calendar.unit().name(), calendar.utc_offset())
        });
        let steps = |penalty: &Penalty| {
            let steps = penalty.steps().map(|step| format!(" {}", step.as_nanos()));
            format!(" penalty{}", steps.collect::<String>())
        };
        let penalty = self.limiter.penalty().map_or_else(String::new, steps);
        let in_flight = if self.limiter.max_age().is_some() { " in flight" } else { "" };
        let (algorithm, parts) = (algorithm.name(), algorithm.buckets().unwrap_or(0));
        format!(
            "{}:{} {algorithm} {parts} {} {} {} {}{weighted}{holds}{calendar}{penalty}{in_flight}\n",
            self.name.len(),
            self.name,
            quota.limit(),
            quota.window().as_nanos(),
            quota.burst(),
            quota.is_strict()
        )
    }

    /// The part of each of `nodes` in it.
    fn part_of(&self, nodes: u32) -> Result<Self, (&'static str, String)> {
        if nodes == 1 || self.limiter.is_closed() {
            return Ok(self.clone());
        }
        let (whole, algorithm) = (self.limiter.quota(), self.limiter.algorithm());
        let part = |units: u64| units.checked_div(u64::from(nodes)).unwrap_or(0);
        let too_small = |units| {
            let name = quoted_text(&self.name);
            format!("{units} of {name}, divided by {nodes}, is below 1; use at least {nodes}")
        };
        if part(whole.limit()) == 0 {
            return Err(("limit", too_small(whole.limit())));
        }
        if part(whole.burst()) == 0 {
            return Err(("burst", too_small(whole.burst())));
        }
        if let Some(max_age) = self.limiter.max_age() {
            let limiter = Limiter::new_concurrency(part(whole.limit()), max_age);
            let limiter = limiter.map_err(|error| ("limit", format!("{error}")))?;
            return Ok(Self { limiter, ..self.clone() });
        }
        if let Some(calendar) = self.limiter.calendar() {
            let limiter = Limiter::new_calendar_window(part(whole.limit()), *calendar);
            let limiter = limiter.map_err(|error| ("limit", format!("{error}")))?;
            return Ok(self.with_parts_of(limiter));
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
            ("burst", format!("of each of {nodes} nodes, {part}, is not valid: {error}"))
        })?;
        Ok(self.with_parts_of(limiter))
    }

    /// The same quota by `limiter`, with the holds and the penalty that it has.
    fn with_parts_of(&self, limiter: Limiter) -> Self {
        let holds = if self.limiter.keeps_holds() { limiter.with_holds() } else { None };
        let limiter = holds.unwrap_or(limiter);
        let penalty = self.limiter.penalty().and_then(|penalty| limiter.with_penalty(*penalty));
        Self { limiter: penalty.unwrap_or(limiter), ..self.clone() }
    }
}

/// The part of each of `nodes` in `quotas`. A quota that has no such part is a problem, and is left
/// out.
pub fn parts_of(
    quotas: &[QuotaSpec],
    nodes: u32,
    problem: impl FnMut(QuotaProblem),
) -> Vec<QuotaSpec> {
    without_problems(quotas.iter().map(|quota| quota.part_of(nodes)), problem)
}

/// The quotas of a rule with this charging: where it holds units until the response, they have
/// longer states. A leaky-queue cannot hold any, which is a problem, and is left out.
pub fn with_holds(
    quotas: Vec<QuotaSpec>,
    charging: Option<&Charging>,
    problem: impl FnMut(QuotaProblem),
) -> Vec<QuotaSpec> {
    if !charging.is_some_and(Charging::holds) {
        return quotas;
    }
    let each = quotas.into_iter().map(|quota| match quota.limiter.with_holds() {
        Some(limiter) => Ok(QuotaSpec { limiter, ..quota }),
        None => Err(("algorithm", NO_HOLDS.into())),
    });
    without_problems(each, problem)
}

const NO_HOLDS: &str = "\"leaky-queue\" cannot hold units until the response, because a request \
    goes on when its slot comes; use another algorithm, or leave \"reserve\" or \"actual\" out";

fn without_problems(
    quotas: impl Iterator<Item = Result<QuotaSpec, (&'static str, String)>>,
    mut problem: impl FnMut(QuotaProblem),
) -> Vec<QuotaSpec> {
    let each = quotas
        .enumerate()
        .filter_map(|(i, quota)| quota.map_err(|(field, words)| problem((i, field, words))).ok());
    each.collect()
}

impl Scope {
    /// The number of nodes that share the limits of a rule.
    #[must_use]
    pub const fn nodes(self) -> u32 {
        match self {
            Self::Share(nodes) => nodes,
            Self::Local | Self::Fleet => 1,
        }
    }
}
