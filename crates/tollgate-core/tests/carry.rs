//! Quotas that are changed while keys are in use: used units stay used. All pairs of algorithms,
//! with bursts, strict and weighted.

use crate::support::arbitrary::*;
use crate::support::oracle::Oracle;
use proptest::prelude::*;
use tollgate_core::{Algorithm, LATEST, Limiter, Quota, Span};

const CASES: u32 = if cfg!(debug_assertions) { 2_000 } else { 20_000 };

/// The key under `limiter` from `now` on.
fn carried(key: &Key, limiter: Limiter, now: u64) -> Key {
    let mut next = Key { limiter, state: vec![0xff; limiter.state_len()] };
    limiter.carry(&key.limiter, &key.state, at(now), &mut next.state);
    next
}

/// The used units at `now`.
fn used(key: &Key, now: u64) -> u64 {
    key.limiter.capacity() - key.peek(now, 0).remaining
}

/// Any two limiters, half of them of one algorithm in one window, for which most is kept.
fn change() -> impl Strategy<Value = (Limiter, Limiter)> {
    (limiter(), limiter(), any::<bool>()).prop_map(|(old, other, is_near)| {
        if is_near { (old, near(&old, &other)) } else { (old, other) }
    })
}

/// A limiter by the algorithm and in the window of `old`, as far as the numbers of `other` allow.
fn near(old: &Limiter, other: &Limiter) -> Limiter {
    let algorithm = match old.algorithm() {
        Algorithm::SlidingBuckets { buckets, .. } => {
            Algorithm::SlidingBuckets { buckets, weighted: other.algorithm().is_weighted() }
        }
        same => same,
    };
    let numbers = Numbers {
        limit: other.limit(),
        window_ns: old.window().as_nanos(),
        burst: other.capacity(),
        strict: other.quota().is_strict(),
    };
    build(algorithm, numbers)
}

/// A key that was used from `start` on, and the time of its last request.
fn in_use(limiter: Limiter, start: u64, steps: &[Step]) -> (Key, u64) {
    let mut key = Key::new(limiter);
    let mut now = start;
    run(&mut key, start, steps, |_, at, _, _| now = at);
    (key, now)
}

/// Mostly none; sometimes enough that the clock is late, and more than any state is used with.
fn late_ns() -> impl Strategy<Value = u64> {
    prop_oneof![4 => Just(0), 2 => 0..=SKEW_NS, 1 => SKEW_NS..400 * SKEW_NS]
}

