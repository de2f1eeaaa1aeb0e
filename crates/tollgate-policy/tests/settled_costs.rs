//! Costs that the response shows: an estimate is held from the request on, and each quota settles
//! it at what the response used.

use std::borrow::Cow;

use tollgate_core::Timestamp;
use tollgate_policy::spec::JsonCost;
use tollgate_policy::{
    ActualUnits, BodyScan, Disposition, Ending, Failure, Plan, ResponseFacts, SettledCharge,
    UnknownCost,
};
use tollgate_storage::{Counts, Settlement};

use crate::support::{Ended, Head, Random, Request, Surfaced, Tokens};

const DENIED: Disposition = Disposition::Deny { status: 429 };
const START: u64 = 7_200_000;
const OK: Ending = Ending::Response(200);

/// Every algorithm that can hold units and record more.
const ALGORITHMS: [&str; 6] =
    ["gcra", "token-bucket", "leaky-bucket", "fixed-window", "sliding-window", "sliding-buckets"];

/// A budget of `limit` units an hour; a request is estimated at 10 and costs at most 60.
fn budget(algorithm: &str, limit: u64) -> Surfaced {
    Surfaced::new(&format!(
        r#"{{"version": 1, "rules": [{{"name": "tokens", "key": [],
            "cost": {{"estimate": 10, "max": 60, "actual": {{"header": "X-Tokens"}},
                      "on_status": {{"5xx": 0, "429": 1}}, "forgive_excess": true}},
            "quotas": [{{"limit": {limit}, "window": "1h", "algorithm": "{algorithm}"}}]}}]}}"#
    ))
}

fn request() -> Request {
    Request { method: "POST", target: "/v1/chat".into(), ..Request::default() }
}

/// The plan of an allowed request.
fn sent(surface: &mut Surfaced, millis: u64) -> Option<Plan> {
    let seen = surface.check(&request(), millis);
    (seen.answer == Disposition::Allow).then(|| std::mem::take(&mut surface.plan))
}

