//! A policy in force: it decides requests, settles what their responses bring about, and takes
//! charges back.
//!
//! Invariant: nothing is borrowed across a host call, so a host that calls back in the middle of
//! one finds a policy that works. Deliberately absent: what becomes of the request; that is
//! `filter`'s and `retry`'s.

use std::cell::Cell;
use std::rc::Rc;

use tollgate_core::{Span, Timestamp};
use tollgate_policy::waiting::{Full, Limits, Pace, Turn};
use tollgate_policy::{Facts, Failure, Outcome, Plan, key_hash};
use tollgate_table::{Seed, Table, digest};

use crate::config::Config;
use crate::config::routes::Routes;
use crate::counts::agreement::Agreement;
use crate::counts::commit_stats::CommitStats;
use crate::counts::enforce::Enforcement;
use crate::counts::extents;
use crate::counts::numbering::{NO_ANSWER, Numbering};
use crate::counts::scratch::Scratch;
use crate::fleet::node_id::NodeId;
use crate::host::proxy::Proxy;
use crate::request::facts::RequestFacts;
use crate::request::waiting::{Line, Waiting};
use crate::watch::metrics::{Asked, Wait};
use crate::watch::observer::Observer;
use crate::watch::tally::Tally;

/// Plans kept for the next requests; more streams than these at once only allocate.
const SPARE_PLANS: usize = 256;

/// Logged with each configuration on such a host.
const NOT_GUESSED: &str = "tollgate: no common sequence of numbers for writes was proved on this host; each count is read before it is written";

/// The longest key that is kept as it is while its request is under way, in bytes: tokens of a
/// client are longer, and a request may have one for each rule.
const LONGEST_KEY: usize = 128;

/// A policy in force, with the buffers that its requests use again.
pub struct ActivePolicy<H> {
    pub(crate) host: H,
    pub(crate) config: Config,
    pub(crate) seed: Seed,
    pub(crate) observer: Observer<H>,
    /// Who asks for the counts of a fleet, if rules have them.
    pub(crate) node: Option<NodeId>,
    /// What the authority is to count by.
    pub(crate) fleet_fingerprint: u64,
    /// The `payload_in_metadata` of the jwt_authn filter, if the policy counts by claims.
    payload: Option<Rc<str>>,
    #[allow(clippy::vec_box, reason = "plans go from hand to hand, by their address")]
    plans: Cell<Vec<Box<Plan>>>,
    scratch: Cell<Scratch>,
    /// The policies of routes that name one.
    pub(crate) routes: Routes<Self>,
    /// What tells its lines from those of the other policies of its root; 0 of one alone.
    line_salt: u64,
}

/// Which rules apply to a request.
pub enum Planned {
    /// No rule applies.
    Nothing,
    /// The host did not say what the request is, so nobody knows which rules apply.
    Unreadable,
    /// These do.
    Plan(Box<Plan>),
}

