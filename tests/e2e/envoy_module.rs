//! The shipped module at chosen times: the vectors, the real day, and forced races.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use serde_json::{Value, json};
use tollgate_core::{Algorithm, Limiter, Quota, Span, Timestamp};
use tollgate_e2e::day::day;
use tollgate_storage::table::TableSize;

use crate::envoy_host::{Answer, Filter, Shared};
use crate::vectors::{self, Case, Event, Expectation, Expected, QuotaLine};

fn quota(line: &QuotaLine, name: &str) -> Value {
    let mut quota = json!({
        "name": name,
        "limit": line.limit,
        "window": line.window,
        "algorithm": line.algorithm,
    });
    if let Some(burst) = line.burst {
        quota["burst"] = json!(burst);
    }
    if let Some(buckets) = line.buckets {
        quota["buckets"] = json!(buckets);
    }
    if line.weighted {
        quota["weighted"] = json!(true);
    }
    if line.strict {
        quota["strict"] = json!(true);
    }
    quota
}

fn policy(case: &Case) -> Value {
    let quotas = case.quotas.iter().enumerate().map(|(i, line)| quota(line, &format!("q{i}")));
    let quotas: Vec<Value> = quotas.collect();
    json!({"version": 1, "rules": [{"name": "r", "key": [], "quotas": quotas}]})
}

fn seconds(ns: u64) -> u64 {
    ns.div_ceil(1_000_000_000).max(1)
}

/// The least `r` of a `RateLimit` field.
fn least_remaining(answer: &Answer) -> u64 {
    let field = answer.field("ratelimit").expect("every answer has the field");
    let members = field.split(", ").map(|member| {
        let r = member.split(";r=").nth(1).and_then(|rest| rest.split(';').next());
        r.and_then(|r| r.parse::<u64>().ok()).unwrap_or_else(|| panic!("no r in {field}"))
    });
    members.min().expect("a member")
}

fn check_row(filter: &mut Filter, at_ns: u64, expected: &Expected, place: &str) {
    let answer = filter.request(at_ns, &[(":path", b"/")]);
    match (expected.verdict, &answer) {
        (Expectation::Allow, Answer::Passed(_)) => {
            assert_eq!(least_remaining(&answer), expected.remaining, "{place}: remaining");
        }
        (Expectation::Delay { wait_ns }, Answer::Held(id)) => {
            let due = at_ns + wait_ns;
            let tick_ms = u64::from(filter.tick_ms());
            assert!((1..=wait_ns.div_ceil(1_000_000)).contains(&tick_ms), "{place}: tick");
            assert!(filter.tick(due - 1).is_empty(), "{place}: early");
            assert_eq!(filter.tick(due), [*id], "{place}: due");
            let passed = Answer::Passed(filter.respond(*id));
            assert_eq!(least_remaining(&passed), expected.remaining, "{place}: remaining");
            filter.end(*id);
        }
        (Expectation::Deny, Answer::Refused(reply)) => {
            assert_eq!(reply.status, 429, "{place}");
            let wait = expected.retry_after_ns.map(|ns| seconds(ns).to_string());
            assert_eq!(answer.field("retry-after"), wait.as_deref(), "{place}: retry-after");
        }
        _ => panic!("{place}: expected {expected:?}, got {answer:?}"),
    }
}

// The shared truth, through the filter's whole path: configuration, host calls, table, commit,
// fields. A request costs one unit here, so rows that only look are skipped, and a case ends where
// another cost or a refund changes the state; the core's own tests run all of them.
#[test]
fn the_vectors_hold_in_the_module() {
    let (mut rows, mut cases) = (0, 0);
    for case in vectors::all() {
        let mut filter = Filter::new(&policy(&case), &Shared::default());
        let before = rows;
        for row in &case.rows {
            let place = format!("{}:{} ({})", case.file, row.line, case.title);
            match &row.event {
                Event::Check { cost: 0, .. } | Event::Check { peek: true, .. } => {}
                Event::Check { cost: 1, expected, .. } => {
                    check_row(&mut filter, row.at_ns, expected, &place);
                    rows += 1;
                }
                _ => break,
            }
        }
        cases += usize::from(rows > before);
    }
    println!("{rows} rows of {cases} cases hold in the module");
    assert!(rows >= 200, "only {rows} rows were run");
}

