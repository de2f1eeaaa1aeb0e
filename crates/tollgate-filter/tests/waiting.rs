//! Thousands of requests that wait for one key: how often they are decided, in which order they
//! continue, and which are denied.
//!
//! Invariant: reads and writes of the shared data are counted, not time: a line costs about one of
//! each for every request that continues and a read for every one that arrives, however long it is.

use std::cell::{Cell, RefCell};
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

/// A host whose clock is stopped until the test moves it.
#[derive(Default)]
pub(crate) struct World {
    policy: String,
    path: Cell<&'static str>,
    /// The last number of the client's address.
    client: Cell<u8>,
    pub(crate) now: Cell<Timestamp>,
    /// The wall clock; `None` where the host has none.
    pub(crate) wall: Cell<Option<Timestamp>>,
    pub(crate) wall_reads: Cell<u64>,
    pub(crate) tick_ms: Cell<u32>,
    log: RefCell<Vec<String>>,
    shared: RefCell<HostMap>,
    pub(crate) reads: Cell<u64>,
    /// Requests that are stopped.
    pub(crate) writes: Cell<u64>,
    /// Streams that continued, in their order, and how many got a response in the origin's place.
    pub(crate) resumed: RefCell<Vec<u32>>,
    pub(crate) refused: RefCell<Vec<u16>>,
    counters: RefCell<Vec<(String, i64)>>,
    /// The next write panics.
    panics: Cell<bool>,
}

impl World {
    /// The value of the counter whose name ends with this.
    pub(crate) fn counted(&self, name: &str) -> i64 {
        let counters = self.counters.borrow();
        counters.iter().find(|(known, _)| known.ends_with(name)).expect("it is defined").1
    }
}

#[derive(Clone)]
pub(crate) struct Host(Rc<World>);

impl RequestSource for Host {
    type Lines = HeaderMap;

    fn request_headers(&self) -> Option<HeaderMap> {
        let mut pairs = HeaderMapWriter::default();
        for (name, value) in
            [(":method", "GET"), (":path", self.0.path.get()), (":authority", "a.example")]
        {
            pairs.push(name, value.as_bytes());
        }
        Some(HeaderMap::new(pairs.finish()))
    }

    fn source_address(&self) -> Option<Vec<u8>> {
        Some(format!("192.0.2.{}:1", self.0.client.get()).into_bytes())
    }

    fn property(&self, _path: &[u8]) -> Option<Vec<u8>> {
        None
    }
}

impl SharedData for Host {
    fn get(&self, name: &[u8]) -> Stored {
        self.0.reads.set(self.0.reads.get() + 1);
        self.0.shared.borrow().get(name)
    }

    fn set(&self, name: &[u8], value: &[u8], cas: u32) -> Written {
        assert!(!self.0.panics.take(), "the test's panic");
        let written = self.0.shared.borrow_mut().set(name, value, cas);
        self.0.writes.set(self.0.writes.get() + u64::from(written == Written::Done));
        written
    }
}

impl Calls for Host {
    fn call(&self, _call: &HttpCall<'_>) -> Result<u32, NotSent> {
        Err(NotSent::Refused)
    }

    fn answer_header(&self, _name: &str) -> Option<Vec<u8>> {
        None
    }

    fn answer_body(&self, _len: usize) -> Vec<u8> {
        Vec::new()
    }
}

impl Counters for Host {
    fn define(&self, name: &str) -> Option<u32> {
        let mut counters = self.0.counters.borrow_mut();
        counters.push((name.to_owned(), 0));
        u32::try_from(counters.len() - 1).ok()
    }

    fn define_gauge(&self, _name: &str) -> Option<u32> {
        None
    }

    fn define_histogram(&self, name: &str) -> Option<u32> {
        self.define_gauge(name)
    }

    fn add(&self, counter: u32, by: i64) {
        let mut counters = self.0.counters.borrow_mut();
        counters.get_mut(usize::try_from(counter).unwrap()).unwrap().1 += by;
    }

