//! Keys from tokens: only claims that a configured key signed, valid now and for this audience, are
//! read. The tokens come from `worker_tokens.mjs`, which states which are valid.

use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use tollgate_e2e::claims;
use tollgate_e2e::http::{Client, Request};
use tollgate_e2e::tokens::{SECRET, signed};
use tollgate_e2e::workerd::{Setup, answer, node_bin};

use crate::worker_origin::serve;

fn tokens() -> Value {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("e2e/worker_tokens.mjs");
    let made = Command::new(node_bin()).arg(script).arg(now.to_string()).output().expect("node");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    serde_json::from_slice(&made.stdout).expect("tokens")
}

fn listed(tokens: &Value) -> Vec<(String, String)> {
    let tokens = tokens.as_object().expect("tokens by name");
    tokens.iter().map(|(name, t)| (name.clone(), t.as_str().expect("text").to_owned())).collect()
}

/// Two rules that count by the claim `sub`: a request without it is skipped under /skip and denied
/// under /deny.
fn policy(keys: &Value) -> Value {
    let rule = |name: &str| {
        let quota =
            json!({"name": name, "algorithm": "fixed-window", "limit": 1000, "window": "366d"});
        json!({"name": name, "when": {"paths": [format!("/{name}")]}, "key": [{"jwt_claim": "sub"}],
            "on_missing": name, "quotas": [quota]})
    };
    json!({"version": 1, "rules": [rule("skip"), rule("deny")], "jwt": {
        "keys": keys, "issuer": "https://issuer.example", "audiences": ["tollgate", "tollgate-test"]}})
}

fn ask(client: &mut Client, path: &str, authorization: &str) -> Value {
    let body = json!({"method": "GET", "path": path, "client_ip": "192.0.2.1",
        "headers": {"Authorization": authorization}});
    answer(&client.send(&Request::post("/check", body.to_string())))
}

// Guards: users who share a limit with others or have none, because a valid token of a supported
// algorithm was not read: each counts in the bucket of its `sub`.
#[test]
fn a_valid_token_is_counted_by_its_claim() {
    let tokens = tokens();
    let worker = Setup::new(policy(&tokens["keys"])).start();
    let mut client = worker.client();
    let good = listed(&tokens["good"]);
    assert!(good.len() >= 8);
    for (i, (name, token)) in good.iter().enumerate() {
        for authorization in [format!("Bearer {token}"), format!("bearer  {token}"), token.clone()]
        {
            let answer = ask(&mut client, "/skip", &authorization);
            assert_eq!(answer["rules"], json!([{"name": "skip", "result": "allowed"}]), "{name}");
        }
        let field =
            ask(&mut client, "/deny", &format!("Bearer {token}"))["headers"]["ratelimit"].clone();
        let start = format!("\"deny\";r={};t=", 999 - i);
        assert!(field.as_str().is_some_and(|f| f.starts_with(&start)), "{name}: {field}");
    }
}

// Guards: a bucket of the attacker's choice. Forged, confused, expired, foreign and broken tokens
// count as absent; and after all of them the Worker still reads a valid one.
#[test]
fn a_token_that_does_not_verify_is_never_read() {
    let tokens = tokens();
    let worker = Setup::new(policy(&tokens["keys"])).start();
    let mut client = worker.client();
    let bad = listed(&tokens["bad"]);
    assert!(bad.len() >= 50 && bad.iter().any(|(name, _)| name == "two tokens"));
    let mut read = vec![];
    for (name, token) in &bad {
        for scheme in ["Bearer ", ""] {
            let authorization = format!("{scheme}{token}");
            let skipped = ask(&mut client, "/skip", &authorization);
            let refused = ask(&mut client, "/deny", &authorization);
            if name == "two tokens" {
                // It is unknown which of them the origin uses.
                let is_malformed =
                    |said: &Value| said["decision"] == "deny" && said["status"] == 400;
                assert!(is_malformed(&skipped) && is_malformed(&refused), "{skipped} {refused}");
                continue;
            }
            if skipped["rules"] != json!([])
                || skipped["decision"] != "allow"
                || refused["rules"] != json!([{"name": "deny", "result": "denied"}])
                || refused["decision"] != "deny"
            {
                read.push(format!("{name}: {skipped} {refused}"));
            }
        }
    }
    assert!(read.is_empty(), "{}", read.join("\n"));
    assert_eq!(worker.databases().len(), 0, "no bucket was made");
    let good = tokens["good"]["ES256"].as_str().expect("a token");
    assert_eq!(ask(&mut client, "/deny", &format!("Bearer {good}"))["decision"], "allow");
}

