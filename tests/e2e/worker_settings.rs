//! The shared checks of settings, through the Worker in front of an origin.

use serde_json::Value;
use tollgate_e2e::http::Client;
use tollgate_e2e::settings::{check_bodies, check_jitter, check_percent};
use tollgate_e2e::workerd::{Setup, Workerd};

use crate::worker_origin::serve;

fn start(policy: &Value) -> (Workerd, Client) {
    let origin = serve(|request| request.answer("200 OK", "", ""));
    let worker = Setup::new(policy).binding("ORIGIN", origin).files_in_memory().start();
    let client = worker.client();
    (worker, client)
}

// Guards: a rollout in steps that changes a key's selection, and so denies every client a little.
#[test]
fn a_percentage_of_keys_is_enforced() {
    check_percent(start);
}

// Guards: clients that were all denied together and all come back together.
#[test]
fn jitter_spreads_who_comes_back() {
    check_jitter(start);
}

// Guards: a body that is not configured.
#[test]
fn a_body_is_what_the_policy_says() {
    check_bodies(start);
}
