//! Several requests in one body: how many keys they may be counted under together.

use std::sync::Arc;

use serde_json::{Value, json};
use tollgate_core::Timestamp;
use tollgate_server::check;
use tollgate_server::clock::Clock;
use tollgate_server::gate::Gate;

use crate::cases::gate_of;

/// A thousand per year of each value of three headers; the last two of `/all` only.
fn policy() -> String {
    let quota =
        json!({"name": "year", "algorithm": "fixed-window", "limit": 1000, "window": "366d"});
    let rule = |name: &str, path: &str| json!({"name": name, "when": {"paths": [path]}, "key": [{"header": name}], "quotas": [quota]});
    let rules = [rule("x-a", "/**"), rule("x-b", "/all"), rule("x-c", "/all")];
    json!({"version": 1, "rules": rules}).to_string()
}

fn gate() -> Arc<Gate> {
    let clock = Clock::showing(Timestamp::from_millis(1_700_000_000_000));
    gate_of(policy(), clock).expect("a policy")
}

fn request(path: &str, i: usize) -> Value {
    let headers = json!({"x-a": format!("a{i}"), "x-b": format!("b{i}"), "x-c": format!("c{i}")});
    json!({"method": "GET", "path": path, "headers": headers})
}

async fn ask(gate: &Arc<Gate>, requests: &[Value]) -> Vec<Value> {
    let body = json!({ "requests": requests }).to_string();
    let answer = check::answer(gate, body.as_bytes()).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    let answer: Value = serde_json::from_str(&answer.body).expect("JSON");
    answer["answers"].as_array().expect("a list").clone()
}

/// The remaining quota of the first rule.
fn left(answer: &Value) -> &str {
    let header = answer["headers"]["ratelimit"].as_str().expect("a header");
    header.split(";r=").nth(1).and_then(|rest| rest.split(';').next()).expect("what is left")
}

// Guards: a body of 64 KiB that makes a server decide more than the Worker, and more than is
// documented.
#[tokio::test(start_paused = true)]
async fn a_batch_is_counted_under_so_many_keys_and_what_is_too_much_is_not_charged() {
    let gate = gate();
    let mut requests: Vec<_> = (0..99).map(|i| request("/all", i)).collect();
    requests.push(request("/one", 99));
    let answers = ask(&gate, &requests).await;
    assert_eq!(answers.len(), 100);
    // 250 keys: three of each of 83, and one is left for the last, which needs no more.
    let is_decided = |i: &usize| answers[*i]["decision"] == "allow";
    let decided: Vec<_> = (0..100).filter(is_decided).collect();
    assert_eq!(decided, (0..83).chain([99]).collect::<Vec<_>>());
    let detail = "is too much for one body: it and those before it are counted under more than 250 \
                  keys; ask for it in another one";
    for refused in &answers[83..99] {
        assert_eq!(refused["status"], 400, "{refused}");
        assert_eq!(refused["errors"], json!([{"path": "", "detail": detail}]));
    }
    // Each body has a budget of its own, and the denied request was not charged.
    let answers = ask(&gate, &[request("/all", 90), request("/all", 1)]).await;
    assert_eq!((left(&answers[0]), left(&answers[1])), ("999", "998"));
}
