//! Holds against a model: the kept units of a random schedule are those that a limiter without
//! holds allows, each unit counted at its request.

use std::collections::BinaryHeap;

use crate::support::arbitrary::{Key, START, at, config};
use proptest::prelude::*;
use tollgate_core::{Algorithm, Charge, HOLD_AGE, Limiter, Quota, Span};

const SECOND: u64 = 1_000_000_000;
const KINDS: [Algorithm; 3] = [Algorithm::Gcra, Algorithm::TokenBucket, Algorithm::LeakyBucket];

/// The next event of a key.
#[derive(Clone, Copy, Debug)]
enum Event {
    Request {
        cost: u64,
    },
    /// The response of one of the requests in progress: this many of eight parts of its cost are
    /// used.
    Response {
        which: prop::sample::Index,
        eighths: u64,
    },
    /// The receipt of one is lost.
    Loss {
        which: prop::sample::Index,
    },
    /// Units that were used and not held, at most a burst, where the debt does not reach its cap.
    Debit {
        units: u64,
    },
}

/// The pause before it, in 64ths of T, or as a part of the life of a hold.
#[derive(Clone, Copy, Debug)]
enum Pause {
    Intervals(u64),
    OfLife(u64),
}

#[derive(Clone, Copy, Debug)]
struct Admitted {
    charge: Charge,
    kept: u64,
    is_open: bool,
}

/// A limiter with holds, and the units allowed by it.
struct Schedule {
    key: Key,
    admitted: Vec<Admitted>,
    /// The debited units, with the number of allowed requests before them and the time.
    debited: Vec<(usize, u64, u64)>,
    latest: u64,
}

impl Schedule {
    fn new(limiter: Limiter) -> Self {
        let key = Key::new(limiter.with_holds().unwrap());
        Self { key, admitted: Vec::new(), debited: Vec::new(), latest: 0 }
    }

    fn request(&mut self, now: u64, cost: u64) -> bool {
        let decision = self.key.check(now, cost);
        let Some(charge) = decision.charge(at(now), cost) else { return false };
        self.latest = self.latest.max(now);
        self.admitted.push(Admitted { charge, kept: cost, is_open: true });
        true
    }

    fn settle(&mut self, i: usize, used: u64, now: u64) {
        let admitted = &mut self.admitted[i];
        self.latest = self.latest.max(now);
        let age = |at: u64| at / HOLD_AGE.as_nanos();
        if age(self.latest) - age(admitted.charge.at.as_nanos()) < 2 {
            admitted.kept = used.min(admitted.charge.cost);
        }
        admitted.is_open = false;
        self.key.limiter.settle(&mut self.key.state, admitted.charge, used, at(now));
    }

    fn debit(&mut self, now: u64, units: u64) {
        self.debited.push((self.admitted.len(), now, units));
        self.key.limiter.debit(&mut self.key.state, units, at(now));
        self.latest = self.latest.max(now);
    }

    fn open(&self, which: prop::sample::Index) -> Option<usize> {
        let open: Vec<_> = (0..self.admitted.len()).filter(|i| self.admitted[*i].is_open).collect();
        (!open.is_empty()).then(|| open[which.index(open.len())])
    }

    fn follow(&mut self, event: Event, now: u64) {
        match event {
            Event::Request { cost } => {
                self.request(now, cost);
            }
            Event::Response { which, eighths } => {
                if let Some(i) = self.open(which) {
                    let used = self.admitted[i].charge.cost * eighths / 8;
                    self.settle(i, used, now);
                }
            }
            Event::Loss { which } => {
                if let Some(i) = self.open(which) {
                    self.admitted[i].is_open = false;
                }
            }
            Event::Debit { units } => {
                if units <= self.key.limiter.capacity() && self.key.peek(now, 1).is_admitted() {
                    self.debit(now, units);
                }
            }
        }
    }

