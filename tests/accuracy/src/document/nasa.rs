//! A day of real traffic, and independent measurements of it.
//!
//! Invariant: the independent figures are met to the digit, or the document is not made.

use super::{Block, rows::grouped};
use crate::adversary::Goal;
use crate::measure::{Arrival, Measured, measure};
use crate::subject::{PARTS, Subject, half, subjects};
use tollgate_core::Span;
use tollgate_report::{Cell, Column, Table};

/// A limit and its window in seconds.
pub type PerSeconds = (u64, u64);

/// The quotas that are measured.
pub const QUOTAS: [PerSeconds; 3] = [(10, 60), (20, 60), (5, 10)];

/// The figures that independent code measured on the same day: percent of all requests, as they
/// were recorded, and the most that one client was allowed in any true window.
struct Independent {
    name: &'static str,
    false_allow: &'static str,
    false_deny: &'static str,
    most: u64,
}

const fn independent(
    name: &'static str,
    false_allow: &'static str,
    false_deny: &'static str,
    most: u64,
) -> Independent {
    Independent { name, false_allow, false_deny, most }
}

/// For each of [`QUOTAS`].
const INDEPENDENT: [[Independent; 4]; 3] = [
    [
        independent("fixed-window", "1.80", "0.21", 20),
        independent("sliding-window, strict", "0.97", "0.48", 16),
        independent("gcra", "2.75", "0.006", 19),
        independent("gcra, burst limit / 2, strict", "1.03", "7.87", 10),
    ],
    [
        independent("fixed-window", "0.090", "0.016", 28),
        independent("sliding-window, strict", "0.045", "0.016", 26),
        independent("gcra", "0.136", "0", 29),
        independent("gcra, burst limit / 2, strict", "0.029", "0.41", 20),
    ],
    [
        independent("fixed-window", "2.75", "0.12", 10),
        independent("sliding-window, strict", "0.55", "0.78", 8),
        independent("gcra", "4.99", "0.04", 9),
        independent("gcra, burst limit / 2, strict", "1.88", "14.2", 5),
    ],
];

/// All measurements at one quota.
struct OfQuota {
    quota: PerSeconds,
    measured: Vec<(Subject, Measured)>,
}

/// The tables of the day.
///
/// # Errors
/// A figure differs from the independent one.
pub fn block(arrivals: &[Arrival]) -> Result<Block, String> {
    let all = QUOTAS.map(|quota| OfQuota::of(quota, arrivals));
    let mut text = String::new();
    for (of, independent) in all.iter().zip(&INDEPENDENT) {
        let (limit, seconds) = of.quota;
        text.push_str(&format!("### {limit} per {seconds} s\n\n"));
        let exact = of.measured.last().map_or(0, |(_, measured)| measured.exact_denied);
        text.push_str(&format!("An exact log denies {exact} of {} requests.\n\n", arrivals.len()));
        text.push_str(&of.table().to_markdown());
        text.push_str("\nCompared with independent measurements:\n\n");
        text.push_str(&of.compared(independent)?.to_markdown());
        text.push('\n');
    }
    Ok(Block { name: "nasa", text })
}

impl OfQuota {
    fn of((limit, seconds): PerSeconds, arrivals: &[Arrival]) -> Self {
        let subjects = subjects(limit, Span::from_secs(seconds), &[half(limit)], &PARTS);
        let measured = |subject: Subject| {
            let measured = measure(&subject.limiter, arrivals);
            (subject, measured)
        };
        Self { quota: (limit, seconds), measured: subjects.into_iter().map(measured).collect() }
    }

    fn table(&self) -> Table {
        let mut table = Table::new("nasa", "")
            .column(Column::text("algorithm"))
            .column(Column::share("false allow").decimals(3))
            .column(Column::share("false deny").decimals(3))
            .column(Column::share("wrong").decimals(3))
            .column(Column::count("refused"))
            .column(Column::count("most in a window"))
            .column(Column::count("at worst"))
            .column(Column::text("bytes"));
        let row = |(subject, measured): &(Subject, Measured)| {
            (subject.name.clone(), (*measured, Goal::Departures.bound(&subject.limiter)))
        };
        for (name, (measured, worst)) in grouped(self.measured.iter().map(row)) {
            let Measured { requests, false_allow, false_deny, denied, most, .. } = measured;
            table.push([
                Cell::text(name.clone()),
                Cell::share(false_allow, requests),
                Cell::share(false_deny, requests),
                Cell::share(false_allow + false_deny, requests),
                Cell::Count(denied),
                Cell::Count(most),
                Cell::Count(worst),
                Cell::text(self.bytes(&name)),
            ]);
        }
        table
    }

