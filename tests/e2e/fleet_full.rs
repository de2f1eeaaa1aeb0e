//! A saturated cluster of the authority: its circuit breaker rejects all but one request, in a real
//! Envoy.
//!
//! The proxy's clock does not advance until the test sets it, so no request ends by its time-out,
//! however slow the machine is.

use rustix::process::Signal;
use serde_json::{Value, json};
use tollgate_e2e::http::{Client, Request, Response};
use tollgate_e2e::process::wait_until;

use crate::envoy_server::{Envoy, Listener};
use crate::leasing_envoys::{SOON, fleet_stat, policy, setup};
use crate::server;

const BEGAN_MS: u64 = 1_000_000_000;

fn rule(name: &str, on_failure: Value) -> Value {
    json!({
        "name": name, "key": [{"header": format!("x-{name}")}], "scope": "fleet", "lease": 0,
        "on_failure": on_failure, "quotas": [{"limit": 12, "window": "366d"}],
    })
}

fn ask(name: &str, key: &str) -> Request {
    Request::get("/").header(format!("x-{name}"), key)
}

/// An Envoy whose clock the test sets.
struct Slow {
    envoy: Envoy,
    /// A request to a worker makes it notice that the clock was set.
    bells: Vec<Client>,
    now_ms: u64,
}

impl Slow {
    fn start(policy: &Value, port: u16) -> Self {
        let mut setup = setup(policy, port, &json!({"timeout": "10s"}));
        setup.listeners.push(Listener::new("bell", vec![]));
        setup.breaker = json!({"max_requests": 1, "max_pending_requests": 1});
        setup.clock_ns = Some(BEGAN_MS * 1_000_000);
        let envoy = setup.start();
        // Balanced exactly: every worker has one of them.
        let bells = (0..2).map(|_| Client::connect(envoy.ports[1])).collect();
        Self { envoy, bells, now_ms: BEGAN_MS }
    }

    /// Sets the clock to this time after the start.
    fn go_to(&mut self, ms: u64) {
        self.now_ms = BEGAN_MS + ms;
        self.envoy.set_clock(self.now_ms * 1_000_000);
        for bell in &mut self.bells {
            assert_eq!(bell.send(&Request::get("/")).status, 200);
        }
    }

    /// Ticks until `is_done`.
    fn tick_until(&mut self, what: &str, mut is_done: impl FnMut(&Self) -> bool) {
        wait_until(what, SOON, || {
            self.go_to(self.now_ms - BEGAN_MS + 4);
            is_done(self).then_some(())
        });
    }

    /// A counter, complete: it is reported a little later, for which the clock is advanced.
    fn count(&mut self, name: &str) -> u64 {
        self.tick_until("everything is counted", |slow| {
            slow.envoy.shown("wasmcustom.tollgate.uncounted") == 0
        });
        self.shown(name)
    }

    /// A counter as it is now: advancing the clock for it would end requests.
    fn shown(&self, name: &str) -> u64 {
        self.envoy.shown(&format!("wasmcustom.tollgate.fleet_{name}"))
    }

    /// Sends these, one after the other, until each waits or has its response. Fresh connections,
    /// so each worker has every other one.
    fn send(&self, requests: &[Request]) -> Vec<Client> {
        let send = |request: &Request| {
            let before = fleet_stat(&self.envoy, "paused");
            let mut client = self.envoy.client();
            client.start(request).expect("Envoy takes it");
            wait_until("it waits or is answered", SOON, || {
                let waits = fleet_stat(&self.envoy, "paused") > before;
                (waits || client.has_answer()).then_some(())
            });
            client
        };
        requests.iter().map(send).collect()
    }
}

fn finish(clients: &mut [Client]) -> Vec<Response> {
    clients.iter_mut().map(|client| client.finish(false).expect("an answer")).collect()
}

// Guards: a full circuit breaker that is treated as an unreachable authority, at the worker whose
// request is in flight or at the other one: that opens the gate of every rule that allows requests
// without the authority.
#[test]
fn a_full_circuit_breaker_of_the_cluster_lets_nobody_through() {
    let policy = policy(&json!([
        rule("allow", json!("allow")),
        rule("deny", json!("deny")),
        rule("local", json!({"share": 4})),
    ]));
    let server = server(&policy);
    let mut slow = Slow::start(&policy, server.port);
    // Every worker has a connection to the server.
    for client in &mut slow.envoy.clients(4) {
        assert_eq!(client.send(&ask("deny", "before")).status, 200);
    }
    server.signal(Signal::STOP);
    let mut first = slow.send(&[ask("deny", "held")]);
    // The host may reject at once or later; some of these requests wait in any case.
    let mut denied = slow.send(&(0..8).map(|i| ask("deny", &i.to_string())).collect::<Vec<_>>());
    let mut allowed = slow.send(&(0..4).map(|i| ask("allow", &i.to_string())).collect::<Vec<_>>());
    let mut local = slow.send(&vec![ask("local", "a"); 8]);
    assert!(fleet_stat(&slow.envoy, "paused") > 12, "nobody waits");
    assert_eq!(slow.count("failed"), 0);
    // The first request is over, and one of the waiting requests has the only place after it: for
    // longer than two time-outs there is none for the others.
    let before = slow.count("asked");
    slow.go_to(10_500);
    assert_eq!(finish(&mut first)[0].status, 503);
    slow.tick_until("another one is asked", |slow| slow.shown("asked") > before);
    slow.go_to(20_100);
    slow.tick_until("one waits", |slow| fleet_stat(&slow.envoy, "paused") == 1);
    for answer in finish(&mut allowed) {
        assert_eq!(answer.status, 503);
        assert!(answer.header("retry-after").is_some());
    }
    // A quarter of twelve, counted by this node alone.
    let mut local: Vec<u16> = finish(&mut local).iter().map(|answer| answer.status).collect();
    local.sort_unstable();
    assert_eq!(local, [200, 200, 200, 429, 429, 429, 429, 429]);
    assert_eq!(slow.count("failed"), 1, "the authority's own time-out");
    // There is room again.
    server.signal(Signal::CONT);
    slow.tick_until("nobody waits", |slow| fleet_stat(&slow.envoy, "paused") == 0);
    let denied: Vec<u16> = finish(&mut denied).iter().map(|answer| answer.status).collect();
    assert_eq!(denied.iter().filter(|status| **status == 200).count(), 1, "{denied:?}");
    assert_eq!(denied.iter().filter(|status| **status == 503).count(), 7, "{denied:?}");
    for name in ["allow", "deny", "local"] {
        let mut client = slow.send(&[ask(name, "b")]);
        slow.tick_until("it is answered", |slow| fleet_stat(&slow.envoy, "paused") == 0);
        assert_eq!(finish(&mut client)[0].status, 200, "{name}");
    }
}