    /// The kept units are those that a limiter without holds allows, with the same debits.
    fn assert_kept_within(&self, limiter: Limiter) {
        let (mut plain, mut debited) = (Key::new(limiter), self.debited.iter().peekable());
        for (i, admitted) in self.admitted.iter().enumerate() {
            while let Some((_, now, units)) = debited.next_if(|(before, ..)| *before <= i) {
                limiter.debit(&mut plain.state, *units, at(*now));
            }
            if admitted.kept == 0 {
                continue;
            }
            let decision = plain.check(admitted.charge.at.as_nanos(), admitted.kept);
            assert!(decision.is_admitted(), "{admitted:?} of {:?}", self.admitted);
        }
    }
}

/// How long it takes until a whole burst is there.
fn owed(key: &Key, now: u64) -> Span {
    key.peek(now, key.limiter.capacity()).retry_after.unwrap_or(Span::ZERO)
}

fn limiter() -> impl Strategy<Value = Limiter> {
    // T from a fiftieth of a second to nearly a generation.
    (
        0..3_usize,
        1..9_u64,
        1..7_u64,
        prop::sample::select(&[20_u64, 1_000, 9_000, 200_000, 500_000]),
    )
        .prop_map(|(kind, limit, burst, interval_ms)| {
            let window = Span::from_millis(interval_ms * limit);
            let quota = Quota::new(limit, window).unwrap().with_burst(burst).unwrap();
            Limiter::new(KINDS[kind], quota).unwrap()
        })
}

fn event() -> impl Strategy<Value = Event> {
    let eighths = prop_oneof![3 => Just(0_u64), 2 => Just(8), 2 => 0..12_u64];
    prop_oneof![
        6 => prop_oneof![4 => Just(1_u64), 2 => 1..5_u64].prop_map(|cost| Event::Request { cost }),
        5 => (any::<prop::sample::Index>(), eighths)
            .prop_map(|(which, eighths)| Event::Response { which, eighths }),
        2 => any::<prop::sample::Index>().prop_map(|which| Event::Loss { which }),
        1 => (1..5_u64).prop_map(|units| Event::Debit { units }),
    ]
}

fn pause() -> impl Strategy<Value = Pause> {
    prop_oneof![
        4 => Just(Pause::Intervals(0)),
        10 => (0..160_u64).prop_map(Pause::Intervals),
        1 => (0..40_u64).prop_map(Pause::OfLife),
    ]
}

impl Pause {
    fn nanos(self, limiter: &Limiter) -> u64 {
        let interval = limiter.window().as_nanos().div_ceil(limiter.limit());
        match self {
            Self::Intervals(parts) => interval / 64 * parts,
            Self::OfLife(parts) => HOLD_AGE.as_nanos() / 16 * parts,
        }
    }
}

