//! The core alone: nanoseconds and instructions of one decision, beside `governor`.
//!
//! Invariant: both libraries run the same example with the same quota; the stepping of governor's own clock
//! is taken off its figures, the stepping of ours is not.

use super::{
    callgrind,
    effort::{Effort, example},
    figures::{Table, figure, least},
};
use crate::{
    problem::{Problem, Result},
    run,
    workspace::Workspace,
};
use std::{path::Path, process::Command};

/// The loop and governor's clock.
const CLOCK: &str = "none";
const GOVERNOR: &str = "governor";
/// governor that also says how much remains or how long to wait, as every decision of ours does.
const GOVERNOR_STATE: &str = "governor-state";
const OURS: [&str; 8] = [
    "gcra",
    "token-bucket",
    "leaky-bucket",
    "leaky-queue",
    "fixed-window",
    "sliding-window",
    "sliding-buckets",
    "sliding-log",
];
/// See the example: everything passes, nothing passes, a third passes.
const WORKLOADS: [&str; 3] = ["allow", "deny", "mixed"];
const MIXED: usize = 2;

/// For the clock: long beside starting a process, short beside a time slice of a busy machine.
const TIMED: u64 = 3_000_000;
/// For callgrind: both after every window was full once.
const COUNTED: (u64, u64) = (10_000, 50_000);

/// What one decision costs.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Cost {
    ns: f64,
    instructions: [f64; WORKLOADS.len()],
}

pub fn measure(workspace: &Workspace, effort: Effort) -> Result<String> {
    let program = example(workspace, "tollgate-core", "cost")?;
    let names: Vec<&str> = [CLOCK, GOVERNOR, GOVERNOR_STATE].into_iter().chain(OURS).collect();
    let mut times = vec![Vec::new(); names.len()];
    for round in 0..effort.rounds {
        eprintln!("  core: round {} of {}", round + 1, effort.rounds);
        for (name, times) in names.iter().zip(&mut times) {
            times.push(time_ns(&program, name)?);
        }
    }
    eprintln!("  core: counting instructions");
    let mut costs = Vec::new();
    for (name, times) in names.iter().zip(&times) {
        let mut instructions = [0.0; WORKLOADS.len()];
        for (place, workload) in instructions.iter_mut().zip(WORKLOADS) {
            *place = instructions_of(&program, name, workload)?;
        }
        costs.push(Cost { ns: least(times), instructions });
    }
    Ok(table(&names, &costs).markdown())
}

/// The first three costs are those of the clock and of both governors.
fn table(names: &[&str], costs: &[Cost]) -> Table {
    let heading = [
        "",
        "ns",
        "x governor",
        "instructions: allow",
        "deny",
        "mixed",
        "x governor",
        "x governor, with what remains",
    ];
    let mut table = Table::new("Core: one decision", &heading);
    let clock = costs[0];
    let [governor, with_state] = [costs[1], costs[2]].map(|cost| cost.without(clock));
    for (name, cost) in names.iter().zip(costs) {
        let cost = if name.starts_with(GOVERNOR) { cost.without(clock) } else { *cost };
        let mut cells = vec![label(name), figure(cost.ns, 1), figure(cost.ns / governor.ns, 2)];
        cells.extend(cost.instructions.map(|count| figure(count, 0)));
        let mixed = cost.instructions[MIXED];
        let bases = [governor, with_state].map(|base| base.instructions[MIXED]);
        cells.extend(bases.map(|base| figure(mixed / base, 2)));
        table.row(cells);
    }
    table.note(
        "Best of all rounds for ns, with the mixed load: three requests per emission interval. Our \
         decision always says what remains and when to come back; `governor` does with its middleware. \
         The first row is taken off the figures of `governor`, nothing is taken off ours. Instructions \
         are exact; ns below ten depend on what the processor does at the same time.",
    );
    table
}

fn label(name: &str) -> String {
    match name {
        CLOCK => "(the loop and the clock of `governor`)".to_owned(),
        GOVERNOR => "`governor`".to_owned(),
        GOVERNOR_STATE => "`governor`, with what remains".to_owned(),
        ours => ours.to_owned(),
    }
}

impl Cost {
    fn without(self, other: Self) -> Self {
        let mut instructions = self.instructions;
        for (count, taken) in instructions.iter_mut().zip(other.instructions) {
            *count -= taken;
        }
        Self { ns: self.ns - other.ns, instructions }
    }
}

fn time_ns(program: &Path, name: &str) -> Result<f64> {
    let fix = "see crates/tollgate-core/examples/cost.rs";
    let mut command = Command::new(program);
    let said = run::output(command.args([name, &TIMED.to_string(), WORKLOADS[MIXED]]), fix)?;
    let last = said.split_whitespace().last().and_then(|word| word.parse().ok());
    last.ok_or_else(|| Problem::new("cannot read what the example says", said, fix))
}

fn instructions_of(program: &Path, name: &str, workload: &str) -> Result<f64> {
    callgrind::each(program, COUNTED, |count| vec![name.into(), count, workload.into()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_is_taken_off_governor_and_only_there() {
        let cost = |ns, count| Cost { ns, instructions: [count; 3] };
        let names = [CLOCK, GOVERNOR, GOVERNOR_STATE, "gcra"];
        let costs = [cost(1.0, 5.0), cost(11.0, 105.0), cost(13.0, 125.0), cost(5.0, 60.0)];
        let text = table(&names, &costs).markdown();
        let governor = "| `governor` | 10.0 | 1.00 | 100 | 100 | 100 | 1.00 | 0.83 |\n";
        assert!(text.contains(governor), "{text}");
        assert!(text.contains("| gcra | 5.0 | 0.50 | 60 | 60 | 60 | 0.60 | 0.50 |\n"), "{text}");
    }
}
