//! A policy in force: it decides requests, settles what their responses bring about, and takes charges back.
//!
//! Invariant: nothing is borrowed across a host call, so a host that calls back in the middle of one finds
//! a policy that works. Deliberately absent: what becomes of the request; that is `filter`'s and `retry`'s.

use std::cell::Cell;
use std::rc::Rc;

use tollgate_core::{Span, Timestamp};
use tollgate_policy::{Facts, Failure, Outcome, Plan};

use crate::config::Config;
use crate::enforce::{Enforcement, INSERT, Scratch, Stored, Tally};
use crate::extents;
use crate::facts::RequestFacts;
use crate::metrics::Metrics;
use crate::proxy::Proxy;
use crate::table::{LAYOUT_VERSION, Seed};

/// Plans kept for the next requests; more streams than these at once only allocate.
const SPARE_PLANS: usize = 256;

/// Said once per worker and configuration.
const LOCAL_PROXY: &str = "tollgate: a proxy on this machine sends requests, and the policy takes the address of the \
    connection, so all of its clients are one; set xff_num_trusted_hops, or client_ip with trusted_proxies";

/// Tries to agree on a seed: every failed one means that somebody else set it.
const SEED_TRIES: u32 = 8;

/// A policy in force, with the buffers that its requests use again.
pub struct ActivePolicy<H> {
    host: H,
    config: Config,
    seed: Seed,
    metrics: Metrics,
    /// The `payload_in_metadata` of the jwt_authn filter, if the policy counts by claims.
    payload: Option<Rc<str>>,
    #[allow(clippy::vec_box, reason = "plans go from hand to hand, by their address")]
    plans: Cell<Vec<Box<Plan>>>,
    scratch: Cell<Scratch>,
    /// True once the log says that a proxy of this machine makes all clients one.
    warned: Cell<bool>,
}

/// What came of a request's first decision.
pub enum Decided {
    /// No rule applies.
    Nothing,
    /// The host did not say what the request is, so nobody knows which rules apply.
    Unreadable,
    /// The plan says.
    Plan(Box<Plan>, Timestamp),
}

impl<H: Proxy> ActivePolicy<H> {
    /// The policy of a configuration of `len` bytes.
    ///
    /// # Errors
    /// Every problem, one line each.
    pub fn configure(host: H, len: usize) -> Result<Self, Vec<String>> {
        let mut config = Config::compile(&host.configuration(len), &host.plugin_scope())?;
        let agreed = (agree_on_seed(&host), extents::agree(&host, &mut config));
        let (Some(seed), Some(lines)) = agreed else {
            return Err(vec!["the host gives no random seed or no shared data".into()]);
        };
        for line in &lines {
            host.log_warning(&format!("tollgate: {line}"));
        }
        for warning in &config.policy.warnings().0 {
            host.log_warning(&format!("tollgate: {warning}"));
        }
        config.policy.set_hash_key(seed);
        let metrics = Metrics::define(&config.policy, &config.plugin, &host);
        let payload = config.policy.jwt().and_then(|jwt| jwt.metadata.as_deref()).map(Rc::from);
        let (plans, scratch) = (Cell::default(), Cell::default());
        let warned = Cell::new(false);
        Ok(Self { host, config, seed, metrics, payload, plans, scratch, warned })
    }

    /// The facts of the request of the current context.
    pub fn facts(&self) -> RequestFacts<H> {
        RequestFacts::new(self.host.clone(), self.payload.clone())
    }

    /// Decides the request of the current context.
    pub fn decide(&self, facts: &RequestFacts<H>) -> Decided {
        let mut plan = self.spare_plan();
        self.config.policy.plan(facts, &mut plan);
        if facts.is_unreadable() {
            self.keep(plan);
            return Decided::Unreadable;
        }
        if plan.is_empty() {
            self.keep(plan);
            return Decided::Nothing;
        }
        if !self.warned.get()
            && self.config.policy.takes_the_connection()
            && facts.is_from_a_proxy_of_this_machine()
        {
            self.warned.set(true);
            self.host.log_warning(LOCAL_PROXY);
        }
        let now = self.host.now();
        self.decide_at(&mut plan, now);
        Decided::Plan(plan, now.unwrap_or_default())
    }