proptest! {
    #![proptest_config(config(if cfg!(debug_assertions) { 400 } else { 4_000 }))]

    /// No window exceeds the bound, whatever is settled, lost or expires.
    #[test]
    fn what_is_kept_is_within_the_bound(
        limiter in limiter(), start in 0..START, steps in prop::collection::vec((pause(), event()), 1..120),
    ) {
        let (mut schedule, mut now) = (Schedule::new(limiter), start);
        for (pause, event) in steps {
            now += pause.nanos(&limiter);
            schedule.follow(event, now);
        }
        schedule.assert_kept_within(limiter);
    }

    /// The same where the clock is repeatedly late by up to the skew.
    #[test]
    fn a_clock_that_oscillates_credits_nothing_twice(
        limiter in limiter(),
        steps in prop::collection::vec((pause(), event(), 0..3_u32, 0..30_000_000_000_u64), 1..120),
    ) {
        let (mut schedule, mut front) = (Schedule::new(limiter), START);
        for (pause, event, is_late, late) in steps {
            front += pause.nanos(&limiter);
            schedule.follow(event, if is_late == 0 { front - late } else { front });
        }
        schedule.assert_kept_within(limiter);
    }

    /// A key whose holds were all given back decides like one never used.
    #[test]
    fn a_key_that_used_nothing_decides_like_one_never_asked(
        limiter in limiter(), steps in prop::collection::vec((0..160_u64, event()), 1..80),
    ) {
        let (mut schedule, mut now) = (Schedule::new(limiter), START / HOLD_AGE.as_nanos() * HOLD_AGE.as_nanos());
        for (parts, event) in steps {
            let pause = Pause::Intervals(parts).nanos(&limiter).min(10 * SECOND);
            now += pause;
            match event {
                Event::Loss { .. } | Event::Debit { .. } => {}
                Event::Response { which, .. } => {
                    if let Some(i) = schedule.open(which) {
                        schedule.settle(i, 0, now);
                    }
                }
                Event::Request { .. } => schedule.follow(event, now),
            }
        }
        for i in 0..schedule.admitted.len() {
            if schedule.admitted[i].is_open {
                schedule.settle(i, 0, now);
            }
        }
        let fresh = Key::new(schedule.key.limiter);
        for cost in 0..=limiter.capacity() {
            prop_assert_eq!(schedule.key.peek(now, cost), fresh.peek(now, cost));
            prop_assert_eq!(schedule.key.peek(now + 1, cost), fresh.peek(now + 1, cost));
        }
    }

    /// When taken back at the time of the charge, every byte that decides is as before.
    #[test]
    fn a_roll_back_at_once_leaves_nothing(
        limiter in limiter(), cost in 1..7_u64, steps in prop::collection::vec((pause(), event()), 1..60),
    ) {
        let (mut schedule, mut now) = (Schedule::new(limiter), START);
        for (pause, event) in steps {
            now += pause.nanos(&limiter);
            schedule.follow(event, now);
        }
        let before = schedule.key.clone();
        if schedule.request(now, cost) {
            schedule.settle(schedule.admitted.len() - 1, 0, now);
        }
        for later in [0, 1, SECOND, 100 * SECOND] {
            prop_assert_eq!(schedule.key.peek(now + later, 1), before.peek(now + later, 1));
        }
    }

    /// No release forgives a debit, however much is debited: a client that is denied for debits
    /// alone stays denied.
    #[test]
    fn what_is_given_back_is_never_a_debit(
        limiter in limiter(),
        steps in prop::collection::vec((pause(), event(), 0..4_u32, 1..20_u64), 1..80),
    ) {
        let (mut schedule, mut debits) = (Schedule::new(limiter), Key::new(limiter));
        let mut now = START;
        for (pause, event, is_debited, units) in steps {
            now += pause.nanos(&limiter);
            if is_debited == 0 {
                schedule.debit(now, units);
                limiter.debit(&mut debits.state, units, at(now));
            } else if !matches!(event, Event::Debit { .. }) {
                schedule.follow(event, now);
            }
            let (owed, by_debits) = (owed(&schedule.key, now), owed(&debits, now));
            prop_assert!(owed >= by_debits, "{owed:?}, and by its debits alone {by_debits:?}");
        }
    }

    /// The three algorithms decide the same.
    #[test]
    fn the_three_decide_alike(
        limiter in limiter(), steps in prop::collection::vec((pause(), event()), 1..80),
    ) {
        let of = |kind| Limiter::new(kind, *limiter.quota()).unwrap();
        let mut three = KINDS.map(|kind| Schedule::new(of(kind)));
        let mut now = START;
        for (pause, event) in steps {
            now += pause.nanos(&limiter);
            let [gcra, token, leaky] = &mut three;
            let peeked = gcra.key.peek(now, 1);
            prop_assert_eq!(peeked, token.key.peek(now, 1));
            prop_assert_eq!(peeked, leaky.key.peek(now, 1));
            three.iter_mut().for_each(|one| one.follow(event, now));
        }
    }
}

