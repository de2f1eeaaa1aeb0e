//! The filter's contexts: a root for each policy, a stream for each request.
//!
//! Invariant: a root without a valid policy refuses its configuration, so a stream always has one; nothing
//! borrows across a host call. Deliberately absent: decisions (the policy's) and unsafe calls (`host`).

use core::cell::Cell;
use std::rc::Rc;

use proxy_wasm::traits::{Context, HttpContext, RootContext};
use proxy_wasm::types::{Action, ContextType, LogLevel};
use tollgate_core::{Span, Timestamp};
use tollgate_policy::{Answer, Failure, Outcome, Plan};

use crate::config::Config;
use crate::enforce::{Enforcement, INSERT, Scratch, SharedData, Stored, Tally};
use crate::facts::RequestFacts;
use crate::host::Host;
use crate::metrics::Metrics;
use crate::owed::{Owed, SharedOwed};
use crate::table::{LAYOUT_VERSION, Seed};
use crate::waiting::Waiting;

/// Who waits, and with what.
type Queue = Waiting<Retry>;

proxy_wasm::main! {{
    proxy_wasm::set_log_level(LogLevel::Warn); // also logs the message of a panic
    proxy_wasm::set_root_context(|_| Box::new(Root::default()));
}}

/// Plans kept for the next requests; more streams than these at once only allocate.
const SPARE_PLANS: usize = 256;

/// Tries to agree on a seed: every failed one means that somebody else set it.
const SEED_TRIES: u32 = 8;

/// One plugin configuration: all root contexts of a `vm_id` share this virtual machine's memory.
#[derive(Default)]
struct Root {
    force: Option<Rc<Force>>,
    waiting: Rc<Cell<Queue>>,
}

/// A policy in force, with the buffers that its requests use again.
pub struct Force {
    config: Config,
    seed: Seed,
    metrics: Metrics,
    /// The `payload_in_metadata` of the jwt_authn filter, if the policy counts by claims.
    payload: Option<Rc<str>>,
    plans: Cell<Vec<Plan>>,
    scratch: Cell<Scratch>,
}

impl Context for Root {}

impl RootContext for Root {
    fn on_configure(&mut self, len: usize) -> bool {
        let problems = match Config::compile(&Host.configuration(len), &Host.plugin_scope()) {
            Ok(mut config) => match agree_on_seed(&Host) {
                Some(seed) => {
                    for warning in &config.policy.warnings().0 {
                        Host.log_warning(&format!("tollgate: {warning}"));
                    }
                    config.policy.set_hash_key(seed);
                    self.force = Some(Rc::new(Force::new(config, seed)));
                    return true;
                }
                None => vec!["the host gives no random seed or no shared data".into()],
            },
            Err(problems) => problems,
        };
        for problem in &problems {
            Host.log_error(&format!("tollgate: {problem}"));
        }
        false
    }

    fn on_tick(&mut self) {
        let Some(now) = Host.now() else { return };
        let mut waiting = self.waiting.take();
        while let Some(id) = waiting.pop_due(now) {
            match waiting.retries.remove(&id) {
                Some(retry) => retry.run(id, now, &mut waiting),
                None => Host.resume(id),
            }
        }
        Host.set_tick_ms(waiting.tick_ms(now));
        self.waiting.set(waiting);
    }

    fn get_type(&self) -> Option<ContextType> {
        Some(ContextType::HttpContext)
    }

    fn create_http_context(&self, id: u32) -> Option<Box<dyn HttpContext>> {
        let (force, waiting) = (self.force.clone(), Rc::clone(&self.waiting));
        Some(Box::new(Stream { id, force, waiting, owed: Owed::Nothing, retried: None }))
    }
}

/// The hash's key, the same for every worker: who comes first writes it.
fn agree_on_seed(shared: &impl SharedData) -> Option<Seed> {
    const NAME: &[u8] = &[LAYOUT_VERSION, b's', b'e', b'e', b'd'];
    for _ in 0..SEED_TRIES {
        match shared.get(NAME) {
            Stored::Value(bytes, cas) => match Seed::try_from(bytes) {
                Ok(seed) => return Some(seed),
                Err(_) => shared.set(NAME, &Host.random_seed()?, cas),
            },
            Stored::Absent => shared.set(NAME, &Host.random_seed()?, INSERT),
            Stored::Unreachable => return None,
        };
    }
    None
}

