//! The filter on a host that tries to trap it.
//!
//! Invariant: whatever is called, in any order, about any context, during any call of ours, and
//! whatever the host returns, the filter returns a value and never panics; and when every context
//! is gone, nothing is left of them.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

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
use tollgate_test_support::Random;

use crate::support::host_map::HostMap;

/// The numbers of a world, which its host draws while the filter calls it.
struct Numbers(RefCell<Random>);

impl Numbers {
    fn any(&self) -> u64 {
        self.0.borrow_mut().number()
    }

    fn below(&self, n: u64) -> u64 {
        self.0.borrow_mut().below(n)
    }

    fn one_in(&self, n: u64) -> bool {
        self.below(n) == 0
    }
}

struct World {
    random: Numbers,
    /// One call in this many fails, or returns nonsense; 0: none does.
    faults: Cell<u64>,
    now_ns: Cell<u64>,
    has_clock: Cell<bool>,
    offset: Cell<Span>,
    is_short: Cell<bool>,
    is_unreachable: Cell<bool>,
    shared: RefCell<HostMap>,
    metrics: RefCell<Vec<(String, i64)>>,
    policies: Vec<String>,
    filter: RefCell<Weak<Filter<Hostile>>>,
    depth: Cell<u32>,
    calls: Cell<u64>,
}

/// The filter that the host calls.
#[derive(Clone)]
struct Hostile(Rc<World>);

/// More nested than any host.
const DEEPEST: u32 = 6;

/// Contexts have numbers below this one, so that they meet.
const IDS: u64 = 12;

impl Hostile {
    /// True when this call is to fail; before that the host may call the filter during it.
    fn fails(&self) -> bool {
        let world = &self.0;
        world.calls.set(world.calls.get() + 1);
        let faults = world.faults.get();
        if faults == 0 {
            return false;
        }
        if world.random.one_in(faults) && world.depth.get() < DEEPEST {
            let filter = world.filter.borrow().upgrade().expect("it is called by the filter");
            world.depth.set(world.depth.get() + 1);
            any_call(&filter, &world.random);
            world.depth.set(world.depth.get() - 1);
        }
        world.random.one_in(faults)
    }

    fn junk(&self) -> Vec<u8> {
        (0..self.0.random.below(40)).map(|_| self.0.random.any().to_le_bytes()[0]).collect()
    }
}

/// One call of the host about any context.
fn any_call(filter: &Filter<Hostile>, random: &Numbers) {
    let id = u32::try_from(random.below(IDS)).unwrap();
    let other = u32::try_from(random.below(IDS / 3)).unwrap();
    match random.below(24) {
        0 => filter.on_context_create(id, 0),
        1..=3 => filter.on_context_create(id, other),
        4 => drop(filter.on_configure(id, 100)),
        5..=8 => drop(filter.on_request_headers(id)),
        9..=10 => filter.on_response_headers(id),
        11..=13 => filter.on_tick(id),
        14 => filter.on_tick(other),
        15..=16 => filter.on_call_answered(other, id % 4, 100),
        17..=19 => filter.on_response_body(id, 30, random.one_in(3)),
        20 => filter.on_response_trailers(id),
        _ => filter.on_delete(id),
    }
}

impl RequestSource for Hostile {
    type Lines = HeaderMap;

    fn request_headers(&self) -> Option<HeaderMap> {
        if self.fails() {
            return self.0.random.one_in(2).then(|| HeaderMap::new(self.junk()));
        }
        let mut pairs = HeaderMapWriter::default();
        let key = [b'a' + u8::try_from(self.0.random.below(3)).unwrap()];
        for (name, value) in
            [(":method", &b"GET"[..]), (":path", b"/"), (":authority", b"a.example")]
        {
            pairs.push(name, value);
        }
        pairs.push("x-key", &key);
        if self.0.random.one_in(3) {
            pairs.push("content-type", b"application/grpc");
        }
        Some(HeaderMap::new(pairs.finish()))
    }

    fn source_address(&self) -> Option<Vec<u8>> {
        if self.fails() { Some(self.junk()) } else { Some(b"192.0.2.1:1".into()) }
    }

