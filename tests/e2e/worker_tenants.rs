//! Tenants in a real workerd: an operator's entries are in force in every isolate within seconds,
//! survive crashes, and cost other tenants nothing.

use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tollgate_e2e::http::{Client, Request, Response};
use tollgate_e2e::process::wait_until;
use tollgate_e2e::workerd::{answer, check_request};

use crate::worker_admin::{ADMIN, READER, asks, body, operated};

const TENANTS: &str = "/.well-known/tollgate/admin/tenants";

/// Two per year for each organisation; nine for a gold one.
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

/// The limit that applies to one request of `org`.
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

/// Sends requests until `wanted` applies to `org`: an isolate may use the earlier entry for 5 s.
fn until(client: &mut Client, org: &str, wanted: u64) {
    let since = Instant::now();
    while limit(client, org) != wanted {
        assert!(since.elapsed() < Duration::from_secs(60), "{org} never met {wanted}");
        thread::sleep(Duration::from_millis(200));
    }
}

// Guards: the whole procedure, as an operator does it with curl.
#[test]
fn an_operator_gives_a_tenant_its_limits() {
    let worker = operated(policy()).start();
    let mut client = worker.client();
    assert_eq!(limit(&mut client, "acme"), 2);
    for (entry, status, said) in [
        (json!({"tier": "glod"}), 422, "did you mean"),
        (json!({"quotas": {"or": [year(1)]}}), 422, "did you mean"),
        (json!({}), 422, "has no effect"),
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

    let mut expiring = json!({"tier": "gold", "expires": "2020-01-01T00:00:00Z"});
    let refused = put(&mut client, "past", &expiring);
    assert_eq!(refused.status, 422, "{}", refused.text());
    assert_eq!(body(&refused)["errors"][0]["path"], "expires");
    expiring["expires"] = json!("2100-01-01T00:00:00Z");
    assert_eq!(put(&mut client, "past", &expiring).status, 201);
    let all = body(&client.send(&asks(READER, "GET", TENANTS, "")));
    let ids: Vec<_> = all["tenants"].as_array().expect("a list").iter().map(|t| &t["id"]).collect();
    assert_eq!(ids, ["acme", "past"]);

    let gone = asks(ADMIN, "DELETE", &place("acme"), "").header("if-match", "*");
    let gone = client.send(&gone);
    assert_eq!(gone.status, 204, "{}", gone.text());
    until(&mut client, "acme", 2);
    assert_eq!(client.send(&asks(READER, "GET", &place("acme"), "")).status, 404);
    // A revision never returns, and neither does a removed entry.
    assert_eq!(put(&mut client, "acme", &json!({"tier": "gold"})).status, 201);
    let again = client.send(&changed);
    assert_eq!(again.status, 412, "{}", again.text());
    until(&mut client, "acme", 9);
}

// Guards: an entry that is lost, or in force in one isolate only, after workerd is killed; and a
// name of an object, or a file, that reveals the tenants. Only the list contains the name.
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

// Guards: a tenant whose object cannot be reached. Its name is that of an object which fails.
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

// Guards: one tenant whose object accepts no entry, which its flood may cause: it would keep the
// entries of all others from being in force, and their operators would see that error.
#[test]
fn a_tenant_whose_object_takes_nothing_holds_up_no_other() {
    let front = r#"
        import Tollgate, * as entry from "./entry.mjs";
        export const { Policies, Metrics } = entry;
        const left = { once: 2, never: Infinity }; // an entry goes to two objects
        function take(entry) {
            const text = new TextDecoder().decode(entry);
            const why = Object.keys(left).find((word) => left[word] > 0 && text.includes(`"${word}"`));
            if (why === undefined) return;
            left[why] -= 1;
            throw new Error("it takes nothing");
        }
        export class Limiter extends entry.Limiter {
            take(entry) {
                take(entry);
                return super.take(entry);
            }
        }
        export class Tenants extends entry.Tenants {
            async call(request) {
                if (request[0] === 1) take(request);
                return super.call(request);
            }
        }
        export default Tollgate;
    "#;
    let worker = operated(policy()).front(front).start();
    let mut client = worker.client();
    let noted = |note: &str| json!({"tier": "gold", "note": note});
    // The older one would be accepted the next time; the newer one never is, and is tried first.
    assert_eq!(put(&mut client, "older", &noted("once")).status, 503);
    assert_eq!(put(&mut client, "newer", &noted("never")).status, 503);
    assert_eq!(put(&mut client, "newest", &noted("fine")).status, 201);
    assert_eq!(limit(&mut client, "newest"), 9);
    // Continuous writes do not delay the alarm.
    let since = Instant::now();
    for n in 0.. {
        if limit(&mut client, "older") == 9 {
            break;
        }
        assert_eq!(put(&mut client, &format!("t{n}"), &noted("fine")).status, 201);
        assert!(since.elapsed() < Duration::from_secs(60), "{}", worker.log());
        thread::sleep(Duration::from_millis(500));
    }
    assert_eq!(limit(&mut client, "newer"), 2, "it is tried again and again");
}

// Guards: an alarm that waits for one object for ever, and so is the last: later deliveries would
// never be in force.
#[test]
fn a_tenant_whose_object_hangs_holds_up_no_other() {
    let front = r#"
        import Tollgate, * as entry from "./entry.mjs";
        export const { Policies, Metrics } = entry;
        let hanging = 0;
        let left = 2; // an entry goes to two objects
        function take(entry) {
            const text = new TextDecoder().decode(entry);
            if (text.includes('"hangs"')) {
                console.warn(`hanging: ${++hanging}.`);
                return new Promise((resolve) => setTimeout(resolve, 600_000));
            }
            if (text.includes('"once"') && left-- > 0) throw new Error("it takes nothing");
        }
        export class Limiter extends entry.Limiter {
            async take(entry) {
                await take(entry);
                return super.take(entry);
            }
        }
        export class Tenants extends entry.Tenants {
            async call(request) {
                if (request[0] === 1) await take(request);
                return super.call(request);
            }
        }
        export default Tollgate;
    "#;
    let worker = operated(policy()).front(front).start();
    let mut client = worker.client();
    let noted = |note: &str| json!({"tier": "gold", "note": note});
    assert_eq!(put(&mut client, "stuck", &noted("hangs")).status, 503);
    let has_rung = || worker.log().contains("hanging: 3.").then_some(());
    wait_until("the alarm", Duration::from_secs(60), has_rung);
    assert_eq!(put(&mut client, "next", &noted("once")).status, 503);
    let mut is_in_force = || (limit(&mut client, "next") == 9).then_some(());
    wait_until("an entry that the next alarm hands on", Duration::from_secs(120), &mut is_in_force);
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

// Guards: a list that cannot hold the promised number of tenants, or that reads all of them for a
// page. The rows are inserted without the API, because a hundred thousand writes take an hour here.
#[test]
fn a_hundred_thousand_tenants_are_paged_through() {
    let front = r#"
        import Tollgate, * as entry from "./entry.mjs";
        export const { Limiter, Policies, Metrics } = entry;
        const LOAD = `INSERT INTO tenants_v1 WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 99999)
            SELECT printf('t%06d', i), i + 1, '{"tier": "gold"}', '', 0, '', '', '' FROM n`;
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
    // A write finds its place and its number among them, and is in force; the others are unchanged.
    let created = put(&mut client, "t050000x", &json!({"tier": "gold"}));
    assert_eq!(created.status, 201, "{}", created.text());
    assert!(created.header("etag").expect("an etag").contains("100001"), "{created:?}");
    assert_eq!(put(&mut client, "t050000", &json!({"tier": "gold"})).status, 412);
    until(&mut client, "t050000x", 9);
    assert_eq!(limit(&mut client, "nobody"), 2);
}

/// Counts the calls of objects, and returns them at `/calls`.
const COUNTING: &str = r#"
    import Tollgate, * as entry from "./entry.mjs";
    export const { Policies, Metrics } = entry;
    const calls = { counts: 0, entries: 0, lists: 0 };
    const ids = new Set();
    const realNow = Date.now;
    export class Limiter extends entry.Limiter {
        check(request) { calls.counts++; ids.add(this.ctx.id.toString()); return super.check(request); }
        async ring() {
            Date.now = () => realNow() + 800 * 86400_000;
            try { await super.alarm(); } finally { Date.now = realNow; }
        }
    }
    export class Tenants extends entry.Tenants {
        call(request) {
            if (request[0] === 0) calls.entries++;
            if (request[0] === 3) calls.lists++;
            return super.call(request);
        }
    }
    export default class extends Tollgate {
        async fetch(request) {
            const { pathname } = new URL(request.url);
            const objects = this.env.LIMITER;
            if (pathname === "/ring") for (const id of ids) await objects.get(objects.idFromString(id)).ring();
            return pathname === "/calls" || pathname === "/ring" ? Response.json(calls) : super.fetch(request);
        }
    }
"#;

/// The numbers of calls to counts, to tenants' own objects, and to the list.
fn calls(client: &mut Client) -> [u64; 3] {
    let calls = answer(&client.send(&Request::get("/calls")));
    ["counts", "entries", "lists"].map(|name| calls[name].as_u64().expect("a number"))
}

/// Waits until the entries are known to be stored with the counts: for an unknown `org` only its
/// counts are then called.
fn until_beside(client: &mut Client, what: &str) {
    let since = Instant::now();
    for i in 0.. {
        let before = calls(client);
        limit(client, &format!("{what}-{i}"));
        if calls(client)[1] == before[1] {
            return;
        }
        assert!(since.elapsed() < Duration::from_secs(60), "never");
        thread::sleep(Duration::from_millis(100));
    }
}

// Guards: a tenant whose entry costs a call of its own, and one whose entry does not apply because
// an old one is still used.
#[test]
fn an_entry_beside_the_count_of_its_tenant_costs_no_call() {
    let worker = operated(policy()).front(COUNTING).start();
    let mut client = worker.client();
    let own = |limit| json!({"quotas": {"org": [year(limit)]}});
    assert_eq!(put(&mut client, "acme", &own(5)).status, 201);
    until_beside(&mut client, "warm");
    // A tenant without an entry: one call, cold or not.
    let before = calls(&mut client);
    for i in 0..10 {
        assert_eq!(limit(&mut client, &format!("cold-{i}")), 2);
    }
    assert_eq!(calls(&mut client)[..2], [before[0] + 10, before[1]]);
    // A tenant with an entry that this isolate never saw: two calls to its count, and none to
    // another object.
    let before = calls(&mut client);
    assert_eq!(limit(&mut client, "acme"), 5);
    assert_eq!(calls(&mut client)[..2], [before[0] + 2, before[1]]);
    // Cold again, and seen before: one call. The list is called once in many seconds, in addition
    // to requests.
    for _ in 0..2 {
        thread::sleep(Duration::from_millis(5_100));
        until_beside(&mut client, "still");
        let before = calls(&mut client);
        assert_eq!(limit(&mut client, "acme"), 5);
        assert_eq!(calls(&mut client)[..2], [before[0] + 1, before[1]]);
    }
    assert!(calls(&mut client)[2] <= 12, "{:?}", calls(&mut client));
    // Changed, removed, put again: in force within seconds, wherever the isolate had it from.
    let changed = asks(ADMIN, "PUT", &place("acme"), &own(7).to_string()).header("if-match", "*");
    assert_eq!(client.send(&changed).status, 200);
    until(&mut client, "acme", 7);
    let gone = asks(ADMIN, "DELETE", &place("acme"), "").header("if-match", "*");
    assert_eq!(client.send(&gone).status, 204);
    until(&mut client, "acme", 2);
    assert_eq!(put(&mut client, "acme", &own(6)).status, 201);
    until(&mut client, "acme", 6);
    // An entry for a tenant that was known to have none.
    assert_eq!(put(&mut client, "cold-3", &own(4)).status, 201);
    until(&mut client, "cold-3", 4);
}

// Guards: an entry that is deleted together with the counts that it is stored with, when these are
// idle.
#[test]
fn an_entry_stays_when_the_counts_beside_it_are_idle() {
    let worker = operated(policy()).front(COUNTING).start();
    let mut client = worker.client();
    assert_eq!(put(&mut client, "acme", &json!({"tier": "gold"})).status, 201);
    until_beside(&mut client, "warm");
    let left = |client: &mut Client| {
        let answer = answer(&client.send(&of("acme")));
        answer["headers"]["ratelimit"].as_str().unwrap_or_default().to_owned()
    };
    assert!(left(&mut client).contains("r=8"));
    assert!(left(&mut client).contains("r=7"));
    assert_eq!(client.send(&Request::get("/ring")).status, 200);
    assert!(left(&mut client).contains("r=8"), "what was used is idle and gone");
    // Nor does the isolate only remember it: after this time it must read the entry again.
    thread::sleep(Duration::from_millis(5_100));
    until_beside(&mut client, "still");
    let before = calls(&mut client);
    assert_eq!(limit(&mut client, "acme"), 9);
    assert_eq!(calls(&mut client)[..2], [before[0] + 1, before[1]]);
    assert_eq!(client.send(&Request::get("/ring")).status, 200);
    assert_eq!(limit(&mut client, "acme"), 9);
}

// Guards: an entry that applies for ever with counts that were left: the policy identified tenants
// in another way, the entry was removed, and the change was undone.
#[test]
fn what_is_removed_while_tenants_are_others_does_not_come_back_with_them() {
    let by = |header: &str| {
        let mut policy = policy();
        policy["tenant"] = json!({ "header": header });
        policy["rules"][0]["key"] = json!([{ "header": header }]);
        policy
    };
    let worker = operated(by("x-org")).front(COUNTING).start();
    let mut client = worker.client();
    let change = |client: &mut Client, policy: &Value| {
        let path = "/.well-known/tollgate/admin/policy";
        let tag = client.send(&asks(READER, "GET", path, "")).header("etag").expect("an etag");
        let put = asks(ADMIN, "PUT", path, &policy.to_string()).header("if-match", &tag);
        let changed = client.send(&put);
        assert_eq!(changed.status, 200, "{}", changed.text());
    };
    for id in ["acme", "kept"] {
        assert_eq!(put(&mut client, id, &json!({"tier": "gold"})).status, 201);
        until(&mut client, id, 9);
    }
    until_beside(&mut client, "warm");
    assert_eq!(limit(&mut client, "acme"), 9);

    change(&mut client, &by("x-shop"));
    // The entry is in force by its name, and is read from its own object.
    let shop = json!({"method": "GET", "path": "/", "headers": {"x-shop": "kept"}});
    let shop = check_request("GET", "/", "192.0.2.1").body(shop.to_string());
    let since = Instant::now();
    loop {
        let before = calls(&mut client);
        let answer = answer(&client.send(&shop));
        let policy = answer["headers"]["ratelimit-policy"].as_str().unwrap_or_default();
        if policy.contains("q=9") && calls(&mut client)[1] > before[1] {
            break;
        }
        assert!(since.elapsed() < Duration::from_secs(60), "{answer}");
        thread::sleep(Duration::from_millis(200));
    }
    let gone = asks(ADMIN, "DELETE", &place("acme"), "").header("if-match", "*");
    assert_eq!(client.send(&gone).status, 204);

    change(&mut client, &by("x-org"));
    until_beside(&mut client, "again");
    until(&mut client, "acme", 2);
    let before = calls(&mut client);
    assert_eq!(limit(&mut client, "nobody"), 2);
    assert_eq!(calls(&mut client)[..2], [before[0] + 1, before[1]]);
    assert_eq!(limit(&mut client, "kept"), 9);
}
