//! New versions while clients keep sending: a deployment, which restarts everything, and a policy
//! that is put; entries of tenants for which a kill came between their two writes.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tollgate_e2e::http::Client;
use tollgate_e2e::process::wait_until;
use tollgate_e2e::workerd::{Setup, answer, check_request};

use crate::worker_admin::{ADMIN, READER, asks, limited, operated, put};

/// Only turns a hang into a failure.
const PATIENCE: Duration = Duration::from_secs(60);
/// Clients of each address.
const OF_EACH: usize = 2;
const ADDRESSES: usize = 4;

fn quota(algorithm: &str, limit: u64) -> Value {
    let quota = json!({"name": "year", "algorithm": algorithm, "limit": limit, "window": "366d"});
    let mut policy = limited(limit);
    policy["rules"][0]["quotas"] = json!([quota]);
    policy
}

/// The number allowed for each address, while floods continue.
#[derive(Default)]
struct Admitted([AtomicU64; ADDRESSES]);

impl Admitted {
    fn each(&self) -> [u64; ADDRESSES] {
        std::array::from_fn(|i| self.0[i].load(Ordering::SeqCst))
    }

    /// Sends for `number` until `stop`, over any available connection.
    fn flood(&self, ports: &[u16], number: usize, stop: &AtomicBool) {
        let address = number % ADDRESSES;
        let port = ports[(number / ADDRESSES) % ports.len()];
        let request = check_request("GET", "/", &format!("192.0.2.{address}"));
        while !stop.load(Ordering::SeqCst) {
            let Ok(mut client) = Client::try_connect(port) else {
                thread::sleep(Duration::from_millis(20));
                continue;
            };
            while !stop.load(Ordering::SeqCst) {
                let Ok(response) = client.try_send(&request) else { break };
                if answer(&response)["decision"] == "allow" {
                    self.0[address].fetch_add(1, Ordering::SeqCst);
                }
            }
        }
    }
}

// Guards: a deployment that gives every client a fresh count, or loses one. workerd is killed and
// started with another file, over the same objects, while every client keeps sending. The number
// allowed that a client sees is at most the limit, and all of the limit except for the few in
// flight at a kill.
#[test]
fn a_deployment_in_the_midst_of_load_keeps_what_is_used() {
    const DEPLOYED: [(&str, u64); 4] =
        [("fixed-window", 40), ("fixed-window", 80), ("gcra", 100), ("sliding-log", 130)];
    let (algorithm, limit) = DEPLOYED[0];
    let first = quota(algorithm, limit);
    for setup in [Setup::new(&first), operated(&first).beside(&first)] {
        let mut worker = setup.start();
        let (admitted, stop) = (Admitted::default(), AtomicBool::new(false));
        let ports = worker.ports.clone();
        let mut under_way = 0;
        thread::scope(|scope| {
            for number in 0..ADDRESSES * OF_EACH {
                let (admitted, stop, ports) = (&admitted, &stop, &ports);
                scope.spawn(move || admitted.flood(ports, number, stop));
            }
            let end_all = Stop(&stop);
            let mut most = 0;
            for (number, (algorithm, limit)) in DEPLOYED.into_iter().enumerate() {
                if number > 0 {
                    // In the middle: some have used up their limit, and some have not.
                    worker.kill();
                    worker.deploy(quota(algorithm, limit));
                    worker.restart();
                    under_way += OF_EACH as u64;
                }
                most = most.max(limit);
                let half = most - most / 4;
                let is_last = number + 1 == DEPLOYED.len();
                let wanted = if is_last { most - under_way } else { half - under_way };
                wait_until("the flood", PATIENCE, || {
                    admitted.each().iter().all(|count| *count >= wanted).then_some(())
                });
            }
            thread::sleep(Duration::from_millis(1500)); // longer than a denial is remembered
            drop(end_all);
        });
        let each = admitted.each();
        println!("{each:?} heard that they were let through, of 130");
        assert!(each.iter().all(|count| (130 - under_way..=130).contains(count)), "{each:?}");
    }
}

/// Sets it when it is dropped, also when a test fails: its threads end then.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

