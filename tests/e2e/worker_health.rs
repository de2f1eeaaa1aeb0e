//! The reports of an invalid deployment: every client sees the places of the mistakes, never the
//! values. Only the log, one line each and once, and the bearer of `CHECK_TOKEN` get the whole
//! text.

use serde_json::{Value, json};
use tollgate_e2e::http::{Request, Response};
use tollgate_e2e::workerd::{Setup, Workerd, check_request};

const HEALTH: &str = "/.well-known/tollgate/health";
const SECRET: &str = "sk_live_4eC39HqLyjWDarjtT1zdp7dc";
const TOKEN: &str = "t0ken-of-the-operator";

/// Whether any part of `response` contains the secret.
fn tells(response: &Response) -> bool {
    let lines = response.headers.iter().flat_map(|(name, value)| [name.as_bytes(), value]);
    let bytes: Vec<u8> = lines.chain([&response.body[..]]).flatten().copied().collect();
    String::from_utf8_lossy(&bytes).contains("sk_live")
}

/// Every response that a client without a token gets from an invalid deployment.
fn public_answers(worker: &Workerd) -> Vec<Response> {
    let wrong = Request::get(HEALTH).header("authorization", "Bearer wrong");
    let requests = [
        Request::get(HEALTH),
        Request::new("HEAD", HEALTH),
        Request::post(HEALTH, "x"),
        wrong,
        Request::get("/"),
        check_request("GET", "/", "192.0.2.1"),
        Request::post("/check", "{}").header("content-type", "application/grpc"),
    ];
    let send = |request: Request| worker.client().send(&request);
    let answers: Vec<Response> = requests.into_iter().map(send).collect();
    let statuses: Vec<u16> = answers.iter().map(|answer| answer.status).collect();
    assert_eq!(statuses, [500, 500, 405, 500, 500, 500, 500]);
    answers
}

fn lines(worker: &Workerd) -> Vec<String> {
    let log = worker.log();
    let lines = log.lines().filter_map(|line| line.split_once("tollgate: "));
    lines.map(|(_, said)| said.to_owned()).collect()
}

fn with_token(worker: &Workerd) -> Value {
    let request = Request::get(HEALTH).header("authorization", format!("Bearer {TOKEN}"));
    serde_json::from_slice(&worker.client().send(&request).body).expect("JSON")
}

// Guards: a misplaced secret that every client can read: as a value, as a name, as a name of a map,
// of a wrong type, given twice, in a text that is not JSON. The log and the operator do see it;
// otherwise this would prove nothing.
#[test]
fn no_public_answer_repeats_a_misplaced_secret() {
    let rules = json!([{"name": "a", "key": [], "quotas": [{"limit": 1, "window": "1s"}]}]);
    let document = |name: &str, value: Value| {
        let mut document = json!({"version": 1, "rules": rules});
        document[name] = value;
        document.to_string()
    };
    let with_rule = |name: &str, value: Value| {
        let mut rule = rules[0].clone();
        rule[name] = value;
        document("rules", json!([rule]))
    };
    for (place, policy) in [
        ("jwt.keys[0]", document("jwt", json!({"keys": [SECRET]}))),
        ("", document(SECRET, json!(1))),
        (
            "rules[0].when.headers.*",
            with_rule("when", json!({"headers": {SECRET: 7, "x": SECRET}})),
        ),
        ("rules[0].key[0]", with_rule("key", json!([SECRET]))),
        (
            "rules[0].quotas[0].algorithm",
            with_rule("quotas", json!([{"limit": 1, "window": "1s", "algorithm": SECRET}])),
        ),
        ("rules[0].name", with_rule("name", json!(format!("é{SECRET}")))),
        (
            "rules[0].name",
            with_rule("name", json!({SECRET: SECRET}))
                .replace("\"name\":{", &format!("\"name\":\"{SECRET}\",\"name\":{{")),
        ),
        ("", format!("{{\"version\": 1, \"rules\": {SECRET}}}")),
    ] {
        let worker = Setup::new(&policy).binding("CHECK_TOKEN", TOKEN).start();
        let answers = public_answers(&worker);
        assert!(!answers.iter().any(tells), "{policy}: {answers:#?}");
        let report: Value = serde_json::from_slice(&answers[0].body).expect("JSON");
        let errors = report["errors"].as_array().expect("a list");
        assert!(errors.iter().any(|error| error["path"] == place), "{place}: {report}");
        let whole = with_token(&worker).to_string();
        let logged = lines(&worker);
        // Invalid JSON is reported by line and column, and a repeated member by its name.
        let is_repeated = !whole.contains("not JSON") && !whole.contains("given twice");
        assert_eq!(whole.contains("sk_live"), is_repeated, "{whole}");
        assert_eq!(logged.iter().any(|line| line.contains("sk_live")), is_repeated, "{logged:#?}");
    }
}

