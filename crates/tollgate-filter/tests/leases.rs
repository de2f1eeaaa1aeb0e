//! Rules of a fleet in the filter: several workers of one process, and an authority whose responses
//! come when the test sends them.
//!
//! Invariant: the authority here is the real accounting behind the real messages. The tests check
//! which requests ask, which wait, and that no request is allowed that one limiter denies. The
//! end-to-end tests use the real server.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use tollgate_core::{Span, Timestamp};
use tollgate_filter::filter::{Filter, Flow};
use tollgate_filter::host::calls::{Calls, HttpCall, NotSent};
use tollgate_filter::host::headers::HeaderLines;
use tollgate_filter::host::proxy::{Counters, Proxy};
use tollgate_filter::host::reply::Reply;
use tollgate_filter::host::shared_data::{SharedData, Stored, Written};
use tollgate_filter::host::streams::AnyNumbers;
use tollgate_filter::request::facts::RequestSource;
use tollgate_filter::wire::header_map::{HeaderMap, HeaderMapWriter};
use tollgate_policy::{Policy, Surface};
use tollgate_storage::table::Seed;
use tollgate_storage::{Counts, LeaseQuestion, LeaseReply, WireError};
use tollgate_test_support::Random;

use crate::support::host_map::HostMap;

/// One lease request that waits for its response: the worker, the call, the body.
struct Question {
    worker: usize,
    call: u32,
    body: Vec<u8>,
}

/// One process and its authority.
struct World {
    config: RefCell<String>,
    now: Cell<Timestamp>,
    key: RefCell<String>,
    path: Cell<&'static str>,
    shared: RefCell<HostMap>,
    counters: RefCell<Vec<(String, i64)>>,
    random: Cell<u64>,
    calls: Cell<u32>,
    /// This many writes lose their race.
    lost: Cell<u32>,
    questions: RefCell<Vec<Question>>,
    /// All lease requests ever sent.
    asked: RefCell<Vec<Vec<u8>>>,
    is_away: Cell<bool>,
    /// The circuit breaker of the authority's cluster: its limit of lease requests, of all workers,
    /// and whether a response comes from it.
    most_calls: Cell<usize>,
    is_full: Cell<bool>,
    /// The response that is handed over.
    status: Cell<&'static str>,
    body: RefCell<Vec<u8>>,
    /// Streams whose clients have left.
    left: RefCell<BTreeSet<u32>>,
    resumed: RefCell<Vec<u32>>,
    refused: RefCell<Vec<(u16, Vec<u8>)>>,
    /// The bodies of denials.
    bodies: RefCell<Vec<Vec<u8>>>,
    fields: RefCell<Vec<(String, String)>>,
    tick_ms: RefCell<Vec<u32>>,
    policy: Policy,
    counts: RefCell<BTreeMap<[u8; 16], Counts>>,
}

#[derive(Clone)]
struct Host {
    world: Rc<World>,
    worker: usize,
    /// The current context.
    context: Rc<Cell<u32>>,
}

impl RequestSource for Host {
    type Lines = HeaderMap;

    fn request_headers(&self) -> Option<HeaderMap> {
        let mut pairs = HeaderMapWriter::default();
        for (name, value) in
            [(":method", "GET"), (":path", self.world.path.get()), (":authority", "a.example")]
        {
            pairs.push(name, value.as_bytes());
        }
        pairs.push("x-key", self.world.key.borrow().as_bytes());
        Some(HeaderMap::new(pairs.finish()))
    }

    fn source_address(&self) -> Option<Vec<u8>> {
        Some(b"192.0.2.1:1".to_vec())
    }

    fn property(&self, _path: &[u8]) -> Option<Vec<u8>> {
        None
    }
}

impl SharedData for Host {
    fn get(&self, name: &[u8]) -> Stored {
        self.world.shared.borrow().get(name)
    }

    fn set(&self, name: &[u8], value: &[u8], cas: u32) -> Written {
        if let Some(lost) = self.world.lost.get().checked_sub(1) {
            self.world.lost.set(lost);
            return Written::Lost;
        }
        self.world.shared.borrow_mut().set(name, value, cas)
    }
}

impl Calls for Host {
    fn call(&self, call: &HttpCall<'_>) -> Result<u32, NotSent> {
        let world = &self.world;
        assert_eq!(self.context.get(), ROOT, "a question outlives its stream");
        assert_eq!((call.cluster, call.timeout_ms), ("authority", 100));
        if world.is_away.get() {
            return Err(NotSent::Refused);
        }
        if world.questions.borrow().len() >= world.most_calls.get() {
            return Err(NotSent::Failed);
        }
        world.calls.set(world.calls.get() + 1);
        let question =
            Question { worker: self.worker, call: world.calls.get(), body: call.body.to_vec() };
        world.questions.borrow_mut().push(question);
        world.asked.borrow_mut().push(call.body.to_vec());
        Ok(world.calls.get())
    }

    fn answer_header(&self, name: &str) -> Option<Vec<u8>> {
        let status = self.world.status.get();
        match name {
            ":status" if !status.is_empty() => Some(status.into()),
            "x-envoy-overloaded" if self.world.is_full.get() => Some(b"true".into()),
            _ => None,
        }
    }

    fn answer_body(&self, len: usize) -> Vec<u8> {
        let body = self.world.body.borrow();
        body[..len.min(body.len())].to_vec()
    }
}

impl Counters for Host {
    fn define(&self, name: &str) -> Option<u32> {
        let mut counters = self.world.counters.borrow_mut();
        let place = counters.iter().position(|(known, _)| known == name);
        let place = place.unwrap_or_else(|| {
            counters.push((name.to_owned(), 0));
            counters.len() - 1
        });
        u32::try_from(place).ok()
    }

    fn define_gauge(&self, name: &str) -> Option<u32> {
        self.define(name)
    }

    fn define_histogram(&self, name: &str) -> Option<u32> {
        self.define_gauge(name)
    }

    fn add(&self, counter: u32, by: i64) {
        self.world.counters.borrow_mut()[usize::try_from(counter).unwrap()].1 += by;
    }

    fn record(&self, _gauge: u32, _value: u64) {}
}

impl Proxy for Host {
    type Streams<T> = AnyNumbers<T>;

    fn monotonic(&self) -> Option<Timestamp> {
        // No two reads of a clock show the same.
        let now = self.world.now.get().saturating_add(Span::from_nanos(100));
        self.world.now.set(now);
        Some(now)
    }

    fn wall_clock(&self) -> Option<Timestamp> {
        None
    }

    fn clock_offset(&self) -> Span {
        Span::ZERO
    }

    fn set_clock_offset(&self, _offset: Span) {}

    fn random_seed(&self) -> Option<Seed> {
        self.world.random.set(self.world.random.get() + 1);
        Some([u8::try_from(self.world.random.get()).unwrap(); 16])
    }

    fn configuration(&self, _len: usize) -> Vec<u8> {
        self.world.config.borrow().clone().into_bytes()
    }

    fn plugin_scope(&self) -> Vec<u8> {
        b"p".into()
    }

    fn log_error(&self, text: &str) {
        panic!("{text}");
    }

    fn log_warning(&self, _text: &str) {}

    fn log_info(&self, _text: &str) {}

    fn set_filter_state(&self, _name: &str, _value: &str) {}

