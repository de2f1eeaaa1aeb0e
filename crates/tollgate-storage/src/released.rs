//! The requests in flight that have ended lately, so that no end is counted twice.
//!
//! Invariant: a bounded number of bytes per key. A repeated end, such as that of a caller whose
//! response was lost, is known for `max_age`, while at most [`MAX_RELEASED`] other requests of the
//! key end after it. One that is repeated later may release another request: the bound of a
//! repeated retry, not of a client, since only a caller with the id can end a request. The earliest
//! end is dropped first, because it is the least likely to be repeated.
//!
//! When nothing is counted any more, a state begins again at the time of its next request, and no
//! earlier id releases anything of it (`in_flight.rs` of the core). So what has ended is dropped
//! [`ALLOWED_SKEW`] after the last one, for servers whose clocks differ.

use alloc::vec::Vec;

use tollgate_core::{ALLOWED_SKEW, Span, Timestamp};

/// The most ended requests that are remembered per key: 4 KiB of its row.
pub const MAX_RELEASED: usize = 512;

/// The ended requests of one key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReleasedRequests {
    /// From then on, none of their ids has any effect.
    pub(crate) until: Timestamp,
    /// Their random numbers, in the order of their ends.
    pub(crate) numbers: Vec<u64>,
}

impl ReleasedRequests {
    /// True when the request of this number has ended.
    pub(crate) fn contains(&self, number: u64, now: Timestamp) -> bool {
        self.until > now && self.numbers.contains(&number)
    }

    /// Adds a request that ends at `now`. Its ids have an effect for at most `max_age` longer;
    /// where `is_last`, nothing of the key is counted any more.
    pub(crate) fn add(&mut self, number: u64, max_age: Span, is_last: bool, now: Timestamp) {
        if self.until <= now {
            self.numbers.clear();
        }
        let beyond = self.numbers.len().saturating_add(1).saturating_sub(MAX_RELEASED);
        self.numbers.drain(..beyond.min(self.numbers.len()));
        self.numbers.push(number);
        self.until = self.until.max(now.saturating_add(max_age));
        if is_last {
            self.until = self.until.min(now.saturating_add(ALLOWED_SKEW));
        }
    }

    /// The time from which all of it may be dropped.
    pub(crate) const fn idle_at(&self) -> Timestamp {
        if self.numbers.is_empty() { Timestamp::ZERO } else { self.until }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::ZERO.saturating_add(Span::from_secs(seconds))
    }

    const AGE: Span = Span::from_secs(60);

    #[test]
    fn ends_are_known_for_as_long_as_they_matter() {
        let mut ended = ReleasedRequests::default();
        assert_eq!((ended.contains(0, at(1)), ended.idle_at()), (false, Timestamp::ZERO));
        ended.add(1, AGE, false, at(100));
        ended.add(2, Span::from_secs(1), false, at(101));
        let known = |now| [1, 2, 3].map(|number| ended.contains(number, now));
        assert_eq!(known(at(159)), [true, true, false], "the longest age counts");
        assert_eq!(known(at(160)), [false; 3]);
        // The last one shortens it, and never prolongs it.
        ended.add(3, AGE, true, at(110));
        assert_eq!(ended.idle_at(), at(140));
        ended.add(4, Span::from_secs(1), true, at(139));
        assert_eq!((ended.idle_at(), ended.numbers.len()), (at(140), 4));
        // What is over is dropped with the next one.
        ended.add(5, AGE, false, at(140));
        assert_eq!((ended.idle_at(), ended.numbers), (at(200), Vec::from([5])));
    }

    #[test]
    fn the_earliest_end_is_forgotten_first() {
        let mut ended = ReleasedRequests::default();
        let most = u64::try_from(MAX_RELEASED).unwrap();
        for number in 0..most {
            ended.add(number, AGE, false, at(100));
        }
        assert!(ended.contains(0, at(101)));
        ended.add(most, AGE, false, at(101));
        assert!(!ended.contains(0, at(101)) && ended.contains(1, at(101)));
        assert_eq!(ended.numbers.len(), MAX_RELEASED);
    }
}
