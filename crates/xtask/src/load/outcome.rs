//! The result of one run: counts, latencies, and a course over time.
//!
//! Invariant: pure. Every request that was sent is counted once: served, denied or failed.

use super::h2load::Answer;
use std::time::Duration;

/// The width of a bin of the plot.
const BIN_US: u64 = 200_000;

/// The results of one server under one load.
#[derive(Debug, Default, Clone)]
pub struct Outcome {
    pub served: u64,
    pub refused: u64,
    /// Neither: no response, or any other status.
    pub failed: u64,
    /// From the first request sent to the last response.
    pub elapsed: Duration,
    /// Of all responses, in milliseconds, in rising order.
    pub latencies: Vec<f64>,
    /// When each bin begins in seconds since the first request: served, denied, failed per second.
    pub course: Vec<(f64, [f64; 3])>,
}

impl Outcome {
    pub fn of(answers: &[Answer]) -> Self {
        let mut outcome = Self::default();
        let Some(first) = answers.iter().map(|answer| answer.sent_us).min() else {
            return outcome;
        };
        let last = answers.iter().map(|answer| answer.sent_us + answer.took_us).max();
        outcome.elapsed = Duration::from_micros(last.unwrap_or(first) - first);
        let end = answers.iter().map(|answer| answer.sent_us).max().unwrap_or(first);
        let mut bins = vec![[0_u64; 3]; bin(end - first) + 1];
        for answer in answers {
            let kind = match answer.status {
                Some(200..=299) => 0,
                Some(429) => 1,
                Some(_) | None => 2,
            };
            bins[bin(answer.sent_us - first)][kind] += 1;
            *[&mut outcome.served, &mut outcome.refused, &mut outcome.failed][kind] += 1;
            if answer.status.is_some() {
                outcome.latencies.push(answer.took_us as f64 / 1000.0);
            }
        }
        outcome.latencies.sort_by(f64::total_cmp);
        let per_second = |count: u64| count as f64 * 1e6 / BIN_US as f64;
        let course = bins.iter().enumerate();
        outcome.course = course
            .map(|(i, counts)| (i as f64 * BIN_US as f64 / 1e6, counts.map(per_second)))
            .collect();
        outcome
    }

    pub const fn sent(&self) -> u64 {
        self.served + self.refused + self.failed
    }
}

fn bin(offset_us: u64) -> usize {
    usize::try_from(offset_us / BIN_US).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_sent_is_counted_once() {
        let answer = |sent_us, status, took_us| Answer { sent_us, status, took_us };
        let outcome = Outcome::of(&[
            answer(5_000_000, Some(200), 1000),
            answer(5_000_100, Some(429), 3000),
            answer(5_450_000, None, 9),
            answer(5_450_001, Some(503), 2000),
        ]);
        assert_eq!((outcome.served, outcome.refused, outcome.failed, outcome.sent()), (1, 1, 2, 4));
        assert_eq!(outcome.elapsed, Duration::from_micros(452_001));
        assert_eq!(outcome.course.len(), 3);
        assert_eq!(outcome.course[0].1.map(|x| x as u64), [5, 5, 0]);
        assert_eq!(outcome.course[2].1.map(|x| x as u64), [0, 0, 10]);
        assert_eq!(outcome.latencies.iter().map(|ms| *ms as u64).collect::<Vec<_>>(), [1, 2, 3]);
    }

    #[test]
    fn nothing_sent_is_nothing() {
        let outcome = Outcome::of(&[]);
        assert_eq!((outcome.sent(), outcome.course.len()), (0, 0));
        assert!(outcome.latencies.is_empty());
    }
}
