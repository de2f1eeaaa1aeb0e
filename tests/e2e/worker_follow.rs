//! How isolates follow the policy in force: two Workers in one process over the same objects are
//! two isolates of one deployment.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tollgate_e2e::http::{Client, Request};
use tollgate_e2e::workerd::{Setup, Workerd, answer, check_request};

use crate::worker_admin::{ADMIN, HEALTH, POLICY, asks, body, left, limited, operated, put};

/// The documented bound.
const FOLLOWS: Duration = Duration::from_secs(5);

/// Counts the calls of the policy object, and simulates its faults: `x-fault` of any request sets
/// them from then on.
const POLICIES: &str = r#"
import Tollgate, { Limiter, Policies as Real, Tenants, Metrics } from "./entry.mjs";
export { Limiter, Tenants, Metrics };
let fault = "none";
let calls = 0;
export default class extends Tollgate {
  fetch(request) {
    fault = request.headers.get("x-fault") ?? fault;
    if (new URL(request.url).pathname === "/calls") return new Response(String(calls));
    return super.fetch(request);
  }
}
export class Policies extends Real {
  call(request) {
    calls += 1;
    if (fault === "silent") return new Promise(() => setTimeout(() => {}, 60_000));
    if (fault === "slow") return new Promise((resolve) => setTimeout(() => resolve(super.call(request)), 6_000));
    if (fault === "throws") throw new Error("storage is broken");
    if (fault === "garbage") return new Uint8Array([1, 2, 3]);
    const reply = super.call(request);
    if (fault !== "later") return reply;
    // What a later version of this code would have written.
    const text = new TextDecoder().decode(reply).replaceAll("fixed-window", "of-tomorrow");
    return new TextEncoder().encode(text);
  }
}
"#;

fn calls(worker: &Workerd) -> u64 {
    worker.client().send(&Request::get("/calls")).text().parse().expect("a number")
}

fn fault(worker: &Workerd, fault: &str) {
    worker.client().send(&Request::get("/calls").header("x-fault", fault));
}

fn health(client: &mut Client) -> (u16, Value) {
    let request = Request::get(HEALTH).header("authorization", format!("Bearer {ADMIN}"));
    let report = client.send(&request);
    (report.status, body(&report))
}

/// The limit by which a response was decided.
fn limit_in(answer: &Value) -> String {
    let field = answer["headers"]["ratelimit-policy"].as_str().unwrap_or_default();
    let limit = field.split(";q=").nth(1).and_then(|rest| rest.split(';').next());
    limit.unwrap_or("none").to_owned()
}

/// The limit by which a request of `client` was decided.
fn limit(client: &mut Client, path: &str) -> String {
    limit_in(&answer(&client.send(&check_request("GET", path, "192.0.2.1"))))
}

/// The limit by which a fresh client is decided.
fn limit_of(client: &mut Client, n: u32) -> String {
    let request = check_request("GET", "/", &format!("2001:db8:{n:x}::1"));
    limit_in(&answer(&client.send(&request)))
}

// Guards: an isolate that still uses a policy which was replaced more than five seconds before, and
// one that calls the policy object for each request. The requests never pause.
#[test]
fn a_busy_isolate_follows_within_five_seconds() {
    let worker = operated(limited(1_000_000)).front(POLICIES).beside(limited(1_000_000)).start();
    let mut near = worker.client();
    let mut far = Client::connect(worker.ports[1]);
    assert_eq!(limit_of(&mut far, 1), "1000000");
    let before = calls(&worker);
    put(&mut near, &limited(2_000_000));
    let acknowledged = Instant::now();
    let (mut old, mut new, mut last_old) = (0, 0, Duration::ZERO);
    for n in 2..=u32::MAX {
        let sent = acknowledged.elapsed();
        match limit_of(&mut far, n).as_str() {
            "1000000" => (old, last_old) = (old + 1, sent),
            "2000000" => new += 1,
            other => panic!("{other}"),
        }
        if sent > FOLLOWS + Duration::from_secs(3) {
            break;
        }
    }
    let asked = calls(&worker) - before;
    println!(
        "{old} requests under the old policy, the last {last_old:?} after the change, {new} under the new; {asked} calls"
    );
    assert!(last_old < FOLLOWS, "{last_old:?}");
    assert!(new > 0 && old > 0, "{old} {new}");
    assert!(asked <= 8, "{asked} calls, two of them of the change");
}

