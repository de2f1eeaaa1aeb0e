//! The admin API of a Worker: the policy is read, put, rolled back and deleted over HTTP, and
//! stored in one object.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use tollgate_e2e::http::{Client, Request, Response};
use tollgate_e2e::workerd::{Setup, answer, check_request};

use crate::worker_origin::serve;

pub const ADMIN: &str = "an-operator-who-writes";
pub const READER: &str = "an-operator-who-reads";
pub const POLICY: &str = "/.well-known/tollgate/admin/policy";
pub const HEALTH: &str = "/.well-known/tollgate/health";

/// One rule for each client, with this limit for a year.
pub fn limited(limit: u64) -> Value {
    json!({"version": 1, "rules": [{"name": "client", "key": ["client_ip"], "quotas":
        [{"name": "year", "algorithm": "fixed-window", "limit": limit, "window": "366d"}]}]})
}

/// A Worker whose policy can be changed.
pub fn operated(policy: impl ToString) -> Setup {
    Setup::new(policy)
        .operated()
        .binding("ADMIN_TOKEN", ADMIN)
        .binding("READ_TOKEN", READER)
        .binding("AUDIT_HEADER", "x-operator")
}

/// A request of an operator.
pub fn asks(token: &str, method: &str, path: &str, body: &str) -> Request {
    let request = Request::new(method, path).header("authorization", format!("Bearer {token}"));
    let request = request.header("x-operator", "kim@example.com");
    if body.is_empty() {
        request
    } else {
        request.header("content-type", "application/json").body(body)
    }
}

fn tag(response: &Response) -> String {
    response.header("etag").unwrap_or_else(|| panic!("no etag: {}", response.text()))
}

pub fn body(response: &Response) -> Value {
    serde_json::from_slice(&response.body).unwrap_or_else(|_| panic!("{}", response.text()))
}

/// Puts `policy` in force, whatever the present version; returns its version.
pub fn put(client: &mut Client, policy: &Value) -> u64 {
    let request = asks(ADMIN, "PUT", POLICY, &policy.to_string()).header("if-match", "*");
    let response = client.send(&request);
    assert_eq!(response.status, 200, "{}", response.text());
    body(&response)["version"].as_u64().expect("a version")
}

/// The rest of a client's quota after one request.
pub fn left(client: &mut Client, client_ip: &str) -> String {
    let answer = answer(&client.send(&check_request("GET", "/", client_ip)));
    let field = answer["headers"]["ratelimit"].as_str().unwrap_or_default();
    let left = field.split(";r=").nth(1).and_then(|rest| rest.split(';').next());
    format!("{} {}", answer["decision"].as_str().expect("a decision"), left.unwrap_or("-"))
}