// Guards: one key of a set that cannot be used, which must not take the others with it.
#[test]
fn a_key_that_cannot_be_imported_hides_no_other() {
    let tokens = tokens();
    let mut keys = tokens["keys"].clone();
    let zero = "A".repeat(43); // a point that is not on the curve
    let broken = json!({"kty": "EC", "alg": "ES256", "crv": "P-256", "x": zero, "y": zero});
    keys.as_array_mut().expect("a list").insert(0, broken);
    let worker = Setup::new(policy(&keys)).start();
    let good = tokens["good"]["ES256"].as_str().expect("a token");
    assert_eq!(ask(&mut worker.client(), "/deny", &format!("Bearer {good}"))["decision"], "allow");
}

// Guards: the other use of the Worker, with a header of its own: in front of an origin the token is
// verified as well, two users have two buckets, and the token still reaches the origin.
#[test]
fn in_front_of_an_origin_users_have_buckets_of_their_own() {
    let tokens = tokens();
    let mut policy = policy(&tokens["keys"]);
    policy["rules"][1]["quotas"][0]["limit"] = json!(1);
    policy["jwt"]["header"] = json!("X-Token");
    let origin = serve(|request| {
        let token = request.header("x-token").unwrap_or_default().to_owned();
        request.answer("200 OK", "", token);
    });
    let worker = Setup::new(policy).binding("ORIGIN", &origin).start();
    let send = |token: &str| worker.client().send(&Request::get("/deny").header("x-token", token));
    let good = tokens["good"]["HS256"].as_str().expect("a token");
    let passed = send(good);
    assert_eq!((passed.status, passed.text().as_str()), (200, good));
    assert_eq!(send(tokens["good"]["ES256"].as_str().expect("a token")).status, 429);
    let forged = send(tokens["bad"]["alg none"].as_str().expect("a token"));
    assert_eq!((forged.status, forged.header("retry-after")), (429, None), "no wait helps");
    let none = worker.client().send(&Request::get("/deny"));
    assert_eq!((none.status, none.header("retry-after")), (429, None));
    let other = send(tokens["other"].as_str().expect("a token"));
    assert_eq!(other.status, 200, "another user");
}

// Guards: a claim that counts here under another text than in Envoy: JavaScript prints large
// numbers with an exponent.
#[test]
fn a_claim_counts_by_the_text_that_the_table_says() {
    let rows = claims::rows();
    let keys = json!([{"kty": "oct", "alg": "HS256", "k": SECRET}]);
    let policy = json!({"version": 1, "jwt": {"keys": keys}, "rules": claims::rules(&rows)});
    let worker = Setup::new(policy).start();
    let mut client = worker.client();
    let payload = |row: &claims::Row| format!("{{\"c\":{}}}", row.json);
    let tokens = signed(&rows.iter().map(payload).collect::<Vec<_>>());
    let mut wrong = vec![];
    for (row, token) in rows.iter().zip(tokens) {
        let answer = ask(&mut client, "/", &format!("Bearer {token}"));
        let field = answer["headers"]["ratelimit-policy"].as_str().map(ToOwned::to_owned);
        if answer["decision"] != "allow"
            || field != claims::expected_field(&rows, row.text.as_deref())
        {
            wrong.push(format!("{}: {answer}", row.json));
        }
    }
    assert!(wrong.is_empty() && rows.len() >= 40, "{}", wrong.join("\n"));
}