    fn record(&self, _gauge: u32, _value: u64) {}
}

impl Proxy for Host {
    type Streams<T> = AnyNumbers<T>;

    fn monotonic(&self) -> Option<Timestamp> {
        Some(self.0.now.get())
    }

    fn wall_clock(&self) -> Option<Timestamp> {
        self.0.wall_reads.set(self.0.wall_reads.get() + 1);
        self.0.wall.get()
    }

    fn clock_offset(&self) -> Span {
        Span::ZERO
    }

    fn set_clock_offset(&self, _offset: Span) {}

    fn random_seed(&self) -> Option<Seed> {
        Some(Seed::default())
    }

    fn configuration(&self, _len: usize) -> Vec<u8> {
        self.0.policy.clone().into_bytes()
    }

    fn plugin_scope(&self) -> Vec<u8> {
        b"p".into()
    }

    fn log_error(&self, text: &str) {
        panic!("{text}");
    }

    fn log_warning(&self, _text: &str) {}

    fn log_info(&self, text: &str) {
        self.0.log.borrow_mut().push(text.to_owned());
    }

    fn set_filter_state(&self, _name: &str, _value: &str) {}

    fn set_request_header(&self, _name: &str, _value: &str) {}

    fn set_response_header(&self, _name: &str, _value: &str) {}

    fn add_response_header(&self, _name: &str, _value: &str) {}

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

    fn reply(&self, reply: Reply<'_>) -> bool {
        self.0.refused.borrow_mut().push(reply.status);
        true
    }

    fn resume(&self, id: u32) {
        self.0.resumed.borrow_mut().push(id);
    }

    fn set_tick_ms(&self, ms: u32) {
        self.0.tick_ms.set(ms);
    }

    fn memory_growth(&self) -> i64 {
        0
    }

    fn is_memory_short(&self) -> bool {
        false
    }
}

pub(crate) const ROOT: u32 = 1;
const FIRST: u32 = 10;

/// "100 a second, one at once" for `/slow`, which waits at most `max`; `/free` has a quota of its
/// own.
fn filter(max: &str, waiting: &str) -> (Filter<Host>, Rc<World>) {
    let policy = format!(
        r#"{{"version": 1, "waiting": {waiting}, "rules": [
        {{"name": "slow", "when": {{"paths": ["/slow"]}}, "key": ["client_ip"], "action": {{"delay": {{"max": "{max}"}}}},
          "quotas": [{{"limit": 100, "window": "1s", "burst": 1}}]}},
        {{"name": "free", "when": {{"paths": ["/free"]}}, "key": ["path"], "quotas": [{{"limit": 1000000, "window": "1s"}}]}}]}}"#
    );
    with_policy(policy)
}

pub(crate) fn with_policy(policy: String) -> (Filter<Host>, Rc<World>) {
    let world = Rc::new(World { policy, ..World::default() });
    world.now.set(Timestamp::from_millis(1_000));
    (worker(&world), world)
}

/// Another worker of the same host.
pub(crate) fn worker(world: &Rc<World>) -> Filter<Host> {
    let filter = Filter::new(Host(Rc::clone(world)));
    filter.on_context_create(ROOT, 0);
    assert!(filter.on_configure(ROOT, 100));
    filter
}

pub(crate) fn come(filter: &Filter<Host>, world: &World, id: u32, path: &'static str) -> Flow {
    world.path.set(path);
    filter.on_context_create(id, ROOT);
    filter.on_request_headers(id)
}

/// Moves the clock to the next tick, which fires.
fn tick(filter: &Filter<Host>, world: &World) {
    let wait = Span::from_millis(world.tick_ms.get().into());
    assert_ne!(wait, Span::ZERO, "the timer is stopped while a request waits");
    world.now.set(world.now.get().saturating_add(wait));
    filter.on_tick(ROOT);
}