proptest! {
    #![proptest_config(config(CASES))]

    /// After the change every decision is that of an oracle that knows the whole history and the
    /// documented effect of the change.
    #[test]
    fn random_changes_agree(
        (old, new) in change(), start in start(), before in steps(25), pause in pause(),
        late_ns in prop_oneof![2 => Just(0), 1 => 0..=SKEW_NS], after in steps(12),
    ) {
        let mut oracle = Oracle::new(&old);
        let mut key = Key::new(old);
        let (mut now, mut retry_after) = (start + SKEW_NS, None);
        run(&mut key, now, &before, |_, at, cost, decision| {
            oracle.follow(at, cost, decision);
            (now, retry_after) = (at, decision.retry_after);
        });
        let now = pause.after(now, old.window().as_nanos(), retry_after) - late_ns;
        let mut next = carried(&key, new, now);
        // Whether units are held or not, the same quota keeps the bytes that decide.
        let is_kept = (new.algorithm(), new.quota()) == (old.algorithm(), old.quota());
        let mut oracle = if is_kept { oracle } else { oracle.carried(&new, now.into()) };
        run(&mut next, now, &after, |_, at, cost, decision| oracle.follow(at, cost, decision));
    }

    /// At the change no more is allowed than the new capacity less the used units, on any clock and
    /// whatever the bytes are. The exception is buckets that no limiter wrote: when charged, they
    /// add up their counters.
    #[test]
    fn at_the_change_nothing_is_given_back(
        (old, new) in change(), start in start(), steps in steps(40), pause in pause(),
        late_ns in late_ns(), damage in prop::option::weighted(0.2, damage()),
    ) {
        let (mut key, now) = in_use(old, start, &steps);
        let now = pause.after(now, old.window().as_nanos(), None).saturating_sub(late_ns);
        if let Some(damage) = damage.filter(|_| old.algorithm().buckets().is_none()) {
            damage.apply(&mut key.state);
        }
        let used = used(&key, now);
        let mut next = carried(&key, new, now);
        let room = new.capacity().saturating_sub(used);
        prop_assert!(next.peek(now, 0).remaining <= room, "{used} used, {next:?}");
        prop_assert!(!next.check(now, room + 1).is_admitted(), "{used} used, {next:?}");
    }

    /// A quota that is not changed keeps every byte, whatever they are, foreign or not.
    #[test]
    fn an_unchanged_quota_keeps_every_byte(
        limiter in limiter(), damage in damage(), now in any_time(),
    ) {
        let mut key = Key::new(limiter);
        damage.apply(&mut key.state);
        prop_assert_eq!(&carried(&key, limiter, now).state, &key.state);
    }

    /// To a larger capacity and back never leaves more than there was.
    #[test]
    fn there_and_back_gives_nothing(
        (old, new) in change(), start in start(), steps in steps(40), pause in pause(),
    ) {
        let (old, new) = if new.capacity() < old.capacity() { (new, old) } else { (old, new) };
        let (key, now) = in_use(old, start, &steps);
        let now = pause.after(now, old.window().as_nanos(), None);
        let back = carried(&carried(&key, new, now), old, now);
        prop_assert!(used(&back, now) >= used(&key, now), "{key:?} by {new:?}");
    }

    /// A key that is idle at the change decides like never seen from then on, in every field.
    #[test]
    fn what_is_idle_stays_idle(
        (old, new) in change(), start in start(), before in steps(20), pause in pause(), after in steps(10),
    ) {
        let (key, now) = in_use(old, start, &before);
        let now = now.max(old.idle_at(&key.state).as_nanos());
        let now = pause.after(now, old.window().as_nanos(), None);
        let mut next = carried(&key, new, now);
        let mut fresh = Key::new(new);
        let kept = run(&mut next, now, &after, |_, _, _, _| {});
        let forgotten = run(&mut fresh, now, &after, |_, _, _, _| {});
        prop_assert_eq!(format!("{kept:?}"), format!("{forgotten:?}"));
    }

    /// Any bytes are carried to a state: nothing traps, never more than the capacity at one
    /// instant, and no request is denied for longer than two bursts or windows and the skew.
    #[test]
    fn any_bytes_are_carried(
        (old, new) in change(), damage in damage(), length in prop::option::weighted(0.1, 0..300_usize),
        now in any_time(), costs in prop::collection::vec(0..20_u64, 8),
    ) {
        let mut key = Key::new(old);
        key.state.resize(length.unwrap_or(old.state_len()), 0);
        if !key.state.is_empty() {
            damage.apply(&mut key.state);
        }
        let mut next = carried(&key, new, now);
        if key.state.len() != old.state_len() {
            prop_assert_eq!(&next.state, &Key::new(new).state, "what is no state has used nothing");
        }
        let wait_ns = next.peek(now, new.capacity()).retry_after.map_or(0, Span::as_nanos);
        prop_assert!(wait_ns <= longest_wait_ns(&new), "{wait_ns} by {new:?} from {key:?}");
        let whole_at = now.saturating_add(longest_wait_ns(&new));
        let is_whole = whole_at > LATEST.as_nanos() || next.peek(whole_at, new.capacity()).is_admitted();
        prop_assert!(is_whole || wait_ns == 0, "{new:?} from {key:?}");
        let mut units = 0;
        for cost in costs {
            units += if next.check(now, cost).is_admitted() { cost } else { 0 };
        }
        prop_assert!(units <= new.capacity(), "{units} by {new:?} from {key:?}");
        let mut other = vec![7; new.state_len() + 1];
        new.carry(&old, &key.state, at(now), &mut other);
        prop_assert_eq!(other, vec![7; new.state_len() + 1], "another length is left as it is");
    }
}

proptest! {
    #![proptest_config(config(if cfg!(debug_assertions) { 300 } else { 6_000 }))]

    /// In no half-open window across the change is more allowed than the bound, however requests
    /// use the capacity at these times.
    #[test]
    fn never_above_the_bound_across_a_change(
        (old, new) in change(), start in start(),
        mut pauses in prop::collection::vec(pause(), 9), change in 2..8_usize,
    ) {
        pauses[0] = Pause::None;
        let window_ns = old.window().min(new.window()).as_nanos();
        let mut now = start;
        let times = pauses.iter().map(|pause| {
            now = pause.after(now, window_ns, Some(Span::from_nanos(window_ns / 2)));
            now
        });
        let world = World { times: times.collect(), change, new, window_ns };
        let most = world.most(0, &Key::new(old), &mut Vec::new());
        let bound = bound(&old, &new);
        prop_assert!(old == new || most <= bound, "{most} of {bound}: {old:?} to {new:?}");
    }
}

