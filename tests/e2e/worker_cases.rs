//! Random events, by default 25,000 of the 100,000, through the shipped Worker in a real workerd:
//! every response equals the reference's.
//!
//! A shipped build reads the platform's clock and nothing else; here a module in front
//! (`worker_cases.mjs`) replaces that part of the platform. Everything else is real: sockets,
//! objects, storage, headers. One Worker with objects of its own for each case.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use base64ct::{Base64, Encoding};
use serde_json::{Value, json};
use tollgate_cases::{
    ACTUAL, CASES, Case, Event, Expected, Reference, Request, Seen, cases_of_servers, cases_on,
};
use tollgate_e2e::http::{self, Client, Response};
use tollgate_e2e::workerd::{Setup, Workerd};
use tollgate_policy::Surface;

/// The first half of SHA-256 of nothing: without a secret, keys are hashed with that before clients
/// see them.
const HASH_KEY: [u8; 16] = [
    0xe3, 0xb0, 0xc4, 0x42, 0x98, 0xfc, 0x1c, 0x14, 0x9a, 0xfb, 0xf4, 0xc8, 0x99, 0x6f, 0xb9, 0x24,
];

/// The header of every policy's marks.
const MARK: &str = "x-over-limit";

/// The header by which a policy asks the origin for a plain body, and that by which the origin
/// shows it.
const ACCEPTS: (&str, &str) = ("accept-encoding", "x-accepts");

/// Fields of the runtime, of the origin and of the module in front.
const OTHERS: [&str; 7] = [
    "content-length",
    "transfer-encoding",
    "connection",
    "x-origin",
    "x-waits",
    "x-rang",
    "x-calls",
];

/// Cases whose Workers are in one process.
const AT_ONCE: usize = 50;
/// Cases that run at the same time.
const CONNECTIONS: usize = 4;

/// The totals of the events.
#[derive(Default)]
struct Tally {
    events: AtomicUsize,
    refused: AtomicUsize,
    remembered: AtomicUsize,
    alarms: AtomicUsize,
}

#[test]
fn every_case_in_workerd() {
    let all = cases_on(Surface::Worker, cases_of_servers());
    let tally = Tally::default();
    for some in all.chunks(AT_ONCE) {
        let worker = start(some);
        let left: Mutex<VecDeque<_>> = Mutex::new(some.iter().zip(&worker.ports).collect());
        let play_all = || {
            let next = || left.lock().expect("a queue").pop_front();
            while let Some((case, port)) = next() {
                play(case, *port, &tally);
            }
        };
        thread::scope(|scope| {
            let running: Vec<_> = (0..CONNECTIONS).map(|_| scope.spawn(play_all)).collect();
            let ended: Vec<_> = running.into_iter().map(|thread| thread.join()).collect();
            assert!(ended.iter().all(Result::is_ok), "see above; workerd said:\n{}", worker.log());
        });
    }
    let [events, refused, remembered, alarms] =
        [tally.events, tally.refused, tally.remembered, tally.alarms].map(AtomicUsize::into_inner);
    println!(
        "{events} events in workerd, {refused} refused, {remembered} of them without asking, \
         {alarms} alarms: 0 differences; {} cases refused by the Worker",
        cases_of_servers() as usize - all.len()
    );
    let has_all_kinds = cases_of_servers() >= CASES / 4;
    assert!(!has_all_kinds || remembered > 250, "{remembered} remembered");
    assert!(!has_all_kinds || alarms > 250, "{alarms} alarms rang");
}

fn start(cases: &[Case]) -> Workerd {
    let [first, rest @ ..] = cases else { panic!("no cases") };
    let setup = Setup::new(&first.policy).front(include_str!("worker_cases.mjs")).files_in_memory();
    let setup = setup.binding("ORIGIN", "http://origin.example");
    rest.iter().fold(setup, |setup, case| setup.also(&case.policy)).start()
}

fn play(case: &Case, port: u16, tally: &Tally) {
    let mut player = Player { case, port, free: vec![], running: BTreeMap::new() };
    for (index, expected) in Reference::new(case, Surface::Worker, HASH_KEY).enumerate() {
        let event = &case.events[index];
        let response = player.send(index, &expected);
        player.end(&expected.ends, &expected);
        let seen = seen(&response);
        let wanted = wanted(&event.request, &expected);
        let is_remembered = response.header("x-calls").as_deref() == Some("0") && !seen.passed();
        tally.remembered.fetch_add(usize::from(is_remembered), Ordering::Relaxed);
        if seen != wanted && !(is_remembered && says_less(&seen, &wanted)) {
            panic!("{}", case.difference("workerd", index, &expected, &seen.to_string()));
        }
        let rang = response.header("x-rang").map_or(0, |rang| rang.parse().expect("a number"));
        tally.events.fetch_add(1, Ordering::Relaxed);
        tally.refused.fetch_add(usize::from(!seen.passed()), Ordering::Relaxed);
        tally.alarms.fetch_add(rang, Ordering::Relaxed);
    }
}

/// The clients of one case.
struct Player<'c> {
    case: &'c Case,
    port: u16,
    /// Those without a request.
    free: Vec<Client>,
    /// Those whose requests run on, by the indices of their events.
    running: BTreeMap<usize, Client>,
}

