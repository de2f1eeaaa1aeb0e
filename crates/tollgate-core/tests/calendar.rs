//! Calendar windows: the civil calendar against a count of days, and the decisions against a
//! history of requests.
//!
//! Invariant: the oracle shares no arithmetic with the core. It walks from 1970-01-01, a Thursday,
//! day by day, and knows the lengths of the months.

use crate::support::arbitrary::{Key, START, at, config};
use proptest::prelude::*;
use tollgate_core::{
    ALLOWED_SKEW, Algorithm, Calendar, CalendarSpan, CalendarUnit, CalendarWindowState, LATEST,
    Limiter, Quota, QuotaError, Span, Verdict, Weekday,
};

const SECOND: u64 = 1_000_000_000;
const HOUR: u64 = 3_600;
const DAY: u64 = 24 * HOUR;

/// Offsets in minutes: none, both extremes, parts of an hour.
const OFFSETS: [i16; 6] = [0, 120, -480, 330, -840, 840];

/// A civil day, and the second of its midnight by a clock that shows UTC.
#[derive(Clone, Copy, Debug)]
struct CivilDay {
    year: u32,
    month: u32,
    day: u32,
    weekday: Weekday,
    second: u64,
}

/// Every day from 1970 to 2200.
fn civil_days() -> impl Iterator<Item = CivilDay> {
    let first = CivilDay { year: 1970, month: 1, day: 1, weekday: Weekday::Thursday, second: 0 };
    std::iter::successors(Some(first), |today| Some(tomorrow(*today)))
        .take_while(|day| day.year <= 2200)
}

fn tomorrow(today: CivilDay) -> CivilDay {
    let position = Weekday::ALL.iter().position(|day| *day == today.weekday).expect("a day");
    let next = CivilDay {
        day: today.day + 1,
        weekday: Weekday::ALL[(position + 1) % 7],
        second: today.second + DAY,
        ..today
    };
    if next.day <= length_of(today.year, today.month) {
        next
    } else if today.month < 12 {
        CivilDay { month: today.month + 1, day: 1, ..next }
    } else {
        CivilDay { year: today.year + 1, month: 1, day: 1, ..next }
    }
}