/// The response to `plan`; returns what it settled.
fn answered(
    surface: &mut Surfaced,
    plan: Plan,
    (ending, tokens): (Ending, &'static str),
    millis: u64,
) -> Vec<SettledCharge> {
    surface.plan = plan;
    surface.end_with(ending, &Tokens(tokens), millis);
    surface.settlement().costs().to_vec()
}

/// The units that are left.
fn left(surface: &mut Surfaced, millis: u64) -> u64 {
    let stored = surface.store.clone();
    let is_allowed = surface.check(&request(), millis).answer == Disposition::Allow;
    let outcome = surface.plan.outcome(&surface.policy);
    let remaining = outcome.decisions().next().unwrap().quotas[0].remaining;
    surface.store = stored;
    remaining + if is_allowed { 10 } else { 0 }
}

#[test]
fn a_request_costs_what_its_response_shows() {
    for algorithm in ALGORITHMS {
        let mut surface = budget(algorithm, 100);
        for (ending, tokens, actual, remaining) in [
            (OK, "4", Ok(4), 96),
            (OK, "0", Ok(0), 96),
            (OK, "10", Ok(10), 86),
            (OK, "25", Ok(25), 61),
            (Ending::Response(503), "25", Ok(0), 61),
            (Ending::Response(429), "25", Ok(1), 60),
            (Ending::Response(404), "5", Ok(5), 55),
            (OK, "many", Err(UnknownCost::Unreadable), 45),
            (OK, "1, 2", Err(UnknownCost::Conflicting), 35),
            (Ending::Disconnect, "1", Err(UnknownCost::NoResponse), 25),
            (Ending::NotSent, "1", Ok(0), 25),
            (OK, "99999999999999999999", Ok(60), 0),
        ] {
            let plan = sent(&mut surface, START).expect("it fits");
            let settlement = plan.settlement(&surface.policy);
            assert!(settlement.is_deferred());
            assert_eq!(settlement.costs_at_end().count(), 0, "its head shows it");
            let settled = answered(&mut surface, plan, (ending, tokens), START);
            assert_eq!(settled, [SettledCharge { rule: 0, estimate: 10, actual }]);
            assert_eq!(left(&mut surface, START), remaining, "{algorithm} after {tokens}");
        }
        assert!(sent(&mut surface, START).is_none(), "{algorithm}: the budget is overdrawn");
    }
}

#[test]
fn an_estimate_is_held_until_the_response_shows_less() {
    for algorithm in ALGORITHMS {
        let mut surface = budget(algorithm, 100);
        let mut plans: Vec<Plan> = (0..20).filter_map(|_| sent(&mut surface, START)).collect();
        assert_eq!(plans.len(), 10, "{algorithm}: ten estimates of 10 are 100");
        for plan in plans.drain(..) {
            answered(&mut surface, plan, (OK, "1"), START);
        }
        assert_eq!(left(&mut surface, START), 90, "{algorithm}");
    }
}

// Guards: use that does not fit is lost, as by limiters that ignore such a report. A client that
// uses more than it was estimated pays for it later, and gets the time of that.
#[test]
fn what_is_used_above_the_estimate_delays_the_next_request() {
    for algorithm in ALGORITHMS {
        let mut surface = budget(algorithm, 20);
        for _ in 0..2 {
            let plan = sent(&mut surface, START).unwrap_or_default();
            answered(&mut surface, plan, (OK, "25"), START);
        }
        let seen = surface.check(&request(), START);
        assert_eq!(seen.answer, DENIED, "{algorithm}");
        let wait = surface.plan.outcome(&surface.policy).retry_after().expect("it comes back");
        let millis = START + wait.as_millis_ceil();
        assert_eq!(surface.check(&request(), millis - 1).answer, DENIED, "{algorithm}");
        assert_eq!(surface.check(&request(), millis).answer, Disposition::Allow, "{algorithm}");
    }
}

#[test]
fn no_estimate_is_settled_that_was_not_charged() {
    let mut surface = budget("gcra", 20);
    let plans = [sent(&mut surface, START), sent(&mut surface, START)].map(Option::unwrap);
    assert!(sent(&mut surface, START).is_none());
    assert!(!surface.settlement().is_deferred());
    let refused = std::mem::take(&mut surface.plan);
    assert_eq!(answered(&mut surface, refused, (OK, "50"), START), [], "a denial costs nothing");
    // A store that failed charged nothing, and gets nothing back.
    surface.policy.plan(&request(), &mut surface.plan);
    surface.plan.each_partition(|partition| partition.fail(Failure::Unreachable));
    surface.plan.decide(&surface.policy, Timestamp::from_millis(START));
    let failed = std::mem::take(&mut surface.plan);
    assert!(!failed.settlement(&surface.policy).is_deferred());
    assert_eq!(answered(&mut surface, failed, (OK, "0"), START), []);
    for plan in plans {
        answered(&mut surface, plan, (OK, "0"), START);
    }
    assert_eq!(left(&mut surface, START), 20);
}

/// Responses in any order, at one instant: at every moment what is used and what is held is at most
/// the limit, as long as no response uses more than its estimate; then exactly the rest is left.
#[test]
fn at_one_instant_the_rest_is_the_limit_less_what_was_used() {
    let random = &mut Random::new(7);
    for round in 0..400 {
        let algorithm = ALGORITHMS[round % ALGORITHMS.len()];
        let (limit, mut surface) = (100, budget(algorithm, 100));
        let overdraws = round % 2 == 0;
        let (mut open, mut used) = (Vec::new(), 0_u64);
        for _ in 0..60 {
            if random.one_in(2) {
                open.extend(sent(&mut surface, START));
            } else if !open.is_empty() {
                let i = usize::try_from(random.below(u64::try_from(open.len()).unwrap())).unwrap();
                let costs = ["0", "1", "3", "9", "10", "12", "30"];
                let tokens =
                    costs[usize::try_from(random.below(if overdraws { 7 } else { 5 })).unwrap()];
                used += tokens.parse::<u64>().unwrap();
                answered(&mut surface, open.swap_remove(i), (OK, tokens), START);
            }
            let held = 10 * u64::try_from(open.len()).unwrap();
            assert!(overdraws || used + held <= limit);
            // A debit is capped at two limits, of which no refund leaves less than one.
            let rest = limit.saturating_sub(used + held);
            assert_eq!(left(&mut surface, START), rest, "{algorithm} in round {round}");
        }
    }
}

/// `POST /check/settle`: the receipt of an estimate ends its hold, and debits what is above it.
#[test]
fn a_receipt_settles_an_estimate() {
    for algorithm in ALGORITHMS {
        let surface = budget(algorithm, 100);
        let policy = &surface.policy;
        let now = Timestamp::from_millis(START);
        let mut counts = Counts::default();
        let check = |counts: &mut Counts| {
            let mut plan = Plan::new();
            policy.plan(&request(), &mut plan);
            let (mut asked, mut receipt) = (Vec::new(), Vec::new());
            plan.partition(0).unwrap().request(policy, &mut asked);
            let reply = counts.answer(&asked, now).unwrap().reply;
            plan.partition_mut(0).unwrap().accept(policy, &reply).unwrap();
            assert!(plan.partition(0).unwrap().write_receipt(policy, &mut receipt));
            receipt
        };
        let left = |counts: &Counts| {
            let mut plan = Plan::new();
            policy.plan(&request(), &mut plan);
            let mut asked = Vec::new();
            plan.partition(0).unwrap().peek_request(policy, &mut asked);
            let reply = counts.clone().answer(&asked, now).unwrap().reply;
            plan.partition_mut(0).unwrap().accept(policy, &reply).unwrap();
            plan.outcome(policy).decisions().next().unwrap().quotas[0].remaining
        };
        for (id, (cost, remaining)) in
            [(4, 96), (10, 86), (40, 46), (0, 46)].into_iter().enumerate()
        {
            let receipt = check(&mut counts);
            let asked = Settlement::request(u64::try_from(id).unwrap(), cost, &receipt);
            for _ in 0..2 {
                let reply = counts.answer(&asked, now).unwrap().reply;
                let settlement = Settlement::read(&reply).unwrap();
                assert_eq!(settlement, Settlement::Stands { charged: cost }, "{algorithm}");
            }
            assert_eq!(left(&counts), remaining, "{algorithm} settled at {cost}");
        }
        let receipt = check(&mut counts);
        let reply = counts.answer(&Settlement::request(9, 12, &receipt), now).unwrap().reply;
        assert_eq!(Settlement::read(&reply), Ok(Settlement::Stands { charged: 12 }));
    }
}

// Guards: a report of tokens that is charged to a rule that counts requests, and one without bound.
#[test]
fn a_receipt_is_of_estimates_alone_and_settles_at_most_their_maximum() {
    let surface = Surfaced::new(
        r#"{"version": 1, "rules": [
            {"name": "tokens", "key": [], "quotas": [{"limit": 1000, "window": "1h"}],
             "cost": {"estimate": 10, "max": 60, "actual": {"header": "x-tokens"}}},
            {"name": "requests", "key": [], "cost": 2, "quotas": [{"limit": 100, "window": "1h"}]}]}"#,
    );
    let policy = &surface.policy;
    let now = Timestamp::from_millis(START);
    let mut counts = Counts::default();
    let asked_for = |counts: &mut Counts, is_charged: bool| {
        let mut plan = Plan::new();
        policy.plan(&request(), &mut plan);
        let mut asked = Vec::new();
        let partition = plan.partition(0).unwrap();
        if is_charged {
            partition.request(policy, &mut asked);
        } else {
            partition.peek_request(policy, &mut asked);
        }
        let reply = counts.answer(&asked, now).unwrap().reply;
        plan.partition_mut(0).unwrap().accept(policy, &reply).unwrap();
        plan
    };
    let mut receipt = Vec::new();
    let plan = asked_for(&mut counts, true);
    assert!(plan.partition(0).unwrap().write_receipt(policy, &mut receipt));
    let reply = counts.answer(&Settlement::request(1, 1_000_000, &receipt), now).unwrap().reply;
    assert_eq!(Settlement::read(&reply), Ok(Settlement::Stands { charged: 60 }));
    let plan = asked_for(&mut counts, false);
    let remaining = |rule: usize| {
        let outcome = plan.outcome(policy);
        outcome.decisions().find(|decision| decision.rule == rule).unwrap().quotas[0].remaining
    };
    assert_eq!((remaining(0), remaining(1)), (940, 98));
}