// Guards: a thundering herd. Every waiter was decided at its own time, as many as there are for one
// unit: 5,000 held connections took all of a worker's time.
#[test]
fn five_thousand_waiters_are_decided_once_each_and_in_order() {
    const CROWD: u32 = 5_000;
    let (filter, world) = filter("1m", r#"{"per_key": 10000}"#);
    assert_eq!(come(&filter, &world, FIRST, "/slow"), Flow::Continue);
    for id in 1..=CROWD {
        assert_ne!(come(&filter, &world, FIRST + id, "/slow"), Flow::Continue);
    }
    let arrivals = world.reads.take();
    world.writes.set(0);
    assert!(arrivals <= 2 * u64::from(CROWD), "{arrivals} reads by {CROWD} that came");
    let mut ticks = 0;
    while filter.waiting() > 0 {
        let went = world.resumed.borrow().len();
        tick(&filter, &world);
        ticks += 1;
        assert!(world.resumed.borrow().len() - went <= 2, "one every 10 ms");
        // Another route is answered at once between any two ticks.
        assert_eq!(come(&filter, &world, 1_000_000 + ticks, "/free"), Flow::Continue);
        filter.on_delete(1_000_000 + ticks);
    }
    let resumed = world.resumed.borrow();
    assert_eq!(*resumed, (1..=CROWD).map(|id| FIRST + id).collect::<Vec<_>>());
    assert!(world.refused.borrow().is_empty());
    // A request that continues is read, unless it is decided on the last write, and written.
    let most = u64::from(CROWD + ticks) + 10;
    let (reads, writes) = (world.reads.get(), world.writes.get());
    assert!(reads <= most, "{reads} reads for {CROWD} and {ticks} of another route");
    assert!(writes <= most, "{writes} writes for {CROWD} and {ticks} of another route");
}

// Guards: a line that waits until the policy is replaced, because the turn of its first request
// ended in a panic. A host that catches panics answers that request.
#[test]
fn a_panic_in_a_turn_leaves_the_line_to_the_next_request() {
    let (filter, world) = filter("1m", "{}");
    for id in 0..=3 {
        come(&filter, &world, FIRST + id, "/slow");
    }
    world.panics.set(true);
    let turn = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| tick(&filter, &world)));
    assert!(turn.is_err() && !world.panics.get());
    filter.on_delete(FIRST + 1);
    assert_eq!(filter.waiting(), 2);
    for _ in 0..10 {
        if filter.waiting() > 0 {
            tick(&filter, &world);
        }
    }
    assert_eq!(*world.resumed.borrow(), [FIRST + 2, FIRST + 3]);
}

// Guards: waiting in vain. Three seconds allow 300; every other request is denied when it arrives.
#[test]
fn whoever_cannot_go_in_time_is_refused_at_once() {
    let (filter, world) = filter("3s", "{}");
    for id in 0..=1_000 {
        come(&filter, &world, FIRST + id, "/slow");
    }
    assert_eq!((filter.waiting(), world.refused.borrow().len()), (300, 700));
    while filter.waiting() > 0 {
        tick(&filter, &world);
    }
    assert_eq!(world.resumed.borrow().len(), 300, "every waiting request was resumed");
    assert!(world.refused.borrow().iter().all(|status| *status == 429));
    assert!(world.now.get() <= Timestamp::from_millis(4_000), "within three seconds");
}

