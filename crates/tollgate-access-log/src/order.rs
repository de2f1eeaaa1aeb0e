//! Sorts records by their times, and spreads whole seconds.
//!
//! A server writes a line when a request ends, so a long request is logged after short ones that
//! came later; and a log of whole seconds would make one burst of each second. So records are held
//! until no record within the bound can come before them. Then line `i` of the `n` lines of a
//! second, over all clients in file order, gets `floor(1000 i / n)` milliseconds.
//!
//! Invariant: the times of the output never go back, and every record is passed on or is counted:
//! `late` beyond the bound, or `ahead` of its neighbours. The held bytes have a limit.

use std::collections::VecDeque;

use crate::field::Wanted;
use crate::record::{Place, Record};
use crate::spool;

const SECOND_NS: u64 = 1_000_000_000;
const MS_NS: u64 = 1_000_000;
/// A record this far ahead of all before it is accepted only when its successor agrees: one wrong
/// year would make all later records late.
const LEAP_NS: u64 = 86_400 * SECOND_NS;
/// Empty seconds whose memory is kept for later ones.
const SPARE: usize = 4;

/// The limits of what may be held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// How far a record may be behind later ones, at most a day. Default 10 s.
    pub out_of_order_ns: u64,
    /// Bytes of records that are held: a record takes some 20 bytes and its texts. Default 64 MiB;
    /// while room for more is made, three times as much may be reserved. Sorting a second that is
    /// not in order takes another 24 bytes for each of its records.
    pub held_bytes: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { out_of_order_ns: 10 * SECOND_NS, held_bytes: 64 * 1024 * 1024 }
    }
}

/// The counts of irregularities.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OrderCounts {
    /// Records that were passed on.
    pub records: u64,
    /// Of these, records that were behind a later one, and were sorted.
    pub sorted: u64,
    /// Records that were further behind than the bound, and were left out.
    pub late: u64,
    /// How far behind the latest of those was: a bound that would have kept them all.
    pub most_late_ns: u64,
    /// Records more than a day ahead of both their neighbours, and left out.
    pub ahead: u64,
    /// Seconds that were passed on before the bound because too many bytes were held.
    pub hurried_seconds: u64,
    /// Seconds with more records than can be held: these are spread over the first half of the
    /// second, the next ones over half of the rest, and so on.
    pub crowded_seconds: u64,
}

/// Holds records until their order is known.
#[derive(Clone, Debug)]
pub struct Order {
    wanted: Wanted,
    bounds: Bounds,
    counts: OrderCounts,
    /// One for each second from `first` on.
    seconds: VecDeque<Second>,
    first: u64,
    /// The latest accepted time; `None` before the first.
    latest_ns: Option<u64>,
    /// A record that its successor must agree with, and its time.
    doubted: Option<(u64, Vec<u8>)>,
    /// The time of the last record that was passed on.
    out_ns: u64,
    held_bytes: usize,
    spare: Vec<Second>,
    places: Vec<Place>,
}

/// The records of one second.
#[derive(Clone, Debug, Default)]
struct Second {
    bytes: Vec<u8>,
    /// Records without a fraction.
    whole: u64,
    /// Records with a fraction.
    exact: u64,
    /// The latest time of those.
    last_ns: u64,
    is_unsorted: bool,
    /// Milliseconds of this second that were passed on already.
    from_ms: u64,
}

impl Order {
    /// An order for records of a reader with the same wanted fields.
    #[must_use]
    pub fn new(wanted: Wanted, bounds: Bounds) -> Self {
        let out_of_order_ns = bounds.out_of_order_ns.min(LEAP_NS);
        Self {
            wanted,
            bounds: Bounds { out_of_order_ns, ..bounds },
            counts: OrderCounts::default(),
            seconds: VecDeque::new(),
            first: 0,
            latest_ns: None,
            doubted: None,
            out_ns: 0,
            held_bytes: 0,
            spare: Vec::new(),
            places: Vec::new(),
        }
    }

