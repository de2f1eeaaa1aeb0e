//! The Worker's counters, sums and reports: exactly the requests sent, once, whatever is killed or
//! repeated; points for Analytics Engine; lines of the log.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tollgate_e2e::http::Request;
use tollgate_e2e::process::{TempDir, required_path, wait_until};
use tollgate_e2e::workerd::{Setup, Workerd, check_request};

const METRICS: &str = "/.well-known/tollgate/metrics";
const TOKEN: &str = "t0ken-of-prometheus";

/// Only turns a hang into a failure.
const PATIENCE: Duration = Duration::from_secs(120);

/// Of ten requests of a client two are denied, and a shadow rule would deny seven.
fn policy() -> Value {
    let quota = |limit: u64| json!([{"name": "day", "algorithm": "fixed-window", "limit": limit, "window": "366d"}]);
    json!({"version": 1, "rules": [
        {"name": "a \"b\" \\c", "key": ["client_ip"], "quotas": quota(8)},
        {"name": "trial", "mode": "shadow", "key": ["client_ip"], "quotas": quota(3)},
    ]})
}

fn setup() -> Setup {
    Setup::new(policy())
        .operated()
        .binding("METRICS_TOKEN", TOKEN)
        .binding("METRICS_INTERVAL_S", 1)
        .files_in_memory()
}

fn scrape_at(worker: &Workerd, port: u16) -> String {
    let request = Request::get(METRICS).header("authorization", format!("Bearer {TOKEN}"));
    let response = tollgate_e2e::http::Client::connect(port).send(&request);
    assert_eq!(response.status, 200, "{}\n{}", response.text(), worker.log());
    response.text()
}

fn scrape(worker: &Workerd) -> BTreeMap<String, f64> {
    samples(&scrape_at(worker, worker.port))
}

/// The samples by name and labels.
fn samples(text: &str) -> BTreeMap<String, f64> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let sample = |line: &str| {
        let (series, value) = line.rsplit_once(' ').expect("a sample");
        (series.to_owned(), value.parse().expect("a number"))
    };
    lines.map(sample).collect()
}

const REQUESTS: &str = "tollgate_requests_total";

/// The number of counted requests.
fn counted(samples: &BTreeMap<String, f64>) -> f64 {
    samples.iter().filter(|(series, _)| series.starts_with(REQUESTS)).map(|(_, count)| count).sum()
}

/// Scrapes until `count` requests were counted; at every scrape no counter may go down.
fn wait_for(worker: &Workerd, count: f64) -> BTreeMap<String, f64> {
    let since = Instant::now();
    let mut before: BTreeMap<String, f64> = BTreeMap::new();
    loop {
        let now = scrape(worker);
        for (series, value) in before.iter().filter(|(series, _)| series.contains("_total")) {
            assert!(now.get(series).is_some_and(|now| now >= value), "{series} went down");
        }
        let is_over = counted(&now) >= count;
        assert!(is_over || since.elapsed() < PATIENCE, "{now:#?}\n{}", worker.log());
        if is_over {
            return now;
        }
        before = now;
        thread::sleep(Duration::from_millis(100));
    }
}

/// Ten requests of each client.
fn send(worker: &Workerd, port: u16, clients: &[&str]) {
    let mut client = tollgate_e2e::http::Client::connect(port);
    for ip in clients {
        for _ in 0..10 {
            let response = client.send(&check_request("GET", "/", ip));
            assert_eq!(response.status, 200, "{}\n{}", response.text(), worker.log());
        }
    }
}

fn decisions(rule: &str, quota: &str, result: &str) -> String {
    format!(
        "tollgate_decisions_total{{rule=\"{rule}\",quota=\"{quota}\",tier=\"\",result=\"{result}\"}}"
    )
}

