//! Four million random steps whose decisions were recorded once: a change of the core changes no
//! decision.
//!
//! A section is one key of one quota and [`STEPS`] steps: checks, peeks and refunds of many costs,
//! on a clock that stops, advances, jumps years ahead and steps back, within the skew and beyond;
//! its state may come from another quota or be any bytes. `recorded.txt` contains 16 bits of each
//! section's decisions, so that a difference names its algorithm and quota, and 64 bits of all
//! sections of an algorithm. Decisions are recorded, never bytes of states: a layout may change,
//! its decisions may not. The oracle checks that the decisions are right; this test checks that
//! they are unchanged.
//!
//! Recorded by the core of commit 7a4de38, which kept no sums and searched without shortcuts. To
//! find the first step that differs: the failure names a file with the section's steps; copy this
//! test into a work tree of that commit, let it write the same section
//! (`TOLLGATE_SECTION=sliding-log/7 cargo test -p tollgate-core --test all recorded::`) and compare
//! the two. `TOLLGATE_BLESS=1` with the profile `release-test` records again, which is only right
//! for an intended change of a decision.
//!
//! Not here: refunds by `leaky-queue` of a slot that has departed; another test covers them.

use std::fmt::Write as _;
use std::path::PathBuf;

use tollgate_core::{
    Algorithm, Charge, Decision, LATEST, Limiter, Quota, Span, Timestamp, Verdict,
};

/// Sections of each of the eight algorithms, and the steps of each.
const SECTIONS: u64 = 2_000;
const STEPS: u64 = 250;
/// Without optimisation, every n-th section is enough.
const EVERY: u64 = if cfg!(debug_assertions) { 16 } else { 1 };
/// Digests on a line of the record.
const ON_A_LINE: u64 = 20;

const RECORD: &str = include_str!("recorded.txt");
const HEAD: &str = "\
# What 4,000,000 random steps were answered; see recorded.rs. For each algorithm 64 bits of all its sections,
# then 16 bits of each, after the number of the line's first.
";

const NAMES: [&str; 8] = [
    "gcra",
    "token-bucket",
    "leaky-bucket",
    "leaky-queue",
    "fixed-window",
    "sliding-window",
    "sliding-buckets",
    "sliding-log",
];

#[test]
fn gcra_decides_as_recorded() {
    as_recorded(0);
}

#[test]
fn token_bucket_decides_as_recorded() {
    as_recorded(1);
}

#[test]
fn leaky_bucket_decides_as_recorded() {
    as_recorded(2);
}

#[test]
fn leaky_queue_decides_as_recorded() {
    as_recorded(3);
}

#[test]
fn fixed_window_decides_as_recorded() {
    as_recorded(4);
}

#[test]
fn sliding_window_decides_as_recorded() {
    as_recorded(5);
}

#[test]
fn sliding_buckets_decide_as_recorded() {
    as_recorded(6);
}

#[test]
fn sliding_log_decides_as_recorded() {
    as_recorded(7);
}

/// The steps reach every corner that they are for; otherwise the record would prove nothing about
/// it.
#[test]
fn the_steps_meet_every_corner() {
    for (algorithm, name) in NAMES.into_iter().enumerate() {
        let mut seen = Seen::default();
        for number in (0..SECTIONS).step_by(16) {
            Section::new(algorithm, number).run(&mut seen, None);
        }
        let Seen { checks, admitted, delayed, denied, never, looks, refunds, foreign, late, years } =
            seen;
        let least = checks / 100;
        for (what, count) in [
            ("admitted", admitted),
            ("denied", denied),
            ("never admitted", never),
            ("looks", looks),
            ("refunds", refunds),
            ("on a late clock", late),
        ] {
            assert!(count > least, "{name}: {count} {what} of {checks} checks");
        }
        assert!(foreign > 0 && years > 0, "{name}: {foreign} foreign states, {years} leaps");
        assert_eq!(delayed > least, name == "leaky-queue", "{name}: {delayed} delayed");
    }
}

