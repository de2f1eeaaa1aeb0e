//! What clients are told.

use serde_json::json;
use tollgate_e2e::http::Request;

use crate::envoy_server::Setup;

#[test]
fn tmp() {
    let policy = json!({"version": 1, "rules": [{
        "name": "hot", "key": ["client_ip"], "quotas": [{"name": "hot", "limit": 1, "window": "1m"}],
    }]});
    let envoy = Setup::policy(1, &policy).start();
    for _ in 0..2 {
        let a = envoy.client().send(&Request::get("/"));
        println!("{a:?} {}", a.text());
    }
    let a = envoy.client().send(&Request::post("/", "x").header("content-type", "application/grpc"));
    println!("{a:?} {}", a.text());
    println!("{}", envoy.server.log());
}
