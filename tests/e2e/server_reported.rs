//! Reports of usage that has already happened: `"cost": "reported"`, by a gRPC client and by real
//! Envoy.
//!
//! Guards: a budget that never ends, because the report that does not fit is denied and charges
//! nothing; a report that is lost because of another rule, or of a caller that leaves.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use prost::Message;
use serde_json::{Value, json};
use tollgate_e2e::envoy_messages::{
    LimitOfDescriptor, RateLimitRequest, RateLimitResponse, Wrapped, descriptor,
};
use tollgate_e2e::grpc::{Ended, unary};
use tollgate_e2e::http::{Client, Request};
use tollgate_e2e::process::wait_until;
use tollgate_e2e::server::{Setup, TollgateServer, value_of};

use crate::server_envoy::{Envoy, RATE_LIMIT};

const LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
const SOON: Duration = Duration::from_secs(60);
/// `OK` and `OVER_LIMIT`.
const OK: i32 = 1;
const OVER: i32 = 2;

/// A budget of this many tokens per year for each user in the domain `web`, and other rules.
fn budget(tokens: u64, cost: Value, others: &[Value]) -> Value {
    let mut rule = json!({"name": "tokens", "when": {"domain": "web"}, "key": [{"descriptor": "user"}],
        "quotas": [{"limit": tokens, "window": "366d"}]});
    if !cost.is_null() {
        rule["cost"] = cost;
    }
    let rules: Vec<&Value> = std::iter::once(&rule).chain(others).collect();
    json!({"version": 1, "rules": rules})
}

fn server(policy: &Value) -> TollgateServer {
    Setup::new(policy).operated().set("protocols", "ratelimit").start()
}

/// A server's response code for one descriptor of a user.
fn hits(server: &TollgateServer, user: &str, hits: u64) -> i32 {
    let mut one = descriptor(&[("user", user)]);
    one.hits_addend = Some(Wrapped { value: hits });
    asked(server, vec![one])
}

fn asked(
    server: &TollgateServer,
    descriptors: Vec<tollgate_e2e::envoy_messages::RateLimitDescriptor>,
) -> i32 {
    let message = RateLimitRequest { domain: b"web".to_vec(), descriptors, hits_addend: 0 };
    let Ended { code, message, answer } = unary(server.port, LIMIT, &message.encode_to_vec(), &[]);
    assert_eq!(code, 0, "{message}");
    RateLimitResponse::decode(&*answer).expect("an answer").overall_code
}

/// The value of a series of the server's metrics; 0 while it is absent.
fn metric(server: &TollgateServer, series: &str) -> u64 {
    let text = server.operate("GET", "metrics", "", &[]).text();
    value_of(&text, series).unwrap_or(0)
}

/// The number of looks that pass, each followed by a report of 300 tokens, of at most 11 looks.
fn passed(server: &TollgateServer) -> usize {
    let pass = |_: &usize| {
        let is_let_in = hits(server, "ada", 0) == OK;
        if is_let_in {
            hits(server, "ada", 300);
        }
        is_let_in
    };
    (0..11).filter(pass).count()
}

#[test]
fn a_budget_of_tokens_ends() {
    // With an ordinary cost, the report that does not fit charges nothing, so looks pass for ever.
    let ordinary = server(&budget(1_000, Value::Null, &[]));
    assert_eq!(passed(&ordinary), 11);
    assert_eq!(metric(&ordinary, "tollgate_reports_denied_total"), 8);
    assert_eq!(ordinary.wait_for_events("report_denied", 1).len(), 1, "one line a minute");
    let reported = server(&budget(1_000, json!("reported"), &[]));
    assert_eq!(passed(&reported), 4);
    assert_eq!(hits(&reported, "ada", 1), OVER);
    assert_eq!(hits(&reported, "bob", 0), OK);
    assert_eq!(metric(&reported, "tollgate_reports_denied_total"), 0);
}