fn as_recorded(algorithm: usize) {
    let name = NAMES[algorithm];
    if let Some(number) = asked_for(name) {
        panic!("the section asked for is in {}", written(algorithm, number).display());
    }
    let recorded = Record::parse(name);
    let mut all = Digest::new(0);
    let mut digests = Vec::new();
    let mut first = None;
    let mut differ = 0;
    for number in (0..SECTIONS).step_by(EVERY as usize) {
        let digest = Section::new(algorithm, number).run(&mut Seen::default(), None);
        all.add(digest);
        digests.push(digest);
        let expected = recorded.sections.get(number as usize).copied();
        if expected != Some(short(digest)) {
            first = first.or(Some(number));
            differ += 1;
        }
    }
    if std::env::var("TOLLGATE_BLESS").is_ok_and(|value| value == "1") {
        assert_eq!(EVERY, 1, "record with --profile release-test");
        return bless(name, all.0, &digests);
    }
    if let Some(number) = first {
        let (file, section) = (written(algorithm, number), Section::new(algorithm, number));
        panic!(
            "{name}: {differ} of {} sections are answered otherwise than recorded\n  first: section {number}, {:?}\n  \
             its steps as answered now: {}\n  how to find the step: see recorded.rs",
            SECTIONS / EVERY,
            section.limiter,
            file.display()
        );
    }
    assert!(EVERY > 1 || all.0 == recorded.all, "{name}: the digest of all sections differs");
}

/// The section in `TOLLGATE_SECTION` if it is of this algorithm.
fn asked_for(name: &str) -> Option<u64> {
    let asked = std::env::var("TOLLGATE_SECTION").ok()?;
    let (algorithm, number) = asked.split_once('/').expect("TOLLGATE_SECTION=algorithm/number");
    (algorithm == name).then(|| number.parse().expect("a number of a section"))
}

/// Writes the steps of a section and returns where.
fn written(algorithm: usize, number: u64) -> PathBuf {
    let mut section = Section::new(algorithm, number);
    let mut text = format!("{:?}\n{:?}\n", section.limiter, section.stranger);
    section.run(&mut Seen::default(), Some(&mut text));
    let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("section-{}-{number}.txt", NAMES[algorithm]));
    std::fs::write(&file, text).expect("the folder for files of tests can be written");
    file
}

/// The 16 recorded bits of a section.
fn short(digest: u64) -> u16 {
    (digest >> 48) as u16
}

/// The record of one algorithm.
struct Record {
    all: u64,
    sections: Vec<u16>,
}

impl Record {
    fn parse(name: &str) -> Self {
        let mut record = Self { all: 0, sections: Vec::new() };
        let lines = RECORD.lines().skip_while(|line| line.split(' ').next() != Some(name));
        for (i, line) in lines.enumerate() {
            let mut words = line.split_whitespace();
            match words.next().map(str::parse::<u64>) {
                Some(Ok(number)) => {
                    assert_eq!(number, record.sections.len() as u64, "{name}: {line}");
                    let digests = words.map(|word| u16::from_str_radix(word, 16).expect("digest"));
                    record.sections.extend(digests);
                }
                _ if i == 0 => {
                    let all = words.next().map(|word| u64::from_str_radix(word, 16));
                    record.all = all.expect("a digest").expect("a digest");
                }
                _ => break,
            }
        }
        record
    }

    fn text(name: &str, all: u64, digests: &[u16]) -> String {
        let mut text = format!("{name} {all:016x}\n");
        for (number, line) in (0..).step_by(ON_A_LINE as usize).zip(digests.chunks(20)) {
            let _ = write!(text, "{number:4}");
            for digest in line {
                let _ = write!(text, " {digest:04x}");
            }
            text.push('\n');
        }
        text
    }
}

