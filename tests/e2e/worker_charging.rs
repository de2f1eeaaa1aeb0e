//! Charging by the response in front of an origin: clients that do not wait for it, and many at
//! once.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use tollgate_e2e::http::{Client, Request};
use tollgate_e2e::login::Login;
use tollgate_e2e::process::{READY_WITHIN, wait_until};
use tollgate_e2e::workerd::{Setup, Workerd};

use crate::worker_origin::serve;

/// Longer than the Worker waits for a client that breaks off.
const ENOUGH: Duration = Duration::from_secs(30);

/// This number of failed logins of one client in a year.
fn policy(limit: u32, charge: &Value) -> Value {
    let mut charging = json!({"response_status": ["401", "403"]});
    let more = charge.as_object().expect("fields").clone();
    charging.as_object_mut().expect("an object").extend(more);
    json!({"version": 1, "rules": [{
        "name": "login",
        "key": [{"header": "x-user"}],
        "charge": charging,
        "quotas": [{"limit": limit, "window": "366d", "algorithm": "sliding-log"}],
    }]})
}

fn start(limit: u32, charge: &Value, login: &Login) -> Workerd {
    let origin = format!("http://127.0.0.1:{}", login.port);
    Setup::new(policy(limit, charge)).binding("ORIGIN", origin).start()
}

fn of(user: &str, target: &str) -> Request {
    Request::post(target, "a password").header("x-user", user)
}

/// Starts a request on each of `clients`, and waits until each has a response or is at the origin.
fn at_once(clients: &mut [Client], request: &Request, login: &Login, reached: usize) {
    let (before, refused) = (login.arrived(), clients.len() - reached);
    for client in clients.iter_mut() {
        client.start(request).expect("taken");
    }
    wait_until("all are refused or held", READY_WITHIN, || {
        let answered = clients.iter_mut().filter(|client| client.has_answer()).count();
        (answered == refused && login.arrived() - before == reached).then_some(())
    });
}

/// The number of responses with each of two statuses.
fn answers(clients: &mut [Client], statuses: [u16; 2]) -> [usize; 2] {
    let mut counts = [0, 0];
    for client in clients {
        let status = client.finish(false).expect("answered").status;
        let place = statuses.iter().position(|of| *of == status);
        counts[place.unwrap_or_else(|| panic!("{status}"))] += 1;
    }
    counts
}

// Guards: passwords guessed in parallel. With a held place exactly the limit reaches the origin,
// without one all do.
#[test]
fn parallel_guesses_are_bounded_by_held_places() {
    const GUESSES: usize = 1000;
    let login = Login::start();
    let worker = start(5, &json!({"reserve": true}), &login);
    let connect = |count: usize| -> Vec<Client> { (0..count).map(|_| worker.client()).collect() };
    let mut clients = connect(GUESSES);
    login.hold(true);
    at_once(&mut clients, &of("u", "/401"), &login, 5);
    login.hold(false);
    assert_eq!(answers(&mut clients, [401, 429]), [5, GUESSES - 5]);
    assert_eq!(worker.client().send(&of("u", "/200")).status, 429, "they are used up");

    // Successes return their places, all of them and none twice.
    let mut waiting = connect(100);
    let mut rounds = 0;
    while !waiting.is_empty() && rounds < 100 {
        rounds += 1;
        waiting.iter_mut().for_each(|client| client.start(&of("v", "/200")).expect("taken"));
        waiting.retain_mut(|client| {
            let status = client.finish(false).expect("answered").status;
            assert!([200, 429].contains(&status), "{status}");
            status == 429
        });
    }
    assert_eq!((waiting.len(), login.arrived()), (0, 105), "after {rounds} rounds");
    assert!(login.most_at_once() <= 5, "{} at once", login.most_at_once());
    let mut clients = connect(20);
    login.hold(true);
    at_once(&mut clients, &of("v", "/200"), &login, 5);
    login.hold(false);
    assert_eq!(answers(&mut clients, [200, 429]), [5, 15]);
}

