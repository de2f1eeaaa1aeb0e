//! One policy of a replay, and its results.
//!
//! Invariant: a request is counted once, when its fate is known; a request in a queue is counted
//! when its turn has come.

use std::sync::Arc;

use tollgate_access_log::Field;
use tollgate_core::{Span, Timestamp};
use tollgate_policy::{DenyMatch, LoneQuota, Policy, RuleResult};

use crate::replay::assumed::AssumedValues;
use crate::replay::clients::Marks;
use crate::replay::label::Label;
use crate::replay::options::Options;
use crate::replay::summary::Tally;
use crate::replay::top::Top;
use crate::replay::waits::Histogram;
use crate::simulator::{Fate, Node, NodeDecision, RuleDecision, SetNumbers, Store, Tenants};

/// The events that may happen to a request; several may.
pub(crate) const DENIED: Marks = 1;
pub(crate) const DELAYED: Marks = 2;
pub(crate) const UNREADABLE: Marks = 4;
pub(crate) const MARKED: Marks = 8;
pub(crate) const SHADOWED: Marks = 16;

/// The number of keys that a group holds before idle ones are removed: some 20 MB.
const HELD: usize = 1 << 18;

/// The label where a rule counts by no key of the request.
const WITHOUT_KEY: &str = "without a key";

/// One policy, its state, and its results so far.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) node: Node,
    pub(crate) policy: Arc<Policy>,
    /// The header from which the policy reads the client, where the client is known already.
    pub(crate) hidden: Option<String>,
    /// Cookies and query parameters that have their own column.
    pub(crate) columns: Vec<Field>,
    pub(crate) tally: Tally,
    /// In the order of [`Policy::rule_names`].
    pub(crate) rules: Vec<RuleCounts>,
    /// The numbers of the quota sets in `quotas`.
    pub(crate) sets: SetNumbers,
    /// By quota set, how often each of its quotas was the first without room.
    pub(crate) quotas: Vec<Vec<u64>>,
    pub(crate) waits: Histogram,
    pub(crate) top: Top,
    /// True when tenant entries were given.
    pub(crate) knows_tenants: bool,
    label: Label,
}

/// The results of one rule.
#[derive(Debug, Default)]
pub(crate) struct RuleCounts {
    pub(crate) results: [u64; RuleResult::ALL.len()],
    pub(crate) first: Option<(Timestamp, String)>,
}

impl RuleCounts {
    /// True when it applied to no request.
    pub(crate) fn is_idle(&self) -> bool {
        self.results.iter().all(|count| *count == 0)
    }
}

impl Lane {
    pub(crate) fn new(policy: Arc<Policy>, assumed: &AssumedValues, options: &Options) -> Self {
        let header = policy.explain().client_header().filter(|_| assumed.sets_client());
        let columns = crate::replay::needs::columns(&policy);
        let quotas = policy.quota_sets().iter().map(|set| vec![0; set.quotas().len()]).collect();
        Self {
            node: Node::new(
                Arc::clone(&policy),
                Store::exact().with_secret(options.secret).holding(HELD),
            ),
            hidden: header.map(str::to_owned),
            columns,
            tally: Tally::default(),
            rules: policy.rule_names().map(|_| RuleCounts::default()).collect(),
            sets: SetNumbers::new(&policy),
            quotas,
            waits: Histogram::default(),
            top: Top::new(options.max_limited_keys),
            knows_tenants: false,
            label: Label { is_private: options.is_private },
            policy,
        }
    }
}

impl Lane {
    /// Decides with these entries from now on.
    pub(crate) fn set_tenants(&mut self, tenants: Arc<Tenants>) {
        self.knows_tenants = true;
        self.node.set_tenants(tenants);
    }
}

/// How a policy reads the requests of a log.
#[derive(Clone, Copy)]
pub(crate) struct Reading<'l> {
    pub(crate) hidden: Option<&'l str>,
    pub(crate) columns: &'l [Field],
    pub(crate) policy: &'l Policy,
}

/// The counts of decisions, separate from the node that makes them.
pub(crate) struct Ledger<'l> {
    pub(crate) tally: &'l mut Tally,
    pub(crate) rules: &'l mut [RuleCounts],
    pub(crate) sets: &'l mut SetNumbers,
    pub(crate) quotas: &'l mut Vec<Vec<u64>>,
    pub(crate) waits: &'l mut Histogram,
    pub(crate) top: &'l mut Top,
    pub(crate) label: Label,
    pub(crate) policy: &'l Policy,
}

impl Lane {
    /// True when one quota decides, only by the client in the log.
    pub(crate) fn counts_by_log_client(&self) -> bool {
        let reads_header = self.hidden.is_none() && self.policy.explain().client_header().is_some();
        self.node.lone().is_some() && !reads_header
    }

    /// Counts a request that the lone quota allows, and returns that quota.
    pub(crate) fn count_lone(&mut self) -> Option<&LoneQuota> {
        let lone = self.node.lone()?;
        let counts = &mut self.rules.get_mut(lone.rule)?.results;
        let allowed = counts.get_mut(RuleResult::Allowed.index())?;
        *allowed = allowed.saturating_add(1);
        self.tally.admitted = self.tally.admitted.saturating_add(1);
        self.tally.total = self.tally.total.saturating_add(1);
        Some(lone)
    }

