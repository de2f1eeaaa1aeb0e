//! The complete policy in a real Envoy: what only this surface can get wrong.
//!
//! What a feature decides is tested with the policy; here it is whether its facts arrive, its answers leave, and
//! its charges are made at the right moment.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tollgate_e2e::http::Request;

use crate::envoy_server::{As, Envoy, Listener, Setup, tollgate};

/// A policy of one rule, 1 per hour by the header x-key, with more fields.
fn rule(more: Value) -> Value {
    let mut rule = json!({
        "name": "r",
        "key": [{"header": "x-key"}],
        "quotas": [{"limit": 1, "window": "1h"}],
    });
    rule.as_object_mut().expect("an object").extend(more.as_object().expect("fields").clone());
    json!({"version": 1, "rules": [rule]})
}

fn get(target: &str) -> Request {
    Request::get(target).header("x-key", "k")
}

fn statuses<const N: usize>(envoy: &Envoy, request: &Request) -> [u16; N] {
    let mut client = envoy.client();
    [(); N].map(|()| client.send(request).status)
}

/// A listener that answers 401 under /bad and says what it got as x-over.
fn origin() -> Listener {
    let answer = |prefix: &str, status: u16| {
        json!({
            "name": format!("route-{status}"),
            "match": {"prefix": prefix},
            "direct_response": {"status": status, "body": {"inline_string": "origin\n"}},
            "response_headers_to_add": [{"header": {"key": "x-seen", "value": "%REQ(x-over)%"}}],
        })
    };
    let mut listener = Listener::new("origin", vec![]);
    listener.routes = json!([answer("/bad", 401), answer("/", 200)]);
    listener
}

/// Envoy with a policy in front of that origin.
fn in_front(workers: u32, policy: &Value) -> Envoy {
    let origin = origin();
    let port = origin.port;
    let main = Listener::new("main", vec![tollgate(policy, "vm", As::Struct)]).behind_origin();
    let mut setup = Setup::new(workers, vec![main, origin]);
    setup.origin = port;
    setup.start()
}

// The charge is made when the response is known: successes are free, and the status is the origin's.
#[test]
fn failed_logins_only() {
    let policy = rule(json!({
        "charge": {"response_status": ["401", "5xx"]},
        "quotas": [{"limit": 2, "window": "1h"}],
    }));
    let envoy = in_front(1, &policy);
    assert_eq!(statuses(&envoy, &get("/good")), [200; 6]);
    assert_eq!(statuses(&envoy, &get("/bad")), [401, 401, 429, 429]);
    assert_eq!(statuses(&envoy, &get("/good")), [429; 2]);
    assert_eq!(statuses(&envoy, &Request::get("/bad").header("x-key", "other")), [401]);
}

// A mark must reach the origin and must not be forged by the client.
#[test]
fn a_mark_reaches_the_origin_and_replaces_the_clients_own() {
    let policy = rule(json!({"action": {"mark": {"header": "x-over", "value": "yes"}}}));
    let envoy = in_front(1, &policy);
    let mut client = envoy.client();
    let forged = get("/").header("x-over", "forged");
    assert_eq!(client.send(&forged).header("x-seen").as_deref(), Some("forged"), "not over yet");
    let over = client.send(&forged);
    assert_eq!((over.status, over.header("x-seen").as_deref()), (200, Some("yes")));
    assert_eq!(envoy.decisions("r", "marked"), 1);
}

// A shadowban that shows a rate limit field is none.
#[test]
fn answers_of_ones_own() {
    let envoy = in_front(1, &rule(json!({"action": {"respond": {"status": 200, "body": "ok"}}})));
    let mut client = envoy.client();
    let first = client.send(&get("/"));
    assert_eq!((first.text().as_str(), first.header("ratelimit")), ("origin\n", None));
    let banned = client.send(&get("/"));
    assert_eq!((banned.status, banned.text().as_str()), (200, "ok"));
    for field in ["ratelimit", "ratelimit-policy", "retry-after"] {
        assert_eq!(banned.header(field), None);
    }

    let envoy = in_front(1, &rule(json!({"action": {"deny": {"status": 503, "body": "busy"}}})));
    assert_eq!(statuses(&envoy, &get("/")), [200]);
    let denied = envoy.client().send(&get("/"));
    assert_eq!((denied.status, denied.text().as_str()), (503, "busy"));
    assert!(denied.header("retry-after").is_some());
}

// The request is decided again on a tick, by the effective context of its stream; who left is skipped.
#[test]
fn a_request_waits_until_it_is_admitted_or_has_waited_long_enough() {
    let policy = rule(json!({
        "action": {"delay": {"max": "600ms"}},
        "quotas": [{"limit": 1, "window": "400ms"}],
    }));
    let envoy = in_front(2, &policy);
    let began = Instant::now();
    assert_eq!(statuses(&envoy, &get("/")), [200, 200, 200]);
    assert!(began.elapsed() >= Duration::from_millis(790), "{:?}", began.elapsed());

    let mut gone = envoy.client();
    gone.start(&get("/")).expect("sent");
    drop(gone);
    // Eight at once: each admission makes the others wait on, until they have waited 600 ms.
    let mut clients = envoy.clients(8);
    for client in &mut clients {
        client.start(&get("/")).expect("sent");
    }
    let answers: Vec<u16> =
        clients.iter_mut().map(|client| client.finish(false).expect("an answer").status).collect();
    let passed = answers.iter().filter(|status| **status == 200).count();
    assert!((1..=3).contains(&passed), "{answers:?}");
    assert_eq!(answers.iter().filter(|status| **status == 429).count(), 8 - passed, "{answers:?}");
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(statuses(&envoy, &get("/")), [200], "nobody is stuck");
}

