//! Rules that deny without counting, in the server: `/check` and the metrics. The other protocols
//! are tested in `server_grpc` and `server_forward`.

use serde_json::{Value, json};
use tollgate_e2e::http::Request;
use tollgate_e2e::server::Setup;
use tollgate_e2e::workerd::answer;

// Guards: a denial that no metric shows.
#[test]
fn a_rule_denies_each_request_of_check() {
    let server = Setup::new(json!({"version": 1, "rules": [
        {"name": "blocked", "deny": true, "when": {"client_cidrs": ["192.0.2.0/24"]}},
        {"name": "law", "deny": {"status": 451, "body": "not here"}, "when": {"countries": ["XX"]}},
        {"name": "each", "key": ["client_ip"], "quotas": [{"limit": 2, "window": "366d"}]},
    ]}))
    .operated()
    .start();
    let ask =
        |body: Value| answer(&server.client().send(&Request::post("/check", body.to_string())));
    let from = |ip: &str| json!({"method": "GET", "path": "/", "client_ip": ip});
    for _ in 0..3 {
        let denied = ask(from("192.0.2.1"));
        assert_eq!((&denied["decision"], &denied["status"]), (&json!("deny"), &json!(403)));
        assert_eq!(denied["rules"], json!([{"name": "blocked", "result": "denied"}]));
        assert_eq!(denied["headers"], json!({"cache-control": "no-store"}));
    }
    let law =
        ask(json!({"method": "GET", "path": "/", "client_ip": "198.51.100.1", "country": "XX"}));
    assert_eq!((&law["status"], &law["body"]), (&json!(451), &json!("not here")));
    let allowed = ask(from("198.51.100.1"));
    assert_eq!(allowed["rules"], json!([{"name": "each", "result": "allowed"}]));
    let decisions = |rule: &str, result: &str| {
        let labels = format!("rule=\"{rule}\",quota=\"\",tier=\"\",result=\"{result}\"");
        server.metric(&format!("tollgate_decisions_total{{{labels}}}"))
    };
    assert_eq!((decisions("blocked", "denied"), decisions("law", "denied")), (3, 1));
    assert_eq!(decisions("each", "allowed"), 1);
}