// Guards: a change of the policy under load that allows one too many or one too few, in any
// isolate. After each change every address gets exactly the difference.
#[test]
fn changes_under_load_admit_exactly_the_difference() {
    const PUT: [(&str, u64, u64); 5] = [
        ("fixed-window", 80, 80),
        ("fixed-window", 60, 80),
        ("fixed-window", 120, 120),
        ("sliding-log", 150, 150),
        ("gcra", 170, 170),
    ];
    let first = quota("fixed-window", 30);
    let worker = operated(&first).files_in_memory().beside(&first).start();
    let (admitted, stop) = (Admitted::default(), AtomicBool::new(false));
    thread::scope(|scope| {
        for number in 0..ADDRESSES * OF_EACH {
            let (admitted, stop, ports) = (&admitted, &stop, &worker.ports);
            scope.spawn(move || admitted.flood(ports, number, stop));
        }
        let end_all = Stop(&stop);
        let reach = |total: u64| {
            let since = Instant::now();
            while admitted.each() != [total; ADDRESSES] {
                let each = admitted.each();
                assert!(each.iter().all(|count| *count <= total), "{each:?} of {total}");
                assert!(since.elapsed() < PATIENCE, "{each:?} of {total}\n{}", worker.log());
                thread::sleep(Duration::from_millis(20));
            }
        };
        reach(30);
        for (algorithm, limit, total) in PUT {
            put(&mut worker.client(), &quota(algorithm, limit));
            reach(total);
            thread::sleep(Duration::from_millis(1200));
            assert_eq!(admitted.each(), [total; ADDRESSES], "and nobody more of {limit}");
        }
        drop(end_all);
    });
}

/// The object of a tenant never accepts its entry while `x-hangs` was sent last; a restarted
/// process does not know of it.
const HANGS: &str = r#"
import Tollgate, * as entry from "./entry.mjs";
export const { Limiter, Policies, Metrics } = entry;
let hangs = false;
let hung = 0;
export class Tenants extends entry.Tenants {
  call(request) {
    if (!hangs || request[0] !== 1) return super.call(request);
    hung += 1;
    return new Promise(() => setTimeout(() => {}, 60_000));
  }
}
export default class extends Tollgate {
  fetch(request) {
    if (request.headers.has("x-hangs")) {
      hangs = request.headers.get("x-hangs") === "yes";
      return new Response(String(hung));
    }
    return super.fetch(request);
  }
}
"#;

// Guards: a kill between the two writes of an entry: the list has it, which is the truth, and the
// tenant's object does not. It follows without any request, for entries that were put and that were
// removed.
#[test]
fn an_entry_that_a_kill_caught_half_way_is_handed_on() {
    use tollgate_e2e::http::Request;
    const TENANTS: &str = "/.well-known/tollgate/admin/tenants";
    let year = |limit: u64| json!([{"name": "year", "algorithm": "fixed-window", "limit": limit, "window": "366d"}]);
    let policy = json!({"version": 1, "tenant": {"header": "x-org"}, "rules": [
        {"name": "org", "key": [{"header": "x-org"}], "on_missing": "shared", "quotas": year(2),
         "tiers": [{"name": "gold", "when": {"headers": {"x-plan": "gold"}}, "quotas": year(9)}]}]});
    let mut worker = operated(&policy).front(HANGS).start();
    let hangs = |port: u16, value: &str| {
        let request = Request::get("/").header("x-hangs", value);
        Client::connect(port).send(&request).text().parse::<u64>().expect("a number")
    };
    let change = |method: &str, id: &str| {
        let request = asks(ADMIN, method, &format!("{TENANTS}/{id}"), r#"{"tier": "gold"}"#);
        let name = if method == "PUT" { "if-none-match" } else { "if-match" };
        request.header(name, "*")
    };
    let limit = |client: &mut Client, org: &str| {
        let asked = json!({"method": "GET", "path": "/", "headers": {"x-org": org}, "client_ip": "192.0.2.1"});
        let request = check_request("GET", "/", "192.0.2.1").body(asked.to_string());
        let answer = answer(&client.send(&request));
        let field = answer["headers"]["ratelimit-policy"].as_str().unwrap_or_default();
        if field.contains(";q=9;") { 9 } else { 2 }
    };
    assert_eq!(worker.client().send(&change("PUT", "gone")).status, 201);
    assert_eq!(limit(&mut worker.client(), "gone"), 9);
    hangs(worker.port, "yes");
    let mut under_way: Vec<Client> = (0..2).map(|_| worker.client()).collect();
    under_way[0].start(&change("PUT", "come")).expect("it is sent");
    under_way[1].start(&change("DELETE", "gone")).expect("it is sent");
    wait_until("both are caught half way", PATIENCE, || {
        (hangs(worker.port, "yes") >= 2).then_some(())
    });
    worker.kill();
    worker.restart();
    let mut client = worker.client();
    let read = |client: &mut Client, id: &str| {
        client.send(&asks(READER, "GET", &format!("{TENANTS}/{id}"), "")).status
    };
    assert_eq!((read(&mut client, "come"), read(&mut client, "gone")), (200, 404), "the list");
    for (org, wanted) in [("come", 9), ("gone", 2)] {
        wait_until(&format!("{org} meets {wanted}"), PATIENCE, || {
            thread::sleep(Duration::from_millis(200));
            (limit(&mut worker.client(), org) == wanted).then_some(())
        });
    }
}