    fn property(&self, path: &[u8]) -> Option<Vec<u8>> {
        if self.fails() {
            return Some(self.junk());
        }
        match path {
            b"response\0size" => Some((self.0.random.below(9) << 61).to_le_bytes().to_vec()),
            // The metadata {"f": {"tokens": 2.0}}.
            b"metadata" => Some(
                b"\x0a\x1a\x0a\x01f\x12\x15\x0a\x13\x0a\x06tokens\x12\x09\x11\0\0\0\0\0\0\0\x40"
                    .to_vec(),
            ),
            _ => None,
        }
    }
}

impl SharedData for Hostile {
    fn get(&self, name: &[u8]) -> Stored {
        if self.fails() {
            let junk = Stored::Value(self.junk(), 1);
            return if self.0.random.one_in(2) { Stored::Unreachable } else { junk };
        }
        if self.0.is_unreachable.get() {
            return Stored::Unreachable;
        }
        self.0.shared.borrow().get(name)
    }

    fn set(&self, name: &[u8], value: &[u8], cas: u32) -> Written {
        if self.fails() {
            return if self.0.random.one_in(2) { Written::Unreachable } else { Written::Lost };
        }
        self.0.shared.borrow_mut().set(name, value, cas)
    }
}

impl Calls for Hostile {
    fn call(&self, _call: &HttpCall<'_>) -> Result<u32, NotSent> {
        if self.fails() {
            let failed = self.0.random.one_in(2);
            return Err(if failed { NotSent::Failed } else { NotSent::Refused });
        }
        Ok(u32::try_from(self.0.random.below(4)).unwrap())
    }

    fn answer_header(&self, name: &str) -> Option<Vec<u8>> {
        if self.fails() {
            return self.0.random.one_in(2).then(|| self.junk());
        }
        Some(if name == ":status" { b"200".into() } else { b"7".into() })
    }

    fn answer_body(&self, len: usize) -> Vec<u8> {
        self.configuration(len)
    }
}

impl Counters for Hostile {
    fn define(&self, name: &str) -> Option<u32> {
        if self.fails() {
            return None;
        }
        let mut metrics = self.0.metrics.borrow_mut();
        let known = metrics.iter().position(|(known, _)| known == name).unwrap_or_else(|| {
            metrics.push((name.into(), 0));
            metrics.len() - 1
        });
        Some(u32::try_from(known).unwrap())
    }

    fn define_gauge(&self, name: &str) -> Option<u32> {
        self.define(name)
    }

    fn define_histogram(&self, name: &str) -> Option<u32> {
        self.define_gauge(name)
    }

    fn add(&self, counter: u32, by: i64) {
        self.0.metrics.borrow_mut()[usize::try_from(counter).unwrap()].1 += by;
    }

    fn record(&self, gauge: u32, value: u64) {
        let value = i64::try_from(value).unwrap_or(i64::MAX);
        self.0.metrics.borrow_mut()[usize::try_from(gauge).unwrap()].1 = value;
    }
}

impl Proxy for Hostile {
    type Streams<T> = AnyNumbers<T>;

    fn monotonic(&self) -> Option<Timestamp> {
        if self.fails() || !self.0.has_clock.get() {
            return None;
        }
        let step =
            self.0.random.below(if self.0.random.one_in(4) { 2_000_000_000 } else { 50_000 });
        self.0.now_ns.set(self.0.now_ns.get() + step);
        Some(Timestamp::from_nanos(self.0.now_ns.get()))
    }

    fn wall_clock(&self) -> Option<Timestamp> {
        (!self.fails()).then(|| Timestamp::from_nanos(self.0.random.any()))
    }

    fn clock_offset(&self) -> Span {
        self.0.offset.get()
    }

    fn set_clock_offset(&self, offset: Span) {
        self.0.offset.set(offset);
    }

    fn random_seed(&self) -> Option<Seed> {
        if self.fails() { None } else { Some(Seed::default()) }
    }

    fn configuration(&self, _len: usize) -> Vec<u8> {
        if self.fails() {
            return self.junk();
        }
        let policies = &self.0.policies;
        let which =
            usize::try_from(self.0.random.below(u64::try_from(policies.len()).unwrap())).unwrap();
        policies[which].clone().into_bytes()
    }

    fn plugin_scope(&self) -> Vec<u8> {
        if self.fails() { self.junk() } else { b"p".into() }
    }

