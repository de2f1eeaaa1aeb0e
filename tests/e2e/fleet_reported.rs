//! Reports on a store that servers share: the other servers see a report to one of them.

use prost::Message;
use serde_json::{Value, json};
use tollgate_e2e::envoy_messages::{RateLimitRequest, RateLimitResponse, Wrapped, descriptor};
use tollgate_e2e::grpc::unary;
use tollgate_e2e::server::{Setup, TollgateServer};

use crate::fleet_engine_redis::{Kind, Redis};

const LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// A server's response for one descriptor of a user: the code, and the remaining units.
fn hits(server: &TollgateServer, hits: u64) -> (i32, u32) {
    let mut one = descriptor(&[("user", "ada")]);
    one.hits_addend = Some(Wrapped { value: hits });
    let (domain, descriptors) = (b"web".to_vec(), vec![one]);
    let message = RateLimitRequest { domain, descriptors, hits_addend: 0 }.encode_to_vec();
    let ended = unary(server.port, LIMIT, &message, &[]);
    assert_eq!(ended.code, 0, "{}", ended.message);
    let response = RateLimitResponse::decode(&*ended.answer).expect("an answer");
    (response.overall_code, response.statuses[0].limit_remaining)
}

// Guards: a report that is lost between servers, in a batch with others, or because another key's
// rule denies.
#[test]
fn what_one_server_is_reported_ends_the_budget_on_all() {
    let redis = Redis::start(Kind::Plain);
    let year = |limit: u64| json!([{"limit": limit, "window": "366d"}]);
    let policy: Value = json!({"version": 1, "rules": [
        {"name": "tokens", "when": {"domain": "web"}, "key": [{"descriptor": "user"}], "cost": "reported", "quotas": year(100_000)},
        {"name": "all", "when": {"domain": "web"}, "key": [], "quotas": year(1)}]});
    let server = || {
        let server =
            Setup::new(&policy).set("protocols", "ratelimit").set("store", redis.address());
        server.set("store_timeout", 5_000).set("store_tolerance", 2_000).start()
    };
    let servers = [server(), server()];
    // 8 clients report 25 times 400 to both servers, all of which the other rule denies: 80,000.
    std::thread::scope(|scope| {
        for i in 0..8 {
            let server = &servers[i % 2];
            scope.spawn(move || {
                for _ in 0..25 {
                    assert_eq!(hits(server, 400).0, 2);
                }
            });
        }
    });
    for server in &servers {
        assert_eq!(hits(server, 0), (1, 1), "nothing of the other rule was charged");
    }
    // With these, 100,000 are used: a look is over the limit at the other server.
    assert_eq!(hits(&servers[0], 20_000).0, 2);
    assert_eq!(hits(&servers[1], 0), (2, 0));
}
