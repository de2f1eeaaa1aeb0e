//! The report of a calendar's periods, against an exact log of charges, settlements and refunds
//! over many periods; and times as RFC 3339.

use std::collections::BTreeMap;

use crate::support::arbitrary::{Key, START, at, config};
use proptest::prelude::*;
use tollgate_core::{
    ALLOWED_SKEW, Algorithm, Calendar, CalendarSpan, CalendarTime, CalendarUnit, Charge, LATEST,
    Limiter, Quota, Span, Timestamp, Weekday,
};

const SECOND: u64 = 1_000_000_000;
const DAY: u64 = 86_400 * SECOND;

fn calendar(unit: CalendarUnit, utc_offset: i16) -> Calendar {
    Calendar::new(unit, utc_offset).expect("a calendar")
}

fn key(limit: u64, calendar: Calendar) -> Key {
    Key::new(Limiter::new_calendar_window(limit, calendar).expect("a limiter"))
}

/// The units of the current and of the previous period.
fn units(key: &Key, now: u64) -> (u64, Option<u64>) {
    let usage = key.limiter.usage(&key.state, at(now)).expect("a calendar");
    (usage.current.used, usage.previous.map(|period| period.used))
}

/// 2026-11-30 23:59:50 UTC.
const NOVEMBER: u64 = 1_796_083_190 * SECOND;
const DECEMBER: u64 = NOVEMBER + 10 * SECOND;
const JANUARY: u64 = DECEMBER + 31 * DAY;

#[test]
fn a_period_that_ended_is_the_previous_one_until_the_next_ends() {
    let by_month = calendar(CalendarUnit::Month { anchor_day: 1 }, 0);
    let mut key = key(10, by_month);
    assert_eq!(units(&key, NOVEMBER), (0, Some(0)));
    key.check(NOVEMBER, 4);
    assert_eq!(units(&key, NOVEMBER), (4, Some(0)));
    // Also without any request in December.
    assert_eq!(units(&key, DECEMBER), (0, Some(4)));
    assert_eq!(units(&key, JANUARY - 1), (0, Some(4)));
    assert_eq!(units(&key, JANUARY), (0, Some(0)));
    assert_eq!(key.limiter.idle_at(&key.state), at(DECEMBER).saturating_add(ALLOWED_SKEW));
    let until = at(JANUARY).saturating_add(ALLOWED_SKEW);
    assert_eq!(key.limiter.reported_until(&key.state), until);
    key.check(DECEMBER, 1);
    assert_eq!(units(&key, DECEMBER), (1, Some(4)));
    let february = JANUARY + 31 * DAY;
    assert_eq!(key.limiter.reported_until(&key.state), at(february).saturating_add(ALLOWED_SKEW));
    let usage = key.limiter.usage(&key.state, at(JANUARY)).expect("a calendar");
    assert_eq!(usage.current.span, by_month.span_of(at(JANUARY)));
    assert_eq!(usage.previous.expect("one").span, by_month.span_of(at(DECEMBER)));
    // Of an earlier month nothing is left, whatever was not used in between.
    key.check(february, 1);
    assert_eq!(units(&key, february), (1, Some(0)));
}

/// A refund goes to the period of its charge, also after that has ended; units beyond an estimate
/// count when they become known.
#[test]
fn a_settlement_after_the_end_gives_back_there_and_charges_here() {
    let mut key = key(10, calendar(CalendarUnit::Month { anchor_day: 1 }, 0));
    let lower = key.check(NOVEMBER, 6).charge(at(NOVEMBER), 6).expect("a charge");
    let higher = key.check(NOVEMBER, 2).charge(at(NOVEMBER), 2).expect("a charge");
    key.limiter.settle(&mut key.state, lower, 1, at(DECEMBER));
    assert_eq!(units(&key, DECEMBER), (0, Some(3)), "nothing is counted in December yet");
    key.check(DECEMBER, 3);
    key.limiter.settle(&mut key.state, higher, 7, at(DECEMBER));
    assert_eq!(units(&key, DECEMBER), (8, Some(3)));
    key.debit(DECEMBER, 5);
    assert_eq!(units(&key, DECEMBER), (13, Some(3)), "above the limit");
    key.debit(DECEMBER, u64::MAX);
    assert_eq!(units(&key, DECEMBER), (20, Some(3)), "what exceeds two limits is not counted");
}

