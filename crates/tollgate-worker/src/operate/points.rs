//! The points that are written to Analytics Engine at a flush.
//!
//! Invariant: at most [`MAX_POINTS`], because the platform bounds the points of one invocation, and
//! the sum of their counts is complete: counts without a point of their own are in that of rule
//! `(other)` with the same result. The platform bills points, so a flood costs no more than a quiet
//! day.

use tollgate_policy::RuleResult;
use tollgate_service::metrics::Series;

/// The lowest limit that the platform ever documented for one invocation.
pub(crate) const MAX_POINTS: usize = 25;

/// The points for these counts.
pub(crate) fn points<'a>(counts: impl Iterator<Item = &'a (Series, u64)>) -> Vec<(Series, u64)> {
    let mut rest: Vec<(Series, u64)> = counts.cloned().collect();
    if rest.len() <= MAX_POINTS {
        return rest;
    }
    let mut points = Vec::new();
    // The greatest have their own points, and each result has one for its rest.
    for _ in RuleResult::ALL.len()..MAX_POINTS {
        let greatest = rest.iter().enumerate().max_by_key(|(_, (_, count))| *count);
        let Some(greatest) = greatest.map(|(i, _)| i) else { break };
        points.push(rest.swap_remove(greatest));
    }
    let mut others: Vec<(Series, u64)> = Vec::new();
    for (series, count) in rest {
        let other = series.other();
        match others.iter_mut().find(|(of, _)| *of == other) {
            Some((_, sum)) => *sum = sum.saturating_add(count),
            None => others.push((other, count)),
        }
    }
    points.append(&mut others);
    points
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