// Guards: a report that another rule of another key denies, which the server then only looks at.
#[test]
fn a_report_is_recorded_whatever_other_rules_say() {
    let all = json!({"name": "all", "when": {"domain": "web"}, "key": [],
        "quotas": [{"limit": 2, "window": "366d"}]});
    let wait = json!({"name": "wait", "when": {"descriptor": {"user": "bob"}}, "key": [],
        "action": {"delay": {"max": "5m"}}, "quotas": [{"limit": 1, "window": "366d"}]});
    let server = server(&budget(1_000, json!("reported"), &[all, wait]));
    assert_eq!(hits(&server, "ada", 700), OVER, "700 do not fit the other rule");
    assert_eq!(metric(&server, "tollgate_reports_denied_total"), 1);
    assert_eq!(hits(&server, "ada", 0), OK);
    assert_eq!(hits(&server, "ada", 301), OVER);
    assert_eq!(hits(&server, "ada", 0), OVER, "1,001 are used");
    // A rule that would delay it denies it, and it is recorded once.
    assert_eq!(hits(&server, "bob", 500), OVER);
    assert_eq!(hits(&server, "bob", 0), OK);
    assert_eq!(hits(&server, "bob", 499), OVER);
    assert_eq!(hits(&server, "bob", 0), OK, "one is left");
    assert_eq!(hits(&server, "bob", 1), OK, "and fits all rules");
    assert_eq!(hits(&server, "bob", 0), OVER);
}

#[test]
fn a_limit_that_a_descriptor_brings_is_counted_and_named() {
    let server = server(&budget(2, Value::Null, &[]));
    for expected in [OK, OK, OVER] {
        let mut one = descriptor(&[("user", "ada")]);
        one.limit = Some(LimitOfDescriptor { requests_per_unit: 100, unit: 2 });
        assert_eq!(asked(&server, vec![one]), expected, "the policy's limit holds");
    }
    assert_eq!(metric(&server, "tollgate_descriptor_limits_ignored_total"), 3);
    let lines = server.wait_for_events("descriptor_limit_ignored", 1);
    assert_eq!((lines.len(), &lines[0]["limit"]), (1, &json!("100 per minute")));
}

// Guards: a limit that a descriptor brings and the server ignores, one above the highest, one of
// another unit, and counts that differ between limits.
#[test]
fn a_descriptor_brings_its_limit() {
    const MINUTE: i32 = 2;
    const HOUR: i32 = 3;
    let policy = json!({"version": 1, "rules": [{
        "name": "plan", "when": {"domain": "web"}, "key": [{"descriptor": "user"}],
        "quotas": [{"limit": 2, "window": "1h", "algorithm": "sliding-window",
            "limit_from": {"descriptor": true, "max": 5}}],
    }]});
    let server = server(&policy);
    let ask = |user: &str, limit: Option<(u32, i32)>| {
        let mut one = descriptor(&[("user", user)]);
        one.limit =
            limit.map(|(requests_per_unit, unit)| LimitOfDescriptor { requests_per_unit, unit });
        asked(&server, vec![one])
    };
    // Of one count: 4 by its own limit, 5 by the highest one, and none by the policy's.
    for (limit, expected) in [
        (Some((4, HOUR)), OK),
        (Some((4, HOUR)), OK),
        (None, OVER),
        (Some((3, HOUR)), OK),
        (Some((3, HOUR)), OVER),
        (Some((4, HOUR)), OK),
        (Some((4, HOUR)), OVER),
        (Some((1_000, HOUR)), OK),
        (Some((1_000, HOUR)), OVER),
        (Some((0, HOUR)), OVER),
    ] {
        assert_eq!(ask("ada", limit), expected, "{limit:?}");
    }
    assert_eq!(metric(&server, "tollgate_descriptor_limits_ignored_total"), 0);
    // One of another unit counts as absent, and is counted.
    for expected in [OK, OK, OVER] {
        assert_eq!(ask("bob", Some((100, MINUTE))), expected);
    }
    assert_eq!(metric(&server, "tollgate_descriptor_limits_ignored_total"), 3);
    assert_eq!(ask("cleo", Some((0, HOUR))), OVER, "0 denies");
}