impl Player<'_> {
    fn client(&mut self) -> Client {
        self.free.pop().unwrap_or_else(|| Client::connect(self.port))
    }

    /// The response to a request, or its head if the request runs on.
    fn send(&mut self, index: usize, expected: &Expected) -> Response {
        let event = &self.case.events[index];
        let mut client = self.client();
        let mut request = wire(event, expected, self.case.wavers);
        if !self.case.runs_on {
            let response = client.send(&request);
            self.free.push(client);
            return response;
        }
        request = request.header("x-event", index.to_string());
        let pieces = event.sent_body();
        let pieces: Vec<String> = pieces.iter().map(|it| Base64::encode_string(it)).collect();
        request = request.header("x-pieces", pieces.join(","));
        request =
            request.header("x-ends-meanwhile", ends_meanwhile(expected, &self.running).to_string());
        if let Some(body) = event.body {
            request = request.header("x-body-type", body.content_type);
            if let Some(encoding) = body.content_encoding {
                request = request.header("x-body-encoding", encoding);
            }
        }
        client.start(&request).expect("sent");
        let head = client.head().expect("an answer in time");
        let ended: Vec<usize> = expected.ends_meanwhile.concat();
        ended.iter().for_each(|index| self.finish(*index));
        if head.header("x-origin").is_some() {
            self.running.insert(index, client);
            return head;
        }
        let response = client.finish(event.request.method == "HEAD").expect("the whole answer");
        self.free.push(client);
        response
    }

    /// The ends of those of these requests that still run.
    fn end(&mut self, indices: &[usize], expected: &Expected) {
        let ended: Vec<usize> =
            indices.iter().copied().filter(|index| self.running.contains_key(index)).collect();
        if ended.is_empty() {
            return;
        }
        let at_ms = expected.at_ms + expected.seen.waits_ms.iter().sum::<u64>();
        let ends: Vec<String> = ended.iter().map(ToString::to_string).collect();
        let request = http::Request::get("/").header("x-at", at_ms.to_string());
        let mut control = self.client();
        assert_eq!(control.send(&request.header("x-ends", ends.join(","))).text(), "ended");
        self.free.push(control);
        ended.iter().for_each(|index| self.finish(*index));
    }

    /// Reads the rest of the response to a request that has ended, if it ran on.
    fn finish(&mut self, index: usize) {
        let Some(mut client) = self.running.remove(&index) else { return };
        let event = &self.case.events[index];
        let response = client.finish(event.request.method == "HEAD").expect("its end");
        assert_eq!(response.body, event.sent_body().concat(), "it passes unchanged");
        self.free.push(client);
    }
}

/// The times at which waits end, each with the requests that run on and end then.
fn ends_meanwhile(expected: &Expected, running: &BTreeMap<usize, Client>) -> Value {
    let mut now_ms = expected.at_ms;
    let each = expected.seen.waits_ms.iter().zip(&expected.ends_meanwhile);
    let each = each.map(|(wait, ends)| {
        now_ms += wait;
        let ends = ends.iter().filter(|index| running.contains_key(index));
        json!([now_ms, ends.map(ToString::to_string).collect::<Vec<_>>()])
    });
    each.collect()
}

/// True when both deny: a remembered denial is by the rules that are remembered, and shows nothing
/// of rules that were not evaluated. It never has a longer wait than all rules together.
fn says_less(seen: &Seen, wanted: &Seen) -> bool {
    let wait = |seen: &Seen| -> Option<u64> {
        let field = seen.fields.iter().find(|(name, _)| name == "retry-after");
        field.and_then(|(_, value)| value.parse().ok())
    };
    let is_shorter = wait(wanted).is_none_or(|all| wait(seen).is_none_or(|some| some <= all));
    !wanted.passed() && seen.waits_ms == wanted.waits_ms && is_shorter
}

fn wire(event: &Event, expected: &Expected, wavers: bool) -> http::Request {
    let request = &event.request;
    let mut wire = http::Request::new(request.method, &request.target).header("host", request.host);
    for (name, value) in &request.headers {
        wire = wire.header(name, value);
    }
    if let Some(actual) = event.actual {
        wire = wire.header("x-show-actual", actual);
    }
    wire.header("cf-connecting-ip", request.peer.to_string())
        .header("x-status", event.status.to_string())
        .header("x-at", expected.at_ms.to_string())
        .header("x-alarms", if wavers { "no" } else { "yes" })
        .body(vec![b'x'; request.body_len.unwrap_or(0)])
}

fn seen(response: &Response) -> Seen {
    let passed = response.header("x-origin").is_some();
    let waits_ms =
        response.header("x-waits").map(|waits| serde_json::from_str(&waits).expect("a list"));
    let waits_ms = waits_ms.unwrap_or_default();
    let mut seen = Seen { status: response.status, waits_ms, ..Seen::default() };
    for (name, value) in &response.headers {
        let value = String::from_utf8(value.clone()).expect("text");
        let origins = [ACTUAL, "content-type", "content-encoding"];
        let is_origins = passed && origins.contains(&name.as_str());
        if passed && name == MARK {
            seen.marks.push((name.clone(), value));
        } else if passed && name == ACCEPTS.1 {
            seen.marks.push((ACCEPTS.0.to_owned(), value));
        } else if !is_origins && !OTHERS.contains(&name.as_str()) {
            seen.fields.push((name.clone(), value));
        }
    }
    // The platform sorts header fields as the Fetch standard requires, those that it knows itself
    // first.
    seen.fields.sort();
    seen.body = (!passed).then(|| response.text());
    seen
}

/// The expected view of a client of the Worker: the mark comes back from the origin.
fn wanted(request: &Request, expected: &Expected) -> Seen {
    let mut wanted = expected.seen.clone().sorted();
    let sent = request.headers.iter().find(|(name, _)| *name == MARK);
    let is_set = wanted.marks.iter().any(|(name, _)| name == MARK);
    if let (true, false, Some((_, value))) = (wanted.passed(), is_set, sent) {
        wanted.marks.push((MARK.into(), value.clone()));
    }
    wanted.marks.sort();
    wanted
}
