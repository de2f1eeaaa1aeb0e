//! The core alone: instructions of one decision, compared with `governor`.
//!
//! Invariant: both libraries run the same example with the same quota, and from the figures of each
//! its own loop is subtracted: the steps of its clock, and a call that decides nothing. Ceilings
//! are of the counted instructions, loop included, so that a row of the example is compared with a
//! number that is written here.

use super::{
    callgrind,
    effort::example,
    figures::{Table, figure},
};
use crate::{problem::Result, workspace::Workspace};
use std::path::Path;

/// Our loop, without a decision.
const LOOP: &str = "loop";
/// governor's, which also steps its clock.
const GOVERNOR_LOOP: &str = "governor-loop";
const GOVERNOR: &str = "governor";
/// governor that also returns how much remains or how long to wait, as every decision of ours does.
const GOVERNOR_STATE: &str = "governor-state";
/// The other libraries' rows, in the order of the table.
const BESIDE: [&str; 4] = [LOOP, GOVERNOR_LOOP, GOVERNOR, GOVERNOR_STATE];

/// See the example: everything passes, nothing passes, a third passes.
const WORKLOADS: [&str; 3] = ["allow", "deny", "mixed"];
const MIXED: usize = 2;

/// Its name in the example, and the most instructions of a decision by workload. The counts are the
/// same in every run with the pinned compiler on x86-64, so there is no margin for noise.
const CEILINGS: [(&str, [f64; WORKLOADS.len()]); 10] = [
    ("gcra", [69.0, 63.0, 63.0]),
    ("gcra-lazy", [39.0, 36.0, 36.0]),
    ("token-bucket", [115.0, 105.0, 105.0]),
    ("leaky-bucket", [104.0, 95.0, 95.0]),
    ("leaky-queue", [99.0, 90.0, 90.0]),
    ("fixed-window", [99.0, 90.0, 90.0]),
    ("sliding-window", [209.0, 190.0, 190.0]),
    ("sliding-buckets/60", [215.0, 215.0, 215.0]),
    // A tenth more for allow alone: once per turn it adds all counters up, against damaged sums.
    ("sliding-buckets/360", [236.0, 215.0, 215.0]),
    ("sliding-log", [290.0, 250.0, 250.0]),
];

/// For callgrind: both after every window was full once.
const COUNTED: (u64, u64) = (10_000, 50_000);

/// Instructions of one decision, by workload.
type Cost = [f64; WORKLOADS.len()];

pub fn measure(workspace: &Workspace) -> Result<String> {
    let program = example(workspace, "tollgate-core", "cost")?;
    let ours = CEILINGS.iter().map(|(name, _)| *name);
    let names: Vec<&str> = BESIDE.into_iter().chain(ours).collect();
    eprintln!("  core: counting instructions");
    let costs = names.iter().map(|name| instructions_of(&program, name));
    let costs = costs.collect::<Result<Vec<_>>>()?;
    Ok(table(&names, &costs).markdown())
}

/// Counts our decisions, and fails where one costs more than its ceiling.
pub fn check(workspace: &Workspace) -> Result<()> {
    let program = example(workspace, "tollgate-core", "cost")?;
    let mut exceeded = Vec::new();
    for (name, ceilings) in CEILINGS {
        let counts = instructions_of(&program, name)?;
        println!("  {}", report(name, counts, ceilings));
        if counts.iter().zip(ceilings).any(|(count, ceiling)| *count > ceiling) {
            exceeded.push(report(name, counts, ceilings));
        }
    }
    callgrind::within("a decision costs more than its ceiling", &exceeded)
}

/// `gcra: allow 65.0 of 69, deny 56.0 of 63, mixed 57.3 of 63`
fn report(name: &str, counts: Cost, ceilings: Cost) -> String {
    let parts: Vec<String> = WORKLOADS
        .iter()
        .zip(counts.iter().zip(ceilings))
        .map(|(workload, (count, ceiling))| format!("{workload} {count:.1} of {ceiling:.0}"))
        .collect();
    format!("{name}: {}", parts.join(", "))
}

