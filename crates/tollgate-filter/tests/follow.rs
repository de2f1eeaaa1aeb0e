//! Workers that follow a server, on a host whose responses the test provides: what they fetch and
//! use, which one compiles when, and that no version goes back.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use tollgate_core::{Span, Timestamp};
use tollgate_filter::filter::{Filter, Flow};
use tollgate_filter::host::calls::{Calls, HttpCall, NotSent};
use tollgate_filter::host::proxy::{Counters, Proxy};
use tollgate_filter::host::reply::Reply;
use tollgate_filter::host::shared_data::{SharedData, Stored, Written};
use tollgate_filter::host::streams::AnyNumbers;
use tollgate_filter::request::facts::RequestSource;
use tollgate_filter::wire::header_map::{HeaderMap, HeaderMapWriter};
use tollgate_storage::table::Seed;

use crate::support::host_map::HostMap;

/// The state that all workers share.
#[derive(Default)]
struct Process {
    now: Cell<Timestamp>,
    shared: RefCell<HostMap>,
    metrics: RefCell<Vec<(String, i64)>>,
    log: RefCell<Vec<String>>,
    random: Cell<u64>,
}

impl Process {
    fn pass(&self, span: Span) {
        self.now.set(self.now.get().saturating_add(span));
    }

    fn metric(&self, name: &str) -> i64 {
        let metrics = self.metrics.borrow();
        metrics.iter().find(|(known, _)| known == name).map_or(0, |(_, value)| *value)
    }

    /// The lines that were logged since the last time.
    fn said(&self) -> Vec<String> {
        std::mem::take(&mut self.log.borrow_mut())
    }
}

/// One worker's host.
struct World {
    process: Rc<Process>,
    configuration: RefCell<String>,
    key: Cell<&'static str>,
    tick_ms: Cell<u32>,
    has_cluster: Cell<bool>,
    is_short: Cell<bool>,
    panics: Cell<bool>,
    calls: RefCell<Vec<(u32, Vec<u8>, u32)>>,
    calls_made: Cell<u32>,
    answer: RefCell<(Vec<(String, String)>, Vec<u8>)>,
    fields: RefCell<Vec<String>>,
    refused: Cell<u32>,
}

#[derive(Clone)]
struct Host(Rc<World>);

impl RequestSource for Host {
    type Lines = HeaderMap;

    fn request_headers(&self) -> Option<HeaderMap> {
        let mut pairs = HeaderMapWriter::default();
        for (name, value) in
            [(":method", "GET"), (":path", "/"), (":authority", "a"), ("x-key", self.0.key.get())]
        {
            pairs.push(name, value.as_bytes());
        }
        Some(HeaderMap::new(pairs.finish()))
    }

    fn source_address(&self) -> Option<Vec<u8>> {
        Some(b"192.0.2.1:1".into())
    }

    fn property(&self, _path: &[u8]) -> Option<Vec<u8>> {
        None
    }
}

impl SharedData for Host {
    fn get(&self, name: &[u8]) -> Stored {
        self.0.process.shared.borrow().get(name)
    }

    fn set(&self, name: &[u8], value: &[u8], cas: u32) -> Written {
        self.0.process.shared.borrow_mut().set(name, value, cas)
    }
}

impl Calls for Host {
    fn call(&self, call: &HttpCall<'_>) -> Result<u32, NotSent> {
        if !self.0.has_cluster.get() {
            return Err(NotSent::Refused);
        }
        assert_eq!((call.cluster, call.body), ("c", &[][..]));
        let number = self.0.calls_made.get();
        self.0.calls_made.set(number + 1);
        self.0.calls.borrow_mut().push((number, call.headers.to_vec(), call.timeout_ms));
        Ok(number)
    }

    fn answer_header(&self, name: &str) -> Option<Vec<u8>> {
        let answer = self.0.answer.borrow();
        answer.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone().into())
    }

    fn answer_body(&self, len: usize) -> Vec<u8> {
        let answer = self.0.answer.borrow();
        answer.1[..answer.1.len().min(len)].to_vec()
    }
}

