//! One case: a policy and a trace of requests with their times.
//!
//! Invariant: the same number gives the same case on every target, for ever.

use std::borrow::Cow;

use serde_json::Value;
use tollgate_core::Timestamp;
use tollgate_policy::{Policy, Problems, ResponseFacts, Surface};
use tollgate_test_support::Random;

use crate::bodies::{self, ResponseBody};
use crate::in_flight::{self, FIRST_WAITING, LASTS, LASTS_LONG};
use crate::mixed::Mix;
use crate::policies::{self, ACTUAL, GeneratedPolicy};
use crate::regexes;
use crate::requests::{self, Request};

/// The number of cases, unless the environment sets another.
pub const CASES: u32 = FIRST_WAITING + 16;
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
    /// Some requests run on and end after a later one; otherwise each ends before the next one.
    pub runs_on: bool,
    /// Requests wait for a place among those in flight, and earlier ones end meanwhile.
    pub waits_for_places: bool,
    /// The requests.
    pub events: Vec<Event>,
}

/// One request, its time, the response of the origin if it is allowed, and the requests that end
/// after it.
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
    /// Its body; `None` for one that no rule reads.
    pub body: Option<ResponseBody>,
    /// The requests that end after this one was answered and has waited, perhaps itself, by their
    /// indices and in this order. The body of a response ends with its request.
    pub ends: Vec<usize>,
    /// Earlier requests that end while this one waits: the index of the wait, at whose end, and
    /// that of the request. If it does not wait so often, they end before [those](Self::ends) after
    /// it.
    pub ends_meanwhile: Vec<(usize, usize)>,
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

/// The head of the response.
impl ResponseFacts for Event {
    fn header(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        let actual = self.actual.filter(|_| name == ACTUAL);
        let value = actual.or_else(|| self.body.as_ref()?.header(name));
        value.map(|value| Cow::Borrowed(value.as_bytes()))
    }

    fn has_ended(&self) -> bool {
        false
    }
}

impl Case {
    /// The case `number`, always the same one.
    pub fn new(number: u32) -> Self {
        let mut random = Random::new(0x7011_6a7e_0000_0000 | u64::from(number));
        let mut others = Random::new(0x7011_6a7e_0001_0000 | u64::from(number));
        let mut limits = Random::new(0x7011_6a7e_0002_0000 | u64::from(number));
        let mix = Mix::of(number);
        let mut written = policies::policy(&mut random);
        while mix.is_some() && policies::is_plain(&written.document) {
            written = policies::policy(&mut random);
        }
        let waits_for_places = number >= FIRST_WAITING;
        if waits_for_places {
            while policies::is_plain(&written.document) {
                written = policies::policy(&mut random);
            }
            written.wavers = false;
            let mut waiting = Random::new(0x7011_6a7e_0005_0000 | u64::from(number));
            in_flight::delay_requests(&mut written.document, &mut waiting);
        }
        let varies = number % 4 == 1;
        let mut calendar = None;
        match number % 4 {
            _ if mix.is_some() => {}
            0 => policies::settle_costs(&mut written.document, 70, &mut others),
            1 => policies::vary_keys(&mut written.document, &mut others),
            2 => {
                policies::add_deny_rules(&mut written.document, &mut others);
                policies::add_penalties(&mut written.document, 40, &mut others);
                policies::add_limits(&mut written.document, &mut limits);
            }
            _ => calendar = policies::add_calendar(&mut written.document, &mut others),
        }
        let mut rest = Rest::new(number, &mut written.document);
        if let Some(mix) = mix {
            calendar = mix.apply(&mut written.document, &mut rest.random);
        }
        // Far in the future of every real clock, so it triggers no timer of a server.
        let mut start_ms = 4_102_444_800_000 + random.below(10_000_000_000);
        // Shortly before a window of the calendar ends.
        if let Some(calendar) = calendar {
            let end_at = calendar.span_of(Timestamp::from_millis(start_ms)).end_at;
            let end_ms = end_at.since(Timestamp::ZERO).as_millis_ceil();
            start_ms = end_ms - others.below(30 * written.window_ms);
        }
        let searches = number % 8 == 7;
        let mut searched = Random::new(0x7011_6a7e_0003_0000 | u64::from(number));
        if searches {
            regexes::add_regexes(&mut written.document, &mut searched);
        }
        let event = |index| {
            let step_ms = step_ms(&mut random, &written);
            let mut request = requests::request(&mut random);
            if varies {
                request.vary(&mut others);
            }
            if number % 4 == 2 || mix.is_some() {
                request.add_limit(&mut limits);
            }
            if searches {
                request.lengthen(&mut searched);
            }
            // gRPC reports errors in its own status, never in that of HTTP.
            let statuses: &[u16] =
                if request.grpc().is_some() { &[200] } else { &[200, 200, 200, 401, 404, 500] };
            let status = *random.pick(statuses);
            let actual = *others.pick(&ACTUALS);
            let (body, ends, ends_meanwhile) = (rest.body(), vec![index], vec![]);
            Event { step_ms, request, status, actual, body, ends, ends_meanwhile }
        };
        let mut events: Vec<Event> = (0..EVENTS).map(event).collect();
        let runs_on = rest.ends_later;
        rest.end_later(&mut events);
        let GeneratedPolicy { document: policy, wavers, .. } = written;
        Self { number, policy, start_ms, wavers, runs_on, waits_for_places, events }
    }
}

