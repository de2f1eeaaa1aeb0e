//! Limits on requests in flight over `/check`, with counts in memory.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join_all;
use serde_json::{Value, json};
use tollgate_core::Timestamp;
use tollgate_server::check::{self, in_flight};
use tollgate_server::clock::Clock;
use tollgate_server::gate::Gate;
use tollgate_server::policy::active::{ProtocolRestrictions, compile};
use tollgate_storage::InFlightReport;

use crate::cases::gate_of;

const LIMIT: usize = 10;

/// At most ten of each client run at the same time; a thousand per year of each user in addition,
/// and ten of them run.
fn policy() -> Value {
    let quota =
        json!({"name": "year", "algorithm": "fixed-window", "limit": 1000, "window": "366d"});
    json!({"version": 1, "rules": [
        {"name": "client", "key": ["client_ip"], "concurrency": {"limit": LIMIT, "max_age": "60s"}},
        {"name": "user", "when": {"paths": ["/users"]}, "key": [{"header": "x-user"}],
            "quotas": [quota], "concurrency": {"limit": 2, "max_age": "30s"}}]})
}

fn gate() -> Arc<Gate> {
    let clock = Clock::showing(Timestamp::from_millis(1_700_000_000_000));
    gate_of(policy().to_string(), clock).expect("a policy")
}

fn described(path: &str, client: u8, user: &str) -> Value {
    let client = format!("192.0.2.{client}");
    json!({"method": "GET", "path": path, "client_ip": client, "headers": {"x-user": user}})
}

async fn ask(gate: &Arc<Gate>, request: &Value) -> Value {
    let answer = check::answer(gate, request.to_string().as_bytes()).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    serde_json::from_str(&answer.body).expect("JSON")
}

/// The id of a request of client 1.
async fn id(gate: &Arc<Gate>) -> Option<String> {
    let answer = ask(gate, &described("/", 1, "")).await;
    let in_flight = answer.get("in_flight");
    assert_eq!(answer["decision"], if in_flight.is_some() { "allow" } else { "deny" });
    assert_eq!(answer["retry_after_ms"], Value::Null);
    let in_flight = in_flight?;
    assert_eq!(in_flight["renew_after_ms"], 20_000, "{in_flight}");
    Some(in_flight["id"].as_str().expect("text").to_owned())
}

async fn report(gate: &Arc<Gate>, report: InFlightReport, body: Value) -> (u16, Value) {
    let answer = in_flight::answer(gate, report, body.to_string().as_bytes()).await;
    (answer.status, serde_json::from_str(&answer.body).expect("JSON"))
}

async fn renew(gate: &Arc<Gate>, id: &str) -> Value {
    let (status, answer) = report(gate, InFlightReport::Runs, json!({"id": id})).await;
    assert_eq!(status, 200, "{answer}");
    answer
}

async fn done(gate: &Arc<Gate>, id: &str) {
    let answered = report(gate, InFlightReport::Ended, json!({"id": id})).await;
    assert_eq!(answered, (200, json!({"result": "done"})));
}

/// How many more requests of client 1 are allowed; they are ended again.
async fn free(gate: &Arc<Gate>) -> usize {
    let mut ids = Vec::new();
    while let Some(id) = id(gate).await {
        ids.push(id);
    }
    for id in &ids {
        done(gate, id).await;
    }
    ids.len()
}

#[tokio::test(start_paused = true)]
async fn as_many_run_as_the_limit_says_and_an_end_frees_one() {
    let gate = gate();
    let ids: Vec<String> =
        join_all((0..200).map(|_| id(&gate))).await.into_iter().flatten().collect();
    assert_eq!(ids.len(), LIMIT);
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), LIMIT);
    assert!(ask(&gate, &described("/", 2, "")).await["in_flight"].is_object(), "another client");
    // Repeated: by the same id, by that of the charge after a confirmation, and by a late
    // confirmation.
    let renewed = renew(&gate, &ids[0]).await;
    assert_eq!(
        (&renewed["result"], &renewed["renew_after_ms"]),
        (&json!("renewed"), &json!(20_000))
    );
    for ended in [renewed["id"].as_str().expect("an id"), &ids[0], &ids[0]] {
        done(&gate, ended).await;
        assert_eq!(free(&gate).await, 1);
        assert_eq!(renew(&gate, &ids[0]).await, json!({"result": "expired"}));
        assert_eq!(free(&gate).await, 1);
    }
    // A lost reply to a confirmation: it is repeated, and the request ends by the earlier id.
    for _ in 0..3 {
        assert_eq!(renew(&gate, &ids[1]).await["result"], "renewed");
        assert_eq!(free(&gate).await, 1);
    }
    done(&gate, &ids[1]).await;
    assert_eq!(free(&gate).await, 2);
}