impl Counters for Host {
    fn define(&self, name: &str) -> Option<u32> {
        let mut metrics = self.0.process.metrics.borrow_mut();
        let known = metrics.iter().position(|(known, _)| known == name).unwrap_or_else(|| {
            metrics.push((name.into(), 0));
            metrics.len() - 1
        });
        u32::try_from(known).ok()
    }

    fn define_gauge(&self, name: &str) -> Option<u32> {
        self.define(name)
    }

    fn define_histogram(&self, name: &str) -> Option<u32> {
        self.define_gauge(name)
    }

    fn add(&self, counter: u32, by: i64) {
        self.0.process.metrics.borrow_mut()[usize::try_from(counter).unwrap()].1 += by;
    }

    fn record(&self, gauge: u32, value: u64) {
        self.0.process.metrics.borrow_mut()[usize::try_from(gauge).unwrap()].1 =
            i64::try_from(value).unwrap();
    }
}

impl Proxy for Host {
    type Streams<T> = AnyNumbers<T>;

    fn monotonic(&self) -> Option<Timestamp> {
        Some(self.0.process.now.get())
    }

    fn wall_clock(&self) -> Option<Timestamp> {
        None
    }

    fn clock_offset(&self) -> Span {
        Span::ZERO
    }

    fn set_clock_offset(&self, _offset: Span) {}

    fn random_seed(&self) -> Option<Seed> {
        let random = &self.0.process.random;
        random.set(random.get().wrapping_add(0x9e37_79b9_7f4a_7c15));
        let bytes = random.get().to_be_bytes();
        [bytes, bytes].concat().try_into().ok()
    }

    fn configuration(&self, _len: usize) -> Vec<u8> {
        self.0.configuration.borrow().clone().into_bytes()
    }

    fn plugin_scope(&self) -> Vec<u8> {
        b"p".into()
    }

    fn log_error(&self, text: &str) {
        panic!("{text}");
    }

    fn log_warning(&self, text: &str) {
        assert!(!self.0.panics.get(), "a panic of the test");
        self.0.process.log.borrow_mut().push(text.into());
    }

    fn log_info(&self, _text: &str) {}

    fn set_filter_state(&self, _name: &str, _value: &str) {}

    fn set_request_header(&self, _name: &str, _value: &str) {}

    fn set_response_header(&self, _name: &str, _value: &str) {}

    fn add_response_header(&self, _name: &str, value: &str) {
        self.0.fields.borrow_mut().push(value.into());
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

    fn enter(&self, _id: u32) -> bool {
        true
    }

    fn reply(&self, _reply: Reply<'_>) -> bool {
        self.0.refused.set(self.0.refused.get() + 1);
        true
    }

    fn resume(&self, _id: u32) {}

    fn set_tick_ms(&self, ms: u32) {
        self.0.tick_ms.set(ms);
    }

    fn memory_growth(&self) -> i64 {
        0
    }

    fn is_memory_short(&self) -> bool {
        self.0.is_short.get()
    }
}

fn policy(limit: u32) -> String {
    format!(
        r#"{{"version": 1, "rules": [{{"name": "r", "key": [{{"header": "x-key"}}], "quotas": [
            {{"name": "q", "limit": {limit}, "window": "1d", "algorithm": "sliding-log"}}]}}]}}"#
    )
}

const ROOT: u32 = 1;

struct Worker {
    filter: Filter<Host>,
    world: Rc<World>,
    streams: Cell<u32>,
}

