//! Tenants in a real workerd: an operator's entries are in force in every isolate within seconds,
//! outlive crashes, and cost nobody else anything.

use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tollgate_e2e::http::{Client, Request, Response};
use tollgate_e2e::workerd::{answer, check_request};

use crate::worker_admin::{ADMIN, READER, asks, body, operated};

const TENANTS: &str = "/.well-known/tollgate/admin/tenants";

/// Two of each organisation a year; nine of a gold one.
fn policy() -> Value {
    json!({"version": 1, "tenant": {"header": "x-org"}, "rules": [
        {"name": "org", "key": [{"header": "x-org"}], "on_missing": "shared", "quotas": [year(2)],
         "tiers": [{"name": "gold", "when": {"headers": {"x-plan": "gold"}}, "quotas": [year(9)]}]}]})
}

fn year(limit: u64) -> Value {
    json!({"name": "year", "algorithm": "fixed-window", "limit": limit, "window": "366d"})
}

fn of(org: &str) -> Request {
    let request =
        json!({"method": "GET", "path": "/", "headers": {"x-org": org}, "client_ip": "192.0.2.1"});
    check_request("GET", "/", "192.0.2.1").body(request.to_string())
}

/// The limit that one request of `org` meets.
fn limit(client: &mut Client, org: &str) -> u64 {
    let answer = answer(&client.send(&of(org)));
    let policy = answer["headers"]["ratelimit-policy"].as_str().unwrap_or_default();
    let limit = policy.split(";q=").nth(1).and_then(|rest| rest.split(';').next());
    limit.and_then(|limit| limit.parse().ok()).unwrap_or_else(|| panic!("{answer}"))
}

fn place(id: &str) -> String {
    format!("{TENANTS}/{id}")
}

fn put(client: &mut Client, id: &str, entry: &Value) -> Response {
    let request = asks(ADMIN, "PUT", &place(id), &entry.to_string());
    client.send(&request.header("if-none-match", "*"))
}

/// Asks until `org` meets `wanted`: an isolate may know the earlier entry for 5 s.
fn until(client: &mut Client, org: &str, wanted: u64) {
    let since = Instant::now();
    while limit(client, org) != wanted {
        assert!(since.elapsed() < Duration::from_secs(60), "{org} never met {wanted}");
        thread::sleep(Duration::from_millis(200));
    }
}

// Guards: the whole of it, as an operator does it with curl.
#[test]
fn an_operator_gives_a_tenant_its_limits() {
    let worker = operated(policy()).start();
    let mut client = worker.client();
    assert_eq!(limit(&mut client, "acme"), 2);
    for (entry, status, said) in [
        (json!({"tier": "glod"}), 422, "did you mean"),
        (json!({"quotas": {"or": [year(1)]}}), 422, "did you mean"),
        (json!({}), 422, "says nothing"),
        (json!({"tier": "gold", "note": "n".repeat(16 * 1024)}), 413, "16384"),
    ] {
        let refused = put(&mut client, "acme", &entry);
        assert_eq!(refused.status, status, "{}", refused.text());
        assert!(refused.text().contains(said), "{}", refused.text());
    }
    let gold = json!({"tier": "gold", "note": "<script>alert(1)</script>"});
    let created = put(&mut client, "acme", &gold);
    assert_eq!(created.status, 201, "{}", created.text());
    until(&mut client, "acme", 9);
    assert_eq!(limit(&mut client, "other"), 2, "nobody else");
    assert_eq!(put(&mut client, "acme", &gold).status, 412);

    let read = client.send(&asks(READER, "GET", &place("acme"), ""));
    assert_eq!((read.status, body(&read)), (200, gold));
    let own = json!({"quotas": {"org": [year(5)]}}).to_string();
    let tag = read.header("etag").expect("an etag");
    let changed = asks(ADMIN, "PUT", &place("acme"), &own).header("if-match", &tag);
    assert_eq!(client.send(&changed).status, 200);
    assert_eq!(client.send(&changed).status, 412, "somebody was faster");
    until(&mut client, "acme", 5);
    let explained = json!({"method": "GET", "path": "/", "headers": {"x-org": "acme"}});
    let explain = "/.well-known/tollgate/admin/explain";
    let explained = client.send(&asks(READER, "POST", explain, &explained.to_string()));
    assert_eq!(body(&explained)["rules"][0]["quotas"][0]["limit"], 5, "{}", explained.text());

    let expired = json!({"tier": "gold", "expires": "2020-01-01T00:00:00Z"});
    assert_eq!(put(&mut client, "past", &expired).status, 201);
    assert_eq!(limit(&mut client, "past"), 2);
    let all = body(&client.send(&asks(READER, "GET", TENANTS, "")));
    let ids: Vec<_> = all["tenants"].as_array().expect("a list").iter().map(|t| &t["id"]).collect();
    assert_eq!(ids, ["acme", "past"]);

    let gone = asks(ADMIN, "DELETE", &place("acme"), "").header("if-match", "*");
    let gone = client.send(&gone);
    assert_eq!(gone.status, 204, "{}", gone.text());
    until(&mut client, "acme", 2);
    assert_eq!(client.send(&asks(READER, "GET", &place("acme"), "")).status, 404);
    // A revision does not come back, and what was removed does not either.
    assert_eq!(put(&mut client, "acme", &json!({"tier": "gold"})).status, 201);
    let again = client.send(&changed);
    assert_eq!(again.status, 412, "{}", again.text());
    until(&mut client, "acme", 9);
}

