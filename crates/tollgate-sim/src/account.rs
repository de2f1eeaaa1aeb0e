//! What is noted of a request that goes on or is refused.
//!
//! Invariant: each request is counted once, at the time at which its fate is known; its client and
//! the exact twin are told when it goes on.

use tollgate_core::{Span, Timestamp};
use tollgate_policy::{Policy, RuleResult};

use crate::decided::{Decided, Fate};
use crate::judge::{Exact, Judge};
use crate::table::{QuotaRow, RuleRow, SourceRow, Table};
use crate::traffic::{Request, Requests, Told, Traffic};
use crate::waits::Waits;

/// What takes in the end of a request.
pub(crate) struct Account<'r> {
    pub(crate) table: &'r mut Table,
    pub(crate) judge: &'r mut Judge,
    pub(crate) waits: &'r mut Waits,
    pub(crate) requests: &'r mut Requests,
}

impl Account<'_> {
    /// Counts a request that goes on or is refused at the true time `now`, and tells its client.
    pub(crate) fn take(
        &mut self,
        request: &Request,
        decided: &Decided<'_>,
        now: Timestamp,
    ) -> Option<Exact> {
        let (is_admitted, more) = match decided.fate() {
            Fate::Admitted => (true, Span::ZERO),
            // After a line it has waited for some of it already.
            Fate::Delayed(wait) => (true, wait.saturating_sub(decided.waited())),
            Fate::Denied { .. } | Fate::Waiting => (false, Span::ZERO),
        };
        let leaves_at = now.saturating_add(more);
        let wait = if is_admitted { leaves_at.since(request.at) } else { Span::ZERO };
        let Table { admitted, delayed, denied, .. } = &mut *self.table;
        count_one([admitted, delayed, denied], is_admitted, wait);
        if let Some(row) = self.table.sources.get_mut(request.source) {
            count_one([&mut row.admitted, &mut row.delayed, &mut row.denied], is_admitted, wait);
        }
        if wait > Span::ZERO {
            self.waits.add(wait);
        }
        for said in decided.rules() {
            if let Some(row) = self.table.rules.get_mut(said.rule) {
                row.count(said.result);
            }
        }
        if self.requests.listens(request) {
            let mut told = Told { is_refused: !is_admitted, ..Told::default() };
            decided.outcome().headers(&mut |name, value| told.field(name, value));
            self.requests.tell(request, &told, leaves_at);
        }
        self.judge.tell(decided, is_admitted, leaves_at, now)
    }
}

/// Adds a request to those that went on at once, went on later, or were refused.
fn count_one([admitted, delayed, denied]: [&mut u64; 3], is_admitted: bool, wait: Span) {
    let count = match (is_admitted, wait > Span::ZERO) {
        (false, _) => denied,
        (true, true) => delayed,
        (true, false) => admitted,
    };
    *count = count.saturating_add(1);
}

impl RuleRow {
    fn count(&mut self, result: RuleResult) {
        let count = match result {
            RuleResult::Allowed => &mut self.allowed,
            RuleResult::Denied => &mut self.denied,
            RuleResult::Delayed => &mut self.delayed,
            RuleResult::Marked => &mut self.marked,
            RuleResult::Shadowed => &mut self.shadowed,
            RuleResult::Failed => &mut self.failed,
            RuleResult::Malformed => &mut self.malformed,
        };
        *count = count.saturating_add(1);
    }
}

/// A table with a row for every rule, quota and source, and nothing counted.
pub(crate) fn empty_table(policy: &Policy, traffic: &Traffic) -> Table {
    let name_of = |rule: usize| policy.rules().get(rule).map_or("", |rule| rule.name());
    let quotas = policy.quota_sets().iter().flat_map(|set| {
        set.quotas().iter().map(|quota| QuotaRow {
            rule: name_of(set.rule()).into(),
            tier: set.tier().map(Into::into),
            name: quota.name().into(),
            algorithm: quota.limiter().algorithm().name().into(),
            limit: quota.limiter().limit(),
            window_us: quota.window().as_nanos() / 1_000,
            most_admitted: 0,
            burst: 0,
            state_len: u64::try_from(quota.limiter().state_len()).unwrap_or(u64::MAX),
        })
    });
    let rule = |i: usize| RuleRow { name: name_of(i).into(), ..RuleRow::default() };
    Table {
        rules: (0..policy.rules().len()).map(rule).collect(),
        quotas: quotas.collect(),
        sources: traffic.sources().map(|name| SourceRow { name, ..SourceRow::default() }).collect(),
        ..Table::default()
    }
}