// Guards: a thundering herd: of all requests that find their policy old one calls the policy
// object, and the others are decided under its result.
#[test]
fn of_many_requests_one_asks() {
    let worker = operated(limited(1_000_000)).front(POLICIES).beside(limited(1_000_000)).start();
    let mut far = Client::connect(worker.ports[1]);
    assert_eq!(limit_of(&mut far, 1), "1000000");
    put(&mut worker.client(), &limited(2_000_000));
    thread::sleep(FOLLOWS + Duration::from_millis(200));
    let before = calls(&worker);
    let mut clients: Vec<Client> = (0..64).map(|_| Client::connect(worker.ports[1])).collect();
    for (n, client) in (100_u32..).zip(&mut clients) {
        client
            .start(&check_request("GET", "/", &format!("2001:db8:{n:x}::1")))
            .expect("it is sent");
    }
    for client in &mut clients {
        let answer = answer(&client.finish(false).expect("an answer"));
        assert_eq!(limit_in(&answer), "2000000", "{answer}");
    }
    assert_eq!(calls(&worker) - before, 1);
}

// Guards: a Worker that is never changed at run time and still makes these calls.
#[test]
fn without_the_secret_nothing_is_asked() {
    let worker = Setup::new(limited(5)).operated().front(POLICIES).start();
    let mut client = worker.client();
    for expected in ["allow 4", "allow 3"] {
        assert_eq!(left(&mut client, "192.0.2.1"), expected);
    }
    let health = client.send(&Request::get(HEALTH));
    assert_eq!(body(&health).as_object().map(serde_json::Map::len), Some(3), "{}", health.text());
    let read = client.send(&asks(ADMIN, "GET", POLICY, ""));
    assert!(read.status == 404 && read.text().contains("ADMIN_TOKEN"), "{}", read.text());
    assert_eq!(calls(&worker), 0);
}

// Guards: a policy object that fails, in every way: requests that wait for it repeatedly, or that
// continue without any sign of the failure. Once it works again it is followed.
#[test]
fn without_the_policy_object_the_last_good_policy_stays() {
    let setup = operated(limited(10)).binding("OBJECT_TIMEOUT_MS", 4_000).front(POLICIES);
    let worker = setup.start();
    let mut client = worker.client();
    put(&mut client, &limited(20));
    assert_eq!(limit_of(&mut client, 1), "20");
    for (n, kind) in (10..).step_by(10).zip(["throws", "garbage", "silent"]) {
        thread::sleep(FOLLOWS + Duration::from_millis(100));
        fault(&worker, kind);
        for n in n..n + 3 {
            assert_eq!(limit_of(&mut client, n), "20", "{kind}");
        }
        let (status, report) = health(&mut client);
        assert_eq!((status, &report["version"]), (200, &json!(2)), "{report}");
        assert!(report["failed_at_ms"].is_u64() && report["failure"].is_string(), "{report}");
        let public = body(&client.send(&Request::get(HEALTH)));
        assert!(public["failed_at_ms"].is_u64() && public["failure"].is_null(), "{public}");
        let read = client.send(&asks(ADMIN, "GET", POLICY, ""));
        assert_eq!(
            (read.status, read.header("retry-after").as_deref()),
            (503, Some("1")),
            "{kind}"
        );
        fault(&worker, "none");
        // A silent check is given up after ten seconds, a failed one after one.
        let patience = Instant::now() + Duration::from_secs(60);
        while !health(&mut client).1["failed_at_ms"].is_null() {
            assert!(Instant::now() < patience, "{kind}: it is never asked again");
            limit_of(&mut client, n + 5);
            thread::sleep(Duration::from_millis(100));
        }
    }
    let log = worker.log();
    assert!(log.contains("unchecked=1") && log.contains("outdated="), "{log}");
}

// Guards: an object that always takes longer than requests wait for it: it is followed all the
// same.
#[test]
fn a_slow_policy_object_is_followed() {
    let setup = operated(limited(10)).binding("OBJECT_TIMEOUT_MS", 3_500).front(POLICIES);
    let worker = setup.beside(limited(10)).start();
    put(&mut worker.client(), &limited(20));
    fault(&worker, "slow");
    let mut far = Client::connect(worker.ports[1]);
    let patience = Instant::now() + Duration::from_secs(90);
    let mut n = 0;
    while limit_of(&mut far, n) != "20" {
        assert!(Instant::now() < patience, "it is never followed");
        n += 1;
    }
    println!("{n} requests before");
}