/// Writes the record of one algorithm; the others stay. The tests run in parallel, so one at a
/// time.
fn bless(name: &str, all: u64, digests: &[u64]) {
    static FILE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _one = FILE.lock();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/recorded.txt");
    let before = std::fs::read_to_string(path).unwrap_or_default();
    let mut text = HEAD.to_owned();
    for other in NAMES {
        if other == name {
            let digests: Vec<u16> = digests.iter().copied().map(short).collect();
            text.push_str(&Record::text(name, all, &digests));
        } else {
            let theirs = before.lines().skip_while(|line| line.split(' ').next() != Some(other));
            let end = |(i, line): &(usize, &str)| *i == 0 || line.starts_with([' ', '0', '1']);
            for (_, line) in theirs.enumerate().take_while(end) {
                text.push_str(line);
                text.push('\n');
            }
        }
    }
    std::fs::write(path, text).expect("the record can be written");
}

/// One key and its steps.
struct Section {
    random: Random,
    limiter: Limiter,
    /// A limiter of another quota with states of the same length, which sometimes takes part: it
    /// leaves counts and times that the limiter itself never would.
    stranger: Option<Limiter>,
    state: Vec<u8>,
    now: u64,
    last: Option<Decision>,
    charges: Vec<(Charge, Decision)>,
}

/// How often each corner was reached.
#[derive(Default)]
struct Seen {
    checks: u64,
    admitted: u64,
    delayed: u64,
    denied: u64,
    never: u64,
    looks: u64,
    refunds: u64,
    /// States of the stranger or of any bytes.
    foreign: u64,
    /// Steps back.
    late: u64,
    /// Leaps of years.
    years: u64,
}

impl Section {
    fn new(algorithm: usize, number: u64) -> Self {
        let mut random = Random::new((algorithm as u64) << 32 | number);
        let algorithm = match algorithm {
            0 => Algorithm::Gcra,
            1 => Algorithm::TokenBucket,
            2 => Algorithm::LeakyBucket,
            3 => Algorithm::LeakyQueue,
            4 => Algorithm::FixedWindow,
            5 => Algorithm::SlidingWindow,
            6 => Algorithm::SlidingBuckets { buckets: random.buckets(), weighted: false },
            _ => Algorithm::SlidingLog,
        };
        let limit = random.limit(algorithm);
        let limiter = random.limiter(algorithm, limit);
        let stranger = random.one_in(4).then(|| {
            let other = random.limit(algorithm);
            let limit = if algorithm == Algorithm::SlidingLog { limit } else { other };
            random.limiter(algorithm, limit)
        });
        let state = vec![0; limiter.state_len()];
        let now = random.start();
        Self { random, limiter, stranger, state, now, last: None, charges: Vec::new() }
    }

    /// Takes every step; the digest of all decisions. The steps are written to `text`.
    fn run(&mut self, seen: &mut Seen, mut text: Option<&mut String>) -> u64 {
        let mut digest = Digest::new(1);
        for step in 0..STEPS {
            let from = self.now;
            self.now = self.time(seen);
            seen.late += u64::from(self.now < from);
            let what = self.step(&mut digest, seen);
            if let Some(text) = text.as_deref_mut() {
                let _ = writeln!(text, "{step:3} at {:20} {what} -> {:016x}", self.now, digest.0);
            }
        }
        digest.0
    }

    /// One step at `now`, and its description.
    fn step(&mut self, digest: &mut Digest, seen: &mut Seen) -> String {
        let now = Timestamp::from_nanos(self.now);
        let cost = self.cost();
        match self.random.below(100) {
            0..62 => {
                let decision = self.limiter.check(&mut self.state, now, cost);
                seen.count(&decision);
                self.keep(now, cost, decision);
                digest.decision(&decision);
                format!("check {cost}: {decision:?}")
            }
            62..74 => {
                seen.looks += 1;
                let decision = self.limiter.peek(&self.state, now, cost);
                self.last = Some(decision);
                digest.decision(&decision);
                format!("peek {cost}: {decision:?}")
            }
            74..86 => self.refund(digest, seen),
            86..96 => {
                let used = self.limiter.used(&self.state, now);
                let idle_at = self.limiter.idle_at(&self.state).as_nanos();
                digest.add(u64::from(used));
                digest.add(idle_at);
                format!("used {used}, idle at {idle_at}")
            }
            _ => self.foreign(now, cost, digest, seen),
        }
    }

