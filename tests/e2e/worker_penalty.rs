//! Penalties in a real workerd: they start once, survive a crash, and an operator ends them.

use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tollgate_e2e::http::{Client, Request};
use tollgate_e2e::penalty::{DAY_MS, is_first_step, policy};
use tollgate_e2e::process::{READY_WITHIN, wait_until};
use tollgate_e2e::workerd::{Setup, Workerd, answer, check_request};

/// An isolate repeats a denial for at most 5 s without asking; the rest is the time that its object
/// may need to reply.
const FOUND_WITHIN: Duration = Duration::from_secs(6);

const ADMIN: &str = "/.well-known/tollgate/admin";

// Guards: a penalty that is lost with a crash, that a look of an operator starts, that two denials
// start twice, or that its end by an operator does not reach isolates that remember denials.
#[test]
fn a_penalty_starts_once_and_ends_when_an_operator_says() {
    let setup = Setup::new(policy()).operated().binding("ADMIN_TOKEN", "secret");
    let mut worker = setup.start();
    let operator = |worker: &Workerd, request: Request| {
        let request = request.header("authorization", "Bearer secret");
        let reply = worker.client().send(&request.header("content-type", "application/json"));
        let body: Value = serde_json::from_slice(&reply.body).unwrap_or_default();
        (reply.status, body)
    };
    let explain = || {
        let body = json!({"method": "GET", "path": "/", "client_ip": "192.0.2.1"});
        Request::post(&format!("{ADMIN}/explain"), body.to_string())
    };
    let state = || Request::get(&format!("{ADMIN}/keys?rule=each&key=192.0.2.1"));
    let ask_by =
        |client: &mut Client| answer(&client.send(&check_request("GET", "/", "192.0.2.1")));
    let ask = |worker: &Workerd| ask_by(&mut worker.client());
    for _ in 0..2 {
        assert_eq!(ask(&worker)["decision"], "allow");
    }
    // It would be denied, and a look starts nothing.
    for _ in 0..3 {
        let explained = operator(&worker, explain()).1;
        assert_eq!(explained["rules"][1]["result"], "denied", "{explained}");
        let retry = explained["retry_after_ms"].as_u64().expect("a wait");
        assert!(retry <= DAY_MS, "{retry}");
    }
    thread::scope(|scope| {
        let race = |mut client: Client| {
            scope.spawn(move || (0..20).map(|_| ask_by(&mut client)).collect::<Vec<_>>())
        };
        let racing: Vec<_> = (0..8).map(|_| race(worker.client())).collect();
        for denied in racing.into_iter().flat_map(|it| it.join().expect("replies")) {
            is_first_step(&denied);
        }
    });
    let (status, shown) = operator(&worker, state());
    let quota = &shown["quotas"][0];
    assert_eq!((status, &quota["penalty_step"]), (200, &json!(1)), "{shown}");
    let left = quota["penalty_until_ms"].as_u64().expect("an end")
        - shown["at_ms"].as_u64().expect("a time");
    assert!(left <= 2 * DAY_MS, "{shown}");
    assert!(shown["words"].as_str().is_some_and(|it| it.contains(", penalty 1 for another ")));
    assert_eq!(operator(&worker, explain()).1["rules"][1]["result"], "penalised");
    worker.kill();
    worker.restart();
    assert!(is_first_step(&ask(&worker)));
    // An unblock ends the penalty, not the use; a reset both.
    let act = |what: &str| {
        let body = json!({"rule": "each", "key": ["192.0.2.1"]}).to_string();
        operator(&worker, Request::post(&format!("{ADMIN}/keys/{what}"), body)).0
    };
    assert_eq!(act("unblock"), 204);
    let shown = operator(&worker, state()).1;
    assert_eq!(
        (&shown["quotas"][0]["penalty_step"], &shown["quotas"][0]["used"]),
        (&Value::Null, &json!(2))
    );
    assert!(is_first_step(&ask(&worker)));
    assert_eq!(act("reset"), 204);
    let reset = Instant::now();
    wait_until("isolates find the reset", READY_WITHIN, || {
        // However slow the machine is: a request sent later than that is not denied.
        let sent_after = reset.elapsed();
        let is_allowed = ask(&worker)["decision"] == "allow";
        assert!(is_allowed || sent_after < FOUND_WITHIN, "denied after {sent_after:?}");
        is_allowed.then_some(())
    });
}