/// Clients that send the next request once the last was answered or denied: `loops` of them,
/// responses of `response_ns`, of which every `charged`-th is charged (0: none). Returns the
/// allowed and denied requests of each minute.
fn loops(limiter: Limiter, loops: u64, response_ns: u64, charged: u64) -> Vec<(u64, u64)> {
    let mut schedule = Schedule::new(limiter);
    let mut due = BinaryHeap::new();
    for client in 0..loops {
        due.push((std::cmp::Reverse(START + client * 7_000_000), None));
    }
    let mut minutes = vec![(0, 0); 10];
    while let Some((std::cmp::Reverse(now), request)) = due.pop() {
        let minute = usize::try_from((now - START) / (60 * SECOND)).unwrap();
        if minute >= minutes.len() {
            break;
        }
        if let Some(i) = request {
            let is_charged = charged != 0 && u64::try_from(i).unwrap().is_multiple_of(charged);
            schedule.settle(i, u64::from(is_charged), now);
        }
        if schedule.request(now, 1) {
            minutes[minute].0 += 1;
            due.push((std::cmp::Reverse(now + response_ns), Some(schedule.admitted.len() - 1)));
        } else {
            minutes[minute].1 += 1;
            due.push((std::cmp::Reverse(now + SECOND / 20), None));
        }
    }
    minutes
}

fn quota(limit: u64, burst: u64) -> Quota {
    Quota::new(limit, Span::from_secs(60)).unwrap().with_burst(burst).unwrap()
}

/// The case that was reported: ten loops of half a second, never charged, under 30 per minute.
#[test]
fn requests_that_are_never_charged_are_never_denied() {
    for kind in KINDS {
        let limiter = Limiter::new(kind, quota(30, 30)).unwrap();
        let minutes = loops(limiter, 10, SECOND / 2, 0);
        assert!(minutes.iter().all(|(_, denied)| *denied == 0), "{kind:?}: {minutes:?}");
    }
}

/// Charged requests pass at the rate of the limit, however long the responses take.
#[test]
fn the_rate_is_the_limit_where_all_is_charged() {
    for kind in KINDS {
        let limiter = Limiter::new(kind, quota(600, 10)).unwrap();
        let minutes = loops(limiter, 100, 5 * SECOND, 1);
        assert!(minutes.iter().all(|(n, _)| (595..=609).contains(n)), "{kind:?}: {minutes:?}");
        let limiter = Limiter::new(kind, quota(60, 1)).unwrap();
        let minutes = loops(limiter, 30, 10 * SECOND, 1);
        assert!(minutes.iter().all(|(n, _)| (57..=60).contains(n)), "{kind:?}: {minutes:?}");
    }
}

/// Receipts that are lost are charged when their generation ends, and are not forgotten: an unused
/// unit of another request does not bring them back.
#[test]
fn a_hold_that_expires_is_charged() {
    let quota = Quota::new(9, Span::from_secs(3_600)).unwrap().with_burst(6).unwrap(); // T is 400 s
    let limiter = Limiter::new(Algorithm::Gcra, quota).unwrap();
    let (mut schedule, start) = (Schedule::new(limiter), HOLD_AGE.as_nanos() * 1_000);
    for _ in 0..5 {
        assert!(schedule.request(start, 1));
    }
    let now = start + 1_250 * SECOND;
    assert!(schedule.request(now, 1));
    schedule.settle(5, 0, now + SECOND);
    // 5 x 400 s less 1,251 s are owed still: of 6 units 4 are there.
    assert_eq!(schedule.key.peek(now + SECOND, 0).remaining, 4);
    schedule.settle(0, 0, now + SECOND);
    assert_eq!(schedule.key.peek(now + SECOND, 0).remaining, 4, "it came too late");
}

/// The debit that reached its cap is still owed when a hold is released that the cap had forgiven.
#[test]
fn a_release_does_not_lower_a_capped_debit() {
    for kind in KINDS {
        let limiter = Limiter::new(kind, quota(60, 10)).unwrap(); // T is 1 s, the cap 20 s
        let mut schedule = Schedule::new(limiter);
        assert!(schedule.request(START, 10));
        schedule.debit(START, 20);
        assert_eq!(owed(&schedule.key, START), Span::from_secs(20));
        schedule.settle(0, 0, START);
        assert_eq!(owed(&schedule.key, START), Span::from_secs(20), "{kind:?}");
    }
}