// Guards: a policy that this code cannot compile, because a later version wrote it: the last good
// policy stays, and the health report shows which version is not enforced.
#[test]
fn a_policy_of_tomorrow_is_named_and_the_last_one_stays() {
    let worker = operated(limited(10)).front(POLICIES).beside(limited(10)).start();
    let mut far = Client::connect(worker.ports[1]);
    assert_eq!(limit_of(&mut far, 1), "10");
    put(&mut worker.client(), &limited(20));
    fault(&worker, "later");
    thread::sleep(FOLLOWS);
    let before = calls(&worker);
    for n in 10..20 {
        assert_eq!(limit_of(&mut far, n), "10", "the last good one");
    }
    let (status, report) = health(&mut far);
    assert_eq!(status, 500);
    assert!(
        report["detail"].as_str().is_some_and(|it| it.contains("an earlier policy is enforced")),
        "{report}"
    );
    assert_eq!(report["errors"][0]["path"], "rules[0].quotas[0].algorithm", "{report}");
    let log = worker.log();
    assert!(log.contains("policy 2 cannot be enforced") && log.contains("of-tomorrow"), "{log}");
    // Its compiled form is of another version, so the text is requested once.
    assert_eq!(calls(&worker) - before, 2, "and its text is not fetched for each request");
    fault(&worker, "none");
    put(&mut worker.client(), &limited(30));
    let patience = Instant::now() + Duration::from_secs(30);
    while limit_of(&mut far, 100) != "30" {
        assert!(Instant::now() < patience, "it is never followed again");
        thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(health(&mut far).0, 200);
}

/// Corrupts the row with the compiled policy once, before it is read; `/row` returns its contents.
const ROWS: &str = r#"
import Tollgate, { Limiter, Policies as Real, Tenants, Metrics } from "./entry.mjs";
export { Limiter, Tenants, Metrics };
let fault = null;
let row = null;
export default class extends Tollgate {
  fetch(request) {
    fault = request.headers.get("x-fault") ?? fault;
    if (new URL(request.url).pathname === "/row") return new Response(row);
    return super.fetch(request);
  }
}
export class Policies extends Real {
  call(request) {
    const sql = this.ctx.storage.sql;
    const bytes = () => new Uint8Array([...sql.exec("SELECT bytes FROM compiled_v1")][0].bytes);
    const keep = (bytes) => sql.exec("UPDATE compiled_v1 SET bytes = ?", bytes);
    if (fault === "gone") sql.exec("DELETE FROM compiled_v1");
    // Of a module of before, which wrote another format; and one that was cut on the way.
    if (fault === "older") keep(bytes().with(9, 0));
    if (fault === "cut") keep(bytes().slice(0, -9));
    if (fault === "changed") keep(bytes().with(60, bytes()[60] ^ 1));
    fault = null;
    const reply = super.call(request);
    row = [...sql.exec("SELECT hex(bytes) AS hex FROM compiled_v1")].map(({ hex }) => hex).join();
    return reply;
  }
}
"#;

// Guards: a row with the compiled policy that is missing, of an earlier module or damaged: isolates
// that start then follow, and the row is whole again, so that not each of them has to compile.
#[test]
fn a_compiled_row_that_nobody_can_read_is_made_again() {
    for kind in ["gone", "older", "cut", "changed"] {
        let worker = operated(limited(10)).front(ROWS).beside(limited(10)).start();
        put(&mut worker.client(), &limited(20));
        let row = || worker.client().send(&Request::get("/row")).text();
        let before = row();
        assert!(before.starts_with("00746F6C6C67617465"), "{before}");
        worker.client().send(&Request::get("/row").header("x-fault", kind));
        // The first request of the other isolate.
        let mut far = Client::connect(worker.ports[1]);
        assert_eq!(limit_of(&mut far, 1), "20", "{kind}");
        assert_eq!(health(&mut far).0, 200, "{kind}");
        assert_eq!(row(), before, "{kind}");
        put(&mut worker.client(), &limited(30));
        thread::sleep(FOLLOWS);
        assert_eq!(limit_of(&mut far, 2), "30", "{kind}");
    }
}

// Guards: an invalid deployed file while a written policy is in force, and after that is deleted:
// the operator can correct it at run time.
#[test]
fn a_wrong_file_is_put_right_at_run_time() {
    let worker = operated(r#"{"version": 1, "rules": 7}"#).start();
    let mut client = worker.client();
    assert_eq!(client.send(&check_request("GET", "/", "192.0.2.1")).status, 500);
    assert_eq!(health(&mut client).0, 500);
    put(&mut client, &limited(20));
    assert_eq!(limit(&mut client, "/"), "20");
    assert_eq!(health(&mut client).0, 200);
}

/// Allows `limit` for each client, and 1,000 for each path.
fn rules(limit: u64) -> Value {
    json!({"version": 1, "rules": [
        {"name": "client", "key": ["client_ip"], "quotas":
            [{"name": "year", "algorithm": "fixed-window", "limit": limit, "window": "366d"}]},
        {"name": "path", "key": ["path"], "quotas":
            [{"name": "year", "algorithm": "fixed-window", "limit": 1000, "window": "366d"}]},
    ]})
}

/// The decision and the rest of each rule.
fn ask(client: &mut Client, path: &str, client_ip: &str) -> String {
    let answer = answer(&client.send(&check_request("GET", path, client_ip)));
    let fields = answer["headers"]["ratelimit"].as_str().unwrap_or_default().split(", ");
    let left = fields.filter_map(|item| item.split(";r=").nth(1)?.split(';').next());
    format!(
        "{} {}",
        answer["decision"].as_str().expect("a decision"),
        left.collect::<Vec<_>>().join(" ")
    )
}

// Guards: states that go back a generation. An isolate that does not know of a change yet, and
// meets a key that was counted under it, decides under the new policy at once, and charges every
// key of the request exactly once.
#[test]
fn a_stale_isolate_that_meets_a_newer_count_is_put_right() {
    let worker = operated(rules(10)).front(POLICIES).beside(rules(10)).start();
    let (mut near, mut far) = (worker.client(), Client::connect(worker.ports[1]));
    assert_eq!(ask(&mut far, "/a", "192.0.2.1"), "allow 9 999");
    put(&mut near, &rules(20));
    let before = calls(&worker);
    assert_eq!(ask(&mut near, "/b", "192.0.2.1"), "allow 18 999", "what is used is kept");
    // Far is not due for a check. Its request uses two keys, one of which has a newer version.
    assert_eq!(ask(&mut far, "/c", "192.0.2.1"), "allow 17 999", "the path was charged once");
    assert_eq!(ask(&mut far, "/c", "192.0.2.2"), "allow 19 998");
    assert_eq!(calls(&worker) - before, 2, "each isolate asked once");
    let log = worker.log();
    assert!(!log.contains("failures"), "{log}");
}

// Guards: a stale isolate that cannot learn of the change: it must not decide by its old policy.
#[test]
fn what_cannot_be_planned_anew_is_decided_by_on_failure() {
    let mut first = rules(10);
    first["rules"][0]["on_failure"] = json!("deny");
    let setup = operated(&first).binding("OBJECT_TIMEOUT_MS", 5_000).front(POLICIES);
    let worker = setup.beside(&first).start();
    let (mut near, mut far) = (worker.client(), Client::connect(worker.ports[1]));
    assert_eq!(ask(&mut far, "/a", "192.0.2.1"), "allow 9 999");
    put(&mut near, &rules(20));
    assert_eq!(ask(&mut near, "/a", "192.0.2.1"), "allow 18 998");
    fault(&worker, "throws");
    for _ in 0..3 {
        assert_failed(&mut far, "/b", "192.0.2.1");
    }
    // No other client is affected, and nothing was charged.
    assert_eq!(ask(&mut far, "/b", "192.0.2.2"), "allow 9 999");
    fault(&worker, "none");
    thread::sleep(Duration::from_millis(1100));
    assert_eq!(ask(&mut far, "/b", "192.0.2.1"), "allow 17 998");
    let log = worker.log();
    assert!(log.contains("unchecked=1"), "{log}");
}

/// A request that `on_failure` denies, and no quota.
fn assert_failed(client: &mut Client, path: &str, ip: &str) {
    let failed = answer(&client.send(&check_request("GET", path, ip)));
    let said = (&failed["decision"], &failed["failure"]);
    assert_eq!(said, (&json!("deny"), &json!(true)), "{failed}");
}

// Guards: an isolate that starts while the policy object is silent: the deployed file may be laxer
// than the policy in force, so it must not decide for clients that were counted under that.
#[test]
fn a_new_isolate_without_the_policy_object_does_not_go_back() {
    let mut lax = rules(1000);
    lax["rules"][0]["on_failure"] = json!("deny");
    let setup = operated(&lax).binding("OBJECT_TIMEOUT_MS", 4_000).front(POLICIES);
    let worker = setup.beside(&lax).start();
    let mut near = worker.client();
    put(&mut near, &rules(1));
    assert_eq!(ask(&mut near, "/a", "192.0.2.1"), "allow 0 999");
    fault(&worker, "silent");
    let mut far = Client::connect(worker.ports[1]);
    for _ in 0..3 {
        assert_failed(&mut far, "/b", "192.0.2.1");
    }
    // No count of this client has a newer version than the file.
    assert_eq!(ask(&mut far, "/b", "192.0.2.9"), "allow 999 999");
    let (status, report) = health(&mut far);
    assert_eq!((status, &report["version"]), (200, &json!(0)), "{report}");
    assert!(report["checked_at_ms"].is_null() && report["failed_at_ms"].is_u64(), "{report}");
    assert!(worker.log().contains("outdated="), "{}", worker.log());
}

/// An attack on two isolates: clients with an address for each pair, one on each isolate, that send
/// requests without a pause until the end.
#[derive(Default)]
struct Attack {
    /// By address: the number allowed.
    admitted: [AtomicU64; 3],
    /// By client: the limit in its last response.
    limits: [AtomicU64; 6],
    has_ended: AtomicBool,
}

impl Attack {
    fn run(&self, number: usize, port: u16) {
        let mut client = Client::connect(port);
        let address = format!("192.0.2.{}", number / 2);
        while !self.has_ended.load(Relaxed) {
            let answer = answer(&client.send(&check_request("GET", "/", &address)));
            if answer["decision"] == "allow" {
                self.admitted[number / 2].fetch_add(1, Relaxed);
            }
            let limit = limit_in(&answer).parse().expect("a limit");
            self.limits[number].store(limit, Relaxed);
        }
    }

    fn admitted(&self) -> [u64; 3] {
        self.admitted.each_ref().map(|admitted| admitted.load(Relaxed))
    }

    /// Waits until `is_so`, and ends the attack when it never is.
    fn until(&self, what: &str, is_so: impl Fn() -> bool) {
        let patience = Instant::now() + Duration::from_secs(60);
        while !is_so() {
            if Instant::now() > patience {
                self.has_ended.store(true, Relaxed);
                panic!("{what}: {:?} admitted", self.admitted());
            }
            thread::sleep(Duration::from_millis(5));
        }
    }
}

// Guards: raising a limit during an attack gives every attacker a fresh count. Whatever comes
// before and after, over two isolates: each client gets exactly the larger limit.
#[test]
fn a_limit_raised_under_attack_gives_the_difference_only() {
    let worker = operated(limited(50)).files_in_memory().beside(limited(50)).start();
    let attack = Attack::default();
    thread::scope(|scope| {
        for number in 0..attack.limits.len() {
            let (attack, port) = (&attack, worker.ports[number % 2]);
            scope.spawn(move || attack.run(number, port));
        }
        let mut admin = worker.client();
        // Each change comes while every client is being allowed, however fast the machine is.
        for (limit, midst) in [(80, 25), (120, 65)] {
            let is_midst = || attack.admitted().iter().all(|admitted| *admitted >= midst);
            attack.until(&format!("before {limit}"), is_midst);
            put(&mut admin, &limited(limit));
        }
        attack.until("under 120", || attack.admitted() == [120; 3]);
        put(&mut admin, &limited(90));
        // All clients see the lower limit, and continue.
        for limit in &attack.limits {
            attack.until("under 90", || limit.load(Relaxed) == 90);
        }
        thread::sleep(Duration::from_secs(1));
        attack.has_ended.store(true, Relaxed);
    });
    assert_eq!(attack.admitted(), [120; 3], "the greatest limit, to the request");
}

// Guards: a policy object that was restored to an earlier day, as the platform can do: counts are
// ahead of every version that it knows, and would be for ever.
#[test]
fn a_policy_object_that_was_set_back_catches_up() {
    let mut first = limited(10);
    first["rules"][0]["on_failure"] = json!("deny");
    let mut worker = operated(&first).start();
    let mut client = worker.client();
    for limit in [20, 30, 40] {
        put(&mut client, &limited(limit));
    }
    assert_eq!(left(&mut client, "192.0.2.1"), "allow 39");
    worker.kill();
    worker.forget("policies");
    worker.restart();
    let mut client = worker.client();
    // All written policies are lost, and the used amounts are not.
    assert_eq!(left(&mut client, "192.0.2.1"), "allow 8");
    assert_eq!(health(&mut client).1["version"], 5, "above the fourth, which the count is of");
    assert!(worker.log().contains("was set back"), "{}", worker.log());
    assert_eq!(put(&mut client, &limited(20)), 6);
    assert_eq!(left(&mut client, "192.0.2.1"), "allow 17");
}