    fn keep(&mut self, now: Timestamp, cost: u64, decision: Decision) {
        self.last = Some(decision);
        if let Some(charge) = decision.charge(now, cost) {
            if self.charges.len() == 8 {
                self.charges.remove(0);
            }
            self.charges.push((charge, decision));
        }
    }

    /// Takes one of the last charges back, and peeks.
    fn refund(&mut self, digest: &mut Digest, seen: &mut Seen) -> String {
        let now = Timestamp::from_nanos(self.now);
        if self.charges.is_empty() {
            return "nothing to take back".to_owned();
        }
        let chosen = self.random.below(self.charges.len() as u64) as usize;
        let (charge, _) = self.charges.remove(chosen);
        let departed = charge.at.saturating_add(charge.delay) < now;
        if departed && self.limiter.algorithm() == Algorithm::LeakyQueue {
            return "departed".to_owned();
        }
        seen.refunds += 1;
        self.limiter.refund(&mut self.state, charge, now);
        let left = self.limiter.peek(&self.state, now, 0);
        digest.decision(&left);
        format!("refund {charge:?}: {left:?}")
    }

    /// The stranger's request on the same state, or a state of any bytes.
    fn foreign(
        &mut self,
        now: Timestamp,
        cost: u64,
        digest: &mut Digest,
        seen: &mut Seen,
    ) -> String {
        if let Some(stranger) = self.stranger {
            seen.foreign += 1;
            let decision = stranger.check(&mut self.state, now, cost);
            digest.decision(&decision);
            return format!("stranger checks {cost}: {decision:?}");
        }
        if !self.random.one_in(4) {
            return "nothing".to_owned();
        }
        seen.foreign += 1;
        let (now_ns, window_ns) = (self.now, self.limiter.window().as_nanos());
        self.state = match self.limiter.algorithm() {
            Algorithm::SlidingBuckets { buckets, .. } => {
                let part_ns = window_ns.div_ceil(buckets.into());
                let part = now_ns / part_ns;
                let earlier = self.random.buckets_state(buckets, self.limiter.limit(), part);
                let mut state = vec![0; self.limiter.state_len()];
                assert!(self.limiter.convert(1, &earlier, &mut state));
                state
            }
            Algorithm::SlidingLog => self.random.log_state(self.limiter.limit(), now_ns, window_ns),
            _ => {
                let words = self.state.len() / 8;
                let word = |_| self.random.word(now_ns, window_ns).to_le_bytes();
                (0..words).flat_map(word).collect()
            }
        };
        "a state of any bytes".to_owned()
    }

    /// The next time of the clock.
    fn time(&mut self, seen: &mut Seen) -> u64 {
        let (now, window_ns) = (self.now, self.limiter.window().as_nanos());
        let random = &mut self.random;
        let part_ns = match self.limiter.algorithm() {
            Algorithm::SlidingBuckets { buckets, .. } => window_ns.div_ceil(buckets.into()),
            _ => window_ns.div_ceil(self.limiter.limit()),
        };
        let wait_ns = |last: Option<Decision>| {
            last.map_or(0, |last| last.retry_after.unwrap_or(last.reset_after).as_nanos())
        };
        match random.below(100) {
            0..30 => now,
            30..45 => now.saturating_add(random.below(window_ns)),
            45..58 => now.saturating_add(random.below(part_ns * 3)),
            58..68 => now.saturating_add(wait_ns(self.last)),
            68..71 => now.saturating_add(wait_ns(self.last)).saturating_sub(1),
            71..75 => (now / window_ns)
                .saturating_add(1)
                .saturating_mul(window_ns)
                .saturating_sub(random.below(3)),
            75..80 => {
                let end = (now / part_ns).saturating_add(1).saturating_mul(part_ns);
                end.saturating_sub(random.below(400))
            }
            80..83 => now.saturating_add(random.below(window_ns.saturating_mul(4))),
            83..88 => now.saturating_sub(random.below(part_ns)),
            88..92 => now.saturating_sub(random.below(30_000_000_000)),
            92..95 => now.saturating_sub(random.below(window_ns * 2)),
            95..97 => now.saturating_sub(random.below(window_ns * 2 + 60_000_000_000)),
            97..98 => now.saturating_sub(random.below(now.max(1))),
            98..99 => {
                seen.years += 1;
                now.saturating_add(random.below(1 << 58))
            }
            _ if now > LATEST.as_nanos() => random.start(),
            _ => now.saturating_add(random.below(1_000)),
        }
    }