    fn log_error(&self, _text: &str) {
        self.fails();
    }

    fn log_warning(&self, _text: &str) {
        self.fails();
    }

    fn log_info(&self, _text: &str) {
        self.fails();
    }

    fn set_filter_state(&self, _name: &str, _value: &str) {
        self.fails();
    }

    fn set_request_header(&self, _name: &str, _value: &str) {
        self.fails();
    }

    fn set_response_header(&self, _name: &str, _value: &str) {
        self.fails();
    }

    fn add_response_header(&self, _name: &str, _value: &str) {
        self.fails();
    }

    fn response_status(&self) -> Option<u16> {
        if self.fails() { None } else { Some(if self.0.random.one_in(2) { 200 } else { 401 }) }
    }

    fn response_headers(&self) -> Option<HeaderMap> {
        if self.fails() {
            return self.0.random.one_in(2).then(|| HeaderMap::new(self.junk()));
        }
        let mut pairs = HeaderMapWriter::default();
        for _ in 0..self.0.random.below(3) {
            let costs = ["0", "3", "7", "1000000000000000000000", "-1", "1, 2", ""];
            let cost = costs[usize::try_from(self.0.random.below(7)).unwrap()];
            pairs.push("x-tokens", cost.as_bytes());
        }
        match self.0.random.below(4) {
            0 => pairs.push("content-type", b"text/event-stream"),
            1 => pairs.push("content-encoding", b"gzip"),
            _ => pairs.push("content-type", b"application/json"),
        }
        Some(HeaderMap::new(pairs.finish()))
    }

    fn response_body(&self, _from: usize, len: usize) -> Vec<u8> {
        match self.0.random.below(4) {
            _ if self.fails() => self.junk(),
            0 => b"{\"n\": 3, \"s\": \"".into(),
            1 => b"\"}".into(),
            2 => b"data: {\"n\": 7}\n\n".into(),
            _ => vec![b'a'; len],
        }
    }

    fn response_trailers(&self) -> Option<HeaderMap> {
        self.response_headers()
    }

    fn request_bytes(&self) -> usize {
        usize::try_from(self.0.random.below(if self.fails() { u64::MAX } else { 500 })).unwrap()
    }

    fn enter(&self, _id: u32) -> bool {
        !self.fails()
    }

    fn reply(&self, _reply: Reply<'_>) -> bool {
        !self.fails()
    }

    fn resume(&self, _id: u32) {
        self.fails();
    }

    fn set_tick_ms(&self, _ms: u32) {
        self.fails();
    }

    fn memory_growth(&self) -> i64 {
        0
    }

    fn is_memory_short(&self) -> bool {
        self.fails() || self.0.is_short.get()
    }
}