#[test]
fn without_a_held_place_all_under_way_pass() {
    let login = Login::start();
    let worker = start(5, &json!({}), &login);
    let mut clients: Vec<Client> = (0..100).map(|_| worker.client()).collect();
    login.hold(true);
    at_once(&mut clients, &of("u", "/401"), &login, 100);
    login.hold(false);
    assert_eq!(answers(&mut clients, [401, 429]), [100, 0]);
    assert_eq!(worker.client().send(&of("u", "/200")).status, 429, "used up as it is");
}

// Guards: work that the origin does for a client that does not wait for it: it is charged by the
// status all the same, and a success is not, whatever the policy's setting for clients that leave.
#[test]
fn a_client_that_leaves_is_charged_by_the_origins_status() {
    for charge in [json!({}), json!({"reserve": true}), json!({"on_abort": "skip"})] {
        let login = Login::start();
        let worker = start(2, &charge, &login);
        for (round, target) in ["/200", "/200", "/200", "/401", "/401"].into_iter().enumerate() {
            login.hold(true);
            let arrived = login.arrived();
            let mut client = worker.client();
            client.start(&of("u", target)).expect("taken");
            wait_until("the origin has it", READY_WITHIN, || {
                (login.arrived() > arrived).then_some(())
            });
            drop(client);
            // For half of them the response comes before the disconnect is noticed.
            if round % 2 == 0 {
                std::thread::sleep(std::time::Duration::from_millis(200));
            }
            login.hold(false);
            // The settlement comes after the response: the next one waits until there is room
            // again.
            let left = if target == "/200" { 2 } else { 4 - round };
            wait_until("it is settled", READY_WITHIN, || {
                let answer = worker.client().send(&Request::get("/404").header("x-user", "u"));
                let field = answer.header("ratelimit").expect("the field");
                let places = if charge["reserve"] == true { left.saturating_sub(1) } else { left };
                let wanted = if left == 0 {
                    answer.status == 429
                } else {
                    field.contains(&format!(";r={places};"))
                };
                wanted.then_some(())
            });
        }
        assert_eq!(worker.client().send(&of("u", "/200")).status, 429, "{charge}");
        assert_eq!(login.left(), 0, "{charge}: the origin was let finish");
    }
}

// Guards: an upload that its client breaks off after the origin has begun. The origin's response is
// lost, which the runtime reports like an origin that is down.
#[test]
fn a_client_that_breaks_its_body_off_is_charged() {
    let skip = json!({"reserve": true, "on_abort": "skip"});
    for (charge, left) in [(json!({}), 0), (json!({"reserve": true}), 0), (skip, 2)] {
        for framing in
            ["content-length: 10\r\n\r\nabc", "transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n"]
        {
            let (begun, arrived) = mpsc::channel();
            let origin = serve(move |received| {
                if received.method == "GET" {
                    return received.answer("404 Not Found", "", "");
                }
                begun.send(()).expect("the test waits");
                thread::sleep(ENOUGH); // it has enough to work on, and is slow
            });
            let worker = Setup::new(policy(2, &charge)).binding("ORIGIN", origin).start();
            for _ in 0..2 {
                let mut client = TcpStream::connect(("127.0.0.1", worker.port)).expect("taken");
                let head = format!("POST /401 HTTP/1.1\r\nhost: a\r\nx-user: u\r\n{framing}");
                client.write_all(head.as_bytes()).expect("sent");
                arrived.recv_timeout(READY_WITHIN).expect("the origin has it");
            }
            wait_until("both are settled", READY_WITHIN, || {
                let answer = worker.client().send(&Request::get("/").header("x-user", "u"));
                let field = answer.header("ratelimit").expect("the field");
                // This request holds a place itself.
                let is_back = answer.status == 404 && field.contains(";r=1;");
                (if left == 0 { answer.status == 429 } else { is_back }).then_some(())
            });
        }
    }
}

