//! The requests sent, the part of them allowed, and the number in one window.
//!
//! Invariant: a window is half-open, `[start, start + window)`: a unit exactly one window later is
//! not in it. The counting uses no code of limiters.

use tollgate_core::{Limiter, Span, Timestamp, Verdict};

/// A number of requests for one unit each, one after the other at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestGroup {
    /// The instant.
    pub at: Timestamp,
    /// The number of requests.
    pub units: u64,
}

/// The part of `volleys`, which are in the order of time, that `limiter` allows from a new key: the
/// time of each decision, with the number of units allowed.
#[must_use]
pub fn admitted(limiter: &Limiter, volleys: &[RequestGroup]) -> Vec<RequestGroup> {
    let mut state = vec![0; limiter.state_len()];
    let mut admissions = Vec::new();
    for RequestGroup { at, units } in volleys {
        let passes = |_: &u64| limiter.check(&mut state, *at, 1).is_admitted();
        let units = (0..*units).take_while(passes).count();
        admissions.push(RequestGroup { at: *at, units: u64::try_from(units).expect("a count") });
    }
    admissions
}

/// The departure times of the allowed part of `volleys`: later than the decision where it waits.
#[must_use]
pub fn departures(limiter: &Limiter, volleys: &[RequestGroup]) -> Vec<RequestGroup> {
    let mut state = vec![0; limiter.state_len()];
    let mut departures = Vec::new();
    for RequestGroup { at, units } in volleys {
        for _ in 0..*units {
            match limiter.check(&mut state, *at, 1).verdict {
                Verdict::Allow => departures.push(RequestGroup { at: *at, units: 1 }),
                Verdict::Delay(wait) => {
                    departures.push(RequestGroup { at: at.saturating_add(wait), units: 1 });
                }
                Verdict::Deny | Verdict::Penalty => break,
            }
        }
    }
    departures
}

/// The most units of `volleys`, which are in the order of time, in any half-open window.
#[must_use]
pub fn most_in_window(volleys: &[RequestGroup], window: Span) -> u64 {
    busiest(volleys, window).1
}

/// The start of the busiest half-open window, the first one if there are several, and its units.
#[must_use]
pub fn busiest(volleys: &[RequestGroup], window: Span) -> (Timestamp, u64) {
    let (mut first, mut inside) = (0, 0);
    let mut best = (Timestamp::ZERO, 0);
    for volley in volleys {
        inside += volley.units;
        while volley.at.since(volleys[first].at) >= window {
            inside -= volleys[first].units;
            first += 1;
        }
        if inside > best.1 {
            best = (volleys[first].at, inside);
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_core::{Algorithm, Quota};

    fn volleys(pairs: &[(u64, u64)]) -> Vec<RequestGroup> {
        pairs
            .iter()
            .map(|(ms, units)| RequestGroup { at: Timestamp::from_millis(*ms), units: *units })
            .collect()
    }

    #[test]
    fn a_window_ends_before_its_end() {
        let second = Span::from_secs(1);
        assert_eq!(most_in_window(&[], second), 0);
        assert_eq!(most_in_window(&volleys(&[(0, 2), (1000, 3)]), second), 3);
        assert_eq!(most_in_window(&volleys(&[(0, 2), (999, 3), (1000, 1)]), second), 5);
        assert_eq!(
            busiest(&volleys(&[(5, 1), (5, 1), (2000, 2)]), second).0,
            Timestamp::from_millis(5)
        );
    }

    #[test]
    fn what_waits_departs_later_than_it_is_admitted() {
        let quota = Quota::new(2, Span::from_secs(1)).unwrap();
        let queue = Limiter::new(Algorithm::LeakyQueue, quota).unwrap();
        let sent = volleys(&[(0, 3), (500, 1)]);
        assert_eq!(admitted(&queue, &sent), volleys(&[(0, 2), (500, 1)]));
        assert_eq!(departures(&queue, &sent), volleys(&[(0, 1), (500, 1), (1000, 1)]));
    }
}