impl<H: Proxy> ActivePolicy<H> {
    /// The policy of `config`, in force. Whoever `says` what an operator must know of it logs that.
    ///
    /// # Errors
    /// Why it cannot be: the host's fault, and for now.
    pub fn activate(
        host: H,
        mut config: Config,
        says: Option<&H>,
        tally: &Rc<Tally<H>>,
    ) -> Result<Self, &'static str> {
        let Agreement { numbering, seed, is_new } = Agreement::reach(&host)?;
        let grown = extents::agree(&host, &mut config).ok_or(NO_ANSWER)?;
        let lost = config.directories.agree(&host, &config.policy, &config.tables);
        let lost = lost.ok_or(NO_ANSWER)?;
        if let Some(log) = says {
            if numbering == Numbering::Unproved {
                log.log_info(NOT_GUESSED);
            }
            for line in grown.iter().chain(&lost) {
                log.log_warning(&format!("tollgate: {line}"));
            }
            for warning in &config.policy.warnings().0 {
                log.log_warning(&format!("tollgate: {warning}"));
            }
        }
        if config.policy.hash_key().is_none() {
            config.policy.set_hash_key(seed);
        }
        let node = match config.policy.has_fleet().then(|| NodeId::agree(&host)) {
            Some(None) => return Err("the host gives no name for this node"),
            node => node.flatten(),
        };
        let fleet_fingerprint = config.policy.fleet_fingerprint();
        let observer = Observer::new(host.clone(), &config, is_new, tally);
        let payload = config.policy.jwt().and_then(|jwt| jwt.metadata.as_deref()).map(Rc::from);
        let (plans, scratch) = (Cell::default(), Cell::new(Scratch::new(numbering)));
        let named = core::mem::take(&mut config.named).into_iter();
        let named = named.map(|(name, config)| {
            let mut policy = Self::activate(host.clone(), config, says, tally)?;
            policy.line_salt = Table::fingerprint(&seed, name.as_bytes()).get();
            Ok((name.into(), Rc::new(policy)))
        });
        let routes = Routes::new(named.collect::<Result<_, _>>()?);
        Ok(Self {
            host,
            config,
            seed,
            observer,
            node,
            fleet_fingerprint,
            payload,
            plans,
            scratch,
            routes,
            line_salt: 0,
        })
    }

    /// The facts of the request of the current context.
    pub fn facts(&self) -> RequestFacts<H> {
        RequestFacts::new(self.host.clone(), self.payload.clone())
    }

    /// Which rules apply to the request of the current context.
    pub fn plan(&self, facts: &RequestFacts<H>) -> Planned {
        let mut plan = self.spare_plan();
        self.config.policy.plan(facts, &mut plan);
        if facts.is_unreadable() || plan.is_empty() {
            self.keep(plan);
            return if facts.is_unreadable() { Planned::Unreadable } else { Planned::Nothing };
        }
        self.observer.look_at_address(facts);
        plan.trim(&self.config.policy, LONGEST_KEY, |group, key| self.digest(group, key));
        if self.config.has_fleet {
            self.set_fleet_aside(&mut plan);
        }
        Planned::Plan(plan)
    }

    /// Rules of the fleet say nothing until those of this node have decided.
    fn set_fleet_aside(&self, plan: &mut Plan) {
        for i in 0..plan.len() {
            if plan.partition(i).is_some_and(|it| it.is_fleet(&self.config.policy)) {
                plan.set_aside(i);
            }
        }
    }

    /// What is left of a key that is too long to be kept.
    fn digest(&self, group: usize, key: &[u8]) -> [u8; 16] {
        let group = self.config.policy.groups().get(group).filter(|group| group.is_fleet());
        match (group, &self.config.fleet) {
            (Some(group), Some(fleet)) => key_hash(fleet.secret, group.identity(), key),
            _ => digest(&self.seed, key),
        }
    }

    /// Decides a plan again, or for the first time; without a clock nothing can be decided, so
    /// `on_failure` does.
    pub fn decide_at(&self, plan: &mut Plan, now: Option<Timestamp>) {
        let stats = match now {
            Some(now) => self.enforce(plan, now, |enforcement| enforcement.run()),
            None => self.fail(plan),
        };
        self.add(&stats);
    }

    /// Counts the last word on a request, which came this long after the request.
    pub fn count(&self, plan: &Plan, waited: Span) {
        self.observer.count(plan, &self.outcome(plan), waited);
    }

    pub(crate) fn add(&self, stats: &CommitStats) {
        self.observer.add(stats);
    }

    /// Counts what could not be decided or charged.
    pub fn count_failure(&self) {
        self.add(&CommitStats { failures: 1, ..CommitStats::default() });
    }

    /// Charges and gives back what the response brings about.
    pub fn settle(&self, plan: &mut Plan) {
        if plan.is_deferred() {
            self.settle_as(plan, self.host.response_status());
        }
    }

    /// The same for this status; `None` when there is no response.
    fn settle_as(&self, plan: &mut Plan, status: Option<u16>) {
        let Some(now) = self.host.now() else { return self.count_failure() }; // nothing is charged
        if plan.settle(&self.config.policy, status) {
            let stats = self.enforce(plan, now, |enforcement| enforcement.charge());
            self.add(&stats);
        }
    }

    /// The stream of a request that was let through ended before it had a response: its client
    /// left, or the host gave it up.
    pub fn end_without_status(&self, mut plan: Box<Plan>) {
        if plan.is_deferred() {
            self.settle_as(&mut plan, None);
        }
        self.keep(plan);
    }

    /// Takes back what a request was charged that will not go on; false when not all of it could
    /// be.
    pub fn take_back(&self, plan: &mut Plan, now: Timestamp) -> bool {
        let mut is_back = true;
        let stats = self.enforce(plan, now, |enforcement| {
            let mut stats = CommitStats::default();
            is_back = enforcement.take_back(&mut stats);
            stats
        });
        self.add(&stats);
        is_back
    }

    /// Says what would be decided, and charges nothing.
    pub fn look(&self, plan: &mut Plan, now: Timestamp) {
        let look = |plan: &mut Plan, config: &Config| plan.look(&config.policy, now);
        let stats = self.enforce(plan, now, |enforcement| enforcement.look(look));
        self.add(&stats);
    }

    /// Gives a request the time `at`, which another one was charged for; false when its state
    /// cannot be read.
    pub fn give_place(&self, plan: &mut Plan, now: Timestamp, at: Timestamp) -> bool {
        let mut is_given = false;
        let give = |plan: &mut Plan, config: &Config| {
            is_given = !plan.has_failed();
            if is_given {
                plan.decide_with_place(&config.policy, now, at);
            }
        };
        let stats = self.enforce(plan, now, |enforcement| enforcement.look(give));
        self.add(&stats);
        is_given
    }

    /// Refuses a request that may not wait.
    pub fn reject_waiting(&self, plan: &mut Plan, full: Full) {
        plan.reject_waiting(&self.config.policy, full);
    }

    /// How much may wait.
    pub fn limits(&self) -> Limits {
        self.config.policy.waiting()
    }

    /// The lines that a request has to stand in if others do.
    pub fn turns<'a>(&'a self, plan: &'a Plan) -> impl Iterator<Item = Turn> + use<'a, H> {
        plan.turns(&self.config.policy)
    }

    /// The line of spare times that a request may have one of.
    pub fn spare_line(&self, plan: &Plan) -> Option<Turn> {
        plan.spare_line(&self.config.policy)
    }

    /// What the quotas of a line say.
    pub fn pace(&self, plan: &Plan, turn: &Turn, now: Timestamp) -> Option<Pace> {
        plan.pace(&self.config.policy, turn, now)
    }

    /// The place that a request has in a `leaky-queue`.
    pub fn place(&self, plan: &Plan) -> Option<Turn> {
        plan.place(&self.config.policy)
    }

    /// Its place is the one at `at` from now on.
    pub fn move_place(&self, plan: &mut Plan, at: Timestamp) {
        plan.move_place(&self.config.policy, at);
    }

    /// Says in the log what it is time for, of all policies of the root.
    pub fn tick(&self, now: Timestamp) {
        let of_routes = self.routes.policies().filter_map(|policy| policy.observer.tick(now));
        let next_at = of_routes.chain(self.observer.tick(now)).min();
        self.observer.wake_at(next_at, now);
    }

    /// It decides no new requests, nor do those that routes name.
    pub fn end(&self) {
        self.observer.end();
        self.routes.policies().for_each(|policy| policy.observer.end());
    }

    /// Whose line it is.
    pub fn line(&self, plan: &Plan, turn: &Turn) -> Line {
        (turn.record, Table::fingerprint(&self.seed, turn.key(plan)).get() ^ self.line_salt)
    }

    /// Counts what happened to a request that waits, or would.
    pub fn count_wait(&self, wait: Wait) {
        self.observer.count_wait(wait);
    }

    /// Sets the timer and the gauges of those who wait.
    pub fn settle_waiting(&self, waiting: &Waiting<H>, now: Timestamp) {
        waiting.settle(now, &self.observer.metrics);
    }

    /// Takes what waits at a root that ends out of the gauges.
    pub fn end_waiting(&self, waiting: &Waiting<H>) {
        waiting.end(&self.observer.metrics);
    }

    fn fail(&self, plan: &mut Plan) -> CommitStats {
        plan.each_partition(|partition| partition.fail(Failure::Unreachable));
        plan.decide(&self.config.policy, Timestamp::ZERO);
        CommitStats { failures: 1, ..CommitStats::default() }
    }

    /// Counts what became of so many questions to the authority.
    pub fn count_asked(&self, asked: Asked, count: usize) {
        self.observer.count_asked(asked, count);
    }

    /// Decides in the shared tables.
    pub(crate) fn enforce(
        &self,
        plan: &mut Plan,
        now: Timestamp,
        step: impl FnOnce(&mut Enforcement<'_, H>) -> CommitStats,
    ) -> CommitStats {
        let (config, seed, mut scratch) = (&self.config, &self.seed, self.scratch.take());
        let shared = &self.host;
        let stats =
            step(&mut Enforcement { shared, seed, config, plan, scratch: &mut scratch, now });
        self.scratch.set(scratch);
        stats
    }

    /// What was decided.
    pub fn outcome<'a>(&'a self, plan: &'a Plan) -> Outcome<'a> {
        plan.outcome(&self.config.policy)
    }

    /// Sets the headers for the origin that rules ask for, on the request of the current context.
    pub fn mark(&self, plan: &Plan) {
        self.outcome(plan).marks(&mut |name, value| self.host.set_request_header(name, value));
    }

    fn spare_plan(&self) -> Box<Plan> {
        let mut plans = self.plans.take();
        let plan = plans.pop().unwrap_or_default();
        self.plans.set(plans);
        plan
    }

    /// Keeps a plan for another request.
    pub fn keep(&self, mut plan: Box<Plan>) {
        let mut plans = self.plans.take();
        if plans.len() < SPARE_PLANS {
            // Or long requests, as many as there are plans, would hold their memory for ever.
            plan.forget_long();
            plans.push(plan);
        }
        self.plans.set(plans);
    }
}

