//! Crowds that wait: released, denied and abandoned in every mixture, and nothing of them remains.
//!
//! Envoy's failure policy is the default one here: after one trap, every later request of that
//! worker gets 503.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tollgate_e2e::crowd::{End, Fate, Member, gather, gather_until};
use tollgate_e2e::http::{Client, Request};
use tollgate_e2e::process;
use tollgate_test_support::Random;

use crate::envoy_server::{As, Envoy, Listener, Setup, is_dynamic_module, tollgate};

/// Far longer than any wait that a policy here allows.
const PATIENCE: Duration = Duration::from_secs(90);

/// The kinds of waiting: turns of a key, places in a queue, and a gate that closes before the
/// waiting requests' turn.
fn policy() -> Value {
    let delay = json!({"delay": {"max": "2s"}});
    json!({
        "version": 1,
        "waiting": {"per_key": 20_000, "total": 20_000},
        "rules": [
            {
                "name": "turn", "when": {"paths": ["/turn"]}, "key": [{"header": "x-key"}],
                "quotas": [{"limit": 1, "window": "1s", "algorithm": "fixed-window"}],
                "action": delay,
            },
            {
                "name": "queue", "when": {"paths": ["/queue"]}, "key": [{"header": "x-key"}],
                "quotas": [{"limit": 3, "window": "1s", "burst": 6, "algorithm": "leaky-queue"}],
            },
            {
                "name": "gate", "when": {"paths": ["/turn"]}, "key": [{"header": "x-gate"}],
                "on_missing": "skip",
                "quotas": [{"limit": 1, "window": "1d", "algorithm": "fixed-window"}],
            },
        ],
    })
}

fn assert_nobody_waits(envoy: &Envoy) {
    process::wait_until("nobody waits any more", PATIENCE, || {
        (envoy.stat("wasmcustom.tollgate.waiting") == 0).then_some(())
    });
}

/// After one trap, the worker's machine is gone.
fn assert_no_trap(envoy: &Envoy) {
    let log = envoy.server.log();
    assert!(!log.contains("Function: proxy_on"), "{log}");
    for name in ["vm_reload", "vm_reload_success", "vm_reload_failure", "vm_reload_backoff"] {
        assert_eq!(envoy.stat(&format!("wasm.tollgate.{name}")), 0, "{name}");
    }
    for mut client in envoy.clients(8) {
        assert_eq!(client.send(&Request::get("/free")).status, 200, "a worker traps");
    }
}

/// A crowd of `count`, over both protocols: some stay for their response, some leave, most of these
/// near the time when others are released.
fn crowd(round: u64, count: usize) -> Vec<Member> {
    let mut random = Random::new(round);
    let keys = u64::try_from(count).expect("few") / 6 + 1;
    let member = |_| {
        let path = if random.below(4) == 0 { "/queue" } else { "/turn" };
        let mut request =
            Request::get(path).header("x-key", format!("{round}-{}", random.below(keys)));
        if random.below(3) == 0 {
            request = request.header("x-gate", format!("{round}-{}", random.below(keys)));
        }
        let fate = match random.below(3) {
            0 => Fate::LeavesAfter(Duration::from_millis(random.below(2_200))),
            _ => Fate::Stays,
        };
        Member { request: Arc::new(request), is_http2: random.below(2) == 0, fate }
    };
    (0..count).map(member).collect()
}

// 28 rounds, the first of them of 10,000.
#[test]
fn nobody_is_forgotten_in_a_crowd() {
    const ROUNDS: u64 = 28;
    process::allow_open_files(30_000);
    let envoy = Setup::policy(2, &policy()).start();
    gather(envoy.ports[0], crowd(1_000, 2_000), PATIENCE);
    assert_nobody_waits(&envoy);
    let memory = || envoy.stat("wasmcustom.tollgate.memory_bytes");
    let before = memory();
    assert!(before > 0);
    let (mut passed, mut refused, mut left) = (0, 0, 0);
    for round in 0..ROUNDS {
        let count = if round == 0 { 10_000 } else { 24 + 8 * usize::try_from(round).expect("few") };
        for end in gather(envoy.ports[0], crowd(round, count), PATIENCE) {
            match end {
                End::Answer(200) => passed += 1,
                End::Answer(429) => refused += 1,
                End::Left => left += 1,
                other => panic!("round {round}: {other:?}; {}", envoy.server.log()),
            }
        }
        assert_nobody_waits(&envoy);
        assert_no_trap(&envoy);
    }
    let grown = memory().saturating_sub(before);
    println!("{passed} passed, {refused} refused, {left} left; {grown} bytes more than before");
    assert!(passed > 1_000 && refused > 1_000 && left > 1_000, "{passed} {refused} {left}");
    assert!(grown < 64 << 20, "{grown} bytes more than before");
}