/// The requests of the real day that one limiter per client allows.
fn core_admits(limiter: &Limiter) -> Vec<bool> {
    let mut states: HashMap<String, Vec<u8>> = HashMap::new();
    let admits = |hit: tollgate_e2e::day::Hit| {
        let state = states.entry(hit.client).or_insert_with(|| vec![0; limiter.state_len()]);
        limiter.check(state, Timestamp::from_nanos(hit.at_ns), 1).is_admitted()
    };
    day().into_iter().map(admits).collect()
}

// The whole day through two workers in turn that share one map, with the log's own times: the
// filter allows exactly the requests that the core allows.
fn the_day_is_the_cores(algorithm: Algorithm, name: &str) {
    let policy = json!({"version": 1, "rules": [{
        "name": "client",
        "key": [{"header": "x-client"}],
        "quotas": [{"name": "client", "limit": 10, "window": "1m", "algorithm": name}],
    }]});
    let shared = Shared::default();
    let mut workers = [(); 2].map(|()| Filter::new(&policy, &shared));
    let quota = Quota::new(10, Span::from_secs(60)).expect("a quota");
    let expected = core_admits(&Limiter::new(algorithm, quota).expect("a limiter"));
    let mut admitted = 0;
    for (i, (hit, expected)) in day().into_iter().zip(&expected).enumerate() {
        let (target, client) = (hit.target.as_bytes(), hit.client.as_bytes());
        let headers = [(":method", hit.method.as_bytes()), (":path", target), ("x-client", client)];
        let passed = workers[i % 2].request(hit.at_ns, &headers).passed();
        assert_eq!(passed, *expected, "{name}: request {i} of {}", hit.client);
        admitted += usize::from(passed);
    }
    let mut sum = |metric: &str| workers.iter_mut().map(|it| it.metric(metric)).sum::<i64>();
    assert_eq!(sum("tollgate.evictions"), 0);
    assert_eq!(
        sum("tollgate.decisions.plugin=tollgate.rule=client.result=allowed"),
        admitted as i64
    );
    println!(
        "{name}: {admitted} of {} requests of the day admitted, as by the core",
        expected.len()
    );
}

#[test]
fn the_real_day_by_gcra() {
    the_day_is_the_cores(Algorithm::Gcra, "gcra");
}

#[test]
fn the_real_day_by_sliding_window() {
    the_day_is_the_cores(Algorithm::SlidingWindow, "sliding-window");
}

/// Two rules by two keys: a common one that is committed last.
fn layers(on_failure: &str) -> Value {
    let rule = |name: &str, key: Value, limit: u32| {
        json!({
            "name": name,
            "key": key,
            "quotas": [{"name": name, "limit": limit, "window": "1d"}],
            "on_failure": on_failure,
        })
    };
    json!({"version": 1, "rules": [
        rule("user", json!([{"header": "x-user"}]), 10),
        rule("all", json!([]), 3),
    ]})
}

/// A worker that is interrupted before each of its writes by a request of user `b` on another
/// worker.
fn interrupted(on_failure: &str, times: u32) -> (Filter, Rc<RefCell<Filter>>) {
    let shared = Shared::default();
    let worker = Filter::new(&layers(on_failure), &shared);
    let other = Rc::new(RefCell::new(Filter::new(&layers(on_failure), &shared)));
    let (meanwhile, mut left) = (Rc::clone(&other), times);
    shared.borrow_mut().meanwhile = Some(Box::new(move || {
        if left > 0 {
            left -= 1;
            meanwhile.borrow_mut().request(5, &[("x-user", b"b")]);
        }
    }));
    (worker, other)
}

// The common quota has three units. While `a` is committed, `b` takes all of them: the charge of
// `a` is refunded.
#[test]
fn a_lost_race_gives_back_what_was_committed() {
    let (mut worker, other) = interrupted("allow", 3);
    // Writes of `a`: its own value (interrupted), the common one (interrupted: lost), again (lost).
    let answer = worker.request(5, &[("x-user", b"a")]);
    assert!(!answer.passed(), "{answer:?}");
    assert!(worker.metric("tollgate.cas_retries") >= 1);
    let limits = other.borrow_mut().request(5, &[("x-user", b"a")]);
    let limits = limits.field("ratelimit").expect("fields");
    assert!(limits.contains("\"user\";r=10"), "the charge stayed: {limits}");
}