/// The rest of requests, after the heads of their responses, in the cases whose policies depend on
/// it: limits on requests in flight, and costs in bodies.
struct Rest {
    has_bodies: bool,
    ends_later: bool,
    /// Some end while a later one waits.
    ends_meanwhile: bool,
    random: Random,
}

impl Rest {
    /// That of the case `number`, whose `document` gets such limits and costs.
    fn new(number: u32, document: &mut Value) -> Self {
        let mut random = Random::new(0x7011_6a7e_0004_0000 | u64::from(number));
        if number >= FIRST_WAITING {
            in_flight::wait_for_places(document, &mut random);
            return Self { has_bodies: false, ends_later: true, ends_meanwhile: true, random };
        }
        if let Some(mix) = Mix::of(number) {
            let (has_bodies, ends_meanwhile) = (mix.has_bodies(), false);
            return Self { has_bodies, ends_later: true, ends_meanwhile, random };
        }
        let has_bodies = number % 16 == 13;
        let ends_later = has_bodies || number % 16 == 5;
        if has_bodies {
            bodies::settle_by_bodies(document, 90, &mut random);
        }
        if ends_later {
            in_flight::limit_requests_in_flight(document, &mut random);
        }
        Self { has_bodies, ends_later, ends_meanwhile: false, random }
    }

    fn body(&mut self) -> Option<ResponseBody> {
        self.has_bodies.then(|| bodies::body(&mut self.random))
    }

    fn end_later(mut self, events: &mut [Event]) {
        if self.ends_later {
            // A response to HEAD has no body whose end could come later.
            let can_run_on = events.iter().map(|event| event.request.method != "HEAD");
            let most = if self.ends_meanwhile { LASTS_LONG } else { LASTS };
            let can_run_on: Vec<bool> = can_run_on.collect();
            let mut ends = in_flight::ends(&can_run_on, most, &mut self.random);
            for (index, event) in events.iter_mut().enumerate() {
                if self.ends_meanwhile {
                    event.ends_meanwhile = in_flight::meanwhile(index, &mut ends, &mut self.random);
                }
                event.ends = std::mem::take(&mut ends[index]);
            }
        }
    }
}

impl Event {
    /// The body of its response in the pieces in which the origin sends it. A response to HEAD has
    /// none.
    pub fn sent_body(&self) -> Vec<&'static [u8]> {
        let body = self.body.filter(|_| self.request.method != "HEAD");
        body.map_or_else(Vec::new, |body| body.bytes.chunks(body.piece_len).collect())
    }
}

impl Case {
    /// The policy as `surface` compiles it.
    ///
    /// # Errors
    /// The surface refuses a feature of it; see [`cases_on`].
    pub fn compile(&self, surface: Surface) -> Result<Policy, Problems> {
        tollgate_language::compile(&self.policy.to_string(), surface)
    }

    /// True when costs are in the bodies of responses, which not every surface reads.
    pub fn has_costs_in_bodies(&self) -> bool {
        self.policy.to_string().contains("\"json\"")
    }
}

/// The time since the previous request: often zero, mostly within a window, sometimes far ahead.
fn step_ms(random: &mut Random, written: &GeneratedPolicy) -> i64 {
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

/// The cases below `count` that `surface` does not refuse. It may refuse costs in bodies: then it
/// refuses every case with one, and no other.
///
/// # Panics
/// It refuses another case, or some of these alone.
pub fn cases_on(surface: Surface, count: u32) -> Vec<Case> {
    let all = numbers(count).map(Case::new);
    let (accepted, refused): (Vec<Case>, Vec<Case>) =
        all.partition(|case| case.compile(surface).is_ok());
    let reads_bodies = accepted.iter().any(Case::has_costs_in_bodies);
    for case in &refused {
        assert!(case.has_costs_in_bodies() && !reads_bodies, "{surface:?} refuses {}", case.number);
    }
    accepted
}

/// The numbers of this many cases: as large a share of each kind.
pub fn numbers(count: u32) -> impl Iterator<Item = u32> {
    let waiting = count * (CASES - FIRST_WAITING) / CASES;
    (0..count - waiting).chain(FIRST_WAITING..FIRST_WAITING + waiting)
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