// All windows end at the same time, and the gate is closed by then: Envoy would handle the response
// to each denial inside the one before, on one stack. The test sets the clock, so all arrive in one
// window on any machine.
#[test]
fn four_hundred_are_refused_at_once() {
    const COUNT: usize = 400;
    const WINDOW_MS: u64 = 10_000;
    process::allow_open_files(4_000);
    let rule = |name: &str, header: &str, limit: usize, window: &str, more: Value| {
        let mut rule = json!({
            "name": name, "key": [{"header": header}],
            "quotas": [{"limit": limit, "window": window, "algorithm": "fixed-window"}],
        });
        rule.as_object_mut().expect("an object").extend(more.as_object().expect("more").clone());
        rule
    };
    let policy = json!({"version": 1, "rules": [
        rule("turn", "x-key", 1, "10s", json!({"action": {"delay": {"max": "25s"}}})),
        rule("gate", "x-gate", COUNT + 1, "1d", json!({})),
    ]});
    let mut setup = Setup::policy(1, &policy);
    // A request to the worker makes it notice that the clock was set.
    setup.listeners.push(Listener::new("bell", vec![]));
    let mut now_ms = 1_000 * WINDOW_MS;
    setup.clock_ns = Some(now_ms * 1_000_000);
    let envoy = setup.start();
    let mut bell = Client::connect(envoy.ports[1]);
    let mut advance = |ms: u64| {
        now_ms += ms;
        envoy.set_clock(now_ms * 1_000_000);
        bell.send(&Request::get("/"));
    };
    let request =
        |i: usize| Request::get("/").header("x-key", i.to_string()).header("x-gate", "gate");
    let mut clients = envoy.clients(COUNT);
    let send_all = |clients: &mut Vec<Client>| {
        for (i, client) in clients.iter_mut().enumerate() {
            client.start(&request(i)).expect("taken");
        }
    };
    let finish_all = |clients: &mut Vec<Client>| -> Vec<u16> {
        let finish = |client: &mut Client| client.finish(false).expect("answered").status;
        clients.iter_mut().map(finish).collect()
    };
    send_all(&mut clients);
    assert!(finish_all(&mut clients).iter().all(|status| *status == 200));
    send_all(&mut clients);
    process::wait_until("all wait", PATIENCE, || {
        (envoy.stat("wasmcustom.tollgate.waiting") == COUNT as u64).then_some(())
    });
    let last = envoy.client().send(&request(COUNT));
    assert_eq!(last.status, 200, "the last one through the gate");
    advance(WINDOW_MS);
    // Not all in one tick.
    process::wait_until("all are answered", PATIENCE, || {
        advance(1);
        clients.iter_mut().all(|client| client.has_answer()).then_some(())
    });
    let statuses = finish_all(&mut clients);
    assert!(statuses.iter().all(|status| *status == 429), "{statuses:?}");
    assert_nobody_waits(&envoy);
    assert_no_trap(&envoy);
}

// All clients disconnect at once: their places are free at once, and their charges are refunded.
#[test]
fn a_crowd_that_leaves_takes_nothing_with_it() {
    const COUNT: usize = 10_050;
    process::allow_open_files(30_000);
    for algorithm in ["leaky-queue", "gcra"] {
        let policy = json!({
            "version": 1,
            "waiting": {"per_key": 20_000, "total": 20_000},
            "rules": [{
                "name": "line", "key": [], "on_failure": "deny",
                // 12,000 fit within five minutes.
                "quotas": [{"limit": 40, "window": "1s", "burst": if algorithm == "gcra" { 40 } else { 12_000 }, "algorithm": algorithm}],
                "action": {"delay": {"max": "5m"}},
            }],
        });
        let envoy = Setup::policy(1, &policy).start();
        let fate = Fate::Stays;
        let member =
            |i| Member { request: Arc::new(Request::get("/")), is_http2: i % 4 == 0, fate };
        let crowd = (0..COUNT).map(member).collect();
        let leave = AtomicBool::new(false);
        // Not after a fixed time: wait until all have arrived and most of them wait.
        let (ends, waiting) = thread::scope(|scope| {
            let crowd = scope.spawn(|| gather_until(envoy.ports[0], crowd, &leave));
            process::wait_until("everybody has come", 3 * PATIENCE, || {
                (envoy.stat("http.main.downstream_rq_total") >= COUNT as u64).then_some(())
            });
            let waiting = envoy.stat("wasmcustom.tollgate.waiting");
            leave.store(true, Ordering::Relaxed);
            (crowd.join().expect("a crowd"), waiting)
        });
        let left = ends.iter().filter(|end| **end == End::Left).count();
        let passed = ends.iter().filter(|end| **end == End::Answer(200)).count();
        println!("{algorithm}: {left} left, {passed} passed");
        assert_eq!(left + passed, COUNT, "{algorithm}: nobody is refused");
        assert!(left > COUNT / 2 && waiting > COUNT as u64 / 2, "{algorithm}: {left} {waiting}");
        assert_nobody_waits(&envoy);
        // The places of the clients that left would be used for minutes. With turns, only the
        // requests that passed were charged.
        let response = envoy.client().send(&Request::get("/"));
        assert_eq!(response.status, 200, "{algorithm}");
        let told = response.header("ratelimit").expect("fields");
        let remaining = told.split(";r=").nth(1).and_then(|rest| rest.split(';').next());
        let remaining: u32 = remaining.and_then(|r| r.parse().ok()).expect("a number");
        assert!(algorithm == "gcra" || remaining > 11_000, "places stayed: {told}");
        assert_eq!(envoy.stat("wasmcustom.tollgate.failures"), 0);
        assert_no_trap(&envoy);
    }
}

