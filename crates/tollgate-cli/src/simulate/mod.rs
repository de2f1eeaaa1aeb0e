//! `tollgate simulate`: simulated traffic against a policy, in virtual time, compared with an exact
//! log.
//!
//! Invariant: the policy crate makes every decision and the simulator computes every figure; this
//! command runs them, counts for its plots, and prints. The same arguments print the same output on
//! every machine.

pub(crate) mod args;
mod report;
mod setup;
mod watch;

use std::collections::VecDeque;
use std::sync::Arc;

use serde::Serialize;
use tollgate_lab::simulator::{Progress, Run, Table};
use tollgate_report::Cell;

use self::args::SimulateArgs;
use crate::error::CommandError;
use crate::progress_line::ProgressLine;
use setup::Setup;
use watch::{Step, Watch};

/// Decisions between two looks at the clock.
const AT_A_TIME: u64 = 10_000;

/// The output of `--json`: the table, the facts needed to judge it, and with `--trace` the
/// requests. Documented in docs/simulate.md.
#[derive(Serialize)]
struct SimulationReport<'f> {
    #[serde(flatten)]
    table: &'f Table,
    notes: &'f [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    trace: Option<&'f VecDeque<Step>>,
}

/// Runs the simulation and prints the results.
pub(crate) fn run(args: &SimulateArgs) -> Result<(), CommandError> {
    let page = args.outputs.file(args.inputs())?;
    let setup = Setup::new(args)?;
    let mut run = Run::new(Arc::clone(&setup.policy), &setup.traffic, args.seed);
    if let Some(tenants) = &setup.tenants {
        run = run.with_tenants(tenants);
    }
    let mut watch = Watch::new(args.trace);
    let mut line = ProgressLine::new();
    loop {
        let progress = run.step(AT_A_TIME, &mut |seen| watch.see(seen));
        if progress.is_done {
            break;
        }
        line.show(|| words(progress, &setup));
    }
    drop(line);
    let table = run.table();
    let (notes, trace) = (setup.notes(), args.trace.map(|_| &watch.trace));
    let found = SimulationReport { table: &table, notes: &notes, trace };
    args.outputs.write(page.as_ref(), &found, &report::report(args, &setup, &table, &watch))
}

fn words(progress: Progress, setup: &Setup) -> String {
    let seconds = |span: tollgate_core::Span| span.as_nanos().div_euclid(1_000_000_000);
    let (now, all) = (seconds(progress.since_start), seconds(setup.traffic.length()));
    let offered = Cell::Count(progress.offered).to_words();
    format!("{offered} requests, second {now} of {all}")
}