// Guards: units that come back after the count that they were charged to was lost: they are of
// requests that others made since.
#[test]
fn a_lost_count_gives_nothing_back_and_still_records_the_excess() {
    for algorithm in ALGORITHMS {
        let surface = budget(algorithm, 100);
        let now = Timestamp::from_millis(START);
        for (tokens, expected) in [("0", 90), ("25", 75)] {
            let mut counts = Counts::default();
            let check = |counts: &mut Counts| {
                let mut plan = Plan::new();
                surface.policy.plan(&request(), &mut plan);
                let mut asked = Vec::new();
                plan.partition(0).unwrap().request(&surface.policy, &mut asked);
                let reply = counts.answer(&asked, now).unwrap().reply;
                plan.partition_mut(0).unwrap().accept(&surface.policy, &reply).unwrap();
                plan
            };
            let mut plan = check(&mut counts);
            counts = Counts::begun_anew(now);
            check(&mut counts);
            plan.settle(&surface.policy, OK, &Tokens(tokens));
            let mut asked = Vec::new();
            plan.partition(0).unwrap().settle_request(&surface.policy, &mut asked);
            counts.answer(&asked, Timestamp::from_millis(START + 1)).unwrap();
            let last = check(&mut counts);
            let remaining =
                last.outcome(&surface.policy).decisions().next().unwrap().quotas[0].remaining;
            assert_eq!(remaining + 10, expected, "{algorithm} after {tokens}");
        }
    }
}