/// Policies that wait, deny, mark and charge by the response.
fn policies() -> Vec<String> {
    let rule = |more: &str| {
        format!(
            r#"{{"version": 1, "rules": [{{"name": "r", "key": [{{"header": "x-key"}}], {more}}},
            {{"name": "ip", "key": ["client_ip"], "quotas": [
                {{"name": "ip", "limit": 50, "window": "1s"}}
            ]}}]}}"#
        )
    };
    let quota = |algorithm: &str| {
        format!(
            r#""quotas": [{{"name": "q", "limit": 4, "window": "1s", "burst": 4, "algorithm": "{algorithm}"}}]"#
        )
    };
    vec![
        rule(&format!(r#"{}, "action": {{"delay": {{"max": "3s"}}}}"#, quota("gcra"))),
        rule(&quota("leaky-queue")),
        rule(&format!(r#"{}, "charge": {{"response_status": ["4xx"]}}"#, quota("gcra"))),
        rule(&format!(
            r#"{}, "cost": {{"estimate": 2, "max": 6, "actual": {{"header": "x-tokens"}}, "on_status": {{"4xx": 0}}}}"#,
            quota("token-bucket")
        )),
        rule(&format!(
            r#"{}, "cost": {{"estimate": 2, "max": 6, "actual": {{"json": ["/n"], "identity": true}}}}"#,
            quota("gcra")
        )),
        rule(&format!(
            r#"{}, "cost": {{"estimate": 2, "max": 6, "actual": "bytes"}}"#,
            quota("gcra")
        )),
        rule(&format!(
            r#"{}, "cost": {{"estimate": 2, "max": 6, "actual": {{"metadata": ["f", "tokens"]}}}}"#,
            quota("fixed-window").replace(r#""burst": 4, "#, "")
        )),
        rule(&format!(
            r#"{}, "action": {{"mark": {{"header": "x-over", "value": "1"}}}}"#,
            quota("gcra")
        )),
        format!(
            r#"{{"policy": {}, "policy_from": {{"cluster": "c", "every": "1s"}}}}"#,
            rule(&quota("gcra"))
        ),
        format!(
            r#"{{"policy": {}, "fleet": {{"cluster": "c", "secret": "0123456789abcdef"}}}}"#,
            rule(&format!(r#"{}, "scope": "fleet", "on_failure": "local""#, quota("gcra")))
        ),
    ]
}

fn world(seed: u64, faults: u64, policies: Vec<String>) -> (Rc<Filter<Hostile>>, Rc<World>) {
    let world = Rc::new(World {
        random: Numbers(RefCell::new(Random::new(seed))),
        faults: Cell::new(faults),
        now_ns: Cell::new(1),
        has_clock: Cell::new(true),
        offset: Cell::default(),
        is_short: Cell::new(false),
        is_unreachable: Cell::new(false),
        shared: RefCell::default(),
        metrics: RefCell::default(),
        policies,
        filter: RefCell::default(),
        depth: Cell::new(0),
        calls: Cell::new(0),
    });
    let filter = Rc::new(Filter::new(Hostile(Rc::clone(&world))));
    *world.filter.borrow_mut() = Rc::downgrade(&filter);
    (filter, world)
}

fn metric(world: &World, name: &str) -> i64 {
    let metrics = world.metrics.borrow();
    metrics.iter().find(|(known, _)| known == name).map_or(0, |(_, value)| *value)
}

#[test]
fn no_call_and_no_answer_traps() {
    let mut calls = 0;
    for seed in 0..200 {
        let (filter, world) = world(seed, 3 + seed % 40, policies());
        for root in 1..4 {
            filter.on_context_create(root, 0);
            filter.on_configure(root, 100);
        }
        (0..2_000).for_each(|_| any_call(&filter, &world.random));
        world.faults.set(0);
        // A response, ours or not, ends the wait of a request that still waits.
        (0..u32::try_from(IDS).unwrap()).for_each(|id| filter.on_response_headers(id));
        assert_eq!(filter.waiting(), 0, "seed {seed}");
        (0..u32::try_from(IDS).unwrap()).for_each(|id| filter.on_delete(id));
        assert_eq!(filter.contexts(), 0, "seed {seed}");
        calls += world.calls.get();
    }
    println!("{calls} calls of the host");
    assert!(calls > 200_000, "only {calls}: the law tried too little");
}

#[test]
fn the_policies_of_the_law_are_good() {
    for policy in policies() {
        let (filter, _) = world(0, 0, vec![policy.clone()]);
        filter.on_context_create(1, 0);
        assert!(filter.on_configure(1, 100), "{policy}");
    }
}

// A request of an unknown context is not ours to stop.
#[test]
fn unknown_contexts_go_on() {
    let (filter, _) = world(0, 0, policies());
    assert_eq!(filter.on_request_headers(7), Flow::Continue);
    filter.on_response_headers(7);
    filter.on_delete(7);
    filter.on_tick(7);
    assert!(!filter.on_configure(7, 100));
    filter.on_context_create(8, 7);
    assert_eq!(filter.on_request_headers(8), Flow::Continue);
    assert_eq!(filter.contexts(), 0);
}

// A reload ends a root that may still keep times of a `leaky-queue`: clients left them while the
// next root had given out later ones. The gauges are of all roots together, so a part that a root
// does not subtract would stay forever.
#[test]
fn a_root_that_ends_takes_its_part_of_the_gauges_along() {
    let queue = r#"{"version": 1, "rules": [{"name": "r", "key": [], "quotas": [
        {"limit": 20, "window": "1h", "burst": 20, "algorithm": "leaky-queue"}]}]}"#;
    // All streams end before their root, or some outlive it.
    for first in [8, 6] {
        let (filter, world) = world(7, 0, vec![queue.into()]);
        let arrive = |stream, root| {
            filter.on_context_create(stream, root);
            filter.on_request_headers(stream);
        };
        for root in [1, 9] {
            filter.on_context_create(root, 0);
            assert!(filter.on_configure(root, 100));
        }
        (2..8).for_each(|id| arrive(id, 1));
        arrive(10, 9);
        let waits_at_the_other = 1;
        (2..first).for_each(|id| filter.on_delete(id));
        filter.on_delete(1);
        (first..8).for_each(|id| filter.on_delete(id));
        assert_eq!(metric(&world, "tollgate.waiting"), waits_at_the_other);
        assert!(metric(&world, "tollgate.waiting_bytes") > 0);
        filter.on_delete(10);
        filter.on_delete(9);
        assert_eq!(metric(&world, "tollgate.waiting"), 0, "{first}");
        assert_eq!(metric(&world, "tollgate.waiting_bytes"), 0, "{first}");
    }
}

// A charge by the response that cannot be made: a metric must show it.
#[test]
fn a_response_that_cannot_be_charged_without_a_clock_is_counted() {
    let charged = r#"{"version": 1, "rules": [{"name": "r", "key": [], "quotas": [
        {"limit": 20, "window": "1h", "burst": 20}], "charge": {"response_status": ["2xx", "4xx", "5xx"]}}]}"#;
    for has_response in [true, false] {
        let (filter, world) = world(7, 0, vec![charged.into()]);
        filter.on_context_create(1, 0);
        assert!(filter.on_configure(1, 100));
        for (has_clock, failures) in [(true, 0), (false, 1)] {
            filter.on_context_create(2, 1);
            assert_eq!(filter.on_request_headers(2), Flow::Continue);
            world.has_clock.set(has_clock);
            if has_response {
                filter.on_response_headers(2);
            }
            filter.on_delete(2);
            filter.flush();
            assert_eq!(metric(&world, "tollgate.failures"), failures, "{has_response}");
        }
    }
}

