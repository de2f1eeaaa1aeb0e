//! The policy layer over a map: the result that every surface must give.
//!
//! Invariant: this decides only what the pipeline leaves to a surface: when to decide again, and
//! when the response comes.

use std::collections::BTreeMap;

use tollgate_core::{Span, Timestamp};
use tollgate_policy::waiting::{Due, Full, Limits, Queue, Ticket, Turn, TurnRequest};
use tollgate_policy::{
    ActualUnits, BodyScan, Disposition, Ending, Partition, Plan, Policy, RequestInFlight,
    RuleResult, Surface,
};

use crate::bodies::ResponseEnd;
use crate::case::{Case, Event};
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
    /// The requests that end at the end of each wait.
    pub ends_meanwhile: Vec<Vec<usize>>,
    /// The requests that end after this one.
    pub ends: Vec<usize>,
    /// Those of both that were not over with the heads of their responses.
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

/// The waits of a request, in milliseconds, and the requests that end at the end of each.
#[derive(Default)]
struct Waits {
    spans_ms: Vec<u64>,
    ends: Vec<Vec<usize>>,
    ended: Vec<EndedRequest>,
}

impl Waits {
    fn add(&mut self, ms: u64) {
        self.spans_ms.push(ms);
        self.ends.push(vec![]);
    }
}

/// The line of a request, with its ticket once it waits.
struct Line {
    queue: Queue<(Vec<u8>, u32), ()>,
    ticket: Option<Ticket>,
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
        let (at_ms, mut waits) = (self.came_ms, Waits::default());
        let answer = self.decide(event, &mut waits);
        let Waits { spans_ms: waits_ms, ends: ends_meanwhile, mut ended } = waits;
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
        let later = event.ends_meanwhile.iter().filter(|(wait, _)| *wait >= waits_ms.len());
        let ends: Vec<usize> =
            later.map(|(_, ended)| *ended).chain(event.ends.iter().copied()).collect();
        ended.extend(ends.iter().filter_map(|index| self.end(*index, now_ms)));
        // Rules that set the same header set it once.
        marks.dedup();
        let body =
            body.map(|body| if event.request.method == "HEAD" { String::new() } else { body });
        let seen = Seen { status, waits_ms, fields, marks, body };
        Expected { at_ms, seen, rules, partitions, charged_later, ends_meanwhile, ends, ended }
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

    /// Decides until the result is not "ask again"; a delay is the last of the waits. The request
    /// is alone in its line.
    fn decide(&mut self, event: &Event, waits: &mut Waits) -> Disposition {
        self.policy.plan(&event.request, &mut self.plan);
        self.commit(self.came_ms);
        let mut line = Line { queue: Queue::new(Limits::default()), ticket: None };
        loop {
            let waited = Span::from_millis(self.decided_ms.saturating_sub(self.came_ms));
            let answer = self.plan.outcome(&self.policy).disposition_after(waited);
            let full = match answer {
                Disposition::Retry(_) => self.wait(&mut line),
                Disposition::Delay(wait) => {
                    waits.add(wait.as_millis_ceil());
                    let at_ms = self.decided_ms + wait.as_millis_ceil();
                    self.end_meanwhile(event, at_ms, &mut line, waits);
                    return answer;
                }
                Disposition::Allow | Disposition::Deny { .. } => return answer,
            };
            if let Some(full) = full {
                self.plan.waiting_mut(&self.policy).reject(full);
                continue;
            }
            let at = line.queue.next_at().expect("its next look");
            let at_ms = at.since(Timestamp::ZERO).as_millis_ceil();
            waits.add(at_ms - self.decided_ms);
            self.end_meanwhile(event, at_ms, &mut line, waits);
            match line.queue.pop(Timestamp::from_millis(at_ms)) {
                Some(Due::Decide(_)) => self.commit(at_ms),
                other => panic!("not its turn: {other:?}"),
            }
        }
    }

    /// Waits, or continues to wait; returns why it may not.
    fn wait(&self, line: &mut Line) -> Option<Full> {
        let now = Timestamp::from_millis(self.decided_ms);
        let turn = self.plan.outcome(&self.policy).turn().expect("a line");
        let pace = self.plan.waiting(&self.policy).pace(&turn, now).expect("a pace");
        let came = Timestamp::from_millis(self.came_ms);
        let request = TurnRequest {
            key: (turn.key(&self.plan).to_vec(), turn.record),
            cost: turn.cost,
            deadline: came.saturating_add(turn.max),
            rank: turn.rank,
            bytes: 0,
        };
        let Line { queue, ticket } = line;
        if let Some(ticket) = *ticket {
            let again = queue.again(ticket, now, request, pace);
            return again.err().map(|full| full.expect("it is decided").0);
        }
        let joined = queue.join(now, request, Some(pace), ());
        joined.map(|new| *ticket = Some(new)).err().map(|(full, ())| full)
    }

    /// The requests that end at the end of the latest wait.
    fn end_meanwhile(&mut self, event: &Event, at_ms: u64, line: &mut Line, waits: &mut Waits) {
        let wait = waits.ends.len() - 1;
        let ends = event.ends_meanwhile.iter().filter(|(during, _)| *during == wait);
        for index in ends.map(|(_, index)| *index) {
            let waiting = std::mem::take(&mut self.plan);
            if let Some(running) = self.running.get(&index)
                && let Some(in_flight) = &running.in_flight
            {
                for turn in Turn::freed_by(&self.policy, in_flight) {
                    let freed = (turn.key(in_flight.plan()).to_vec(), turn.record);
                    let _ = line.queue.place_freed(&freed, Timestamp::from_millis(at_ms));
                }
            }
            waits.ended.extend(self.end(index, at_ms));
            waits.ends[wait].push(index);
            self.plan = waiting;
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
