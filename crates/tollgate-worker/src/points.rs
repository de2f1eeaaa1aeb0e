//! Which points are written to Analytics Engine at a flush.
//!
//! Invariant: at most [`MAX_POINTS`], because the platform bounds the points of one invocation, and
//! their counts are all that was counted: what has no point of its own is in that of rule `(other)`
//! with the same result. The platform bills points, so a flood costs no more than a quiet day.

use std::collections::BTreeMap;

use tollgate_policy::RuleResult;
use tollgate_service::metrics::Series;

/// The fewest that the platform was ever documented to take in one invocation.
pub(crate) const MAX_POINTS: usize = 25;

/// The points for these counts, the greatest first.
pub(crate) fn points<'a>(counts: impl Iterator<Item = &'a (Series, u64)>) -> Vec<(Series, u64)> {
    let mut all: Vec<(Series, u64)> = counts.cloned().collect();
    if all.len() <= MAX_POINTS {
        return all;
    }
    all.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    // One for the rest of each result.
    let rest = all.split_off(MAX_POINTS.saturating_sub(RuleResult::ALL.len()).min(all.len()));
    let mut others: BTreeMap<Series, u64> = BTreeMap::new();
    for (series, count) in rest {
        let sum = others.entry(series.other()).or_default();
        *sum = sum.saturating_add(count);
    }
    all.extend(others);
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_service::metrics::{Family, OTHER};

    fn counts(rules: usize) -> Vec<(Series, u64)> {
        let results = RuleResult::ALL.map(RuleResult::label);
        let results = results.into_iter().cycle();
        let rule = |(count, result): (u64, &str)| {
            let name = format!("rule {count}");
            (Series::new(Family::Decisions, &[&name, "q", "", result]), count)
        };
        (1..).zip(results).map(rule).take(rules).collect()
    }

    #[test]
    fn points_are_bounded_and_their_counts_are_all() {
        for rules in [0, 1, MAX_POINTS, MAX_POINTS + 1, 10_000] {
            let counts = counts(rules);
            let points = points(counts.iter());
            assert!(points.len() <= MAX_POINTS, "{rules}: {}", points.len());
            let sum =
                |counts: &[(Series, u64)]| counts.iter().map(|(_, count)| *count).sum::<u64>();
            assert_eq!(sum(&points), sum(&counts), "{rules}");
            let has_other = points.iter().any(|(series, _)| series.values().next() == Some(OTHER));
            assert_eq!(has_other, rules > MAX_POINTS, "{rules}");
        }
        let most = points(counts(100).iter());
        assert_eq!(most[0].1, 100, "the greatest are told apart");
    }
}
