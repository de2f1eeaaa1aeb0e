//! The records of requests that are sent on or denied.
//!
//! Invariant: each request is counted once, when its fate is known. Its client and the exact twin
//! are notified when it is sent on.

use std::collections::BTreeMap;

use tollgate_core::{Span, Timestamp};
use tollgate_policy::{Policy, QuotaSet, RuleResult};

use crate::simulator::judge::{Exact, Judge};
use crate::simulator::node_decision::{Fate, NodeDecision};
use crate::simulator::table::{QuotaRow, RuleRow, SourceRow, Table};
use crate::simulator::traffic::{ClientResponse, Request, Requests, Traffic};
use crate::simulator::waits::Waits;

/// One decision, as an observer sees it.
#[derive(Clone, Copy, Debug)]
pub struct ObservedDecision<'s> {
    /// The true time.
    pub at: Timestamp,
    /// The index of the node.
    pub node: usize,
    /// The request; it came at `request.at`.
    pub request: &'s Request,
    /// The decision.
    pub decided: &'s NodeDecision<'s>,
    /// The exact twin's decision; `None` while the request waits. A delayed request is reported to
    /// the twin when it is sent on.
    pub exact: Option<Exact>,
}

/// Records the fate of each request.
#[derive(Debug)]
pub(crate) struct RunRecord {
    /// The true time.
    pub(crate) at: Timestamp,
    pub(crate) table: Table,
    pub(crate) judge: Judge,
    pub(crate) waits: Waits,
    pub(crate) requests: Requests,
    /// Requests that wait in a queue, by node and number.
    pub(crate) waiting: BTreeMap<(usize, u64), Request>,
}

impl RunRecord {
    /// Records a node's decision on a request. If the request waits, its wait begins now.
    pub(crate) fn enter(
        &mut self,
        node: usize,
        request: &Request,
        decided: &NodeDecision<'_>,
        since: Timestamp,
        observe: &mut impl FnMut(&ObservedDecision<'_>),
    ) {
        let exact = match decided.fate() {
            Fate::Waiting => {
                self.waiting.insert((node, decided.arrival().number), *request);
                None
            }
            Fate::Admitted => self.end(request, decided, Some(self.at), since),
            Fate::Delayed(wait) => {
                // A request that was in a queue has already waited for part of this time.
                let more = wait.saturating_sub(decided.waited());
                self.end(request, decided, Some(self.at.saturating_add(more)), since)
            }
            Fate::Denied { .. } => self.end(request, decided, None, since),
        };
        observe(&ObservedDecision { at: self.at, node, request, decided, exact });
    }

    /// Counts a request whose fate is known, and notifies its client and the exact twin: it is sent
    /// on at `leaves_at`, or denied now.
    fn end(
        &mut self,
        request: &Request,
        decided: &NodeDecision<'_>,
        leaves_at: Option<Timestamp>,
        since: Timestamp,
    ) -> Option<Exact> {
        let wait = leaves_at.map(|at| at.since(since));
        let Table { admitted, delayed, denied, .. } = &mut self.table;
        count_one([admitted, delayed, denied], wait);
        if let Some(row) = self.table.sources.get_mut(request.source) {
            count_one([&mut row.admitted, &mut row.delayed, &mut row.denied], wait);
        }
        if let Some(wait) = wait.filter(|wait| *wait > Span::ZERO) {
            self.waits.add(wait);
        }
        for rule in decided.rules() {
            if let Some(row) = self.table.rules.get_mut(rule.rule) {
                row.count(rule.result);
            }
        }
        for matched in decided.deny_matches() {
            if let Some(row) = self.table.rules.get_mut(matched.number(decided.policy())) {
                row.count(matched.result);
            }
        }
        let reported_at = leaves_at.unwrap_or(self.at);
        if self.requests.listens(request) {
            let mut response =
                ClientResponse { is_refused: leaves_at.is_none(), ..ClientResponse::default() };
            decided.outcome().headers(&mut |name, value| response.field(name, value));
            self.requests.record_response(request, &response, reported_at);
        }
        self.judge.record(decided, leaves_at.is_some(), reported_at, self.at)
    }
}

/// Counts a request as sent on at once, sent on after a wait, or denied.
fn count_one([admitted, delayed, denied]: [&mut u64; 3], wait: Option<Span>) {
    let count = match wait {
        None => denied,
        Some(Span::ZERO) => admitted,
        Some(_) => delayed,
    };
    *count = count.saturating_add(1);
}

impl RuleRow {
    fn count(&mut self, result: RuleResult) {
        let count = match result {
            RuleResult::Allowed => &mut self.allowed,
            RuleResult::Denied | RuleResult::Blocked | RuleResult::Penalised => &mut self.denied,
            RuleResult::Delayed => &mut self.delayed,
            RuleResult::Marked => &mut self.marked,
            RuleResult::Shadowed => &mut self.shadowed,
            RuleResult::Failed => &mut self.failed,
            RuleResult::Malformed => &mut self.malformed,
        };
        *count = count.saturating_add(1);
    }
}

/// A table with a zero row for every rule, quota and source.
pub(crate) fn empty_table(policy: &Policy, traffic: &Traffic) -> Table {
    let rule = |name: &str| RuleRow { name: name.into(), ..RuleRow::default() };
    Table {
        rules: policy.rule_names().map(rule).collect(),
        quotas: policy.quota_sets().iter().flat_map(|set| quota_rows(policy, set)).collect(),
        sources: traffic.sources().map(|name| SourceRow { name, ..SourceRow::default() }).collect(),
        ..Table::default()
    }
}

/// A zero row for each quota of a set.
pub(crate) fn quota_rows<'p>(
    policy: &'p Policy,
    set: &'p QuotaSet,
) -> impl Iterator<Item = QuotaRow> + use<'p> {
    set.quotas().iter().map(|quota| QuotaRow {
        rule: name_of(policy, set.rule()).into(),
        tier: set.tier().map(Into::into),
        of_tenants: false,
        name: quota.name().into(),
        algorithm: quota.limiter().counts_by().into(),
        limit: quota.limiter().limit(),
        window_us: quota.window().as_nanos() / 1_000,
        most_admitted: 0,
        burst: 0,
        state_len: u64::try_from(quota.limiter().state_len()).unwrap_or(u64::MAX),
    })
}

fn name_of(policy: &Policy, rule: usize) -> &str {
    policy.rules().get(rule).map_or("", |rule| rule.name())
}