// Guards: the whole procedure of an operator with curl: read, change by the entity tag, see it in
// force at once here, look at the history, roll back, delete.
#[test]
fn an_operator_changes_the_policy() {
    let worker = operated(limited(10)).start();
    let mut client = worker.client();
    assert_eq!(left(&mut client, "192.0.2.1"), "allow 9");
    let read = client.send(&asks(READER, "GET", POLICY, ""));
    assert_eq!((read.status, body(&read)), (200, limited(10)));
    assert_eq!(read.header("tollgate-policy-source").as_deref(), Some("deployed"));
    assert_eq!(read.header("cache-control").as_deref(), Some("no-store"));
    let first = tag(&read);

    let twenty = limited(20).to_string();
    let change = |method: &str, path: &str, body: &str| asks(ADMIN, method, path, body);
    let cases = [
        (change("PUT", POLICY, &twenty), 428),
        (change("PUT", POLICY, &twenty).header("if-match", "\"0-0\""), 412),
        (asks(READER, "PUT", POLICY, &twenty).header("if-match", &first), 403),
        (asks("wrong", "PUT", POLICY, &twenty).header("if-match", &first), 401),
        (change("PUT", POLICY, "{").header("if-match", &first), 400),
        (change("PATCH", POLICY, "").header("if-match", &first), 405),
        (change("DELETE", POLICY, "").header("if-match", &first), 409),
    ];
    for (request, status) in cases {
        let response = client.send(&request);
        assert_eq!(response.status, status, "{}", response.text());
        assert_eq!(response.header("content-type").as_deref(), Some("application/problem+json"));
    }
    let dry = format!("{POLICY}?dry_run=true");
    let dry = client.send(&change("PUT", &dry, &twenty).header("if-match", &first));
    assert_eq!(
        (dry.status, body(&dry)["changes"]["rules"].is_null()),
        (200, false),
        "{}",
        dry.text()
    );
    assert_eq!(tag(&client.send(&asks(READER, "GET", POLICY, ""))), first, "nothing was changed");

    let changed = client.send(&change("PUT", POLICY, &twenty).header("if-match", &first));
    assert_eq!((changed.status, body(&changed)["version"].as_u64()), (200, Some(2)));
    assert_eq!(left(&mut client, "192.0.2.2"), "allow 19", "in force at once where it was put");
    let unchanged = asks(READER, "GET", POLICY, "").header("if-none-match", tag(&changed));
    assert_eq!(client.send(&unchanged).status, 304);

    // All its errors are reported, and nothing is changed.
    let mut bad = limited(30);
    bad["rules"][0]["quotas"][0]["window"] = json!("soon");
    bad["rules"][0]["key"] = json!(["client_id"]);
    let refused = client.send(&change("PUT", POLICY, &bad.to_string()).header("if-match", "*"));
    let errors = body(&refused)["errors"].as_array().map_or(0, Vec::len);
    assert!(refused.status == 422 && errors >= 2, "{}", refused.text());
    assert_eq!(left(&mut client, "192.0.2.2"), "allow 18");

    let back = format!("{POLICY}/rollback");
    let back =
        client.send(&change("POST", &back, r#"{"to": 1}"#).header("if-match", tag(&changed)));
    assert_eq!((back.status, body(&back)["version"].as_u64()), (200, Some(3)), "{}", back.text());
    assert_eq!(left(&mut client, "192.0.2.3"), "allow 9");
    let given = client.send(&change("DELETE", POLICY, "").header("if-match", tag(&back)));
    assert_eq!(
        (given.status, body(&given)["version"].as_u64()),
        (200, Some(4)),
        "{}",
        given.text()
    );
    let read = client.send(&asks(READER, "GET", POLICY, ""));
    assert_eq!(read.header("tollgate-policy-source").as_deref(), Some("deployed"));

    let history = body(&client.send(&asks(READER, "GET", &format!("{POLICY}/history"), "")));
    let row = |row: &Value| {
        json!([
            row["version"],
            row["previous"],
            row["kind"],
            row["to"],
            row["who"],
            row["token"],
            row["source"]
        ])
    };
    let rows: Vec<Value> = history["versions"].as_array().expect("rows").iter().map(row).collect();
    let who = "kim@example.com";
    let expected = json!([
        [4, 3, "delete", null, who, "admin", "deployed"],
        [3, 2, "rollback", 1, who, "admin", "written"],
        [2, 1, "put", null, who, "admin", "written"],
        [1, 0, "deploy", null, null, null, "deployed"],
    ]);
    assert_eq!(json!(rows), expected);
    let two = client.send(&asks(READER, "GET", &format!("{POLICY}/versions/2"), ""));
    assert_eq!((two.status, body(&two)), (200, limited(20)));
    let health = body(&client.send(&Request::get(HEALTH)));
    let found = (&health["status"], &health["version"], &health["source"]);
    assert_eq!(found, (&json!("ok"), &json!(4), &json!("deployed")), "{health}");
}

// Guards: a path of Tollgate's own that reaches the origin, is counted, or is cached; on or off,
// for any caller.
#[test]
fn what_is_ours_never_reaches_the_origin() {
    let paths = [
        "admin",
        "admin/",
        "admin/policy",
        "admin/policy/history",
        "admin/tenants",
        "admin/keys",
        "admin/nothing",
        "admin/policy/",
        "admin//policy",
        "metrics",
        "openapi.json",
    ];
    let policy = json!({"version": 1, "rules": [{"name": "all", "key": [], "quotas":
        [{"algorithm": "fixed-window", "limit": 1, "window": "366d"}]}]});
    for setup in [Setup::new(&policy).operated(), operated(&policy)] {
        let count = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&count);
        let origin = serve(move |request| {
            counted.fetch_add(1, Ordering::Relaxed);
            request.answer("200 OK", "", "hello");
        });
        let seen = || count.load(Ordering::Relaxed);
        let worker = setup.binding("ORIGIN", origin).start();
        let mut client = worker.client();
        for method in ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"] {
            for path in paths {
                let request = Request::new(method, &format!("/.well-known/tollgate/{path}"));
                let response = client.send(&request);
                let refused = [401, 404, 405].contains(&response.status) || path == "openapi.json";
                assert!(refused, "{method} {path}: {}", response.status);
                assert_eq!(response.header("cache-control").as_deref(), Some("no-store"), "{path}");
            }
        }
        assert_eq!(seen(), 0);
        assert_eq!(client.send(&Request::get("/")).status, 200, "the quota of one is whole");
        assert_eq!(seen(), 1);
    }
}

