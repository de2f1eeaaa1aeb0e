//! Real Envoys that share one budget, each with the filter and several workers: the properties that
//! hold for a server and for the Worker alike.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tollgate_e2e::authority::Kind;
use tollgate_e2e::http::Request;
use tollgate_e2e::process::wait_until;
use tollgate_e2e::server::{CHECK_TOKEN, FLEET_SECRET};
use tollgate_e2e::workerd::answer;

use crate::envoy_server::{As, Envoy, Listener, Setup as EnvoySetup, tollgate};

pub const SOON: Duration = Duration::from_secs(60);

pub fn policy(rules: &Value) -> Value {
    json!({"version": 1, "rules": rules})
}

/// An Envoy whose filter sends its requests to the authority on `port`.
pub fn envoy(policy: &Value, port: u16, fleet: &Value) -> Envoy {
    setup(policy, port, fleet).start()
}

/// The same, not started yet.
pub fn setup(policy: &Value, port: u16, fleet: &Value) -> EnvoySetup {
    let mut settings = json!({"cluster": "origin", "secret": FLEET_SECRET, "token": CHECK_TOKEN,
        "timeout": "10s"});
    let more = fleet.as_object().expect("settings").clone();
    settings.as_object_mut().expect("an object").extend(more);
    let configuration = json!({"policy": policy, "fleet": settings});
    let listener = Listener::new("main", vec![tollgate(&configuration, "vm", As::Text)]);
    let mut setup = EnvoySetup::new(2, vec![listener]);
    setup.origin = port;
    setup
}

pub fn fleet_stat(envoy: &Envoy, name: &str) -> u64 {
    envoy.stat(&format!("wasmcustom.tollgate.fleet_{name}"))
}

/// One count for each `x-key`.
pub fn each(limit: u64, window: &str, more: &Value) -> Value {
    let mut rule = json!({
        "name": "each", "key": [{"header": "x-key"}], "scope": "fleet",
        "quotas": [{"limit": limit, "window": window, "algorithm": "fixed-window"}],
    });
    rule.as_object_mut().expect("a rule").extend(more.as_object().expect("fields").clone());
    rule
}

pub fn get(key: &str) -> Request {
    Request::get("/").header("x-key", key)
}

/// With a request to the authority each time, two proxies allow exactly what one limiter would, and
/// the authority's own callers share that count.
pub fn check_exact(kind: Kind) {
    const LIMIT: u64 = 300;
    let policy = policy(&json!([each(LIMIT, "366d", &json!({"lease": 0}))]));
    let authority = kind.start(&policy);
    let envoys: Vec<Envoy> = (0..2).map(|_| envoy(&policy, authority.port(), &json!({}))).collect();
    let (admitted, denied) = (AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        for envoy in envoys.iter().cycle().take(8) {
            let (admitted, denied) = (&admitted, &denied);
            scope.spawn(move || {
                let mut client = envoy.client();
                for _ in 0..100 {
                    match client.send(&get("a")).status {
                        200 => admitted.fetch_add(1, Ordering::Relaxed),
                        429 => denied.fetch_add(1, Ordering::Relaxed),
                        other => panic!("{other}"),
                    };
                }
            });
        }
    });
    assert_eq!(admitted.load(Ordering::Relaxed), LIMIT);
    assert_eq!(denied.load(Ordering::Relaxed), 800 - LIMIT);
    let described = json!({"method": "GET", "path": "/", "headers": {"x-key": "a"}});
    let check = Request::post("/check", described.to_string());
    let check = check.header("authorization", format!("Bearer {CHECK_TOKEN}"));
    assert_eq!(answer(&authority.client().send(&check))["decision"], "deny");
    for envoy in &envoys {
        assert_eq!(fleet_stat(envoy, "failed"), 0);
        assert_eq!(fleet_stat(envoy, "paused"), 0);
    }
}

/// The limit per second, and at once: so small that even a busy machine sends far more, and the
/// burst bridges a stall of one second. Smaller bursts are not paced.
pub const RATE: u64 = 100;
pub const BURST: u64 = 100;

/// A rule of that rate.
pub fn rated(more: &Value) -> Value {
    let mut rule = each(RATE, "1s", more);
    rule["quotas"] = json!([{"limit": RATE, "window": "1s", "burst": BURST}]);
    rule
}

