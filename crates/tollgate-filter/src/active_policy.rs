//! A policy in force: it decides requests, settles the charges of their responses, and takes
//! charges back.
//!
//! Invariant: nothing is borrowed across a host call, so a host that calls back during one finds a
//! working policy. Deliberately absent: the request's further handling; that is `filter`'s and
//! `held_request`'s.

use std::cell::Cell;
use std::rc::Rc;

use tollgate_core::{Span, Timestamp};
use tollgate_policy::waiting::{Limits, Turn, WaitingPlan, WaitingPlanMut};
use tollgate_policy::{Facts, Failure, Group, Now, Outcome, Partition, Plan};
use tollgate_storage::key_hash;
use tollgate_storage::table::{Seed, Table, digest};

use crate::config::Config;
use crate::config::routes::Routes;
use crate::counts::agreement::Agreement;
use crate::counts::clock::LATEST_WALL;
use crate::counts::commit_stats::CommitStats;
use crate::counts::enforce::Enforcement;
use crate::counts::extents;
use crate::counts::numbering::{NO_ANSWER, Numbering};
use crate::counts::scratch::Scratch;
use crate::fleet::node_id::NodeId;
use crate::host::proxy::Proxy;
use crate::observability::counter_buffer::CounterBuffer;
use crate::observability::metrics::{LeaseEvent, Wait};
use crate::observability::observer::Observer;
use crate::request::facts::RequestFacts;
use crate::request::waiting::{QueueKey, Waiting};

/// The number of plans kept for the next requests; more streams at once than this only allocate.
const SPARE_PLANS: usize = 256;

/// Logged with each configuration on such a host.
const NOT_GUESSED: &str = "tollgate: no common sequence of numbers for writes was proved on this host; each count is read before it is written";

/// The longest key that is kept unchanged while its request is in progress, in bytes. Tokens of
/// clients are longer, and a request may have one for each rule.
const LONGEST_KEY: usize = 128;

/// A policy in force, with the buffers that its requests reuse.
pub struct ActivePolicy<H> {
    pub(crate) host: H,
    pub(crate) config: Config,
    pub(crate) seed: Seed,
    pub(crate) observer: Observer<H>,
    /// Sends the lease requests, if rules count for a fleet.
    pub(crate) node: Option<NodeId>,
    /// The rules in the form that the authority counts by.
    pub(crate) fleet_fingerprint: u64,
    /// The `payload_in_metadata` of the jwt_authn filter, if the policy counts by claims.
    payload: Option<Rc<str>>,
    #[allow(clippy::vec_box, reason = "plans go from hand to hand, by their address")]
    plans: Cell<Vec<Box<Plan>>>,
    scratch: Cell<Scratch>,
    /// The policies of routes that name one.
    pub(crate) routes: Routes<Self>,
    /// The number that distinguishes its lines from those of the root's other policies; 0 for a
    /// single policy.
    line_salt: u64,
}

/// The rules that apply to a request.
pub enum Planned {
    /// No rule applies.
    Nothing,
    /// The host did not return the request's properties, so the rules that apply are unknown.
    Unreadable,
    /// These rules apply.
    Plan(Box<Plan>),
}

impl<H: Proxy> ActivePolicy<H> {
    /// True when rules count for a fleet.
    pub const fn has_fleet(&self) -> bool {
        H::CALLS && self.node.is_some()
    }

