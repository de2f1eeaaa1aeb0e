//! The shared checks of settings, through a real Envoy.

use serde_json::{Value, json};
use tollgate_e2e::http::{Request, Response};
use tollgate_e2e::settings::{BODIES, PERCENT, check_body, check_jitter, check_percent, policy};

use crate::envoy_server::{Envoy, Setup};

fn start(rule: Value, response: Value) -> Envoy {
    Setup::policy(1, &policy(&rule, &response)).start()
}

fn through(envoy: &Envoy) -> impl FnMut(&Request) -> Response {
    let mut client = envoy.client();
    move |request| client.send(request)
}

// A rollout in steps that changes its mind about a key would refuse everybody a little.
#[test]
fn a_percentage_of_keys_is_enforced() {
    let mode = json!({"mode": {"enforce_percent": PERCENT}});
    check_percent(through(&start(mode, json!({}))));
}

// Clients that were all refused together would all be back together.
#[test]
fn jitter_spreads_who_comes_back() {
    check_jitter(through(&start(json!({}), json!({"jitter": "5m", "body": "text"}))));
}

#[test]
fn a_body_is_what_the_policy_says() {
    for (kind, ..) in BODIES {
        check_body(kind, through(&start(json!({}), json!({"body": kind}))));
    }
}
