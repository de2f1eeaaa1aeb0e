//! Tests the reference: the cases exercise what they claim, the core alone decides the same where
//! it can, and the file of digests is complete.
#![cfg(not(target_arch = "wasm32"))]

use std::collections::BTreeMap;

use tollgate_cases::coverage::Coverage;
use tollgate_cases::{
    CASES, Case, EVENTS, Expected, HASH_KEY, LASTS_LONG, Reference, cases, golden, limits, numbers,
};
use tollgate_core::{Decision, Limiter, Timestamp};
use tollgate_policy::Surface;
use tollgate_test_support::golden::is_blessing;

/// The required events, and the minimum number of each in all cases together.
const AT_LEAST: &[(usize, &[&str])] = &[
    (100_000, &["events"]),
    (500, &["refused as gRPC", "the clock goes back"]),
    (10_000, &["refused", "passed, with fields", "several rules", "no rule", "when", "tiers"]),
    (8_000, &["several keys"]),
    (900, &["marked"]),
    (
        100,
        &[
            "gcra penalised",
            "token-bucket penalised",
            "leaky-bucket penalised",
            "fixed-window penalised",
            "sliding-window penalised",
            "sliding-buckets penalised",
            "sliding-log penalised",
            "charge reserve penalised",
            "mode enforce_percent penalised",
            "key match malformed",
            "tier match denied",
            "when match allowed",
            "when match denied",
            "limit_from shadowed",
            "limit 0 denied",
            "in flight marked",
            "in flight shadowed",
            "penalty and calendar penalised",
            "penalty and concurrency penalised",
            "penalty and settled allowed",
            "calendar and settled allowed",
            "calendar and settled denied",
            "calendar and limit_from denied",
            "limit_from and concurrency allowed",
            "limit_from and concurrency denied",
            "deny and in flight",
        ],
    ),
    (
        10,
        &[
            "cost in a body absent",
            "cost in a body compressed",
            "cost in a body conflicting",
            "cost in a body content_type",
            "cost in a body incomplete",
            "cost in a body unreadable",
            "penalty and settled penalised",
            "settled and concurrency penalised",
        ],
    ),
    (300, &["waited for a place in vain"]),
    (40, &["waited for a place, passed", "a place ended, passed"]),
    (15, &["a place ended, waited on"]),
    (250, &["cost in a body known", "cost in a body later"]),
    (
        1_000,
        &[
            "several keys, refused",
            "refused without a key",
            "refused as malformed",
            "refused for ever",
            "waited",
            "charged by the response",
            "strict",
            "burst",
            "pk",
            "unless",
            "deny denied",
            "deny shadowed",
            "deny, own response",
            "deny, unless",
            "durability",
            "gcra denied",
            "token-bucket denied",
            "leaky-bucket denied",
            "leaky-queue denied",
            "leaky-queue delayed",
            "fixed-window denied",
            "key match allowed",
            "key match denied",
            "calendar 1mo denied",
            "limit_from allowed",
            "limit_from denied",
            "in flight alone",
            "in flight allowed",
            "in flight denied",
            "in flight ended",
            "in flight ended later",
            "in flight in a tier",
            "calendar and concurrency allowed",
            "calendar and concurrency denied",
            "settled and concurrency allowed",
            "settled and concurrency denied",
            "cost json allowed",
            "cost json denied",
            "calendar 1mo allowed",
            "sliding-window denied",
            "sliding-buckets denied",
            "sliding-log denied",
            "mode shadow shadowed",
            "mode enforce_percent shadowed",
            "mode enforce_percent denied",
            "action deny denied",
            "action delay denied",
            "action mark marked",
            "action respond denied",
            "charge response_status denied",
            "charge reserve allowed",
            "charge reserve denied",
            "cost header denied",
            "cost content_length_per denied",
            "cost number denied",
            "cost actual allowed",
            "cost actual denied",
            "on_missing shared denied",
            "generation draft-11",
            "generation draft-7",
            "generation draft-6",
            "generation x-ratelimit",
            "generation off",
            "key header",
            "key any_of",
            "key in lower case",
            "key with prefixes",
            "key cookie",
            "key query",
            "key path_param",
            "key client_ip",
            "key method",
            "key host",
            "key path",
            "key of nothing",
            "when paths",
            "when methods",
            "when hosts",
            "when headers",
            "when query",
            "when client_cidrs",
        ],
    ),
];

