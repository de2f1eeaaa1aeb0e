//! Charging by the response in a real Envoy: clients that do not wait for it, and many at once.

use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use tollgate_e2e::http::{Client, Request};
use tollgate_e2e::login::Login;
use tollgate_e2e::process::{READY_WITHIN, TempDir, wait_until};

use crate::envoy_server::{As, Envoy, Listener, Setup, tollgate};

/// This number of failed logins of one user in 15 minutes.
fn start(limit: u32, charge: &Value, login: &Login) -> Envoy {
    let mut charging = json!({"response_status": ["401", "403"]});
    let more = charge.as_object().expect("fields").clone();
    charging.as_object_mut().expect("an object").extend(more);
    let policy = json!({"version": 1, "rules": [{
        "name": "login",
        "key": [{"header": "x-user"}],
        "charge": charging,
        "quotas": [{"limit": limit, "window": "15m", "algorithm": "sliding-log"}],
    }]});
    let filters = vec![tollgate(&policy, "vm", As::Text)];
    let mut setup = Setup::new(2, vec![Listener::new("main", filters).behind_origin()]);
    setup.origin = login.port;
    setup.start()
}

fn of(user: &str, target: &str) -> Request {
    Request::post(target, "a password").header("x-user", user)
}

/// Sends `count` requests one after the other, each of whose clients disconnects when the origin
/// has it; returns how many were denied instead.
fn abandon(envoy: &Envoy, login: &Login, user: &str, count: usize) -> usize {
    login.hold(true);
    let mut refused = 0;
    for _ in 0..count {
        let (arrived, left) = (login.arrived(), login.left());
        let mut client = envoy.client();
        client.start(&of(user, "/401")).expect("taken");
        let is_refused = wait_until("the origin or a refusal", READY_WITHIN, || {
            (login.arrived() > arrived).then_some(false).or(client.has_answer().then_some(true))
        });
        if is_refused {
            assert_eq!(client.finish(false).expect("an answer").status, 429);
            refused += 1;
        } else {
            drop(client);
            // Envoy ends the filter's stream before it cancels the request to the origin.
            wait_until("the request is taken away", READY_WITHIN, || {
                (login.left() > left).then_some(())
            });
        }
    }
    login.hold(false);
    refused
}

// Guards: work that the origin does for clients that have left, as often as a client disconnects:
// 20 of 20 under a limit of 2.
#[test]
fn a_client_that_leaves_before_the_response_is_charged() {
    for (charge, reached) in [
        (json!({}), 2),
        (json!({"on_abort": "charge"}), 2),
        (json!({"reserve": true}), 2),
        (json!({"on_abort": "skip"}), 20),
        (json!({"reserve": true, "on_abort": "skip"}), 20),
    ] {
        let login = Login::start();
        let envoy = start(2, &charge, &login);
        assert_eq!(abandon(&envoy, &login, "u", 20), 20 - reached, "{charge}");
        assert_eq!(login.arrived(), reached, "{charge}");
        let next = envoy.client().send(&of("u", "/200")).status;
        assert_eq!(next, if reached == 2 { 429 } else { 200 }, "{charge}");
        assert_eq!(envoy.client().send(&of("v", "/200")).status, 200, "{charge}");
        assert_eq!(envoy.stat("wasmcustom.tollgate.failures"), 0);
    }
}

/// Sends one request on each of `clients` at once, and counts the responses while the origin holds
/// its own.
fn at_once(clients: &mut [Client], request: &Request, until: impl Fn(usize) -> bool) {
    for client in clients.iter_mut() {
        client.start(request).expect("taken");
    }
    wait_until("all are answered or held", READY_WITHIN, || {
        let answered = clients.iter_mut().filter(|client| client.has_answer()).count();
        until(answered).then_some(())
    });
}

// Guards: passwords guessed in parallel. With a held place exactly the limit reaches the origin,
// without one all do.
#[test]
fn parallel_guesses_are_bounded_by_held_places() {
    const GUESSES: usize = 1000;
    for (charge, reached) in [(json!({"reserve": true}), 5), (json!({}), GUESSES)] {
        let login = Login::start();
        let envoy = start(5, &charge, &login);
        let mut clients = envoy.clients(GUESSES);
        login.hold(true);
        at_once(&mut clients, &of("u", "/401"), |answered| {
            answered == GUESSES - reached && login.arrived() == reached
        });
        login.hold(false);
        let mut statuses = [0, 0];
        for client in &mut clients {
            let status = client.finish(false).expect("answered").status;
            statuses[usize::from(status == 429)] += 1;
            assert!([401, 429].contains(&status), "{status}");
        }
        assert_eq!((statuses, login.arrived()), ([reached, GUESSES - reached], reached));
        assert_eq!(envoy.client().send(&of("u", "/200")).status, 429, "they are used up");
        assert_eq!(envoy.client().send(&of("v", "/200")).status, 200);
    }
}

