//! The policy layer over a map: the result that every surface must give.
//!
//! Invariant: this decides only what the pipeline leaves to a surface: when to decide again, and
//! when the response comes.

use std::collections::BTreeMap;

use tollgate_core::{Span, Timestamp};
use tollgate_policy::{Disposition, Ending, Partition, Plan, Policy, RuleResult, Surface};

use crate::case::{Case, Event};
use crate::requests::Request;
use crate::seen::Seen;

/// The hash key for the keys in responses, where a test may choose it; the filter's small host
/// returns it as random bytes (`tests/e2e/envoy_host.rs`).
pub const HASH_KEY: [u8; 16] = [7; 16];

/// The response that a surface must give, and the time of the request.
#[derive(Clone, Debug)]
pub struct Expected {
    /// The surface's clock when the request comes, in milliseconds.
    pub at_ms: u64,
    /// Its observable effects.
    pub seen: Seen,
    /// The result of each rule that applied, with its index in the document.
    pub rules: Vec<(usize, RuleResult)>,
    /// The number of stored values that counted the request.
    pub partitions: usize,
    /// True when the response caused a charge.
    pub charged_later: bool,
}

/// One case in progress.
pub struct Reference<'c> {
    case: &'c Case,
    policy: Policy,
    plan: Plan,
    store: BTreeMap<Vec<u8>, Vec<u8>>,
    came_ms: u64,
    /// The time of the last decision.
    decided_ms: u64,
    next: usize,
}

impl<'c> Reference<'c> {
    /// A case before its first request. `hash_key` is the surface's key for the hashes in responses
    /// to clients.
    pub fn new(case: &'c Case, surface: Surface, hash_key: [u8; 16]) -> Self {
        let policy = tollgate_language::compile(&case.policy.to_string(), surface)
            .unwrap_or_else(|e| panic!("case {} has no policy: {e}\n{}", case.number, case.policy));
        Self::with(case, policy, hash_key)
    }

    /// The same with a policy that was made from the case's in another way.
    pub fn with(case: &'c Case, mut policy: Policy, hash_key: [u8; 16]) -> Self {
        policy.set_hash_key(hash_key);
        let (came_ms, decided_ms) = (case.start_ms, case.start_ms);
        Self {
            case,
            policy,
            plan: Plan::new(),
            store: BTreeMap::new(),
            came_ms,
            decided_ms,
            next: 0,
        }
    }

    /// The policy in force.
    pub const fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Everything that is stored.
    pub const fn store(&self) -> &BTreeMap<Vec<u8>, Vec<u8>> {
        &self.store
    }

    fn serve(&mut self, event: &Event) -> Expected {
        self.came_ms = self.came_ms.saturating_add_signed(event.step_ms);
        if !self.case.wavers {
            self.came_ms = self.came_ms.max(self.decided_ms);
        }
        let (at_ms, mut waits_ms) = (self.came_ms, vec![]);
        let answer = self.decide(&event.request, &mut waits_ms);
        let outcome = self.plan.outcome(&self.policy);
        let (mut fields, mut marks) = (vec![], vec![]);
        let mut sink = |name: &str, value: &str| fields.push((name.to_owned(), value.to_owned()));
        let (status, body) = match (answer, event.request.grpc()) {
            (Disposition::Deny { .. }, Some(kind)) => {
                outcome.grpc_headers(kind, &mut sink);
                (200, Some(String::new()))
            }
            (Disposition::Deny { status }, None) => {
                outcome.headers(&mut sink);
                (status, Some(outcome.body()))
            }
            (Disposition::Allow | Disposition::Delay(_) | Disposition::Retry(_), _) => {
                outcome.headers(&mut sink);
                (event.status, None)
            }
        };
        if body.is_none() {
            outcome.marks(&mut |name, value| marks.push((name.to_owned(), value.to_owned())));
        }
        let of_deny =
            outcome.deny_matches().map(|matched| (usize::from(matched.rule.place), matched.result));
        let of_rules =
            outcome.rules().map(|(rule, result)| (self.policy.rules()[rule].place(), result));
        let rules = of_deny.chain(of_rules).collect();
        let partitions = self.plan.len();
        let charged_later = body.is_none() && self.settle(at_ms, &waits_ms, event);
        // Rules that set the same header set it once.
        marks.dedup();
        let body =
            body.map(|body| if event.request.method == "HEAD" { String::new() } else { body });
        let seen = Seen { status, waits_ms, fields, marks, body };
        Expected { at_ms, seen, rules, partitions, charged_later }
    }

    /// Decides until the result is not "ask again"; a delay is the last of the waits.
    fn decide(&mut self, request: &Request, waits_ms: &mut Vec<u64>) -> Disposition {
        loop {
            let waited = waits_ms.iter().sum::<u64>();
            self.policy.plan(request, &mut self.plan);
            self.commit(self.came_ms + waited);
            let answer =
                self.plan.outcome(&self.policy).disposition_after(Span::from_millis(waited));
            match answer {
                Disposition::Retry(wait) => waits_ms.push(wait.as_millis_ceil()),
                Disposition::Delay(wait) => {
                    waits_ms.push(wait.as_millis_ceil());
                    return answer;
                }
                Disposition::Allow | Disposition::Deny { .. } => return answer,
            }
        }
    }

    fn settle(&mut self, at_ms: u64, waits_ms: &[u64], event: &Event) -> bool {
        let ending = Ending::Response(event.status);
        let due = self.plan.is_deferred() && self.plan.settle(&self.policy, ending, event);
        if due {
            self.commit(at_ms + waits_ms.iter().sum::<u64>());
        }
        due
    }

    fn commit(&mut self, now_ms: u64) {
        let Self { policy, plan, store, .. } = self;
        plan.each_partition(|partition| {
            let stored = store.get(partition.key());
            partition.load(policy, stored.map(Vec::as_slice));
        });
        plan.decide(policy, Timestamp::from_millis(now_ms));
        for partition in plan.partitions().filter(Partition::changed) {
            store.insert(partition.key().to_vec(), partition.value().to_vec());
        }
        self.decided_ms = now_ms;
    }
}

impl Iterator for Reference<'_> {
    type Item = Expected;

    fn next(&mut self) -> Option<Expected> {
        let event = self.case.events.get(self.next)?;
        self.next += 1;
        Some(self.serve(event))
    }
}