#[test]
fn the_cases_exercise_what_they_claim() {
    if cases() < CASES {
        return; // a subset need not cover everything
    }
    let mut coverage = Coverage::default();
    for number in 0..CASES {
        let case = Case::new(number);
        for (index, expected) in Reference::new(&case, Surface::Envoy, HASH_KEY).enumerate() {
            coverage.add(&case, index, &expected);
        }
    }
    println!("{}", coverage.table());
    for (least, names) in AT_LEAST {
        for name in *names {
            let count = coverage.of(name);
            assert!(count >= *least, "{name}: {count} of {least}\n{}", coverage.table());
        }
    }
}

// Requests that have to be confirmed, or expire, are for the tests of each surface.
#[test]
fn no_request_in_flight_has_to_be_confirmed() {
    for case in (0..CASES).map(Case::new).filter(|case| case.runs_on) {
        let runs_ms: i64 = case.events.iter().map(|event| event.step_ms.max(0)).sum();
        assert!(runs_ms < 86_400_000 / 3, "case {} runs {runs_ms} ms", case.number);
        let meanwhile = case.events.iter().flat_map(|it| it.ends_meanwhile.iter().map(|it| it.1));
        let mut ended: Vec<usize> =
            case.events.iter().flat_map(|it| it.ends.iter().copied()).chain(meanwhile).collect();
        ended.sort_unstable();
        assert!(ended.windows(2).all(|pair| pair[0] != pair[1]), "each ends once");
        assert!(ended.len() > EVENTS - LASTS_LONG, "all but some of the last ones end");
    }
}

/// The states of one key of a case with one plain rule, decided by the core alone.
struct ByCore {
    limiters: Vec<Limiter>,
    states: BTreeMap<String, Vec<Vec<u8>>>,
}

impl ByCore {
    fn new(reference: &Reference<'_>) -> Self {
        let quotas = reference.policy().quota_sets()[0].quotas();
        let limiters = quotas.iter().map(|quota| *quota.limiter()).collect();
        Self { limiters, states: BTreeMap::new() }
    }

    /// Checks every quota, then charges all of them or none.
    fn check(&mut self, key: &str, now: Timestamp, cost: u64) -> (bool, Vec<Decision>) {
        let fresh = || self.limiters.iter().map(|limiter| vec![0; limiter.state_len()]).collect();
        let states = self.states.entry(key.to_owned()).or_insert_with(fresh);
        let each = self.limiters.iter().zip(states.iter());
        let looked: Vec<Decision> = each.map(|(limiter, s)| limiter.peek(s, now, cost)).collect();
        let admitted = looked.iter().all(Decision::is_admitted);
        if admitted {
            for (limiter, state) in self.limiters.iter().zip(states) {
                limiter.check(state, now, cost);
            }
        }
        (admitted, looked)
    }
}

/// The cost of an event: the whole number in `x-cost` if the rule reads it, else 1.
fn cost(case: &Case, index: usize) -> u64 {
    let Some(max) = case.policy["rules"][0]["cost"]["max"].as_u64() else { return 1 };
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let text = one(&header(case, index, "x-cost").unwrap_or_default()).filter(|t| is_number(t));
    // A number beyond 64 bits is also a number.
    text.map_or(1, |text| text.parse().unwrap_or(u64::MAX)).clamp(1, max)
}

/// A header of an event, its lines joined.
fn header(case: &Case, index: usize, name: &str) -> Option<String> {
    let headers = case.events[index].request.headers.iter();
    let lines: Vec<&str> = headers.filter(|(n, _)| *n == name).map(|(_, v)| v.as_str()).collect();
    (!lines.is_empty()).then(|| lines.join(", "))
}