    fn set_request_header(&self, _name: &str, _value: &str) {}

    fn set_response_header(&self, _name: &str, _value: &str) {}

    fn add_response_header(&self, name: &str, value: &str) {
        self.world.fields.borrow_mut().push((name.into(), value.into()));
    }

    fn response_status(&self) -> Option<u16> {
        Some(200)
    }

    fn response_headers(&self) -> Option<HeaderMap> {
        None
    }

    fn request_bytes(&self) -> usize {
        100
    }

    fn enter(&self, id: u32) -> bool {
        let is_there = !self.world.left.borrow().contains(&id);
        if is_there {
            self.context.set(id);
        }
        is_there
    }

    fn reply(&self, reply: Reply<'_>) -> bool {
        let mut fields = HeaderMapWriter::default();
        reply.fields(&mut |name, value| fields.push(name, value.as_bytes()));
        self.world.refused.borrow_mut().push((reply.status, fields.finish()));
        let mut body = String::new();
        reply.write_body(&mut body);
        self.world.bodies.borrow_mut().push(body.into_bytes());
        true
    }

    fn resume(&self, id: u32) {
        self.world.resumed.borrow_mut().push(id);
    }

    fn set_tick_ms(&self, ms: u32) {
        self.world.tick_ms.borrow_mut()[self.worker] = ms;
    }

    fn memory_growth(&self) -> i64 {
        0
    }

    fn is_memory_short(&self) -> bool {
        false
    }
}

const ROOT: u32 = 1;

/// One process with this many workers.
struct Process {
    world: Rc<World>,
    workers: Vec<(Filter<Host>, Host)>,
    next: u32,
}

/// The result of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Came {
    Passed,
    Refused(u16),
    Held(u32),
}

