//! The shared checks of settings, through the Worker in front of an origin.

use serde_json::{Value, json};
use tollgate_e2e::http::{Request, Response};
use tollgate_e2e::settings::{BODIES, PERCENT, check_body, check_jitter, check_percent, policy};
use tollgate_e2e::workerd::{Setup, Workerd};

use crate::worker_origin::serve;

fn start(rule: Value, response: Value) -> Workerd {
    let origin = serve(|request| request.answer("200 OK", "", ""));
    Setup::new(policy(&rule, &response)).binding("ORIGIN", origin).files_in_memory().start()
}

fn through(worker: &Workerd) -> impl FnMut(&Request) -> Response {
    let mut client = worker.client();
    move |request| client.send(request)
}

// Guards: a rollout in steps that changes its mind about a key, and so refuses everybody a little.
#[test]
fn a_percentage_of_keys_is_enforced() {
    let mode = json!({"mode": {"enforce_percent": PERCENT}});
    check_percent(through(&start(mode, json!({}))));
}

// Guards: clients that were all refused together and are all back together.
#[test]
fn jitter_spreads_who_comes_back() {
    check_jitter(through(&start(json!({}), json!({"jitter": "5m", "body": "text"}))));
}

// Guards: a body that nobody asked for.
#[test]
fn a_body_is_what_the_policy_says() {
    for (kind, ..) in BODIES {
        check_body(kind, through(&start(json!({}), json!({"body": kind}))));
    }
}