// Guards: a deployment that is configured to be changed and cannot be; two secrets that are equal.
#[test]
fn a_deployment_that_cannot_be_operated_says_so() {
    let errors = |setup: Setup| {
        let worker = setup.binding("CHECK_TOKEN", "t").start();
        let request = Request::get(HEALTH).header("authorization", "Bearer t");
        let report = worker.client().send(&request);
        assert_eq!(report.status, 500);
        body(&report)["errors"].clone()
    };
    let unbound = errors(Setup::new(limited(1)).binding("ADMIN_TOKEN", ADMIN));
    let detail = "needs the Durable Object binding POLICIES; see wrangler.toml";
    assert_eq!(unbound, json!([{"path": "ADMIN_TOKEN", "detail": detail}]));
    let same = errors(operated(limited(1)).binding("READ_TOKEN", ADMIN));
    let detail = "is the same as ADMIN_TOKEN; give each a value of its own";
    assert_eq!(same, json!([{"path": "READ_TOKEN", "detail": detail}]));
}

/// Versions of the history, the newest first, and those whose text is still stored.
fn versions(client: &mut Client) -> (Vec<u64>, Vec<u64>) {
    let (mut all, mut kept, mut before) = (vec![], vec![], String::new());
    loop {
        let path = format!("{POLICY}/history?limit=100{before}");
        let page = body(&client.send(&asks(ADMIN, "GET", &path, "")));
        for row in page["versions"].as_array().expect("rows") {
            let version = row["version"].as_u64().expect("a version");
            all.push(version);
            if row["is_kept"] == true {
                kept.push(version);
            }
        }
        match page["next_before"].as_u64() {
            Some(next) => before = format!("&before={next}"),
            None => return (all, kept),
        }
    }
}

// Guards: two admins who saw the same version: one wins, whichever isolates they reach, and nothing
// is lost or doubled.
#[test]
fn of_admins_who_saw_the_same_version_one_wins() {
    const ROUNDS: u64 = 100;
    let worker = operated(limited(10)).beside(limited(10)).files_in_memory().start();
    for round in 1..=ROUNDS {
        let seen = tag(&worker.client().send(&asks(ADMIN, "GET", POLICY, "")));
        // Mostly two, who reach two isolates.
        let admins = if round % 20 == 0 { 6 } else { 2 };
        let statuses: Vec<u16> = thread::scope(|scope| {
            let admin = |i: usize| {
                let (seen, port) = (&seen, worker.ports[i % 2]);
                move || {
                    let text = limited(100 * round + i as u64).to_string();
                    let request = asks(ADMIN, "PUT", POLICY, &text).header("if-match", seen);
                    Client::connect(port).send(&request).status
                }
            };
            let admins: Vec<_> = (0..admins).map(|i| scope.spawn(admin(i))).collect();
            admins.into_iter().map(|admin| admin.join().expect("an answer")).collect()
        });
        assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 1, "{statuses:?}");
        assert!(statuses.iter().all(|status| [200, 409, 412].contains(status)), "{statuses:?}");
    }
    let all = versions(&mut worker.client()).0;
    assert_eq!(all, (1..=ROUNDS + 1).rev().collect::<Vec<_>>());
}