impl Force {
    fn new(config: Config, seed: Seed) -> Self {
        let metrics = Metrics::define(&config.policy, &config.plugin, &Host);
        let payload = config.policy.jwt().and_then(|jwt| jwt.metadata.as_deref()).map(Rc::from);
        Self { config, seed, metrics, payload, plans: Cell::default(), scratch: Cell::default() }
    }

    /// Decides the request of the current context; `None` when no rule applies.
    fn decide(&self, facts: &RequestFacts<Host>) -> Option<Decided> {
        let mut plan = self.spare_plan();
        self.config.policy.plan(facts, &mut plan);
        if plan.is_empty() {
            self.keep(plan);
            return None;
        }
        let now = Host.now();
        let tally = match now {
            Some(now) => self.enforce(&mut plan, now, |enforcement| enforcement.run()),
            None => self.fail(&mut plan),
        };
        self.metrics.add(&tally, &Host);
        Some(Decided { plan, now: now.unwrap_or_default() })
    }

    /// Counts the last word on a request, which came this long after the request.
    fn count(&self, plan: &Plan, waited: Span) {
        self.metrics.count(&self.outcome(plan), waited, &Host);
    }

    fn enforce(
        &self,
        plan: &mut Plan,
        now: Timestamp,
        step: impl FnOnce(&mut Enforcement<'_, Host>) -> Tally,
    ) -> Tally {
        let (config, seed, mut scratch) = (&self.config, &self.seed, self.scratch.take());
        let shared = &Host;
        let tally =
            step(&mut Enforcement { shared, seed, config, plan, scratch: &mut scratch, now });
        self.scratch.set(scratch);
        tally
    }

    /// Charges what the response's status brings about.
    pub fn settle(&self, plan: &mut Plan) {
        let (Some(status), Some(now)) = (Host.response_status(), Host.now()) else { return };
        if plan.settle(&self.config.policy, status) {
            let tally = self.enforce(plan, now, |enforcement| enforcement.charge());
            self.metrics.add(&tally, &Host);
        }
    }

    /// A request that would wait where too many wait already: as if nothing could be decided.
    fn turn_away(&self, decided: &mut Decided) {
        let Decided { plan, now } = decided;
        let tally = self.enforce(plan, *now, |enforcement| {
            let mut tally = Tally::default();
            enforcement.give_back(&mut tally);
            tally
        });
        self.metrics.add(&tally, &Host);
        self.metrics.add(&self.fail(plan), &Host);
    }

    /// A host without a clock: nothing can be decided, so `on_failure` does.
    fn fail(&self, plan: &mut Plan) -> Tally {
        for partition in 0..plan.len() {
            plan.fail(partition, Failure::Unreachable);
        }
        plan.decide(&self.config.policy, Timestamp::ZERO);
        Tally { failures: 1, ..Tally::default() }
    }

    pub fn outcome<'a>(&'a self, plan: &'a Plan) -> Outcome<'a> {
        plan.outcome(&self.config.policy)
    }

    fn spare_plan(&self) -> Plan {
        let mut plans = self.plans.take();
        let plan = plans.pop().unwrap_or_default();
        self.plans.set(plans);
        plan
    }

    pub fn keep(&self, mut plan: Plan) {
        let mut plans = self.plans.take();
        if plans.len() < SPARE_PLANS {
            plan.forget_long(); // or long requests, as many as there are plans, would hold their memory for ever
            plans.push(plan);
        }
        self.plans.set(plans);
    }
}

/// A decided request.
struct Decided {
    plan: Plan,
    now: Timestamp,
}

/// A request that waits to be decided again.
pub struct Retry {
    force: Rc<Force>,
    facts: RequestFacts<Host>,
    /// When it came.
    since: Timestamp,
    owed: SharedOwed,
}

impl Retry {
    /// Decides the stream `id` again at `now`.
    fn run(self, id: u32, now: Timestamp, waiting: &mut Queue) {
        if !Host.enter(id) {
            return; // its client has left
        }
        let Some(decided) = self.force.decide(&self.facts) else { return Host.resume(id) };
        let waited = now.since(self.since);
        match self.force.outcome(&decided.plan).answer_after(waited) {
            Answer::Pass => {
                self.let_through(decided, waited);
                Host.resume(id);
            }
            Answer::Delay(wait) if waiting.push(now.saturating_add(wait), id) => {
                self.let_through(decided, waited);
            }
            Answer::Retry(wait) if waiting.push(now.saturating_add(wait), id) => {
                self.force.keep(decided.plan);
                waiting.retries.insert(id, self);
            }
            Answer::Delay(_) | Answer::Retry(_) => self.refuse(decided, waited, 429),
            Answer::Refuse { status } => self.refuse(decided, waited, status),
        }
    }

