//! Costs in the bodies of responses, in front of an origin: the same as in Envoy, and bodies that
//! pass unchanged, at once, and whatever becomes of the request.

use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use tollgate_e2e::body_costs::{
    self, BODY, BodyCost, BrokenBody, JSON, get, leave_after, policy, read_all, usage, used_before,
};
use tollgate_e2e::http::Request;
use tollgate_e2e::model_server;
use tollgate_e2e::process::{READY_WITHIN, wait_until};
use tollgate_e2e::scripted::{Part, Scripted, answer};
use tollgate_e2e::workerd::{self, Setup, Workerd};

const METRICS: &str = "/.well-known/tollgate/metrics";
const TOKEN: &str = "t0ken-of-prometheus";

fn setup(policy: &Value, origin: &Scripted) -> Setup {
    Setup::new(policy)
        .operated()
        .binding("ORIGIN", format!("http://127.0.0.1:{}", origin.port))
        .binding("METRICS_TOKEN", TOKEN)
        .binding("METRICS_INTERVAL_S", 1)
        .files_in_memory()
}

/// An origin with these responses, and one that costs nothing.
fn origin(more: impl IntoIterator<Item = (String, Vec<Part>)>) -> Scripted {
    let free = answer(&[JSON], br#"{"usage": {"in": 0, "out": 0}}"#, 99);
    Scripted::start([("/free".to_owned(), free)].into_iter().chain(more).collect())
}

/// Waits until the user has used this many units: a cost is settled soon after the response.
fn wait_for(worker: &Workerd, user: &str, units: u64) {
    let used = || used_before(&worker.client().send(&get("/free", user)));
    wait_until(&format!("{user} costs {units}"), READY_WITHIN, || {
        thread::sleep(Duration::from_millis(20));
        (used() == units).then_some(())
    });
}

/// Waits until this many costs were unknown for this reason.
fn wait_for_reason(worker: &Workerd, reason: &str, count: u64) {
    let request = Request::get(METRICS).header("authorization", format!("Bearer {TOKEN}"));
    let line = format!("tollgate_cost_unknown_total{{reason=\"{reason}\"}} {count}");
    wait_until(&line, READY_WITHIN, || {
        thread::sleep(Duration::from_millis(100));
        worker.client().send(&request).text().lines().any(|it| it == line).then_some(())
    });
}

// Guards: costs that are not found because of how a body is cut, typed or written, bodies that are
// changed on their way, and estimates that a response replaces by less than it used.
#[test]
fn a_body_settles_the_cost_that_it_shows() {
    let responses = body_costs::responses();
    let origin = Scripted::start(body_costs::parts(&responses));
    let worker = setup(&policy(&usage()), &origin).start();
    for BodyCost { path, body, .. } in &responses {
        let answer = worker.client().send(&get(path, path).header("accept-encoding", "gzip"));
        assert!((answer.status, &answer.body) == (200, body), "{path}: it passes unchanged");
        let length = answer.header("content-length");
        assert_eq!(length, Some(body.len().to_string()), "{path}");
        let encoding = answer.header("content-encoding");
        assert_eq!(encoding.as_deref() == Some("gzip"), *path == "/gzip", "{path}: {encoding:?}");
    }
    let head = worker.client().send(&Request::new("HEAD", "/empty").header("x-user", "head"));
    assert_eq!(head.status, 200);
    let mut reasons = body_costs::reasons(&responses);
    *reasons.entry("absent").or_default() += 1;
    reasons.iter().for_each(|(reason, count)| wait_for_reason(&worker, reason, *count));
    for BodyCost { path, units, .. } in &responses {
        wait_for(&worker, path, *units);
    }
    wait_for(&worker, "head", 10);
}

// Guards: clients that leave after they have the text and before the response has ended.
#[test]
fn a_response_that_breaks_off_costs_what_it_showed() {
    let broken = body_costs::broken();
    let origin = origin(broken.iter().map(|it| (it.path.to_owned(), it.parts.clone())));
    let worker = setup(&policy(&usage()), &origin).start();
    for BrokenBody { path, end, units, .. } in broken {
        leave_after(worker.port, &get(path, path), end);
        wait_for(&worker, path, units);
    }
    wait_for_reason(&worker, "incomplete", 2);
}

#[test]
fn the_origin_is_asked_for_a_plain_body_where_the_policy_says_so() {
    let mut by = usage();
    by["identity"] = json!(true);
    for (actual, expected) in
        [(by, "accept-encoding: identity\r\n"), (usage(), "accept-encoding: gzip\r\n")]
    {
        let origin = origin([]);
        let worker = setup(&policy(&actual), &origin).start();
        let request = get("/free", "u").header("accept-encoding", "gzip");
        assert_eq!(worker.client().send(&request).status, 200);
        let heads = origin.heads();
        assert_eq!(heads.len(), 1);
        assert_eq!(heads[0].matches("accept-encoding").count(), 1, "{}", heads[0]);
        assert!(heads[0].contains(expected), "{}", heads[0]);
    }
}

// Guards: an isolate whose memory grows with the body.
#[test]
fn a_body_of_a_hundred_megabytes_takes_no_memory() {
    let (length, parts) = body_costs::large();
    let origin = origin([("/large".to_owned(), parts)]);
    let worker = setup(&policy(&usage()), &origin).start();
    wait_for(&worker, "large", 0);
    let before = worker.resident_bytes();
    let read = read_all(worker.port, &get("/large", "large"));
    assert!(read > length, "{read} of {length}");
    wait_for(&worker, "large", 23);
    let grown = worker.resident_bytes().saturating_sub(before);
    println!("grew by {} MiB", grown >> 20);
    assert!(grown < 48 << 20, "{grown}");
}

// Guards: a body that is read for one rule and not for the other.
#[test]
fn a_body_counts_by_its_bytes_and_by_its_numbers() {
    let missing = "HTTP/1.1 404 Not Found\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
    let origin = origin([
        ("/both".to_owned(), answer(&[JSON], BODY, 50)),
        ("/look".to_owned(), vec![Part::Bytes(missing.into())]),
    ]);
    let mut policy = policy(&usage());
    let rules = policy["rules"].as_array_mut().expect("rules");
    rules[0]["cost"]["on_status"] = json!({"404": 0});
    let mut bytes = rules[0].clone();
    bytes["name"] = json!("bytes");
    bytes["cost"]["actual"] = json!("bytes");
    rules.push(bytes);
    let worker = setup(&policy, &origin).start();
    assert_eq!(worker.client().send(&get("/both", "u")).body, BODY);
    let left = |used: u64| 1000 - 10 - used;
    let (tokens, bytes) = (left(23), left(BODY.len() as u64));
    let expected = [format!("\"tokens\";r={tokens};"), format!("\"bytes\";r={bytes};")];
    wait_until("both are settled", READY_WITHIN, || {
        let field = worker.client().send(&get("/look", "u")).header("ratelimit").expect("it");
        expected.iter().all(|part| field.contains(part)).then_some(())
    });
}

/// An exception of the runtime, which Rust cannot catch, while a body of this length is read.
fn failing(len: usize) -> String {
    format!(
        r#"
export {{ default, Limiter, Metrics, Policies, Tenants }} from "./entry.mjs";
const scan = globalThis.tollgateScan;
globalThis.tollgateScan = (number, bytes) => scan(number, bytes.length === {len} ? null : bytes);
"#
    )
}

// Guards: a body that is lost with the instance of wasm that reads it.
#[test]
fn a_body_passes_on_when_its_reading_fails() {
    let origin = origin([
        ("/fails".to_owned(), answer(&[JSON], BODY, BODY.len())),
        ("/pieces".to_owned(), answer(&[JSON], BODY, 50)),
    ]);
    let worker = setup(&policy(&usage()), &origin).front(&failing(BODY.len())).start();
    assert_eq!(worker.client().send(&get("/fails", "u")).body, BODY);
    assert!(worker.log().contains("wasm was aborted and started anew"), "{}", worker.log());
    wait_for(&worker, "u", 10);
    assert_eq!(worker.client().send(&get("/pieces", "u")).body, BODY);
    wait_for(&worker, "u", 10 + 23);
}

// A service sees no body: its caller reports the units, as to a server.
#[test]
fn a_caller_of_the_service_reports_what_the_body_shows() {
    let worker = Setup::new(policy(&usage())).binding("HASH_KEY", "the secret of names").start();
    let post = |path: &str, body: Value| {
        workerd::answer(&worker.client().send(&Request::post(path, body.to_string())))
    };
    let request = json!({"method": "GET", "path": "/", "headers": {"x-user": "u"}, "settle": true});
    let allowed = post("/check", request.clone());
    let settled = post("/check/settle", json!({"id": allowed["id"], "cost": 23}));
    assert_eq!(settled, json!({"result": "settled", "cost": 23, "charged": 23}));
    let next = post("/check", request);
    let field = next["headers"]["ratelimit"].as_str().expect("the field");
    assert!(field.contains("\"tokens\";r=967;"), "{field}");
}

// The recipe: a month's tokens by what the stream shows, four streams at once, and ten minutes out
// after 20 wrong keys.
#[test]
fn a_model_server_that_streams_has_a_budget_and_four_places() {
    let origin = model_server::start();
    let worker = setup(&model_server::policy(), &origin).start();
    model_server::budget_and_places(&origin, || worker.client());
}