    /// Decides a plan again, or for the first time; without a clock nothing can be decided, so `on_failure` does.
    pub fn decide_at(&self, plan: &mut Plan, now: Option<Timestamp>) {
        let tally = match now {
            Some(now) => self.enforce(plan, now, |enforcement| enforcement.run()),
            None => self.fail(plan),
        };
        self.metrics.add(&tally, &self.host);
    }

    /// Counts the last word on a request, which came this long after the request.
    pub fn count(&self, plan: &Plan, waited: Span) {
        self.metrics.count(&self.outcome(plan), waited, &self.host);
    }

    /// Counts a request that could not be decided.
    pub fn count_failure(&self) {
        self.metrics.add(&Tally { failures: 1, ..Tally::default() }, &self.host);
    }

    /// Charges and gives back what the response brings about.
    pub fn settle(&self, plan: &mut Plan) {
        if plan.is_deferred() {
            self.settle_as(plan, self.host.response_status());
        }
    }

    /// The same for this status; `None` when there is no response.
    fn settle_as(&self, plan: &mut Plan, status: Option<u16>) {
        let Some(now) = self.host.now() else { return };
        if plan.settle(&self.config.policy, status) {
            let tally = self.enforce(plan, now, |enforcement| enforcement.charge());
            self.metrics.add(&tally, &self.host);
        }
    }

    /// The stream of a request that was let through ended before it had a response: its client left, or the host
    /// gave it up.
    pub fn end_without_status(&self, mut plan: Box<Plan>) {
        if plan.is_deferred() {
            self.settle_as(&mut plan, None);
        }
        self.keep(plan);
    }

    /// Takes back what a request was charged that will not go on.
    pub fn take_back(&self, plan: &mut Plan) {
        if let Some(now) = self.host.now() {
            let tally = self.enforce(plan, now, |enforcement| enforcement.take_back());
            self.metrics.add(&tally, &self.host);
        }
    }

    /// A request that would wait where too many wait already: as if nothing could be decided.
    pub fn turn_away(&self, plan: &mut Plan) {
        self.take_back(plan);
        let tally = self.fail(plan);
        self.metrics.add(&tally, &self.host);
    }

    fn fail(&self, plan: &mut Plan) -> Tally {
        for partition in 0..plan.len() {
            plan.fail(partition, Failure::Unreachable);
        }
        plan.decide(&self.config.policy, Timestamp::ZERO);
        Tally { failures: 1, ..Tally::default() }
    }

    fn enforce(
        &self,
        plan: &mut Plan,
        now: Timestamp,
        step: impl FnOnce(&mut Enforcement<'_, H>) -> Tally,
    ) -> Tally {
        let (config, seed, mut scratch) = (&self.config, &self.seed, self.scratch.take());
        let shared = &self.host;
        let tally =
            step(&mut Enforcement { shared, seed, config, plan, scratch: &mut scratch, now });
        self.scratch.set(scratch);
        tally
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
            plan.forget_long(); // or long requests, as many as there are plans, would hold their memory for ever
            plans.push(plan);
        }
        self.plans.set(plans);
    }
}

/// The content type of a gRPC request's refusal; `None` for any other request.
pub fn grpc_type<H: Proxy>(facts: &RequestFacts<H>) -> Option<&'static str> {
    facts.header("content-type").and_then(|kind| tollgate_policy::grpc_content_type(&kind))
}

/// The hash's key, the same for every worker: who comes first writes it.
fn agree_on_seed<H: Proxy>(host: &H) -> Option<Seed> {
    const NAME: &[u8] = &[LAYOUT_VERSION, b's', b'e', b'e', b'd'];
    for _ in 0..SEED_TRIES {
        match host.get(NAME) {
            Stored::Value(bytes, cas) => match Seed::try_from(bytes) {
                Ok(seed) => return Some(seed),
                Err(_) => host.set(NAME, &host.random_seed()?, cas),
            },
            Stored::Absent => host.set(NAME, &host.random_seed()?, INSERT),
            Stored::Unreachable => return None,
        };
    }
    None
}
