//! The policy layer: a decision under one rule and under a thousand, of which one applies.
//!
//! Invariant: both run the same example with the same request except for its number; the cost of
//! compiling cancels in the instructions, and is not timed.

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

/// How the rules are found: the name in the example, and in the table; and the most instructions of
/// a decision under one rule. The counts are exact for the pinned compiler; the rest is room for
/// the next one. About a hundred of them are for quotas that are not in a policy, a tenant's or
/// those of a later policy's record: a plan owns and releases them. Eleven are for whether a rule
/// lets some waiting requests go first.
const KINDS: [(&str, &str, f64); 3] = [
    ("paths", "exact paths", 1_300.0),
    ("prefixes", "path prefixes", 1_445.0),
    ("hosts", "hosts", 1_575.0),
];
/// The highest cost of a decision under 1,000 rules, relative to its cost under one.
const MOST_RATIO: f64 = 1.05;
/// How many rules, or other entries, there are.
const COUNTS: [&str; 2] = ["1", "1000"];

/// Long compared with starting a clock, short compared with a time slice of a busy machine.
const TIMED: u64 = 100_000;
pub const COUNTED: (u64, u64) = (1_000, 5_000);

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
    for (kind, label, _) in KINDS {
        eprintln!("  policy: {label}");
        let times = times_ns(&program, kind, TIMED, effort)?;
        let counts = instructions(&program, kind, [COUNTED; 2])?;
        table.row(cells(label, times, counts));
    }
    table.note("Plan, load and decide one request under one gcra quota; best of all rounds for ns. `cargo xtask bench policy --check` holds the instructions below their ceilings.");
    Ok(table.markdown())
}

/// Counts the instructions of a decision, and fails where there are more than the ceiling, or where
/// 1,000 rules have an effect.
pub fn check(workspace: &Workspace) -> Result<()> {
    let program = example(workspace, "tollgate-policy", "lookup")?;
    let mut exceeded = Vec::new();
    for (kind, label, ceiling) in KINDS {
        let counts = instructions(&program, kind, [COUNTED; 2])?;
        println!("  {}", report(label, counts, ceiling));
        if exceeds(counts, ceiling) {
            exceeded.push(report(label, counts, ceiling));
        }
    }
    if exceeded.is_empty() {
        return Ok(());
    }
    let fix = "see what is hot by callgrind_annotate; a ceiling is raised only for a reason";
    Err(Problem::new("planning and deciding costs more than its ceiling", exceeded.join("\n"), fix))
}

fn exceeds([one, many]: [f64; 2], ceiling: f64) -> bool {
    one > ceiling || many > one * MOST_RATIO
}

/// `exact paths: 1188 of 1200, under 1,000 rules 1.01 of 1.05 times that`
fn report(label: &str, [one, many]: [f64; 2], ceiling: f64) -> String {
    let ratio = many / one;
    format!(
        "{label}: {one:.0} of {ceiling:.0}, under 1,000 rules {ratio:.2} of {MOST_RATIO} times that"
    )
}

/// Of one decision, under one rule and under 1,000; `counted` are the decisions of both runs.
pub fn instructions(program: &Path, kind: &str, counted: [(u64, u64); 2]) -> Result<[f64; 2]> {
    let count = |rules: &str, counted| {
        callgrind::each(program, counted, |count| vec![kind.into(), rules.into(), count])
    };
    Ok([count(COUNTS[0], counted[0])?, count(COUNTS[1], counted[1])?])
}

pub fn cells(label: &str, [one, many]: [f64; 2], counts: [f64; 2]) -> Vec<String> {
    let ratio = |[one, many]: [f64; 2]| figure(many / one, 2);
    let mut cells = vec![label.to_owned(), figure(one, 0), figure(many, 0), ratio([one, many])];
    cells.extend(counts.map(|count| figure(count, 0)));
    cells.push(ratio(counts));
    cells
}

/// Of one decision, the best of all rounds of `timed` decisions, under one rule and under 1,000.
pub fn times_ns(program: &Path, kind: &str, timed: u64, effort: Effort) -> Result<[f64; 2]> {
    let fix = "see the example of crates/tollgate-policy";
    let time = |rules: &str| {
        let mut command = Command::new(program);
        let said = run::output(command.args([kind, rules, &timed.to_string()]), fix)?;
        said.trim().parse().map_err(|_| Problem::new("cannot read the example's time", said, fix))
    };
    let mut times = COUNTS.map(|_| Vec::new());
    for _ in 0..effort.rounds {
        for (rules, times) in COUNTS.iter().zip(&mut times) {
            times.push(time(rules)?);
        }
    }
    Ok([least(&times[0]), least(&times[1])])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_the_ceiling_or_more_by_rules_fails() {
        assert!(!exceeds([1_200.0, 1_260.0], 1_200.0));
        assert!(exceeds([1_200.5, 1_200.5], 1_200.0));
        assert!(exceeds([1_000.0, 1_051.0], 1_200.0));
        let said = "hosts: 1435 of 1500, under 1,000 rules 0.98 of 1.05 times that";
        assert_eq!(report("hosts", [1_435.0, 1_402.0], 1_500.0), said);
    }

    #[test]
    fn a_ratio_is_of_many_rules_to_one() {
        let cells = cells("hosts", [100.0, 125.0], [1000.0, 1100.0]);
        assert_eq!(cells.join(" "), "hosts 100 125 1.25 1000 1100 1.10");
    }
}
