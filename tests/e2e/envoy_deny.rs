//! Rules that deny without counting, in a real Envoy.

use serde_json::{Value, json};
use tollgate_e2e::http::Request;

use crate::envoy_server::Setup;

// Guards: a denial that is counted against a client, that names a wait, or that no metric shows.
#[test]
fn a_rule_denies_before_anything_is_counted() {
    let policy = json!({"version": 1, "rules": [
        {"name": "no admin", "deny": true, "when": {"paths": ["/admin/**"]}, "unless": {"headers": {"x-team": "ops"}}},
        {"name": "law", "deny": {"status": 451, "body": "not here"}, "when": {"headers": {"x-country": "XX"}}},
        {"name": "trial", "deny": true, "mode": "shadow", "when": {"methods": ["GET"]}},
        {"name": "each", "key": [{"header": "x-key"}], "quotas": [{"limit": 2, "window": "366d"}]},
    ]});
    let envoy = Setup::policy(1, &policy).start();
    let mut client = envoy.client();
    let mut send = |path: &str, headers: &[(&str, &str)]| {
        let request = Request::get(path).header("x-key", "k");
        client.send(&headers.iter().fold(request, |it, (name, value)| it.header(name, *value)))
    };
    for path in ["/admin", "/admin/x", "/a/../admin", "/%61dmin"] {
        let denied = send(path, &[]);
        assert_eq!(denied.status, 403, "{path}");
        let names: Vec<&str> = denied.headers.iter().map(|(name, _)| name.as_str()).collect();
        assert!(
            !names.iter().any(|it| it.contains("ratelimit") || *it == "retry-after"),
            "{names:?}"
        );
        assert_eq!(denied.header("cache-control").as_deref(), Some("no-store"));
        let body: Value = serde_json::from_slice(&denied.body).expect("a problem");
        assert_eq!(body["type"], "urn:tollgate:problem:denied-by-rule");
    }
    let law = send("/", &[("x-country", "XX")]);
    assert_eq!((law.status, law.text().as_str()), (451, "not here"));
    let grpc = send("/", &[("x-country", "XX"), ("content-type", "application/grpc")]);
    assert_eq!((grpc.status, grpc.header("grpc-status").as_deref()), (200, Some("7")));
    // Nothing was charged: both units of the key are left.
    let allowed = send("/admin", &[("x-team", "ops")]);
    assert_eq!(allowed.status, 200);
    assert!(allowed.header("ratelimit").is_some_and(|field| field.starts_with(r#""each";r=1;"#)));
    assert_eq!(send("/", &[]).status, 200);
    assert_eq!(send("/", &[]).status, 429);

    let counted = |rule: &str, result: &str| {
        let rule = format!("wasmcustom.tollgate.decisions.plugin=tollgate.rule={rule}");
        envoy.stat(&format!("{rule}.result={result}"))
    };
    assert_eq!((counted("no_admin", "denied"), counted("law", "denied")), (4, 2));
    assert_eq!(counted("trial", "shadowed"), 3, "of requests that no rule before it denied");
    assert_eq!(counted("each", "allowed"), 2);
}
