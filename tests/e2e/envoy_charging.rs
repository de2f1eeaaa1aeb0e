//! Charging by the response in a real Envoy: clients that do not wait for it, and many at once.

use serde_json::{Value, json};
use tollgate_e2e::http::{Client, Request};
use tollgate_e2e::login::Login;
use tollgate_e2e::process::{READY_WITHIN, wait_until};

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
