//! The order of waiting requests: by priority, and none waits longer than its promised time.
//!
//! The test sets the clock, so the order is the same on any machine.

use std::time::Duration;

use serde_json::{Value, json};
use tollgate_e2e::http::{Client, Request};
use tollgate_e2e::process;

use crate::envoy_server::{Envoy, Listener, Setup};

/// Far longer than anything here takes: the clock of the filter does not advance meanwhile.
const PATIENCE: Duration = Duration::from_secs(60);

/// One per second; those of `gold` first, then those of `silver`.
fn rule(name: &str, algorithm: &str, burst: u32, max: &str) -> Value {
    json!({
        "name": name, "key": [], "when": {"paths": [format!("/{name}")]},
        "quotas": [{"limit": 1, "window": "1s", "burst": burst, "algorithm": algorithm}],
        "action": {"delay": {
            "max": max,
            "priority": [{"headers": {"x-plan": "gold"}}, {"headers": {"x-plan": "silver"}}],
        }},
    })
}

/// One worker whose clock does not advance until it is set.
struct Still {
    envoy: Envoy,
    bell: Client,
    now_ms: u64,
    waiting: Vec<(String, Client)>,
    path: &'static str,
}

impl Still {
    fn new(policy: &Value, path: &'static str) -> Self {
        let mut setup = Setup::policy(1, policy);
        // A request to the worker makes it notice that the clock was set.
        setup.listeners.push(Listener::new("bell", vec![]));
        let now_ms = 1_000_000;
        setup.clock_ns = Some(now_ms * 1_000_000);
        let envoy = setup.start();
        let bell = Client::connect(envoy.ports[1]);
        Self { envoy, bell, now_ms, waiting: vec![], path }
    }

    /// Adds a request that waits, behind all that came before.
    fn comes(&mut self, who: &str) {
        let plan = who.split('-').next().expect("a plan");
        let mut client = self.envoy.client();
        client.start(&Request::get(self.path).header("x-plan", plan)).expect("it is taken");
        self.waiting.push((who.to_owned(), client));
        let count = self.waiting.len();
        process::wait_until("it waits", PATIENCE, || {
            (self.envoy.stat("wasmcustom.tollgate.waiting") == count as u64).then_some(())
        });
    }

    fn advance(&mut self, ms: u64) {
        self.now_ms += ms;
        self.envoy.set_clock(self.now_ms * 1_000_000);
    }

    /// The request that continues in the next second: one, and only after that second.
    fn goes(&mut self) -> String {
        self.advance(999);
        self.bell.send(&Request::get("/"));
        assert!(self.waiting.iter().all(|(_, client)| !client.has_answer()), "before its time");
        self.advance(1);
        let rest = self.waiting.len() as u64 - 1;
        process::wait_until("one goes", PATIENCE, || {
            self.bell.send(&Request::get("/"));
            (self.envoy.stat("wasmcustom.tollgate.waiting") == rest).then_some(())
        });
        let gone = |(_, client): &(String, Client)| client.has_answer();
        let index =
            process::wait_until("it is answered", PATIENCE, || self.waiting.iter().position(gone));
        let (who, mut client) = self.waiting.remove(index);
        assert_eq!(client.finish(false).expect("an answer").status, 200, "{who}");
        assert!(!self.waiting.iter().any(gone), "two in one second");
        who
    }

    /// Sends a request that continues at once, and uses up the current second.
    fn passes_at_once(&mut self) {
        let response = self.envoy.client().send(&Request::get(self.path));
        assert_eq!(response.status, 200);
    }
}

fn policy() -> Value {
    json!({"version": 1, "rules": [
        rule("turn", "gcra", 1, "1m"),
        rule("queue", "leaky-queue", 40, "1m"),
        rule("short", "leaky-queue", 40, "3s"),
    ]})
}

// Guards: a priority that only the compiler knows; an order within a priority that is not that of
// arrival.
#[test]
fn who_pays_goes_first() {
    for path in ["/turn", "/queue"] {
        let mut still = Still::new(&policy(), path);
        still.passes_at_once();
        for who in ["free-1", "free-2", "silver-1", "gold-1", "free-3", "gold-2"] {
            still.comes(who);
        }
        assert_eq!([still.goes(), still.goes()], ["gold-1", "gold-2"], "{path}");
        // A new request waits behind those of its priority and before the others.
        still.comes("silver-2");
        still.comes("gold-3");
        let rest: Vec<String> = (0..6).map(|_| still.goes()).collect();
        let expected = ["gold-3", "silver-1", "silver-2", "free-1", "free-2", "free-3"];
        assert_eq!(rest, expected, "{path}");
        assert_eq!(still.envoy.decisions(&path[1..], "delayed"), 8);
        assert_eq!(still.envoy.decisions(&path[1..], "denied"), 0);
    }
}

// Guards: a request without a priority that waits for ever, or is denied although it was accepted
// to wait, because others with a priority keep coming.
#[test]
fn nobody_waits_longer_than_it_may_for_others() {
    let mut still = Still::new(&policy(), "/short");
    still.passes_at_once();
    still.comes("free-1");
    still.comes("gold-1");
    still.comes("gold-2");
    // All three seconds of the longest wait are taken.
    let refused = still.envoy.client().send(&Request::get("/short").header("x-plan", "gold"));
    assert_eq!(refused.status, 429, "a priority makes no room");
    assert_eq!(still.goes(), "gold-1");
    still.comes("gold-3");
    assert_eq!(still.goes(), "gold-2");
    still.comes("gold-4");
    assert_eq!(still.goes(), "free-1", "its three seconds are over");
    assert_eq!([still.goes(), still.goes()], ["gold-3", "gold-4"]);
    assert_eq!(still.envoy.decisions("short", "delayed"), 5);
    assert_eq!(still.envoy.stat("wasmcustom.tollgate.places_unused"), 0);
}

// Guards: a place that is lost with a client that leaves, where the order of turns is not that of
// arrival.
#[test]
fn who_leaves_lets_all_behind_it_move_up() {
    let mut still = Still::new(&policy(), "/queue");
    still.passes_at_once();
    for who in ["free-1", "gold-1", "free-2", "gold-2"] {
        still.comes(who);
    }
    let index = still.waiting.iter().position(|(who, _)| who == "gold-1").expect("it waits");
    drop(still.waiting.remove(index));
    process::wait_until("it has left", PATIENCE, || {
        (still.envoy.stat("wasmcustom.tollgate.waiting") == 3).then_some(())
    });
    assert_eq!([still.goes(), still.goes(), still.goes()], ["gold-2", "free-1", "free-2"]);
    // The last place was returned: a new request has the one after the three that were used.
    still.comes("free-3");
    assert_eq!(still.goes(), "free-3");
    assert_eq!(still.envoy.stat("wasmcustom.tollgate.places_unused"), 0);
}
