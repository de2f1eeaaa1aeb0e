//! 100,000 random events through the shipped module, at their own times: every response equals the
//! reference's. Two workers that share one map respond in turn.
//!
//! Here the clock is the test's own (`envoy_host`), so the test sees that a request that must wait
//! is held until the last millisecond. The monotonic clock did not begin at a full second; windows,
//! and the fields that show them, follow the wall clock all the same.

use std::collections::BTreeMap;

use tollgate_cases::{
    ACTUAL, Case, Event, Expected, HASH_KEY, Reference, Request, Seen, cases, cases_on,
};
use tollgate_policy::Surface;

use crate::envoy_host::{Answer, Filter, Reply, Shared};

const MS: u64 = 1_000_000;

/// The machine's uptime when a case begins: longer than any clock goes back.
const UPTIME_NS: u64 = 40 * 86_400_000 * MS + 12_345_678_901;

#[test]
fn every_case_in_the_module() {
    let (mut events, mut refused, mut full) = (0, 0, 0);
    for case in cases_on(Surface::Envoy, cases()) {
        let mut player = Player::new(&case);
        full += usize::from(player.is_full);
        for (index, expected) in Reference::new(&case, Surface::Envoy, HASH_KEY).enumerate() {
            let seen = player.play(index, &expected);
            if seen != expected.seen {
                panic!("{}", case.difference("the module", index, &expected, &seen.to_string()));
            }
            events += 1;
            refused += usize::from(!seen.passed());
        }
    }
    println!(
        "{events} events in the module, {refused} refused: 0 differences; {full} cases in the full one"
    );
}

/// Two workers that play one case.
struct Player<'c> {
    case: &'c Case,
    workers: [Filter; 2],
    /// The case is one for the full module.
    is_full: bool,
    booted_at_ns: u64,
    /// The worker and the stream of each request that goes on, by the index of its event.
    running: BTreeMap<usize, (usize, u32)>,
}

impl<'c> Player<'c> {
    fn new(case: &'c Case) -> Self {
        let shared = Shared::default();
        let booted_at_ns = case.start_ms * MS - UPTIME_NS;
        let machine = (booted_at_ns, UPTIME_NS);
        let is_full = !Filter::accepts(&case.policy);
        let start = if is_full { Filter::full_on_machine } else { Filter::on_machine };
        let workers = [(); 2].map(|()| start(&case.policy, &shared, machine));
        Self { case, workers, is_full, booted_at_ns, running: BTreeMap::new() }
    }

    /// One request to the head of its response, and the ends that follow.
    fn play(&mut self, index: usize, expected: &Expected) -> Seen {
        let event = &self.case.events[index];
        // Only a request that ends in the same worker gives a waiting one its turn.
        let is_of_one = self.case.wavers || self.case.waits_for_places;
        let worker = if is_of_one { 0 } else { index % 2 };
        let now = expected.at_ms * MS - self.booted_at_ns;
        let (id, seen) = self.play_one(worker, event, expected, now);
        self.running.insert(index, (worker, id));
        let now = now + seen.waits_ms.iter().sum::<u64>() * MS;
        if !seen.passed() {
            self.end(index, now);
        }
        expected.ends.iter().for_each(|ended| self.end(*ended, now));
        seen
    }

    /// One request from its headers to the head of its response, and its stream.
    fn play_one(
        &mut self,
        worker: usize,
        event: &Event,
        expected: &Expected,
        mut now: u64,
    ) -> (u32, Seen) {
        let filter = &mut self.workers[worker];
        filter.set_peer(event.request.peer);
        filter.set_status(event.status);
        let mut response = vec![];
        response.extend(event.actual.map(|value| (ACTUAL, value)));
        response.extend(event.body.map(|body| ("content-type", body.content_type)));
        let encoding = event.body.and_then(|body| body.content_encoding);
        response.extend(encoding.map(|value| ("content-encoding", value)));
        filter.set_response_headers(&response);
        let headers = headers(&event.request);
        let pairs: Vec<_> = headers.iter().map(|(n, v)| (*n, v.as_bytes())).collect();
        // Time has passed since the last request: the timer has fired.
        assert!(filter.tick(now).is_empty(), "no request waits");
        let ((id, mut answer), mut waits_ms) = (filter.begin(now, &pairs), vec![]);
        let mut waits = expected.seen.waits_ms.iter();
        while let Answer::Held(id) = answer {
            let filter = &mut self.workers[worker];
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
            expected.ends_meanwhile[waits_ms.len()].iter().for_each(|ended| self.end(*ended, now));
            waits_ms.push(wait);
            let filter = &mut self.workers[worker];
            answer = match (filter.tick(now).as_slice(), filter.take_reply()) {
                ([resumed], None) if *resumed == id => Answer::Passed(filter.respond(id)),
                ([], Some(reply)) => Answer::Refused(filter.replied(id, reply)),
                ([], None) => Answer::Held(id),
                other => panic!("not one thing: {other:?} for {event:?}"),
            };
        }
        let marks = self.workers[worker].take_marks();
        let seen = match answer {
            Answer::Passed(fields) => {
                Seen { status: event.status, waits_ms, fields, marks, body: None }
            }
            Answer::Refused(reply) => refusal(&event.request, reply, waits_ms),
            Answer::Held(_) => unreachable!("it is held no longer"),
        };
        (id, seen)
    }

    /// The end of a request, unless it has ended.
    fn end(&mut self, index: usize, now: u64) {
        let Some((worker, id)) = self.running.remove(&index) else { return };
        let filter = &mut self.workers[worker];
        filter.set_now(now);
        let pieces = self.case.events[index].sent_body();
        pieces.iter().for_each(|piece| filter.pass_body(id, piece, false));
        if self.case.events[index].request.method != "HEAD" {
            filter.pass_body(id, b"", true);
        }
        filter.end(id);
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