    /// The bytes of each algorithm in a row: `8, 16, 16`.
    fn bytes(&self, name: &str) -> String {
        let (algorithms, options) = name.split_once(": ").unwrap_or((name, ""));
        let bytes = algorithms.split(", ").filter_map(|algorithm| {
            let gap = if options.is_empty() { "" } else { ", " };
            let name = format!("{algorithm}{gap}{options}");
            let mut all = self.measured.iter();
            all.find(|(subject, _)| subject.name == name)
                .map(|(subject, _)| subject.limiter.state_len().to_string())
        });
        bytes.collect::<Vec<_>>().join(", ")
    }

    fn compared(&self, independent: &[Independent]) -> Result<Table, String> {
        let mut table = Table::new("independent", "")
            .column(Column::text("algorithm"))
            .column(Column::text("false allow, %: theirs"))
            .column(Column::text("ours"))
            .column(Column::text("false deny, %: theirs"))
            .column(Column::text("ours"))
            .column(Column::count("most: theirs"))
            .column(Column::count("ours"));
        for theirs in independent {
            let found = self.measured.iter().find(|(subject, _)| subject.name == theirs.name);
            let (_, ours) = found.ok_or_else(|| format!("{} is not measured", theirs.name))?;
            let allow = percent(ours.false_allow, ours.requests, theirs.false_allow);
            let deny = percent(ours.false_deny, ours.requests, theirs.false_deny);
            let is_met = is_met(&allow, theirs.false_allow) && is_met(&deny, theirs.false_deny);
            if !is_met || ours.most != theirs.most {
                let (limit, seconds) = self.quota;
                return Err(format!(
                    "{} at {limit} per {seconds} s: false allow {allow} %, false deny {deny} %, most {}; independently \
                     measured {}, {}, {}",
                    theirs.name, ours.most, theirs.false_allow, theirs.false_deny, theirs.most
                ));
            }
            let texts = [theirs.false_allow, &allow, theirs.false_deny, &deny].map(Cell::text);
            let counts = [theirs.most, ours.most].map(Cell::Count);
            table.push([Cell::text(theirs.name)].into_iter().chain(texts).chain(counts));
        }
        Ok(table)
    }
}

/// `part` of `whole` in percent, with as many decimals as `theirs`.
///
/// The independent figures had two or more decimals; those of 10 % and more were later shortened to
/// one: 14.15 to 14.2. Here both are shown.
fn percent(part: u64, whole: u64, theirs: &str) -> String {
    let decimals = match theirs.split_once('.').map_or(0, |(_, decimals)| decimals.len()) {
        1 => 2,
        as_many => as_many,
    };
    let scale = 10_u64.pow(u32::try_from(decimals).expect("a few decimals"));
    fixed((200 * scale * part + whole) / (2 * whole), decimals)
}

/// 1415 with two decimals is `14.15`.
fn fixed(scaled: u64, decimals: usize) -> String {
    let scale = 10_u64.pow(u32::try_from(decimals).expect("a few decimals"));
    match decimals {
        0 => scaled.to_string(),
        _ => format!("{}.{:0decimals$}", scaled / scale, scaled % scale),
    }
}

/// True when `ours` equals `theirs`, after the same shortening.
fn is_met(ours: &str, theirs: &str) -> bool {
    let Some(longer) = ours.strip_suffix(|digit: char| digit.is_ascii_digit()) else {
        return false;
    };
    if longer.len() != theirs.len() || !theirs.contains('.') {
        return ours == theirs;
    }
    let hundredths: u64 = ours.replace('.', "").parse().expect("digits");
    fixed((hundredths + 5) / 10, 1) == theirs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percent_has_the_decimals_that_it_is_compared_with() {
        for (part, theirs, ours) in [
            (558, "1.80", "1.80"),
            (2, "0.006", "0.006"),
            (4_382, "14.2", "14.15"),
            (13, "0.04", "0.04"),
            (0, "0", "0"),
        ] {
            assert_eq!(percent(part, 30_969, theirs), ours);
            assert!(is_met(ours, theirs), "{ours} {theirs}");
        }
        for (ours, theirs) in [("1.81", "1.80"), ("14.25", "14.2"), ("14.14", "14.2"), ("1", "0")] {
            assert!(!is_met(ours, theirs), "{ours} {theirs}");
        }
    }

    /// Guards: a document that claims independent agreement when there is none.
    #[test]
    fn other_traffic_is_not_taken_for_the_day() {
        let at = tollgate_core::Timestamp::from_millis(807_256_800_000);
        assert!(block(&[Arrival { at, client: 1 }]).unwrap_err().contains("independently"));
    }
}