/// Envoy in front of an origin whose responses contain 300 tokens: it looks at the request, and
/// reports the tokens when the stream has ended.
fn gateway(tollgate: u16) -> Envoy {
    let by_user = "actions: [{ request_headers: { header_name: x-user, descriptor_key: user } }]";
    let (before, after) = (
        r#"                          route:
                            cluster: origin
                            rate_limits:
                              # Every client by its address, and clients with a key by that key.
                              - actions: [{ remote_address: {} }]
                              - actions: [{ request_headers: { header_name: x-api-key, descriptor_key: api_key } }]
"#,
        format!(
            r#"                          route: {{ cluster: origin }}
                          typed_per_filter_config:
                            envoy.filters.http.ratelimit:
                              "@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimitPerRoute
                              rate_limits:
                                - {by_user}
                                  hits_addend: {{ number: 0 }}
                                - {by_user}
                                  hits_addend: {{ format: "%DYNAMIC_METADATA(llm:tokens)%" }}
                                  apply_on_stream_done: true
"#
        ),
    );
    let metadata = r#"                  - name: envoy.filters.http.header_to_metadata
                    typed_config:
                      "@type": type.googleapis.com/envoy.extensions.filters.http.header_to_metadata.v3.Config
                      response_rules:
                        - header: x-tokens
                          on_header_present: { metadata_namespace: llm, key: tokens, type: NUMBER }
                  - name: envoy.filters.http.router
"#;
    assert!(RATE_LIMIT.contains(before));
    let config = RATE_LIMIT.replacen(before, &after, 1);
    let router = "                  - name: envoy.filters.http.router\n";
    Envoy::start(&config.replacen(router, metadata, 1), tollgate)
}

/// Successful calls of the rate limit service.
fn calls(server: &TollgateServer) -> u64 {
    metric(server, "tollgate_grpc_calls_total{call=\"ratelimit\",code=\"OK\"}")
}

#[test]
fn a_budget_ends_behind_envoy() {
    for (cost, expected) in [(Value::Null, 11), (json!("reported"), 4)] {
        let server = server(&budget(1_000, cost, &[]));
        let envoy = gateway(server.port);
        let request = Request::get("/").header("x-user", "ada");
        let mut passed = 0;
        for _ in 0..11 {
            let before = calls(&server);
            let is_passed = envoy.send(&request).status == 200;
            passed += usize::from(is_passed);
            // A look and, where it passed, the report, which comes after the response.
            let due = before + 1 + u64::from(is_passed);
            wait_until("the report", SOON, || (calls(&server) >= due).then_some(()));
        }
        assert_eq!(passed, expected);
    }
}

#[test]
fn a_budget_ends_for_clients_at_the_same_time() {
    const CLIENTS: usize = 8;
    const EACH: usize = 100;
    let server = server(&budget(3_000, json!("reported"), &[]));
    let envoy = gateway(server.port);
    let passed = AtomicUsize::new(0);
    let request = Request::get("/").header("x-user", "ada");
    thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                let mut client = Client::connect(envoy.port());
                for _ in 0..EACH {
                    if client.send(&request).status == 200 {
                        passed.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let passed = passed.into_inner();
    println!("{passed} of {} passed a budget of 10", CLIENTS * EACH);
    assert!(passed >= 10, "{passed}");
    wait_until("the end", SOON, || (envoy.send(&request).status == 429).then_some(()));
    let due = (CLIENTS * EACH + passed) as u64;
    wait_until("every report", SOON, || (calls(&server) >= due).then_some(()));
    assert_eq!(envoy.send(&request).status, 429);
    assert!(passed < CLIENTS * EACH, "the budget never ended");
}