// Guards: an entry that is lost, or in force in one isolate only, after workerd is killed; and a
// name of an object, or a file, that tells who the tenants are. The name stands in the list only.
#[test]
fn entries_outlive_a_crash_and_isolates_follow() {
    let mut worker = operated(policy()).beside(policy()).start();
    let mut client = worker.client();
    assert_eq!(put(&mut client, "acme", &json!({"tier": "gold"})).status, 201);
    until(&mut client, "acme", 9);
    worker.kill();
    worker.restart();
    let mut client = worker.client();
    assert_eq!(limit(&mut client, "acme"), 9);
}

// Guards: a tenant whose object cannot be asked. Its name is that of an object which fails.
#[test]
fn a_tenant_that_cannot_be_asked_for_is_decided_by_the_rules_or_refused() {
    for (on_failure, expected) in [("allow", "allow"), ("deny", "deny")] {
        let mut policy = policy();
        policy["on_failure"] = json!(on_failure);
        let front = r#"
            import Tollgate, * as entry from "./entry.mjs";
            export const { Limiter, Policies, Metrics } = entry;
            export class Tenants extends entry.Tenants {
                async call() { throw new Error("broken"); }
            }
            export default Tollgate;
        "#;
        let worker = operated(policy).front(front).start();
        let mut client = worker.client();
        let answer = answer(&client.send(&of("acme")));
        assert_eq!(answer["decision"], expected, "{answer}");
        if on_failure == "deny" {
            assert_eq!((&answer["status"], &answer["failure"]), (&json!(503), &json!(true)));
        } else {
            assert_eq!(limit(&mut client, "acme"), 2, "counted by the rule itself");
        }
        let since = Instant::now();
        while !worker.log().contains("tenant=1") {
            assert!(since.elapsed() < Duration::from_secs(60), "{}", worker.log());
            client.send(&of("acme"));
            thread::sleep(Duration::from_millis(200));
        }
    }
}

/// All identifiers, page by page.
fn listed(client: &mut Client) -> Vec<String> {
    let (mut after, mut seen) = (String::new(), Vec::new());
    loop {
        let page = body(&client.send(&asks(READER, "GET", &format!("{TENANTS}{after}"), "")));
        let ids = page["tenants"].as_array().expect("a list").iter();
        seen.extend(ids.map(|tenant| tenant["id"].as_str().expect("an id").to_owned()));
        match page["next_after"].as_str() {
            Some(last) => after = format!("?after={last}"),
            None => return seen,
        }
    }
}

// Guards: an entry that is put and not listed, listed twice, or given to another tenant.
#[test]
fn three_hundred_tenants_are_put_and_listed() {
    let worker = operated(policy()).start();
    let mut client = worker.client();
    for i in 0..300 {
        let entry = json!({"quotas": {"org": [year(3 + i)]}});
        assert_eq!(put(&mut client, &format!("t{i:03}"), &entry).status, 201);
    }
    let all: Vec<_> = (0..300).map(|i| format!("t{i:03}")).collect();
    assert_eq!(listed(&mut client), all);
    for i in [0, 77, 299] {
        assert_eq!(limit(&mut client, &format!("t{i:03}")), 3 + i);
    }
    assert_eq!(limit(&mut client, "nobody"), 2);
}

// Guards: a list that cannot hold as many tenants as are promised, or that reads all of them for a
// page. The rows are put beside the API, because a hundred thousand writes take an hour here.
#[test]
fn a_hundred_thousand_tenants_are_paged_through() {
    let front = r#"
        import Tollgate, * as entry from "./entry.mjs";
        export const { Limiter, Policies, Metrics } = entry;
        const LOAD = `INSERT INTO tenants_v1 WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 99999)
            SELECT printf('t%06d', i), i + 1, '{"tier": "gold"}', '', 0 FROM n`;
        export class Tenants extends entry.Tenants {
            async call(request) {
                const reply = await super.call(request);
                if (request[0] !== 2 || this.isLoaded) return reply;
                this.isLoaded = true;
                this.ctx.storage.sql.exec(LOAD);
                this.ctx.storage.sql.exec("INSERT INTO tenants_sum_v1 VALUES (1, 100000, 100000)");
                return super.call(request);
            }
        }
        export default Tollgate;
    "#;
    let worker = operated(policy()).front(front).start();
    let mut client = worker.client();
    let ids = listed(&mut client);
    assert_eq!(ids.len(), 100_000);
    assert!(ids.windows(2).all(|two| two[0] < two[1]));
    // A write finds its place and its number among them, and is in force; the others are as before.
    let created = put(&mut client, "t050000x", &json!({"tier": "gold"}));
    assert_eq!(created.status, 201, "{}", created.text());
    assert!(created.header("etag").expect("an etag").contains("100001"), "{created:?}");
    assert_eq!(put(&mut client, "t050000", &json!({"tier": "gold"})).status, 412);
    until(&mut client, "t050000x", 9);
    assert_eq!(limit(&mut client, "nobody"), 2);
}
