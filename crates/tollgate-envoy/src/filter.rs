//! The filter's contexts: a root for each policy, a stream for each request.
//!
//! Invariant: a root without a valid policy refuses its configuration, so a stream always has one; nothing
//! borrows across a host call. Deliberately absent: decisions (the policy's) and unsafe calls (`host`).

use core::cell::Cell;
use std::rc::Rc;

use proxy_wasm::traits::{Context, HttpContext, RootContext};
use proxy_wasm::types::{Action, ContextType, LogLevel};
use tollgate_core::Timestamp;
use tollgate_policy::{Answer, Facts, Failure, Outcome, Plan};

use crate::config::Config;
use crate::enforce::{Enforcement, INSERT, Scratch, SharedData, Stored, Tally};
use crate::facts::RequestFacts;
use crate::host::Host;
use crate::metrics::Metrics;
use crate::reply::Reply;
use crate::table::{LAYOUT_VERSION, Seed};
use crate::waiting::Waiting;

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
    waiting: Rc<Cell<Waiting>>,
}

/// A policy in force, with the buffers that its requests use again.
struct Force {
    config: Config,
    seed: Seed,
    metrics: Metrics,
    plans: Cell<Vec<Plan>>,
    scratch: Cell<Scratch>,
}

impl Context for Root {}

impl RootContext for Root {
    fn on_configure(&mut self, len: usize) -> bool {
        let problems = match Config::compile(&Host.configuration(len), &Host.plugin_scope()) {
            Ok(config) => match agree_on_seed(&Host) {
                Some(seed) => {
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
            Host.resume(id);
        }
        Host.set_tick_ms(waiting.tick_ms(now));
        self.waiting.set(waiting);
    }

    fn get_type(&self) -> Option<ContextType> {
        Some(ContextType::HttpContext)
    }

    fn create_http_context(&self, id: u32) -> Option<Box<dyn HttpContext>> {
        let (force, waiting) = (self.force.clone(), Rc::clone(&self.waiting));
        Some(Box::new(Stream { id, force, waiting, plan: None }))
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
        let metrics = Metrics::define(&config.policy, &Host);
        Self { config, seed, metrics, plans: Cell::default(), scratch: Cell::default() }
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
        self.metrics.count(&self.outcome(&plan), &Host);
        self.metrics.add(&tally, &Host);
        Some(Decided { plan, now: now.unwrap_or_default() })
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

    fn outcome<'a>(&'a self, plan: &'a Plan) -> Outcome<'a> {
        plan.outcome(&self.config.policy)
    }

    fn spare_plan(&self) -> Plan {
        let mut plans = self.plans.take();
        let plan = plans.pop().unwrap_or_default();
        self.plans.set(plans);
        plan
    }

    fn keep(&self, plan: Plan) {
        let mut plans = self.plans.take();
        if plans.len() < SPARE_PLANS {
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

/// One request.
struct Stream {
    id: u32,
    force: Option<Rc<Force>>,
    waiting: Rc<Cell<Waiting>>,
    /// Of a request that was let through: its fields go onto the response. `None` for our own answers.
    plan: Option<Plan>,
}

impl Context for Stream {}

impl HttpContext for Stream {
    fn on_http_request_headers(&mut self, _count: usize, _end: bool) -> Action {
        let Some(force) = self.force.clone() else { return Action::Continue };
        let facts = RequestFacts::new(Host);
        let Some(mut decided) = force.decide(&facts) else { return Action::Continue };
        let mut answer = force.outcome(&decided.plan).answer();
        if let Answer::Delay(wait) = answer {
            if self.wait_until(decided.now.saturating_add(wait), decided.now) {
                self.plan = Some(decided.plan);
                return Action::Pause;
            }
            force.turn_away(&mut decided);
            answer = force.outcome(&decided.plan).answer();
        }
        if let Answer::Refuse { status } = answer {
            let content_type = facts.header("content-type").unwrap_or_default();
            Host.reply(&Reply::new(&force.outcome(&decided.plan), status, &content_type));
            force.keep(decided.plan);
            return Action::Pause;
        }
        self.plan = Some(decided.plan);
        Action::Continue
    }

    fn on_http_response_headers(&mut self, _count: usize, _end: bool) -> Action {
        if let (Some(force), Some(plan)) = (&self.force, self.plan.take()) {
            let outcome = force.outcome(&plan);
            outcome.headers(&mut |name, value| Host.add_response_header(name, value));
            force.keep(plan);
        }
        Action::Continue
    }
}

impl Stream {
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
        if let (Some(force), Some(plan)) = (&self.force, self.plan.take()) {
            force.keep(plan);
        }
    }
}
