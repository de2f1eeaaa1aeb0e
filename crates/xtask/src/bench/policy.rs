//! The policy layer: a decision under one rule, or other entry, and under a thousand.
//!
//! Invariant: both run the same example with the same request except for its number; the cost of
//! compiling cancels in the instructions, and is not timed. Each kind has a ceiling of instructions
//! for both, so that nothing grows by the square of the number of entries, and entries of which one
//! applies cost at most twice as much as one.

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

/// The name of the entries in the example of the policy crate and in the table, the most
/// instructions of a decision under one of them and under 1,000, and how the cost grows. The counts
/// are exact for the pinned compiler; the rest is room for the next one. About a hundred of them
/// are for quotas that are not in a policy, a tenant's or those of a later policy's record: a plan
/// owns and releases them. Some ten are for whether a denial started a penalty, whose steps make
/// quotas longer to copy (records of an earlier policy). Eleven are for whether a rule lets some
/// waiting requests go first.
/// The seed of a look-up depends on addresses of the process. Another path or environment can add
/// up to 50 instructions for one binary: a tier by a key took 1,673 or, rarely, 1,722.
struct Kind(&'static str, &'static str, [f64; 2], Growth);

/// How the cost of a decision grows with the entries.
#[derive(Clone, Copy, PartialEq)]
enum Growth {
    /// Next to nothing: one of them is looked up.
    Hardly,
    /// By their number: all of them apply, or are stored.
    ByNumber,
}

use Growth::{ByNumber, Hardly};

/// The example.
const ENTRIES: &str = "entries";
const KINDS: [Kind; 17] = [
    Kind("paths", "rules by an exact path", [1_465.0, 1_480.0], Hardly),
    Kind("prefixes", "rules by a path prefix", [1_735.0, 1_760.0], Hardly),
    Kind("hosts", "rules by a host", [1_770.0, 1_745.0], Hardly),
    Kind("headers", "rules by a header", [1_540.0, 1_960.0], Hardly),
    Kind("networks", "rules by a network", [1_505.0, 1_690.0], Hardly),
    Kind("tiers", "tiers by a header", [1_535.0, 1_985.0], Hardly),
    Kind("tier-keys", "tiers by a key", [1_395.0, 1_740.0], Hardly),
    Kind("exempt", "exempt entries of which none holds", [1_475.0, 1_450.0], Hardly),
    Kind("deny", "deny rules of which none matches", [1_470.0, 1_450.0], Hardly),
    Kind("denied", "networks of a deny rule, one matches", [565.0, 855.0], Hardly),
    Kind("values", "values of one header", [1_330.0, 1_925.0], Hardly),
    Kind("cidrs", "networks of one list", [1_295.0, 1_580.0], Hardly),
    Kind("used", "rules of one key, all stored, one applies", [1_540.0, 149e3], ByNumber),
    Kind("new", "rules of one key, all apply, none stored", [1_125.0, 1.12e6], ByNumber),
    Kind("together", "rules of one key, all stored and apply", [1_240.0, 1.455e6], ByNumber),
    Kind("unknown", "records of an unknown policy", [1_560.0, 175e3], ByNumber),
    Kind("carried", "records of an earlier policy", [3_640.0, 2.12e6], ByNumber),
];

/// How many entries there are.
const COUNTS: [&str; 2] = ["1", "1000"];
/// Decisions of the two runs whose instructions are compared.
const COUNTED: (u64, u64) = (1_000, 5_000);

impl Growth {
    /// Decisions of the two runs that are compared under 1,000 entries, and of the timed run: long
    /// compared with starting a clock, short compared with a time slice of a busy machine. Printing
    /// the time takes some 2,000 instructions more or less, so that few decisions are exact only
    /// where each takes many.
    const fn decisions(self) -> ((u64, u64), u64) {
        match self {
            Hardly => (COUNTED, 100_000),
            ByNumber => ((10, 40), 1_000),
        }
    }
}