    /// Puts the policy of `config` in force. The log `says`, if any, gets the lines that an
    /// operator must know.
    ///
    /// # Errors
    /// The reason why it cannot: a temporary failure of the host.
    pub fn activate(
        host: H,
        mut config: Config,
        says: Option<&H>,
        counters: &Rc<CounterBuffer<H>>,
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
        let has_fleet = H::CALLS && config.has_fleet;
        let node = match has_fleet.then(|| NodeId::agree(&host)) {
            Some(None) => return Err("the host gives no name for this node"),
            node => node.flatten(),
        };
        let fleet_fingerprint = if has_fleet { config.policy.fleet().fingerprint() } else { 0 };
        let observer = Observer::new(host.clone(), &config, is_new, counters);
        let claims = config.policy.claims();
        let payload = claims.and_then(|claims| claims.jwt().metadata.as_deref()).map(Rc::from);
        let (plans, scratch) = (Cell::default(), Cell::new(Scratch::new::<H>(numbering)));
        let named = core::mem::take(&mut config.named).into_iter();
        let named = named.map(|(name, config)| {
            let mut policy = Self::activate(host.clone(), config, says, counters)?;
            policy.line_salt = Table::fingerprint(&seed, name.as_bytes()).get();
            Ok((name.into(), Rc::new(policy)))
        });
        let routes = Routes::new(named.collect::<Result<_, &'static str>>()?);
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

    /// The rules that apply to the request of the current context.
    pub fn plan(&self, facts: &RequestFacts<H>) -> Planned {
        let mut plan = self.spare_plan();
        self.config.policy.plan(facts, &mut plan);
        if facts.is_unreadable() {
            self.keep(plan);
            return Planned::Unreadable;
        }
        self.observer.check_address(facts); // a forged one may be why no rule applies
        if plan.is_empty() {
            self.keep(plan);
            return Planned::Nothing;
        }
        plan.memory().trim(&self.config.policy, LONGEST_KEY, |group, key| self.digest(group, key));
        if self.has_fleet() {
            self.set_fleet_aside(&mut plan);
        }
        Planned::Plan(plan)
    }

    /// Rules of the fleet decide after those of this node.
    fn set_fleet_aside(&self, plan: &mut Plan) {
        plan.each_partition(|partition| {
            if partition.view().is_fleet(&self.config.policy) {
                partition.set_aside();
            }
        });
    }

    /// The part of a key that is kept when the key is too long.
    fn digest(&self, group: usize, key: &[u8]) -> [u8; 16] {
        let group = self.config.policy.groups().get(group);
        let group = group.filter(|group| self.has_fleet() && group.is_fleet());
        match (group, &self.config.fleet) {
            (Some(group), Some(fleet)) => key_hash(fleet.secret, group.identity(), key),
            _ => digest(&self.seed, key),
        }
    }

    /// Decides a plan again, or for the first time. Without a clock nothing can be decided, so
    /// `on_failure` does.
    pub fn decide_at(&self, plan: &mut Plan, now: Option<Timestamp>) {
        let stats = match now {
            Some(now) => self.enforce(plan, now, |enforcement| enforcement.run()),
            None => self.fail(plan),
        };
        self.add(&stats);
    }

    /// Counts the final decision on a request, which came this long after the request.
    pub fn count(&self, outcome: &Outcome<'_>, waited: Span) {
        self.observer.count(outcome, waited);
    }

    pub(crate) fn add(&self, stats: &CommitStats) {
        self.observer.add(stats);
    }

    /// Counts a request that could not be decided or charged.
    pub fn count_failure(&self) {
        self.add(&CommitStats { failures: 1, ..CommitStats::default() });
    }

    /// Takes back the charges of a request that does not continue; false when not all of them could
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

    /// Decides without charging.
    pub fn look(&self, plan: &mut Plan, now: Timestamp) {
        let look = |plan: &mut Plan, config: &Config, now: Now| {
            plan.waiting_mut(&config.policy).look(now);
        };
        let stats = self.enforce(plan, now, |enforcement| enforcement.look(look));
        self.add(&stats);
    }

    /// Gives a request the time `at`, which was charged for another request; false when its state
    /// cannot be read.
    pub fn give_place(&self, plan: &mut Plan, now: Timestamp, at: Timestamp) -> bool {
        let mut is_given = false;
        let give = |plan: &mut Plan, config: &Config, now: Now| {
            is_given = !plan.has_failed();
            if is_given {
                plan.waiting_mut(&config.policy).take_place(now, at);
            }
        };
        let stats = self.enforce(plan, now, |enforcement| enforcement.look(give));
        self.add(&stats);
        is_given
    }

    /// The lines and places of a request.
    pub fn waiting<'a>(&'a self, plan: &'a Plan) -> WaitingPlan<'a> {
        plan.waiting(&self.config.policy)
    }

    /// The same, to be changed.
    pub fn waiting_mut<'a>(&'a self, plan: &'a mut Plan) -> WaitingPlanMut<'a> {
        plan.waiting_mut(&self.config.policy)
    }

    /// The limits on waiting requests.
    pub fn limits(&self) -> Limits {
        self.config.policy.waiting()
    }

    /// Logs what is due, for all policies of the root.
    pub fn tick(&self, now: Timestamp) {
        let of_routes = self.routes.policies().filter_map(|policy| policy.observer.tick(now));
        let next_at = of_routes.chain(self.observer.tick(now)).min();
        self.observer.wake_at(next_at, now);
    }

    /// Ends this policy and those that routes name: they decide no new requests.
    pub fn end(&self) {
        self.observer.end();
        self.routes.policies().for_each(|policy| policy.observer.end());
    }

    /// The key of its line.
    pub fn queue_key(&self, plan: &Plan, turn: &Turn) -> QueueKey {
        (turn.record, Table::fingerprint(&self.seed, turn.key(plan)).get() ^ self.line_salt)
    }

    /// Counts an event of a request that waits, or would wait.
    pub fn count_wait(&self, wait: Wait) {
        self.observer.count_wait(wait);
    }

    /// Sets the timer and the gauges of waiting requests.
    pub fn settle_waiting(&self, waiting: &Waiting<H>, now: Timestamp) {
        waiting.settle(now, &self.observer.metrics);
    }

    /// Takes the waiting requests of a root that ends out of the gauges.
    pub fn end_waiting(&self, waiting: &Waiting<H>) {
        waiting.end(&self.observer.metrics);
    }

    fn fail(&self, plan: &mut Plan) -> CommitStats {
        plan.each_partition(|partition| partition.fail(Failure::Unreachable));
        plan.decide(&self.config.policy, Timestamp::ZERO);
        CommitStats { failures: 1, ..CommitStats::default() }
    }

    /// Counts the outcome of this many lease requests.
    pub fn count_lease_event(&self, event: LeaseEvent, count: usize) {
        self.observer.count_lease_event(event, count);
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
        let now = self.now(plan, now);
        let stats =
            step(&mut Enforcement { shared, seed, config, plan, scratch: &mut scratch, now });
        self.scratch.set(scratch);
        stats
    }

    /// The time for the counts of a plan: the wall clock is read only where one of them needs it.
    fn now(&self, plan: &Plan, clock: Timestamp) -> Now {
        let groups = self.config.policy.groups();
        let is_by_calendar =
            |it: Partition<'_>| groups.get(it.group()).is_some_and(Group::is_by_calendar);
        let needs_wall = self.config.is_by_calendar && plan.partitions().any(is_by_calendar);
        let wall = if needs_wall { self.host.wall_clock() } else { None };
        Now::new(clock, wall.filter(|wall| *wall <= LATEST_WALL))
    }

    /// The decisions.
    pub fn outcome<'a>(&'a self, plan: &'a Plan) -> Outcome<'a> {
        plan.outcome(&self.config.policy)
    }

    /// Sets the headers for the origin that rules configure, on the request of the current context.
    pub fn mark(&self, outcome: &Outcome<'_>) {
        outcome.marks(&mut |name, value| self.host.set_request_header(name, value));
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
            // Otherwise long requests, as many as there are plans, would hold their memory forever.
            plan.memory().forget_long();
            plans.push(plan);
        }
        self.plans.set(plans);
    }
}

/// The content type of a gRPC request's denial; `None` for any other request.
pub fn grpc_type<H: Proxy>(facts: &RequestFacts<H>) -> Option<&'static str> {
    facts.read_header("content-type", tollgate_policy::grpc_content_type)?
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_language::DescribedRequest;
    use tollgate_policy::Surface;

    // Guards: requests in progress that each keep ten kilobytes that their clients sent.
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
        let policy = tollgate_language::compile(&document, Surface::Envoy).unwrap();
        let header = |name: &String| format!(r#""{name}": "{}""#, "k".repeat(1_000));
        let headers: Vec<_> = names.iter().map(header).collect();
        let request =
            format!(r#"{{"method": "GET", "path": "/", "headers": {{{}}}}}"#, headers.join(", "));
        let request = DescribedRequest::parse(request.as_bytes()).unwrap();
        let mut plan = Plan::default();
        policy.plan(&request, &mut plan);
        assert_eq!(plan.len(), 8);
        plan.memory().trim(&policy, LONGEST_KEY, |_, key| digest(&Seed::default(), key));
        let held = plan.memory().bytes();
        assert!(held < 4_096, "{held}");
    }
}