fn length_of(year: u32, month: u32) -> u32 {
    match month {
        2 if has_leap_day(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

fn has_leap_day(year: u32) -> bool {
    let is_century = year.is_multiple_of(100);
    year.is_multiple_of(if is_century { 400 } else { 4 })
}

fn calendar(unit: CalendarUnit, utc_offset: i16) -> Calendar {
    Calendar::new(unit, utc_offset).expect("a calendar")
}

fn month(anchor_day: u8) -> CalendarUnit {
    CalendarUnit::Month { anchor_day }
}

/// The nanosecond at which a clock with this offset shows `local_second`; `None` before 1970.
fn utc(local_second: u64, offset: i16) -> Option<u64> {
    let second = local_second.checked_add_signed(-i64::from(offset) * 60)?;
    Some(second * SECOND)
}

/// The windows of `calendar` are the ones between `starts`, in seconds of its own clock.
fn assert_windows(calendar: &Calendar, starts: impl IntoIterator<Item = u64>) {
    let starts = starts.into_iter().filter_map(|start| utc(start, calendar.utc_offset()));
    let starts: Vec<u64> = starts.collect();
    for pair in starts.windows(2) {
        let expected = CalendarSpan { start_at: at(pair[0]), end_at: at(pair[1]) };
        for inside in [pair[0], pair[0] + 1, pair[0].midpoint(pair[1]), pair[1] - 1] {
            assert_eq!(calendar.span_of(at(inside)), expected, "{calendar:?} at {inside}");
        }
    }
    assert!(starts.len() > 2_000, "{calendar:?}");
}

#[test]
fn hours_and_days_begin_as_the_clock_shows_them() {
    for offset in OFFSETS {
        let days: Vec<u64> = civil_days().map(|day| day.second).collect();
        assert_windows(&calendar(CalendarUnit::Day, offset), days.iter().copied());
        let hours =
            days.iter().step_by(7).flat_map(|day| (0..24).map(move |hour| day + hour * HOUR));
        // Only whole days follow each other here, so the hour before each gap is left out.
        let hours: Vec<u64> = hours.collect();
        for day in hours.chunks(24) {
            let by_hour = calendar(CalendarUnit::Hour, offset);
            for start in day.iter().filter_map(|start| utc(*start, offset)) {
                let expected =
                    CalendarSpan { start_at: at(start), end_at: at(start + HOUR * SECOND) };
                for inside in [start, start + HOUR * SECOND - 1] {
                    assert_eq!(by_hour.span_of(at(inside)), expected, "{offset} at {inside}");
                }
            }
        }
    }
}

#[test]
fn weeks_begin_on_their_day() {
    for start in Weekday::ALL {
        for offset in OFFSETS {
            let starts = civil_days().filter(|day| day.weekday == start).map(|day| day.second);
            assert_windows(&calendar(CalendarUnit::Week { start }, offset), starts);
        }
    }
}

#[test]
fn months_begin_on_their_anchor_or_on_their_last_day() {
    for anchor_day in 1..=31 {
        let begins =
            |day: &CivilDay| day.day == length_of(day.year, day.month).min(u32::from(anchor_day));
        for offset in OFFSETS {
            let starts = civil_days().filter(begins).map(|day| day.second);
            assert_windows(&calendar(month(anchor_day), offset), starts);
        }
    }
}

#[test]
fn windows_are_between_the_shortest_and_the_longest() {
    let mut lengths = Vec::new();
    for anchor_day in 1..=31 {
        let by_month = calendar(month(anchor_day), 0);
        for day in civil_days().skip(365) {
            let length = by_month.span_of(at(day.second * SECOND)).len();
            assert!(length >= by_month.unit().shortest() && length <= by_month.unit().longest());
            lengths.push(length);
        }
    }
    lengths.sort();
    assert_eq!(lengths.first(), Some(&month(1).shortest()));
    assert_eq!(lengths.last(), Some(&month(1).longest()));
}

/// Named days, as a reader would check them with a calendar on the wall.
#[test]
fn named_days() {
    for (calendar, inside, (start, end)) in [
        // 2027-03-01 with the anchor 31: from 28 February to 31 March.
        (calendar(month(31), 0), 1_803_859_200, (1_803_772_800, 1_806_451_200)),
        // 2028-02-29 00:00 with the anchor 30: from that day to 30 March.
        (calendar(month(30), 0), 1_835_395_200, (1_835_395_200, 1_837_987_200)),
        // 2026-11-30 23:00 UTC is December at +02:00.
        (calendar(month(1), 120), 1_796_079_600, (1_796_076_000, 1_798_754_400)),
        // The same moment is November at -08:00.
        (calendar(month(1), -480), 1_796_079_600, (1_793_520_000, 1_796_112_000)),
    ] {
        let expected = CalendarSpan { start_at: at(start * SECOND), end_at: at(end * SECOND) };
        assert_eq!(calendar.span_of(at(inside * SECOND)), expected, "{calendar:?}");
    }
}

#[test]
fn the_window_of_1970_starts_at_the_epoch() {
    for (unit, end) in [
        (month(15), 14 * DAY),
        (CalendarUnit::Week { start: Weekday::Monday }, 4 * DAY),
        (CalendarUnit::Day, DAY),
        (CalendarUnit::Hour, HOUR),
    ] {
        let expected = CalendarSpan { start_at: at(0), end_at: at(end * SECOND) };
        assert_eq!(calendar(unit, 0).span_of(at(1)), expected);
    }
}

#[test]
fn impossible_calendars_and_limits() {
    assert_eq!(Calendar::new(month(0), 0), Err(QuotaError::AnchorDay));
    assert_eq!(Calendar::new(month(32), 0), Err(QuotaError::AnchorDay));
    assert_eq!(Calendar::new(CalendarUnit::Day, 841), Err(QuotaError::UtcOffset));
    assert_eq!(Calendar::new(CalendarUnit::Day, -841), Err(QuotaError::UtcOffset));
    let by_day = calendar(CalendarUnit::Day, 0);
    assert_eq!(Limiter::new_calendar_window(0, by_day), Err(QuotaError::Limit));
}

#[test]
fn a_calendar_is_read_from_its_bytes() {
    for (calendar, bytes) in [
        (calendar(CalendarUnit::Hour, 0), [1, 0, 0, 0]),
        (calendar(CalendarUnit::Day, 120), [2, 0, 120, 0]),
        (calendar(CalendarUnit::Week { start: Weekday::Sunday }, -1), [3, 7, 255, 255]),
        (calendar(month(31), 840), [4, 31, 0x48, 3]),
    ] {
        assert_eq!(calendar.to_bytes(), bytes);
        assert_eq!(Calendar::from_bytes(bytes), Some(calendar));
    }
    let wrong = [[0, 0, 0, 0], [1, 1, 0, 0], [2, 1, 0, 0], [3, 0, 0, 0], [3, 8, 0, 0]];
    let wrong =
        wrong.into_iter().chain([[4, 0, 0, 0], [4, 32, 0, 0], [5, 0, 0, 0], [2, 0, 0x49, 3]]);
    for bytes in wrong {
        assert_eq!(Calendar::from_bytes(bytes), None, "{bytes:?}");
    }
}

fn key(limit: u64, calendar: Calendar) -> Key {
    Key::new(Limiter::new_calendar_window(limit, calendar).expect("a limiter"))
}

/// 2026-11-30 23:59:50 UTC.
const BEFORE_DECEMBER: u64 = 1_796_083_190 * SECOND;
const DECEMBER: u64 = BEFORE_DECEMBER + 10 * SECOND;
const DAYS_OF_DECEMBER: u64 = 31;

#[test]
fn a_month_is_counted_from_its_start_to_its_end() {
    let mut key = key(3, calendar(month(1), 0));
    assert_eq!(key.check(BEFORE_DECEMBER, 2).remaining, 1);
    let denied = key.check(BEFORE_DECEMBER, 2);
    assert_eq!((denied.verdict, denied.remaining), (Verdict::Deny, 1));
    assert_eq!(denied.retry_after, Some(Span::from_secs(10)));
    assert_eq!(key.peek(DECEMBER - 1, 2).verdict, Verdict::Deny);
    let admitted = key.check(DECEMBER, 2);
    assert_eq!((admitted.verdict, admitted.remaining), (Verdict::Allow, 1));
    assert_eq!(admitted.reset_after, Span::from_secs(DAYS_OF_DECEMBER * DAY));
    assert_eq!(key.limiter.window_at(at(DECEMBER - 1)), Span::from_secs(30 * DAY));
    assert_eq!(key.limiter.window_at(at(DECEMBER)), Span::from_secs(31 * DAY));
    assert_eq!(key.check(DECEMBER, 4).retry_after, None);
    let end = DECEMBER + DAYS_OF_DECEMBER * DAY * SECOND;
    // A clock that is set back by 30 s still finds the window used.
    assert_eq!(key.limiter.idle_at(&key.state), at(end).saturating_add(ALLOWED_SKEW));
}

/// The bytes: start and count of the window, then of the one before.
#[test]
fn the_state_has_the_start_of_two_windows() {
    let mut key = key(3, calendar(month(1), 0));
    key.check(BEFORE_DECEMBER, 2);
    key.check(DECEMBER, 1);
    let november = DECEMBER - 30 * DAY * SECOND;
    let expected: Vec<u8> =
        [DECEMBER, 1, november, 2].iter().flat_map(|word| word.to_le_bytes()).collect();
    assert_eq!(key.state, expected);
    let none = CalendarWindowState::default();
    assert_eq!((none.start_at, none.count, none.previous_count), (at(0), 0, 0));
}

#[test]
fn a_clock_late_by_the_skew_counts_in_the_stored_window() {
    let mut late = key(3, calendar(month(1), 0));
    late.check(DECEMBER, 2);
    let skew = 30 * SECOND;
    let decision = late.check(DECEMBER - skew, 1);
    assert_eq!((decision.verdict, decision.remaining), (Verdict::Allow, 0));
    assert_eq!(decision.reset_after, Span::from_secs(DAYS_OF_DECEMBER * DAY + 30));
    assert_eq!(late.peek(DECEMBER, 1).verdict, Verdict::Deny);
    // One nanosecond more, and the count is foreign: one cost is allowed and the rest is kept.
    let decision = late.check(DECEMBER - skew - 1, 1);
    assert_eq!((decision.verdict, decision.remaining), (Verdict::Allow, 0));
    assert_eq!(decision.reset_after, Span::from_nanos(skew + 1));
    assert_eq!(late.peek(DECEMBER - skew - 1, 1).verdict, Verdict::Deny);
}

#[test]
fn a_charge_is_taken_back_in_its_own_window() {
    let mut key = key(9, calendar(month(1), 0));
    let november = key.check(BEFORE_DECEMBER, 4);
    let december = key.check(DECEMBER, 3);
    key.refund(&november, BEFORE_DECEMBER, 4, DECEMBER + 1);
    assert_eq!(key.peek(DECEMBER, 0).remaining, 6);
    assert_eq!(key.state[24..32], [0; 8], "the count of November");
    key.refund(&december, DECEMBER, 3, DECEMBER + 1);
    assert_eq!(key.peek(DECEMBER, 0).remaining, 9);
}

#[test]
fn units_known_later_are_recorded_beyond_the_limit() {
    let mut key = key(10, calendar(month(1), 0));
    key.check(DECEMBER, 4);
    key.debit(DECEMBER, 8);
    assert_eq!(key.peek(DECEMBER, 1).verdict, Verdict::Deny);
    assert_eq!(key.state[8], 12);
    key.debit(DECEMBER, u64::MAX);
    assert_eq!(key.state[8], 20, "two limits at most");
    let settled = key.limiter.with_holds().expect("it needs no holds");
    assert_eq!(settled, key.limiter);
}

#[test]
fn changed_quotas_keep_what_was_used() {
    let before = calendar(month(1), 0);
    let used = 7;
    for (after, limit, expected) in [
        (before, 10, used), // equal parameters
        (before, 20, used), // another limit
        (before, 5, used),  // a lower limit: nothing remains
        (calendar(month(15), 0), 10, used),
        (calendar(month(15), 0), 5, 5),
        (calendar(month(1), 120), 10, used),
        (calendar(CalendarUnit::Day, 0), 10, used),
    ] {
        let mut old = key(10, before);
        old.check(BEFORE_DECEMBER, 2);
        old.check(DECEMBER, used);
        let mut new = key(limit, after);
        let now = DECEMBER + SECOND;
        new.limiter.carry(&old.limiter, &old.state, at(now), &mut new.state);
        assert_eq!(new.state[8], expected as u8, "{after:?} {limit}");
        assert_eq!(new.peek(now, 0).remaining, limit.saturating_sub(used));
        if after == before {
            assert_eq!(new.state, old.state);
        } else {
            assert_eq!(new.state[..8], after.span_of(at(now)).start_at.as_nanos().to_le_bytes());
        }
    }
}

/// Between the two kinds of fixed windows the used units are charged at the change.
#[test]
fn a_quota_gets_or_loses_its_calendar_and_keeps_what_was_used() {
    let quota = Quota::new(10, Span::from_secs(DAY)).expect("a quota");
    let by_length = Limiter::new(Algorithm::FixedWindow, quota).expect("a limiter");
    let by_month = key(10, calendar(month(1), 0)).limiter;
    for (before, after) in [(by_length, by_month), (by_month, by_length)] {
        let (mut old, mut new) = (Key::new(before), Key::new(after));
        old.check(DECEMBER, 7);
        new.limiter.carry(&old.limiter, &old.state, at(DECEMBER), &mut new.state);
        assert_eq!(new.peek(DECEMBER, 0).remaining, 3);
    }
}

#[test]
fn a_quota_of_the_month_before_carries_nothing() {
    let mut old = key(10, calendar(month(1), 0));
    old.check(BEFORE_DECEMBER, 7);
    let mut new = key(10, calendar(month(15), 0));
    new.limiter.carry(&old.limiter, &old.state, at(DECEMBER), &mut new.state);
    assert_eq!(new.peek(DECEMBER, 0).remaining, 10);
    assert_eq!(new.state, [0; 32]);
}

#[test]
fn bounds_and_waits() {
    let by_month = key(5, calendar(month(1), 0)).limiter;
    assert_eq!(by_month.max_in_window(), 15);
    assert_eq!(key(5, calendar(CalendarUnit::Day, 0)).limiter.max_in_window(), 10);
    // January of 2027 ends, February has 28 days: 5 units in each.
    let january = 1_798_761_600 * SECOND + 31 * DAY * SECOND - SECOND;
    let mut key = Key::new(by_month);
    let decision = key.check(january, 5);
    assert_eq!(by_month.soonest(&decision, 5), Span::from_secs(1));
    assert_eq!(by_month.soonest(&decision, 6), Span::from_secs(1 + 28 * DAY));
    let end = january + SECOND;
    assert!(key.check(end, 5).is_admitted() && key.check(end + 28 * DAY * SECOND, 5).is_admitted());
    assert!(end + 28 * DAY * SECOND - january < by_month.window().as_nanos());
}

#[test]
fn the_last_time_is_a_window_like_any_other() {
    for unit in [CalendarUnit::Hour, CalendarUnit::Day, month(31)] {
        let by_unit = calendar(unit, -840);
        let mut key = key(2, by_unit);
        assert!(key.check(u64::MAX, 1).is_admitted());
        assert!(key.check(LATEST.as_nanos(), 1).is_admitted());
        assert!(!key.check(u64::MAX, 1).is_admitted());
        let span = by_unit.span_of(at(u64::MAX));
        assert!(span.start_at <= LATEST && span.end_at > LATEST);
        assert!(span.len() >= unit.shortest() && span.len() <= unit.longest());
    }
}

fn any_calendar() -> impl Strategy<Value = Calendar> {
    let unit = prop_oneof![
        Just(CalendarUnit::Hour),
        Just(CalendarUnit::Day),
        prop::sample::select(&Weekday::ALL).prop_map(|start| CalendarUnit::Week { start }),
        (1..=31_u8).prop_map(month),
    ];
    (unit, -840..=840_i16).prop_map(|(unit, offset)| calendar(unit, offset))
}

/// Where the next request is, seen from the one before: near it, or near the next boundary.
fn step() -> impl Strategy<Value = (bool, i64, u64)> {
    (any::<bool>(), -2..3_i64, 0..4_u64)
}

proptest! {
    #![proptest_config(config(512))]

    /// The history alone decides: what was allowed in the same window.
    #[test]
    fn decisions_are_those_of_a_history(
        calendar in any_calendar(), limit in 1..6_u64, steps in prop::collection::vec(step(), 1..40),
    ) {
        let mut key = key(limit, calendar);
        let mut history: Vec<(u64, u64)> = Vec::new();
        let mut now = START;
        for (to_boundary, nanos, cost) in steps {
            let near = if to_boundary { calendar.span_of(at(now)).end_at.as_nanos() } else { now };
            now = now.max(near.saturating_add_signed(nanos));
            let window = calendar.span_of(at(now));
            let inside = |(time, _): &&(u64, u64)| at(*time) >= window.start_at;
            let used: u64 = history.iter().filter(inside).map(|(_, cost)| cost).sum();
            let decision = key.check(now, cost);
            let fits = used + cost <= limit;
            prop_assert_eq!(decision.is_admitted(), fits);
            let counted = if fits { used + cost } else { used };
            prop_assert_eq!(decision.remaining, limit - counted);
            prop_assert_eq!(decision.reset_after, window.end_at.since(at(now)));
            let waits = !fits && cost <= limit;
            prop_assert_eq!(decision.retry_after, waits.then_some(decision.reset_after));
            if fits {
                history.push((now, cost));
            }
        }
    }

    /// Any bytes are a state: a peek is a check, a denial writes nothing, and what fits is allowed
    /// again after its wait.
    #[test]
    fn any_bytes_are_a_state(
        calendar in any_calendar(), limit in 1..6_u64, words in prop::array::uniform4(any::<u64>()),
        near in any::<bool>(), now in any::<u64>(), cost in 0..8_u64,
    ) {
        let mut key = key(limit, calendar);
        // Near: a start within some weeks of now.
        let start = if near { now.saturating_add(words[0] >> 12) } else { words[0] };
        let words = [start, words[1] % 16, words[2], words[3]];
        key.state = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let before = key.clone();
        let peeked = key.peek(now, cost);
        let decision = key.check(now, cost);
        prop_assert_eq!(peeked, decision);
        prop_assert_eq!(decision.is_admitted() && cost > 0, key.state != before.state);
        if let Some(wait) = decision.retry_after {
            let at_last = at(now).min(LATEST).saturating_add(wait);
            prop_assert!(before.peek(at_last.as_nanos() - 1, cost).retry_after.is_some());
            if at_last <= LATEST {
                prop_assert!(before.peek(at_last.as_nanos(), cost).is_admitted());
            }
        }
        let idle_at = key.limiter.idle_at(&key.state);
        let fresh = Key::new(key.limiter);
        prop_assert!(idle_at > LATEST || key.peek(idle_at.as_nanos(), cost) == fresh.peek(idle_at.as_nanos(), cost));
        prop_assert!(key.limiter.is_consistent(&key.state));
    }

    /// A clock that oscillates within the skew allows no window twice.
    #[test]
    fn a_clock_that_oscillates_credits_nothing_twice(
        calendar in any_calendar(), limit in 1..6_u64,
        steps in prop::collection::vec((0..30_000_u64, 1..3_u64), 1..40),
    ) {
        let mut key = key(limit, calendar);
        let end = calendar.span_of(at(START)).end_at.as_nanos();
        let mut admitted = 0;
        for (late_ms, cost) in steps {
            let now = end + 15 * SECOND - late_ms * 1_000_000;
            admitted += if key.check(now, cost).is_admitted() { cost } else { 0 };
        }
        prop_assert!(admitted <= 2 * limit);
    }
}
