//! A panic, and storage that fails, in every entry point of the objects: every waiting caller gets
//! a response, the next request works, and nothing is half written.
//!
//! The shipped modules are not changed: a module in front counts the steps of a call into wasm,
//! each a statement of SQL or a reading of the clock, and makes one of them fail. A panic is a real
//! trap of the shipped wasm, and ends the instance of its isolate. So callers are tested twice: in
//! the isolate of the object, and in another.

use std::io::Write;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tollgate_e2e::http::{Client, Request, Response};
use tollgate_e2e::process::wait_until;
use tollgate_e2e::workerd::{Workerd, answer, check_request, node_bin, worker_dir};

use crate::worker_admin::{ADMIN, POLICY, READER, asks, body, left, limited, operated, put};

/// Makes the step `after` steps into a call fail, by `x-fault: class.method after kind`, and then
/// those after a comma in the same way. With `@alarm` it is a call in an alarm of the tenants;
/// `flush` is an isolate's flush two seconds later. `/fault` shows whether one is still to come,
/// and `/tally` the tenants' number as their list states it and as it is.
pub const FAULTS: &str = r#"
import Tollgate, * as entry from "./entry.mjs";
import * as wasm from "./build/index.js";

const realNow = Date.now;
// No memory has room for this: the allocation in the wasm aborts it.
const bomb = { length: 0xffff_fff0 };
let faults = [];
let here = "between";
let isAlarm = false;
let isFlush = false;
let tally = "none";

function step(isStorage) {
  const [fault] = faults;
  const places = [isAlarm ? `${here}@alarm` : here, isFlush ? "flush" : here];
  if (!places.includes(fault?.place) || (fault.kind === "throws" && !isStorage)) return;
  if (fault.after-- > 0) return;
  faults.shift();
  if (fault.kind === "throws") throw new Error("storage is broken");
  new wasm.Metrics({}).add(bomb);
}

Date.now = () => {
  step(false);
  return realNow();
};

const realRandom = crypto.getRandomValues;
crypto.getRandomValues = (values) => {
  step(true);
  return realRandom.call(crypto, values);
};

// What follows a timer is done before the next one.
const realTimeout = setTimeout;
globalThis.setTimeout = (then, after) =>
  realTimeout(() => {
    isFlush = after === 2000;
    then();
  }, after);

const METHODS = {
  Limiter: ["check", "refund", "operate", "alarm", "save"],
  Policies: ["call"],
  Tenants: ["call", "has_written", "due", "delivered"],
  Metrics: ["add", "save", "text"],
};
for (const [name, methods] of Object.entries(METHODS)) {
  for (const method of methods) {
    const real = wasm[name].prototype[method];
    wasm[name].prototype[method] = function (...values) {
      const before = here;
      here = `${name}.${method}`;
      try {
        return real.apply(this, values);
      } finally {
        here = before;
      }
    };
  }
}

const spoilt = (storage) => ({
  sql: {
    exec(statement, ...values) {
      step(true);
      return storage.sql.exec(statement, ...values);
    },
  },
  setAlarm(at) {
    step(true);
    return storage.setAlarm(Math.min(Number(at), realNow() + 10_000)); // a day is too long for a test
  },
  deleteAll() {
    step(true);
    return storage.deleteAll();
  },
  transactionSync: (closure) => storage.transactionSync(closure),
});

const faulty = (Real) =>
  class extends Real {
    constructor(ctx, env) {
      super(ctx, env);
      this.storage = ctx.storage;
      Object.defineProperty(this, "ctx", { value: { storage: spoilt(ctx.storage) } });
    }
  };

export const Limiter = faulty(entry.Limiter);
export const Policies = faulty(entry.Policies);
export const Metrics = faulty(entry.Metrics);
const TALLY = "SELECT entries, (SELECT count(*) FROM tenants_v1 WHERE entry IS NOT NULL) FROM tenants_sum_v1";
export class Tenants extends faulty(entry.Tenants) {
  async alarm() {
    isAlarm = true;
    try {
      return await super.alarm();
    } finally {
      isAlarm = false;
    }
  }