fn one_request(filter: &Filter<Hostile>) -> Flow {
    filter.on_context_create(2, 1);
    let flow = filter.on_request_headers(2);
    filter.on_response_headers(2);
    filter.on_delete(2);
    filter.flush();
    flow
}

// Guards: a worker without memory that denies every request, while no metric that an alert uses
// shows it.
#[test]
fn a_refusal_for_want_of_memory_is_counted_as_one() {
    let limited = r#"{"version": 1, "rules": [{"name": "r", "key": [], "quotas": [
        {"limit": 20, "window": "1h"}]}]}"#;
    let (filter, world) = world(7, 0, vec![limited.into()]);
    filter.on_context_create(1, 0);
    assert!(filter.on_configure(1, 100));
    assert_eq!(one_request(&filter), Flow::Continue);
    world.is_short.set(true);
    assert_eq!(one_request(&filter), Flow::Stop);
    let of = |name: &str| metric(&world, &format!("tollgate.{name}"));
    assert_eq!([of("requests.answer=passed"), of("requests.answer=refused")], [1, 1]);
    assert_eq!(of("failed_requests.on_failure=deny"), 1);
    assert_eq!(of("failed_requests.on_failure=allow"), 0);
}

// Guards: an alert that limits are not enforced, caused by a rule that enforces none.
#[test]
fn on_failure_decides_about_no_request_that_a_shadow_alone_fails_at() {
    for (mode, decided) in [("shadow", 0), ("enforce", 1)] {
        let watched = format!(
            r#"{{"version": 1, "rules": [{{"name": "r", "key": [], "mode": "{mode}",
                "on_failure": "allow", "quotas": [{{"limit": 20, "window": "1h"}}]}}]}}"#
        );
        let (filter, world) = world(7, 0, vec![watched]);
        filter.on_context_create(1, 0);
        assert!(filter.on_configure(1, 100));
        world.is_unreachable.set(true);
        assert_eq!(one_request(&filter), Flow::Continue);
        let of = |name: &str| metric(&world, &format!("tollgate.{name}"));
        assert_eq!(of("decisions.plugin=p.rule=r.result=failed"), 1, "{mode}");
        assert_eq!(of("failed_requests.on_failure=allow"), decided, "{mode}");
    }
}