// The host holds a header block while its request waits, and HPACK makes large ones of few bytes:
// they are bounded.
#[test]
fn large_headers_wait_in_bounded_memory() {
    const COUNT: usize = 3_000;
    process::allow_open_files(30_000);
    let policy = json!({
        "version": 1,
        "waiting": {"per_key": 20_000, "total": 20_000},
        "rules": [{
            "name": "line", "key": [{"header": "x-key"}], "on_failure": "deny",
            "quotas": [{"limit": 10, "window": "1s", "burst": 3_000, "algorithm": "leaky-queue"}],
            "action": {"delay": {"max": "5m"}},
        }],
    });
    let envoy = Setup::policy(1, &policy).start();
    let mut request = Request::get("/").header("x-key", "k".repeat(2_000));
    for _ in 0..13 {
        request = request.header("x-large", "v".repeat(4_000));
    }
    let request = Arc::new(request);
    let fate = Fate::LeavesAfter(Duration::from_secs(20));
    let member = move |i| Member { request: Arc::clone(&request), is_http2: i % 2 == 0, fate };
    let port = envoy.ports[0];
    let crowd =
        std::thread::spawn(move || gather(port, (0..COUNT).map(member).collect(), PATIENCE));
    let mut most = 0;
    while !crowd.is_finished() {
        most = most.max(envoy.stat("wasmcustom.tollgate.waiting_bytes"));
        std::thread::sleep(Duration::from_millis(50));
    }
    let ends = crowd.join().expect("a crowd");
    let count = |end: End| ends.iter().filter(|other| **other == end).count();
    let (left, full) = (count(End::Left), count(End::Answer(503)));
    println!("{left} left, {full} found no room; {most} bytes at most");
    assert_eq!(left + full + count(End::Answer(200)), COUNT, "{ends:?}");
    assert!(full > 500 && left > 500, "{left} waited, {full} did not");
    assert!(most > 32 << 20 && most <= 64 << 20, "{most}");
    assert_nobody_waits(&envoy);
    assert_no_trap(&envoy);
}

// An operator may let filters see bodies while headers are stopped: a request with a body waits in
// the same way.
#[test]
fn a_request_with_a_body_waits_too() {
    let policy = json!({"version": 1, "rules": [{
        "name": "line", "key": [],
        "quotas": [{"limit": 1, "window": "1s", "burst": 4, "algorithm": "leaky-queue"}],
    }]});
    let mut filter = tollgate(&policy, "vm", As::Text);
    if !is_dynamic_module() {
        filter["typed_config"]["config"]["allow_on_headers_stop_iteration"] = json!(true);
    }
    let envoy = Setup::new(1, vec![Listener::new("main", vec![filter])]).start();
    let post = Request::post("/", vec![b'x'; 100_000]);
    let started = Instant::now();
    let mut clients = envoy.clients(3);
    for client in &mut clients {
        client.start(&post).expect("taken");
    }
    for (i, client) in (0..).zip(&mut clients) {
        assert_eq!(client.finish(false).expect("answered").status, 200);
        // The queue's clock starts after the test's, so its places are not before these.
        assert!(started.elapsed() >= Duration::from_secs(i), "place {i}: {:?}", started.elapsed());
    }
}

// Envoy's own time-outs continue while a request waits. A time-out ends the request, and its units
// are returned.
#[test]
fn a_time_out_ends_a_wait() {
    let policy = json!({"version": 1, "rules": [{
        "name": "line", "key": [],
        "quotas": [{"limit": 1, "window": "1m", "burst": 3, "algorithm": "leaky-queue"}],
        "action": {"delay": {"max": "5m"}},
    }]});
    let mut listener = Listener::new("main", vec![tollgate(&policy, "vm", As::Text)]);
    listener.manager = json!({"stream_idle_timeout": "1s"});
    let envoy = Setup::new(1, vec![listener]).start();
    let mut client = envoy.client();
    assert_eq!(client.send(&Request::get("/")).status, 200);
    // Two places are left, a minute and two from now. Three requests wait in vain for the first of
    // them, one after the other.
    for _ in 0..3 {
        assert_eq!(envoy.client().send(&Request::get("/")).status, 504);
        assert_nobody_waits(&envoy);
    }
    assert_eq!(envoy.stat("wasmcustom.tollgate.waiting_left"), 3);
    assert_eq!(envoy.stat("wasmcustom.tollgate.waiting_full"), 0);
    assert_eq!(envoy.stat("wasmcustom.tollgate.places_unused"), 0);
    assert!(!envoy.server.log().contains("Function: proxy_on"), "{}", envoy.server.log());
}