// Guards: the same failure the other way round. An origin that disconnects in the middle of an
// upload is a 502, however much of the body is in flight: its clients are not charged as if they
// had left.
#[test]
fn an_origin_that_leaves_in_an_upload_is_no_client_that_left() {
    for length in [10, 10_000_000] {
        let origin = serve(move |received| {
            if received.method == "GET" {
                return received.answer("404 Not Found", "", "");
            }
            received.piece(3); // and closes the connection
        });
        let worker =
            Setup::new(policy(2, &json!({"reserve": true}))).binding("ORIGIN", origin).start();
        for _ in 0..20 {
            let mut client = TcpStream::connect(("127.0.0.1", worker.port)).expect("taken");
            client.set_read_timeout(Some(READY_WITHIN)).expect("a time limit");
            let head = "POST /401 HTTP/1.1\r\nhost: a\r\nx-user: u\r\ncontent-length: ";
            let sent = [format!("{head}{length}\r\n\r\n").into_bytes(), vec![b'x'; length / 2]];
            // Bytes sent after the response may reset the connection, and the response is then
            // lost.
            let (mut line, is_sent) = ([0; 12], client.write_all(&sent.concat()).is_ok());
            if client.read_exact(&mut line).is_ok() {
                assert_eq!(&line, b"HTTP/1.1 502", "{is_sent}");
            }
        }
        let answer = worker.client().send(&Request::get("/").header("x-user", "u"));
        let field = answer.header("ratelimit").expect("the field");
        assert!(answer.status == 404 && field.contains(";r=1;"), "{length}: {field}");
    }
}

// A caller of /check could not return a place, so such a policy is rejected, with the name of the
// field.
#[test]
fn the_service_refuses_rules_that_hold_places() {
    let worker = Setup::new(policy(5, &json!({"reserve": true}))).start();
    let mut client = worker.client();
    let check = client.send(&Request::post("/check", r#"{"method":"POST","path":"/login"}"#));
    assert_eq!(check.status, 500);
    let health = client.send(&Request::get("/.well-known/tollgate/health"));
    assert_eq!(health.status, 500);
    assert!(health.text().contains("rules[0].charge.reserve"), "{}", health.text());
}

// Guards: budgets that count estimates, or forget what a response used beyond them: each response
// settles its own, also where several keys count it.
#[test]
fn a_response_settles_the_cost_that_it_shows() {
    let login = Login::start();
    let cost = json!({"estimate": 10, "max": 60, "actual": {"header": "x-tokens"}, "on_status": {"5xx": 0}});
    let rule = |name: &str, key: &str, limit: u32| {
        json!({"name": name, "key": [{"header": key}], "cost": cost,
            "quotas": [{"limit": limit, "window": "366d", "algorithm": "fixed-window"}]})
    };
    let policy = json!({"version": 1, "rules": [
        rule("user", "x-user", 100), rule("team", "x-team", 1_000),
    ]});
    let origin = format!("http://127.0.0.1:{}", login.port);
    let worker = Setup::new(policy).binding("ORIGIN", origin).start();
    let send = |user: &str, target: &str, cost: &str| {
        let request = of(user, target).header("x-team", "t").header("x-show", cost);
        worker.client().send(&request)
    };
    let rest = |user: &str| {
        let answer = send(user, "/200", "0");
        let field = answer.header("ratelimit").expect("the field");
        let mut rests = field.split(";r=").skip(1).map(|rest| {
            rest.split(';').next().and_then(|rest| rest.parse::<u64>().ok()).expect("a number")
        });
        (rests.next().expect("of the user"), rests.next().expect("of the team"))
    };
    let mut of_team = 0;
    for (user, target, cost, used) in [
        ("less", "/200", "4", 4),
        ("same", "/404", "10", 10),
        ("more", "/200", "60", 60),
        ("huge", "/200", "999999999999999999999", 60),
        ("text", "/200", "4.5", 10),
        ("failed", "/503", "60", 0),
    ] {
        send(user, target, cost);
        of_team += used;
        assert_eq!(rest(user), (90 - used, 990 - of_team), "{user}");
    }
    send("more", "/200", "60");
    assert_eq!(send("more", "/200", "0").status, 429, "it has used 120 of 100");
}
