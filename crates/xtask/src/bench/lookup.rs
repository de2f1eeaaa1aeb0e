//! The policy layer: a decision under one rule and under a thousand, of which one applies.
//!
//! Invariant: both run the same example with the same request but for its number; what compiling costs
//! falls out of the instructions, and is not timed.

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

/// What the rules are found by: the name in the example, and in the table.
const KINDS: [(&str, &str); 3] =
    [("paths", "exact paths"), ("prefixes", "path prefixes"), ("hosts", "hosts")];
const RULES: [&str; 2] = ["1", "1000"];

/// Long beside starting a clock, short beside a time slice of a busy machine.
const TIMED: u64 = 100_000;
const COUNTED: (u64, u64) = (1_000, 5_000);

pub fn measure(workspace: &Workspace, effort: Effort) -> Result<String> {
    let program = example(workspace, "tollgate-policy", "lookup")?;
    let heading = [
        "rules found by",
        "ns: 1 rule",
        "1,000 rules",
        "ratio",
        "instructions: 1 rule",
        "1,000 rules",
        "ratio",
    ];
    let mut table = Table::new("Policy: one decision", &heading);
    for (kind, label) in KINDS {
        eprintln!("  policy: {label}");
        let mut times = RULES.map(|_| Vec::new());
        for _ in 0..effort.rounds {
            for (rules, times) in RULES.iter().zip(&mut times) {
                times.push(time_ns(&program, kind, rules)?);
            }
        }
        let instructions = |rules: &str| {
            callgrind::each(&program, COUNTED, |count| vec![kind.into(), rules.into(), count])
        };
        let counts = [instructions(RULES[0])?, instructions(RULES[1])?];
        table.row(cells(label, [least(&times[0]), least(&times[1])], counts));
    }
    table.note("Plan, load and decide one request under one gcra quota; best of all rounds for ns. The aim is 1.3.");
    Ok(table.markdown())
}

fn cells(label: &str, [one, many]: [f64; 2], counts: [f64; 2]) -> Vec<String> {
    let ratio = |[one, many]: [f64; 2]| figure(many / one, 2);
    let mut cells = vec![label.to_owned(), figure(one, 0), figure(many, 0), ratio([one, many])];
    cells.extend(counts.map(|count| figure(count, 0)));
    cells.push(ratio(counts));
    cells
}

fn time_ns(program: &Path, kind: &str, rules: &str) -> Result<f64> {
    let fix = "see crates/tollgate-policy/examples/lookup.rs";
    let mut command = Command::new(program);
    let said = run::output(command.args([kind, rules, &TIMED.to_string()]), fix)?;
    said.trim().parse().map_err(|_| Problem::new("cannot read what the example says", said, fix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_of_many_rules_to_one() {
        let cells = cells("hosts", [100.0, 125.0], [1000.0, 1100.0]);
        assert_eq!(cells.join(" "), "hosts 100 125 1.25 1000 1100 1.10");
    }
}