/// Units allowed at most in any half-open window across a change that is as long as the shorter of
/// the two windows, as documented in docs/policy/quotas.md.
fn bound(old: &Limiter, new: &Limiter) -> u64 {
    let (from, to) = (old.algorithm(), new.algorithm());
    let is_queue = |algorithm| algorithm == Algorithm::LeakyQueue;
    if from.has_burst() && to.has_burst() && is_queue(from) == is_queue(to) {
        let interval_ns = emission_interval_ns(old.quota()).min(emission_interval_ns(new.quota()));
        let window_ns = old.window().min(new.window()).as_nanos();
        return old.capacity().max(new.capacity()) + window_ns.div_ceil(interval_ns) - 1;
    }
    let (before, after) = (old.max_in_window(), new.max_in_window());
    if from == to && old.window() == new.window() {
        return before.max(after);
    }
    before + after - old.capacity().min(new.capacity())
}

/// Everything that can be taken at these times, when the quota is changed at one of them.
struct World {
    times: Vec<u64>,
    change: usize,
    new: Limiter,
    window_ns: u64,
}

impl World {
    /// The most that is allowed in a window across the change, from the `index`-th time on: of
    /// nothing, one unit and all that remains at each.
    fn most(&self, index: usize, key: &Key, taken: &mut Vec<(u64, u64)>) -> u64 {
        let Some(now) = self.times.get(index).copied() else { return 0 };
        let changed = (index == self.change).then(|| carried(key, self.new, now));
        let key = changed.as_ref().unwrap_or(key);
        let mut most = self.most(index + 1, key, taken);
        let remaining = key.peek(now, 0).remaining;
        for units in [1, remaining] {
            if units == 0 || units > remaining {
                continue;
            }
            let mut key = key.clone();
            key.check(now, units);
            taken.push((now, units));
            if index >= self.change {
                let inside = taken.iter().filter(|(at, _)| now - at < self.window_ns);
                most = most.max(inside.map(|(_, units)| units).sum());
            }
            most = most.max(self.most(index + 1, &key, taken));
            taken.pop();
        }
        most
    }
}

/// The bytes of a debt are those of a charge at the time of the change, so that the next decision
/// is one of the usual case: for gcra, token and leaky bucket.
#[test]
fn a_debt_lies_as_it_was_charged() {
    const SECOND: u64 = 1_000_000_000;
    let limiter = |algorithm, limit| {
        build(algorithm, Numbers { limit, window_ns: 60 * SECOND, burst: limit, strict: false })
    };
    let mut key = Key::new(limiter(Algorithm::Gcra, 10));
    assert!(key.check(START, 3).is_admitted()); // 18 s, at one every 3 s half of it
    for (after, debt) in [(0, 9 * SECOND), (SECOND, 17 * SECOND / 2)] {
        let now = START + after;
        for (algorithm, words) in [
            (Algorithm::Gcra, vec![now + debt]),
            (Algorithm::TokenBucket, vec![3, now + debt - 9 * SECOND]),
            (Algorithm::LeakyBucket, vec![debt, now]),
        ] {
            let next = carried(&key, limiter(algorithm, 20), now);
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            assert_eq!(next.state, bytes, "{algorithm:?} after {after}");
        }
    }
}

/// The bounds are no larger than they must be: at the quarters of a window and one nanosecond
/// before them.
#[test]
fn the_bounds_across_a_change_are_reached() {
    use Algorithm::*;
    const WINDOW_NS: u64 = 1_200_000;
    let parts = SlidingBuckets { buckets: 2, weighted: false };
    for (from, to, limit, then, reached) in [
        (Gcra, TokenBucket, 4, 2, 6), // the bound is 7, which takes the old quota alone
        (Gcra, LeakyBucket, 2, 4, 7),
        (LeakyQueue, LeakyQueue, 2, 4, 7),
        (Gcra, FixedWindow, 4, 4, 11),
        (FixedWindow, Gcra, 4, 4, 11),
        (FixedWindow, FixedWindow, 2, 4, 8),
        (SlidingLog, FixedWindow, 4, 4, 8),
        (SlidingLog, LeakyQueue, 4, 4, 7),
        (parts, SlidingLog, 4, 4, 4),
        (parts, parts, 4, 2, 2),
        (SlidingLog, SlidingLog, 2, 4, 4),
    ] {
        let limiter = |algorithm, limit| {
            build(algorithm, Numbers { limit, window_ns: WINDOW_NS, burst: limit, strict: false })
        };
        let (old, new) = (limiter(from, limit), limiter(to, then));
        let most = [0, WINDOW_NS / 2].map(|before| {
            let start = 1_000 * WINDOW_NS - before;
            let quarters = (0..5).map(|quarter| start + quarter * WINDOW_NS / 4);
            let times: Vec<u64> = quarters.flat_map(|at| [at - 1, at]).collect();
            let most = (1..times.len()).map(|change| {
                let world = World { times: times.clone(), change, new, window_ns: WINDOW_NS };
                world.most(0, &Key::new(old), &mut Vec::new())
            });
            most.max()
        });
        let most = most.into_iter().max().flatten().expect("a time");
        assert_eq!(most, reached, "{limit} by {from:?} to {then} by {to:?}");
        assert!(most <= bound(&old, &new));
    }
}