// Guards: a caller that is killed, whose requests are counted for ever.
#[tokio::test(start_paused = true)]
async fn what_nothing_confirms_is_counted_for_max_age() {
    let gate = gate();
    let mut ids = Vec::new();
    while let Some(id) = id(&gate).await {
        ids.push(id);
    }
    for _ in 0..6 {
        tokio::time::advance(Duration::from_secs(20)).await;
        let renewed = renew(&gate, &ids[0]).await;
        ids[0] = renewed["id"].as_str().expect("an id").to_owned();
    }
    assert_eq!(free(&gate).await, LIMIT - 1);
    assert_eq!(renew(&gate, &ids[1]).await, json!({"result": "expired"}));
    done(&gate, &ids[1]).await;
    assert_eq!(free(&gate).await, LIMIT - 1, "its end frees no other");
    done(&gate, &ids[0]).await;
    assert_eq!(free(&gate).await, LIMIT);
}

// Guards: a place that stays taken for a request that another key denied.
#[tokio::test(start_paused = true)]
async fn a_request_that_another_key_denies_takes_no_place() {
    let gate = gate();
    let of_user = described("/users", 1, "u");
    let mut ids = Vec::new();
    for _ in 0..2 {
        let answer = ask(&gate, &of_user).await;
        assert_eq!(answer["in_flight"]["renew_after_ms"], 10_000, "a third of the shorter one");
        ids.push(answer["in_flight"]["id"].as_str().expect("an id").to_owned());
    }
    for _ in 0..50 {
        let denied = ask(&gate, &of_user).await;
        assert_eq!((&denied["decision"], denied.get("in_flight")), (&json!("deny"), None));
        assert_eq!(denied["violated"], json!(["user.concurrency"]));
    }
    assert_eq!(free(&gate).await, LIMIT - 2);
    // One report is for all of its counts; its window keeps the charge.
    let answer = ask(&gate, &described("/users", 2, "u")).await;
    assert_eq!(answer["decision"], "deny");
    done(&gate, &ids[0]).await;
    assert_eq!(free(&gate).await, LIMIT - 1);
    let answer = ask(&gate, &described("/users", 2, "u")).await;
    assert_eq!(answer["decision"], "allow");
    // After 30 s the user's count is gone, and that of the client is not.
    tokio::time::advance(Duration::from_secs(30)).await;
    let renewed = renew(&gate, &ids[1]).await;
    assert_eq!(
        (&renewed["result"], &renewed["renew_after_ms"]),
        (&json!("renewed"), &json!(20_000))
    );
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_gives_its_place_back() {
    let gate = gate();
    for _ in 0..50 {
        let text = described("/", 1, "").to_string();
        let facts = tollgate_language::DescribedRequest::parse(text.as_bytes()).expect("facts");
        let decision = check::decide(&gate, &facts).now_or_never().expect("memory answers");
        drop(decision);
        tokio::task::yield_now().await;
    }
    assert_eq!(free(&gate).await, LIMIT);
}

#[tokio::test(start_paused = true)]
async fn several_are_reported_at_once() {
    let gate = gate();
    let checks = json!({"requests": [described("/", 1, ""), described("/", 2, "")]});
    let answers = ask(&gate, &checks).await;
    let ids: Vec<&str> =
        (0..2).map(|i| answers["answers"][i]["in_flight"]["id"].as_str().expect("an id")).collect();
    let several = json!({"requests": [{"id": ids[0]}, {"id": "AA"}, {"id": ids[1]}]});
    for what in [InFlightReport::Runs, InFlightReport::Ended] {
        let (status, answer) = report(&gate, what, several.clone()).await;
        let answers = answer["answers"].as_array().expect("a list");
        let word = if what == InFlightReport::Runs { "renewed" } else { "done" };
        assert_eq!((status, answers.len()), (200, 3));
        assert_eq!((&answers[0]["result"], &answers[2]["result"]), (&json!(word), &json!(word)));
        assert_eq!(answers[1]["status"], 400, "{answer}");
        assert_eq!(answers[1]["errors"][0]["path"], "requests[1].id");
    }
    assert_eq!(free(&gate).await, LIMIT);
}

// Guards: an id of one purpose that does something as the other.
#[tokio::test(start_paused = true)]
async fn other_ids_are_refused() {
    let gate = gate();
    let mut settled = described("/users", 1, "u");
    settled["settle"] = json!(true);
    let answer = ask(&gate, &settled).await;
    let [of_cost, of_end] =
        [&answer["id"], &answer["in_flight"]["id"]].map(|id| id.as_str().expect("an id"));
    let settle = json!({"id": of_end, "cost": 1}).to_string();
    assert_eq!(check::settling::answer(&gate, settle.as_bytes()).await.status, 400);
    for wrong in [of_cost, "", "A", &of_end[1..], &"A".repeat(60_000)] {
        for what in [InFlightReport::Runs, InFlightReport::Ended] {
            let (status, answer) = report(&gate, what, json!({"id": wrong})).await;
            assert_eq!(status, 400, "{answer}");
        }
    }
    assert_eq!(free(&gate).await, LIMIT - 1);
}

#[test]
fn a_server_refuses_what_it_cannot_end() {
    let text = policy().to_string();
    let errors = |spoken| match compile(&text, b"", spoken) {
        Ok(_) => String::new(),
        Err(problems) => problems.to_string(),
    };
    let none = ProtocolRestrictions::default();
    assert_eq!(errors(none), "");
    let of_protocol = errors(ProtocolRestrictions { without_responses: Some("ext_authz"), ..none });
    assert!(of_protocol.starts_with("rules[0].concurrency: is not for a server with ext_authz: "));
    assert!(of_protocol.contains("\nrules[1].concurrency: is not for a server with ext_authz: "));
    let of_secret = errors(ProtocolRestrictions { without_ids: Some("hash_key"), ..none });
    assert!(of_secret.starts_with("rules[0].concurrency: needs hash_key, "), "{of_secret}");
}

/// The same for callers who wait for at most 5 s.
fn waiting_gate() -> Arc<Gate> {
    let mut policy = policy();
    policy["rules"][1]["action"] = json!({"delay": {"max": "5s"}});
    let clock = Clock::showing(Timestamp::from_millis(1_700_000_000_000));
    gate_of(policy.to_string(), clock).expect("a policy")
}

/// The answer to a request of user u, its id, and how long it took.
async fn of_user(gate: &Arc<Gate>, client: u8) -> (Value, Option<String>, Duration) {
    let came = tokio::time::Instant::now();
    let answer = ask(gate, &described("/users", client, "u")).await;
    let id = answer["in_flight"]["id"].as_str().map(str::to_owned);
    (answer, id, came.elapsed())
}

/// Lets the other tasks run until all of them wait.
async fn settle() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

// Guards: a place that waits for the next look, and a request that overtakes another one.
#[tokio::test(start_paused = true)]
async fn an_end_gives_the_next_request_its_turn_at_once() {
    let gate = waiting_gate();
    let mut running = Vec::new();
    for _ in 0..2 {
        running.push(of_user(&gate, 1).await.1.expect("it runs"));
    }
    let (sender, mut order) = tokio::sync::mpsc::unbounded_channel();
    for client in 1..=4 {
        let (gate, sender) = (Arc::clone(&gate), sender.clone());
        tokio::spawn(async move {
            let (_, id, _) = of_user(&gate, client).await;
            sender.send((client, id.expect("it runs"))).expect("the test reads");
        });
        settle().await;
    }
    assert!(order.try_recv().is_err(), "all wait");
    for client in 1..=4 {
        let before = tokio::time::Instant::now();
        done(&gate, &running.remove(0)).await;
        let (next, id) = order.recv().await.expect("the next one runs");
        assert_eq!(next, client);
        assert!(before.elapsed() < Duration::from_millis(10), "without another look");
        running.push(id);
    }
}

#[tokio::test(start_paused = true)]
async fn two_ends_at_once_give_two_requests_their_turns() {
    let gate = waiting_gate();
    let running = [of_user(&gate, 1).await.1, of_user(&gate, 1).await.1];
    let waiting = join_all((1..=2).map(|client| of_user(&gate, client)));
    let ends = async {
        settle().await;
        for id in running.iter().flatten() {
            done(&gate, id).await;
        }
    };
    let (answers, ()) = futures_util::future::join(waiting, ends).await;
    for (answer, id, took) in answers {
        assert!(id.is_some(), "{answer}");
        assert!(took < Duration::from_millis(20), "{took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_waits_in_vain_is_denied_when_its_time_is_over() {
    let gate = waiting_gate();
    let running = [of_user(&gate, 1).await.1, of_user(&gate, 1).await.1];
    for (answer, id, took) in join_all((1..=3).map(|client| of_user(&gate, client))).await {
        assert_eq!((&answer["decision"], id), (&json!("deny"), None), "{answer}");
        assert_eq!(answer["retry_after_ms"], Value::Null, "{answer}");
        assert_eq!(answer["violated"], json!(["user.concurrency"]), "{answer}");
        assert_eq!(took.as_secs(), 5);
    }
    done(&gate, running[0].as_ref().expect("it runs")).await;
    assert!(of_user(&gate, 1).await.1.is_some());
}

// Guards: a turn that a caller takes along when it leaves.
#[tokio::test(start_paused = true)]
async fn a_caller_that_leaves_passes_its_turn_on() {
    let gate = waiting_gate();
    let running = [of_user(&gate, 1).await.1, of_user(&gate, 1).await.1];
    let leaves = tokio::spawn({
        let gate = Arc::clone(&gate);
        async move { of_user(&gate, 2).await }
    });
    settle().await;
    let stays = tokio::spawn({
        let gate = Arc::clone(&gate);
        async move { of_user(&gate, 3).await }
    });
    settle().await;
    leaves.abort();
    settle().await;
    let ended = tokio::time::Instant::now();
    done(&gate, running[0].as_ref().expect("it runs")).await;
    assert!(stays.await.expect("it was answered").1.is_some());
    assert!(ended.elapsed() < Duration::from_millis(10));
}
