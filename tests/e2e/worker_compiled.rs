//! A policy that was compiled at deployment: the Worker decides by it without the half of its code
//! that reads documents, and never by one that does not belong to the deployed document.

use serde_json::{Value, json};
use tollgate_e2e::http::Request;
use tollgate_e2e::workerd::{Setup, Workerd, check_request};
use tollgate_policy::{Surface, compiled_text};

const HEALTH: &str = "/.well-known/tollgate/health";
const NOTED: &str = "policy.json is compiled at every start: what was deployed with it ";

fn policy(limit: u64) -> String {
    let quotas = json!([{"limit": limit, "window": "1h", "algorithm": "fixed-window"}]);
    let rule = json!({"name": "a", "key": ["client_ip"], "quotas": quotas});
    json!({"version": 1, "rules": [rule]}).to_string()
}

fn compiled(limit: u64, surface: Surface) -> String {
    let policy = tollgate_language::compile(&policy(limit), surface).expect("a policy");
    compiled_text(|out| policy.write_compiled(out))
}

/// How many of `count` requests of one client are allowed.
fn admitted(worker: &Workerd, count: usize) -> usize {
    let is_admitted = |_: &usize| {
        let answer = worker.client().send(&check_request("GET", "/", "192.0.2.1"));
        assert_eq!(answer.status, 200);
        let answer: Value = serde_json::from_slice(&answer.body).expect("JSON");
        answer["decision"] == "allow"
    };
    (0..count).filter(is_admitted).count()
}

// Guards: a start that compiles a policy which is deployed in its compiled form.
#[test]
fn a_compiled_policy_is_not_compiled_at_the_start() {
    let worker = Setup::new(policy(3)).start();
    assert_eq!(worker.client().send(&Request::get(HEALTH)).status, 200);
    assert_eq!(admitted(&worker, 5), 3);
    assert!(!worker.log().contains(NOTED), "{}", worker.log());
}

// Guards: a policy that was changed and not compiled again, while the earlier one still decides.
#[test]
fn what_is_not_the_deployed_policy_never_decides() {
    let mut cut = compiled(3, Surface::Worker);
    cut.truncate(40);
    for (compiled, why) in [
        (compiled(1000, Surface::Worker), "is of another text"),
        (compiled(3, Surface::Envoy), "was compiled for the surface \"envoy\""),
        (cut, "is damaged: it was cut or changed"),
        ("AHRvbGxnYXRlAAAAAAAAAAAA".to_owned(), "was compiled by another version"),
        ("bm90aGluZw==".to_owned(), "is not a compiled policy"),
        ("no base64!".to_owned(), "is not a compiled policy"),
    ] {
        let worker = Setup::new(policy(3)).compiled(&compiled).start();
        assert_eq!(admitted(&worker, 5), 3, "{why}");
        let log = worker.log();
        assert!(log.contains(NOTED) && log.contains(why), "{why}: {log}");
    }
    let worker = Setup::new(policy(3)).compiled("").start();
    assert_eq!(admitted(&worker, 5), 3);
    assert!(!worker.log().contains(NOTED), "nothing was deployed: {}", worker.log());
}