    /// Takes the next record of the log, and passes those whose order is known now to `on_record`.
    pub fn push(&mut self, record: &Record<'_>, on_record: &mut impl FnMut(Record<'_>)) {
        let at_ns = record.time.unix_ns;
        if self.doubted.is_some() {
            self.judge(at_ns, on_record);
        }
        let is_leap = match self.latest_ns {
            Some(latest_ns) => at_ns.saturating_sub(latest_ns) > LEAP_NS,
            None => true,
        };
        if is_leap {
            let mut bytes = Vec::new();
            spool::write(record, &mut bytes);
            self.doubted = Some((at_ns, bytes));
        } else {
            self.place(record, on_record);
        }
    }

    /// Passes on the held records. The next record may have any time, as in another log.
    pub fn finish(&mut self, on_record: &mut impl FnMut(Record<'_>)) {
        if let Some((at_ns, _)) = self.doubted {
            self.judge(at_ns, on_record);
        }
        while !self.seconds.is_empty() {
            self.pop(on_record);
        }
        self.latest_ns = None;
        self.first = 0;
        self.out_ns = 0;
    }

    /// The irregularities so far.
    #[must_use]
    pub const fn counts(&self) -> &OrderCounts {
        &self.counts
    }

    /// Accepts the doubted record if one of `at_ns` can follow it.
    #[cold]
    fn judge(&mut self, at_ns: u64, on_record: &mut impl FnMut(Record<'_>)) {
        let Some((doubted_ns, bytes)) = self.doubted.take() else { return };
        if at_ns.saturating_add(self.bounds.out_of_order_ns) < doubted_ns {
            self.counts.ahead = self.counts.ahead.saturating_add(1);
            return;
        }
        self.advance(doubted_ns, on_record);
        let (mut places, wanted) = (std::mem::take(&mut self.places), self.wanted.clone());
        if let Some((record, _)) = spool::read(&bytes, &mut places, &wanted) {
            self.place(&record, on_record);
        }
        self.places = places;
    }

    /// Holds a record whose time is not a leap.
    fn place(&mut self, record: &Record<'_>, on_record: &mut impl FnMut(Record<'_>)) {
        let at_ns = record.time.unix_ns;
        let latest_ns = self.latest_ns.unwrap_or(0);
        if at_ns > latest_ns {
            self.advance(at_ns, on_record);
        }
        let Some(index) = (at_ns / SECOND_NS).checked_sub(self.first) else {
            self.counts.late = self.counts.late.saturating_add(1);
            let late_ns = latest_ns.saturating_sub(at_ns);
            self.counts.most_late_ns = self.counts.most_late_ns.max(late_ns);
            return;
        };
        if at_ns < latest_ns {
            self.counts.sorted = self.counts.sorted.saturating_add(1);
        }
        // At most a day of seconds is open, and a leap is at most a day.
        let index = usize::try_from(index).unwrap_or(usize::MAX);
        while self.seconds.len() <= index {
            self.seconds.push_back(self.spare.pop().unwrap_or_default());
        }
        if let Some(second) = self.seconds.get_mut(index) {
            let before = second.bytes.len();
            second.push(record);
            let grown = second.bytes.len().wrapping_sub(before);
            self.held_bytes = self.held_bytes.wrapping_add(grown);
        }
        if self.held_bytes > self.bounds.held_bytes {
            self.relieve(on_record);
        }
    }

    /// Accepts `at_ns` as the latest time, and passes on the seconds before which no record can
    /// come any more.
    fn advance(&mut self, at_ns: u64, on_record: &mut impl FnMut(Record<'_>)) {
        self.latest_ns = Some(at_ns);
        let open = at_ns.saturating_sub(self.bounds.out_of_order_ns) / SECOND_NS;
        while self.first < open && !self.seconds.is_empty() {
            self.pop(on_record);
        }
        self.first = self.first.max(open);
    }

    /// Passes on the records of the first second.
    fn pop(&mut self, on_record: &mut impl FnMut(Record<'_>)) {
        let Some(mut second) = self.seconds.pop_front() else { return };
        let left_ms = 1000_u64.saturating_sub(second.from_ms);
        self.give(&second, left_ms, on_record);
        self.first = self.first.saturating_add(1);
        second.clear();
        second.from_ms = 0;
        if self.spare.len() < SPARE {
            self.spare.push(second);
        }
    }

    /// Too much is held: passes on the first second, or the held part of the only one.
    #[cold]
    fn relieve(&mut self, on_record: &mut impl FnMut(Record<'_>)) {
        while self.seconds.len() > 1 && self.held_bytes > self.bounds.held_bytes {
            let is_hurried = self.seconds.front().is_some_and(|second| !second.bytes.is_empty());
            let hurried = &mut self.counts.hurried_seconds;
            *hurried = hurried.saturating_add(u64::from(is_hurried));
            self.pop(on_record);
        }
        if self.held_bytes <= self.bounds.held_bytes {
            return;
        }
        let Some(mut second) = self.seconds.pop_front() else { return };
        let is_first = second.from_ms == 0;
        self.counts.crowded_seconds =
            self.counts.crowded_seconds.saturating_add(u64::from(is_first));
        let half_ms = 1000_u64.saturating_sub(second.from_ms).div_ceil(2);
        self.give(&second, half_ms, on_record);
        second.clear();
        // The last millisecond is left for later records.
        second.from_ms = second.from_ms.saturating_add(half_ms).min(999);
        self.seconds.push_front(second);
    }

    /// Passes on the records of `second`, which is the first, spread over `span_ms`.
    fn give(&mut self, second: &Second, span_ms: u64, on_record: &mut impl FnMut(Record<'_>)) {
        self.held_bytes = self.held_bytes.wrapping_sub(second.bytes.len());
        let start_ns = self.first.saturating_mul(SECOND_NS);
        let spread = Spread { start_ns, span_ms, from_ms: second.from_ms, of: second.whole };
        let mut rest = second.bytes.as_slice();
        if second.is_unsorted || (second.whole > 0 && second.exact > 0) {
            for (at_ns, bytes) in spread.sorted(rest, &mut self.places, &self.wanted) {
                let read = spool::read(bytes, &mut self.places, &self.wanted);
                let Some((record, _)) = read else { continue };
                give(record, at_ns, &mut self.out_ns, &mut self.counts, on_record);
            }
            return;
        }
        let mut i = 0;
        while let Some((record, after)) = spool::read(rest, &mut self.places, &self.wanted) {
            let at_ns = spread.stamp(&record, &mut i);
            give(record, at_ns, &mut self.out_ns, &mut self.counts, on_record);
            rest = after;
        }
    }
}

fn give(
    mut record: Record<'_>,
    at_ns: u64,
    out_ns: &mut u64,
    counts: &mut OrderCounts,
    on_record: &mut impl FnMut(Record<'_>),
) {
    // Only a crowded second has records before those already passed on.
    *out_ns = at_ns.max(*out_ns);
    record.time.unix_ns = *out_ns;
    record.time.is_whole_second = false;
    counts.records = counts.records.wrapping_add(1);
    on_record(record);
}

impl Second {
    fn push(&mut self, record: &Record<'_>) {
        if record.time.is_whole_second {
            self.whole = self.whole.wrapping_add(1);
        } else {
            self.exact = self.exact.wrapping_add(1);
            self.is_unsorted |= record.time.unix_ns < self.last_ns;
            self.last_ns = record.time.unix_ns;
        }
        spool::write(record, &mut self.bytes);
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(1 << 20);
        (self.whole, self.exact, self.last_ns) = (0, 0, 0);
        self.is_unsorted = false;
    }
}

/// Where in their second the records without a fraction go.
#[derive(Clone, Copy)]
struct Spread {
    start_ns: u64,
    from_ms: u64,
    span_ms: u64,
    of: u64,
}

impl Spread {
    /// The time of a record; `i` records without a fraction were before it.
    fn stamp(self, record: &Record<'_>, i: &mut u64) -> u64 {
        if !record.time.is_whole_second {
            return record.time.unix_ns;
        }
        // Fewer than 2^50 records are held, so this is exact; none are held when `of` is 0.
        let ms = self.span_ms.saturating_mul(*i).checked_div(self.of).unwrap_or(0);
        *i = i.wrapping_add(1);
        let ms = self.from_ms.saturating_add(ms);
        self.start_ns.saturating_add(ms.saturating_mul(MS_NS))
    }

    /// The records of `rest` by their times, equal ones in file order.
    fn sorted<'b>(
        self,
        mut rest: &'b [u8],
        places: &mut Vec<Place>,
        wanted: &Wanted,
    ) -> Vec<(u64, &'b [u8])> {
        let (mut sorted, mut i) = (Vec::new(), 0);
        while let Some((record, after)) = spool::read(rest, places, wanted) {
            let (at_ns, left) = (self.stamp(&record, &mut i), after.len());
            sorted.push((at_ns, rest));
            let used = rest.len().wrapping_sub(left);
            rest = rest.get(used..).unwrap_or_default();
        }
        sorted.sort_by_key(|(at_ns, _)| *at_ns);
        sorted
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::arithmetic_side_effects, clippy::as_conversions)]

    use tollgate_test_support::Random;

    use super::*;
    use crate::field::Field;
    use crate::record::{Texts, Time};

    const BOUND_S: u64 = 10;

    /// Pushes records at these times, whole seconds or nanoseconds, each with its number as its
    /// target; returns the numbers and milliseconds of the output.
    struct Log {
        order: Order,
        wanted: Wanted,
        pushed: usize,
        out: Vec<(usize, u64)>,
    }

    impl Log {
        fn new(held_bytes: usize) -> Self {
            let wanted = Wanted::new([Field::Target]);
            let bounds = Bounds { out_of_order_ns: BOUND_S * SECOND_NS, held_bytes };
            let order = Order::new(wanted.clone(), bounds);
            Self { order, wanted, pushed: 0, out: vec![] }
        }

        fn push(&mut self, unix_ns: u64, is_whole_second: bool) {
            let line = self.pushed.to_string();
            let mut places = vec![Place::Absent; self.wanted.values()];
            places[1] = Place::Line(0, line.len());
            let (wanted, line) = (&self.wanted, line.as_bytes());
            let texts = Texts { wanted, line, unescaped: &[], places: &places };
            let time = Time { unix_ns, is_whole_second };
            let record = Record { time, client: None, peer: None, status: None, texts };
            self.order.push(&record, &mut |record| out(&mut self.out, record));
            self.pushed += 1;
            assert!(self.order.held_bytes <= self.order.bounds.held_bytes);
        }

        fn whole(mut self, seconds: &[u64]) -> Self {
            seconds.iter().for_each(|second| self.push(second * SECOND_NS, true));
            self
        }

        fn finish(&mut self) -> Vec<(usize, u64)> {
            self.order.finish(&mut |record| out(&mut self.out, record));
            assert!(self.order.held_bytes == 0 && self.order.seconds.is_empty());
            let counts = self.order.counts;
            let all = counts.records + counts.late + counts.ahead;
            assert_eq!(all, self.pushed as u64, "{counts:?}");
            assert_eq!(self.out.len() as u64, counts.records);
            assert!(self.out.is_sorted_by_key(|(_, at)| *at), "{:?}", self.out);
            std::mem::take(&mut self.out)
        }
    }

    fn out(to: &mut Vec<(usize, u64)>, record: Record<'_>) {
        let number = std::str::from_utf8(record.target().unwrap()).unwrap().parse().unwrap();
        assert!(!record.time.is_whole_second && record.time.unix_ns.is_multiple_of(MS_NS));
        to.push((number, record.time.unix_ns / MS_NS));
    }

    #[test]
    fn the_lines_of_a_second_are_spread_in_file_order() {
        let mut log = Log::new(1 << 20).whole(&[100, 100, 100, 101, 102, 102]);
        let expected =
            [(0, 100_000), (1, 100_333), (2, 100_666), (3, 101_000), (4, 102_000), (5, 102_500)];
        assert_eq!(log.finish(), expected);
    }

    #[test]
    fn lines_within_the_bound_are_sorted_and_others_counted() {
        // 90 is as late as the bound allows, 89 is later.
        let mut log = Log::new(1 << 20).whole(&[100, 99, 100, 90, 89, 50, 101]);
        let expected = [(3, 90_000), (1, 99_000), (0, 100_000), (2, 100_500), (6, 101_000)];
        assert_eq!(log.finish(), expected);
        let counts = log.order.counts();
        assert_eq!((counts.sorted, counts.late), (2, 2));
        assert_eq!(counts.most_late_ns, 50 * SECOND_NS);
    }

    #[test]
    fn fractions_are_sorted_among_each_other_and_whole_seconds_among_them() {
        let mut log = Log::new(1 << 20);
        for ms in [100_700, 100_200, 100_200, 100_900] {
            log.push(ms * MS_NS, false);
        }
        log.push(100 * SECOND_NS, true);
        log.push(100 * SECOND_NS, true);
        log.push(101_300 * MS_NS, false);
        let expected = [
            (4, 100_000),
            (1, 100_200),
            (2, 100_200),
            (5, 100_500),
            (0, 100_700),
            (3, 100_900),
            (6, 101_300),
        ];
        assert_eq!(log.finish(), expected);
    }

    #[test]
    fn one_wrong_year_makes_nobody_late() {
        const YEAR: u64 = 365 * 86_400;
        let first = 30 * YEAR;
        // At the beginning, in the middle, and a gap of a week that the successors confirm.
        for wrong in 0..4 {
            let mut times = vec![first, first + 1, first + 2, first + 7 * 86_400];
            times.push(first + 7 * 86_400 + 1);
            times.insert(wrong, 500 * YEAR);
            let mut log = Log::new(1 << 20).whole(&times);
            let numbers: Vec<usize> = log.finish().into_iter().map(|(number, _)| number).collect();
            let expected: Vec<usize> = (0..6).filter(|number| *number != wrong).collect();
            assert_eq!(numbers, expected);
            assert_eq!((log.order.counts().ahead, log.order.counts().late), (1, 0));
        }
    }

    #[test]
    fn a_second_that_does_not_fit_is_spread_by_halves() {
        let mut log = Log::new(100).whole(&[100; 1000]);
        let out = log.finish();
        assert!(out.iter().map(|(number, _)| *number).eq(0..1000), "file order");
        assert_eq!((out[0].1, out[999].1), (100_000, 100_999));
        // The records held at first are in the first half, as many again in half of the rest.
        let held = out.iter().filter(|(_, at)| *at < 100_500).count();
        let starts: Vec<u64> = (0..4).map(|part| out[part * held].1).collect();
        assert_eq!(starts, [100_000, 100_500, 100_750, 100_875], "{held} at a time");
        assert_eq!(log.order.counts().crowded_seconds, 1);
    }

    #[test]
    fn too_many_held_bytes_come_out_before_the_bound() {
        let seconds: Vec<u64> = (100..200).collect();
        let mut log = Log::new(100).whole(&seconds);
        log.push(190 * SECOND_NS, true);
        let out = log.finish();
        assert!(out.iter().map(|(number, _)| *number).eq(0..100));
        let counts = log.order.counts();
        assert!(counts.hurried_seconds > 80, "{counts:?}");
        assert_eq!((counts.late, counts.most_late_ns), (1, 9 * SECOND_NS));
    }

    /// Random times; the oracle is the sort of the standard library.
    #[test]
    fn any_times_within_the_bound_come_out_sorted_and_stable() {
        let mut random = Random::new(1);
        for _ in 0..200 {
            let (mut log, mut expected, mut latest) = (Log::new(1 << 20), vec![], 1000 * SECOND_NS);
            for number in 0..300_usize {
                latest += random.below(3) * SECOND_NS / 2;
                let behind = random.below(BOUND_S * 1000) * MS_NS;
                let at_ns = (latest - behind) / MS_NS * MS_NS;
                latest = latest.max(at_ns);
                expected.push((number, at_ns / MS_NS));
                log.push(at_ns, false);
            }
            expected.sort_by_key(|(_, at)| *at);
            assert_eq!(log.finish(), expected);
        }
    }
}
