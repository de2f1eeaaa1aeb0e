//! Limits on requests in flight in a real Envoy: how many run at once, and that each ends once.

use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use tollgate_e2e::crowd::{End, Fate, Member, gather};
use tollgate_e2e::http::{Client, Request};
use tollgate_e2e::login::Login;
use tollgate_e2e::process::{READY_WITHIN, wait_until};

use crate::envoy_server::{As, Envoy, Listener, Setup, tollgate};

const LIMIT: usize = 10;
const QUOTA: u64 = 1_000_000;
/// Requests, most of them multiplexed on connections of HTTP/2.
const STREAMS: u64 = 5_000;

fn policy(limit: usize, max_age: &str) -> Value {
    json!({"version": 1, "rules": [{
        "name": "each",
        "key": [{"header": "x-user"}],
        "quotas": [{"limit": QUOTA, "window": "1d", "algorithm": "fixed-window"}],
        "concurrency": {"limit": limit, "max_age": max_age},
        "action": {"deny": {"status": 403}},
    }]})
}

fn listener(policy: &Value) -> Listener {
    Listener::new("main", vec![tollgate(policy, "vm", As::Text)]).behind_origin()
}

fn start(workers: u32, policy: &Value, login: &Login) -> Envoy {
    let mut setup = Setup::new(workers, vec![listener(policy)]);
    setup.origin = login.port;
    setup.start()
}

fn of(user: &str) -> Request {
    Request::get("/200").header("x-user", user)
}

/// Sends a request on each of `clients` at once, while the origin holds its responses, until this
/// many have reached it and all others are denied.
fn fill(clients: &mut [Client], login: &Login, user: &str, arrive: usize) {
    let (before, count) = (login.arrived(), clients.len());
    login.hold(true);
    for client in clients.iter_mut() {
        client.start(&of(user)).expect("taken");
    }
    wait_until("each is held or denied", READY_WITHIN, || {
        let denied = clients.iter_mut().filter(|client| client.has_answer()).count();
        (login.arrived() - before + denied == count).then_some(())
    });
    assert_eq!(login.arrived() - before, arrive, "of {count}");
}

fn finish(clients: &mut [Client], login: &Login) -> Vec<u16> {
    login.hold(false);
    clients.iter_mut().map(|client| client.finish(false).expect("an answer").status).collect()
}

/// The units of the quota that remain after one more request.
fn left(envoy: &Envoy, user: &str) -> u64 {
    let answer = envoy.client().send(&of(user));
    let field = answer.header("ratelimit").expect("the field");
    let rest = field.split(";r=").nth(1).and_then(|rest| rest.split(';').next());
    rest.and_then(|rest| rest.parse().ok()).expect("a number")
}

// Guards: one more than the limit at the same time, on any number of workers and over any protocol;
// a place that is lost with a client that leaves, or freed twice; and a quota that a request is
// charged to which found no place.
#[test]
fn no_more_than_the_limit_run_at_once_and_every_end_frees_one() {
    for workers in [1, 2, 4, 8] {
        let login = Login::start();
        let envoy = start(workers, &policy(LIMIT, "60s"), &login);
        let mut clients = envoy.clients(60);
        fill(&mut clients, &login, "u", LIMIT);
        let statuses = finish(&mut clients, &login);
        assert_eq!(statuses.iter().filter(|status| **status == 403).count(), 60 - LIMIT);

        let leaves = |i: u64| match i % 4 {
            0 => Fate::LeavesAfter(Duration::from_millis(i % 1_000)),
            _ => Fate::Stays,
        };
        let request = std::sync::Arc::new(of("u"));
        let member = |i: u64| Member {
            request: std::sync::Arc::clone(&request),
            is_http2: !i.is_multiple_of(25),
            fate: leaves(i),
        };
        let ends = gather(envoy.ports[0], (0..STREAMS).map(member).collect(), READY_WITHIN);
        for end in &ends {
            assert!(matches!(end, End::Answer(200 | 403) | End::Left), "{end:?}");
        }
        assert!(login.most_at_once() <= LIMIT, "{} at once", login.most_at_once());

        // Also of clients that left while their request was on its way to the origin.
        wait_until("every place is free", READY_WITHIN, || {
            let before = login.arrived();
            login.hold(true);
            let mut clients = envoy.clients(LIMIT);
            clients.iter_mut().for_each(|client| client.start(&of("u")).expect("taken"));
            wait_until("each is held or denied", READY_WITHIN, || {
                let denied = clients.iter_mut().filter(|client| client.has_answer()).count();
                (login.arrived() - before + denied == LIMIT).then_some(())
            });
            let arrived = login.arrived() - before;
            finish(&mut clients, &login);
            (arrived == LIMIT).then_some(())
        });
        let charged = u64::try_from(login.arrived()).expect("a number");
        let left = left(&envoy, "u");
        // A client that left before its request reached the origin was charged, too.
        let spent = QUOTA - left;
        assert!(spent > charged && spent <= charged + STREAMS / 4 + 1, "{spent}, {charged}");
        assert_eq!(envoy.stat("wasmcustom.tollgate.failures"), 0);
        assert_eq!(envoy.stat("wasmcustom.tollgate.in_flight_late"), 0);
    }
}

