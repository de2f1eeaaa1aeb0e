//! The shared checks of settings, through a real Envoy.

use serde_json::Value;
use tollgate_e2e::http::Client;
use tollgate_e2e::settings::{check_bodies, check_jitter, check_percent};

use crate::envoy_server::{Envoy, Setup};

fn start(policy: &Value) -> (Envoy, Client) {
    let envoy = Setup::policy(1, policy).start();
    let client = envoy.client();
    (envoy, client)
}

// If a key's selection changed between steps of a rollout, every client would be denied a little.
#[test]
fn a_percentage_of_keys_is_enforced() {
    check_percent(start);
}

// Clients that were all denied together would all come back together.
#[test]
fn jitter_spreads_who_comes_back() {
    check_jitter(start);
}

#[test]
fn a_body_is_what_the_policy_says() {
    check_bodies(start);
}
