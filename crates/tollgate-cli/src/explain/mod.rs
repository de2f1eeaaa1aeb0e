//! `tollgate explain`: what happens to one request, and why.
//!
//! Invariant: it runs the pipeline as a surface does, on its own store that starts empty; nothing
//! is consumed elsewhere. Keys are shown only as hashes.

mod render;
mod report;
mod request;

use std::collections::BTreeMap;

use serde::Serialize;
use tollgate_core::Timestamp;
use tollgate_lab::simulator::{OriginResponse, Tenants as ByTenant};
use tollgate_policy::{Disposition, Partition, Plan, Policy, Surface};

use crate::args::ExplainArgs;
use crate::check;
use crate::command::{self, CommandInput, FailureLevel, PolicyReport};
use crate::error::CommandError;
use crate::output::Page;
use crate::source::Finding;
use crate::tenants::Tenants;
use report::{EarlierDecisions, Report};
use request::Request;

/// The time of the first request: 2026-01-01T00:00:00Z. Every window that divides a day starts
/// then, so the numbers are the same in every run.
const START: Timestamp = Timestamp::from_millis(1_767_225_600_000);

/// The result for one policy: its decision on the request, or its problems as `check` reports them.
#[derive(Serialize)]
#[serde(untagged)]
enum ExplainReport {
    Good(Box<Report>),
    Bad(Box<check::Report>),
}

impl PolicyReport for ExplainReport {
    fn problems(&self) -> &[Finding] {
        match self {
            Self::Good(_) => &[],
            Self::Bad(report) => report.problems(),
        }
    }

    fn warnings(&self) -> &[Finding] {
        &[]
    }

    fn write(&self, _: &str, page: &mut Page) {
        if let Self::Good(report) = self {
            render::write(report, page);
        }
    }
}

/// Explains one request and prints the report.
pub(crate) fn run(args: &ExplainArgs) -> Result<(), CommandError> {
    let surface = args.surface.unwrap_or(Surface::Envoy);
    let request = Request::new(args, surface)?;
    let tenants = Tenants::read(&args.tenants)?;
    let given = args.surface.map(|surface| [surface]);
    let question = CommandInput {
        path: &args.policy,
        surfaces: given.as_ref().map(<[Surface; 1]>::as_slice),
        default: &[Surface::Envoy],
        json: args.json,
        fails_by: FailureLevel::Problems,
    };
    command::run(&question, |compiled, _| {
        let compiled = tenants.judge_with(compiled);
        match compiled.policies.first() {
            Some((_, policy)) if compiled.problems.is_empty() => {
                ExplainReport::Good(Box::new(explain(args, policy, &tenants, &request)))
            }
            _ => ExplainReport::Bad(Box::new(check::report(compiled, &Tenants::default()))),
        }
    })
}

fn explain(
    args: &ExplainArgs,
    policy: &Policy,
    tenants: &Tenants,
    request: &Request<'_>,
) -> Report {
    let entries = ByTenant::under(policy, &tenants.entries);
    let (plan, store) = (Plan::new(), BTreeMap::new());
    let mut gate = Gate { policy, entries, plan, store, now: START };
    let mut before = EarlierDecisions::default();
    for _ in 1..args.repeat {
        gate.decide(request);
        before.count(gate.plan.outcome(policy).disposition());
        gate.settle(OriginResponse { status: args.status, cost: args.actual, duration: None });
        gate.now = gate.now.saturating_add(args.every);
    }
    gate.decide(request);
    Report::new(policy, request, &gate.plan, before)
        .with_entry(policy, &gate.plan, tenants, gate.now)
}

/// A surface whose store is a map.
struct Gate<'p> {
    policy: &'p Policy,
    entries: ByTenant,
    plan: Plan,
    store: BTreeMap<Vec<u8>, Vec<u8>>,
    now: Timestamp,
}

impl Gate<'_> {
    /// Decides a request and charges it when it is allowed.
    fn decide(&mut self, request: &Request<'_>) {
        self.entries.plan(self.policy, request, self.now, &mut self.plan);
        self.commit();
    }

    /// Handles the response to a request that passed: charges the rules that charge by it.
    fn settle(&mut self, response: OriginResponse) {
        let disposition = self.plan.outcome(self.policy).disposition();
        let passed = matches!(disposition, Disposition::Allow | Disposition::Delay(_));
        if passed
            && self.plan.settlement(self.policy).is_deferred()
            && self.plan.settle(self.policy, response.ending(), &response)
        {
            self.commit();
        }
    }

    fn commit(&mut self) {
        let Self { policy, plan, store, now, .. } = self;
        plan.each_partition(|partition| {
            let stored = store.get(partition.key());
            partition.load(policy, stored.map(Vec::as_slice));
        });
        plan.decide(policy, *now);
        for partition in plan.partitions().filter(Partition::changed) {
            store.insert(partition.key().to_vec(), partition.value().to_vec());
        }
    }
}
