//! How long the Worker takes from nothing to its first response, and how much is uploaded for it.
//!
//! Invariant: a start is a new workerd with empty storage, begun in turns with one whose script
//! does nothing; the reported figure is the median of our additional time. CPU time holds on a busy
//! machine, the time on the clock only on an idle one.

use super::{
    cpu::{self, ProcessorRole, seated},
    figures::{Table, figure, grouped, median, paired_difference},
};
use crate::{
    build::ceilings,
    problem::Result,
    servers::{
        free_port,
        workerd::{self, Code, Options},
    },
    workspace::Workspace,
};
use std::{collections::BTreeMap, time::Instant};

const STARTS: usize = 11;
/// Milliseconds over a script that does nothing.
const MOST_MS: f64 = 25.0;
/// Bytes of all modules, gzipped one by one.
const MOST_BYTES: usize = 160 * 1024;

const NOOP_SCRIPT: &str =
    "export class Limiter {}\nexport default { fetch: () => new Response(\"ok\") };\n";

/// The duration of each start, in milliseconds.
#[derive(Default)]
struct Starts {
    cpu: Vec<f64>,
    clock: Vec<f64>,
}

pub fn measure(workspace: &Workspace) -> Result<String> {
    let (mut noop, mut ours) = (Starts::default(), Starts::default());
    for round in 0..STARTS {
        eprintln!("  start: round {} of {STARTS}", round + 1);
        let first_ours = round % 2 == 1;
        for is_ours in [first_ours, !first_ours] {
            let starts = if is_ours { &mut ours } else { &mut noop };
            starts.add(workspace, is_ours)?;
        }
    }
    let mut table = Table::new("Worker: start and size", &["", "measured", "at most", "reached"]);
    let mut row = |name: &str, value: f64, unit: &str, most: f64| {
        let reached = if value <= most { "yes" } else { "no" };
        let (value, most) = (figure(value, 1), figure(most, 1));
        table.row([
            name.to_owned(),
            format!("{value} {unit}"),
            format!("{most} {unit}"),
            reached.into(),
        ]);
    };
    row(
        "CPU to the first response, over a no-op",
        paired_difference(&ours.cpu, &noop.cpu),
        "ms",
        MOST_MS,
    );
    row(
        "clock to the first response, over a no-op",
        paired_difference(&ours.clock, &noop.clock),
        "ms",
        MOST_MS,
    );
    let uploaded = ceilings::uploaded(workspace)?;
    let kib = |bytes: usize| bytes as f64 / 1024.0;
    row("all modules, gzipped", kib(uploaded), "KiB", kib(MOST_BYTES));
    table.note(&format!(
        "Medians of {STARTS} starts in turns; {} ms of CPU and {} ms on the clock for the no-op. The \
         first response is the health report, so the policy is read, as it was compiled when it was built. {} bytes: each file gzipped \
         separately, which is no less than the platform counts.",
        figure(median(&noop.cpu), 0),
        figure(median(&noop.clock), 0),
        grouped(uploaded),
    ));
    Ok(table.markdown())
}

impl Starts {
    fn add(&mut self, workspace: &Workspace, is_ours: bool) -> Result<()> {
        let (name, code, ready) = match is_ours {
            true => ("start-ours", Code::Shipped, "/.well-known/tollgate/health"),
            false => ("start-noop", Code::Script(NOOP_SCRIPT), "/"),
        };
        let (port, vars) = (free_port()?, BTreeMap::new());
        let options = Options { name, port, vars, code, has_assets: false, ready };
        let begun = Instant::now();
        let server = seated(ProcessorRole::Server, || workerd::start(workspace, options))?;
        self.clock.push(begun.elapsed().as_secs_f64() * 1000.0);
        self.cpu.push(cpu::used_ns(server.running.pid())? as f64 / 1_000_000.0);
        Ok(())
    }
}
