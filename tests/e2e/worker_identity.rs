//! The client under which a request is counted, by the built Worker in a real workerd: the spoofing
//! corpus, in both of its uses.
//!
//! Invariant: nothing that a client writes makes it count as another client. A Worker sees no
//! connection: in front of an origin the peer is CF-Connecting-IP, which these tests set as
//! Cloudflare's edge does; as a service the caller names it.

use serde_json::{Value, json};
use tollgate_e2e::http::{Client, Request};
use tollgate_e2e::identity::KeyNames;
use tollgate_e2e::identity::format::{Case, Group, corpus};
use tollgate_e2e::workerd::{Setup, answer};

use crate::worker_origin::serve;

/// The `RateLimit` field of the response in front of an origin.
fn in_front_of_an_origin(client: &mut Client, group: &Group, case: &Case) -> String {
    let edge = Request::get("/").header("cf-connecting-ip", group.peer.to_string());
    let add = |request: Request, (name, value): &(&str, &str)| request.header(name, value);
    let response = client.send(&case.headers.iter().fold(edge, add));
    assert_eq!(response.status, 200, "line {}", case.line);
    response.header("ratelimit").unwrap_or_default()
}

/// The same of `POST /check`. Written by hand, because an object of `serde_json` has no name twice.
fn as_a_service(client: &mut Client, group: &Group, case: &Case) -> String {
    let line = |(name, value): &(&str, &str)| format!("{}:{}", json!(name), json!(value));
    let headers: Vec<String> = case.headers.iter().map(line).collect();
    let body = format!(
        r#"{{"method":"GET","path":"/","client_ip":"{}","headers":{{{}}}}}"#,
        group.peer,
        headers.join(",")
    );
    let answer: Value = answer(&client.send(&Request::post("/check", body)));
    answer["headers"]["ratelimit"].as_str().unwrap_or_default().to_owned()
}

/// Runs every case, one workerd for each group; returns the number of cases.
fn run(
    groups: &[Group],
    setup: impl Fn(&Value) -> Setup,
    ask: fn(&mut Client, &Group, &Case) -> String,
) -> usize {
    let mut told = KeyNames::default();
    for group in groups {
        let worker = setup(&group.policy()).start();
        let mut client = worker.client();
        for case in &group.cases {
            told.record(case, &ask(&mut client, group, case));
        }
    }
    told.ran()
}

// Every attempt to count as another client, through the headers that reach the Worker.
#[test]
fn the_corpus_of_spoofing_in_front_of_an_origin() {
    let (groups, left_out) = corpus("proxy");
    let origin = serve(|request| request.answer("200 OK", "", ""));
    let setup = |policy: &Value| Setup::new(policy).binding("ORIGIN", &origin);
    assert_eq!((run(&groups, setup, in_front_of_an_origin), left_out), (64, 3));
}

// The same through the headers that a caller of the service passes on.
#[test]
fn the_corpus_of_spoofing_as_a_service() {
    let (groups, left_out) = corpus("check");
    assert_eq!((run(&groups, |policy| Setup::new(policy), as_a_service), left_out), (67, 0));
}
