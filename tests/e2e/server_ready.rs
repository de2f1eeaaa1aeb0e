//! Whether the server reports itself ready while the shared store does not respond.

use std::time::Duration;

use serde_json::json;
use tollgate_e2e::http::Request;
use tollgate_e2e::process::{free_port, wait_until};
use tollgate_e2e::server::{Setup, TollgateServer};
use tollgate_e2e::workerd::answer;

const PATIENCE: Duration = Duration::from_secs(60);

/// A server whose engine does not run.
fn setup() -> Setup {
    let policy = json!({"version": 1, "rules": [{"name": "each", "key": ["client_ip"],
        "quotas": [{"limit": 1, "window": "1h"}]}]});
    Setup::new(policy).set("store", format!("redis://127.0.0.1:{}", free_port()))
}

fn status(server: &TollgateServer) -> String {
    let health = server.client().send(&Request::get("/.well-known/tollgate/health"));
    assert_eq!(health.status, 200, "{}", health.text());
    answer(&health)["status"].as_str().expect("a word").to_owned()
}

fn wait_until_unreachable(server: &TollgateServer) {
    wait_until("known", PATIENCE, || (status(server) == "store_unreachable").then_some(()));
}

// Guards: a server without its store that every probe reports as healthy, also without any
// requests.
#[test]
fn the_status_says_that_the_store_does_not_answer() {
    let server = setup().start();
    wait_until_unreachable(&server);
    assert_eq!((server.probe("/live"), server.probe("/ready")), (200, 200));
}

#[test]
fn a_setting_makes_it_unready() {
    let server = setup().set("ready", "with_store").start();
    wait_until_unreachable(&server);
    assert_eq!((server.probe("/live"), server.probe("/ready")), (200, 503));
}
