//! `tollgate explain`: what happens to one request, and why.
//!
//! Invariant: it drives the pipeline as a surface does, on a store of its own that starts empty; nothing
//! is consumed anywhere. Keys are shown hashed, never as they are.

mod render;
mod report;
mod request;

use std::collections::BTreeMap;

use tollgate_core::Timestamp;
use tollgate_policy::{Answer, Plan, Policy};

use crate::args::ExplainArgs;
use crate::{End, output, source};
use report::{Before, Report};
use request::Request;

/// When the first request comes: 2026-01-01T00:00:00Z, the start of a window for every window that
/// divides a day, so that the numbers are the same on every run.
const START: Timestamp = Timestamp::from_millis(1_767_225_600_000);

/// Explains one request and prints the report.
pub(crate) fn run(args: &ExplainArgs) -> Result<(), End> {
    let request = Request::new(args)?;
    let compiled = source::compile(&source::read(&args.policy)?, &[args.surface]);
    let Some((_, policy)) = compiled.policies.first() else {
        compiled.problems.iter().for_each(|problem| output::err(&problem.line()));
        return Err(End::Problems);
    };
    let mut gate = Gate { policy, plan: Plan::new(), store: BTreeMap::new(), now: START };
    let mut before = Before::default();
    for _ in 1..args.repeat {
        gate.decide(&request);
        before.count(gate.plan.outcome(policy).answer());
        gate.settle(args.status);
        gate.now = gate.now.saturating_add(args.every);
    }
    gate.decide(&request);
    let report = Report::new(args, policy, &request, &gate.plan, before);
    if args.json {
        output::json(&report);
    } else {
        output::out(&render::text(&report));
    }
    Ok(())
}

/// A surface with a map for a store.
struct Gate<'p> {
    policy: &'p Policy,
    plan: Plan,
    store: BTreeMap<Vec<u8>, Vec<u8>>,
    now: Timestamp,
}

impl Gate<'_> {
    /// Decides a request and charges what it is admitted to.
    fn decide(&mut self, request: &Request<'_>) {
        self.policy.plan(request, &mut self.plan);
        self.commit();
    }

    /// The response of a request that passed has come: charges the rules that charge by it.
    fn settle(&mut self, status: u16) {
        let answer = self.plan.outcome(self.policy).answer();
        let passed = matches!(answer, Answer::Pass | Answer::Delay(_));
        if passed && self.plan.is_deferred() && self.plan.settle(self.policy, Some(status)) {
            self.commit();
        }
    }

    fn commit(&mut self) {
        let Self { policy, plan, store, now } = self;
        for i in (0..plan.len()).filter(|i| plan.applies(*i)).collect::<Vec<_>>() {
            let stored = store.get(plan.key(i)).cloned();
            plan.load(policy, i, stored.as_deref());
        }
        plan.decide(policy, *now);
        for i in (0..plan.len()).filter(|i| plan.applies(*i) && plan.changed(*i)) {
            store.insert(plan.key(i).to_vec(), plan.value(i).to_vec());
        }
    }
}
