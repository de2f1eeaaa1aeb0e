//! Several servers under the same load in turns, and the cost of each request on each of them.
//!
//! Invariant: all servers run from the beginning to the end, one of them is loaded at a time, and
//! each round begins with another one. A server with a wrong response fails the run.

use super::{
    cpu,
    effort::Effort,
    figures::{Table, figure, least, median, most, paired_difference, paired_ratio},
    wrk::{self, Requests},
};
use crate::{
    problem::{Problem, Result},
    servers::Server,
};
use std::time::Duration;

/// The most requests that may pass before a limiter that starts full denies the rest.
const FIRST_ADMITTED: u64 = 10;
/// V8 compiles hot code in steps.
const WARM_UP: Duration = Duration::from_secs(2);

/// The required property of every response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expect {
    Passed,
    Refused,
}

/// One row of the table: a server, and its requests.
#[derive(Debug)]
pub struct Subject {
    pub name: &'static str,
    pub server: Server,
    pub requests: Requests,
    pub expect: Expect,
}

/// Microseconds of CPU per request: one row per subject, one column per round.
pub fn measure(what: &str, subjects: &[Subject], effort: Effort) -> Result<Vec<Vec<f64>>> {
    for subject in subjects {
        subject.cost_us(WARM_UP)?;
    }
    let mut costs = vec![Vec::new(); subjects.len()];
    for round in 0..effort.rounds {
        eprintln!("  {what}: round {} of {}", round + 1, effort.rounds);
        for index in rotated(subjects.len(), round) {
            costs[index].push(subjects[index].cost_us(effort.duration())?);
        }
    }
    Ok(costs)
}

impl Subject {
    fn cost_us(&self, duration: Duration) -> Result<f64> {
        let pid = self.server.running.pid();
        let before_ns = cpu::used_ns(pid)?;
        let served = wrk::load(self.server.port, &self.requests, duration)?;
        let used_ns = cpu::used_ns(pid)?.saturating_sub(before_ns);
        let wrong = match self.expect {
            Expect::Passed => served.refused,
            Expect::Refused => (served.requests - served.refused).saturating_sub(FIRST_ADMITTED),
        };
        if wrong > 0 {
            let why = format!("{wrong} of {} answers are not {:?}", served.requests, self.expect);
            let fix = format!("read its log: {}", self.server.log.display());
            return Err(Problem::new(format!("{} does not do its work", self.name), why, fix));
        }
        Ok(used_ns as f64 / served.requests as f64 / 1000.0)
    }
}

/// `0..len`, beginning with another one in each round.
fn rotated(len: usize, round: u32) -> impl Iterator<Item = usize> {
    (0..len).map(move |index| (index + round as usize) % len)
}

/// A table of costs, with the difference to the first row; each `(heading, row)` of `bases` becomes
/// a column of ratios to that row.
pub fn table(title: &str, names: &[&str], costs: &[Vec<f64>], bases: &[(&str, usize)]) -> Table {
    let mut heading = vec!["", "CPU us/request", "least-most", "added us"];
    heading.extend(bases.iter().map(|(name, _)| *name));
    let mut table = Table::new(title, &heading);
    for (name, costs_of) in names.iter().zip(costs) {
        let added = figure(paired_difference(costs_of, &costs[0]), 1);
        let spread = format!("{}-{}", figure(least(costs_of), 1), figure(most(costs_of), 1));
        let mut cells = vec![(*name).to_owned(), figure(median(costs_of), 1), spread, added];
        let ratio = |(_, base): &(&str, usize)| figure(paired_ratio(costs_of, &costs[*base]), 2);
        cells.extend(bases.iter().map(ratio));
        table.row(cells);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_round_begins_with_another_one() {
        let order = |round| rotated(3, round).collect::<Vec<_>>();
        assert_eq!([order(0), order(1), order(4)], [[0, 1, 2], [1, 2, 0], [1, 2, 0]]);
    }

    #[test]
    fn costs_become_a_table_with_ratios() {
        let costs = [vec![10.0, 20.0, 11.0], vec![15.0, 30.0, 15.0]];
        let text = table("T", &["none", "some"], &costs, &[("x none", 0)]).markdown();
        let expected = "### T\n\n|  | CPU us/request | least-most | added us | x none |\n\
                        | --- | ---: | ---: | ---: | ---: |\n\
                        | none | 11.0 | 10.0-20.0 | 0.0 | 1.00 |\n\
                        | some | 15.0 | 15.0-30.0 | 5.0 | 1.50 |\n";
        assert_eq!(text, expected);
    }
}
