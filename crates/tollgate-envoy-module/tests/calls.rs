//! Calls of the module's own: leases of a fleet, and policies from a server.
//!
//! The thread of a test is Envoy's main thread; workers are threads of their own, each of which
//! does one thing at a time. Responses come when the test gives them.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by a panic"
)]

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use tollgate_core::Timestamp;
use tollgate_language::compile;
use tollgate_policy::{Policy, Surface};
use tollgate_storage::{Counts, LeaseKey, LeaseQuestion, LeaseReply};
use tollgate_test_support::Random;

use crate::envoy::main_thread::{
    CANNOT_CREATE, Callout, NO_CLUSTER, SENT, during_call, during_compilation, set_offers,
    set_result,
};
use crate::envoy::{self, Configuration, Stream};

/// A stream on the thread of its worker.
#[derive(Clone, Copy)]
struct Of(&'static Stream);

// SAFETY: a test hands it to the thread on which it began, and to no other.
#[allow(unsafe_code, reason = "a stream of Envoy is one thread's")]
unsafe impl Send for Of {}

impl Of {
    /// The stream, on its thread.
    const fn stream(self) -> &'static Stream {
        self.0
    }
}

/// A thread of Envoy.
#[derive(Clone)]
struct Worker(Sender<Box<dyn FnOnce() + Send>>);

impl Worker {
    fn new() -> Self {
        let (jobs, all) = channel::<Box<dyn FnOnce() + Send>>();
        thread::spawn(move || all.iter().for_each(|job| job()));
        Self(jobs)
    }

    /// Does this on its thread.
    fn run<T: Send + 'static>(&self, act: impl FnOnce() -> T + Send + 'static) -> T {
        received(&self.start(act))
    }

    /// Begins to do this on its thread.
    fn start<T: Send + 'static>(&self, act: impl FnOnce() -> T + Send + 'static) -> Receiver<T> {
        let (done, result) = channel();
        self.0.send(Box::new(move || done.send(act()).unwrap())).unwrap();
        result
    }

    /// A request begins; true when it continues at once.
    fn ask(&self, configuration: &'static Configuration, key: &str) -> (Of, bool) {
        let key = key.to_owned();
        self.run(move || {
            let stream = configuration.open(Stream::get(&[("x-key", &key)]));
            (Of(stream), stream.request() == 0)
        })
    }

    fn end(&self, stream: Of) {
        self.run(move || {
            stream.stream().end();
        });
    }

    /// Envoy's wakes of this thread; then what became of a request.
    fn outcome(&self, stream: Of) -> Outcome {
        self.run(move || {
            envoy::run_wakes();
            let stream = stream.stream();
            match (stream.sent.borrow().as_ref(), *stream.resumed.borrow()) {
                (Some(sent), _) => Outcome::Denied(sent.status),
                (None, 0) => Outcome::Waits,
                (None, _) => Outcome::Continues,
            }
        })
    }

    fn field(&self, configuration: &'static Configuration) -> String {
        self.run(move || field(configuration))
    }
}

/// The field that shows the policy of a request of this thread.
fn field(configuration: &Configuration) -> String {
    let stream = configuration.open(Stream::get(&[("x-key", "a")]));
    let is_allowed = stream.request() == 0;
    stream.response();
    stream.end();
    let policy = stream.response_header("ratelimit-policy");
    if is_allowed { policy.unwrap_or_default() } else { "denied".into() }
}

fn received<T>(result: &Receiver<T>) -> T {
    result.recv_timeout(Duration::from_secs(30)).expect("another thread does not go on")
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Waits,
    Continues,
    Denied(u32),
}

fn leaked(text: &str) -> &'static Configuration {
    Box::leak(Box::new(Configuration::new(text).expect("it is taken")))
}

/// A policy of one rule, whose name shows in the fields of its responses.
fn policy(name: &str, more: &str, limit: u64) -> String {
    format!(
        r#"{{"version": 1, "rules": [{{"name": "{name}", "key": [{{"header": "x-key"}}], {more}
            "quotas": [{{"limit": {limit}, "window": "366d", "algorithm": "fixed-window"}}]}}]}}"#
    )
}

/// A configuration that counts for a fleet, and its authority.
struct Fleet {
    cluster: String,
    configuration: &'static Configuration,
    policy: Policy,
    /// By the hash of the key.
    counts: HashMap<[u8; 16], Counts>,
}

