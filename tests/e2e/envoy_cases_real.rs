//! The same random events, by default a quarter of them, through a real Envoy whose monotonic clock
//! is the test's (`tests/clock`).
//!
//! One listener and one plugin for each case, all in one virtual machine, so their tables are in
//! one shared map. Clients state their addresses by the PROXY protocol; the origin is Envoy's own
//! direct response, or, where requests run on, one whose responses end when the test wants it. Both
//! repeat the mark in the request. A request that must wait has no response a millisecond early.
//!
//! Only the seed that Envoy's filter drew is unknown, so equal `pk` must be equal and others
//! differ.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;

use serde_json::{Value, json};
use tollgate_cases::{
    ACTUAL, Case, Event, Expected, HASH_KEY, Reference, Request, Seen, cases_of_servers, cases_on,
    hidden_keys,
};
use tollgate_e2e::http::{self, Client, Response};
use tollgate_e2e::paused::{Paused, Unended};
use tollgate_policy::Surface;

use crate::envoy_body::use_full_module;
use crate::envoy_host::Filter;
use crate::envoy_server::{As, Envoy, Listener, Setup, is_dynamic_module, set_name, tollgate};

const MS: u64 = 1_000_000;

/// How far Envoy's wall clock is ahead of its monotonic one: not a full second, and before the
/// first event of any case.
const AHEAD_NS: u64 = (4_102_444_800_000 - 40 * 86_400_000) * MS - 12_345_678_901;

/// The header of every policy's marks.
const MARK: &str = "x-over-limit";

/// The header by which a policy asks the origin for a plain body, and that by which the origin
/// shows it.
const ACCEPTS: (&str, &str) = ("accept-encoding", "x-accepts");

/// Envoy's own fields: the framing of a message, and those that the origin adds.
const ENVOYS: [&str; 6] =
    ["date", "server", "content-length", "transfer-encoding", "connection", "x-origin"];

/// The fields of the origin, Envoy's direct response, which also handles gRPC.
const ORIGINS: [&str; 5] =
    [ACTUAL, "content-type", "content-encoding", "grpc-status", "grpc-message"];

/// A listener without a policy, whose requests wake the worker: a worker that sleeps until a time
/// then notices that the clock was set.
fn bell() -> Listener {
    let mut listener = Listener::new("bell", vec![]);
    listener.manager = for_leaps(json!({}));
    listener
}

/// The clock jumps, and no connection must become idle because of that.
fn for_leaps(mut manager: Value) -> Value {
    manager["stream_idle_timeout"] = json!("0s");
    manager["common_http_protocol_options"] = json!({"idle_timeout": "0s"});
    manager
}

fn listener(case: &Case) -> Listener {
    let name: &'static str = format!("case-{}", case.number).leak(); // it lives as long as the test
    let mut filter = tollgate(&case.policy, "vm", As::Text);
    set_name(&mut filter, name); // the name of its tables
    if !is_dynamic_module() && !Filter::accepts(&case.policy) {
        use_full_module(&mut filter);
    }
    let mut listener = Listener::new(name, vec![filter]).behind_proxy_protocol();
    listener.routes = json!([200, 401, 404, 500].map(origin));
    if case.runs_on {
        // The clock leaps while a response is on its way.
        let route = json!({"cluster": "origin", "timeout": "0s"});
        listener.routes = json!([{"match": {"prefix": "/"}, "route": route}]);
    }
    listener.manager = for_leaps(json!({"use_remote_address": true, "skip_xff_append": true}));
    listener
}

/// The origin that responds with `status`, and with the mark in the request.
fn origin(status: u16) -> Value {
    let add = |name: &str, value: &str| json!({"header": {"key": name, "value": value}});
    json!({
        "match": {
            "prefix": "/",
            "headers": [{"name": "x-status", "string_match": {"exact": status.to_string()}}],
        },
        "direct_response": {"status": status, "body": {"inline_string": "origin\n"}},
        "response_headers_to_add": [
            add("x-origin", "yes"),
            add(MARK, &format!("%REQ({MARK})%")),
            add(ACTUAL, "%REQ(x-show-actual)%"),
        ],
    })
}

#[test]
fn every_case_in_a_real_envoy() {
    let all = cases_on(Surface::Envoy, cases_of_servers());
    let mut listeners: Vec<Listener> = all.iter().map(listener).collect();
    listeners.push(bell());
    let mut setup = Setup::new(1, listeners);
    setup.clock_ns = Some(all[0].start_ms * MS - AHEAD_NS);
    setup.wall_ns = AHEAD_NS;
    let origin = Paused::start(&[(MARK, MARK), ACCEPTS]);
    setup.origin = origin.port;
    let envoy = setup.start();
    let (mut events, mut refused) = (0, 0);
    for (case, port) in all.iter().zip(&envoy.ports) {
        let mut player = Player::new(case, &origin, &envoy, *port);
        for (index, expected) in Reference::new(case, Surface::Envoy, HASH_KEY).enumerate() {
            let seen = player.play(index, &expected);
            let text = hidden_keys(&seen.to_string(), &mut player.told);
            let wanted = player.wanted(&case.events[index].request, &expected);
            if text != wanted {
                panic!("{}", case.difference("Envoy", index, &expected, &seen.to_string()));
            }
            events += 1;
            refused += usize::from(!seen.passed());
        }
    }
    println!("{events} events in Envoy, {refused} refused: 0 differences");
}

/// The clients of one case.
struct Player<'e> {
    case: &'e Case,
    origin: &'e Paused,
    envoy: &'e Envoy,
    port: u16,
    /// Those without a request.
    clients: BTreeMap<IpAddr, Client>,
    /// Those whose requests run on, by the indices of their events.
    running: BTreeMap<usize, (Client, Unended)>,
    bell: Client,
    /// Hashed keys in the order of their first appearance: Envoy's and the reference's.
    told: Vec<String>,
    known: Vec<String>,
}

