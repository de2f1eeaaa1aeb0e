//! Requests in flight over `/check`: the ids that a server gives out, and the reports by them.

use serde_json::{Value, json};

use crate::http::{Client, Request};
use crate::server::TollgateServer;
use crate::workerd::answer;

/// The number of requests of a client that may run at the same time.
pub const LIMIT: usize = 10;

/// A policy with that limit, and this `max_age`.
#[must_use]
pub fn policy(max_age: &str) -> Value {
    json!({"version": 1, "rules": [{"name": "each", "key": ["client_ip"],
        "concurrency": {"limit": LIMIT, "max_age": max_age}}]})
}

/// The id of a request of this client; `None` when it is denied.
pub fn id(caller: &mut Client, client: &str) -> Option<String> {
    let body = json!({"method": "GET", "path": "/", "client_ip": client});
    let answer = answer(&caller.send(&Request::post("/check", body.to_string())));
    let in_flight = answer.get("in_flight");
    assert_eq!(answer["decision"] == "allow", in_flight.is_some(), "{answer}");
    Some(in_flight?["id"].as_str().expect("an id").to_owned())
}

/// Reports that a request still runs: the answer.
pub fn renew(caller: &mut Client, id: &str) -> Value {
    let body = json!({ "id": id }).to_string();
    answer(&caller.send(&Request::post("/check/renew", body)))
}

/// Reports that a request has ended.
pub fn done(caller: &mut Client, id: &str) {
    let body = json!({ "id": id }).to_string();
    let answer = answer(&caller.send(&Request::post("/check/done", body)));
    assert_eq!(answer, json!({"result": "done"}));
}

/// The ids of as many requests of this client as are allowed.
pub fn fill(caller: &mut Client, client: &str) -> Vec<String> {
    std::iter::from_fn(|| id(caller, client)).collect()
}

/// The requests in flight of a client, as an operator sees them.
#[must_use]
pub fn counted(server: &TollgateServer, client: &str) -> usize {
    let target = format!("admin/keys?rule=each&key={client}");
    let shown: Value =
        serde_json::from_str(&server.operate("GET", &target, "", &[]).text()).expect("JSON");
    let used = shown["quotas"].get(0).map_or(0, |quota| quota["used"].as_u64().expect("a number"));
    usize::try_from(used).expect("a small number")
}