    /// The node, how it reads requests, and the ledger of its decisions.
    pub(crate) fn parts(&mut self) -> (&mut Node, Reading<'_>, Ledger<'_>) {
        let Self {
            node,
            policy,
            hidden,
            columns,
            tally,
            rules,
            sets,
            quotas,
            waits,
            top,
            label,
            ..
        } = self;
        let reading = Reading { hidden: hidden.as_deref(), columns, policy };
        (node, reading, Ledger { tally, rules, sets, quotas, waits, top, label: *label, policy })
    }
}

impl Ledger<'_> {
    /// Counts a request whose fate is known; `name` is its client's host name.
    pub(crate) fn count(&mut self, decided: &NodeDecision<'_>, name: Option<&[u8]>) -> Marks {
        let mut marks = 0;
        let at = decided.arrival().at;
        for matched in decided.deny_matches() {
            marks |= self.denied(&matched, at);
        }
        for rule in decided.rules() {
            self.add(rule.rule, rule.result);
            if rule.result != RuleResult::Allowed {
                marks |= self.limited(&rule, at, name);
            }
        }
        if matches!(decided.fate(), Fate::Denied { .. }) {
            // A request that another rule denies is neither marked nor over a limit.
            marks &= !(MARKED | SHADOWED);
        }
        marks | self.fate(decided, marks)
    }

    fn add(&mut self, rule: usize, result: RuleResult) {
        let counts = self.rules.get_mut(rule);
        if let Some(count) = counts.and_then(|counts| counts.results.get_mut(result.index())) {
            *count = count.saturating_add(1);
        }
    }

    /// Counts a rule that denies without counting, or would.
    fn denied(&mut self, matched: &DenyMatch<'_>, at: Timestamp) -> Marks {
        let number = matched.number(self.policy);
        self.add(number, matched.result);
        if let Some(counts) = self.rules.get_mut(number) {
            counts.first.get_or_insert_with(|| (at, WITHOUT_KEY.to_owned()));
        }
        match matched.result {
            RuleResult::Shadowed => SHADOWED,
            RuleResult::Malformed if matched.rule.is_enforced => UNREADABLE,
            RuleResult::Malformed
            | RuleResult::Allowed
            | RuleResult::Denied
            | RuleResult::Delayed
            | RuleResult::Marked
            | RuleResult::Failed
            | RuleResult::Blocked
            | RuleResult::Penalised => 0,
        }
    }

    /// Counts the fate of the request.
    fn fate(&mut self, decided: &NodeDecision<'_>, marks: Marks) -> Marks {
        let tally = &mut *self.tally;
        let (count, more, wait) = match decided.fate() {
            Fate::Denied { .. } if marks & UNREADABLE != 0 => (&mut tally.unreadable, 0, None),
            Fate::Denied { .. } => {
                let waited = Some(decided.waited()).filter(|waited| *waited > Span::ZERO);
                (&mut tally.denied, DENIED, waited)
            }
            Fate::Delayed(wait) => (&mut tally.delayed, DELAYED, Some(wait)),
            Fate::Admitted if decided.waited() > Span::ZERO => {
                (&mut tally.delayed, DELAYED, Some(decided.waited()))
            }
            Fate::Admitted => (&mut tally.admitted, 0, None),
            Fate::Waiting => return 0,
        };
        *count = count.saturating_add(1);
        tally.total = tally.total.saturating_add(1);
        for (mark, count) in [(MARKED, &mut tally.marked), (SHADOWED, &mut tally.shadowed)] {
            *count = count.saturating_add(u64::from(marks & mark != 0));
        }
        if let Some(wait) = wait {
            self.waits.add(wait);
        }
        more
    }

    /// Counts a rule that did more than allow the request.
    fn limited(&mut self, rule: &RuleDecision<'_>, at: Timestamp, name: Option<&[u8]>) -> Marks {
        let (kind, mark) = match rule.result {
            RuleResult::Denied | RuleResult::Blocked | RuleResult::Penalised => (0, 0),
            RuleResult::Delayed => (1, 0),
            RuleResult::Marked => (2, MARKED),
            RuleResult::Shadowed => (3, SHADOWED),
            // A rule that is not enforced and cannot read the request stops no client.
            RuleResult::Malformed => return if rule.is_binding { UNREADABLE } else { 0 },
            RuleResult::Allowed | RuleResult::Failed => return 0,
        };
        let number = self.sets.number(rule.quota_set, rule.set);
        if number >= self.quotas.len() {
            self.quotas.push(vec![0; rule.set.quotas().len()]);
        }
        let counts = self.quotas.get_mut(number);
        let denied_by = rule.denied_by().and_then(|i| counts.and_then(|counts| counts.get_mut(i)));
        if let Some(count) = denied_by {
            *count = count.saturating_add(1);
        }
        let (label, policy) = (self.label, self.policy);
        let hash = rule.key_hash.unwrap_or(0);
        let text = || match rule.partition {
            Some(_) => label.key(policy, rule.partition, hash, name),
            None => WITHOUT_KEY.to_owned(),
        };
        if let Some(counts) = self.rules.get_mut(rule.rule) {
            counts.first.get_or_insert_with(|| (at, text()));
        }
        self.top.count((rule.rule, hash), kind, at, text);
        mark
    }
}
