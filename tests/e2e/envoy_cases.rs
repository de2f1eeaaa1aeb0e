//! 100,000 random events through the shipped module, at their own times: every response equals the
//! reference's. Two workers that share one map respond in turn.
//!
//! Here the clock is the test's own (`envoy_host`), so the test sees that a request that must wait
//! is held until the last millisecond. The monotonic clock did not begin at a full second; windows,
//! and the fields that show them, follow the wall clock all the same.

use tollgate_cases::{ACTUAL, Case, Event, Expected, HASH_KEY, Reference, Request, Seen, cases};
use tollgate_policy::Surface;

use crate::envoy_host::{Answer, Filter, Reply, Shared};

const MS: u64 = 1_000_000;

/// The machine's uptime when a case begins: longer than any clock goes back.
const UPTIME_NS: u64 = 40 * 86_400_000 * MS + 12_345_678_901;

#[test]
fn every_case_in_the_module() {
    let (mut events, mut refused) = (0, 0);
    for number in 0..cases() {
        let case = Case::new(number);
        if case.needs_regexes() {
            continue; // `envoy_compiled` tests that the usual module refuses it
        }
        let shared = Shared::default();
        let booted_at_ns = case.start_ms * MS - UPTIME_NS;
        let machine = (booted_at_ns, UPTIME_NS);
        let mut workers = [(); 2].map(|()| Filter::on_machine(&case.policy, &shared, machine));
        for (index, expected) in Reference::new(&case, Surface::Envoy, HASH_KEY).enumerate() {
            let seen = play(
                &mut workers[if case.wavers { 0 } else { index % 2 }],
                &case.events[index],
                &expected,
                booted_at_ns,
            );
            if seen != expected.seen {
                panic!("{}", case.difference("the module", index, &expected, &seen.to_string()));
            }
            events += 1;
            refused += usize::from(!seen.passed());
        }
    }
    println!("{events} events in the module, {refused} refused: 0 differences");
}

/// One request from its headers to its end.
fn play(filter: &mut Filter, event: &Event, expected: &Expected, booted_at_ns: u64) -> Seen {
    filter.set_peer(event.request.peer);
    filter.set_status(event.status);
    filter.set_response_header(ACTUAL, event.actual);
    let mut now = expected.at_ms * MS - booted_at_ns;
    let headers = headers(&event.request);
    let pairs: Vec<_> = headers.iter().map(|(n, v)| (*n, v.as_bytes())).collect();
    // Time has passed since the last request: the timer has fired.
    assert!(filter.tick(now).is_empty(), "nobody waits");
    let (mut answer, mut waits_ms) = (filter.request(now, &pairs), vec![]);
    let mut waits = expected.seen.waits_ms.iter();
    while let Answer::Held(id) = answer {
        let wait = *waits.next().unwrap_or_else(|| panic!("held for too long: {event:?}"));
        let due = now + wait * MS;
        // The timer also fires for other reasons: counts are reported.
        loop {
            now += u64::from(filter.tick_ms()) * MS;
            if now >= due {
                break;
            }
            assert!(filter.tick(now).is_empty(), "let go early: {event:?}");
        }
        assert_eq!(now, due, "let go late: {event:?}");
        assert!(filter.tick(now - MS).is_empty(), "let go early: {event:?}");
        waits_ms.push(wait);
        answer = match (filter.tick(now).as_slice(), filter.take_reply()) {
            ([resumed], None) if *resumed == id => Answer::Passed(filter.respond(id)),
            ([], Some(reply)) => Answer::Refused(filter.replied(id, reply)),
            ([], None) => Answer::Held(id),
            other => panic!("not one thing: {other:?} for {event:?}"),
        };
        if !matches!(answer, Answer::Held(_)) {
            filter.end(id);
        }
    }
    let marks = filter.take_marks();
    match answer {
        Answer::Passed(fields) => {
            Seen { status: event.status, waits_ms, fields, marks, body: None }
        }
        Answer::Refused(reply) => refusal(&event.request, reply, waits_ms),
        Answer::Held(_) => unreachable!("it is held no longer"),
    }
}

fn refusal(request: &Request, reply: Reply, waits_ms: Vec<u64>) -> Seen {
    let body = if request.method == "HEAD" { String::new() } else { reply.body };
    let status = u16::try_from(reply.status).expect("a status");
    Seen { status, waits_ms, fields: reply.headers, marks: vec![], body: Some(body) }
}

/// In the form in which Envoy passes them.
fn headers(request: &Request) -> Vec<(&'static str, String)> {
    let mut headers = vec![
        (":method", request.method.to_owned()),
        (":path", request.target.clone()),
        (":authority", request.host.to_owned()),
    ];
    headers.extend(request.headers.iter().cloned());
    headers.extend(request.body_len.map(|len| ("content-length", len.to_string())));
    headers
}