// Another worker is always faster: after a bounded number of tries the rule's `on_failure` decides.
#[test]
fn a_race_that_is_never_won_ends() {
    for (on_failure, status) in [("allow", None), ("deny", Some(503))] {
        let shared = Shared::default();
        let mut worker = Filter::new(&layers(on_failure), &shared);
        let touched = Rc::clone(&shared);
        shared.borrow_mut().meanwhile = Some(Box::new(move || {
            // Rewrites every bucket unchanged: only their numbers change. The seed's name is short.
            let mut map = touched.borrow_mut();
            let all: Vec<_> = map.entries.iter().filter(|(name, _)| name.len() > 5).collect();
            let all: Vec<_> = all.into_iter().map(|(n, (v, _))| (n.clone(), v.clone())).collect();
            all.iter().for_each(|(name, value)| assert_eq!(map.set(name, value, 0), 0));
        }));
        // The first insert has no competitor; from then on every write loses.
        let first = worker.request(5, &[("x-user", b"a")]);
        assert!(first.passed(), "{first:?}");
        let second = worker.request(5, &[("x-user", b"a")]);
        match status {
            None => assert!(second.passed(), "{second:?}"),
            Some(expected) => {
                let Answer::Refused(reply) = second else { panic!("{second:?}") };
                assert_eq!((reply.status, reply.grpc_status), (expected, -1)); // not gRPC
                assert_eq!(reply.details, "tollgate_failure{user}");
            }
        }
        assert!(worker.metric("tollgate.cas_retries") >= 32);
        assert!(worker.metric("tollgate.failures") >= 1);
    }
}

// A denied client costs no look into the shared map. When its time has come, or when another
// worker's denial was the first, the responses are the same as without that memory. Where charges
// may be refunded (two keys), no denial is repeated from memory: it may have been false.
#[test]
fn a_denial_is_repeated_from_memory_and_exactly() {
    const DAY: u64 = 86_400_000_000_000;
    let one_key = json!({"version": 1, "rules": [{
        "name": "one",
        "key": [{"header": "x-user"}],
        "quotas": [{"name": "one", "limit": 2, "window": "1d"}],
    }]});
    let shared = Shared::default();
    let mut workers = [(); 2].map(|()| Filter::new(&one_key, &shared));
    let mut ask = |worker: usize, at: u64| {
        let before = shared.borrow().looks;
        let answer = workers[worker].request(at, &[("x-user", b"a")]);
        (
            answer.passed(),
            shared.borrow().looks - before,
            answer.field("retry-after").map(str::to_owned),
        )
    };
    let half_a_day = |seconds: u64| Some((43_200 - seconds).to_string());
    assert_eq!(ask(0, 1), (true, 1, None));
    assert_eq!(ask(1, 1), (true, 1, None));
    assert_eq!(ask(0, 1), (false, 1, half_a_day(0)), "the first denial looks");
    assert_eq!(ask(0, 10_000_000_001), (false, 0, half_a_day(10)), "the next does not");
    assert_eq!(ask(1, 10_000_000_001), (false, 1, half_a_day(10)), "the other worker looks itself");
    assert_eq!(ask(0, DAY / 2), (false, 0, Some("1".into())), "a nanosecond early");
    assert_eq!(ask(0, DAY / 2 + 1), (true, 1, None), "in time");
    assert_eq!(ask(1, DAY / 2 + 1), (false, 1, half_a_day(0)), "memory is older than the state");

    let shared = Shared::default();
    let mut worker = Filter::new(&layers("allow"), &shared);
    let mut looks = || {
        let before = shared.borrow().looks;
        let passed = worker.request(1, &[("x-user", b"a")]).passed();
        (passed, shared.borrow().looks - before)
    };
    assert_eq!(
        [(); 5].map(|()| looks()),
        [(true, 2), (true, 2), (true, 2), (false, 2), (false, 2)]
    );
}

