//! Nodes that have the token and send arbitrary messages: whatever they send, the charged units and
//! those that are out fit together, and no node changes the leases of another.

use alloc::vec;
use alloc::vec::Vec;

use tollgate_core::{Algorithm, Span};

use super::random::Random;
use super::{Key, LeaseAsk, LeaseReport, at, set};
use crate::counted_set::CountedSet;
use crate::counts::Counts;
use crate::leases::lease::{Lease, MAX_LEASES};

const LIMIT: u64 = 1_000;
const RUNS: u64 = if cfg!(debug_assertions) { 150 } else { 5_000 };

/// A useful number, or one at an edge.
fn number(random: &mut Random) -> u64 {
    match random.below(6) {
        0 => u64::MAX - random.below(2),
        1 => 1 << random.below(64),
        2 => 0,
        _ => random.below(40),
    }
}

fn ask(random: &mut Random) -> LeaseAsk {
    let mut reports = Vec::new();
    for _ in 0..random.below(9) {
        let (number, spent) = (number(random), number(random));
        reports.push(LeaseReport { number, spent, is_final: random.one_in(3) });
    }
    LeaseAsk {
        set: if random.one_in(12) { number(random) } else { 9 },
        number: number(random),
        want: number(random),
        least: number(random),
        life: Span::from_millis(number(random).min(u64::from(u32::MAX))),
        reports,
    }
}

/// The leases of all nodes except this one.
fn of_others(key: &Key, table: u128) -> Vec<Lease> {
    let all = key.counts.sets.iter().flat_map(|kept| &kept.leases.all);
    all.filter(|lease| lease.id.table != table).copied().collect()
}

// Guards: a number at an edge that wraps, a report of a lease that another node holds, a lease
// without an end, and leased units that do not fit in addition to the charged ones.
#[test]
fn who_says_anything_takes_no_more_than_there_is_and_nothing_of_others() {
    let mut leased = 0;
    for seed in 0..RUNS {
        let mut random = Random(seed + 1);
        let mut key = Key::new(set(Algorithm::FixedWindow, LIMIT, 3_600));
        let (mut now, mut charged) = (0, 0);
        for _ in 0..120 {
            now += if random.one_in(4) { random.below(3_000) } else { 0 };
            let table = u128::from(1 + random.below(3));
            // Leases that are over are removed first.
            key.check(0, at(now));
            let before = of_others(&key, table);
            if random.one_in(4) {
                let cost = number(&mut random);
                let (is_charged, _, _) = key.check(cost, at(now));
                assert!(!is_charged || cost <= LIMIT);
                assert!(cost > 0 || is_charged, "what costs nothing is never refused");
            } else if let Ok(grant) = key.ask(table, ask(&mut random), at(now)) {
                leased += 1;
                assert!(grant.units <= LIMIT / 2 && grant.life <= Span::from_secs(10));
                assert!(grant.units > 0 && grant.life > Span::ZERO);
            }
            assert_eq!(of_others(&key, table), before, "seed {seed}: those of others");
            let (left, out) = (key.check(0, at(now)).1, key.out());
            let used = LIMIT - left - out;
            assert!(used >= charged, "seed {seed}: a charge that is never refunded");
            charged = used;
            assert!(left + out + used == LIMIT && left <= LIMIT, "seed {seed}");
            let leases = key.counts.sets.iter().map(|kept| kept.leases.all.len()).sum::<usize>();
            assert!(leases <= MAX_LEASES);
            let mut row = vec![];
            key.counts.encode(at(now), &mut row);
            let read = Counts::decode(&row).expect("what was written is read");
            let is_live = |kept: &&CountedSet| !kept.is_idle(at(now));
            assert!(read.sets.iter().eq(key.counts.sets.iter().filter(is_live)), "seed {seed}");
        }
        // All their leases end.
        key.check(0, at(now + 11_001));
        assert_eq!(key.out(), 0, "seed {seed}");
    }
    assert!(leased > RUNS, "{leased}");
}