/// The first costs are those of [`BESIDE`].
fn table(names: &[&str], costs: &[Cost]) -> Table {
    let heading =
        ["", "instructions: allow", "deny", "mixed", "x governor", "x governor, with what remains"];
    let mut table = Table::new("Core: one decision", &heading);
    let (our_loop, their_loop) = (costs[0], costs[1]);
    let [governor, with_state] = [costs[2], costs[3]].map(|cost| without(cost, their_loop));
    for (name, cost) in names.iter().zip(costs).skip(2) {
        let taken = if name.starts_with(GOVERNOR) { their_loop } else { our_loop };
        let cost = without(*cost, taken);
        let mut cells = vec![label(name)];
        cells.extend(cost.map(|count| figure(count, 0)));
        cells.extend([governor, with_state].map(|base| figure(cost[MIXED] / base[MIXED], 2)));
        table.row(cells);
    }
    table.note(&format!(
        "The mixed load has three requests per emission interval. Our decision always \
         returns the remaining units and the wait, as `governor` does with its middleware; the row \"verdict and wait \
         only\" has no more than `governor`. The loop is subtracted from the instructions, with the call and the steps \
         of the clock: {} of ours, {} of `governor`. Instructions are exact, and `cargo xtask bench core --check` keeps \
         them below their ceilings.",
        figure(our_loop[MIXED], 0),
        figure(their_loop[MIXED], 0),
    ));
    table
}

fn label(name: &str) -> String {
    match name {
        GOVERNOR => "`governor`".to_owned(),
        GOVERNOR_STATE => "`governor`, with what remains".to_owned(),
        ours => match (ours.strip_suffix("-lazy"), ours.split_once('/')) {
            (Some(name), _) => format!("{name}, verdict and wait only"),
            (_, Some((name, parts))) => format!("{name}, {parts} parts"),
            _ => ours.to_owned(),
        },
    }
}

fn without(cost: Cost, taken: Cost) -> Cost {
    std::array::from_fn(|workload| cost[workload] - taken[workload])
}

fn instructions_of(program: &Path, name: &str) -> Result<Cost> {
    let mut instructions = [0.0; WORKLOADS.len()];
    for (place, workload) in instructions.iter_mut().zip(WORKLOADS) {
        *place =
            callgrind::each(program, COUNTED, |count| vec![name.into(), count, workload.into()])?;
    }
    Ok(instructions)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_loop_is_taken_off_its_own_figures() {
        let names = [LOOP, GOVERNOR_LOOP, GOVERNOR, GOVERNOR_STATE, "gcra", "gcra-lazy"];
        let costs = [15.0, 5.0, 105.0, 125.0, 75.0, 40.0].map(|count| [count; 3]);
        let text = table(&names, &costs).markdown();
        for row in [
            "| `governor` | 100 | 100 | 100 | 1.00 | 0.83 |\n",
            "| gcra | 60 | 60 | 60 | 0.60 | 0.50 |\n",
            "| gcra, verdict and wait only | 25 | 25 | 25 | 0.25 | 0.21 |\n",
        ] {
            assert!(text.contains(row), "{text}");
        }
        assert!(text.contains("15 of ours, 5 of `governor`"), "{text}");
    }

    #[test]
    fn an_admission_may_cost_a_little_more_than_a_denial() {
        for (name, [allow, deny, mixed]) in CEILINGS {
            assert!(deny <= mixed && mixed <= allow && allow <= mixed * 1.16, "{name}");
        }
    }

    #[test]
    fn a_report_names_each_load() {
        let said = report("gcra", [65.0, 56.0, 57.33], [69.0, 63.0, 63.0]);
        assert_eq!(said, "gcra: allow 65.0 of 69, deny 56.0 of 63, mixed 57.3 of 63");
    }
}