pub fn measure(workspace: &Workspace, effort: Effort) -> Result<String> {
    let program = example(workspace, "tollgate-policy", ENTRIES)?;
    let heading = ["entries", "ns: 1", "1,000", "ratio", "instructions: 1", "1,000", "ratio"];
    let mut table = Table::new("Policy: one decision under many entries", &heading);
    for kind in &KINDS {
        eprintln!("  policy: {}", kind.1);
        table.row(cells(kind.1, kind.times_ns(&program, effort)?, kind.instructions(&program)?));
    }
    table.note("Plan, load and decide one request, under one gcra quota where no other is named; best of all rounds for ns. `cargo xtask bench policy --check` holds the instructions below their ceilings.");
    Ok(table.markdown())
}

/// Counts the instructions of a decision, and fails where there are more than the ceilings.
pub fn check(workspace: &Workspace) -> Result<()> {
    let program = example(workspace, "tollgate-policy", ENTRIES)?;
    let mut exceeded = Vec::new();
    for kind in &KINDS {
        let counts = kind.instructions(&program)?;
        println!("  {}", kind.report(counts));
        exceeded.extend(kind.exceeds(counts).then(|| kind.report(counts)));
    }
    callgrind::within("planning and deciding costs more than its ceiling", &exceeded)
}

impl Kind {
    fn exceeds(&self, counts: [f64; 2]) -> bool {
        counts.iter().zip(self.2).any(|(count, most)| *count > most)
    }

    /// `tiers: 1327 of 1400, under 1,000 1532 of 1700`
    fn report(&self, [one, many]: [f64; 2]) -> String {
        let Self(_, label, most, _) = self;
        format!("{label}: {one:.0} of {:.0}, under 1,000 {many:.0} of {:.0}", most[0], most[1])
    }

    /// Of one decision, under one entry and under 1,000.
    fn instructions(&self, program: &Path) -> Result<[f64; 2]> {
        let count = |entries: &str, counted| {
            callgrind::each(program, counted, |count| vec![self.0.into(), entries.into(), count])
        };
        Ok([count(COUNTS[0], COUNTED)?, count(COUNTS[1], self.3.decisions().0)?])
    }

    /// Of one decision, the best of all rounds, under one entry and under 1,000.
    fn times_ns(&self, program: &Path, effort: Effort) -> Result<[f64; 2]> {
        let fix = "see the example of crates/tollgate-policy";
        let timed = self.3.decisions().1.to_string();
        let time = |entries: &str| -> Result<f64> {
            let said = run::output(Command::new(program).args([self.0, entries, &timed]), fix)?;
            let read = said.trim().parse();
            read.map_err(|_| Problem::new("cannot read the example's time", said, fix))
        };
        let mut times = COUNTS.map(|_| Vec::new());
        for _ in 0..effort.rounds {
            for (entries, times) in COUNTS.iter().zip(&mut times) {
                times.push(time(entries)?);
            }
        }
        Ok([least(&times[0]), least(&times[1])])
    }
}

fn cells(label: &str, times: [f64; 2], counts: [f64; 2]) -> Vec<String> {
    let figures = |[one, many]: [f64; 2]| [figure(one, 0), figure(many, 0), figure(many / one, 2)];
    [label.to_owned()].into_iter().chain(figures(times)).chain(figures(counts)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_a_ceiling_fails() {
        let kind = Kind("", "tiers", [10.0, 20.0], ByNumber);
        assert!(!kind.exceeds([10.0, 20.0]));
        assert!(kind.exceeds([10.5, 20.0]));
        assert!(kind.exceeds([10.0, 20.5]));
        assert_eq!(kind.report([9.0, 21.0]), "tiers: 9 of 10, under 1,000 21 of 20");
    }

    // Guards: a ceiling that is raised until it limits nothing.
    #[test]
    fn the_ceiling_of_a_thousand_entries_follows_from_that_of_one() {
        for Kind(name, _, [one, many], growth) in KINDS {
            let most = match (name, growth) {
                ("paths" | "prefixes" | "hosts", _) => 1.05,
                (_, Hardly) => 2.0,
                (_, ByNumber) => 1_600.0, // they are looked up in a sorted list
            };
            assert!(many <= one * most, "{name}");
        }
    }

    #[test]
    fn a_ratio_is_of_many_entries_to_one() {
        let cells = cells("hosts", [100.0, 125.0], [1000.0, 1100.0]);
        assert_eq!(cells.join(" "), "hosts 100 125 1.25 1000 1100 1.10");
    }
}