// Guards: a full list, which was `on_failure`, by default allow: every request passed uncounted.
#[test]
fn too_many_are_refused_and_never_let_through() {
    for (waiting, status) in [(r#"{"per_key": 20}"#, 429), (r#"{"total": 20}"#, 503)] {
        let (filter, world) = filter("1m", waiting);
        let passed = (0..100)
            .filter(|id| come(&filter, &world, FIRST + id, "/slow") == Flow::Continue)
            .count();
        assert_eq!((passed, filter.waiting()), (1, 20));
        assert_eq!(*world.refused.borrow(), vec![status; 79]);
        // A client that leaves makes room for another one, and those that stay continue in order.
        filter.on_delete(FIRST + 5);
        come(&filter, &world, FIRST + 200, "/slow");
        assert_eq!((filter.waiting(), world.refused.borrow().len()), (20, 79));
        while filter.waiting() > 0 {
            tick(&filter, &world);
        }
        let order = (1..=20).filter(|id| *id != 5).chain([200]).map(|id| FIRST + id);
        assert_eq!(*world.resumed.borrow(), order.collect::<Vec<_>>());
    }
}

// Guards: a line that takes its pace from another rule. A request that its own key finally allows
// is delayed by what others used of a second key: from then on it waits for that one.
#[test]
fn a_request_that_waits_for_another_rule_takes_that_rules_pace() {
    let rule = |name: &str, key: &str, window: &str, burst: u32| {
        format!(
            r#"{{"name": "{name}", "key": [{key}], "action": {{"delay": {{"max": "1m"}}}},
            "quotas": [{{"limit": 1, "window": "{window}", "burst": {burst}}}]}}"#
        )
    };
    let rules = [rule("each", r#""client_ip""#, "1s", 1), rule("all", "", "3s", 2)];
    let policy = format!(r#"{{"version": 1, "rules": [{}]}}"#, rules.join(","));
    let (filter, world) = with_policy(policy);
    assert_eq!(come(&filter, &world, FIRST, "/"), Flow::Continue);
    assert_ne!(come(&filter, &world, FIRST + 1, "/"), Flow::Continue, "its own key is used up");
    world.client.set(2);
    assert_eq!(come(&filter, &world, FIRST + 2, "/"), Flow::Continue, "takes what all had left");
    world.reads.set(0);
    let mut ticks = 0;
    while filter.waiting() > 0 {
        tick(&filter, &world);
        ticks += 1;
    }
    assert_eq!(*world.resumed.borrow(), [FIRST + 1]);
    assert_eq!(world.now.get(), Timestamp::from_millis(4_000));
    // The first one hands the counts over.
    assert_eq!((ticks, world.reads.get()), (3, 4), "decided after one second and after three");
}

/// A `leaky-queue` of one a second for all clients, and a day's quota of the same key for `/both`.
const QUEUE: &str = r#"{"version": 1, "rules": [
    {"name": "queue", "key": ["client_ip"], "action": {"delay": {"max": "1m"}},
     "quotas": [{"limit": 1, "window": "1s", "burst": 30, "algorithm": "leaky-queue"}]},
    {"name": "day", "when": {"paths": ["/both"]}, "key": ["client_ip"],
     "quotas": [{"limit": 100, "window": "1d", "algorithm": "fixed-window"}]}]}"#;

// Guards: a place that was taken back and still kept for the next request, because another quota of
// the same key looked as before: two continued at that time, one of them uncounted.
#[test]
fn a_place_that_was_taken_back_is_given_to_one() {
    let (filter, world) = with_policy(QUEUE.to_owned());
    assert_eq!(come(&filter, &world, FIRST, "/both"), Flow::Continue);
    assert_ne!(come(&filter, &world, FIRST + 1, "/both"), Flow::Continue);
    filter.on_delete(FIRST + 1);
    for id in 2..=4 {
        assert_ne!(come(&filter, &world, FIRST + id, "/"), Flow::Continue);
    }
    let mut went = Vec::new();
    while filter.waiting() > 0 {
        let before = world.resumed.borrow().len();
        tick(&filter, &world);
        let resumed = world.resumed.borrow().len();
        if resumed > before {
            went.push((world.now.get().as_nanos() / 1_000_000, resumed));
        }
    }
    assert_eq!(went, [(2_000, 1), (3_000, 2), (4_000, 3)]);
}

