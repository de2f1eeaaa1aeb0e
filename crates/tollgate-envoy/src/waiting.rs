//! The requests that were told to wait: when each is due, soonest first.
//!
//! Invariant: at most [`MAX_WAITING`] wait, and nobody is let go before its time. A client that leaves
//! keeps its entry until it is due; resuming it then does nothing. Deliberately absent: host calls.

use core::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use tollgate_core::Timestamp;

/// Requests that one policy holds in one worker: each is an open stream with its buffers.
pub const MAX_WAITING: usize = 10_000;

/// The waiting requests of one policy in one worker.
pub struct Waiting<R> {
    heap: BinaryHeap<Reverse<(Timestamp, u32)>>,
    /// What is done with a stream when it is due, other than to let it go on.
    pub retries: BTreeMap<u32, R>,
}

impl<R> Default for Waiting<R> {
    fn default() -> Self {
        Self { heap: BinaryHeap::new(), retries: BTreeMap::new() }
    }
}

impl<R> Waiting<R> {
    /// Lets the stream `id` wait until `due`; false when too many wait already.
    #[must_use]
    pub fn push(&mut self, due: Timestamp, id: u32) -> bool {
        if self.heap.len() >= MAX_WAITING {
            return false;
        }
        self.heap.push(Reverse((due, id)));
        true
    }

    /// The next stream that is due at `now`.
    pub fn pop_due(&mut self, now: Timestamp) -> Option<u32> {
        let Reverse((due, id)) = *self.heap.peek()?;
        if due > now {
            return None;
        }
        self.heap.pop();
        Some(id)
    }

    /// In how many milliseconds the next one is due, rounded up and at least 1: the period of the
    /// host's tick. Zero, which switches the tick off, when nobody waits.
    pub fn tick_ms(&self, now: Timestamp) -> u32 {
        let Some(Reverse((due, _))) = self.heap.peek() else { return 0 };
        u32::try_from(due.since(now).as_millis_ceil()).unwrap_or(u32::MAX).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(nanos: u64) -> Timestamp {
        Timestamp::from_nanos(nanos)
    }

    #[test]
    fn the_soonest_goes_first_and_never_early() {
        let mut waiting = Waiting::<()>::default();
        for (due, id) in [(3_000_000, 1), (1_000_001, 2), (3_000_000, 0)] {
            assert!(waiting.push(at(due), id));
        }
        assert_eq!(waiting.tick_ms(at(0)), 2);
        assert_eq!(waiting.pop_due(at(1_000_000)), None);
        assert_eq!(waiting.pop_due(at(1_000_001)), Some(2));
        assert_eq!(waiting.pop_due(at(1_000_001)), None);
        assert_eq!(waiting.tick_ms(at(5_000_000)), 1);
        assert_eq!(waiting.pop_due(at(5_000_000)), Some(0));
        assert_eq!(waiting.pop_due(at(5_000_000)), Some(1));
        assert_eq!((waiting.pop_due(at(u64::MAX)), waiting.tick_ms(at(0))), (None, 0));
    }

    #[test]
    fn the_number_is_bounded() {
        let mut waiting = Waiting::<()>::default();
        for id in 0..MAX_WAITING {
            assert!(waiting.push(at(1), u32::try_from(id).unwrap()));
        }
        assert!(!waiting.push(at(1), 0));
        assert!(waiting.pop_due(at(1)).is_some());
        assert!(waiting.push(at(1), 0));
    }
}
