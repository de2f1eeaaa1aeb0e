//! The counts of a key that a store may drop while units of it are leased.

use tollgate_core::{ALLOWED_SKEW, Algorithm, Span};

use super::random::Random;
use super::{Key, at, granted, report, set, want};

// Guards: a key near its limit that a full table treats as little used, because its leased units
// are charged in the next window only: it is evicted, and allowed again.
#[test]
fn what_is_leased_makes_no_key_look_less_used() {
    let mut random = Random(5);
    for algorithm in Algorithm::ALL {
        if algorithm == Algorithm::LeakyQueue {
            continue; // no leases
        }
        for _ in 0..200 {
            let mut key = Key::new(set(algorithm, 100, 10));
            let charged = random.below(96);
            let from = random.below(10_000);
            assert!(charged == 0 || key.check(charged, at(from)).0);
            let now = at(from + random.below(4_000));
            let before = key.counts.used(now);
            let leased = key.ask(1, want(1, 1 + random.below(100)), now);
            let Ok(grant) = leased else { continue };
            assert_eq!(leased, granted(grant.units));
            let used = key.counts.used(now);
            let mut spent = Key::new(key.set.clone());
            spent.counts = key.counts.clone();
            spent.tell(1, report(1, grant.units, true), now);
            assert!(used >= before, "{algorithm:?}: {used} of {before} without what is leased");
            let of_spent = spent.counts.used(now);
            assert_eq!(used, of_spent, "{algorithm:?}: as if all were spent");
            // Nor is it idle before units that are out can be spent and are charged.
            let end = now.saturating_add(Span::from_secs(3));
            assert!(key.counts.idle_at() >= end.max(spent.counts.idle_at()), "{algorithm:?}");
            let mut row = alloc::vec::Vec::new();
            key.counts.encode(end.saturating_add(ALLOWED_SKEW), &mut row);
            let read = super::Counts::decode(&row).unwrap();
            assert_eq!(read.sets.len(), 1, "{algorithm:?}: it is in the row");
        }
    }
}