impl<'e> Player<'e> {
    fn new(case: &'e Case, origin: &'e Paused, envoy: &'e Envoy, port: u16) -> Self {
        let bell = Client::connect(*envoy.ports.last().expect("the bell"));
        let (clients, running) = (BTreeMap::new(), BTreeMap::new());
        Self { case, origin, envoy, port, clients, running, bell, told: vec![], known: vec![] }
    }

    /// One request, and the ends that follow.
    fn play(&mut self, index: usize, expected: &Expected) -> Seen {
        let event = &self.case.events[index];
        let peer = event.request.peer;
        self.envoy.set_clock(expected.at_ms * MS - AHEAD_NS);
        let client = self.clients.remove(&peer);
        let mut client = client.unwrap_or_else(|| Client::connect_as(peer, self.port));
        let unended = self.case.runs_on.then(|| self.prepare(event));
        self.send(&mut client, event, expected);
        let problem = |e: io::Error| -> Response {
            panic!("{e}: no answer in time to {event:?}, {expected:?}")
        };
        let head = client.head().unwrap_or_else(problem);
        let waits_ms = expected.seen.waits_ms.clone();
        let seen = if let Some(unended) = unended.filter(|_| is_origins(&head)) {
            self.running.insert(index, (client, unended));
            seen(&head, waits_ms)
        } else {
            let response = client.finish(event.request.method == "HEAD").unwrap_or_else(problem);
            self.clients.insert(peer, client);
            seen(&response, waits_ms)
        };
        expected.ends.iter().for_each(|ended| self.end(*ended));
        seen
    }

    /// Lets the origin respond to a request.
    fn prepare(&self, event: &Event) -> Unended {
        let mut fields = vec![("x-origin", "yes")];
        fields.extend(event.actual.map(|value| (ACTUAL, value)));
        fields.extend(event.body.map(|body| ("content-type", body.content_type)));
        let encoding = event.body.and_then(|body| body.content_encoding);
        fields.extend(encoding.map(|value| ("content-encoding", value)));
        self.origin.answer_next(event.status, &fields, &event.sent_body())
    }

    /// Sends a request, and lets it wait as long as it has to.
    fn send(&mut self, client: &mut Client, event: &Event, expected: &Expected) {
        let mut now_ms = expected.at_ms;
        client.start(&wire(event)).expect("sent");
        for (wait, ends) in expected.seen.waits_ms.iter().zip(&expected.ends_meanwhile) {
            // After one round of its loop the worker may only be about to read the request; after
            // two it has read it.
            self.ring(now_ms);
            self.ring(now_ms);
            self.ring(now_ms + wait - 1);
            // A freed place is given by a timer, a millisecond later.
            ends.iter().for_each(|ended| self.end(*ended));
            assert!(!client.has_answer(), "let go early: {event:?}, {expected:?}");
            now_ms += wait;
            self.ring(now_ms);
        }
    }

    fn ring(&mut self, at_ms: u64) {
        self.envoy.set_clock(at_ms * MS - AHEAD_NS);
        self.bell.send(&http::Request::get("/"));
    }

    /// The end of a request, unless it has ended. When its client has read the response, the filter
    /// has seen its end.
    fn end(&mut self, index: usize) {
        let Some((mut client, unended)) = self.running.remove(&index) else { return };
        let event = &self.case.events[index];
        drop(unended);
        let response = client.finish(event.request.method == "HEAD");
        let response = response.unwrap_or_else(|e| panic!("{e}: no end of {event:?}"));
        assert_eq!(response.body, event.sent_body().concat(), "it passes unchanged");
        self.clients.insert(event.request.peer, client);
    }

    /// The expected view of a client of Envoy: the mark comes back from the origin.
    fn wanted(&mut self, request: &Request, expected: &Expected) -> String {
        let mut wanted = expected.seen.clone();
        let sent = request.headers.iter().find(|(name, _)| *name == MARK);
        let is_set = wanted.marks.iter().any(|(name, _)| name == MARK);
        if let (true, false, Some((_, value))) = (wanted.passed(), is_set, sent) {
            wanted.marks.insert(0, (MARK.into(), value.clone()));
        }
        hidden_keys(&wanted.to_string(), &mut self.known)
    }
}

fn wire(event: &Event) -> http::Request {
    let request = &event.request;
    let mut wire = http::Request::new(request.method, &request.target).header("host", request.host);
    for (name, value) in &request.headers {
        wire = wire.header(name, value);
    }
    if let Some(actual) = event.actual {
        wire = wire.header("x-show-actual", actual);
    }
    wire.header("x-status", event.status.to_string())
        .body(vec![b'x'; request.body_len.unwrap_or(0)])
}

fn is_origins(response: &Response) -> bool {
    response.header("x-origin").is_some()
}

fn seen(response: &Response, waits_ms: Vec<u64>) -> Seen {
    let passed = is_origins(response);
    let mut seen = Seen { status: response.status, waits_ms, ..Seen::default() };
    for (name, value) in &response.headers {
        let value = String::from_utf8(value.clone()).expect("text");
        let is_origins = passed && ORIGINS.contains(&name.as_str());
        if passed && name == MARK {
            seen.marks.push((name.clone(), value));
        } else if passed && name == ACCEPTS.1 {
            seen.marks.push((ACCEPTS.0.to_owned(), value));
        } else if !is_origins && !ENVOYS.contains(&name.as_str()) {
            seen.fields.push((name.clone(), value));
        }
    }
    seen.body = (!passed).then(|| response.text());
    seen
}