/// The one value of a header's lines; `None` when they differ.
fn one(lines: &str) -> Option<String> {
    let mut values = lines.split(',').map(|value| value.trim_matches([' ', '\t']));
    let values: Vec<&str> = values.by_ref().filter(|value| !value.is_empty()).collect();
    let first = values.first().copied().unwrap_or_default();
    values.iter().all(|value| *value == first).then(|| first.to_owned())
}

/// True when the rule reads one value and the lines contain different ones.
fn is_malformed(case: &Case, index: usize) -> bool {
    let reads_cost = !case.policy["rules"][0]["cost"]["max"].is_null();
    let differ = |name| one(&header(case, index, name).unwrap_or_default()).is_none();
    differ("x-key") || reads_cost && differ("x-cost")
}

/// False when the request is exempt, or has no header that the rule counts by.
fn is_counted(case: &Case, index: usize) -> bool {
    case.policy["exempt"].is_null() && header(case, index, "x-key").is_some()
}

fn agree(expected: &Expected, admitted: bool, decisions: &[Decision]) {
    let seen = &expected.seen;
    assert_eq!(seen.passed(), admitted, "{seen}\n{decisions:?}");
    let delay = decisions.iter().filter_map(|d| match d.verdict {
        tollgate_core::Verdict::Delay(wait) if admitted => Some(wait.as_millis_ceil()),
        _ => None,
    });
    assert_eq!(seen.waits_ms, delay.max().into_iter().collect::<Vec<_>>(), "{seen}\n{decisions:?}");
}

// The policy layer adds nothing to a decision. Where one plain rule counts by one header, the
// core's limiters alone allow the same requests, and their bytes are the stored ones.
#[test]
fn the_core_alone_decides_the_same() {
    let mut compared = 0;
    for number in numbers(cases()) {
        let case = Case::new(number);
        if case.policy["rules"][0]["name"] != "plain" {
            continue;
        }
        let mut reference = Reference::new(&case, Surface::Envoy, HASH_KEY);
        let mut core = ByCore::new(&reference);
        for index in 0..case.events.len() {
            let expected = reference.next().expect("an event");
            if is_counted(&case, index) && is_malformed(&case, index) {
                assert!(expected.seen.is_malformed(), "{}", expected.seen);
            } else if is_counted(&case, index) {
                let key = one(&header(&case, index, "x-key").expect("a key")).expect("one");
                let now = Timestamp::from_millis(expected.at_ms);
                let (admitted, decisions) = core.check(&key, now, cost(&case, index));
                agree(&expected, admitted, &decisions);
                compared += 1;
            }
        }
        let mut ours: Vec<Vec<u8>> =
            core.states.into_values().map(|states| states.concat()).collect();
        ours.retain(|states| states.iter().any(|byte| *byte != 0));
        // A record is a header of eight bytes and then the states.
        let mut theirs: Vec<Vec<u8>> =
            reference.store().values().map(|value| value[8..].to_vec()).collect();
        ours.sort();
        theirs.sort();
        if case.policy["exempt"].is_null() {
            assert_eq!(ours, theirs, "case {number}: stored bytes");
        }
    }
    println!("{compared} decisions are the core's");
    assert!(cases() < CASES || compared >= 8_000, "only {compared}");
}

// One command renews the file, and a file that lacks a section is not accepted as complete.
#[test]
fn golden_txt_is_complete() {
    if is_blessing() {
        assert_eq!(cases(), CASES, "bless all cases");
        let answered: Vec<_> = golden::policies().into_iter().chain(golden::limiters()).collect();
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/golden.txt");
        std::fs::write(file, golden::file(&answered)).expect("golden.txt is written");
        return;
    }
    if cases() == CASES {
        golden::is_complete();
    }
    assert!(
        CASES as usize * EVENTS >= 100_000 && limits::TRACES as usize * limits::STEPS >= 100_000
    );
}