    fn let_through(&self, decided: Decided, waited: Span) {
        self.force.count(&decided.plan, waited);
        mark(&self.force.outcome(&decided.plan));
        self.owed.set(Owed::Fields(decided.plan));
    }

    fn refuse(&self, decided: Decided, waited: Span, status: u16) {
        self.force.count(&decided.plan, waited);
        self.owed.set(Owed::refusal(&self.force, &self.facts, decided.plan, status));
    }
}

/// Sets the headers for the origin that rules ask for.
fn mark(outcome: &Outcome<'_>) {
    outcome.marks(&mut |name, value| Host.set_request_header(name, value));
}

/// One request.
struct Stream {
    id: u32,
    force: Option<Rc<Force>>,
    waiting: Rc<Cell<Queue>>,
    owed: Owed,
    /// The same of a request that was decided again.
    retried: Option<SharedOwed>,
}

impl Context for Stream {}

impl HttpContext for Stream {
    fn on_http_request_headers(&mut self, _count: usize, _end: bool) -> Action {
        let Some(force) = self.force.clone() else { return Action::Continue };
        let facts = RequestFacts::new(Host, force.payload.clone());
        let Some(mut decided) = force.decide(&facts) else { return Action::Continue };
        let mut answer = force.outcome(&decided.plan).answer();
        if let Answer::Delay(wait) | Answer::Retry(wait) = answer {
            if self.wait_until(decided.now.saturating_add(wait), decided.now) {
                self.hold(force, facts, decided, answer);
                return Action::Pause;
            }
            force.turn_away(&mut decided);
            answer = match force.outcome(&decided.plan).answer() {
                Answer::Delay(_) | Answer::Retry(_) => Answer::Refuse { status: 429 },
                other => other,
            };
        }
        force.count(&decided.plan, Span::ZERO);
        if let Answer::Refuse { status } = answer {
            self.owed = Owed::refusal(&force, &facts, decided.plan, status);
            return Action::Pause;
        }
        mark(&force.outcome(&decided.plan));
        self.owed = Owed::Fields(decided.plan);
        Action::Continue
    }

    fn on_http_response_headers(&mut self, _count: usize, _end: bool) -> Action {
        if let Some(force) = self.force.clone() {
            self.take_owed().put_on_response(&force);
        }
        Action::Continue
    }
}

impl Stream {
    fn take_owed(&mut self) -> Owed {
        match core::mem::take(&mut self.owed) {
            Owed::Nothing => self.retried.take().map(|owed| owed.take()).unwrap_or_default(),
            owed => owed,
        }
    }

    /// Keeps what a waiting request needs when it is let go or decided again.
    fn hold(
        &mut self,
        force: Rc<Force>,
        facts: RequestFacts<Host>,
        decided: Decided,
        answer: Answer,
    ) {
        if !matches!(answer, Answer::Retry(_)) {
            force.count(&decided.plan, Span::ZERO);
            mark(&force.outcome(&decided.plan));
            self.owed = Owed::Fields(decided.plan);
            return;
        }
        force.keep(decided.plan);
        let owed = SharedOwed::default();
        self.retried = Some(Rc::clone(&owed));
        let mut waiting = self.waiting.take();
        waiting.retries.insert(self.id, Retry { force, facts, since: decided.now, owed });
        self.waiting.set(waiting);
    }

    /// Lets this request wait; false when too many wait already.
    fn wait_until(&self, due: Timestamp, now: Timestamp) -> bool {
        let mut waiting = self.waiting.take();
        let before = waiting.tick_ms(now);
        let waits = waiting.push(due, self.id);
        let after = waiting.tick_ms(now);
        if after != before {
            Host.set_tick_ms(after);
        }
        self.waiting.set(waiting);
        waits
    }
}

impl Drop for Stream {
    /// A request that never got a response: its client left.
    fn drop(&mut self) {
        if let Some(force) = self.force.clone() {
            self.take_owed().forget(&force);
        }
    }
}