  async call(request) {
    const reply = await super.call(request);
    if (request[0] === 2) tally = [...this.storage.sql.exec(TALLY).raw()].join();
    return reply;
  }
}

export default class extends Tollgate {
  fetch(request) {
    isFlush = false;
    const { pathname } = new URL(request.url);
    if (pathname === "/tally") return new Response(tally);
    if (pathname !== "/fault") return super.fetch(request);
    const wanted = request.headers.get("x-fault");
    if (wanted !== null) {
      faults = wanted.split(", ").map((one) => {
        const [place, after, kind] = one.split(" ");
        return { place, after: Number(after), kind };
      });
    }
    return new Response(faults.length === 0 ? "none" : "armed");
  }
}
"#;

/// Both kinds of fault.
pub const KINDS: [&str; 2] = ["trap", "throws"];

pub fn arm(worker: &Workerd, place: &str, after: u32, kind: &str) {
    let fault = format!("{place} {after} {kind}");
    worker.client().send(&Request::get("/fault").header("x-fault", fault));
}

pub fn is_armed(worker: &Workerd) -> bool {
    worker.client().send(&Request::get("/fault")).text() == "armed"
}

fn disarm(worker: &Workerd) {
    arm(worker, "nowhere", 0, "trap");
}

/// Makes every step of a call at `place` fail once, in both ways. `act` causes the call, and then
/// checks the result. Returns the number of failed steps.
fn each_step(worker: &Workerd, place: &str, mut act: impl FnMut()) -> u32 {
    let mut spoilt = 0;
    for kind in KINDS {
        for after in 0..30 {
            arm(worker, place, after, kind);
            act();
            if is_armed(worker) {
                break;
            }
            spoilt += 1;
        }
        disarm(worker);
    }
    println!("{place}: {spoilt} steps spoilt");
    spoilt
}

/// The isolate of the objects, and another.
fn two(policy: &Value) -> Workerd {
    let setup = operated(policy).binding("METRICS_INTERVAL_S", 1).binding("METRICS_TOKEN", "m");
    setup.files_in_memory().front(FAULTS).beside(policy).start()
}

fn is_told(response: &Response) {
    let media_type = response.header("content-type").unwrap_or_default();
    assert!(media_type.starts_with("application/"), "{}: {}", response.status, response.text());
}

/// Reads, and again when the failed step was of this call. A failure must be reported.
fn read_surely(worker: &Workerd, path: &str) -> Response {
    let read = || worker.client().send(&asks(READER, "GET", path, ""));
    let response = read();
    is_told(&response);
    if response.status < 500 { response } else { read() }
}

/// The used units of a year's million.
pub fn used(client: &mut Client, client_ip: &str) -> u64 {
    let left = left(client, client_ip);
    let left = left.strip_prefix("allow ").and_then(|left| left.parse::<u64>().ok());
    1_000_000 - left.expect("a number")
}

// Guards: an object whose decision panics or cannot be written. Its caller gets a response, in any
// isolate; acknowledged requests are counted, and others are counted at most once.
#[test]
fn a_decision_that_fails_is_answered_and_never_forgotten() {
    let mut policy = limited(1_000_000);
    policy["on_failure"] = json!("deny");
    let worker = two(&policy);
    let mut client = Client::connect(worker.ports[1]);
    for port in &worker.ports {
        let (mut sent, mut acknowledged) = (0, 0);
        let ip = format!("192.0.2.{}", port % 200);
        let spoilt = each_step(&worker, "Limiter.check", || {
            let response = Client::connect(*port).send(&check_request("GET", "/", &ip));
            is_told(&response);
            sent += 1;
            let is_failed = response.status == 500 || answer(&response)["failure"] == true;
            acknowledged += u64::from(!is_failed);
        });
        assert!(spoilt >= 6, "{spoilt}");
        let used = used(&mut client, &ip) - 1;
        assert!((acknowledged..=sent).contains(&used), "{acknowledged} {used} {sent}");
    }
}