    /// Mostly one; the remaining units and one more; nothing, the limit, more than ever fits.
    fn cost(&mut self) -> u64 {
        let capacity = self.limiter.capacity();
        let remaining = self.last.map_or(capacity, |last| last.remaining);
        let random = &mut self.random;
        match random.below(32) {
            0..16 => 1,
            16..20 => 1 + random.below(4),
            20..22 => remaining,
            22..24 => remaining.saturating_add(1),
            24..27 => 1 + random.below(capacity),
            27 => capacity / 3 + 1,
            28 => capacity,
            29 => capacity + 1,
            30 => random.next(),
            _ => 0,
        }
    }
}

impl Seen {
    fn count(&mut self, decision: &Decision) {
        self.checks += 1;
        match (decision.verdict, decision.retry_after) {
            (Verdict::Allow, _) => self.admitted += 1,
            (Verdict::Delay(_), _) => self.delayed += 1,
            (Verdict::Deny | Verdict::Penalty, Some(_)) => self.denied += 1,
            (Verdict::Deny | Verdict::Penalty, None) => self.never += 1,
        }
    }
}

/// FNV-1a over words of 64 bits, with the high half folded in so that every bit reaches every
/// other.
#[derive(Clone, Copy)]
struct Digest(u64);

impl Digest {
    fn new(seed: u64) -> Self {
        Self(0xcbf2_9ce4_8422_2325 ^ seed)
    }

