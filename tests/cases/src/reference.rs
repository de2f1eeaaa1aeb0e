//! The policy layer over a map: the result that every surface must give.
//!
//! Invariant: this decides only what the pipeline leaves to a surface: when to decide again, and
//! when the response comes.

use std::collections::BTreeMap;

use tollgate_core::{Span, Timestamp};
use tollgate_policy::{
    ActualUnits, BodyScan, Disposition, Ending, Partition, Plan, Policy, RequestInFlight,
    RuleResult, Surface,
};

use crate::bodies::ResponseEnd;
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
    /// The result of each rule that applied.
    pub rules: Vec<AppliedRule>,
    /// The number of stored values that counted the request.
    pub partitions: usize,
    /// True when the head of the response caused a charge.
    pub charged_later: bool,
    /// Those of the [ended](Event::ends) requests that were not over with the heads of their
    /// responses.
    pub ended: Vec<EndedRequest>,
}

/// A rule that applied to a request.
#[derive(Clone, Copy, Debug)]
pub struct AppliedRule {
    /// Its index in the document.
    pub place: usize,
    /// True for the limit on requests in flight of that rule.
    pub limits_in_flight: bool,
    /// Its result.
    pub result: RuleResult,
}

/// A request that ended.
#[derive(Clone, Debug)]
pub struct EndedRequest {
    /// The index of its event.
    pub index: usize,
    /// True when a rule had counted it while it was in flight.
    pub was_counted: bool,
    /// The costs that its body settled.
    pub costs: Vec<ActualUnits>,
}

/// A request after the head of its response.
struct Running {
    /// The plan that the end of its response settles.
    plan: Plan,
    scan: Option<Box<BodyScan>>,
    /// The charges that count it while it is in flight.
    in_flight: Option<RequestInFlight>,
}

/// One case in progress.
pub struct Reference<'c> {
    case: &'c Case,
    policy: Policy,
    plan: Plan,
    store: BTreeMap<Vec<u8>, Vec<u8>>,
    /// By the indices of their events.
    running: BTreeMap<usize, Running>,
    came_ms: u64,
    /// The time of the last decision.
    decided_ms: u64,
    next: usize,
}

impl<'c> Reference<'c> {
    /// A case before its first request. `hash_key` is the surface's key for the hashes in responses
    /// to clients.
    pub fn new(case: &'c Case, surface: Surface, hash_key: [u8; 16]) -> Self {
        let policy = case
            .compile(surface)
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
            running: BTreeMap::new(),
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

    fn serve(&mut self, index: usize, event: &Event) -> Expected {
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
        let rules = self.rules();
        let partitions = self.plan.len();
        let now_ms = at_ms + waits_ms.iter().sum::<u64>();
        let charged_later = body.is_none() && self.respond(index, event, now_ms);
        let ended = event.ends.iter().filter_map(|index| self.end(*index, now_ms)).collect();
        // Rules that set the same header set it once.
        marks.dedup();
        let body =
            body.map(|body| if event.request.method == "HEAD" { String::new() } else { body });
        let seen = Seen { status, waits_ms, fields, marks, body };
        Expected { at_ms, seen, rules, partitions, charged_later, ended }
    }

    fn rules(&self) -> Vec<AppliedRule> {
        let outcome = self.plan.outcome(&self.policy);
        let of_deny = outcome.deny_matches().map(|matched| AppliedRule {
            place: matched.rule.place.into(),
            limits_in_flight: false,
            result: matched.result,
        });
        let of_rules = outcome.rules().map(|(rule, result)| AppliedRule {
            place: self.policy.rules()[rule].place(),
            limits_in_flight: self.policy.rules()[rule].limits_requests_in_flight(),
            result,
        });
        of_deny.chain(of_rules).collect()
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

    /// The head of the response to the allowed request `index`; true when it caused a charge.
    fn respond(&mut self, index: usize, event: &Event, now_ms: u64) -> bool {
        let in_flight = self.plan.in_flight(&self.policy);
        let ending = Ending::Response(event.status);
        let is_deferred = self.plan.settlement(&self.policy).is_deferred();
        let due = is_deferred && self.plan.settle(&self.policy, ending, event);
        if due {
            self.commit(now_ms);
        }
        let settlement = self.plan.settlement(&self.policy);
        let awaits_end = settlement.awaits_end();
        if awaits_end || in_flight.is_some() {
            let scan = settlement.body_scan(event).filter(|_| awaits_end);
            let plan = std::mem::take(&mut self.plan);
            self.running.insert(index, Running { plan, scan, in_flight });
        }
        due
    }

    /// The end of the request `index`; `None` when nothing was left of it.
    fn end(&mut self, index: usize, now_ms: u64) -> Option<EndedRequest> {
        let Running { plan, mut scan, in_flight } = self.running.remove(&index)?;
        let event = &self.case.events[index];
        if let Some(scan) = &mut scan {
            event.sent_body().iter().for_each(|piece| scan.push(piece));
            scan.end(true);
        }
        self.plan = plan;
        let mut costs = vec![];
        if self.plan.settlement(&self.policy).awaits_end() {
            let ending = Ending::Response(event.status);
            if self.plan.settle(&self.policy, ending, &ResponseEnd(scan)) {
                self.commit(now_ms);
            }
            let settled = self.plan.settlement(&self.policy).costs();
            costs.extend(settled.iter().map(|cost| cost.actual));
        }
        let was_counted = in_flight.is_some();
        if let Some(mut in_flight) = in_flight
            && in_flight.release()
        {
            self.plan = std::mem::take(in_flight.plan_mut());
            self.commit(now_ms);
        }
        Some(EndedRequest { index, was_counted, costs })
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
        let index = self.next;
        let event = self.case.events.get(index)?;
        self.next += 1;
        Some(self.serve(index, event))
    }
}