impl Worker {
    /// A worker that begins with a limit of 3.
    fn new(process: &Rc<Process>) -> Self {
        let world = Rc::new(World {
            process: Rc::clone(process),
            configuration: RefCell::new(format!(
                r#"{{"policy": {}, "policy_from": {{"cluster": "c", "token": "t0ken", "every": "8s", "timeout": "2s"}}}}"#,
                policy(3)
            )),
            key: Cell::new("k"),
            tick_ms: Cell::new(0),
            has_cluster: Cell::new(true),
            is_short: Cell::new(false),
            panics: Cell::new(false),
            calls: RefCell::default(),
            calls_made: Cell::new(0),
            answer: RefCell::default(),
            fields: RefCell::default(),
            refused: Cell::new(0),
        });
        let filter = Filter::new(Host(Rc::clone(&world)));
        filter.on_context_create(ROOT, 0);
        assert!(filter.on_configure(ROOT, 1));
        Self { filter, world, streams: Cell::new(10) }
    }

    /// The timer fires after its interval.
    fn tick(&self) {
        let ms = self.world.tick_ms.get();
        assert!(ms > 0, "the timer is off");
        self.world.process.pass(Span::from_millis(ms.into()));
        self.filter.on_tick(ROOT);
    }

    /// Ticks until a request is sent; its number and its headers.
    fn asks(&self) -> (u32, HashMap<String, String>) {
        for _ in 0..20 {
            if let Some((number, headers, timeout_ms)) = self.world.calls.borrow_mut().pop() {
                assert_eq!(timeout_ms, 2_000);
                return (number, pairs(&headers));
            }
            self.tick();
        }
        panic!("nothing is asked");
    }

    fn answer(&self, call: u32, headers: &[(&str, &str)], body: &[u8]) {
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        *self.world.answer.borrow_mut() = (headers.iter().map(own).collect(), body.into());
        self.filter.on_call_answered(ROOT, call, body.len());
    }

    /// Responds with a policy.
    fn gives(&self, call: u32, version: u32, text: &str) {
        let (version, tag) = (version.to_string(), format!("\"{version}-{}\"", text.len()));
        let headers = [(":status", "200"), ("etag", &*tag), ("tollgate-policy-version", &*version)];
        self.answer(call, &headers, text.as_bytes());
    }

    /// Fetches, gets this policy, and takes its turn.
    fn takes(&self, version: u32, text: &str) {
        let (call, _) = self.asks();
        self.gives(call, version, text);
        self.tick();
    }

    /// The limit in the response for an unused key.
    fn limit(&self, key: &'static str) -> u32 {
        self.world.fields.borrow_mut().clear();
        assert!(self.passes(key), "{key} is fresh");
        let fields = self.world.fields.borrow();
        let said = fields.iter().find_map(|field| field.split(";q=").nth(1)).expect("fields");
        said.split(';').next().unwrap().parse().unwrap()
    }

    fn passes(&self, key: &'static str) -> bool {
        self.world.key.set(key);
        let id = self.streams.get();
        self.streams.set(id + 1);
        self.filter.on_context_create(id, ROOT);
        let flow = self.filter.on_request_headers(id);
        self.filter.on_response_headers(id);
        self.filter.on_delete(id);
        flow == Flow::Continue
    }

    fn admitted(&self, key: &'static str) -> usize {
        (0..100).filter(|_| self.passes(key)).count()
    }
}

/// The pairs of a map in the host's form.
fn pairs(bytes: &[u8]) -> HashMap<String, String> {
    let number = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    let count = number(0);
    let mut at = 4 + 8 * count;
    let mut take = |len: usize| {
        let text = String::from_utf8(bytes[at..at + len].to_vec()).unwrap();
        at += len + 1;
        text
    };
    (0..count).map(|i| (take(number(4 + 8 * i)), take(number(8 + 8 * i)))).collect()
}

fn failures(process: &Process) -> [i64; 2] {
    ["tollgate.policy_fetch_failures", "tollgate.policy_refused"].map(|name| process.metric(name))
}