#[test]
fn a_client_reads_how_many_may_run_and_no_time() {
    let login = Login::start();
    let envoy = start(1, &policy(2, "60s"), &login);
    let answer = envoy.client().send(&of("u"));
    let policies = answer.header("ratelimit-policy").expect("the field");
    let own = r#""each.concurrency";q=2;qu="concurrent-requests""#;
    assert_eq!(policies, format!(r#""each";q=1000000;w=86400, {own}"#));
    let field = answer.header("ratelimit").expect("the field");
    assert!(field.ends_with(r#", "each.concurrency";r=1"#), "{field}");
    let mut clients = envoy.clients(2);
    fill(&mut clients, &login, "u", 2);
    let denied = envoy.client().send(&of("u"));
    assert_eq!((denied.status, denied.header("retry-after")), (403, None));
    let body: Value = serde_json::from_slice(&denied.body).expect("a problem");
    assert_eq!(body["violated-policies"], json!(["each.concurrency"]));
    let detail = "too many requests at the same time; try again when one of them has ended";
    assert_eq!(body["detail"], detail);
    finish(&mut clients, &login);
}

// Guards: streams that outlive `max_age` and are forgotten, so that more than the limit run.
#[test]
fn a_request_is_counted_for_as_long_as_it_runs() {
    let login = Login::start();
    let envoy = start(2, &policy(2, "4s"), &login);
    let mut clients = envoy.clients(2);
    fill(&mut clients, &login, "u", 2);
    thread::sleep(Duration::from_millis(6_500));
    assert_eq!(envoy.client().send(&of("u")).status, 403, "both still run");
    assert_eq!(finish(&mut clients, &login), [200, 200]);
    assert_eq!(envoy.stat("wasmcustom.tollgate.in_flight_late"), 0);
    wait_until("both have ended", READY_WITHIN, || {
        (envoy.client().send(&of("u")).status == 200).then_some(())
    });
}

// Guards: requests in flight that a new configuration forgets, or that it cannot release.
#[test]
fn another_limit_keeps_what_runs() {
    let login = Login::start();
    let mut setup = Setup::new(2, vec![listener(&policy(2, "60s"))]);
    (setup.origin, setup.dynamic, setup.drain_s) = (login.port, true, 60);
    let port = setup.listeners[0].port;
    let mut envoy = setup.start();
    let mut before = envoy.clients(4);
    fill(&mut before, &login, "u", 2);
    let mut next = policy(5, "60s");
    let probe = json!({"name": "probe", "deny": true, "when": {"headers": {"x-user": "probe"}}});
    next["rules"].as_array_mut().expect("rules").push(probe);
    assert!(envoy.replace_listeners(&[Listener { port, ..listener(&next) }]));
    wait_until("the new policy is in force", READY_WITHIN, || {
        let mut client = envoy.client();
        client.start(&of("probe")).expect("taken");
        thread::sleep(Duration::from_millis(50));
        client.has_answer().then_some(()) // the origin holds all others
    });
    let mut after = envoy.clients(6);
    fill(&mut after, &login, "u", 3);
    finish(&mut before, &login);
    finish(&mut after, &login);
    let mut clients = envoy.clients(8);
    fill(&mut clients, &login, "u", 5);
    finish(&mut clients, &login);
    assert_eq!(envoy.stat("wasmcustom.tollgate.failures"), 0);
}

// Guards: more than the limit at the origin, a request that overtakes another one or is forgotten,
// and a quota that is charged while its request waits.
#[test]
fn requests_wait_for_a_place_in_order() {
    const CROWD: usize = 8;
    for (workers, limit) in [(1, 1), (1, 2), (2, 2)] {
        let login = Login::start();
        let mut policy = policy(limit, "60s");
        policy["rules"][0]["action"] = json!({"delay": {"max": "60s"}});
        let envoy = start(workers, &policy, &login);
        let mut clients = envoy.clients(CROWD);
        for (who, client) in clients.iter_mut().enumerate() {
            let request = of("u").header("x-who", who.to_string()).header("x-pause-ms", "200");
            client.start(&request).expect("taken");
            wait_until("it runs or waits", READY_WITHIN, || {
                let waiting = envoy.stat("wasmcustom.tollgate.waiting");
                let waiting = usize::try_from(waiting).expect("a few");
                (login.arrived() + waiting > who).then_some(())
            });
        }
        assert_eq!(finish(&mut clients, &login), [200; CROWD], "{workers} workers");
        assert!(login.most_at_once() <= limit, "{} at once", login.most_at_once());
        let mut order = login.order();
        if (workers, limit) != (1, 1) {
            order.sort_unstable(); // of two that run, either reaches the origin first
        }
        assert_eq!(order, (0..CROWD).map(|who| who.to_string()).collect::<Vec<_>>());
        let charged = u64::try_from(CROWD + 1).expect("a few");
        assert_eq!(left(&envoy, "u"), QUOTA - charged, "each is charged once");
        assert_eq!(envoy.stat("wasmcustom.tollgate.failures"), 0);
    }
}

// Guards: a place that a client takes which left while it waited.
#[test]
fn a_client_that_leaves_while_it_waits_takes_no_place() {
    let login = Login::start();
    let mut policy = policy(1, "60s");
    policy["rules"][0]["action"] = json!({"delay": {"max": "60s"}});
    let envoy = start(1, &policy, &login);
    login.hold(true);
    let mut clients = envoy.clients(4);
    let waits_for = |waiting: u64| {
        wait_until("they wait", READY_WITHIN, || {
            (envoy.stat("wasmcustom.tollgate.waiting") == waiting).then_some(())
        });
    };
    for (who, client) in clients.iter_mut().enumerate() {
        client.start(&of("u").header("x-who", who.to_string())).expect("taken");
        waits_for(who as u64);
    }
    drop(clients.remove(1));
    waits_for(2);
    assert_eq!(finish(&mut clients, &login), [200; 3]);
    assert_eq!(login.order(), ["0", "2", "3"]);
}