/// Units that expired and have drained do not burden later requests.
#[test]
fn what_expired_long_after_it_drained_is_over() {
    let limiter = Limiter::new(Algorithm::Gcra, quota(60, 60)).unwrap();
    let (mut schedule, start) = (Schedule::new(limiter), HOLD_AGE.as_nanos() * 1_000);
    assert!(schedule.request(start + 500 * SECOND, 60));
    let now = start + 1_201 * SECOND;
    assert!(schedule.request(now, 50));
    schedule.settle(1, 0, now + 30 * SECOND);
    assert_eq!(schedule.key.peek(now + 30 * SECOND, 0).remaining, 60);
}

/// A state that this clock cannot have left holds nothing, and its debt is used.
#[test]
fn a_foreign_state_holds_nothing() {
    let limiter = Limiter::new(Algorithm::Gcra, quota(60, 60)).unwrap();
    for (word, value) in [(2, START + 40 * SECOND), (3, u64::MAX), (4, 10_000), (4, u64::MAX)] {
        let mut schedule = Schedule::new(limiter);
        assert!(schedule.request(START, 10));
        schedule.key.state[word * 8..][..8].copy_from_slice(&value.to_le_bytes());
        assert!(schedule.request(START + SECOND, 1));
        schedule.settle(1, 0, START + SECOND);
        assert_eq!(schedule.key.peek(START + SECOND, 0).remaining, 51, "word {word}: {value}");
    }
}

/// States are as long as documented, and all zeros is never seen.
#[test]
fn states_are_32_bytes_longer() {
    for (kind, len) in KINDS.into_iter().zip([40, 48, 48]) {
        let limiter = Limiter::new(kind, quota(60, 10)).unwrap().with_holds().unwrap();
        assert_eq!(limiter.state_len(), len);
        assert!(limiter.keeps_holds());
        assert_eq!(limiter.algorithm(), kind);
        assert_eq!(limiter.idle_at(&vec![0; len]), at(0));
    }
    let queue = Limiter::new(Algorithm::LeakyQueue, quota(60, 10)).unwrap();
    assert_eq!(queue.with_holds(), None);
    let log = Quota::new(60, Span::from_secs(60)).unwrap();
    let log = Limiter::new(Algorithm::SlidingLog, log).unwrap();
    assert_eq!(log.with_holds(), Some(log));
}

/// Golden bytes: stored states are read by every later version.
#[test]
fn the_layout_is_the_algorithms_state_and_four_numbers() {
    let limiter = Limiter::new(Algorithm::Gcra, quota(60, 10)).unwrap();
    let (mut schedule, start) = (Schedule::new(limiter), 1_000 * HOLD_AGE.as_nanos());
    assert!(schedule.request(start - SECOND, 2));
    assert!(schedule.request(start, 3));
    schedule.settle(1, 1, start + SECOND);
    let words = [start + 2 * SECOND, start + 2 * SECOND, start + SECOND, 2, 0];
    let (stored, _) = schedule.key.state.as_chunks::<8>();
    assert_eq!(stored.iter().map(|word| u64::from_le_bytes(*word)).collect::<Vec<_>>(), words);
}

/// Held units are remembered for as long as a receipt may come: the younger generation's life.
#[test]
fn a_state_that_holds_is_not_idle() {
    let limiter = Limiter::new(Algorithm::Gcra, quota(60, 10)).unwrap();
    let (mut schedule, start) = (Schedule::new(limiter), HOLD_AGE.as_nanos() * 1_000);
    assert!(schedule.request(start + SECOND, 1));
    let idle_at = |schedule: &Schedule| schedule.key.limiter.idle_at(&schedule.key.state);
    assert_eq!(idle_at(&schedule), at(start + 2 * HOLD_AGE.as_nanos()));
    schedule.settle(0, 1, start + 2 * SECOND);
    assert!(idle_at(&schedule) <= at(start + 3 * SECOND));
}