#[test]
fn a_question_has_the_token_and_the_tag_that_was_seen_last() {
    let process = Rc::new(Process::default());
    let worker = Worker::new(&process);
    let (call, headers) = worker.asks();
    let mut expected = HashMap::from([
        (":method".to_owned(), "GET".to_owned()),
        (":path".into(), "/.well-known/tollgate/admin/policy".into()),
        (":authority".into(), "c".into()),
        ("accept".into(), "application/json".into()),
        ("authorization".into(), "Bearer t0ken".into()),
    ]);
    assert_eq!(headers, expected);
    assert_eq!(worker.limit("a"), 3, "no request waits for the response");
    worker.gives(call, 7, &policy(9));
    assert_eq!(worker.limit("b"), 3, "it is compiled at the next tick");
    worker.tick();
    assert_eq!(worker.limit("c"), 9);
    assert_eq!(process.metric("tollgate.policy_version.plugin=p"), 7);
    let (call, headers) = worker.asks();
    expected.insert("if-none-match".into(), format!("\"7-{}\"", policy(9).len()));
    assert_eq!(headers, expected);
    worker.answer(call, &[(":status", "304")], b"");
    assert_eq!(worker.limit("d"), 9);
    assert_eq!(failures(&process), [0, 0]);
    assert_eq!(process.said(), ["tollgate: server \"c\": policy 7 is in force"]);
}

// Guards: workers that all fetch at the same moment, and workers that fetch later than allowed.
#[test]
fn questions_are_spread_and_never_late() {
    let process = Rc::new(Process::default());
    let worker = Worker::new(&process);
    worker.takes(1, &policy(9));
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..200 {
        let ms = worker.world.tick_ms.get();
        assert!((7_000..=8_000).contains(&ms), "{ms}");
        seen.insert(ms);
        let (call, _) = worker.asks();
        worker.answer(call, &[(":status", "304")], b"");
    }
    assert!(seen.len() > 50, "{}", seen.len());
    // Before its first response a server is asked each second.
    let fresh = Worker::new(&Rc::new(Process::default()));
    let (call, _) = fresh.asks();
    fresh.answer(call, &[(":status", "503")], b"");
    assert!((875..=1_000).contains(&fresh.world.tick_ms.get()));
}

#[test]
fn what_cannot_be_had_changes_nothing_and_is_said_once() {
    let process = Rc::new(Process::default());
    let workers = [Worker::new(&process), Worker::new(&process)];
    let version = ("tollgate-policy-version", "8");
    let (good, long) = (policy(50), vec![b' '; (1 << 20) + 1]);
    let status = (":status", "200");
    let cases: [(&[(&str, &str)], &[u8], &str); 10] = [
        (&[], b"", "no response"),
        (&[(":status", "500")], b"", "status 500"),
        (&[(":status", "401")], good.as_bytes(), "status 401"),
        (&[(":status", "302")], good.as_bytes(), "status 302"),
        (&[(":status", "206"), ("etag", "\"a\""), version], good.as_bytes(), "status 206"),
        (&[status, version], good.as_bytes(), "the response has no etag"),
        (&[status, ("etag", "\"a b\""), version], good.as_bytes(), "the response has no etag"),
        (
            &[status, ("etag", "\"a\"")],
            good.as_bytes(),
            "the response has no tollgate-policy-version",
        ),
        (&[status, ("etag", "\"a\""), version], &long, "the policy is longer than 1 MiB"),
        (&[status, ("etag", "\"a\""), version], b"{\"\xff\"}", "the policy is not UTF-8"),
    ];
    for (i, (headers, body, why)) in cases.into_iter().enumerate() {
        for worker in &workers {
            let (call, asked) = worker.asks();
            assert!(!asked.contains_key("if-none-match"), "nothing was taken");
            worker.answer(call, headers, body);
            worker.answer(call, headers, body); // the second time it belongs to no call
        }
        let line =
            format!("tollgate: server \"c\": cannot fetch the policy: {why}; keeping the last one");
        let expected = if i == 6 { vec![] } else { vec![line] }; // it was logged for the one before
        assert_eq!(process.said(), expected, "{why}");
        assert_eq!(failures(&process), [2 * (i64::try_from(i).unwrap() + 1), 0], "{why}");
    }
    for worker in &workers {
        worker.world.has_cluster.set(false);
        worker.tick();
        worker.world.has_cluster.set(true);
        worker.world.is_short.set(true);
        let (call, _) = worker.asks();
        worker.gives(call, 8, &good);
        worker.world.is_short.set(false);
        // A response that never comes is given up.
        let (_, _) = worker.asks();
        worker.tick();
    }
    assert_eq!(failures(&process), [26, 0]);
    process.said();
    assert_eq!(workers[0].admitted("k"), 3);
    workers.iter().for_each(|worker| worker.takes(8, &good));
    let said =
        ["tollgate: server \"c\": responds again", "tollgate: server \"c\": policy 8 is in force"];
    assert_eq!(process.said(), said);
    assert_eq!(workers[1].admitted("k"), 47);
}