// Guards: users locked out by their own successes: every place is returned, on any worker, and none
// twice.
#[test]
fn every_place_of_a_success_comes_back() {
    let login = Login::start();
    let envoy = start(5, &json!({"reserve": true}), &login);
    let mut waiting = envoy.clients(300);
    let mut rounds = 0;
    while !waiting.is_empty() && rounds < 1000 {
        rounds += 1;
        for client in &mut waiting {
            client.start(&of("u", "/200")).expect("taken");
        }
        waiting.retain_mut(|client| {
            let status = client.finish(false).expect("answered").status;
            assert!([200, 429].contains(&status), "{status}");
            status == 429
        });
    }
    assert_eq!((waiting.len(), login.arrived()), (0, 300), "after {rounds} rounds");
    assert!(login.most_at_once() <= 5, "{} at once", login.most_at_once());
    // The count is fresh: five places, and not a sixth.
    login.hold(true);
    let mut clients = envoy.clients(20);
    at_once(&mut clients, &of("u", "/200"), |answered| answered == 15 && login.arrived() == 305);
    login.hold(false);
    assert_eq!(envoy.stat("wasmcustom.tollgate.failures"), 0);
}

/// 100 units of each user; a request is estimated at 10, and its response shows what it used.
fn budget() -> Value {
    json!({"version": 1, "rules": [{
        "name": "tokens",
        "key": [{"header": "x-user"}],
        "cost": {"estimate": 10, "max": 60, "actual": {"header": "x-tokens"},
                 "on_status": {"5xx": 0}, "unit": "tokens"},
        "quotas": [{"limit": 100, "window": "366d", "algorithm": "fixed-window"}],
    }]})
}

/// The units that are left to a user after the estimate of one more request.
fn left(envoy: &Envoy, user: &str) -> Option<u64> {
    let answer = envoy.client().send(&of(user, "/200").header("x-show", "0"));
    let policy = answer.header("ratelimit-policy").expect("the field");
    assert_eq!(policy, r#""tokens";q=100;qu="tokens";w=31622400"#);
    let field = answer.header("ratelimit").expect("the field");
    let rest = field.split(";r=").nth(1).and_then(|rest| rest.split(';').next());
    (answer.status == 200).then(|| rest.and_then(|rest| rest.parse().ok()).expect("a number"))
}

// Guards: budgets that count estimates, that forget what a response used beyond them, or that
// believe two lines of which the first is small.
#[test]
fn a_response_settles_the_cost_that_it_shows() {
    let dir = TempDir::new("costs");
    let log = dir.path().join("access.log");
    let login = Login::start();
    let mut listener =
        Listener::new("main", vec![tollgate(&budget(), "vm", As::Text)]).behind_origin();
    listener.manager = json!({"access_log": [{
        "name": "costs",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog",
            "path": log,
            "log_format": {"text_format_source": {"inline_string":
                "%REQ(x-user)% %FILTER_STATE(wasm.tollgate_cost:PLAIN)%\n"}},
        },
    }]});
    let mut setup = Setup::new(2, vec![listener]);
    setup.origin = login.port;
    let envoy = setup.start();
    let shows: [(&str, &str, &[&str], u64, &str); 8] = [
        ("less", "/200", &["4"], 86, "4"),
        ("same", "/404", &["10"], 80, "10"),
        ("more", "/200", &["60"], 30, "60"),
        ("huge", "/200", &["999999999999999999999"], 30, "60"),
        ("none", "/200", &[], 80, "absent"),
        ("text", "/200", &["4.5"], 80, "unreadable"),
        ("twice", "/200", &["1", "2"], 80, "conflicting"),
        ("failed", "/503", &["60"], 90, "0"),
    ];
    for (user, target, costs, rest, _) in shows {
        let request = costs.iter().fold(of(user, target), |it, cost| it.header("x-show", cost));
        envoy.client().send(&request);
        assert_eq!(left(&envoy, user), Some(rest), "{user}");
    }
    // Use above the estimate is recorded although it does not fit: the next request waits.
    envoy.client().send(&of("more", "/200").header("x-show", "60"));
    assert_eq!(left(&envoy, "more"), None);
    assert_eq!(abandon(&envoy, &login, "leaves", 1), 0);
    assert_eq!(left(&envoy, "leaves"), Some(80), "a request without a response keeps its estimate");
    // Envoy writes its log every ten seconds.
    wait_until("the log is written", READY_WITHIN, || {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        let mut lines = shows.iter().map(|(user, .., actual)| {
            let difference = actual.parse().map(|it: i64| format!(" difference={}", it - 10));
            let difference = difference.unwrap_or_default();
            format!("{user} rule=tokens estimate=10 actual={actual}{difference}\n")
        });
        lines.all(|line| text.contains(&line)).then_some(())
    });
    let units = |of: &str| envoy.shown(&format!("wasmcustom.tollgate.cost_units.of={of}"));
    wait_until("the units are counted", READY_WITHIN, || (units("estimate") >= 190).then_some(()));
    assert_eq!((units("estimate"), units("final")), (190, 234));
    for reason in ["absent", "unreadable", "conflicting", "no_response"] {
        let name = format!("wasmcustom.tollgate.cost_unknown.reason={reason}");
        assert_eq!(envoy.shown(&name), 1, "{reason}");
    }
    assert_eq!(envoy.stat("wasmcustom.tollgate.failures"), 0);
}

