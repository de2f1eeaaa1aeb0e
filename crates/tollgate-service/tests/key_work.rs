//! An operator's requests about one key, against a real count.

use std::borrow::Cow;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use serde_json::json;
use tollgate_core::Timestamp;
use tollgate_language::DescribedRequest;
use tollgate_policy::{Ending, GivenKey, Plan, Policy, ResponseFacts, Surface, Tenant};
use tollgate_service::key_work::{self, OperatorRequest};
use tollgate_service::{KeyCall, KeyReply, RuleKey, StoreReply, key_report};
use tollgate_storage::{Counts, KeyOperation};

const NOW: Timestamp = Timestamp::from_millis(1_000);

fn policy() -> Policy {
    let policy = r#"{"version": 1, "rules": [{"name": "each", "key": ["client_ip"],
        "quotas": [{"name": "q", "limit": 1, "window": "1h"}]}]}"#;
    tollgate_language::compile(policy, Surface::Worker).unwrap()
}

fn key(rule: &str, parts: &[&str]) -> RuleKey {
    let key = parts.iter().map(ToString::to_string).collect();
    RuleKey { rule: rule.into(), key, tenant: None, is_of_no_tenant: false }
}

/// The content of an event: the operation, and until when the key is blocked.
type EventContent = Option<(&'static str, Option<u64>)>;

/// Carries `call` out; `count` is the reply of the key's count.
fn carried_out(
    policy: &Policy,
    call: &KeyCall,
    mut count: impl FnMut(Vec<u8>) -> Vec<u8>,
) -> (StoreReply, EventContent) {
    let look = async |_| panic!("nothing is to be explained");
    let count = |asked: OperatorRequest| core::future::ready(Ok(count(asked.request)));
    let done = pin!(key_work::carry_out(policy, call, look, count));
    let Poll::Ready((reply, event)) = done.poll(&mut Context::from_waker(Waker::noop())) else {
        panic!("nothing is waited for")
    };
    (reply, event.map(|event| (event.operation, event.blocked_until_ms)))
}

/// Carries `call` out on `counts`; returns the reply, and the content of the event.
fn done(counts: &mut Counts, call: &KeyCall) -> (KeyReply, EventContent) {
    let count = |request: Vec<u8>| counts.operate(&request, NOW).unwrap().reply;
    let (reply, event) = carried_out(&policy(), call, count);
    let StoreReply::Keys(reply) = reply else { panic!("{reply:?}") };
    (reply, event)
}

#[test]
fn a_key_is_blocked_looked_at_and_released() {
    let mut counts = Counts::default();
    let key = || key("each", &["192.0.2.1"]);
    let block = KeyCall::Block { key: key(), until_ms: 9_000 };
    let (reply, event) = done(&mut counts, &block);
    let KeyReply::Done(change) = reply else { panic!("{reply:?}") };
    assert_eq!((change.rule.as_str(), change.tenant), ("each", None));
    assert!(change.after.contains("blocked") && !change.before.contains("blocked"));
    assert_eq!(event, Some(("block", Some(9_000))));
    let (reply, event) = done(&mut counts, &KeyCall::State(key()));
    let KeyReply::State(state) = reply else { panic!("{reply:?}") };
    assert!(state.contains("\"blocked_until_ms\":9000"), "{state}");
    assert_eq!(event, None, "who only looks is not in the log");
    assert_eq!(done(&mut counts, &KeyCall::Reset(key())).1, Some(("reset", Some(9_000))));
    assert_eq!(done(&mut counts, &KeyCall::Unblock(key())).1, Some(("unblock", None)));
}

#[test]
fn what_is_no_key_is_not_asked_for() {
    let mut counts = Counts::default();
    let gone = KeyCall::Reset(key("gone", &["192.0.2.1"]));
    assert_eq!(done(&mut counts, &gone), (KeyReply::NoRule, None));
    let (reply, event) = done(&mut counts, &KeyCall::Reset(key("each", &["a", "b"])));
    assert!(matches!(&reply, KeyReply::NoKey { path, .. } if path == "key"), "{reply:?}");
    assert_eq!(event, None);
}

#[test]
fn a_reply_that_is_none_is_an_error() {
    let call = KeyCall::Unblock(key("each", &["192.0.2.1"]));
    let (reply, event) = carried_out(&policy(), &call, |_| Vec::new());
    assert!(matches!(&reply, StoreReply::Failed(_)) && event.is_none(), "{reply:?}");
}

/// A rule by address where hosts are tenants, which may have quotas of their own in it.
fn with_tenants() -> Policy {
    let policy = r#"{"version": 1, "tenant": "host", "rules": [
        {"name": "each", "key": ["client_ip"], "tiers": [{"name": "gold", "priority": 1,
            "when": {"methods": ["PUT"]}, "quotas": [{"limit": 9, "window": "1h"}]}],
         "quotas": [{"name": "q", "limit": 1, "window": "1h"}]},
        {"name": "host", "key": ["host"], "quotas": [{"name": "q", "limit": 1, "window": "1h"}]}]}"#;
    tollgate_language::compile(policy, Surface::Worker).unwrap()
}