/// A budget of 100 units an hour whose cost `actual` shows; a request is estimated at 10.
fn budget_by(actual: &str) -> Surfaced {
    Surfaced::new(&format!(
        r#"{{"version": 1, "rules": [{{"name": "tokens", "key": [],
            "cost": {{"estimate": 10, "max": 60, "actual": {actual}, "on_status": {{"5xx": 1}}}},
            "quotas": [{{"limit": 100, "window": "1h"}}]}}]}}"#
    ))
}

#[test]
fn what_the_end_of_a_response_shows_is_settled_there() {
    for (actual, shown, units) in [
        (r#"{"metadata": ["ai", "usage", "total"]}"#, 25, 25),
        (r#"{"metadata": ["ai", "usage", "total"]}"#, 61, 60),
        (r#""bytes""#, 0, 0),
        (r#"{"bytes_per": 10}"#, 41, 5),
        (r#"{"bytes_per": 10}"#, u64::MAX, 60),
        (r#""duration""#, 42, 42),
    ] {
        let mut surface = budget_by(actual);
        surface.plan = sent(&mut surface, START).unwrap();
        assert_eq!(surface.settlement().costs_at_end().count(), 1, "{actual}");
        assert!(!surface.end_with(OK, &Head(()), START), "{actual}: nothing is known yet");
        assert!(surface.settlement().awaits_end() && surface.settlement().costs().is_empty());
        assert!(surface.settlement().is_deferred());
        assert!(surface.end_with(OK, &Ended(shown), START));
        let settled = [SettledCharge { rule: 0, estimate: 10, actual: Ok(units) }];
        assert_eq!(surface.settlement().costs(), settled);
        assert!(!surface.settlement().is_deferred());
        assert!(!surface.end_with(OK, &Ended(shown), START), "{actual} is settled once");
        assert_eq!(left(&mut surface, START), 100 - units, "{actual}");
    }
}

#[test]
fn a_status_that_decides_and_a_missing_response_need_no_end() {
    for (ending, units, actual) in
        [(Ending::Response(503), 1, Ok(1)), (Ending::Disconnect, 10, Err(UnknownCost::NoResponse))]
    {
        let mut surface = budget_by(r#""bytes""#);
        let plan = sent(&mut surface, START).unwrap();
        surface.plan = plan;
        surface.end_with(ending, &Head(()), START);
        assert_eq!(surface.settlement().costs()[0].actual, actual);
        assert!(!surface.settlement().is_deferred());
        assert_eq!(left(&mut surface, START), 100 - units);
    }
    // An end that does not show the cost leaves the estimate.
    let mut surface = budget_by(r#""duration""#);
    surface.plan = sent(&mut surface, START).unwrap();
    surface.end_with(OK, &Head(()), START);
    surface.end_with(OK, &(), START);
    assert_eq!(surface.settlement().costs()[0].actual, Err(UnknownCost::Absent));
    assert_eq!(left(&mut surface, START), 90);
}

// Guards: the rule that its headers settle, charged again at the end or forgotten there.
#[test]
fn each_rule_is_settled_when_its_cost_is_known() {
    let mut surface = Surfaced::new(
        r#"{"version": 1, "rules": [
            {"name": "tokens", "key": [], "quotas": [{"limit": 100, "window": "1h"}],
             "cost": {"estimate": 10, "max": 60, "actual": {"header": "x-tokens"}}},
            {"name": "bytes", "key": [], "quotas": [{"limit": 200, "window": "1h"}],
             "cost": {"estimate": 20, "max": 60, "actual": "bytes"}},
            {"name": "misses", "key": [], "quotas": [{"limit": 300, "window": "1h"}],
             "charge": {"response_status": ["404"]}}]}"#,
    );
    surface.plan = sent(&mut surface, START).unwrap();
    assert!(surface.end_with(Ending::Response(404), &Head(Tokens("7")), START));
    let of_head = [SettledCharge { rule: 0, estimate: 10, actual: Ok(7) }];
    assert_eq!(surface.settlement().costs(), of_head);
    assert!(surface.end_with(Ending::Response(404), &Ended(50), START));
    let of_end = [SettledCharge { rule: 1, estimate: 20, actual: Ok(50) }];
    assert_eq!(surface.settlement().costs(), of_end);
    assert_eq!(surface.settlement().all_costs(), [of_head, of_end].concat());
    surface.check(&request(), START);
    let outcome = surface.plan.outcome(&surface.policy);
    let remaining: Vec<u64> =
        outcome.decisions().map(|decision| decision.quotas[0].remaining).collect();
    assert_eq!(remaining, [100 - 7 - 10, 200 - 50 - 20, 300 - 1]);
    assert!(surface.settlement().all_costs().is_empty(), "those of another request");
}

/// A response whose body is read while it passes.
struct Response<'a> {
    headers: &'a [(&'a str, &'a str)],
    scan: Option<&'a BodyScan>,
    trailers: Option<&'a [(&'a str, &'a str)]>,
    has_ended: bool,
}

impl<'a> Response<'a> {
    /// The end of the body, without trailers.
    const fn tail(scan: &'a BodyScan) -> Self {
        Self { headers: &[], scan: Some(scan), trailers: Some(&[]), has_ended: false }
    }
}

impl ResponseFacts for Response<'_> {
    fn header(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        let fields = self.trailers.unwrap_or(self.headers).iter();
        let mut found = fields.filter(|(it, _)| *it == name).map(|(_, value)| value.as_bytes());
        found.next().map(Cow::Borrowed)
    }

    fn json(&self, cost: &JsonCost) -> Option<ActualUnits> {
        self.scan?.units(cost)
    }

    fn may_have_trailers(&self) -> bool {
        self.trailers.is_none()
    }

    fn has_ended(&self) -> bool {
        self.has_ended
    }
}

/// The units that a response with these headers and this body settles.
fn settled_by_body(
    surface: &mut Surfaced,
    headers: &[(&str, &str)],
    body: &[u8],
    is_whole: bool,
) -> ActualUnits {
    surface.plan = sent(surface, START).unwrap();
    let head = Response { headers, scan: None, trailers: None, has_ended: false };
    assert!(!surface.end_with(OK, &head, START), "nothing is known yet");
    let mut scan = surface.settlement().body_scan(&head).expect("the body is read");
    body.chunks(7).for_each(|chunk| scan.push(chunk));
    surface.end_with(OK, &Response::tail(&scan), START);
    assert!(surface.settlement().costs().is_empty(), "it has not ended");
    scan.end(is_whole);
    scan.end(!is_whole);
    assert!(!scan.is_open());
    surface.end_with(OK, &Response::tail(&scan), START);
    assert!(!surface.settlement().is_deferred());
    surface.settlement().costs()[0].actual
}

const JSON: (&str, &str) = ("content-type", "application/json");

#[test]
fn a_body_in_json_shows_its_cost() {
    let by = r#"{"json": ["/usage/in", "/usage/out"], "weights": [1, 6]}"#;
    let stream = ("content-type", "Text/Event-Stream; charset=utf-8");
    let usage = br#"{"usage": {"in": 5, "out": 3}}"#;
    let events = b"data: {\"usage\": {\"in\": 5, \"out\": 3}}\n\ndata: {\"usage\": {\"out\": 4}}\n\ndata: [DO";
    let other = Err(UnknownCost::ContentType);
    for (headers, body, is_whole, actual) in [
        (&[JSON][..], &usage[..], true, Ok(23)),
        (&[JSON], br#"{"usage": {"in": 5, "out": 1000}}"#, true, Ok(60)),
        (&[JSON], br#"{"usage": {"in": 0, "out": 0}}"#, true, Ok(0)),
        (&[JSON], br#"{"usage": {"in": 1e2, "out": 1}}"#, true, Err(UnknownCost::Unreadable)),
        (&[JSON], br#"{"usage": {"in": 5}}"#, true, Err(UnknownCost::Absent)),
        (
            &[JSON],
            br#"{"usage": {"in": 5, "in": 6, "out": 1}}"#,
            true,
            Err(UnknownCost::Conflicting),
        ),
        (&[JSON], &usage[..29], false, Err(UnknownCost::Incomplete)),
        (&[JSON], &usage[..29], true, Err(UnknownCost::Incomplete)),
        (&[JSON], b"", true, Err(UnknownCost::Absent)),
        (&[stream], &events[..], true, Ok(29)),
        (&[stream], &events[..], false, Ok(29)),
        (&[stream], &events[..9], false, Err(UnknownCost::Absent)),
        (&[JSON, ("content-encoding", "gzip")], &usage[..], true, Err(UnknownCost::Compressed)),
        (
            &[JSON, ("content-encoding", "identity, br")],
            &usage[..],
            true,
            Err(UnknownCost::Compressed),
        ),
        (&[JSON, ("content-encoding", " Identity")], &usage[..], true, Ok(23)),
        (&[], &usage[..], true, other),
        (&[("content-type", "text/html")], &usage[..], true, other),
        (&[("content-type", "application/json, text/event-stream")], &usage[..], true, other),
    ] {
        let mut surface = budget_by(by);
        let settled = settled_by_body(&mut surface, headers, body, is_whole);
        assert_eq!(settled, actual, "{headers:?} {}", body.escape_ascii());
        assert_eq!(left(&mut surface, START), 100 - actual.unwrap_or(10));
    }
}

#[test]
fn a_body_that_nothing_reads_is_not_scanned() {
    let plain = [JSON];
    let head = Response { headers: &plain, scan: None, trailers: None, has_ended: false };
    for (actual, ending, is_read) in [
        (r#""bytes""#, OK, false),
        (r#"{"header": "x-tokens"}"#, OK, false),
        (r#"{"json": ["/n"]}"#, OK, true),
        (r#"{"json": ["/n"]}"#, Ending::Response(503), false),
        (r#"{"json": ["/n"]}"#, Ending::Disconnect, false),
    ] {
        let mut surface = budget_by(actual);
        surface.plan = sent(&mut surface, START).unwrap();
        surface.end_with(ending, &head, START);
        assert_eq!(surface.settlement().body_scan(&head).is_some(), is_read, "{actual}");
    }
}

// Guards: a client that asks for the beginning of a stream whose numbers grow.
#[test]
fn a_part_of_a_body_shows_nothing() {
    let stream = ("content-type", "text/event-stream");
    let part = ("content-range", "bytes 0-10/200");
    let body = b"data: {\"n\": 1}\n\n";
    let by = r#"{"json": ["/n"]}"#;
    assert_eq!(settled_by_body(&mut budget_by(by), &[stream], body, true), Ok(1));
    let settled = settled_by_body(&mut budget_by(by), &[stream, part], body, true);
    assert_eq!(settled, Err(UnknownCost::Incomplete));
}

// Guards: bytes that are missing in the middle, after which the rest would read as valid.
#[test]
fn a_body_with_a_gap_shows_nothing() {
    let mut surface = budget_by(r#"{"json": ["/n"]}"#);
    surface.plan = sent(&mut surface, START).unwrap();
    let head = Response { headers: &[JSON], scan: None, trailers: None, has_ended: false };
    surface.end_with(OK, &head, START);
    let mut scan = surface.settlement().body_scan(&head).unwrap();
    scan.push(b"{\"n\": 1");
    scan.fail();
    scan.push(b"}");
    scan.end(true);
    let tail = Response { headers: &[], scan: Some(&scan), trailers: Some(&[]), has_ended: true };
    surface.end_with(OK, &tail, START);
    assert_eq!(surface.settlement().costs()[0].actual, Err(UnknownCost::Incomplete));
}

#[test]
fn a_header_may_be_a_trailer() {
    let shown = [("x-tokens", "25")];
    let other = [("x-tokens", "40")];
    for (headers, trailers, actual) in [
        (&shown[..], &other[..], Ok(25)),
        (&[], &other[..], Ok(40)),
        (&[], &[], Err(UnknownCost::Absent)),
        (&[("x-tokens", "many")], &other[..], Err(UnknownCost::Unreadable)),
    ] {
        let mut surface = budget_by(r#"{"header": "x-tokens"}"#);
        surface.plan = sent(&mut surface, START).unwrap();
        let head = Response { headers, scan: None, trailers: None, has_ended: false };
        surface.end_with(OK, &head, START);
        if surface.settlement().awaits_end() {
            let trailers = Some(trailers);
            let tail = Response { headers: &[], scan: None, trailers, has_ended: false };
            surface.end_with(OK, &tail, START);
        }
        assert_eq!(surface.settlement().costs()[0].actual, actual);
        assert!(!surface.settlement().is_deferred());
    }
}

#[test]
fn the_origin_is_asked_for_a_plain_body_where_a_rule_wants_that() {
    let rule = |name: &str, mode: &str, identity: &str| {
        format!(
            r#"{{"name": "{name}", "key": [], "mode": "{mode}",
                "cost": {{"estimate": 10, "max": 60, "actual": {{"json": ["/n"]{identity}}}}},
                "quotas": [{{"limit": 100, "window": "1h"}}]}}"#
        )
    };
    let identity = r#", "identity": true"#;
    for (rules, marks) in [
        (vec![rule("a", "enforce", "")], 0),
        (vec![rule("a", "enforce", identity)], 1),
        (vec![rule("a", "shadow", identity)], 1),
        (vec![rule("a", "enforce", identity), rule("b", "enforce", identity)], 1),
    ] {
        let rules = rules.join(",");
        let mut surface = Surfaced::new(&format!(r#"{{"version": 1, "rules": [{rules}]}}"#));
        let seen = surface.check(&request(), START);
        let expected = ("accept-encoding".to_owned(), "identity".to_owned());
        assert_eq!(seen.marks, vec![expected; marks], "{rules}");
    }
}