// Guards: budgets that a client overdraws by sending all at once: the estimates of requests in
// flight count, on any worker, and come back when responses show less.
#[test]
fn estimates_in_flight_are_at_most_the_limit() {
    let login = Login::start();
    let mut listener = Listener::new("main", vec![tollgate(&budget(), "vm", As::Text)]);
    listener = listener.behind_origin();
    let mut setup = Setup::new(2, vec![listener]);
    setup.origin = login.port;
    let envoy = setup.start();
    let mut clients = envoy.clients(100);
    login.hold(true);
    let request = of("u", "/200").header("x-show", "1");
    at_once(&mut clients, &request, |answered| answered == 90 && login.arrived() == 10);
    login.hold(false);
    let statuses = clients.iter_mut().map(|client| client.finish(false).expect("answered").status);
    assert_eq!(statuses.filter(|status| *status == 200).count(), 10);
    assert_eq!(left(&envoy, "u"), Some(80), "ten responses used one unit each");
    assert_eq!(envoy.stat("wasmcustom.tollgate.failures"), 0);
}

/// 1,000,000 units of each user, counted by what the end of the response shows.
fn at_the_end(name: &str, actual: &Value) -> Value {
    json!({
        "name": name,
        "when": {"paths": [format!("/200/{name}")]},
        "key": [{"header": "x-user"}],
        "cost": {"estimate": 10, "max": 500_000, "actual": actual},
        "quotas": [{"limit": 1_000_000, "window": "366d", "algorithm": "fixed-window"}],
    })
}

// Guards: costs that are read before the response has them: metadata of filters behind this one,
// the bytes that a client got, the time that it took.
#[test]
fn the_end_of_a_response_settles_the_cost_that_it_shows() {
    const HELD: Duration = Duration::from_millis(60);
    let policy = json!({"version": 1, "rules": [
        at_the_end("metadata", &json!({"metadata": ["ai", "total"]})),
        at_the_end("bytes", &json!({"bytes_per": 10})),
        at_the_end("duration", &json!("duration")),
    ]});
    let metadata = json!({
        "name": "envoy.filters.http.header_to_metadata",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.header_to_metadata.v3.Config",
            "response_rules": [{
                "header": "x-tokens",
                "on_header_present": {"metadata_namespace": "ai", "key": "total", "type": "NUMBER"},
            }],
        },
    });
    let login = Login::start();
    let filters = vec![tollgate(&policy, "vm", As::Text), metadata];
    let mut setup = Setup::new(2, vec![Listener::new("main", filters).behind_origin()]);
    setup.origin = login.port;
    let envoy = setup.start();
    let units = |of: &str| envoy.shown(&format!("wasmcustom.tollgate.cost_units.of={of}"));
    // The end comes after the client has the response, and counters are written by a timer.
    let used = |requests: u64| {
        wait_until("the responses are settled", READY_WITHIN, || {
            (units("estimate") == 10 * requests).then_some(())
        });
        units("final")
    };
    let send = |name: &str, more: (&str, &str)| {
        let request = of("u", &format!("/200/{name}")).header(more.0, more.1);
        assert_eq!(envoy.client().send(&request).status, 200);
    };
    send("metadata", ("x-show", "1500"));
    assert_eq!(used(1), 1500);
    send("bytes", ("x-size", "70001"));
    assert_eq!(used(2), 1500 + 7001);
    // A client that leaves after the head pays for what was sent until then.
    let mut client = envoy.client();
    client
        .start(&of("u", "/200/bytes").header("x-size", "300").header("x-stop", "200"))
        .expect("taken");
    wait_until("the head is there", READY_WITHIN, || client.has_answer().then_some(()));
    drop(client);
    let before = used(3);
    assert!((1500 + 7001..=1500 + 7001 + 20).contains(&before), "{before}");
    let mut client = envoy.client();
    login.hold(true);
    let arrived = login.arrived();
    client.start(&of("u", "/200/duration")).expect("taken");
    wait_until("it is held", READY_WITHIN, || (login.arrived() > arrived).then_some(()));
    thread::sleep(HELD);
    login.hold(false);
    assert_eq!(client.finish(false).expect("answered").status, 200);
    assert!(used(4) >= before + 60, "the time that the origin took is used");
    for reason in ["absent", "unreadable", "conflicting", "no_response"] {
        let name = format!("wasmcustom.tollgate.cost_unknown.reason={reason}");
        assert_eq!(envoy.shown(&name), 0, "{reason}");
    }
    // The count of the key is what the metrics show.
    let answer = envoy.client().send(&of("u", "/200/metadata").header("x-show", "0"));
    let field = answer.header("ratelimit").expect("the field");
    assert!(field.contains("\"metadata\";r=998490"), "{field}");
    assert_eq!(envoy.stat("wasmcustom.tollgate.failures"), 0);
}