// Guards: a setting with a secret in it.
#[test]
fn no_public_answer_repeats_a_wrong_setting() {
    let policy = json!({"version": 1, "rules": []});
    for (name, value) in [
        ("ORIGIN", format!("https://user:{SECRET}@example.com")),
        ("ORIGIN", SECRET.to_owned()),
        ("OBJECT_TIMEOUT_MS", SECRET.to_owned()),
    ] {
        let worker = Setup::new(&policy).binding(name, value).binding("CHECK_TOKEN", TOKEN).start();
        let answers = public_answers(&worker);
        assert!(!answers.iter().any(tells), "{answers:#?}");
        assert!(answers[0].text().contains(name), "{}", answers[0].text());
    }
}

// Guards: a deployment that responds with 500 and reports the reason nowhere. Each mistake is one
// line of the log, once however many requests come, and the response refers to the report.
#[test]
fn what_is_misconfigured_is_logged_once() {
    let good = json!({"version": 1, "rules": []});
    let binding = "LIMITER: the Durable Object binding is missing; see wrangler.toml";
    let origin = "ORIGIN: is not an origin; use one such as \"https://example.com\", without query";
    let timeout = "OBJECT_TIMEOUT_MS: is not a whole number of milliseconds from 10 to 30000; use one such as 500";
    for (setup, expected) in [
        (
            Setup::new(""),
            "the policy is missing; policy.json is bundled as a text module, see wrangler.toml",
        ),
        (Setup::new("{"), "not JSON: EOF while parsing an object at line 1 column 1"),
        (
            Setup::new("version: 1\nrules: []\n"),
            "is not JSON, and a Worker does not read YAML; `tollgate compile --json` converts it to JSON",
        ),
        (Setup::new(r#"{"version":2,"rules":[]}"#), "version: 2 is not a known version; use 1"),
        (Setup::new(&good).front(NO_BINDING), binding),
        (
            Setup::new(&good).front(OTHER_BINDING),
            "LIMITER: is bound to no Durable Objects; see wrangler.toml",
        ),
        (Setup::new(&good).binding("ORIGIN", "example.com"), origin),
        (Setup::new(&good).binding("ORIGIN", "https://example.com:99999"), origin),
        (Setup::new(&good).binding("ORIGIN", "https://[::1"), origin),
        (Setup::new(&good).binding("ORIGIN", "https://a%zz"), origin),
        (Setup::new(&good).binding("OBJECT_TIMEOUT_MS", "1s"), timeout),
        (
            Setup::new(&good).binding("CHECK_TOKEN", ""),
            "CHECK_TOKEN: is empty; give it a value or delete it",
        ),
    ] {
        let worker = setup.start();
        for _ in 0..3 {
            for answer in public_answers(&worker) {
                let is_problem =
                    answer.header("content-type").as_deref() == Some("application/problem+json");
                assert!(
                    is_problem && answer.header("cache-control").as_deref() == Some("no-store"),
                    "{answer:?}"
                );
            }
        }
        let line = format!("misconfigured, every request is answered with 500: {expected}");
        assert_eq!(lines(&worker), [line]);
    }
}

const NO_BINDING: &str = r#"
import Tollgate from "./entry.mjs";
export { Limiter } from "./entry.mjs";
export default class extends Tollgate {
  constructor(ctx, env) { super(ctx, { ...env, LIMITER: undefined }); }
}
"#;

const OTHER_BINDING: &str = r#"
import Tollgate from "./entry.mjs";
export { Limiter } from "./entry.mjs";
export default class extends Tollgate {
  constructor(ctx, env) { super(ctx, { ...env, LIMITER: { get() {}, put() {} } }); }
}
"#;

// Guards: a service that is open by mistake, without a warning.
#[test]
fn a_service_without_a_token_is_told_in_the_log() {
    let policy = json!({"version": 1, "rules": []});
    let warned = |setup: Setup| {
        let worker = setup.start();
        assert_eq!(worker.client().send(&Request::get(HEALTH)).status, 200);
        lines(&worker).iter().filter(|line| line.starts_with("CHECK_TOKEN: is not set")).count()
    };
    assert_eq!(warned(Setup::new(&policy)), 1);
    assert_eq!(warned(Setup::new(&policy).binding("CHECK_TOKEN", "t")), 0);
    assert_eq!(warned(Setup::new(&policy).binding("ORIGIN", "http://127.0.0.1:9")), 0);
}
