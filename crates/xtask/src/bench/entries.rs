//! The policy layer: a decision under one entry of a list and under a thousand, for every sort of
//! entry.
//!
//! Invariant: each kind has a ceiling of instructions for both, so that nothing grows by the square
//! of the number of entries, and entries of which one applies cost at most twice as much as one.

use super::{
    effort::{Effort, example},
    figures::Table,
    lookup::{COUNTED, cells, instructions, times_ns},
};
use crate::{
    problem::{Problem, Result},
    workspace::Workspace,
};

struct Kind {
    /// Its name in the example, and in the table.
    name: &'static str,
    label: &'static str,
    /// The most instructions of a decision under one entry and under 1,000. The counts are exact
    /// for the pinned compiler; the rest is room for the next one.
    most: [f64; 2],
    grows: GrowingPart,
}

/// How the cost of a decision grows with the entries.
#[derive(Clone, Copy, PartialEq)]
enum GrowingPart {
    /// Next to nothing: one of them is looked up.
    Hardly,
    /// By their number: all of them apply, or are stored.
    ByNumber,
}

const KINDS: [Kind; 12] = [
    Kind {
        name: "headers",
        label: "rules by a header",
        most: [1_500.0, 1_870.0],
        grows: GrowingPart::Hardly,
    },
    Kind {
        name: "networks",
        label: "rules by a network",
        most: [1_475.0, 1_660.0],
        grows: GrowingPart::Hardly,
    },
    Kind {
        name: "tiers",
        label: "tiers by a header",
        most: [1_510.0, 1_985.0],
        grows: GrowingPart::Hardly,
    },
    Kind {
        name: "tier-keys",
        label: "tiers by a key",
        most: [1_365.0, 1_705.0],
        grows: GrowingPart::Hardly,
    },
    Kind {
        name: "exempt",
        label: "exempt entries of which none holds",
        most: [1_450.0, 1_450.0],
        grows: GrowingPart::Hardly,
    },
    Kind {
        name: "values",
        label: "values of one header",
        most: [1_290.0, 1_925.0],
        grows: GrowingPart::Hardly,
    },
    Kind {
        name: "cidrs",
        label: "networks of one list",
        most: [1_260.0, 1_530.0],
        grows: GrowingPart::Hardly,
    },
    Kind {
        name: "used",
        label: "rules of one key, all stored, one applies",
        most: [1_540.0, 149_000.0],
        grows: GrowingPart::ByNumber,
    },
    Kind {
        name: "new",
        label: "rules of one key, all apply, none stored",
        most: [1_075.0, 1_120_000.0],
        grows: GrowingPart::ByNumber,
    },
    Kind {
        name: "together",
        label: "rules of one key, all stored, all apply",
        most: [1_210.0, 1_455_000.0],
        grows: GrowingPart::ByNumber,
    },
    Kind {
        name: "unknown",
        label: "records of an unknown policy",
        most: [1_560.0, 170_000.0],
        grows: GrowingPart::ByNumber,
    },
    Kind {
        name: "carried",
        label: "records of an earlier policy",
        most: [3_460.0, 1_950_000.0],
        grows: GrowingPart::ByNumber,
    },
];

impl GrowingPart {
    /// Decisions of the two runs whose instructions are compared, under one entry and under 1,000,
    /// and of the run that is timed. Printing the time takes some 2,000 instructions more or less,
    /// so that few decisions are exact only where each takes many.
    const fn decisions(self) -> ([(u64, u64); 2], u64) {
        match self {
            Self::Hardly => ([COUNTED; 2], 100_000),
            Self::ByNumber => ([COUNTED, (10, 40)], 1_000),
        }
    }
}

pub fn measure(workspace: &Workspace, effort: Effort) -> Result<String> {
    let program = example(workspace, "tollgate-policy", "entries")?;
    let heading = ["entries", "ns: 1", "1,000", "ratio", "instructions: 1", "1,000", "ratio"];
    let mut table = Table::new("Policy: one decision under many entries", &heading);
    for Kind { name, label, grows, .. } in &KINDS {
        eprintln!("  policy: {label}");
        let (counted, timed) = grows.decisions();
        let times = times_ns(&program, name, timed, effort)?;
        table.row(cells(label, times, instructions(&program, name, counted)?));
    }
    table.note("Plan, load and decide one request; best of all rounds for ns. `cargo xtask bench policy --check` holds the instructions below their ceilings.");
    Ok(table.markdown())
}

/// Counts the instructions of a decision, and fails where there are more than the ceilings.
pub fn check(workspace: &Workspace) -> Result<()> {
    let program = example(workspace, "tollgate-policy", "entries")?;
    let mut exceeded = Vec::new();
    for kind in &KINDS {
        let counts = instructions(&program, kind.name, kind.grows.decisions().0)?;
        println!("  {}", report(kind, counts));
        if exceeds(counts, kind.most) {
            exceeded.push(report(kind, counts));
        }
    }
    if exceeded.is_empty() {
        return Ok(());
    }
    let fix = "see what is hot by callgrind_annotate; a ceiling is raised only for a reason";
    Err(Problem::new("a decision under many entries exceeds a ceiling", exceeded.join("\n"), fix))
}

fn exceeds([one, many]: [f64; 2], most: [f64; 2]) -> bool {
    one > most[0] || many > most[1]
}

/// `tiers: 1327 of 1400, under 1,000 1532 of 1700`
fn report(kind: &Kind, [one, many]: [f64; 2]) -> String {
    let Kind { label, most, .. } = kind;
    format!("{label}: {one:.0} of {:.0}, under 1,000 {many:.0} of {:.0}", most[0], most[1])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_a_ceiling_fails() {
        let kind =
            Kind { name: "", label: "tiers", most: [10.0, 20.0], grows: GrowingPart::ByNumber };
        assert!(!exceeds([10.0, 20.0], kind.most));
        assert!(exceeds([10.5, 20.0], kind.most));
        assert!(exceeds([10.0, 20.5], kind.most));
        assert_eq!(report(&kind, [9.0, 21.0]), "tiers: 9 of 10, under 1,000 21 of 20");
    }

    // Guards: a ceiling that is raised until it limits nothing.
    #[test]
    fn the_ceiling_of_a_thousand_entries_follows_from_that_of_one() {
        for kind in &KINDS {
            let most = match kind.grows {
                GrowingPart::Hardly => 2.0,
                GrowingPart::ByNumber => 1_600.0, // they are looked up in a sorted list
            };
            assert!(kind.most[1] <= kind.most[0] * most, "{}", kind.name);
        }
    }
}