/// The output of `names.mjs` for a log.
fn with_names(log: &str) -> String {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/tollgate-worker/npm/names.mjs");
    let mut node = Command::new(node_bin());
    node.arg(script).arg(worker_dir().join("build/names.txt"));
    let mut node = node.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("node");
    let mut stdin = node.stdin.take().expect("its input");
    let log = log.to_owned();
    let written = thread::spawn(move || stdin.write_all(log.as_bytes()));
    let output = node.wait_with_output().expect("it ends");
    written.join().expect("it is written").expect("it is read");
    String::from_utf8(output.stdout).expect("text")
}

// Guards: a trap of the deployed modules, which contain no names, with an unreadable stack.
#[test]
fn a_trap_is_read_by_the_names_beside_the_modules() {
    let worker = two(&limited(10));
    for place in ["Limiter.check", "Policies.call"] {
        arm(&worker, place, 0, "trap");
        worker.client().send(&check_request("GET", "/", "192.0.2.1"));
        let history = "/.well-known/tollgate/admin/policy/history";
        worker.client().send(&asks(READER, "GET", history, ""));
        let class = place.split('.').next().expect("a class").to_lowercase();
        let is_named =
            |line: &str| line.contains("tollgate-worker-") && line.to_lowercase().contains(&class);
        wait_until("the trap is logged", Duration::from_secs(60), || {
            with_names(&worker.log()).lines().any(is_named).then_some(())
        });
        assert!(!worker.log().contains("tollgate_worker::"), "{}", worker.log());
    }
}

// Guards: a failure of the refund after a denial by another key: nothing is refunded twice, and the
// request gets a response.
#[test]
fn a_refund_that_fails_is_answered_and_admits_nothing_more() {
    let quota = |limit: u64| json!([{"name": "year", "algorithm": "fixed-window", "limit": limit, "window": "366d"}]);
    let policy = json!({"version": 1, "on_failure": "deny", "rules": [
        {"name": "client", "key": ["client_ip"], "quotas": quota(1_000_000)},
        {"name": "path", "key": ["path"], "quotas": quota(1)},
    ]});
    let worker = two(&policy);
    let [near, far] = worker.ports[..] else { panic!("two isolates") };
    for (port, other) in [(near, far), (far, near)] {
        let mut number = 0;
        let spoilt = each_step(&worker, "Limiter.refund", || {
            // The path's quota is used up through the other isolate, so this one does not remember
            // it: it charges the client, the path denies, and the charge is refunded.
            number += 1;
            let path = format!("/{port}/{number}");
            let ask = |port, ip| Client::connect(port).send(&check_request("GET", &path, ip));
            assert_eq!(answer(&ask(other, "192.0.2.1"))["decision"], "allow");
            for ip in ["192.0.2.2", "192.0.2.3"] {
                let response = ask(port, ip);
                is_told(&response);
                let is_allowed = response.status == 200 && answer(&response)["decision"] == "allow";
                assert!(!is_allowed, "{}", response.text());
            }
        });
        assert!(spoilt >= 2, "{spoilt}");
    }
}

// Guards: an operator's reset or block that fails without an error, or is half done.
#[test]
fn an_operation_that_fails_is_told() {
    let worker = two(&limited(1_000_000));
    let mut near = worker.client();
    for port in &worker.ports {
        let spoilt = each_step(&worker, "Limiter.operate", || {
            assert!(used(&mut near, "192.0.2.1") >= 1);
            let reset = json!({"rule": "client", "key": ["192.0.2.1"]}).to_string();
            let path = "/.well-known/tollgate/admin/keys/reset";
            let response = Client::connect(*port).send(&asks(ADMIN, "POST", path, &reset));
            let used = used(&mut near, "192.0.2.1");
            match response.status {
                204 => assert_eq!(used, 1, "it was reset, and is counted from there"),
                500 | 503 => is_told(&response),
                other => panic!("{other}: {}", response.text()),
            }
        });
        assert!(spoilt >= 3, "{spoilt}");
    }
}

