//! One case: a policy and a trace of requests with their times.
//!
//! Invariant: the same number gives the same case on every target, for ever.

use std::borrow::Cow;

use serde_json::Value;
use tollgate_core::Timestamp;
use tollgate_policy::ResponseFacts;
use tollgate_test_support::Random;

use crate::policies::{self, ACTUAL};
use crate::regexes;
use crate::requests::{self, Request};

/// The number of cases, unless the environment sets another.
pub const CASES: u32 = 400;
/// Events per case: [`CASES`] times this is the number that the project promises to compare,
/// 100,000.
pub const EVENTS: usize = 250;

/// A policy and a trace.
pub struct Case {
    /// The number that generates it.
    pub number: u32,
    /// The document.
    pub policy: Value,
    /// The start of the trace, in milliseconds since 1970.
    pub start_ms: u64,
    /// The clock may go back between requests. Otherwise a request comes at the earliest when
    /// everything about the one before is decided.
    pub wavers: bool,
    /// The requests.
    pub events: Vec<Event>,
}

/// One request, its time, and the response of the origin if it is allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Milliseconds since the previous request.
    pub step_ms: i64,
    /// The request.
    pub request: Request,
    /// The status of the origin's response.
    pub status: u16,
    /// The value of its header [`ACTUAL`].
    pub actual: Option<&'static str>,
}

/// Costs that an origin shows, and values that are none.
const ACTUALS: [Option<&str>; 9] = [
    None,
    Some("0"),
    Some("1"),
    Some("3"),
    Some("7"),
    Some("40"),
    Some("2, 2"),
    Some("5, 6"),
    Some("-1"),
];

impl ResponseFacts for Event {
    fn header(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        self.actual.filter(|_| name == ACTUAL).map(|value| Cow::Borrowed(value.as_bytes()))
    }

    fn has_ended(&self) -> bool {
        true
    }
}

impl Case {
    /// The case `number`, always the same one.
    pub fn new(number: u32) -> Self {
        let mut random = Random::new(0x7011_6a7e_0000_0000 | u64::from(number));
        let mut others = Random::new(0x7011_6a7e_0001_0000 | u64::from(number));
        let mut limits = Random::new(0x7011_6a7e_0002_0000 | u64::from(number));
        let mut written = policies::policy(&mut random);
        let varies = number % 4 == 1;
        match number % 4 {
            0 => policies::settle_costs(&mut written.document, &mut others),
            1 => policies::vary_keys(&mut written.document, &mut others),
            2 => {
                policies::add_deny_rules(&mut written.document, &mut others);
                policies::add_penalties(&mut written.document, &mut others);
                policies::add_limits(&mut written.document, &mut limits);
            }
            _ => {}
        }
        // Far in the future of every real clock, so it triggers no timer of a server.
        let mut start_ms = 4_102_444_800_000 + random.below(10_000_000_000);
        // Shortly before a window of the calendar ends.
        if number % 4 == 3
            && let Some(calendar) = policies::add_calendar(&mut written.document, &mut others)
        {
            let end_at = calendar.span_of(Timestamp::from_millis(start_ms)).end_at;
            let end_ms = end_at.since(Timestamp::ZERO).as_millis_ceil();
            start_ms = end_ms - others.below(30 * written.window_ms);
        }
        let searches = number % 8 == 7;
        let mut searched = Random::new(0x7011_6a7e_0003_0000 | u64::from(number));
        if searches {
            regexes::add_regexes(&mut written.document, &mut searched);
        }
        let event = |_| {
            let step_ms = step_ms(&mut random, &written);
            let mut request = requests::request(&mut random);
            if varies {
                request.vary(&mut others);
            }
            if number % 4 == 2 {
                request.add_limit(&mut limits);
            }
            if searches {
                request.lengthen(&mut searched);
            }
            // gRPC reports errors in its own status, never in that of HTTP.
            let statuses: &[u16] =
                if request.grpc().is_some() { &[200] } else { &[200, 200, 200, 401, 404, 500] };
            let status = *random.pick(statuses);
            Event { step_ms, request, status, actual: *others.pick(&ACTUALS) }
        };
        let events = (0..EVENTS).map(event).collect();
        Self { number, policy: written.document, start_ms, wavers: written.wavers, events }
    }
}

impl Case {
    /// True when its policy has regular expressions, which not every module of the filter has.
    pub fn needs_regexes(&self) -> bool {
        self.policy.to_string().contains("\"match\"")
    }
}

/// The time since the previous request: often zero, mostly within a window, sometimes far ahead.
fn step_ms(random: &mut Random, written: &policies::GeneratedPolicy) -> i64 {
    let window = written.window_ms;
    let ms = match random.below(100) {
        0..45 => 0,
        45..75 => random.below(window / 8 + 1),
        75..90 => random.below(window),
        90..94 => window,
        94..97 => window + random.below(20 * window),
        97..99 if written.wavers => return -number(random.below(window.min(29_000)) + 1),
        99 if written.wavers => return -number(31_000 + random.below(2 * window)),
        _ => 1,
    };
    number(ms)
}

fn number(ms: u64) -> i64 {
    i64::try_from(ms).expect("a short time")
}

/// The number of cases to run: `TOLLGATE_CASES`, or else [`CASES`].
pub fn cases() -> u32 {
    wanted().unwrap_or(CASES)
}

/// The number of cases to run on a real server, where each event takes a millisecond:
/// `TOLLGATE_CASES`, or else a quarter of [`CASES`], which has as many cases of each kind. `cargo
/// xtask test deep` runs all.
pub fn cases_of_servers() -> u32 {
    wanted().unwrap_or(CASES / 4)
}

fn wanted() -> Option<u32> {
    let text = std::env::var("TOLLGATE_CASES").ok()?;
    text.parse().ok().map(|wanted: u32| wanted.min(CASES))
}