// Guards: a denial that was counted as allowed, because the place was given back before the
// counting.
#[test]
fn who_may_not_wait_is_counted_as_denied() {
    let policy = QUEUE.replace(r#""rules""#, r#""waiting": {"per_key": 1}, "rules""#);
    let (filter, world) = with_policy(policy);
    for id in 0..3 {
        come(&filter, &world, FIRST + id, "/");
    }
    assert_eq!(*world.refused.borrow(), [429]);
    tick(&filter, &world);
    let counted = |result: &str| world.counted(&format!("rule=queue.{result}"));
    let all = ("result=allowed", "quota=queue.result=delayed", "result=denied");
    assert_eq!((counted(all.0), counted(all.1), counted(all.2)), (1, 1, 1));
    assert_eq!(counted("quota=queue.result=denied"), 0, "no quota denies who would have to wait");
}

// Guards: counts that are lost, or handed over twice: with the timer, with a root that ends before
// it fires, and with a policy that is replaced.
#[test]
fn what_is_counted_is_handed_over_once() {
    let (filter, world) = filter("1s", "{}");
    let passed = || world.counted("rule=free.result=allowed");
    let mut id = FIRST;
    let mut come = |count: u32| {
        for _ in 0..count {
            id += 1;
            assert_eq!(come(&filter, &world, id, "/free"), Flow::Continue);
            filter.on_delete(id);
        }
    };
    come(3);
    assert_eq!((passed(), world.tick_ms.get()), (0, 100), "not yet");
    tick(&filter, &world);
    assert_eq!((passed(), world.tick_ms.get()), (3, 0), "and nothing is left to do");
    come(2);
    assert!(filter.on_configure(ROOT, 100), "the counters of the next policy are the same");
    come(1);
    filter.flush();
    let all = world.counters.borrow();
    let sum = all.iter().filter(|(name, _)| name.ends_with("rule=free.result=allowed"));
    assert_eq!(sum.map(|(_, count)| count).sum::<i64>(), 6);
    drop(all);
    come(4);
    filter.on_delete(ROOT);
    let all = world.counters.borrow();
    let sum = all.iter().filter(|(name, _)| name.ends_with("rule=free.result=allowed"));
    assert_eq!(sum.map(|(_, count)| count).sum::<i64>(), 10);
}

// Guards: a line for every denial, and none at all.
#[test]
fn the_log_is_told_once_a_minute_who_is_refused() {
    let policy = r#"{"version": 1, "rules": [{"name": "r", "key": ["client_ip"],
        "quotas": [{"limit": 1, "window": "1d"}]}]}"#;
    let (filter, world) = with_policy(policy.to_owned());
    for id in 0..100 {
        come(&filter, &world, FIRST + id, "/");
        filter.on_delete(FIRST + id);
    }
    assert!(world.log.borrow().is_empty());
    tick(&filter, &world);
    assert_eq!(world.tick_ms.get(), 59_900, "a minute after the first one");
    tick(&filter, &world);
    let log = world.log.take();
    let [line] = log.as_slice() else { panic!("{log:?}") };
    assert!(line.starts_with("tollgate: plugin p: 99 denied in 60 s; most of them: rule=r pk="));
    assert!(line.ends_with("= 99"), "{line}");
    assert_eq!(world.tick_ms.get(), 0, "no request is denied any more");
    come(&filter, &world, FIRST, "/");
    filter.on_delete(ROOT);
    assert_eq!(world.log.borrow().len(), 1, "the last ones are told when the root ends");
}

// Guards: a program around the filter whose own ticks the filter puts off, or stops.
#[test]
fn a_program_shares_the_timer_of_its_root() {
    let (filter, world) = filter("1m", "{}");
    assert_eq!(world.tick_ms.get(), 0);
    filter.wake_after(ROOT, Some(Span::from_millis(40)));
    assert_eq!(world.tick_ms.get(), 40);
    // Its counts are handed over after a tenth of a second; a waiting request is sooner.
    assert_eq!(come(&filter, &world, FIRST, "/slow"), Flow::Continue);
    assert_eq!(world.tick_ms.get(), 40);
    assert_eq!(come(&filter, &world, FIRST + 1, "/slow"), Flow::Stop);
    assert_eq!(world.tick_ms.get(), 10);
    tick(&filter, &world);
    assert_eq!(world.tick_ms.get(), 30, "40 ms after it was wanted");
    filter.wake_after(ROOT, None);
    assert_eq!(world.tick_ms.get(), 100, "the next counts alone");
}