// What is not enforced is counted all the same.
#[test]
fn a_shadow_is_in_the_metrics_alone() {
    let envoy = in_front(1, &rule(json!({"mode": "shadow"})));
    assert_eq!(statuses(&envoy, &get("/")), [200; 5]);
    assert_eq!(envoy.client().send(&get("/")).header("ratelimit"), None);
    assert_eq!(envoy.decisions("r", "shadowed"), 5);
}

// Tiers are chosen by the key and by conditions; each has states of its own.
#[test]
fn tiers_replace_the_quotas() {
    let quotas = |limit: u32| json!([{"limit": limit, "window": "1h"}]);
    let envoy = in_front(
        1,
        &rule(json!({"tiers": [
            {"name": "gold", "priority": 2, "key_values": ["g"], "quotas": quotas(3)},
            {"name": "silver", "when": {"headers": {"x-plan": "silver"}}, "quotas": quotas(2)},
        ]})),
    );
    assert_eq!(statuses(&envoy, &get("/")), [200, 429]);
    assert_eq!(statuses(&envoy, &get("/").header("x-plan", "silver")), [200, 200, 429]);
    assert_eq!(statuses(&envoy, &Request::get("/").header("x-key", "g")), [200, 200, 200, 429]);
}

// The route's name is a property of the stream, known before the filter runs.
#[test]
fn a_rule_for_a_route() {
    let policy = rule(json!({"when": {"routes": ["limited"]}}));
    let mut listener = Listener::new("main", vec![tollgate(&policy, "vm", As::Text)]);
    let answer = |name: &str, prefix: &str| json!({"name": name, "match": {"prefix": prefix}, "direct_response": {"status": 200}});
    listener.routes = json!([answer("limited", "/l"), answer("free", "/")]);
    let envoy = Setup::new(1, vec![listener]).start();
    assert_eq!(statuses(&envoy, &get("/l")), [200, 429]);
    assert_eq!(statuses(&envoy, &get("/f")), [200, 200]);
}

/// HS256 with the key below, valid until 2100: {"iss":"me","sub":"alice","n":7} and "bob".
const ALICE: &str = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJpc3MiOiJtZSIsInN1YiI6ImFsaWNlIiwibiI6NywiZXhwIjo0MTAyNDQ0ODAwfQ.DSZ_RKnGHAmvb2EUl_ZmhAytn0Tu7IjpbDdHI6wRzOw";
const BOB: &str = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJpc3MiOiJtZSIsInN1YiI6ImJvYiIsIm4iOjcsImV4cCI6NDEwMjQ0NDgwMH0.KhSNJSeK2-H8UgaWbrsOojzGmQ4Lh4UiL0XKRH163SA";
const KEY: &str = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY";

/// Envoy's own filter, which lets requests without a good token pass unauthenticated.
fn jwt_authn() -> Value {
    let jwks = json!({"keys": [{"kty": "oct", "alg": "HS256", "k": KEY}]}).to_string();
    json!({
        "name": "envoy.filters.http.jwt_authn",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.jwt_authn.v3.JwtAuthentication",
            "providers": {"me": {
                "issuer": "me",
                "payload_in_metadata": "payload",
                "local_jwks": {"inline_string": jwks},
            }},
            "rules": [{"match": {"prefix": "/"}, "requires": {"requires_any": {"requirements": [
                {"provider_name": "me"}, {"allow_missing_or_failed": {}},
            ]}}}],
        },
    })
}

// Only what jwt_authn verified counts: a token that nobody verified is never read.
#[test]
fn verified_claims_are_keys_and_others_are_not() {
    for (claim, others_share) in [("sub", false), ("n", true)] {
        let mut policy = rule(json!({"key": [{"jwt_claim": claim}], "on_missing": "deny"}));
        policy["jwt"] = json!({"metadata": "payload"});
        let filters = vec![jwt_authn(), tollgate(&policy, "vm", As::Text)];
        let envoy = Setup::new(1, vec![Listener::new("main", filters)]).start();
        let with =
            |token: &str| Request::get("/").header("authorization", format!("Bearer {token}"));
        assert_eq!(statuses(&envoy, &with(ALICE)), [200, 429], "{claim}");
        let bob = if others_share { 429 } else { 200 };
        assert_eq!(statuses(&envoy, &with(BOB)), [bob], "{claim}");
        // Bob's claims under Alice's signature, and no token at all: nobody is claimed.
        let (unsigned, _) = BOB.rsplit_once('.').expect("three parts");
        let (_, signature) = ALICE.rsplit_once('.').expect("three parts");
        let forged = envoy.client().send(&with(&format!("{unsigned}.{signature}")));
        assert_eq!((forged.status, forged.header("retry-after")), (429, None), "{claim}");
        assert!(forged.text().contains("lacks"), "{}", forged.text());
        assert!(envoy.client().send(&Request::get("/")).text().contains("lacks"));
    }
}