// Guards: a version that was acknowledged and is lost, or one that was not and is half stored.
#[test]
fn what_was_acknowledged_outlives_a_kill() {
    let mut worker = operated(limited(1)).start();
    let mut acknowledged = 1;
    for round in 0..3 {
        let client = worker.client();
        let (port, killer) = (worker.port, Duration::from_millis(150 + 40 * round));
        drop(client);
        let (wrote, first) = mpsc::channel();
        let writer = thread::spawn(move || {
            let mut last = None;
            let Ok(mut client) = Client::try_connect(port) else { return last };
            for limit in 1.. {
                let text = limited(limit).to_string();
                let request = asks(ADMIN, "PUT", POLICY, &text).header("if-match", "*");
                let Ok(response) = client.try_send(&request) else { break };
                if response.status == 200 {
                    last = Some((body(&response)["version"].as_u64().expect("a version"), limit));
                    let _ = wrote.send(());
                }
            }
            last
        });
        // In the middle of its work, however long the first write takes.
        let _ = first.recv_timeout(Duration::from_secs(60));
        thread::sleep(killer);
        worker.kill();
        let last = writer.join().expect("the writer ends");
        worker.restart();
        let read = worker.client().send(&asks(ADMIN, "GET", POLICY, ""));
        let version = read.header("tollgate-policy-version").and_then(|it| it.parse::<u64>().ok());
        let version = version.unwrap_or_else(|| panic!("{}", read.text()));
        if let Some((last, limit)) = last {
            acknowledged = last;
            let found = body(&read)["rules"][0]["quotas"][0]["limit"].as_u64();
            // At most the one in flight came after it.
            assert!(
                version == last && found == Some(limit) || version == last + 1,
                "{version} {last}"
            );
        }
        assert!(version >= acknowledged, "{version} {acknowledged}");
        let (all, _) = versions(&mut worker.client());
        assert_eq!(all, (1..=version).rev().collect::<Vec<_>>());
    }
    assert!(acknowledged > 1, "nothing was written before any kill");
}

// Guards: a history that grows without end, and a bound that deletes the policy in force.
#[test]
fn the_history_is_bounded() {
    let worker = operated(limited(1)).binding("POLICY_HISTORY", 3).start();
    let mut client = worker.client();
    for limit in 2..=45 {
        put(&mut client, &limited(limit));
    }
    let (all, kept) = versions(&mut client);
    assert_eq!(kept, [45, 44, 43]);
    assert_eq!((all.len(), all.last()), (30, Some(&16)));
    for (version, status) in [(45, 200), (43, 200), (42, 404), (3, 404)] {
        let response =
            client.send(&asks(ADMIN, "GET", &format!("{POLICY}/versions/{version}"), ""));
        assert_eq!(response.status, status, "{version}");
    }
}

/// True when a response contains the secret.
fn tells(response: &Response, secret: &str) -> bool {
    let lines = response.headers.iter().flat_map(|(_, value)| value.clone());
    let bytes: Vec<u8> = lines.chain(response.body.clone()).collect();
    String::from_utf8_lossy(&bytes).contains(secret)
}

// Guards: keys of tokens that leave by the API, and that are lost when the document is put back as
// it was read.
#[test]
fn keys_of_tokens_are_masked_and_kept() {
    let secret = "c2VjcmV0LW9mLXRoZS1pc3N1ZXItMDEyMzQ1Njc4OWFi";
    let mut policy = limited(10);
    policy["rules"][0]["key"] = json!([{"jwt_claim": "sub"}]);
    policy["jwt"] = json!({"keys": [{"kty": "oct", "alg": "HS256", "kid": "a", "k": secret}]});
    let worker = operated(limited(1)).start();
    let mut client = worker.client();
    let request = asks(ADMIN, "PUT", POLICY, &policy.to_string()).header("if-match", "*");
    let written = client.send(&request);
    assert_eq!(written.status, 200, "{}", written.text());
    let read = client.send(&asks(ADMIN, "GET", POLICY, ""));
    assert_eq!(read.status, 200);
    let mut shown = body(&read);
    shown["rules"][0]["quotas"][0]["limit"] = json!(11);
    let request = asks(ADMIN, "PUT", POLICY, &shown.to_string()).header("if-match", tag(&read));
    let again = client.send(&request);
    assert_eq!(again.status, 200, "{}", again.text());
    for path in [POLICY.to_owned(), format!("{POLICY}/history"), format!("{POLICY}/versions/2")] {
        let response = client.send(&asks(ADMIN, "GET", &path, ""));
        assert!(response.status == 200 && !tells(&response, secret), "{path}");
    }
    assert!(!tells(&written, secret) && !tells(&again, secret));
    // Both stored versions contain the key itself.
    let stored = worker.stored_bytes_of("policies").concat();
    let stored = String::from_utf8_lossy(&stored);
    assert!(stored.matches(secret).count() >= 2, "{}", stored.matches(secret).count());
}