// Guards: a change of the policy that fails in the middle: a version without a text, a text without
// a row of the history, a number that is used twice or left out.
#[test]
fn a_change_of_the_policy_is_there_or_not() {
    let worker = two(&limited(1));
    put(&mut worker.client(), &limited(2));
    let history = format!("{POLICY}/history");
    for port in &worker.ports {
        let mut limit = 2;
        let spoilt = each_step(&worker, "Policies.call", || {
            limit += 1;
            let mut client = Client::connect(*port);
            let text = limited(limit).to_string();
            let request = asks(ADMIN, "PUT", POLICY, &text).header("if-match", "*");
            let response = client.send(&request);
            is_told(&response);
            let is_in_force = |response: &Response| {
                assert_eq!(response.status, 200, "{}", response.text());
                let version = response.header("tollgate-policy-version").expect("a version");
                let limit = body(response)["rules"][0]["quotas"][0]["limit"].as_u64();
                (version.parse::<u64>().expect("a number"), limit.expect("a limit"))
            };
            let read = read_surely(&worker, POLICY);
            let (version, found) = is_in_force(&read);
            if response.status == 200 {
                assert_eq!(found, limit, "what was acknowledged is in force");
            }
            assert!(found == limit || response.status != 200, "{found} {limit}");
            let rows = body(&read_surely(&worker, &history))["versions"].clone();
            let rows = rows.as_array().expect("rows");
            let numbers: Vec<_> =
                rows.iter().map(|row| row["version"].as_u64().expect("a number")).collect();
            assert_eq!(numbers.first(), Some(&version));
            assert!(numbers.windows(2).all(|two| two[0] == two[1] + 1), "{numbers:?}");
            let one = read_surely(&worker, &format!("{POLICY}/versions/{version}"));
            assert_eq!(one.status, 200, "{}", one.text());
        });
        assert!(spoilt >= 6, "{spoilt}");
    }
}

pub fn with_tenants() -> Value {
    let year = |limit: u64| json!([{"name": "year", "algorithm": "fixed-window", "limit": limit, "window": "366d"}]);
    json!({"version": 1, "tenant": {"header": "x-org"}, "rules": [
        {"name": "org", "key": [{"header": "x-org"}], "on_missing": "shared", "quotas": year(2),
         "tiers": [{"name": "gold", "when": {"headers": {"x-plan": "gold"}}, "quotas": year(9)}]}]})
}

// Guards: a tenant's entry that is half written: a sum that counts an entry which does not exist
// (the list would be full one day), and an entry that never reaches its tenant's object.
#[test]
fn an_entry_of_a_tenant_is_there_or_not() {
    let worker = two(&with_tenants());
    let mut number = 0;
    for (place, least) in [("Tenants.call", 12), ("Tenants.due", 2), ("Tenants.delivered", 4)] {
        for port in &worker.ports {
            let spoilt = each_step(&worker, place, || {
                number += 1;
                let tenant = format!("/.well-known/tollgate/admin/tenants/t{number}");
                let entry = json!({"tier": "gold"}).to_string();
                let put = || asks(ADMIN, "PUT", &tenant, &entry).header("if-none-match", "*");
                let response = Client::connect(*port).send(&put());
                is_told(&response);
                let is_there = read_surely(&worker, &tenant).status == 200;
                assert!(is_there || response.status != 201, "what was acknowledged is there");
                let tally = worker.client().send(&Request::get("/tally")).text();
                let (said, is) = tally.split_once(',').unwrap_or(("0", "0"));
                assert_eq!(said, is, "entries of {place}, after {}", response.text());
                if !is_there {
                    assert_eq!(worker.client().send(&put()).status, 201);
                }
            });
            assert!(spoilt >= least, "{place}: {spoilt}");
        }
    }
    // All are in force in the end, also those that could not be delivered at once.
    let since = Instant::now();
    for n in 1..=number {
        let request = json!({"method": "GET", "path": "/", "headers": {"x-org": format!("t{n}")}, "client_ip": "192.0.2.1"});
        let request = check_request("GET", "/", "192.0.2.1").body(request.to_string());
        loop {
            let answer = answer(&worker.client().send(&request));
            let field = answer["headers"]["ratelimit-policy"].as_str().unwrap_or_default();
            if field.contains(";q=9;") {
                break;
            }
            assert!(since.elapsed() < Duration::from_secs(60), "t{n}: {answer}\n{}", worker.log());
            thread::sleep(Duration::from_millis(300));
        }
    }
}