#[test]
fn a_late_clock_reports_the_period_that_it_counts_in() {
    let mut key = key(3, calendar(CalendarUnit::Month { anchor_day: 1 }, 0));
    key.check(NOVEMBER, 1);
    key.check(DECEMBER, 2);
    let late = DECEMBER - 30 * SECOND;
    let usage = key.limiter.usage(&key.state, at(late)).expect("a calendar");
    assert_eq!((usage.current.span.start_at, usage.current.used), (at(DECEMBER), 2));
    assert_eq!(usage.previous.map(|period| period.used), Some(1));
}

#[test]
fn only_a_state_of_a_calendar_has_a_report() {
    let by_day = key(3, calendar(CalendarUnit::Day, 0));
    assert_eq!(by_day.limiter.usage(&[0; 31], at(START)), None);
    assert_eq!(by_day.limiter.reported_until(&[0; 31]), Timestamp::ZERO);
    assert_eq!(by_day.limiter.usage(&by_day.state, at(1)).expect("the first day").previous, None);
    let quota = Quota::new(10, Span::from_nanos(DAY)).expect("a quota");
    let mut by_length = Key::new(Limiter::new(Algorithm::FixedWindow, quota).expect("a limiter"));
    by_length.check(START, 1);
    assert_eq!(by_length.limiter.usage(&by_length.state, at(START)), None);
    let idle_at = by_length.limiter.idle_at(&by_length.state);
    assert_eq!(by_length.limiter.reported_until(&by_length.state), idle_at);
}

#[test]
fn times_are_those_of_rfc_3339() {
    let text = |offset, second: u64| {
        calendar(CalendarUnit::Day, offset).time_of(at(second * SECOND)).to_string()
    };
    assert_eq!(text(0, 0), "1970-01-01T00:00:00Z");
    assert_eq!(text(-840, 0), "1969-12-31T10:00:00-14:00");
    assert_eq!(text(840, 0), "1970-01-01T14:00:00+14:00");
    assert_eq!(text(120, 1_796_076_000), "2026-12-01T00:00:00+02:00");
    assert_eq!(text(-210, 1_796_076_000), "2026-11-30T18:30:00-03:30");
    assert_eq!(text(0, 1_835_395_199), "2028-02-28T23:59:59Z");
    assert_eq!(text(0, 1_835_395_200), "2028-02-29T00:00:00Z");
    assert_eq!(text(0, 1_798_761_599), "2026-12-31T23:59:59Z");
    assert_eq!(CalendarTime::utc(at(NOVEMBER + 999_999_999)).to_string(), "2026-11-30T23:59:50Z");
    assert_eq!(CalendarTime::utc(LATEST), calendar(CalendarUnit::Day, 0).time_of(LATEST));
}

fn any_calendar() -> impl Strategy<Value = Calendar> {
    let unit = prop_oneof![
        Just(CalendarUnit::Hour),
        Just(CalendarUnit::Day),
        prop::sample::select(&Weekday::ALL).prop_map(|start| CalendarUnit::Week { start }),
        (1..=31_u8).prop_map(|anchor_day| CalendarUnit::Month { anchor_day }),
    ];
    (unit, -840..=840_i16).prop_map(|(unit, offset)| calendar(unit, offset))
}

/// One event: how far it is after the one before, and what happens.
#[derive(Clone, Copy, Debug)]
enum Event {
    Charge(u64),
    /// The charge of this number, modulo the open ones, used that much.
    Settle(usize, u64),
    Debit(u64),
}

fn any_event() -> impl Strategy<Value = (u64, Event)> {
    let event = prop_oneof![
        3 => (1..9_u64).prop_map(Event::Charge),
        2 => (any::<usize>(), 0..12_u64).prop_map(|(which, used)| Event::Settle(which, used)),
        1 => (0..9_u64).prop_map(Event::Debit),
    ];
    // In tenths of the longest period: often several events in one, sometimes a whole one without.
    (prop_oneof![4 => 0..3_u64, 1 => 3..25_u64], event)
}

/// All periods, by an exact log: the start of the period and its units.
#[derive(Default)]
struct Log(BTreeMap<Timestamp, u64>);