    fn add(&mut self, word: u64) {
        self.0 = (self.0 ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 ^= self.0 >> 32;
    }

    fn decision(&mut self, decision: &Decision) {
        let Decision { verdict, limit, remaining, retry_after, reset_after } = decision;
        match verdict {
            Verdict::Allow => self.add(1),
            Verdict::Deny => self.add(2),
            Verdict::Penalty => self.add(4),
            Verdict::Delay(wait) => {
                self.add(3);
                self.add(wait.as_nanos());
            }
        }
        self.add(*limit);
        self.add(*remaining);
        self.add(retry_after.map_or(0, |wait| 1 | wait.as_nanos() << 1));
        self.add(reset_after.as_nanos());
    }
}

/// SplitMix64: the same numbers everywhere and in every version of every crate.
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Self {
        let mut random = Self(seed);
        random.next();
        random
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ word >> 31
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    fn one_in(&mut self, many: u64) -> bool {
        self.below(many) == 0
    }

    fn buckets(&mut self) -> u16 {
        let buckets = match self.below(8) {
            0..5 => 2 + self.below(11),
            5 => 2 + self.below(359),
            6 => 60,
            _ => 360,
        };
        buckets as u16
    }

    fn limit(&mut self, algorithm: Algorithm) -> u64 {
        let most = match algorithm {
            Algorithm::SlidingLog => 1024,
            Algorithm::SlidingBuckets { .. } => 4_294_967_295,
            _ => 999_999_999_999_999,
        };
        match self.below(8) {
            0..4 => 1 + self.below(12),
            4..6 => 1 + self.below(100),
            6 => 1 + self.below(1_000),
            _ if self.one_in(3) => most,
            _ => 1 + ((self.next() % most) >> self.below(40)),
        }
    }

    /// In a window of 1 ms to 366 days, and with a burst if the algorithm has one.
    fn limiter(&mut self, algorithm: Algorithm, limit: u64) -> Limiter {
        let window_ns = match self.below(10) {
            0 => 1_000_000,
            1 => 1_000_000 + self.below(100),
            2..5 => 1_000_000 + self.below(3_000_000_000),
            5 => 1_000_000_000,
            6 => 60_000_000_000,
            7 => 3_600_000_000_000 + self.below(1_000),
            8 => 1_000_000 + self.below(366 * 86_400_000_000_000 - 1_000_000),
            _ => 366 * 86_400_000_000_000,
        };
        let quota = Quota::new(limit, Span::from_nanos(window_ns.max(limit))).expect("a quota");
        let (burst, half) = (1 + self.below(limit.saturating_mul(2).min(40)), limit.div_ceil(2));
        let burst = if self.one_in(3) { half } else { burst };
        let strict = self.one_in(3).then(|| quota.strict());
        let with_burst = |quota: Quota| quota.with_burst(burst).ok().filter(|_| self.0 & 1 == 0);
        let candidates = [strict.and_then(with_burst), with_burst(quota), strict, Some(quota)];
        let limiters = candidates.into_iter().flatten().map(|quota| Limiter::new(algorithm, quota));
        limiters.flatten().next().expect("a limiter")
    }

    /// The epoch, near it, this year, or near the end of time.
    fn start(&mut self) -> u64 {
        match self.below(16) {
            0 => 0,
            1 => self.below(10_000_000),
            2 => LATEST.as_nanos() - self.below(1 << 55),
            3 => self.below(LATEST.as_nanos()),
            _ => 1_700_000_000_000_000_000 + self.below(100_000_000_000_000_000),
        }
    }

    /// A word of a state: anything, a small count, a time about now or the number of its window.
    fn word(&mut self, now_ns: u64, window_ns: u64) -> u64 {
        match self.below(6) {
            0 => self.next(),
            1 => self.next() >> self.below(64),
            2 => self.below(12),
            3 => now_ns.saturating_add(self.below(window_ns * 2)),
            4 => now_ns.saturating_sub(self.below(window_ns * 2)),
            _ => (now_ns / window_ns).saturating_add(1).saturating_sub(self.below(3)),
        }
    }

    /// A state of the buckets in layout 1: the newest part's number, then the counters.
    fn buckets_state(&mut self, buckets: u16, limit: u64, part: u64) -> Vec<u8> {
        let newest = match self.below(4) {
            0 => self.next(),
            _ => part.saturating_add(2).saturating_sub(self.below(u64::from(buckets) + 4)),
        };
        let all = self.one_in(8);
        let count = |_| match self.below(4) {
            _ if all => self.next() as u32,
            0 => self.below(limit + 1) as u32,
            1 => self.below(3) as u32,
            _ => 0,
        };
        let counts: Vec<u32> = (0..=buckets).map(count).collect();
        let counts = counts.into_iter().flat_map(u32::to_le_bytes);
        newest.to_le_bytes().into_iter().chain(counts).collect()
    }

    /// A state of the log: where it begins, how many entries, and entries that never fall, as in
    /// every log that a request left. The result of a search among others is not specified.
    fn log_state(&mut self, limit: u64, now_ns: u64, window_ns: u64) -> Vec<u8> {
        let (start, len) = (self.below(limit + 2), self.below(limit + 2) as u32);
        let mut words = vec![0; limit as usize];
        let mut made_at = now_ns.saturating_sub(self.below(window_ns * 2));
        for index in 0..limit {
            words[((start + index) % limit) as usize] = made_at;
            made_at = made_at.saturating_add(self.below(window_ns * 4 / limit));
        }
        let entries = words.into_iter().flat_map(u64::to_le_bytes);
        let header = [(start as u32).to_le_bytes(), len.to_le_bytes()];
        header.concat().into_iter().chain(entries).collect()
    }
}