// Guards: sums that are half written: their pages are rows, and the first row records how far each
// isolate was counted. A loss or a double count would stay for ever.
#[test]
fn sums_are_exact_whatever_step_of_them_fails() {
    const RULES: usize = 300;
    const METRICS: &str = "/.well-known/tollgate/metrics";
    let rule = |i: usize| {
        json!({"name": format!("r{i:03}"), "when": {"paths": [format!("/p{i}")]}, "key": ["client_ip"],
            "quotas": [{"name": "year", "algorithm": "fixed-window", "limit": 1_000_000, "window": "366d"}]})
    };
    let policy = json!({"version": 1, "rules": (0..RULES).map(rule).collect::<Vec<_>>()});
    let worker = two(&policy);
    // The object's isolate panics; the counts are another isolate's.
    let mut far = Client::connect(worker.ports[1]);
    let scrape =
        || worker.client().send(&Request::get(METRICS).header("authorization", "Bearer m"));
    let mut send = |rules: &mut dyn Iterator<Item = usize>| {
        for i in rules {
            let request = check_request("GET", &format!("/p{i}"), "192.0.2.1");
            assert_eq!(answer(&far.send(&request))["decision"], "allow");
        }
    };
    let wait_for = |i: usize, expected: u64| {
        let line = format!(
            "tollgate_decisions_total{{rule=\"r{i:03}\",quota=\"\",tier=\"\",result=\"allowed\"}} "
        );
        wait_until(&format!("{expected} of rule {i}"), Duration::from_secs(90), || {
            let response = scrape();
            is_told_as_text(&response);
            let text = response.text();
            let count = text.lines().find_map(|of| of.strip_prefix(&line)?.parse::<u64>().ok());
            let count = count.unwrap_or_default();
            assert!(count <= expected, "{count} of {expected}");
            thread::sleep(Duration::from_millis(50));
            (count == expected).then_some(())
        });
    };
    send(&mut (0..RULES));
    wait_for(RULES - 1, 1);
    let spoilt = [
        ("Metrics.add", 0, "trap"),
        ("Metrics.save", 1, "trap"),
        ("Metrics.save", 2, "trap"),
        ("Metrics.save", 2, "throws"),
        ("Metrics.text", 2, "trap"),
    ];
    for (round, (place, after, kind)) in (2..).zip(spoilt) {
        arm(&worker, place, after, kind);
        // In two pages.
        send(&mut [0, RULES - 1].into_iter());
        wait_until("the fault", Duration::from_secs(60), || {
            if place == "Metrics.text" {
                is_told_as_text(&scrape());
            }
            (!is_armed(&worker)).then_some(())
        });
        wait_for(0, round);
        wait_for(RULES - 1, round);
    }
}

fn is_told_as_text(response: &Response) {
    let media_type = response.header("content-type").unwrap_or_default();
    assert!(response.status == 200 || media_type.contains("problem+json"), "{}", response.text());
}