fn assert_counts(samples: &BTreeMap<String, f64>, clients: f64) {
    let expected = [
        (decisions(r#"a \"b\" \\c"#, "", "allowed"), 8.0),
        (decisions(r#"a \"b\" \\c"#, "day", "denied"), 2.0),
        (decisions("trial", "", "allowed"), 3.0),
        (decisions("trial", "day", "shadowed"), 7.0),
        ("tollgate_requests_total{answer=\"passed\"}".to_owned(), 8.0),
        ("tollgate_requests_total{answer=\"refused\"}".to_owned(), 2.0),
        ("tollgate_requests_total{answer=\"delayed\"}".to_owned(), 0.0),
    ];
    for (series, each) in expected {
        assert_eq!(samples.get(&series), Some(&(each * clients)), "{series}: {samples:#?}");
    }
}

// Guards: unreliable figures. Two isolates send their counts to one object, a response of which is
// lost; the sums are exactly the requests sent, also after kill -9 and when the same isolates'
// successors continue.
#[test]
fn sums_are_exactly_what_was_sent() {
    let mut worker = setup().beside(policy()).start();
    let [first, second] = worker.ports[..] else { panic!("two isolates") };
    send(&worker, first, &["192.0.2.1", "192.0.2.2"]);
    send(&worker, second, &["192.0.2.3"]);
    let told = wait_for(&worker, 30.0);
    assert_counts(&told, 3.0);
    assert_eq!(told.get("tollgate_isolates"), Some(&2.0));
    assert_eq!(told.get("tollgate_policy_version"), Some(&0.0));
    // Both isolates report the same, and nothing is counted twice.
    thread::sleep(Duration::from_millis(2500));
    assert_counts(&samples(&scrape_at(&worker, second)), 3.0);
    worker.kill();
    worker.restart();
    assert_counts(&scrape(&worker), 3.0);
    send(&worker, first, &["192.0.2.4"]);
    assert_counts(&wait_for(&worker, 40.0), 4.0);
    check_text(&scrape_at(&worker, second));
}

/// The result of Prometheus' own reader and its naming rules.
fn check_text(text: &str) {
    let promtool: PathBuf = required_path("TOLLGATE_PROMTOOL_BIN", "cargo xtask test workerd");
    let mut command = Command::new(promtool);
    command.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.stderr(Stdio::piped()).spawn().expect("promtool starts");
    child.stdin.take().expect("its input").write_all(text.as_bytes()).expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(output.status.success() && said.trim().is_empty(), "{said}\n{text}");
}

/// The result of Prometheus' reader of OpenMetrics, which requires a time on every sample.
fn check_open_metrics(text: &str) {
    let promtool: PathBuf = required_path("TOLLGATE_PROMTOOL_BIN", "cargo xtask test workerd");
    let folder = TempDir::new("openmetrics");
    let file = folder.path().join("metrics");
    let timed = |line: &str| match line.starts_with('#') {
        true => format!("{line}\n"),
        false => format!("{line} 1780000000\n"),
    };
    let run = |text: &str| {
        std::fs::write(&file, text).expect("a file");
        let mut command = Command::new(&promtool);
        command.args(["tsdb", "create-blocks-from", "openmetrics"]);
        command.arg(&file).arg(folder.path().join("blocks")).output().expect("promtool starts")
    };
    let whole: String = text.lines().map(timed).collect();
    let output = run(&whole);
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success() && text.ends_with("# EOF\n"), "{said}\n{text}");
    // It has read every sample, and does reject an invalid text.
    let samples = text.lines().filter(|line| !line.starts_with('#')).count();
    let block = said.lines().nth(1).expect("a block");
    assert_eq!(block.split_whitespace().nth(6), Some(samples.to_string().as_str()), "{said}");
    assert!(!run(&whole.replace("# EOF\n", "")).status.success());
}

/// An object of sums that adds the counts but fails to respond, twice, and is then unreachable for
/// a while.
const LOSES_ANSWERS: &str = r#"
import Tollgate, { Metrics as Real } from "./entry.mjs";
export { Limiter, Policies, Tenants } from "./entry.mjs";
export default Tollgate;
let calls = 0;
export class Metrics extends Real {
  async add(delta) {
    calls += 1;
    if (calls > 2 && calls < 5) throw new Error("out of reach");
    await super.add(delta);
    if (calls <= 2) throw new Error("the answer is lost");
  }
}
"#;

// Guards: a call that is repeated because its response was lost, and counted twice; and counts that
// are lost because the object is unreachable for a moment.
#[test]
fn what_is_sent_again_is_counted_once() {
    let worker = setup().front(LOSES_ANSWERS).start();
    send(&worker, worker.port, &["192.0.2.1", "192.0.2.2"]);
    wait_for(&worker, 20.0);
    // A request that no rule applies to is not counted, and triggers another try.
    let (since, failures) = (Instant::now(), "tollgate_metrics_flush_failures_total");
    let told = loop {
        assert_eq!(worker.client().send(&Request::get("/")).status, 404);
        let told = scrape(&worker);
        if told.get(failures).is_some_and(|count| *count >= 4.0) {
            break told;
        }
        assert!(since.elapsed() < PATIENCE, "{told:#?}\n{}", worker.log());
        thread::sleep(Duration::from_millis(200));
    };
    assert_counts(&told, 2.0);
    assert!(worker.log().contains("metrics="), "{}", worker.log());
}

// Guards: figures of a deployment that any client can read.
#[test]
fn only_who_has_a_token_reads_metrics() {
    let others = ["t0ken-of-a-reader", "t0ken-of-an-admin"];
    let worker = setup().binding("READ_TOKEN", others[0]).binding("ADMIN_TOKEN", others[1]).start();
    send(&worker, worker.port, &["192.0.2.1"]);
    let told = wait_for(&worker, 10.0);
    // The deployed file is a version when policies can be put.
    assert_eq!(told.get("tollgate_policy_version"), Some(&1.0));
    let get = |authorization: Option<&str>| {
        let mut request = Request::get(METRICS);
        if let Some(authorization) = authorization {
            request = request.header("authorization", authorization);
        }
        worker.client().send(&request)
    };
    for wrong in [None, Some("Bearer wrong"), Some("Bearer "), Some("Basic x")] {
        let refused = get(wrong);
        assert_eq!(refused.status, 401, "{wrong:?} {}", refused.text());
        assert!(!refused.text().contains("tollgate_requests"), "{wrong:?}");
    }
    for right in [TOKEN, others[0], others[1]] {
        assert_eq!(get(Some(&format!("Bearer {right}"))).status, 200, "{right}");
    }
    let open = Request::get(METRICS)
        .header("authorization", format!("Bearer {TOKEN}"))
        .header("accept", "application/openmetrics-text;version=1.0.0,text/plain;q=0.5");
    let open = worker.client().send(&open);
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    assert_eq!(open.header("content-type").as_deref(), Some(kind));
    check_open_metrics(&open.text());
    // Without a secret the metrics cannot be read, and no counts are sent or stored.
    let off = Setup::new(policy()).operated().files_in_memory().start();
    send(&off, off.port, &["192.0.2.1"]);
    let request = Request::get(METRICS).header("authorization", format!("Bearer {TOKEN}"));
    assert_eq!(off.client().send(&request).status, 404);
}

// Guards: an attacker that tries tokens unseen: in no metric and no line; and a line with the token
// in it, which may be one letter from the right one.
#[test]
fn whoever_tries_tokens_is_counted_and_logged() {
    let worker = setup()
        .binding("ADMIN_TOKEN", "t0ken-of-an-admin")
        .binding("READ_TOKEN", "t0ken-of-a-reader")
        .binding("CHECK_TOKEN", "t0ken-of-callers")
        .binding("LOG_SAMPLE", 1)
        .start();
    let admin = "/.well-known/tollgate/admin/policy";
    let send = |request: Request, token: Option<&str>| {
        let request = match token {
            Some(token) => request.header("authorization", format!("Bearer {token}")),
            None => request,
        };
        worker.client().send(&request).status
    };
    // There are no other requests.
    for (request, token, status) in [
        (Request::get(admin), None, 401),
        (Request::get(admin), Some("wrong-by-a-letter-1"), 401),
        (Request::get(METRICS), Some("wrong-by-a-letter-2"), 401),
        (Request::get(admin), Some(TOKEN), 403),
        (Request::new("DELETE", admin), Some("t0ken-of-a-reader"), 403),
        (check_request("GET", "/", "192.0.2.1"), None, 401),
        (check_request("GET", "/", "192.0.2.1"), Some("wrong-by-a-letter-3"), 401),
        (Request::get(admin), Some("t0ken-of-a-reader"), 200),
    ] {
        assert_eq!(send(request, token), status);
    }
    let series = |api: &str, reason: &str| {
        format!("tollgate_unauthorized_total{{api=\"{api}\",reason=\"{reason}\"}}")
    };
    let expected = [
        (series("admin", "missing"), 1.0),
        (series("admin", "wrong"), 2.0),
        (series("admin", "forbidden"), 2.0),
        (series("check", "missing"), 1.0),
        (series("check", "wrong"), 1.0),
    ];
    let since = Instant::now();
    loop {
        let told = scrape(&worker);
        if expected.iter().all(|(series, count)| told.get(series) == Some(count)) {
            break;
        }
        assert!(since.elapsed() < PATIENCE, "{told:#?}\n{}", worker.log());
        thread::sleep(Duration::from_millis(100));
    }
    let log = worker.log();
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("\"unauthorized\"")).collect();
    assert_eq!(lines.len(), 7, "{log}");
    let forbidden =
        r#"{"event":"unauthorized","api":"admin","reason":"forbidden","status":403,"dropped":0}"#;
    assert!(lines.contains(&forbidden), "{lines:#?}");
    assert!(!log.contains("by-a-letter") && !log.contains("t0ken"), "{log}");
}

// Guards: an operator that cannot see which policy is in force, and counters that go down when it
// changes.
#[test]
fn a_policy_that_is_put_is_told_and_its_rules_counted() {
    let worker = setup().binding("ADMIN_TOKEN", "t0ken-of-an-admin").start();
    let admin = |request: Request| {
        worker.client().send(&request.header("authorization", "Bearer t0ken-of-an-admin"))
    };
    send(&worker, worker.port, &["192.0.2.1"]);
    assert_counts(&wait_for(&worker, 10.0), 1.0);
    let path = "/.well-known/tollgate/admin/policy";
    let tag = admin(Request::get(path)).header("etag").expect("an entity tag");
    let mut changed = policy();
    changed["rules"][1]["name"] = json!("renamed");
    let put = Request::new("PUT", path).body(changed.to_string());
    let put = admin(put.header("content-type", "application/json").header("if-match", tag));
    assert_eq!(put.status, 200, "{}", put.text());
    // Isolates follow within five seconds.
    let since = Instant::now();
    let told = loop {
        send(&worker, worker.port, &["192.0.2.2"]);
        let told = scrape(&worker);
        let is_counted = told.keys().any(|series| series.contains("rule=\"renamed\""));
        if is_counted && told.get("tollgate_policy_version") == Some(&2.0) {
            break told;
        }
        assert!(since.elapsed() < PATIENCE, "{told:#?}\n{}", worker.log());
        thread::sleep(Duration::from_millis(500));
    };
    let source = told.keys().find(|series| series.starts_with("tollgate_policy_info"));
    assert!(source.is_some_and(|source| source.contains("source=\"written\"")), "{source:?}");
    assert!(told.get(&decisions("trial", "day", "shadowed")).is_some_and(|count| *count >= 7.0));
}

/// Binds a dataset that writes its points to the log.
const DATASET: &str = r#"
import Real from "./entry.mjs";
export { Limiter, Policies, Tenants, Metrics } from "./entry.mjs";
const dataset = { writeDataPoint: (point) => console.log("point", JSON.stringify(point)) };
export default class extends Real {
  constructor(ctx, env) {
    super(ctx, { ...env, ANALYTICS: dataset });
  }
}
"#;

/// The JSON values after `prefix` in the log.
fn logged(worker: &Workerd, prefix: &str) -> Vec<Value> {
    let log = worker.log();
    let found = log.lines().filter_map(|line| line.strip_prefix(prefix));
    found.filter_map(|json| serde_json::from_str(json).ok()).collect()
}

// Guards: a bill that grows with denials. Each flush writes one point for each result of a rule,
// also without a token.
#[test]
fn points_are_written_by_flush_and_not_by_request() {
    let worker =
        Setup::new(policy()).binding("METRICS_INTERVAL_S", 5).front(DATASET).files_in_memory();
    let worker = worker.operated().start();
    send(&worker, worker.port, &["192.0.2.1", "192.0.2.2", "192.0.2.3"]);
    let since = Instant::now();
    let sums = loop {
        let mut sums: BTreeMap<String, f64> = BTreeMap::new();
        for point in logged(&worker, "point ") {
            let blobs: Vec<&str> = point["blobs"]
                .as_array()
                .expect("blobs")
                .iter()
                .filter_map(Value::as_str)
                .collect();
            assert_eq!(point["indexes"], json!([blobs[0]]));
            *sums.entry(blobs.join("|")).or_default() +=
                point["doubles"][0].as_f64().expect("a count");
        }
        if sums.values().sum::<f64>() >= 60.0 {
            break sums;
        }
        assert!(since.elapsed() < PATIENCE, "{sums:#?}\n{}", worker.log());
        thread::sleep(Duration::from_millis(100));
    };
    let expected = [
        ("a \"b\" \\c|||allowed", 24.0),
        ("a \"b\" \\c|day||denied", 6.0),
        ("trial|||allowed", 9.0),
        ("trial|day||shadowed", 21.0),
    ];
    let expected: BTreeMap<String, f64> = expected.map(|(key, sum)| (key.into(), sum)).into();
    assert_eq!(sums, expected);
    let points = logged(&worker, "point ").len();
    assert!(points < 40, "{points} points for 30 requests of a few seconds");
}

// Guards: a denial that leaves no trace, a flood of lines, and a client's data in a log.
#[test]
fn refusals_are_lines_and_say_nothing_of_clients() {
    let mut policy = policy();
    policy["rules"][0]["when"] = json!({"headers": {"x-kind": ["refuse"]}});
    policy["rules"][1]["when"] = json!({"headers": {"x-kind": ["shadow"]}});
    let setup = || Setup::new(&policy).files_in_memory().binding("LOG_SAMPLE", 1);
    let worker = setup().binding("HASH_KEY", "secret").start();
    let secret = "k3y-of-a-client";
    let request = |kind: &str| {
        let body = json!({"method": "GET", "path": format!("/{secret}?{secret}=1"), "client_ip": "192.0.2.77",
                          "headers": {"x-key": secret, "x-kind": kind}});
        Request::post("/check", body.to_string())
    };
    let flood = |worker: &Workerd, count: usize| {
        let mut client = worker.client();
        for kind in ["refuse", "shadow"].repeat(count) {
            assert_eq!(client.send(&request(kind)).status, 200);
        }
    };
    flood(&worker, 400);
    // One more line of each event, after the second of the first ones is over.
    thread::sleep(Duration::from_millis(1100));
    flood(&worker, 1);
    let since = Instant::now();
    let lines = loop {
        let lines = logged(&worker, "");
        let events = |event: &str| {
            let lines = lines.iter().filter(|line| line["event"] == event);
            lines.map(|line| 1 + line["dropped"].as_u64().expect("a count")).sum::<u64>()
        };
        if events("refused") == 393 && events("shadow_refused") == 398 {
            break lines;
        }
        assert!(since.elapsed() < PATIENCE, "{lines:#?}");
        thread::sleep(Duration::from_millis(100));
    };
    let first = |event: &str| lines.iter().find(|line| line["event"] == event).expect("a line");
    let (refused, shadow) = (first("refused"), first("shadow_refused"));
    assert_eq!((&refused["rule"], &shadow["rule"]), (&json!("a \"b\" \\c"), &json!("trial")));
    assert_eq!((&refused["status"], &shadow["status"]), (&json!(429), &Value::Null));
    assert_eq!((&refused["quota"], &refused["result"]), (&json!("day"), &json!("denied")));
    assert!(refused["retry_after_ms"].as_u64().is_some_and(|wait| wait > 0), "{refused}");
    assert!(refused["pk"].as_str().is_some_and(|pk| pk.len() == 12), "{refused}");
    let log = worker.log();
    for word in [secret, "192.0.2.77", "secret"] {
        assert!(!log.contains(word), "{word} in {log}");
    }
    // Without a key the hash could be guessed; with 0 there are no lines; otherwise few.
    let count = |setup: Setup, least: usize| {
        let worker = setup.start();
        flood(&worker, 100);
        wait_until("the lines", PATIENCE, || (logged(&worker, "").len() >= least).then_some(()));
        thread::sleep(Duration::from_millis(500));
        let lines = logged(&worker, "");
        assert!(lines.iter().all(|line| line["pk"].is_null()), "{lines:#?}");
        lines.len()
    };
    assert!((2..=188).contains(&count(setup(), 2)));
    assert_eq!(count(setup().binding("LOG_SAMPLE", "0.1"), 20), 10 + 10);
    assert_eq!(count(setup().binding("LOG_SAMPLE", 0), 0), 0);
}