const EXACT: &str = r#""scope": "fleet", "lease": 0, "on_failure": "deny","#;

impl Fleet {
    fn new(name: &str, more: &str, limit: u64, timeout: &str) -> Self {
        let document = policy(name, more, limit);
        let fleet = format!(
            r#"{{"cluster": "{name}", "secret": "0123456789abcdef", "timeout": "{timeout}"}}"#
        );
        let configuration = leaked(&format!(r#"{{"policy": {document}, "fleet": {fleet}}}"#));
        let policy = compile(&document, Surface::Server).unwrap();
        let (cluster, counts) = (name.to_owned(), HashMap::new());
        Self { cluster, configuration, policy, counts }
    }

    /// The authority's response: of one key in all.
    fn decided(&mut self, callout: &Callout, now: Timestamp) -> Vec<u8> {
        assert_eq!((&*callout.cluster, callout.header(":method")), (&*self.cluster, Some("POST")));
        assert!((1..=10_000).contains(&callout.timeout_ms), "{}", callout.timeout_ms);
        let question = LeaseQuestion::read(&callout.body).expect("a lease request");
        let fleet = self.policy.fleet();
        let mut reply = |key: &LeaseKey| {
            let request = fleet.lease_request(key, question.table, false).expect("a request");
            let counts = self.counts.entry(key.hash).or_default();
            LeaseReply::Decided(counts.answer(&request, now).expect("a reply").reply)
        };
        let replies: Vec<_> = question.keys.iter().map(&mut reply).collect();
        let mut body = Vec::new();
        LeaseReply::write(&replies, &mut body);
        body
    }

    /// A request with the key `a` is allowed, at once or after a response, and ends.
    fn allows(&mut self, worker: &Worker) {
        let (stream, is_allowed) = worker.ask(self.configuration, "a");
        if !is_allowed {
            self.answer_all();
            assert_eq!(worker.outcome(stream), Outcome::Continues);
        }
        worker.end(stream);
    }

    /// Responds to all requests, and sends those that follow.
    fn answer_all(&mut self) {
        self.configuration.run_main();
        for callout in self.configuration.callouts() {
            let body = self.decided(&callout, Timestamp::from_millis(1_000_000));
            self.configuration.answer(callout.number, Some((&[(":status", "200")], &body)));
        }
        self.configuration.run_main();
    }
}

// Guards: an Envoy that does not load the module, or one in which calls are lost.
#[test]
fn an_envoy_that_offers_no_calls_refuses_them_by_name() {
    let following = format!(
        r#"{{"policy": {}, "policy_from": {{"cluster": "old", "path": "/p"}}}}"#,
        policy("old", "", 1)
    );
    set_offers(false);
    assert!(Configuration::new(&following).is_none());
    assert!(Configuration::new(&policy("old", "", 1)).is_some());
    set_offers(true);
    let line = "policy_from: this Envoy sends no requests for a dynamic module's configuration";
    assert_eq!(envoy::logged(4, line), 1, "{:?}", envoy::errors());
    assert!(Configuration::new(&following).is_some());
}

// Guards: a client that waits for ever, and one that the authority did not allow.
#[test]
fn the_authority_decides_through_the_main_thread() {
    let mut fleet = Fleet::new("decides", EXACT, 2, "10s");
    let workers = [Worker::new(), Worker::new()];
    let mut outcomes = Vec::new();
    for i in 0..6 {
        let worker = &workers[i % 2];
        let (stream, is_allowed) = worker.ask(fleet.configuration, "a");
        assert!(!is_allowed);
        // Denied so recently that it is denied again.
        if worker.outcome(stream) == Outcome::Waits {
            fleet.answer_all();
        }
        outcomes.push(worker.outcome(stream));
        worker.end(stream);
    }
    let denied = Outcome::Denied(429);
    let expected = [Outcome::Continues, Outcome::Continues, denied, denied, denied, denied];
    assert_eq!(outcomes, expected);
    assert!(fleet.configuration.callouts().is_empty());
}

// Guards: a response that is lost with its stream, and units that nothing returns.
#[test]
fn a_worker_whose_last_stream_ends_leaves_its_work_to_the_main_thread() {
    let more = r#""scope": "fleet", "lease": "4s", "on_failure": "deny","#;
    let mut fleet = Fleet::new("sleeps", more, 1_000, "10s");
    let worker = Worker::new();
    // A lease is asked for when a key has had eight requests.
    for _ in 0..8 {
        fleet.allows(&worker);
    }
    fleet.answer_all();
    // Its client leaves before the response comes, and the worker has no other stream.
    let mut asked = None;
    for _ in 0..1_000 {
        let (stream, _) = worker.ask(fleet.configuration, "a");
        worker.end(stream);
        fleet.configuration.run_main();
        asked = fleet.configuration.callouts().pop();
        if asked.is_some() {
            break;
        }
    }
    assert!(asked.is_some(), "it never asks in advance");
    let granted = || envoy::counted("fleet_granted");
    let before = granted();
    fleet.answer_all();
    assert!(granted() > before, "the main thread records the lease");
    let (stream, is_allowed) = worker.ask(fleet.configuration, "a");
    assert!(is_allowed, "and the worker spends it");
    worker.end(stream);
    // The main thread returns what is left, before the lease ends.
    let is_return = |callout: &Callout| {
        let question = LeaseQuestion::read(&callout.body).unwrap();
        question.keys.iter().all(|key| key.rules.iter().all(|rule| rule.cost == 0))
    };
    let mut returned = false;
    for _ in 0..3_000 {
        fleet.configuration.run_main();
        returned = fleet.configuration.callouts().iter().any(is_return);
        if returned {
            break;
        }
        thread::sleep(Duration::from_millis(10));
    }
    assert!(returned, "nothing is returned");
}

// Guards: a lease that is lost, because its response goes to a worker that has handed the call
// over.
#[test]
fn work_is_handed_over_while_the_main_thread_sends_its_call() {
    let more = r#""scope": "fleet", "lease": "4s", "on_failure": "deny","#;
    let mut fleet = Fleet::new("sending", more, 1_000, "10s");
    let worker = Worker::new();
    let mut is_sent = false;
    for _ in 0..1_000 {
        let (stream, is_allowed) = worker.ask(fleet.configuration, "a");
        if is_allowed {
            // The last stream of the worker ends while its call in advance is being sent.
            let (other, (ended, has_ended)) = (worker.clone(), channel());
            during_call(move || {
                other.end(stream);
                ended.send(()).unwrap();
            });
            fleet.configuration.run_main();
            is_sent = has_ended.try_recv().is_ok();
            if is_sent {
                break;
            }
        } else {
            fleet.answer_all();
            assert_eq!(worker.outcome(stream), Outcome::Continues);
        }
        worker.end(stream);
    }
    assert!(is_sent, "it never asks in advance");
    fleet.answer_all();
    // If the lease were lost, later requests would wait for a response that has come.
    for _ in 0..200 {
        fleet.allows(&worker);
        fleet.answer_all();
    }
}

// Guards: a worker that decides its first request after hours on a policy of then.
#[test]
fn a_worker_without_streams_decides_its_next_request_on_the_policy_in_force() {
    let configuration = leaked(&format!(
        r#"{{"policy": {}, "policy_from": {{"cluster": "follows", "path": "/p", "every": "1s"}}}}"#,
        policy("own", "", 1_000)
    ));
    let workers = [Worker::new(), Worker::new(), Worker::new()];
    assert!(workers[0].field(configuration).contains("own"));
    let serve = |version: &str, body: &str| {
        let callout = wait_for_callout(configuration);
        assert_eq!(callout.header(":path"), Some("/p"));
        let tag = format!("\"{version}\"");
        let headers = [(":status", "200"), ("etag", &tag), ("tollgate-policy-version", version)];
        configuration.answer(callout.number, Some((&headers, body.as_bytes())));
        wait_until(|| {
            configuration.run_main();
            envoy::logged(3, &format!("\"follows\": policy {version} is in force")) > 0
        });
    };
    for version in ["1", "2"] {
        let name = format!("served-{version}");
        serve(version, &policy(&name, "", 1_000));
        for worker in &workers {
            let field = worker.field(configuration);
            assert!(field.contains(&name), "{version}: {field}");
        }
    }
    // A policy with mistakes changes nothing.
    let callout = wait_for_callout(configuration);
    assert_eq!(callout.header("if-none-match"), Some("\"2\""));
    let headers = [(":status", "200"), ("etag", "\"3\""), ("tollgate-policy-version", "3")];
    configuration.answer(callout.number, Some((&headers, b"{}")));
    wait_until(|| {
        configuration.run_main();
        envoy::logged(3, "policy 3 is rejected") > 0
    });
    assert!(workers[0].field(configuration).contains("served-2"));
    // A new worker begins with it.
    assert!(Worker::new().field(configuration).contains("served-2"));
    assert!(envoy::counted("policy_refused") > 0, "the main thread counts");
}

// Guards: workers that stay on a policy which the server has replaced: a file's policies have no
// order, and the main thread asks for a policy again only when the server has another one.
#[test]
fn a_worker_that_is_late_does_not_bring_an_earlier_policy_back() {
    let configuration = leaked(&format!(
        r#"{{"policy": {}, "policy_from": {{"cluster": "slow", "path": "/p", "every": "1s"}}}}"#,
        policy("own", "", 1_000)
    ));
    let serve = |name: &str| {
        let callout = wait_for_callout(configuration);
        let (tag, body) = (format!("\"{name}\""), policy(name, "", 1_000));
        let headers = [(":status", "200"), ("etag", &*tag), ("tollgate-policy-version", "0")];
        configuration.answer(callout.number, Some((&headers, body.as_bytes())));
    };
    let worker = Worker::new();
    assert!(worker.field(configuration).contains("own"));
    serve("first");
    wait_until(|| {
        configuration.run_main();
        Worker::new().field(configuration).contains("first")
    });
    // The first policy is not new any more when the worker gets a request, and compiles it ...
    thread::sleep(Duration::from_secs(1));
    let (compiles, is_compiling) = channel();
    let (stored, is_stored) = channel();
    worker.run(move || {
        during_compilation(move || {
            compiles.send(()).unwrap();
            received(&is_stored);
        });
    });
    // ... while the main thread compiles the second one, and stores it.
    let (late, (asks, asked)) = (worker.clone(), channel());
    during_compilation(move || {
        asks.send(late.start(move || field(configuration))).unwrap();
        received(&is_compiling);
    });
    serve("second");
    let mut asked_by_late = None;
    wait_until(|| {
        configuration.run_main();
        asked_by_late = asked_by_late.take().or_else(|| asked.try_recv().ok());
        asked_by_late.is_some()
    });
    stored.send(()).unwrap();
    received(&asked_by_late.unwrap());
    for (which, worker) in [("new", Worker::new()), ("late", worker)] {
        let field = worker.field(configuration);
        assert!(field.contains("second"), "the {which} one: {field}");
    }
}

fn wait_until(mut is_so: impl FnMut() -> bool) {
    for _ in 0..3_000 {
        if is_so() {
            return;
        }
        thread::sleep(Duration::from_millis(10));
    }
    panic!("it does not come");
}

fn wait_for_callout(configuration: &Configuration) -> Callout {
    wait_until(|| {
        configuration.run_main();
        !configuration.callouts().is_empty()
    });
    configuration.callouts().remove(0)
}

#[test]
fn a_cluster_that_does_not_exist_is_reported_as_such() {
    set_result(NO_CLUSTER);
    let configuration = Configuration::new(&format!(
        r#"{{"policy": {}, "policy_from": {{"cluster": "none", "path": "/p", "every": "1s"}}}}"#,
        policy("none", "", 1)
    ))
    .unwrap();
    wait_until(|| {
        configuration.run_main();
        let line = "server \"none\": cannot fetch the policy: Envoy has no such cluster";
        envoy::logged(3, line) > 0
    });
    let fleet = Fleet::new("none-either", EXACT, 2, "10s");
    let worker = Worker::new();
    let (stream, _) = worker.ask(fleet.configuration, "a");
    fleet.configuration.run_main();
    assert_eq!(worker.outcome(stream), Outcome::Denied(503));
    set_result(SENT);
}

// Guards: a saturated authority that is treated as an unreachable one, which opens the gate of a
// rule that allows requests then.
#[test]
fn a_full_cluster_gets_the_next_request_when_there_is_room() {
    let more = r#""scope": "fleet", "lease": 0, "on_failure": "allow","#;
    let mut fleet = Fleet::new("full", more, 1, "10s");
    let worker = Worker::new();
    let (first, _) = worker.ask(fleet.configuration, "a");
    fleet.configuration.run_main();
    assert_eq!(fleet.configuration.callouts().len(), 1);
    set_result(CANNOT_CREATE);
    let (second, _) = worker.ask(fleet.configuration, "a");
    fleet.configuration.run_main();
    assert_eq!((fleet.configuration.callouts().len(), worker.outcome(second)), (1, Outcome::Waits));
    // Others wait without a call.
    let (other, is_allowed) = worker.ask(fleet.configuration, "c");
    assert!(!is_allowed && worker.outcome(other) == Outcome::Waits);
    set_result(SENT);
    fleet.answer_all();
    assert_eq!(worker.outcome(first), Outcome::Continues);
    wait_until(|| {
        fleet.answer_all();
        let outcomes = [worker.outcome(second), worker.outcome(other)];
        outcomes == [Outcome::Denied(429), Outcome::Continues]
    });
    // Without another request in flight there the authority is unreachable.
    set_result(CANNOT_CREATE);
    let (third, is_allowed) = worker.ask(fleet.configuration, "b");
    assert!(!is_allowed);
    fleet.configuration.run_main();
    assert_eq!(worker.outcome(third), Outcome::Continues, "on_failure");
    set_result(SENT);
}

// Guards: a denial that reaches no client, because it is not about that client's stream.
#[test]
fn a_call_that_the_main_thread_finds_too_late_is_denied() {
    let more = r#""scope": "fleet", "lease": 0, "on_failure": "allow","#;
    let fleet = Fleet::new("too-late", more, 1, "1ms");
    let worker = Worker::new();
    let streams = ["a", "b"].map(|key| worker.ask(fleet.configuration, key).0);
    // Two timeouts pass before the main thread runs.
    thread::sleep(Duration::from_millis(5));
    fleet.configuration.run_main();
    assert_eq!(streams.map(|stream| worker.outcome(stream)), [Outcome::Denied(503); 2]);
    assert!(fleet.configuration.callouts().is_empty());
}

// Guards: clients that wait for a main thread which does something else, long past the two
// time-outs.
#[test]
fn a_request_does_not_wait_for_a_busy_main_thread() {
    let more = r#""scope": "fleet", "lease": 0, "on_failure": "allow","#;
    let fleet = Fleet::new("busy", more, 1, "200ms");
    let worker = Worker::new();
    let (stream, _) = worker.ask(fleet.configuration, "a");
    // Without a deadline of its own, the worker gives the call up after more than 5 s.
    for _ in 0..400 {
        if worker.outcome(stream) != Outcome::Waits {
            break;
        }
        thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(worker.outcome(stream), Outcome::Denied(503), "never allowed without a count");
    worker.end(stream);
    // It was not sent too late.
    fleet.configuration.run_main();
    assert!(fleet.configuration.callouts().is_empty());
}

// Guards: a response that is used twice, or for another request.
#[test]
fn responses_that_are_late_or_come_twice_change_nothing() {
    let mut fleet = Fleet::new("late", EXACT, 1, "10s");
    let worker = Worker::new();
    let (first, _) = worker.ask(fleet.configuration, "a");
    fleet.configuration.run_main();
    let callout = fleet.configuration.callouts().remove(0);
    let body = fleet.decided(&callout, Timestamp::from_millis(1_000_000));
    let response = Some((&[(":status", "200")][..], &body[..]));
    fleet.configuration.done(callout.number + 1, response);
    assert_eq!(worker.outcome(first), Outcome::Waits);
    worker.end(first);
    fleet.configuration.answer(callout.number, response);
    fleet.configuration.done(callout.number, response);
    let (second, _) = worker.ask(fleet.configuration, "a");
    fleet.answer_all();
    assert_eq!(worker.outcome(second), Outcome::Denied(429), "the first one was charged");
}

// Guards: Envoy's main thread in a configuration that a worker frees.
#[test]
fn a_configuration_that_ends_on_a_worker_waits_for_its_calls() {
    let document = format!(
        r#"{{"policy": {}, "policy_from": {{"cluster": "ends", "path": "/p", "timeout": "10s"}}}}"#,
        policy("ends", "", 1)
    );
    let configuration: &'static Configuration = leaked(&document);
    let callout = wait_for_callout(configuration);
    let (ended, has_ended) = channel();
    thread::scope(|scope| {
        scope.spawn(move || {
            configuration.destroy();
            ended.send(()).unwrap();
        });
        let waits = has_ended.recv_timeout(Duration::from_millis(200)).is_err();
        assert!(waits, "it ended with a call in flight");
        configuration.answer(callout.number, None);
        has_ended.recv_timeout(Duration::from_secs(30)).expect("it does not end");
    });
    // On the main thread Envoy cancels them.
    let configuration = Configuration::new(&document).unwrap();
    wait_for_callout(&configuration);
    drop(configuration);
}

// Guards: calls that stay in the queue for ever, because the main thread is never woken for a
// configuration that has ended. When the queue is full, no other configuration can make any.
#[test]
fn a_configuration_that_has_ended_makes_no_calls() {
    let leased = r#""scope": "fleet", "lease": "1s", "on_failure": "deny","#;
    let mut fleet = Fleet::new("gone", leased, 1_000, "10s");
    let other = Fleet::new("stays", leased, 1_000, "10s");
    let worker = Worker::new();
    // No rule is about it, and the worker can be woken while it is open.
    let of_other = other.configuration;
    let open = worker.run(move || Of(of_other.open(Stream::get(&[]))));
    for _ in 0..12 {
        fleet.allows(&worker);
    }
    fleet.answer_all();
    worker.run(envoy::run_wakes);
    // The worker holds a lease, whose rest it is about to return.
    fleet.configuration.destroy();
    let is_woken = |most_s| worker.run(move || envoy::run_next_wake(Duration::from_secs(most_s)));
    assert!(is_woken(20), "it holds no lease");
    let more = (0..4).take_while(|_| is_woken(2)).count();
    worker.end(open);
    // Counts of what has ended are the other's.
    assert_eq!((more, other.configuration.counted("fleet_asked")), (0, 0));
}

// Guards: anything that goes wrong in an order that no test names. Each key has one request; the
// order of what happens is that of a seed, except the timer's.
#[test]
fn never_more_than_the_limit_in_any_order() {
    const LIMIT: u64 = 40;
    for seed in 0..4 {
        let mut random = Random::new(seed);
        let name = format!("order-{seed}");
        let mut fleet = Fleet::new(&name, EXACT, LIMIT, "10s");
        let workers: Vec<Worker> = (0..3).map(|_| Worker::new()).collect();
        let mut waiting: Vec<(usize, Of)> = Vec::new();
        let (mut allowed, mut left) = (0_u64, 0_u64);
        for _ in 0..400 {
            match random.index(6) {
                0 | 1 => {
                    let i = random.index(workers.len());
                    let (stream, _) = workers[i].ask(fleet.configuration, "a");
                    waiting.push((i, stream));
                }
                2 => {
                    fleet.configuration.run_main();
                    let callouts = fleet.configuration.callouts();
                    if !callouts.is_empty() {
                        let callout = &callouts[random.index(callouts.len())];
                        let body = fleet.decided(callout, Timestamp::from_millis(1_000_000));
                        let response = (&[(":status", "200")][..], &body[..]);
                        fleet.configuration.answer(callout.number, Some(response));
                    }
                }
                3 if !waiting.is_empty() => {
                    let (i, stream) = waiting.swap_remove(random.index(waiting.len()));
                    let outcome = workers[i].outcome(stream);
                    left += u64::from(matches!(outcome, Outcome::Waits | Outcome::Denied(503)));
                    allowed += u64::from(outcome == Outcome::Continues);
                    workers[i].end(stream);
                }
                _ => {
                    let worker = &workers[random.index(workers.len())];
                    worker.run(envoy::run_wakes);
                }
            }
        }
        for _ in 0..3 {
            fleet.answer_all();
            waiting.retain(|(i, stream)| {
                let outcome = workers[*i].outcome(*stream);
                left += u64::from(outcome == Outcome::Denied(503));
                allowed += u64::from(outcome == Outcome::Continues);
                if outcome != Outcome::Waits {
                    workers[*i].end(*stream);
                }
                outcome == Outcome::Waits
            });
        }
        assert!(waiting.is_empty(), "{} wait for ever", waiting.len());
        // A client that left, or had no response in time, may have been charged.
        assert!(allowed <= LIMIT && allowed + left >= LIMIT, "{seed}: {allowed}, {left} left");
    }
    assert_eq!(envoy::calls_after_the_end(), 0);
}