impl Process {
    fn new(rules: &str, workers: usize) -> Self {
        Self::with(r#""version": 1"#, rules, workers)
    }

    fn with(head: &str, rules: &str, workers: usize) -> Self {
        let policy = format!(r#"{{{head}, "rules": [{rules}]}}"#);
        let fleet = r#"{"cluster": "authority", "secret": "0123456789abcdef", "timeout": "100ms"}"#;
        let world = Rc::new(World {
            config: RefCell::new(format!(r#"{{"policy": {policy}, "fleet": {fleet}}}"#)),
            now: Cell::new(Timestamp::from_millis(1_000_000)),
            key: RefCell::new("a".into()),
            path: Cell::new("/"),
            shared: RefCell::default(),
            counters: RefCell::default(),
            random: Cell::new(0),
            calls: Cell::new(0),
            lost: Cell::new(0),
            questions: RefCell::default(),
            asked: RefCell::default(),
            is_away: Cell::new(false),
            most_calls: Cell::new(usize::MAX),
            is_full: Cell::new(false),
            status: Cell::new(""),
            body: RefCell::default(),
            left: RefCell::default(),
            resumed: RefCell::default(),
            refused: RefCell::default(),
            bodies: RefCell::default(),
            fields: RefCell::default(),
            tick_ms: RefCell::new(vec![0; workers]),
            policy: tollgate_language::compile(&policy, Surface::Server)
                .unwrap_or_else(|e| panic!("{e}")),
            counts: RefCell::default(),
        });
        let worker = |worker| {
            let host = Host { world: Rc::clone(&world), worker, context: Rc::default() };
            let filter = Filter::new(host.clone());
            filter.on_context_create(ROOT, 0);
            assert!(filter.on_configure(ROOT, 100));
            (filter, host)
        };
        let workers = (0..workers).map(worker).collect();
        Self { world, workers, next: 10 }
    }

    /// A request of `key` at a worker.
    fn come(&mut self, worker: usize, key: &str) -> Came {
        self.next += 1;
        let id = self.next;
        *self.world.key.borrow_mut() = key.into();
        let (filter, host) = &self.workers[worker];
        filter.on_context_create(id, ROOT);
        host.context.set(id);
        let refused = self.world.refused.borrow().len();
        let flow = filter.on_request_headers(id);
        if let Some((status, _)) = self.world.refused.borrow().get(refused) {
            assert_eq!(flow, Flow::Stop);
            return Came::Refused(*status);
        }
        assert!(
            self.world.resumed.borrow().is_empty()
                || flow != Flow::Continue
                || !self.world.resumed.borrow().contains(&id),
            "it was not stopped"
        );
        if flow == Flow::Continue { Came::Passed } else { Came::Held(id) }
    }

    /// Lease requests that wait for a response.
    fn asked(&self) -> usize {
        self.world.questions.borrow().len()
    }

    /// Responds to the oldest lease request as the authority does.
    fn answer(&mut self) {
        let question = self.world.questions.borrow_mut().remove(0);
        let body = self.decided(&question.body);
        self.give(&question, "200", body);
    }

    fn answer_all(&mut self) {
        let mut answered = 0;
        while self.asked() > 0 {
            self.answer();
            answered += 1;
            assert!(answered < 10_000, "each answer brings the next question");
        }
    }

    fn give(&self, question: &Question, status: &'static str, body: Vec<u8>) {
        let len = body.len();
        self.world.status.set(status);
        *self.world.body.borrow_mut() = body;
        let (filter, host) = &self.workers[question.worker];
        host.context.set(ROOT);
        filter.on_call_answered(ROOT, question.call, len);
    }

    /// The authority's handling of a lease request: checks all keys, then charges all or none.
    fn decided(&self, body: &[u8]) -> Vec<u8> {
        let world = &self.world;
        let question = LeaseQuestion::read(body).expect("a question");
        let policy = &world.policy;
        assert_eq!(question.policy, policy.fleet().fingerprint(), "of this policy");
        let mut counts = world.counts.borrow_mut();
        let now = world.now.get();
        let ask = |counts: &mut Counts, request: Result<Vec<u8>, WireError>| {
            counts.answer(&request.expect("a request"), now).expect("an answer").reply
        };
        let mut each = |is_look: bool| -> Vec<(Vec<u8>, bool)> {
            let keys = question.keys.iter().map(|key| {
                let request =
                    policy.fleet().lease_request(key, question.table, is_look).expect("a request");
                let reply = ask(counts.entry(key.hash).or_default(), Ok(request.clone()));
                let is_refused = Counts::refuses(&request, &reply).expect("a reply");
                (reply, is_refused)
            });
            keys.collect()
        };
        let costs = question.keys.iter().filter(|key| key.rules.iter().any(|it| it.cost > 0));
        let looks = (costs.count() > 1).then(|| each(true));
        let refused = looks.filter(|looks| looks.iter().any(|(_, is_refused)| *is_refused));
        let replies = refused.unwrap_or_else(|| each(false)).into_iter();
        let replies: Vec<LeaseReply> =
            replies.map(|(reply, _)| LeaseReply::Decided(reply)).collect();
        let mut answer = Vec::new();
        LeaseReply::write(&replies, &mut answer);
        assert!(answer.len() <= 65_536, "{} bytes: no authority reads it", answer.len());
        answer
    }

    fn wait(&self, millis: u64) {
        let now = self.world.now.get();
        self.world.now.set(now.saturating_add(Span::from_millis(millis)));
    }

    /// The timer of a worker fires after its interval.
    fn tick(&self, worker: usize) {
        let ms = self.world.tick_ms.borrow()[worker];
        assert_ne!(ms, 0, "the timer is stopped while a request waits");
        self.wait(ms.into());
        self.fire(worker);
    }

    fn fire(&self, worker: usize) {
        let (filter, host) = &self.workers[worker];
        host.context.set(ROOT);
        filter.on_tick(ROOT);
    }

    fn leave(&self, worker: usize, id: u32) {
        self.world.left.borrow_mut().insert(id);
        self.workers[worker].0.on_delete(id);
    }

    fn counted(&self, name: &str) -> i64 {
        self.workers.iter().for_each(|(filter, _)| filter.flush());
        let counters = self.world.counters.borrow();
        counters.iter().find(|(known, _)| known == name).map_or(0, |(_, value)| *value)
    }

    fn resumed(&self) -> Vec<u32> {
        self.world.resumed.take()
    }

    fn statuses(&self) -> Vec<u16> {
        self.world.refused.take().iter().map(|(status, _)| *status).collect()
    }
}

fn rule(more: &str, limit: u64) -> String {
    format!(
        r#"{{"name": "r", "key": [{{"header": "x-key"}}], "scope": "fleet", {more}
            "quotas": [{{"limit": {limit}, "window": "10s", "algorithm": "fixed-window"}}]}}"#
    )
}

#[test]
fn without_leases_every_request_asks_and_the_authority_decides() {
    let mut process = Process::new(&rule(r#""lease": 0,"#, 5), 2);
    let mut passed = 0;
    for i in 0..20 {
        match process.come(i % 2, "a") {
            Came::Held(id) => {
                assert_eq!(process.asked(), 1);
                process.answer();
                passed += usize::from(process.resumed() == [id]);
            }
            // Denied so recently that it is denied again.
            Came::Refused(429) => assert!(i > 5, "{i}"),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(passed, 5);
    assert_eq!(process.counted("tollgate.fleet_asked"), 6);
    assert_eq!(process.counted("tollgate.fleet_refused"), 1);
    assert_eq!(process.counted("tollgate.fleet_paused"), 0);
    assert_eq!(process.counted("tollgate.decisions.plugin=p.rule=r.quota=r.result=denied"), 15);
    // After a second the denial is no longer remembered.
    process.wait(1_001);
    assert!(matches!(process.come(0, "a"), Came::Held(_)));
}

#[test]
fn a_busy_key_is_paid_from_leases_that_all_workers_share() {
    let mut process = Process::new(&rule("", 10_000), 2);
    let (mut held, mut passed) = (0, 0_u64);
    for i in 0..4_000 {
        process.wait(1);
        match process.come(i % 2, "a") {
            Came::Passed => passed += 1,
            Came::Held(_) => held += 1,
            Came::Refused(_) => panic!("{i}"),
        }
        process.answer_all();
        passed += u64::try_from(process.resumed().len()).unwrap();
    }
    let asked = process.counted("tollgate.fleet_asked");
    assert_eq!(passed, 4_000);
    assert!(asked < 40, "{asked} questions");
    assert!(held < 20, "{held} held: a prefetched lease holds no request");
    assert!(process.counted("tollgate.fleet_granted") > 0);
}

// Guards: units of one lease that two workers spend, and of a lease that ended.
#[test]
fn never_more_than_one_limiter_admits() {
    for limit in [1, 10, 100, 1_000] {
        let mut process = Process::new(&rule("", limit), 3);
        let mut admitted: Vec<Timestamp> = Vec::new();
        for i in 0..20_000 {
            process.wait(3);
            if process.come(i % 3, "a") == Came::Passed {
                admitted.push(process.world.now.get());
            }
            if i % 7 == 0 {
                (0..3).for_each(|worker| process.fire(worker));
            }
            process.answer_all();
            admitted.extend(process.resumed().iter().map(|_| process.world.now.get()));
        }
        let window = |at: &Timestamp| at.as_nanos() / 10_000_000_000;
        let mut windows: BTreeMap<u64, u64> = BTreeMap::new();
        admitted.iter().for_each(|at| *windows.entry(window(at)).or_default() += 1);
        assert!(windows.values().all(|admitted| *admitted <= limit), "{limit}: {windows:?}");
        let whole: u64 = windows.values().sum();
        // Six windows, of which the first and the last are parts.
        assert!(whole >= limit * 5, "{limit}: {windows:?}");
    }
}

/// A process whose worker 0 has a lease request in flight.
fn asking() -> (Process, u32) {
    let mut process = Process::new(&rule("", 1_000), 2);
    let mut last = None;
    for _ in 0..8 {
        last = Some(process.come(0, "a"));
    }
    let Some(Came::Held(id)) = last else { panic!("{last:?}") };
    (process, id)
}

#[test]
fn others_wait_for_what_one_asks_and_find_it_at_their_tick() {
    let (mut process, _) = asking();
    // The first four ask for themselves; requests wait for the one that asks for a lease.
    let asked = process.asked();
    let Came::Held(other) = process.come(1, "a") else { panic!() };
    let Came::Held(own) = process.come(0, "a") else { panic!() };
    assert_eq!(process.asked(), asked, "no lease is requested twice");
    assert!(process.counted("tollgate.fleet_paused") >= 2);
    process.answer_all();
    let resumed = process.resumed();
    assert!(resumed.contains(&own) && !resumed.contains(&other), "a worker wakes its own");
    process.tick(1);
    assert_eq!(process.resumed(), [other]);
    assert_eq!(process.counted("tollgate.fleet_paused"), 0);
}

#[test]
fn a_client_that_leaves_leaves_what_was_asked_for_to_others() {
    let (mut process, first) = asking();
    let Came::Held(second) = process.come(0, "a") else { panic!() };
    process.leave(0, first);
    process.answer_all();
    assert!(process.resumed().contains(&second));
    // The lease is there for the next, too.
    assert_eq!(process.come(1, "a"), Came::Passed);
    let Came::Passed = process.come(0, "a") else { panic!() };
    assert_eq!(process.counted("tollgate.waiting_left"), 1);
    assert_eq!(process.counted("tollgate.fleet_paused"), 0);
    // A request that waits in a line and leaves is forgotten.
    let (mut process, _) = asking();
    let Came::Held(waits) = process.come(1, "a") else { panic!() };
    process.leave(1, waits);
    process.answer_all();
    process.fire(1);
    assert!(!process.resumed().contains(&waits));
    assert_eq!(process.workers[1].0.waiting(), 0);
}

#[test]
fn without_an_answer_each_rule_says_what_becomes_of_a_request() {
    let local = r#""on_failure": {"share": 5}, "#;
    for (on_failure, statuses) in [
        (r#""on_failure": "allow", "#, vec![]),
        (r#""on_failure": "deny", "#, vec![503; 6]),
        (local, vec![429; 4]),
    ] {
        for has_cluster in [false, true] {
            let mut process = Process::new(&rule(on_failure, 10), 1);
            process.world.is_away.set(!has_cluster);
            let mut passed = 0;
            for _ in 0..6 {
                match process.come(0, "a") {
                    Came::Passed => passed += 1,
                    Came::Held(id) => {
                        assert!(has_cluster);
                        let question = process.world.questions.borrow_mut().remove(0);
                        process.give(&question, "", vec![]);
                        passed += usize::from(process.resumed() == [id]);
                    }
                    Came::Refused(_) => {}
                }
            }
            assert_eq!(process.statuses(), statuses, "{on_failure} {has_cluster}");
            assert_eq!(passed, 6 - statuses.len(), "{on_failure} {has_cluster}");
            let failed = process.counted("tollgate.fleet_failed");
            assert!(failed >= 5, "{failed}");
            // After five failures in a row no lease request is sent for a second, then one at a
            // time.
            let asked = process.counted("tollgate.fleet_asked");
            process.come(0, "b");
            assert_eq!(process.counted("tollgate.fleet_asked"), asked);
            process.world.is_away.set(false);
            process.wait(1_001);
            assert!(matches!(process.come(0, "c"), Came::Held(_)));
            process.answer_all();
            assert_eq!(process.resumed().len(), 1);
            assert!(matches!(process.come(0, "d"), Came::Held(_)));
        }
    }
}

#[test]
fn answers_that_are_none_are_failures() {
    let good = {
        let mut process = Process::new(&rule("", 10), 1);
        process.come(0, "a");
        let question = process.world.questions.borrow_mut().remove(0);
        process.decided(&question.body)
    };
    let mut odd = good.clone();
    odd.push(0);
    let mut none = Vec::new();
    LeaseReply::write(&[], &mut none);
    let mut nonsense = Vec::new();
    LeaseReply::write(&[LeaseReply::Decided(vec![3, 1, 2])], &mut nonsense);
    let mut failed = Vec::new();
    LeaseReply::write(&[LeaseReply::Failed], &mut failed);
    for (status, body) in [
        ("409", vec![]),
        ("503", b"no healthy upstream".to_vec()),
        ("500", good.clone()),
        ("200", vec![]),
        ("200", good[..good.len() - 1].to_vec()),
        ("200", odd),
        ("200", none),
        ("200", nonsense),
        ("200", failed),
    ] {
        let mut process = Process::new(&rule(r#""on_failure": "deny", "#, 10), 1);
        let Came::Held(_) = process.come(0, "a") else { panic!() };
        let question = process.world.questions.borrow_mut().remove(0);
        process.give(&question, status, body);
        assert_eq!(process.statuses(), [503], "{status}");
        // The same response a second time belongs to no call.
        process.give(&question, "200", good.clone());
        assert_eq!((process.statuses().len(), process.resumed().len()), (0, 0));
    }
}

// Guards: a sprayer of fresh keys. Each of them asks, and requests beyond the limits must not pass,
// whatever `on_failure` is when the authority is away.
#[test]
fn fresh_keys_without_end_are_refused_and_never_let_through() {
    let head = r#""version": 1, "waiting": {"total": 300, "per_key": 50}"#;
    let mut process = Process::with(head, &rule(r#""on_failure": "allow", "#, 5), 1);
    let (mut held, mut refused) = (0, 0);
    for i in 0..10_000 {
        match process.come(0, &format!("key-{i}")) {
            Came::Held(_) => held += 1,
            Came::Refused(503) => refused += 1,
            other => panic!("{i}: {other:?}"),
        }
    }
    assert_eq!((held, refused), (300, 9_700));
    assert_eq!(process.asked(), 128, "so many questions are under way at once");
    assert_eq!(process.counted("tollgate.fleet_overloaded"), 9_700);
    assert_eq!(process.counted("tollgate.fleet_paused"), 300);
    for _ in 0..1_000 {
        process.answer_all();
        if process.workers[0].0.waiting() == 0 {
            break;
        }
        process.tick(0);
    }
    assert_eq!(process.resumed().len(), 300);
    assert_eq!(process.counted("tollgate.fleet_paused"), 0);
    // Per key only this many wait.
    let head = r#""version": 1, "waiting": {"per_key": 3}"#;
    let mut process = Process::with(head, &rule("", 1_000), 1);
    let came: Vec<Came> = (0..20).map(|_| process.come(0, "a")).collect();
    let refused = came.iter().filter(|came| **came == Came::Refused(503)).count();
    assert!(refused > 10, "{came:?}");
}

#[test]
fn what_is_left_goes_back_before_it_ends() {
    let (mut process, _) = asking();
    process.answer_all();
    assert!(process.counted("tollgate.fleet_granted") > 0);
    // 2 s of life, of which an eighth is kept for the way back; then another lease, because the
    // last two seconds were busy; then none.
    let mut finals = Vec::new();
    while process.world.tick_ms.borrow()[0] != 0 {
        process.tick(0);
        assert!(process.world.now.get() < Timestamp::from_millis(1_010_000));
        if process.asked() == 0 {
            continue;
        }
        let asked_at = process.world.now.get();
        let body = process.world.questions.borrow()[0].body.clone();
        let rule = LeaseQuestion::read(&body).unwrap().keys[0].rules[0].clone();
        let is_final = rule.ask.reports.iter().any(|report| report.is_final);
        finals.push((asked_at.since(Timestamp::from_millis(1_000_000)), rule.cost, is_final));
        process.answer();
    }
    let ms = Span::from_millis;
    assert!(finals.iter().all(|(_, cost, is_final)| *cost == 0 && *is_final), "{finals:?}");
    assert!(finals[0].0 < ms(2_000), "{finals:?}");
    assert!(finals.len() <= 3, "{finals:?}");
    // Nothing is leased: the whole limit is available, the last of it at intervals.
    let (mut passed, mut held) = (0, 0);
    process.wait(10_000);
    process.resumed();
    for _ in 0..3_000 {
        process.wait(1);
        match process.come(1, "a") {
            Came::Passed => passed += 1,
            Came::Held(_) => held += 1,
            Came::Refused(_) => {}
        }
        process.answer_all();
    }
    process.statuses();
    assert_eq!(passed + process.resumed().len(), 1_000, "{held} were held");
}

#[test]
fn rules_of_this_node_decide_first_and_all_are_charged_or_none() {
    let rules = format!(
        r#"{{"name": "own", "key": [{{"header": "x-key"}}], "quotas": [{{"limit": 3, "window": "1h"}}]}}, {}"#,
        rule(r#""lease": 0,"#, 2)
    );
    let mut process = Process::new(&rules, 1);
    for _ in 0..2 {
        assert!(matches!(process.come(0, "a"), Came::Held(_)));
        process.answer_all();
    }
    assert_eq!(process.resumed().len(), 2);
    // The fleet denies: this node takes its charge back.
    assert!(matches!(process.come(0, "a"), Came::Held(_)));
    process.answer_all();
    assert_eq!(process.statuses(), [429]);
    let asked = process.counted("tollgate.fleet_asked");
    process.wait(10_000);
    assert!(matches!(process.come(0, "a"), Came::Held(_)), "the third of three");
    process.answer_all();
    assert_eq!(process.resumed().len(), 1);
    // This node denies: no lease request is sent, and the fleet is charged nothing.
    assert_eq!(process.come(0, "a"), Came::Refused(429));
    assert_eq!(process.counted("tollgate.fleet_asked"), asked + 1);
    // A client that leaves while a lease request is in flight gives this node its unit back.
    for _ in 0..4 {
        let Came::Held(id) = process.come(0, "b") else { panic!() };
        process.leave(0, id);
        process.world.questions.borrow_mut().clear();
        process.wait(1);
    }
    assert!(matches!(process.come(0, "b"), Came::Held(_)));
}

// Guards: leases to return of many keys under many rules, in a lease request that is too long to be
// read: none of them ever goes back, and five such requests in a row are taken for an authority
// that is away.
#[test]
fn what_goes_back_of_many_rules_is_no_longer_than_a_message() {
    let rules: Vec<_> =
        (0..24).map(|i| rule("", 1_000).replacen("\"r\"", &format!("\"r{i}\""), 1)).collect();
    let mut process = Process::new(&rules.join(", "), 1);
    for key in 0..64 {
        for _ in 0..12 {
            process.come(0, &key.to_string());
        }
        process.answer_all();
    }
    let mut asked = 0;
    while process.world.tick_ms.borrow()[0] != 0 {
        process.tick(0);
        asked += process.asked();
        // The authority reads each of them.
        process.answer_all();
    }
    assert!(asked > 0 && process.counted("tollgate.fleet_failed") == 0);
}

// Guards: a crowd on one key, in which a request that loses every race is allowed uncounted, though
// its rule specifies that the node then counts alone.
#[test]
fn who_loses_every_race_is_counted_by_the_node_alone() {
    let mut process = Process::new(&rule(r#""on_failure": {"share": 5}, "#, 10), 1);
    let mut came = Vec::new();
    for _ in 0..4 {
        process.world.lost.set(32);
        came.push(process.come(0, "a"));
        assert_eq!(process.world.lost.get(), 0);
    }
    assert_eq!(came[..2], [Came::Passed, Came::Passed]);
    assert_eq!(came[2..], [Came::Refused(429), Came::Refused(429)]);
    assert_eq!((process.asked(), process.resumed().len()), (0, 0));
}

// Guards: a key whose store is away (or that is out of turn), which removes the authority's denial
// of another key of the same request.
#[test]
fn what_is_refused_stays_refused_when_another_key_is_not_answered() {
    for (other, on_failure) in [
        (LeaseReply::Failed, r#""on_failure": "allow", "#),
        (LeaseReply::Failed, r#""on_failure": "local", "#),
        (LeaseReply::Overloaded, r#""on_failure": "local", "#),
    ] {
        let rules = format!(
            r#"{{"name": "all", "key": [], "scope": "fleet", "lease": 0, {on_failure}
                "quotas": [{{"limit": 1000, "window": "10s"}}]}}, {}"#,
            rule(&format!(r#""lease": 0, {on_failure}"#), 1)
        );
        let mut process = Process::new(&rules, 1);
        let Came::Held(first) = process.come(0, "a") else { panic!() };
        process.answer();
        assert_eq!(process.resumed(), [first]);
        let Came::Held(_) = process.come(0, "a") else { panic!() };
        let question = process.world.questions.borrow_mut().remove(0);
        let mut replies = LeaseReply::read(&process.decided(&question.body)).unwrap();
        // The reply about the key of `all` becomes one without a result.
        assert_eq!(replies.len(), 2);
        replies[0] = other.clone();
        let mut body = Vec::new();
        LeaseReply::write(&replies, &mut body);
        process.give(&question, "200", body);
        assert_eq!((process.resumed().len(), process.statuses()), (0, vec![429]), "{on_failure}");
    }
}

#[test]
fn several_rules_of_the_fleet_are_paid_all_or_none() {
    let rules = format!(
        r#"{{"name": "all", "key": [], "scope": "fleet", "quotas": [{{"limit": 1000, "window": "10s"}}]}}, {}"#,
        rule("", 40)
    );
    let mut process = Process::new(&rules, 2);
    let (mut passed, mut refused) = (0, 0);
    for i in 0..400 {
        process.wait(5);
        match process.come(i % 2, "a") {
            Came::Passed => passed += 1,
            Came::Refused(429) => refused += 1,
            Came::Refused(status) => panic!("{status}"),
            Came::Held(_) => {}
        }
        process.answer_all();
        (0..2).for_each(|worker| process.fire(worker));
        passed += process.resumed().len();
        refused += process.statuses().iter().filter(|status| **status == 429).count();
    }
    assert_eq!(passed, 40);
    assert!(refused >= 360, "{refused}");
}

#[test]
fn fields_say_what_this_node_holds() {
    let (mut process, _) = asking();
    process.answer_all();
    process.resumed();
    process.world.fields.borrow_mut().clear();
    assert_eq!(process.come(1, "a"), Came::Passed);
    process.workers[1].0.on_response_headers(process.next);
    let fields = process.world.fields.borrow().clone();
    let (_, field) = fields.iter().find(|(name, _)| name == "ratelimit").unwrap();
    // Its life is 2 s less 0.1 %, rounded up.
    let (_, left) = field.split_once(";r=").unwrap();
    let (left, rest) = left.split_once(";t=").unwrap();
    assert!(left.parse::<u64>().unwrap() < 500, "{field}");
    assert_eq!(rest, "2", "{field}");
}

// Guards: keys that are too long to be kept, which each node would hash for itself.
#[test]
fn a_long_key_is_the_same_for_all_nodes() {
    let long = "k".repeat(5_000);
    let hashes: Vec<[u8; 16]> = (0..2)
        .map(|process_number| {
            let mut process = Process::new(&rule("", 10), 1);
            process.world.random.set(process_number * 50);
            process.come(0, &long);
            let question = process.world.questions.borrow_mut().remove(0);
            LeaseQuestion::read(&question.body).unwrap().keys[0].hash
        })
        .collect();
    assert_eq!(hashes[0], hashes[1]);
}

// Guards: a hostile or faulty authority, of which a node would spend unlimited units.
#[test]
fn a_node_takes_no_more_than_it_asked_for() {
    let (mut process, _) = asking();
    let mut wanted = 0;
    while process.asked() > 0 {
        let question = process.world.questions.borrow_mut().remove(0);
        let rule = LeaseQuestion::read(&question.body).unwrap().keys[0].rules[0].clone();
        wanted = wanted.max(rule.ask.want);
        let mut replies = LeaseReply::read(&process.decided(&question.body)).unwrap();
        let LeaseReply::Decided(reply) = &mut replies[0] else { panic!("{replies:?}") };
        // The lease for the one set: units, life in milliseconds, and no reason for a denial.
        reply[2..15].copy_from_slice(&[0xff; 13]);
        reply[14] = 0;
        let mut body = Vec::new();
        LeaseReply::write(&replies, &mut body);
        process.give(&question, "200", body);
    }
    assert!(wanted > 0);
    let mut passed = 0;
    while process.come(0, "a") == Came::Passed {
        passed += 1;
        assert!(passed <= wanted, "{passed} of {wanted}");
    }
    // Nor for longer.
    let (mut process, _) = asking();
    process.answer_all();
    process.wait(2_001);
    assert!(matches!(process.come(0, "a"), Came::Held(_)));
}

impl Process {
    /// Another policy, or another plugin that the host configures in this one's place.
    fn configure(&self, policy: &str) {
        let fleet = r#"{"cluster": "authority", "secret": "0123456789abcdef", "timeout": "100ms"}"#;
        *self.world.config.borrow_mut() = format!(r#"{{"policy": {policy}, "fleet": {fleet}}}"#);
        for (filter, host) in &self.workers {
            host.context.set(ROOT);
            assert!(filter.on_configure(ROOT, 100));
        }
    }
}

// Guards: leases of a policy that are not given back because those of another one, of the same key,
// are checked in their place.
#[test]
fn leases_of_two_policies_are_looked_after_beside_each_other() {
    let rule_of = |limit| format!(r#"{{"version": 1, "rules": [{}]}}"#, rule("", limit));
    let (mut process, _) = asking();
    process.answer_all();
    process.configure(&rule_of(2_000));
    let other = tollgate_language::compile(&rule_of(2_000), Surface::Server).unwrap();
    for _ in 0..10 {
        process.come(0, "a");
    }
    let mut granted = BTreeSet::new();
    let mut back = BTreeSet::new();
    for _ in 0..2_000 {
        while process.asked() > 0 {
            let question = process.world.questions.borrow_mut().remove(0);
            let read = LeaseQuestion::read(&question.body).unwrap();
            for report in &read.keys[0].rules[0].ask.reports {
                if report.is_final {
                    back.insert(read.policy);
                }
            }
            if read.policy == process.world.policy.fleet().fingerprint() {
                let body = process.decided(&question.body);
                process.give(&question, "200", body);
                continue;
            }
            let mut counts = Counts::default();
            let request = other.fleet().lease_request(&read.keys[0], read.table, false).unwrap();
            let reply = counts.answer(&request, process.world.now.get()).unwrap().reply;
            let (leased, _) = tollgate_storage::read_leased(&reply).unwrap();
            granted.extend(leased[0].is_ok().then_some(read.policy));
            let mut body = Vec::new();
            LeaseReply::write(&[LeaseReply::Decided(reply)], &mut body);
            process.give(&question, "200", body);
        }
        if process.world.tick_ms.borrow()[0] == 0 {
            break;
        }
        process.tick(0);
    }
    assert_eq!(granted.len(), 1, "a lease under the second policy");
    let both = [process.world.policy.fleet().fingerprint(), other.fleet().fingerprint()];
    assert_eq!(back, BTreeSet::from(both));
}

// Guards: a gauge that shows waiting requests forever.
#[test]
fn who_waits_is_told_right_after_a_policy_without_a_fleet() {
    let local = rule("", 5).replace(r#""scope": "fleet", "#, "");
    for ends in [false, true] {
        let mut process = Process::new(&rule(r#""lease": 0,"#, 5), 1);
        let Came::Held(first) = process.come(0, "a") else { panic!() };
        let Came::Held(second) = process.come(0, "b") else { panic!() };
        assert_eq!(process.counted("tollgate.fleet_paused"), 2);
        process.configure(&format!(r#"{{"version": 1, "rules": [{local}]}}"#));
        process.answer();
        assert_eq!(process.resumed(), [first]);
        assert_eq!(process.counted("tollgate.fleet_paused"), 1);
        if ends {
            process.workers[0].0.on_delete(ROOT);
        } else {
            process.leave(0, second);
        }
        assert_eq!(process.counted("tollgate.fleet_paused"), 0, "{ends}");
    }
}

// Guards: the lease request that is to find out whether the authority is back, and that has no
// response: no lease request would ever be sent again, and its client request would be held
// forever.
#[test]
fn a_question_that_is_never_answered_holds_nobody_for_ever() {
    let mut process = Process::new(&rule(r#""on_failure": "deny", "#, 10), 1);
    process.world.is_away.set(true);
    for _ in 0..5 {
        assert_eq!(process.come(0, "a"), Came::Refused(503));
    }
    process.statuses();
    process.world.is_away.set(false);
    process.wait(1_001);
    assert!(matches!(process.come(0, "a"), Came::Held(_)));
    process.world.questions.borrow_mut().clear();
    assert_eq!(process.come(0, "b"), Came::Refused(503), "one asks at a time");
    process.statuses();
    let since = process.world.now.get();
    while process.workers[0].0.waiting() > 0 {
        process.tick(0);
        assert!(process.world.now.get().since(since) < Span::from_secs(6));
    }
    assert_eq!(process.statuses(), [503]);
    assert_eq!(process.counted("tollgate.fleet_paused"), 0);
    process.wait(1_001);
    assert!(matches!(process.come(0, "b"), Came::Held(_)));
    process.answer_all();
    assert_eq!(process.resumed().len(), 1);
    // As many of them as may be in flight.
    let mut process = Process::new(&rule(r#""on_failure": "deny", "lease": 0, "#, 10), 1);
    for i in 0..128 {
        assert!(matches!(process.come(0, &i.to_string()), Came::Held(_)));
    }
    process.world.questions.borrow_mut().clear();
    for _ in 0..10 {
        process.wait(2_000);
        process.fire(0);
    }
    assert!(matches!(process.come(0, "z"), Came::Held(_)));
    process.answer_all();
    assert_eq!(process.resumed().len(), 1);
}

// Guards: an authority that is taken for dead because this proxy sends it too much, which opens the
// gate where the rule allows requests without one.
#[test]
fn a_full_cluster_is_no_authority_that_is_away() {
    for (on_failure, late) in
        [(r#""allow""#, vec![503]), (r#""deny""#, vec![503]), (r#"{"share": 5}"#, vec![])]
    {
        let rule = rule(&format!(r#""on_failure": {on_failure}, "lease": 0, "#), 10);
        let mut process = Process::new(&rule, 2);
        process.world.most_calls.set(8);
        // The first worker has all of it; the other one has none, and waits anyway.
        for i in 0..8 {
            assert!(matches!(process.come(0, &i.to_string()), Came::Held(_)));
        }
        let held: Vec<Came> = (0..20).map(|i| process.come(1, &format!("other-{i}"))).collect();
        assert!(held.iter().all(|came| matches!(came, Came::Held(_))), "{held:?}");
        assert!(matches!(process.come(0, "more"), Came::Held(_)));
        assert_eq!(process.counted("tollgate.fleet_failed"), 0);
        assert_eq!(process.counted("tollgate.fleet_asked"), 8);
        // There is room again: all of them have their turn.
        for _ in 0..100 {
            process.answer_all();
            process.wait(4);
            (0..2).for_each(|worker| process.fire(worker));
        }
        assert_eq!(process.resumed().len(), 29);
        // There is none for two timeouts.
        for i in 0..8 {
            assert!(matches!(process.come(0, &format!("next-{i}")), Came::Held(_)));
        }
        assert!(matches!(process.come(0, "late"), Came::Held(_)));
        for _ in 0..51 {
            process.wait(4);
            process.fire(0);
        }
        assert_eq!(process.resumed().len(), 1 - late.len(), "{on_failure}");
        assert_eq!(process.statuses(), late, "{on_failure}");
        assert_eq!(process.counted("tollgate.fleet_overloaded"), 1);
        assert_eq!(process.counted("tollgate.fleet_failed"), 0);
    }
    // With nothing in flight for that time, the authority is away.
    let mut process = Process::new(&rule(r#""on_failure": "allow", "lease": 0, "#, 10), 1);
    process.world.most_calls.set(0);
    assert_eq!(process.come(0, "a"), Came::Passed);
    assert_eq!(process.counted("tollgate.fleet_failed"), 1);
}

// Guards: the same where the cluster takes so few lease requests that another worker's is the only
// one.
#[test]
fn a_cluster_that_takes_one_question_is_full_for_every_worker() {
    let mut process = Process::new(&rule(r#""on_failure": "allow", "lease": 0, "#, 10), 2);
    process.world.most_calls.set(1);
    assert!(matches!(process.come(0, "a"), Came::Held(_)));
    assert!(matches!(process.come(1, "b"), Came::Held(_)));
    for _ in 0..10 {
        process.answer_all();
        process.wait(4);
        (0..2).for_each(|worker| process.fire(worker));
    }
    assert_eq!(process.resumed().len(), 2);
    assert_eq!(process.counted("tollgate.fleet_failed"), 0);
    assert_eq!(process.counted("tollgate.fleet_overloaded"), 0);
}

// Guards: two workers that return the leases that the process holds of one key. Each would read the
// response to the other's lease request as no response to its own, and both would ask without end.
#[test]
fn what_two_workers_give_back_at_the_same_time_is_given_back_once() {
    let (mut process, _) = asking();
    process.answer_all();
    for worker in [1, 0, 1, 0] {
        process.come(worker, "a");
    }
    let held: Vec<u32> = (0..2).map(|worker| process.world.tick_ms.borrow()[worker]).collect();
    assert!(held[0] > 0, "{held:?}");
    // Another worker that asked for the same key.
    process.wait(2_500);
    let Came::Held(_) = process.come(1, "a") else { panic!("the lease is over") };
    process.answer_all();
    let before = process.counted("tollgate.fleet_asked");
    for _ in 0..200 {
        process.wait(20);
        (0..2).for_each(|worker| process.fire(worker));
        // Both are in flight at once, and the first gets its response first.
        for _ in 0..process.asked() {
            process.answer();
        }
    }
    let asked = process.counted("tollgate.fleet_asked") - before;
    assert!(asked < 10, "{asked} questions");
}

// Guards: the same where the host finds out later, and responds in the authority's place.
#[test]
fn an_answer_of_a_full_cluster_refuses_and_lets_nobody_through() {
    for (on_failure, statuses) in [
        (r#""allow""#, vec![503; 6]),
        (r#""deny""#, vec![503; 6]),
        (r#"{"share": 5}"#, vec![429; 4]),
    ] {
        let more = format!(r#""on_failure": {on_failure}, "lease": 0, "#);
        let mut process = Process::new(&rule(&more, 10), 1);
        process.world.is_full.set(true);
        for _ in 0..6 {
            process.wait(5);
            let Came::Held(_) = process.come(0, "a") else { panic!("it is asked again") };
            let question = process.world.questions.borrow_mut().remove(0);
            process.give(&question, "503", b"reset reason: overflow".to_vec());
        }
        assert_eq!(process.resumed().len(), 6 - statuses.len(), "{on_failure}");
        let headers: Vec<Vec<u8>> =
            process.world.refused.borrow().iter().map(|(_, headers)| headers.clone()).collect();
        assert_eq!(process.statuses(), statuses, "{on_failure}");
        for headers in headers {
            let text = String::from_utf8_lossy(&headers).to_lowercase();
            assert!(text.contains("retry-after"), "{text}");
        }
        assert_eq!(process.counted("tollgate.fleet_failed"), 0);
        assert_eq!(process.counted("tollgate.fleet_overloaded"), 6);
    }
}

/// Units that one worker has reported as spent of its leases when all of them went back.
fn spent_in_the_end(process: &mut Process) -> usize {
    while process.world.tick_ms.borrow()[0] != 0 {
        process.tick(0);
        process.answer_all();
    }
    let mut spent = BTreeMap::new();
    for body in process.world.asked.borrow().iter() {
        for rule in &LeaseQuestion::read(body).unwrap().keys[0].rules {
            let reports = rule.ask.reports.iter().filter(|report| report.is_final);
            spent.extend(reports.map(|report| (report.number, report.spent)));
        }
    }
    usize::try_from(spent.values().sum::<u64>()).unwrap()
}

// Guards: units that are counted as spent for a request that had to wait for its turn, and then was
// denied or left.
#[test]
fn what_was_paid_for_a_request_that_has_no_turn_goes_back_into_its_lease() {
    let queue = r#"{"name": "queue", "key": [], "when": {"paths": ["/slow"]}, "action": {"delay": {"max": "5m"}},
        "quotas": [{"limit": 1, "window": "500ms", "algorithm": "leaky-queue", "burst": 100}]}"#;
    let head = r#""version": 1, "waiting": {"total": 2}"#;
    let mut process = Process::with(head, &format!("{queue}, {}", rule("", 1_000)), 1);
    let mut paid = 0;
    for _ in 0..40 {
        paid += usize::from(process.come(0, "a") == Came::Passed);
        process.answer_all();
    }
    assert!(paid > 8, "{paid}");
    process.resumed();
    process.world.path.set("/slow");
    // The first of the queue continues at once, two wait, the others may not.
    let came: Vec<Came> = (0..6).map(|_| process.come(0, "a")).collect();
    let [Came::Passed, Came::Held(_), Came::Held(leaves), rest @ ..] = &came[..] else {
        panic!("{came:?}")
    };
    assert_eq!(rest, [Came::Refused(503); 3]);
    process.leave(0, *leaves);
    assert_eq!(spent_in_the_end(&mut process), paid + 2, "the first, and who still waits");
    assert_eq!(process.resumed().len(), 1);
}

// Guards: responses that are too long to be read, which are taken for an authority that is away:
// with returned leases of many rules with many quotas, and with a log that is used up.
#[test]
fn an_answer_has_room_for_what_is_asked() {
    let quotas: Vec<_> = (1..=16)
        .map(|i| format!(r#"{{"name": "q{i}", "limit": 1000, "window": "{i}m", "algorithm": "fixed-window"}}"#))
        .collect();
    let of = |i: usize| {
        let quotas = quotas.join(", ");
        format!(
            r#"{{"name": "r{i}", "key": [{{"header": "x-key"}}], "scope": "fleet", "quotas": [{quotas}]}}"#
        )
    };
    let rules: Vec<_> = (0..24).map(of).collect();
    let mut process = Process::new(&rules.join(", "), 1);
    for key in 0..16 {
        for _ in 0..12 {
            process.come(0, &key.to_string());
        }
        process.answer_all();
    }
    assert!(process.counted("tollgate.fleet_granted") > 0);
    while process.world.tick_ms.borrow()[0] != 0 {
        process.tick(0);
        process.answer_all();
    }
    assert_eq!(process.counted("tollgate.fleet_failed"), 0);
    let logs: Vec<_> = (1..=16)
        .map(|i| {
            format!(
                r#"{{"name": "q{i}", "limit": 1024, "window": "{i}h", "algorithm": "sliding-log"}}"#
            )
        })
        .collect();
    let log = format!(
        r#"{{"name": "r", "key": [], "scope": "fleet", "lease": 0, "cost": 1024, "on_failure": "allow",
            "quotas": [{}]}}"#,
        logs.join(", ")
    );
    let mut process = Process::new(&log, 1);
    for _ in 0..2 {
        assert!(matches!(process.come(0, "a"), Came::Held(_)));
        process.answer();
    }
    assert_eq!((process.resumed().len(), process.statuses()), (1, vec![429]));
}

// Guards: a request that is allowed, or always denied, because it is under more rules than one
// lease request has room for.
#[test]
fn a_request_under_too_many_rules_is_refused_by_check_and_never_let_through() {
    let rules = |n: usize, path: &str| -> Vec<String> {
        let of = |i: usize| {
            rule(&format!(r#""on_failure": "allow", "when": {{"paths": ["{path}"]}},"#), 1_000)
                .replacen("\"r\"", &format!("\"{path}-{i}\""), 1)
        };
        (0..n).map(of).collect()
    };
    let compile = |rules: &[String]| {
        let policy = format!(r#"{{"version": 1, "rules": [{}]}}"#, rules.join(", "));
        tollgate_language::compile(&policy, Surface::Envoy).map(drop).map_err(|it| it.to_string())
    };
    assert_eq!(compile(&rules(64, "/x/y")), Ok(()));
    let refused = compile(&rules(65, "/x/y")).unwrap_err();
    assert!(refused.starts_with("rules[64].scope: is one of 65 rules with \"fleet\""), "{refused}");
    let apart: Vec<_> = (0..200).flat_map(|i| rules(1, &format!("/x/{i}"))).collect();
    assert_eq!(compile(&apart), Ok(()));
    assert!(
        compile(&[apart, rules(64, "/**")].concat()).is_err(),
        "one of them, and all the others"
    );
    // A path that is read in two ways is under the rules of both.
    let both = [rules(40, "/x/y"), rules(40, "/x%2Fy")].concat();
    let mut process = Process::new(&both.join(", "), 1);
    process.world.path.set("/x/y");
    assert!(matches!(process.come(0, "a"), Came::Held(_)));
    process.answer();
    assert_eq!(process.resumed().len(), 1);
    process.world.path.set("/x%2Fy");
    assert_eq!(process.come(0, "b"), Came::Refused(503));
    assert_eq!(process.counted("tollgate.fleet_overloaded"), 1);
}

/// The fields of a denial that a client sees: `Retry-After`, the name, `r` and `t` of each quota,
/// and the quotas that are violated.
#[derive(Debug, PartialEq)]
struct Denial {
    retry_after: Option<u64>,
    quotas: Vec<(String, u64, u64)>,
    violated: String,
}

impl Process {
    /// Sends a request, answered at once; the fields that it gets where it is denied.
    fn denial(&mut self, path: &'static str) -> Option<Denial> {
        self.world.path.set(path);
        self.world.refused.borrow_mut().clear();
        self.world.bodies.borrow_mut().clear();
        self.come(0, "a");
        self.answer_all();
        self.resumed();
        let (status, headers) = self.world.refused.borrow().first()?.clone();
        assert_eq!(status, 429);
        let headers = HeaderMap::new(headers);
        let text = |name: &str| {
            let value = headers.joined(name)?;
            Some(String::from_utf8(value.to_vec()).unwrap())
        };
        let quota = |member: &str| {
            let mut parts = member.split([';', '=']);
            let name = parts.next().unwrap().trim().to_owned();
            let mut number = || parts.nth(1).unwrap().parse().unwrap();
            (name, number(), number())
        };
        let body = String::from_utf8(self.world.bodies.borrow()[0].clone()).unwrap();
        let (_, violated) = body.split_once("violated-policies").expect("a problem document");
        Some(Denial {
            retry_after: text("retry-after").map(|seconds| seconds.parse().unwrap()),
            quotas: text("ratelimit").unwrap().split(',').map(quota).collect(),
            violated: violated.to_owned(),
        })
    }
}

/// Rules of one key and of another, each with quotas of which few are violated at a time.
fn layered(scope: &str) -> String {
    let rule = |name: &str, key: &str, quotas: &str| {
        let key = if key.is_empty() { "" } else { r#"{"header": "x-key"}"# };
        format!(r#"{{"name": "{name}", "key": [{key}], {scope} "quotas": [{quotas}]}}"#)
    };
    let quota = |name: &str, limit: u64, window: &str, more: &str| {
        let more = if more.is_empty() { String::new() } else { format!(", {more}") };
        format!(r#"{{"name": "{name}", "limit": {limit}, "window": "{window}"{more}}}"#)
    };
    let fixed = r#""algorithm": "fixed-window""#;
    let own =
        [quota("own-gcra", 7, "9973ms", r#""burst": 3"#), quota("own-fixed", 31, "61s", fixed)];
    let more = quota("more", 53, "127s", r#""algorithm": "sliding-window""#);
    let all = [
        quota("all", 41, "59s", ""),
        quota("all-log", 97, "211s", r#""algorithm": "sliding-log""#),
    ];
    [
        rule("own", "key", &own.join(", ")),
        rule("more", "key", &more),
        rule("all", "", &all.join(", ")),
    ]
    .join(", ")
}

// Guards: a denial that is repeated from memory as "every quota is used up, come back in a second".
// A rule that counts locally is the oracle; its charges while the fleet still denies are undone.
#[test]
fn a_repeated_denial_shows_what_a_local_rule_shows() {
    let mut local = Process::new(&layered(""), 1);
    let mut fleet = Process::new(&layered(r#""scope": "fleet", "lease": 0,"#), 1);
    let (mut random, mut denials, mut repeated, mut longer) = (Random::new(1), 0, 0, 0);
    for _ in 0..4_000 {
        let pause = 1_000_000 * random.below(700) + 1_000 * random.below(991);
        let pause = Span::from_nanos(pause);
        let now = local.world.now.get().max(fleet.world.now.get()).saturating_add(pause);
        local.world.now.set(now);
        fleet.world.now.set(now);
        let before = local.world.shared.borrow().clone();
        let expected = local.denial("/");
        let asked = fleet.world.asked.borrow().len();
        let shown = fleet.denial("/");
        let is_repeated = fleet.world.asked.borrow().len() == asked;
        match (expected, shown) {
            (None, None) => {}
            (Some(local), None) => panic!("admitted by the fleet alone: {local:?}"),
            (None, Some(shown)) => {
                // It is used for a second at most, whatever is given back meanwhile.
                assert!(is_repeated && shown.retry_after == Some(1), "{shown:?}");
                *local.world.shared.borrow_mut() = before;
                longer += 1;
            }
            (Some(expected), Some(shown)) => {
                (denials, repeated) = (denials + 1, repeated + usize::from(is_repeated));
                let quotas = expected.quotas.iter().zip(&shown.quotas);
                for ((name, r, t), (shown_name, shown_r, shown_t)) in quotas {
                    assert_eq!(name, shown_name);
                    let is_same = if *r == 0 || *shown_r == 0 || !is_repeated {
                        (r, t) == (shown_r, shown_t)
                    } else {
                        // Units that grew back since are not known.
                        shown_r <= r
                    };
                    assert!(is_same, "{is_repeated} {expected:?} {shown:?}");
                }
                assert_eq!(expected.quotas.len(), shown.quotas.len(), "{expected:?} {shown:?}");
                assert_eq!(expected.retry_after, shown.retry_after, "{expected:?} {shown:?}");
                assert_eq!(expected.violated, shown.violated, "{expected:?} {shown:?}");
            }
        }
    }
    println!("{denials} denials, {repeated} repeated, {longer} for longer than a local rule");
    assert!(denials > 1_000 && repeated > 700 && longer < denials / 10);
}