/// The reason that a block of `rule`'s key is not begun, by the tenant in the request; `None` where
/// it is begun.
fn block(rule: &str, part: &str, tenant: Option<&str>, is_of_no_tenant: bool) -> Option<KeyReply> {
    let key = RuleKey { tenant: tenant.map(Into::into), is_of_no_tenant, ..key(rule, &[part]) };
    let mut is_begun = false;
    let (reply, _) = carried_out(&with_tenants(), &KeyCall::Block { key, until_ms: 1_000 }, |_| {
        is_begun = true;
        Vec::new()
    });
    match reply {
        StoreReply::Keys(none) if !is_begun => Some(none),
        _ => None,
    }
}

/// Guards: a client that an operator takes for blocked, and that is still allowed under a tenant's
/// own quotas.
#[test]
fn a_block_says_whether_it_is_of_a_tenant_where_that_makes_a_difference() {
    let Some(KeyReply::NoKey { path, why }) = block("each", "192.0.2.1", None, false) else {
        panic!("taken")
    };
    assert!(path == "tenant" && why.starts_with("is missing"), "{path}: {why}");
    assert_eq!(block("each", "192.0.2.1", None, true), None);
    assert_eq!(block("each", "192.0.2.1", Some("a.example"), false), None);
    assert_eq!(block("host", "a.example", None, false), None, "the key says whose it is");
    let wrong = block("host", "a.example", Some("a.example"), false);
    assert!(matches!(&wrong, Some(KeyReply::NoKey { path, .. }) if path == "tenant"), "{wrong:?}");
}

/// The explanation of a request with this entry of its tenant, after the operation of `block` on
/// its key.
fn explained(entry: &str, block: Option<(&str, Option<&str>)>, method: &str) -> serde_json::Value {
    let policy = with_tenants();
    let entry = tollgate_language::tenant_entry(entry.as_bytes()).unwrap();
    let tenant = Arc::new(Tenant::new(&policy, b"a.example", &entry));
    let request = format!(
        r#"{{"method": "{method}", "path": "/", "host": "a.example", "client_ip": "192.0.2.1"}}"#
    );
    let facts = DescribedRequest::parse(request.as_bytes()).unwrap();
    let mut plan = Plan::new();
    policy.plan_for(&facts, &tenant, &mut plan);
    for i in 0..plan.len() {
        let mut counts = Counts::default();
        let mut request = Vec::new();
        if let Some((rule, tenant)) = block {
            let key = GivenKey::new(&policy, rule, &["192.0.2.1".into()]).unwrap();
            let key = match tenant {
                Some(tenant) => key.of_tenant(&policy, tenant).unwrap(),
                None => key,
            };
            if key.bytes() == plan.partition(i).unwrap().key() {
                let until = Timestamp::from_millis(61_000);
                key.request(&policy, KeyOperation::Block(until), &mut request);
                counts.operate(&request, NOW).unwrap();
                request.clear();
            }
        }
        plan.partition(i).unwrap().peek_request(&policy, &mut request);
        let reply = counts.answer(&request, NOW).unwrap().reply;
        plan.partition_mut(i).unwrap().accept(&policy, &reply).unwrap();
    }
    serde_json::from_str(&key_report::explained(&policy, &plan.outcome(&policy))).unwrap()
}