#[test]
fn a_policy_that_is_wrong_here_is_refused_with_every_problem() {
    let process = Rc::new(Process::default());
    let workers = [Worker::new(&process), Worker::new(&process)];
    let bad = r#"{"version": 1, "tenant": {"header": "x-t"}, "rules": [{"name": "", "key": [], "quotas": []}]}"#;
    for worker in &workers {
        worker.takes(4, bad);
        let (call, headers) = worker.asks();
        assert!(headers["if-none-match"].starts_with("\"4-"), "it is not sent again");
        worker.answer(call, &[(":status", "304")], b"");
        assert_eq!(worker.world.tick_ms.get() / 1000, 7);
    }
    let said = process.said();
    let is_of_it = |line: &String| line.contains("policy 4 is rejected: ");
    assert!(said.len() >= 2 && said.iter().all(is_of_it), "{said:?}");
    assert!(said.iter().any(|line| line.contains("is rejected: tenant: needs a store of tenants")));
    assert_eq!(failures(&process), [0, 2]);
    assert_eq!(process.metric("tollgate.policy_version.plugin=p"), 0);
    assert_eq!(workers[0].limit("a"), 3);
    // Text after a policy is not part of one.
    workers[0]
        .takes(5, &format!(r#"{{"policy": {}, "policy_from": {{"cluster": "x"}}}}"#, policy(9)));
    assert_eq!(failures(&process), [0, 3]);
    workers[0].takes(6, &policy(9));
    assert_eq!(workers[0].limit("b"), 9);
}

// Guards: all workers compiling at the same time, and a worker that died with its turn.
#[test]
fn workers_compile_one_after_the_other() {
    let process = Rc::new(Process::default());
    let worker = Worker::new(&process);
    let (call, _) = worker.asks();
    worker.gives(call, 1, &policy(9));
    // Another worker has its turn, and ends there.
    let until = process.now.get().saturating_add(Span::from_secs(9)).as_nanos().to_le_bytes();
    let taken = [&until[..], &[7; 16]].concat();
    let name = [tollgate_storage::table::LAYOUT_VERSION, b't', b'u', b'r', b'n'].to_vec();
    process.shared.borrow_mut().put(&name, &taken);
    let began = process.now.get();
    for _ in 0..100 {
        worker.tick();
        assert_eq!(worker.limit("a"), 3);
        process.shared.borrow_mut().entries.retain(|name, _| name.len() != 13); // the key's count
    }
    assert!(process.now.get().since(began) < Span::from_secs(9));
    process.pass(Span::from_secs(8));
    worker.tick();
    assert_eq!(worker.limit("b"), 9);
    assert!(process.shared.borrow().entries[&name].0.is_empty(), "it gives its turn back");
}

#[test]
fn no_worker_goes_back_and_whoever_begins_later_begins_with_the_newest() {
    let process = Rc::new(Process::default());
    let [early, late] = [Worker::new(&process), Worker::new(&process)];
    assert_eq!(early.admitted("k"), 3);
    let (call, _) = late.asks();
    late.gives(call, 2, &policy(20)); // it has not compiled yet
    early.takes(3, &policy(10));
    assert_eq!(early.admitted("k"), 7);
    late.tick();
    late.tick();
    assert_eq!(late.limit("a"), 10, "it goes over to the newer one at once");
    process.said();
    for worker in [&early, &late] {
        worker.takes(1, &policy(99));
        assert_eq!(worker.limit(if std::ptr::eq(worker, &early) { "b" } else { "c" }), 10);
    }
    let line = "tollgate: server \"c\": serves policy 1; policy 3 remains in force";
    assert_eq!(process.said(), [line]);
    assert_eq!(failures(&process), [0, 2]);
    // An instance that is created again does not begin with its configuration.
    let restarted = Worker::new(&process);
    assert_eq!(restarted.limit("d"), 10);
    assert_eq!(restarted.admitted("k"), 0);
    let (_, headers) = restarted.asks();
    assert!(headers["if-none-match"].starts_with("\"3-"));
    // A roll-back is a new version.
    early.takes(4, &policy(20));
    assert_eq!(early.limit("e"), 20);
    assert_eq!(early.admitted("k"), 10);
}

// Guards: a request that is decided by one policy and answered, or charged, by another.
#[test]
fn a_request_under_way_ends_under_the_policy_that_it_began_with() {
    let process = Rc::new(Process::default());
    let worker = Worker::new(&process);
    let (call, _) = worker.asks();
    worker.filter.on_context_create(5, ROOT);
    assert_eq!(worker.filter.on_request_headers(5), Flow::Continue);
    worker.gives(call, 1, &policy(9));
    worker.tick();
    worker.world.fields.borrow_mut().clear();
    worker.filter.on_response_headers(5);
    let said = worker.world.fields.borrow().join(" ");
    assert!(said.contains("q=3;") && !said.contains("q=9;"), "{said}");
    worker.filter.on_delete(5);
    assert_eq!(worker.admitted("k"), 8, "and it was counted");
}

// Guards: a root that is gone, or configured again, and a response that comes for it.
#[test]
fn an_answer_for_nobody_changes_nothing() {
    let process = Rc::new(Process::default());
    let worker = Worker::new(&process);
    let (call, _) = worker.asks();
    assert!(worker.filter.on_configure(ROOT, 1));
    worker.gives(call, 9, &policy(9));
    assert_eq!(worker.limit("a"), 3);
    let (call, _) = worker.asks();
    worker.gives(call + 1, 9, &policy(9));
    worker.filter.on_call_answered(77, call, 5);
    worker.filter.on_delete(ROOT);
    worker.gives(call, 9, &policy(9));
    worker.filter.on_tick(ROOT);
    assert_eq!(failures(&process), [0, 0]);
}

// Guards: two servers that disagree, and that take effect in turn with every fetch.
#[test]
fn another_document_of_the_same_version_changes_nothing() {
    let process = Rc::new(Process::default());
    let workers = [Worker::new(&process), Worker::new(&process)];
    workers[0].takes(7, &policy(9));
    let mut refused = 0;
    for _ in 0..3 {
        workers[0].takes(7, &policy(50));
        refused += 1;
        assert_eq!(failures(&process), [0, refused]);
    }
    assert_eq!(workers[0].limit("a"), 9);
    // Another worker that gets the other policy uses the stored one.
    workers[1].takes(7, &policy(50));
    workers[1].tick();
    assert_eq!(workers[1].limit("b"), 9);
    workers[1].takes(8, &policy(50));
    assert_eq!(workers[1].limit("c"), 50);
    // Policies of files have no versions: every change of the file is followed.
    let process = Rc::new(Process::default());
    let worker = Worker::new(&process);
    worker.takes(0, &policy(9));
    worker.takes(0, &policy(50));
    assert_eq!(worker.limit("a"), 50);
}

// Guards: a policy that a later build of this filter has stored, which blocks every other one here.
#[test]
fn what_is_kept_and_cannot_be_enforced_holds_nobody_up() {
    let process = Rc::new(Process::default());
    Worker::new(&process).takes(9, &policy(9));
    {
        let mut shared = process.shared.borrow_mut();
        let is_kept = |value: &[u8]| value.windows(12).any(|part| part == b"\"version\": 1");
        let (value, _) =
            shared.entries.values_mut().find(|(value, _)| is_kept(value)).expect("it is kept");
        let at = value.windows(12).position(|part| part == b"\"version\": 1").expect("there");
        value[at + 11] = b'9';
    }
    let worker = Worker::new(&process);
    assert_eq!(worker.limit("a"), 3, "its own");
    worker.takes(5, &policy(50));
    for _ in 0..3 {
        if worker.world.calls.borrow().is_empty() {
            worker.tick();
        }
    }
    assert_eq!(worker.limit("b"), 50);
    assert_eq!(Worker::new(&process).limit("c"), 50, "it is what is kept now");
}

// Guards: a gauge that still shows the version of a server that no root follows any more, and one
// that shows nothing for a plugin that another root still follows.
#[test]
fn a_plugin_that_stops_following_has_no_version() {
    const VERSION: &str = "tollgate.policy_version.plugin=p";
    const NEXT: u32 = 2;
    let process = Rc::new(Process::default());
    let workers = [Worker::new(&process), Worker::new(&process)];
    for worker in &workers {
        worker.takes(7, &policy(30));
    }
    assert_eq!(process.metric(VERSION), 7);
    // Another listener's root, with the same plugin: the first one follows still.
    let still = format!(r#"{{"policy": {}}}"#, policy(5));
    for worker in &workers {
        *worker.world.configuration.borrow_mut() = still.clone();
        worker.filter.on_context_create(NEXT, 0);
        assert!(worker.filter.on_configure(NEXT, 1));
        assert_eq!(process.metric(VERSION), 7);
    }
    // The first worker's root is gone, the other one's is not yet.
    workers[0].filter.on_delete(ROOT);
    assert_eq!(process.metric(VERSION), 0);
    let (call, _) = workers[1].asks();
    assert_eq!(process.metric(VERSION), 7, "it is there, and says so");
    workers[1].answer(call, &[(":status", "304")], b"");
    workers[1].filter.on_delete(ROOT);
    assert_eq!(process.metric(VERSION), 0);
    // Configured again in the same root.
    let worker = Worker::new(&process);
    assert_eq!(process.metric(VERSION), 7, "what is kept");
    *worker.world.configuration.borrow_mut() = still;
    assert!(worker.filter.on_configure(ROOT, 1));
    assert_eq!(process.metric(VERSION), 0);
}

// Guards: one fetch without a response, followed by an hour until the next one; and failures so
// rare that no alert about a server that does not respond can last.
#[test]
fn who_has_no_answer_asks_again_within_a_minute() {
    let process = Rc::new(Process::default());
    let worker = Worker::new(&process);
    let rarely = worker.world.configuration.borrow().replace("8s", "1h");
    *worker.world.configuration.borrow_mut() = rarely;
    assert!(worker.filter.on_configure(ROOT, 1));
    worker.takes(1, &policy(9));
    for (status, at_most) in [("304", 3_600_000), ("503", 60_000), ("304", 3_600_000)] {
        let (call, _) = worker.asks();
        worker.answer(call, &[(":status", status)], b"");
        let ms = worker.world.tick_ms.get();
        assert!((at_most / 8 * 7..=at_most).contains(&ms), "{status}: {ms}");
    }
}

// Guards: a policy that stays as it is until the host restarts, because the follower stopped. Some
// hosts go on after a panic.
#[test]
fn a_follower_goes_on_after_a_panic() {
    let process = Rc::new(Process::default());
    let worker = Worker::new(&process);
    let panics = |act: &dyn Fn()| {
        worker.world.panics.set(true);
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(act));
        worker.world.panics.set(false);
        assert!(result.is_err());
    };
    let (call, _) = worker.asks();
    worker.gives(call, 1, &policy(5));
    panics(&|| worker.tick());
    // Its response is used up, so this is another request.
    let (call, _) = worker.asks();
    panics(&|| worker.answer(call, &[(":status", "500")], b""));
    worker.takes(2, &policy(6));
    assert_eq!(worker.limit("k"), 6);
}