impl Log {
    fn of(&mut self, calendar: Calendar, time: u64) -> &mut u64 {
        self.0.entry(calendar.span_of(at(time)).start_at).or_default()
    }

    /// Units that count whether or not they fit, up to two limits.
    fn debit(&mut self, calendar: Calendar, time: u64, units: u64, limit: u64) {
        let count = self.of(calendar, time);
        *count = (*count + units).min(limit.saturating_mul(2).max(*count));
    }
}

proptest! {
    #![proptest_config(config(512))]

    #[test]
    fn a_report_is_an_exact_log(
        calendar in any_calendar(), limit in 1..40_u64,
        events in prop::collection::vec(any_event(), 1..80),
    ) {
        let mut key = key(limit, calendar);
        let (mut log, mut open, mut now) = (Log::default(), Vec::<Charge>::new(), START);
        for (tenths, event) in events {
            now += calendar.unit().longest().as_nanos() / 10 * tenths;
            match event {
                Event::Charge(cost) => {
                    let decision = key.check(now, cost);
                    let count = log.of(calendar, now);
                    prop_assert_eq!(decision.is_admitted(), *count + cost <= limit);
                    if let Some(charge) = decision.charge(at(now), cost) {
                        *count += cost;
                        open.push(charge);
                    }
                }
                Event::Settle(which, used) if !open.is_empty() => {
                    let charge = open.swap_remove(which % open.len());
                    key.limiter.settle(&mut key.state, charge, used, at(now));
                    let charged = log.of(calendar, charge.at.as_nanos());
                    *charged -= charge.cost.saturating_sub(used).min(*charged);
                    log.debit(calendar, now, used.saturating_sub(charge.cost), limit);
                }
                Event::Settle(..) => {}
                Event::Debit(units) => {
                    key.debit(now, units);
                    log.debit(calendar, now, units, limit);
                }
            }
            let before = key.state.clone();
            let usage = key.limiter.usage(&key.state, at(now)).expect("a calendar");
            prop_assert_eq!(&key.state, &before);
            let previous = usage.previous.expect("not the first");
            prop_assert_eq!(usage.current.span, calendar.span_of(at(now)));
            prop_assert_eq!(previous.span.end_at, usage.current.span.start_at);
            let units = |start_at| log.0.get(&start_at).copied().unwrap_or(0);
            prop_assert_eq!(usage.current.used, units(usage.current.span.start_at));
            prop_assert_eq!(previous.used, units(previous.span.start_at));
            let remaining = limit.saturating_sub(usage.current.used);
            prop_assert_eq!(key.peek(now, 0).remaining, remaining);
            // A store that keeps the state until then loses nothing of a report.
            let until = key.limiter.reported_until(&key.state);
            prop_assert!(until >= key.limiter.idle_at(&key.state));
            if usage.current.used > 0 || previous.used > 0 {
                prop_assert!(until > usage.current.span.end_at);
            }
            if until > at(now) {
                let after = key.limiter.usage(&key.state, until).expect("a calendar");
                let units = (after.current.used, after.previous.map(|it| it.used));
                prop_assert_eq!(units, (0, Some(0)));
            }
        }
    }

    /// Any bytes are a state: a report agrees with a decision, and its periods follow each other.
    #[test]
    fn any_bytes_have_a_report(
        calendar in any_calendar(), limit in 1..9_u64, words in prop::array::uniform4(any::<u64>()),
        near in any::<bool>(), now in any::<u64>(),
    ) {
        let mut key = key(limit, calendar);
        let start = if near { now.saturating_add(words[0] >> 12) } else { words[0] };
        let words = [start, words[1] % 16, words[2], words[3]];
        key.state = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let usage = key.limiter.usage(&key.state, at(now)).expect("a calendar");
        prop_assert_eq!(limit.saturating_sub(usage.current.used), key.peek(now, 0).remaining);
        let follows = |previous: CalendarSpan| previous.end_at == usage.current.span.start_at;
        prop_assert!(usage.previous.is_none_or(|previous| follows(previous.span)));
        prop_assert!(key.limiter.reported_until(&key.state) >= key.limiter.idle_at(&key.state));
        let text = calendar.time_of(at(now)).to_string();
        prop_assert!(text.len() == 20 || text.len() == 25, "{}", text);
    }
}