/// The content type of a gRPC request's refusal; `None` for any other request.
pub fn grpc_type<H: Proxy>(facts: &RequestFacts<H>) -> Option<&'static str> {
    facts.header("content-type").and_then(|kind| tollgate_policy::grpc_content_type(&kind))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_policy::{DescribedRequest, Policy, Surface};

    // Guards: requests in flight that keep what their clients sent, ten kilobytes of each.
    #[test]
    fn a_request_in_flight_keeps_little_of_long_keys() {
        let names: Vec<_> = (0..8).map(|i| format!("x-key-{i}")).collect();
        let rule = |name: &String| {
            format!(
                r#"{{"name": "{name}", "key": [{{"header": "{name}"}}], "quotas": [{{"limit": 1, "window": "1s"}}]}}"#
            )
        };
        let rules: Vec<_> = names.iter().map(rule).collect();
        let document = format!(r#"{{"version": 1, "rules": [{}]}}"#, rules.join(", "));
        let policy = Policy::compile(&document, Surface::Envoy).unwrap();
        let header = |name: &String| format!(r#""{name}": "{}""#, "k".repeat(1_000));
        let headers: Vec<_> = names.iter().map(header).collect();
        let request =
            format!(r#"{{"method": "GET", "path": "/", "headers": {{{}}}}}"#, headers.join(", "));
        let request = DescribedRequest::parse(request.as_bytes()).unwrap();
        let mut plan = Plan::default();
        policy.plan(&request, &mut plan);
        assert_eq!(plan.len(), 8);
        plan.trim(&policy, LONGEST_KEY, |_, key| digest(&Seed::default(), key));
        assert!(plan.held_bytes() < 4_096, "{}", plan.held_bytes());
    }
}