/// The number of clients: a request that finds no unit in hand waits for one request to the
/// authority together with all others of its worker, so a few clients would send no more than the
/// authority handles.
const CLIENTS: usize = 16;

/// Sends requests from [`CLIENTS`] until `is_over`; returns how many were allowed, and sent.
/// `others` are further statuses that may occur.
pub fn load(envoys: &[Envoy], is_over: &AtomicBool, others: &[u16]) -> (u64, u64) {
    let (admitted, sent) = (AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        for envoy in envoys.iter().cycle().take(CLIENTS) {
            let (admitted, sent) = (&admitted, &sent);
            scope.spawn(move || {
                let mut client = envoy.client();
                while !is_over.load(Ordering::Relaxed) {
                    // An Envoy that was killed sends nothing more.
                    let Ok(answer) = client.try_send(&get("a")) else { return };
                    let status = answer.status;
                    assert!([200, 429].contains(&status) || others.contains(&status), "{status}");
                    admitted.fetch_add((status == 200).into(), Ordering::Relaxed);
                    sent.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    (admitted.load(Ordering::Relaxed), sent.load(Ordering::Relaxed))
}

/// Waits until every Envoy has leased.
pub fn wait_for_grants(envoys: &[Envoy]) {
    wait_until("a lease is granted", SOON, || {
        for envoy in envoys {
            // The burst must be restored first: while others have used it up, no node is leased
            // units.
            thread::sleep(Duration::from_millis(1_000 * BURST / RATE + 100));
            let mut client = envoy.client();
            (0..40).for_each(|_| drop(client.send(&get("a"))));
        }
        envoys.iter().all(|envoy| fleet_stat(envoy, "granted") > 0).then_some(())
    });
}

/// With leases two proxies allow the limit and no more, and they send few requests to the
/// authority.
pub fn check_leased(kind: Kind) {
    let policy = policy(&json!([rated(&json!({}))]));
    let authority = kind.start(&policy);
    let envoys: Vec<Envoy> = (0..2).map(|_| envoy(&policy, authority.port(), &json!({}))).collect();
    wait_for_grants(&envoys);
    // A busy machine may send too little for an overload, or stall: then try again.
    let is_served = (0..5).any(|_| measured(kind, &envoys).is_served());
    assert!(is_served, "five times too little was sent or admitted, or too much asked");
    for envoy in &envoys {
        assert_eq!(fleet_stat(envoy, "failed"), 0);
        wait_until("nobody waits", SOON, || (fleet_stat(envoy, "paused") == 0).then_some(()));
    }
}

/// The result of a load.
#[derive(Debug)]
struct Load {
    sent: u64,
    admitted: u64,
    limit: u64,
    questions: u64,
}

impl Load {
    /// Whether it was an overload that got nearly the whole limit, with few requests to the
    /// authority.
    fn is_served(&self) -> bool {
        // Under overload a node sends a request when its share is worth about ten requests.
        self.sent >= 2 * self.admitted
            // Leases that expire unspent would be a quarter of the limit.
            && self.admitted * 100 >= self.limit * 85
            && self.questions * 10 <= self.sent
    }
}

/// Eight seconds of load by [`CLIENTS`]: never above the bound.
fn measured(kind: Kind, envoys: &[Envoy]) -> Load {
    let asked = || envoys.iter().map(|envoy| fleet_stat(envoy, "asked")).sum::<u64>();
    let (before, is_over) = (asked(), AtomicBool::new(false));
    let began = Instant::now();
    let (admitted, sent) = thread::scope(|scope| {
        let running = scope.spawn(|| load(envoys, &is_over, &[]));
        thread::sleep(Duration::from_secs(8));
        is_over.store(true, Ordering::Relaxed);
        running.join().expect("the load ends")
    });
    let limit = limit_since(began);
    let measured = Load { sent, admitted, limit, questions: asked() - before };
    println!("{kind:?}, and a burst of {BURST}: {measured:?}");
    assert!(admitted <= limit + BURST + 1, "{measured:?}");
    measured
}

/// The most that one limiter allows from then on, without its burst.
pub fn limit_since(began: Instant) -> u64 {
    let lasted = u64::try_from(began.elapsed().as_millis()).expect("a short time");
    RATE * lasted / 1_000
}