/// Guards: "5 of 5 used" of a client that used nothing and is blocked; quotas that come from
/// nowhere.
#[test]
fn an_explanation_says_who_is_blocked_until_when_and_whose_quotas_these_are() {
    let own =
        r#"{"quotas": {"each": [{"name": "own", "limit": 50, "window": "1h"}]}, "priority": 5}"#;
    let said = explained(own, None, "GET");
    let each = &said["rules"][0];
    assert_eq!(each["entry"], json!({"quotas": "own", "priority": 5}));
    assert_eq!((&each["tier"], &each["blocked_until_ms"]), (&json!(null), &json!(null)));
    assert_eq!(each["quotas"][0]["limit"], 50);
    assert_eq!(said["rules"][1]["entry"], json!(null), "which has nothing for this rule");
    let words = said["words"].as_str().unwrap();
    let by =
        "each (client_ip): allowed by its tenant's entry (quotas of its own, priority 5); own: ";
    assert!(words.starts_with(by), "{words}");

    let tier = r#"{"tier": "gold", "priority": 1}"#;
    let said = explained(tier, None, "GET");
    assert_eq!(said["rules"][0]["entry"], json!({"quotas": "tier", "priority": 1}));
    assert_eq!(said["rules"][0]["tier"], "gold");
    assert!(said["words"].as_str().unwrap().contains("entry (tier gold, priority 1)"));
    // A tier of a higher priority precedes it, and then the entry chose nothing.
    let said = explained(r#"{"tier": "gold", "priority": 0}"#, None, "PUT");
    assert_eq!(
        (&said["rules"][0]["tier"], &said["rules"][0]["entry"]),
        (&json!("gold"), &json!(null))
    );

    let said = explained(tier, Some(("each", None)), "GET");
    let each = &said["rules"][0];
    assert_eq!((&said["decision"], &said["retry_after_ms"]), (&json!("deny"), &json!(60_000)));
    assert_eq!((&each["result"], &each["blocked_until_ms"]), (&json!("blocked"), &json!(61_000)));
    assert_eq!(each["quotas"], json!([]), "what is used is not known from a refusal");
    let words = said["words"].as_str().unwrap();
    assert!(words.contains("; an operator blocks the key for another 60 s; host ("), "{words}");
    let said = explained(own, Some(("each", Some("a.example"))), "GET");
    assert_eq!(said["rules"][0]["blocked_until_ms"], 61_000, "by the tenant's own quotas, too");
}

/// The state of the key of the rule `name`, as an operator reads it.
fn state_of(policy: &Policy, counts: &mut Counts, name: &str) -> serde_json::Value {
    let count = |request: Vec<u8>| counts.operate(&request, NOW).unwrap().reply;
    let call = KeyCall::State(key(name, &["192.0.2.1"]));
    let (StoreReply::Keys(KeyReply::State(state)), _) = carried_out(policy, &call, count) else {
        panic!("no state")
    };
    serde_json::from_str(&state).unwrap()
}

/// Asks `counts` for the decisions, or the settlement, of a plan.
fn asked(policy: &Policy, plan: &mut Plan, counts: &mut Counts) {
    for i in 0..plan.len() {
        if !plan.partition(i).unwrap().applies() {
            continue;
        }
        let mut request = Vec::new();
        plan.partition(i).unwrap().request(policy, &mut request);
        let reply = counts.answer(&request, NOW).unwrap().reply;
        plan.partition_mut(i).unwrap().accept(policy, &reply).unwrap();
    }
}

/// The head of a response with a cost.
struct Tokens;

impl ResponseFacts for Tokens {
    fn header(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        (name == "x-tokens").then(|| b"3000"[..].into())
    }

    fn has_ended(&self) -> bool {
        true
    }
}

/// Guards: a key that used three limits and is shown as one that used one, and held units that look
/// like used ones.
#[test]
fn a_state_shows_held_units_debts_and_requests_in_flight() {
    let policy = r#"{"version": 1, "rules": [{"name": "tokens", "key": ["client_ip"],
        "cost": {"estimate": 300, "max": 100000, "actual": {"header": "x-tokens"}, "forgive_excess": true},
        "concurrency": {"limit": 2, "max_age": "60s"},
        "quotas": [{"name": "q", "limit": 1000, "window": "1h"}]}]}"#;
    let policy = tollgate_language::compile(policy, Surface::Worker).unwrap();
    let request = r#"{"method": "GET", "path": "/", "client_ip": "192.0.2.1"}"#;
    let facts = DescribedRequest::parse(request.as_bytes()).unwrap();
    let mut counts = Counts::default();
    let mut plan = Plan::new();
    for _ in 0..2 {
        policy.plan(&facts, &mut plan);
        asked(&policy, &mut plan, &mut counts);
    }
    let quota = |state: &serde_json::Value| state["quotas"][0].clone();
    let state = state_of(&policy, &mut counts, "tokens");
    let shown = quota(&state);
    assert_eq!(
        (&shown["held"], &shown["debt"], &shown["used"]),
        (&json!(600), &json!(0), &json!(600))
    );
    assert_eq!(shown.get("in_flight"), None);
    assert_eq!(state["words"], "q: 600 of 1000 used, 400 left, 600 held");
    let state = state_of(&policy, &mut counts, "tokens.concurrency");
    assert_eq!((&quota(&state)["in_flight"], quota(&state).get("held")), (&json!(2), None));
    assert_eq!(state["words"], "tokens.concurrency: 2 of 2 in flight, 0 left");
    // The second of them used 3,000: its estimate was 300, and a quota records two limits.
    assert!(plan.settle(&policy, Ending::Response(200), &Tokens));
    asked(&policy, &mut plan, &mut counts);
    let state = state_of(&policy, &mut counts, "tokens");
    let shown = quota(&state);
    assert_eq!(
        (&shown["held"], &shown["debt"], &shown["used"]),
        (&json!(300), &json!(1_000), &json!(1_000))
    );
    let words = state["words"].as_str().unwrap();
    assert!(
        words.starts_with("q: 1000 of 1000 used, 0 left, 300 held, 1000 above the capacity"),
        "{words}"
    );
}