/// All traces of three requests, a change and two more requests, over a small grid of times and
/// costs, for all pairs: the same instant, a part of a window, one nanosecond before a whole one.
#[test]
fn all_small_changes_agree() {
    let algorithms = Algorithm::ALL.map(|algorithm| algorithm.with_buckets(2));
    let weighted = algorithms.iter().filter(|algorithm| algorithm.buckets().is_some());
    let all: Vec<Algorithm> =
        algorithms.iter().copied().chain(weighted.map(|algorithm| algorithm.weighted())).collect();
    let numbers = |limit, burst, window_ns, strict| Numbers { limit, window_ns, burst, strict };
    let mut traces = 0;
    for (old, new) in [
        (numbers(3, 2, 1_000_000, false), numbers(2, 3, 1_000_000, true)),
        (numbers(2, 3, 1_000_001, true), numbers(3, 2, 1_000_001, false)),
        (numbers(2, 2, 1_000_000, false), numbers(3, 3, 3_000_000, false)),
    ] {
        for (from, to) in all.iter().flat_map(|from| all.iter().map(move |to| (*from, *to))) {
            let (old, new) = (build(from, old), build(to, new));
            let part_ns = old.window().as_nanos() / 3;
            let small = Small { deltas: [0, part_ns, 3 * part_ns - 1], costs: [1, 2], new };
            let start = 5 * old.window().as_nanos() - 1;
            traces += small.explore(&Key::new(old), &Oracle::new(&old), start, Small::EVENTS);
        }
    }
    // Of each pair: 6 and 36 and 216 before the change, 216 x 3 changes, and the events that
    // follow.
    assert_eq!(traces, 3 * 81 * (6 + 36 + 216 + 216 * 3 * (1 + 6 + 36)));
}

struct Small {
    deltas: [u64; 3],
    costs: [u64; 2],
    new: Limiter,
}

impl Small {
    const EVENTS: u32 = 6;
    const AFTER: u32 = 2;

    /// Every continuation of at most `depth` events; returns how many there were.
    fn explore(&self, key: &Key, oracle: &Oracle, now: u64, depth: u32) -> u64 {
        if depth == 0 {
            return 0;
        }
        let mut traces = 0;
        for now in self.deltas.map(|delta| now + delta) {
            if depth == Self::AFTER + 1 {
                let oracle = oracle.carried(&self.new, now.into());
                traces += 1 + self.explore(&carried(key, self.new, now), &oracle, now, depth - 1);
                continue;
            }
            for cost in self.costs {
                let (mut key, mut oracle) = (key.clone(), oracle.clone());
                let decision = key.check(now, cost);
                oracle.follow(now, cost, &decision);
                traces += 1 + self.explore(&key, &oracle, now, depth - 1);
            }
        }
        traces
    }
}

/// 95 of 100 are used, the limit is lowered to 10 and raised again: counts of windows keep all of
/// it, and a debt or a log no more than the lower quota could count.
#[test]
fn lowered_and_raised_again_a_limit_gives_back_what_the_lower_one_cannot_count() {
    for (algorithm, remaining) in [
        (Algorithm::Gcra, 90),
        (Algorithm::TokenBucket, 90),
        (Algorithm::LeakyBucket, 90),
        (Algorithm::FixedWindow, 5),
        (Algorithm::SlidingWindow, 5),
        (Algorithm::SlidingBuckets { buckets: 6, weighted: false }, 5),
        (Algorithm::SlidingLog, 90),
    ] {
        let of = |limit| {
            let quota = Quota::new(limit, Span::from_secs(60)).expect("a quota");
            Limiter::new(algorithm, quota).expect("a limiter")
        };
        let now = 1_800_000_000_000_000_000;
        let mut key = Key::new(of(100));
        assert!(key.limiter.check(&mut key.state, at(now), 95).is_admitted());
        let lowered = carried(&key, of(10), now);
        assert_eq!(lowered.peek(now, 0).remaining, 0, "{algorithm:?}");
        let raised = carried(&lowered, of(100), now);
        assert_eq!(raised.peek(now, 0).remaining, remaining, "{algorithm:?}");
    }
}
