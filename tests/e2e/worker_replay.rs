//! The Worker's whole decision path at chosen times: the vectors, and a real day; then the day as
//! fast as possible, through a real workerd.
//!
//! A shipped build reads the platform's clock and nothing else, so here its wasm runs in Node
//! (`worker_clock.mjs`) where the test is the platform. That clock has milliseconds, like the real
//! one.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Instant;

use serde_json::{Value, json};
use tollgate_core::{Algorithm, Limiter, Quota, Span, Timestamp};
use tollgate_e2e::day::{Hit, day};
use tollgate_e2e::http::Request;
use tollgate_e2e::workerd::{Setup, answer, node_bin, worker_dir};

use crate::vectors::{self, Case, Event, Expectation, Expected, QuotaLine};

const MS: u64 = 1_000_000;

/// One request to the Worker at one time.
struct TimedCheck {
    at_ms: u64,
    /// Every object first loses its memory.
    evict: bool,
    check: Value,
}

/// The Worker's responses to `requests`, and the platform's counts.
fn run(policy: &Value, requests: &[TimedCheck]) -> (Vec<Value>, Value) {
    let driver = concat!(env!("CARGO_MANIFEST_DIR"), "/e2e/worker_clock.mjs");
    let mut command = Command::new(node_bin());
    command.arg("--no-warnings").arg(driver).arg(worker_dir());
    let mut node =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("Node starts");
    let mut input = node.stdin.take().expect("a pipe");
    let output = BufReader::new(node.stdout.take().expect("a pipe"));
    let mut answers: Vec<Value> = thread::scope(|scope| {
        scope.spawn(move || {
            let lines = requests.iter().map(|asked| {
                json!({"at_ms": asked.at_ms, "evict": asked.evict, "check": asked.check})
                    .to_string()
            });
            for line in std::iter::once(policy.to_string()).chain(lines) {
                // When Node has ended, the missing responses fail the test.
                if input.write_all(format!("{line}\n").as_bytes()).is_err() {
                    return;
                }
            }
        });
        let lines = output.lines().map(|line| line.expect("text"));
        lines
            .map(|line| serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line}")))
            .collect()
    });
    assert!(node.wait().expect("a status").success(), "Node failed; see above");
    assert_eq!(answers.len(), requests.len() + 1, "an answer each, and the counts");
    let counts = answers.pop().expect("the counts");
    (answers, counts)
}

fn quota(line: &QuotaLine, name: &str) -> Value {
    let mut quota = json!({"name": name, "limit": line.limit, "window": line.window, "algorithm": line.algorithm});
    if let Some(burst) = line.burst {
        quota["burst"] = json!(burst);
    }
    if let Some(buckets) = line.buckets {
        quota["buckets"] = json!(buckets);
    }
    if line.weighted {
        quota["weighted"] = json!(true);
    }
    if line.strict {
        quota["strict"] = json!(true);
    }
    quota
}

/// The rows of a case that can be sent to a Worker: a request costs one unit, so rows that only
/// look are skipped, and the case ends where another cost, a refund or a time between milliseconds
/// changes the state.
fn askable(case: &Case) -> Vec<(usize, u64, &Expected)> {
    let mut rows = vec![];
    for row in &case.rows {
        match &row.event {
            Event::Check { cost: 0, .. } | Event::Check { peek: true, .. } => {}
            Event::Check { cost: 1, expected, .. } if row.at_ns % MS == 0 => {
                rows.push((row.line, row.at_ns / MS, expected));
            }
            _ => break,
        }
    }
    rows
}

/// The least `r` of the `RateLimit` field.
fn least_remaining(answer: &Value) -> u64 {
    let field = answer["headers"]["ratelimit"].as_str().expect("a ratelimit field");
    let r = |member: &str| -> Option<u64> {
        member.split(";r=").nth(1)?.split(';').next()?.parse().ok()
    };
    field.split(", ").map(|member| r(member).expect("an r")).min().expect("a member")
}

fn check_row(answer: &Value, expected: &Expected, place: &str) {
    let ms = |ns: u64| json!(ns.div_ceil(MS));
    let (decision, delay) = match expected.verdict {
        Expectation::Allow => ("allow", None),
        Expectation::Delay { wait_ns } => ("delay", Some(ms(wait_ns))),
        Expectation::Deny => ("deny", None),
    };
    assert_eq!(answer["decision"], decision, "{place}: {answer}");
    assert_eq!(answer.get("delay_ms"), delay.as_ref(), "{place}: delay");
    let wait = expected.retry_after_ns.map_or(Value::Null, ms);
    assert_eq!(answer["retry_after_ms"], wait, "{place}: retry_after");
    if decision != "deny" {
        assert_eq!(least_remaining(answer), expected.remaining, "{place}: remaining");
    }
}