// Where requests cost differently, another worker may allow a cheap one after this one denied an
// expensive one, so the expensive one's wait has changed: no denial is repeated from memory.
#[test]
fn a_denial_is_not_repeated_from_memory_where_costs_differ() {
    let policy = json!({"version": 1, "rules": [{
        "name": "one",
        "key": [{"header": "x-user"}],
        "cost": {"header": "x-cost", "max": 10},
        "quotas": [{"name": "one", "limit": 10, "window": "1d"}],
    }]});
    let shared = Shared::default();
    let mut workers = [(); 2].map(|()| Filter::new(&policy, &shared));
    let mut ask = |worker: usize, cost: &str| {
        let headers = [("x-user", &b"a"[..]), ("x-cost", cost.as_bytes())];
        workers[worker].request(1, &headers).field("retry-after").map(str::to_owned)
    };
    assert_eq!(ask(0, "7"), None);
    assert_eq!(ask(0, "5").as_deref(), Some("17280"), "two units are missing");
    assert_eq!(ask(1, "2"), None);
    assert_eq!(ask(0, "5").as_deref(), Some("34560"), "four units are missing");
}

// Bytes that are not a bucket: `on_failure` decides the request, and the next one counts again.
#[test]
fn a_corrupt_bucket_is_counted_and_repaired() {
    let shared = Shared::default();
    let mut worker = Filter::new(&layers("deny"), &shared);
    let mut ask = || worker.request(5, &[("x-user", b"a")]);
    assert!(ask().passed());
    let mut map = shared.borrow_mut();
    let buckets = map.entries.iter_mut().filter(|(name, _)| name.len() == TableSize::BUCKET_NAME);
    buckets.for_each(|(_, (value, _))| *value = b"\x01garbage".to_vec());
    drop(map);
    let refused = ask();
    let Answer::Refused(reply) = &refused else { panic!("{refused:?}") };
    assert_eq!(reply.status, 503);
    assert!(ask().passed());
    assert_eq!(worker.metric("tollgate.failures"), 2, "one for each of the two values");
}

// Whatever configuration Envoy passes: a result, never a trap.
#[test]
fn no_configuration_traps() {
    let good = layers("allow").to_string();
    let mut filter = Filter::new(&layers("allow"), &Shared::default());
    for len in 0..good.len() {
        assert!(!filter.configure(&good.as_bytes()[..len]));
    }
    for byte in 0..=255_u8 {
        assert!(!filter.configure(&[byte]));
        assert!(!filter.configure(&[b'\n', byte, b'\n', byte]));
    }
    assert!(filter.configure(good.as_bytes()));
}

// Guards: the exports and calls with which the module follows a policy. Native tests cover the
// times of requests and the rejected policies.
#[test]
fn the_module_takes_its_policy_from_a_server() {
    const STEP_NS: u64 = 10_000_000_000;
    let policy = |limit: u32| {
        json!({"version": 1, "rules": [{"name": "r", "key": [], "quotas": [
            {"name": "q", "limit": limit, "window": "1d", "algorithm": "sliding-log"}]}]})
    };
    let shared = Shared::default();
    let configuration = json!({"policy": policy(1), "policy_from": {"cluster": "c", "token": "t"}});
    let mut filter = Filter::new(&configuration, &shared);
    let mut now = STEP_NS;
    assert!(filter.request(now, &[(":path", b"/")]).passed());
    assert!(!filter.request(now, &[(":path", b"/")]).passed());
    let call = (0..20)
        .find_map(|_| {
            now += STEP_NS;
            filter.tick(now);
            filter.take_calls().pop()
        })
        .expect("it asks");
    assert_eq!(call.cluster, "c");
    let of = |name: &str| call.headers.iter().find(|(known, _)| known == name);
    assert_eq!(of("authorization").map(|(_, value)| &**value), Some("Bearer t"));
    assert!((1..=10_000).contains(&call.timeout_ms), "{}", call.timeout_ms);
    let headers = [(":status", "200"), ("etag", "\"2-a\""), ("tollgate-policy-version", "2")];
    filter.answer_call(&call, &headers, policy(3).to_string().as_bytes());
    filter.tick(now + STEP_NS);
    // One of the three units is used.
    let mut passes = || filter.request(now + STEP_NS, &[(":path", b"/")]).passed();
    assert_eq!([passes(), passes(), passes()], [true, true, false]);
    let own = "tollgate: server \"c\": policy 2 is in force";
    let [said, refused] = filter.log() else { panic!("{:?}", filter.log()) };
    assert_eq!(said, own);
    // The denials of the policy before are reported when it ends.
    assert!(
        refused
            .starts_with("tollgate: plugin tollgate: 1 denied in 20 s; most of them: rule=r pk=")
    );
}