// The shared truth, through the Worker's whole path: facts, plan, call, object, storage, response.
// Every object is evicted from memory before every row, so each decision is based on the stored
// state; the alarms ring meanwhile, which proves that the deleted state is idle.
#[test]
fn the_vectors_hold_in_the_worker() {
    let cases = vectors::all();
    let rule = |(i, case): (usize, &Case)| {
        let quotas: Vec<Value> = (case.quotas.iter().enumerate())
            .map(|(q, line)| quota(line, &format!("q{q}")))
            .collect();
        let when = json!({"paths": [format!("/{i}")]});
        json!({"name": format!("case {i}"), "when": when, "key": [{"header": "x-case"}], "quotas": quotas})
    };
    let rules: Vec<Value> = cases.iter().enumerate().map(rule).collect();
    let mut requests = vec![];
    let mut rows = vec![];
    for (i, case) in cases.iter().enumerate() {
        for (line, at_ms, expected) in askable(case) {
            let headers = json!({"x-case": i.to_string()});
            let check = json!({"method": "GET", "path": format!("/{i}"), "headers": headers});
            requests.push(TimedCheck { at_ms, evict: true, check });
            rows.push((format!("{}:{line} ({})", case.file, case.title), expected));
        }
    }
    let (answers, counts) = run(&json!({"version": 1, "rules": rules}), &requests);
    for (answer, (place, expected)) in answers.iter().zip(&rows) {
        check_row(answer, expected, place);
    }
    println!("{} rows hold in the Worker; {counts}", rows.len());
    assert!(rows.len() >= 150, "only {} rows were run", rows.len());
}

/// The requests of the day that one limiter per client allows, on a clock with milliseconds.
fn core_admits(algorithm: Algorithm, hits: &[Hit]) -> Vec<bool> {
    let quota = Quota::new(10, Span::from_secs(60)).expect("a quota");
    let limiter = Limiter::new(algorithm, quota).expect("a limiter");
    let mut states: HashMap<String, Vec<u8>> = HashMap::new();
    let admits = |hit: &Hit| {
        let state =
            states.entry(hit.client.clone()).or_insert_with(|| vec![0; limiter.state_len()]);
        limiter.check(state, Timestamp::from_millis(hit.at_ns / MS), 1).is_admitted()
    };
    hits.iter().map(admits).collect()
}

fn per_client(quota: &Value) -> Value {
    json!({"version": 1, "rules": [{"name": "client", "key": [{"header": "x-client"}], "quotas": [quota]}]})
}

fn check_of(hit: &Hit) -> Value {
    json!({"method": hit.method, "path": hit.target, "headers": {"x-client": hit.client}})
}

// The whole day with its own times: the Worker allows exactly the requests that the core allows,
// though its objects are evicted again and again and their storage is deleted whenever they are
// idle.
#[test]
fn the_real_day_is_decided_as_by_the_core() {
    let hits = day();
    for (name, algorithm) in
        [("sliding-window", Algorithm::SlidingWindow), ("gcra", Algorithm::Gcra)]
    {
        let quota = json!({"name": "q", "limit": 10, "window": "1m", "algorithm": name});
        let ask = |(i, hit): (usize, &Hit)| TimedCheck {
            at_ms: hit.at_ns / MS,
            evict: i % 11 == 0,
            check: check_of(hit),
        };
        let requests: Vec<TimedCheck> = hits.iter().enumerate().map(ask).collect();
        let (answers, counts) = run(&per_client(&quota), &requests);
        let expected = core_admits(algorithm, &hits);
        for (i, (answer, expected)) in answers.iter().zip(&expected).enumerate() {
            let admitted = answer["decision"] == "allow";
            assert_eq!(admitted, *expected, "{name}: request {i} of {}: {answer}", hits[i].client);
        }
        let admitted = expected.iter().filter(|admitted| **admitted).count();
        println!("{name}: {admitted} of {} admitted, as by the core; {counts}", hits.len());
        assert!(counts["deletions"].as_u64().is_some_and(|deletions| deletions > 1000), "{counts}");
    }
}

// The same day as fast as possible through a real workerd: no error, and every count adds up, with
// a database for each of its clients.
#[test]
fn the_real_day_adds_up_in_workerd() {
    const LIMIT: usize = 3;
    const CONNECTIONS: usize = 16;
    let quota =
        json!({"name": "q", "limit": LIMIT, "window": "366d", "algorithm": "sliding-window"});
    let worker = Setup::new(per_client(&quota)).files_in_memory().start();
    let hits = day();
    let started = Instant::now();
    let one_connection = |share: &[Hit]| {
        let mut client = worker.client();
        let mut admitted: HashMap<String, usize> = HashMap::new();
        for hit in share {
            let answer = answer(&client.send(&Request::post("/check", check_of(hit).to_string())));
            let result = answer["rules"][0]["result"].as_str().expect("a result");
            assert!(["allowed", "denied"].contains(&result), "{answer}");
            *admitted.entry(hit.client.clone()).or_default() +=
                usize::from(answer["decision"] == "allow");
        }
        admitted
    };
    let mut admitted: HashMap<String, usize> = HashMap::new();
    thread::scope(|scope| {
        let shares = hits.chunks(hits.len().div_ceil(CONNECTIONS));
        let running: Vec<_> = shares.map(|share| scope.spawn(|| one_connection(share))).collect();
        for (client, count) in running.into_iter().flat_map(|r| r.join().expect("a connection")) {
            *admitted.entry(client).or_default() += count;
        }
    });
    let mut asked: HashMap<&str, usize> = HashMap::new();
    hits.iter().for_each(|hit| *asked.entry(&hit.client).or_default() += 1);
    for (client, asked) in &asked {
        assert_eq!(admitted[*client], (*asked).min(LIMIT), "{client} asked {asked} times");
    }
    assert_eq!(worker.databases().len(), asked.len(), "one object for each client");
    let admitted: usize = admitted.values().sum();
    println!("{} requests in {:?}, {admitted} admitted", hits.len(), started.elapsed());
}
