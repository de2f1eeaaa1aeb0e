//! Tenants, keys and metrics over HTTP; and a test that every documented response occurs.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use crate::common::*;
use serde_json::{Value, json};
use tollgate_core::Timestamp;
use tollgate_language::DescribedRequest;
use tollgate_policy::{GivenKey, Plan, Policy, Surface};
use tollgate_service::key_work::OperatorRequest;
use tollgate_service::{
    ApiResponse, KEY_ROWS, KeyCall, KeyChange, KeyReply, MemoryLimits, MemoryStore, MetricsReply,
    Next, StoreCall, StoreReply, UsageCall, key_report, usage_work,
};
use tollgate_storage::{Counts, KeyOperation, KeyState};

const TENANTS: &str = r#"{"version": 1, "tenant": {"jwt_claim": "org"},
  "jwt": {"keys": [{"kty": "oct", "alg": "HS256", "k": "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LXNlY3JldA"}]},
  "rules": [{"name": "org", "key": [{"jwt_claim": "org"}], "quotas": [{"name": "q", "limit": 10, "window": "1m"}],
    "tiers": [{"name": "gold", "when": {"headers": {"x-none": ["1"]}}, "quotas": [{"name": "q", "limit": 100, "window": "1m"}]}]}]}"#;

const GOLD: &str = r#"{"tier": "gold", "note": "<b>contract</b> 17"}"#;

fn tenants(limit: usize) -> Deployment {
    let limits = MemoryLimits { tenants: limit, ..MemoryLimits::default() };
    let it = Deployment::with(TENANTS, limits);
    let read = it.ask(&Ask::new("GET", "admin/policy"));
    assert_eq!(read.status, 200, "{read:?}");
    it
}

fn put(id: &str, name: &str, value: &str) -> Ask {
    Ask::new("PUT", &format!("admin/tenants/{id}")).with(name, value).json(GOLD)
}

fn read(answer: &ApiResponse) -> Value {
    serde_json::from_str(&answer.body).unwrap_or_else(|_| panic!("JSON: {answer:?}"))
}

#[test]
fn a_tenant_is_written_read_and_removed_by_who_saw_it() {
    let it = tenants(3);
    let status = |ask: &Ask| it.ask(ask).status;
    assert_eq!(status(&Ask::new("GET", "admin/tenants/acme")), 404);
    assert_eq!(status(&Ask::new("DELETE", "admin/tenants/acme").with("if-match", "*")), 404);
    assert_eq!(status(&put("acme", "if-match", "")), 428);
    assert_eq!(status(&put("acme", "if-match", "*")), 412);
    assert_eq!(status(&put("acme", "if-match", "\"1-0000000000000000\"")), 412);
    let new = it.ask(&put("acme", "if-none-match", "*"));
    assert_eq!((new.status, new.body.as_ref()), (201, GOLD));
    let tag = new.fields.get("etag").expect("a tag").to_owned();
    assert_eq!(status(&put("acme", "if-none-match", "*")), 412);
    let get = it.ask(&Ask::new("GET", "admin/tenants/acme"));
    assert_eq!(
        (get.status, get.body.as_ref(), get.fields.get("etag")),
        (200, GOLD, Some(tag.as_str()))
    );
    assert_eq!(status(&Ask::new("GET", "admin/tenants/acme").with("if-none-match", &tag)), 304);
    // The same entry again is another revision: a client with the previous one cannot write.
    let again = it.ask(&put("acme", "if-match", &tag));
    assert_eq!(again.status, 200);
    assert_eq!(status(&put("acme", "if-match", &tag)), 412);
    assert_eq!(status(&put("acme", "if-match", "*")), 200);
    assert_eq!(status(&Ask::new("DELETE", "admin/tenants/acme")), 428);
    assert_eq!(status(&Ask::new("DELETE", "admin/tenants/acme").with("if-match", &tag)), 412);
    assert_eq!(status(&Ask::new("DELETE", "admin/tenants/acme").with("if-match", "*")), 204);
    assert_eq!(status(&Ask::new("GET", "admin/tenants/acme")), 404);
    // The tag of the removed entry does not match the one that comes back.
    assert_eq!(status(&put("acme", "if-none-match", "*")), 201);
    assert_eq!(status(&put("acme", "if-match", &tag)), 412);
}

/// One entry for every spelling, found by the name that requests have.
#[test]
fn a_tenant_has_one_entry_however_it_is_spelt() {
    let host = TENANTS.replace(r#""tenant": {"jwt_claim": "org"}"#, r#""tenant": "host""#);
    let it = Deployment::with(&host, MemoryLimits::default());
    assert_eq!(it.ask(&Ask::new("GET", "admin/policy")).status, 200);
    assert_eq!(it.ask(&put("Shop.Example", "if-none-match", "*")).status, 201);
    assert_eq!(it.ask(&put("shop.example", "if-none-match", "*")).status, 412);
    let tag = it.ask(&Ask::new("GET", "admin/tenants/SHOP.example"));
    let tag = tag.fields.get("etag").expect("a tag").to_owned();
    assert_eq!(it.ask(&put("SHOP.example", "if-match", &tag)).status, 200);
    let page = read(&it.ask(&Ask::new("GET", "admin/tenants")));
    let ids: Vec<_> = page["tenants"].as_array().unwrap().iter().map(|t| &t["id"]).collect();
    assert_eq!(ids, ["shop.example"]);
}

/// An entry that outlived a tier shows which of its parts have no effect any more.
#[test]
fn what_has_no_effect_is_said_in_the_list() {
    let mut it = tenants(3);
    assert_eq!(it.ask(&put("acme", "if-none-match", "*")).status, 201);
    let page = read(&it.ask(&Ask::new("GET", "admin/tenants")));
    assert_eq!(page["tenants"][0].get("without_effect"), None);
    it.file = TENANTS.replace(r#""gold""#, r#""golden""#);
    let page = read(&it.ask(&Ask::new("GET", "admin/tenants")));
    let expected = ["tier: the policy has no tier \"gold\"; did you mean \"golden\"?"];
    assert_eq!(page["tenants"][0]["without_effect"], json!(expected));
}

#[test]
fn a_tenant_is_named_by_one_segment() {
    let it = tenants(100);
    for (id, expected) in [
        ("a%2Fb", 201),
        ("a%252Fb", 201),
        ("%C3%A4", 201),
        ("a%20b", 201),
        ("%2e%2e%2e", 201),
        ("a+b", 201),
        ("..", 404),
        ("%2e%2e", 404),
        (".", 404),
        ("%2E", 404),
        ("%00", 404),
        ("a%0Ab", 404),
        ("a/b", 404),
        ("%ff", 400),
        ("%c3", 400),
    ] {
        assert_eq!(it.ask(&put(id, "if-none-match", "*")).status, expected, "{id}");
    }
    assert_eq!(it.ask(&put(&"a".repeat(1024), "if-none-match", "*")).status, 201);
    assert_eq!(it.ask(&put(&"a".repeat(1025), "if-none-match", "*")).status, 404);
    let page = read(&it.ask(&Ask::new("GET", "admin/tenants")));
    let ids: Vec<&str> =
        page["tenants"].as_array().unwrap().iter().map(|t| t["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["...", "a b", "a%2Fb", "a+b", "a/b", &"a".repeat(1024), "ä"]);
    assert_eq!(page["tenants"][0]["entry"], serde_json::from_str::<Value>(GOLD).unwrap());
    // In pages, none twice and none left out.
    let (mut seen, mut after) = (Vec::new(), String::new());
    loop {
        let page = read(&it.ask(&Ask::new("GET", &format!("admin/tenants?limit=2{after}"))));
        seen.extend(
            page["tenants"]
                .as_array()
                .unwrap()
                .iter()
                .map(|t| t["id"].as_str().unwrap().to_owned()),
        );
        let Some(next) = page["next_after"].as_str() else { break };
        let encoded: String = next.bytes().map(|b| format!("%{b:02X}")).collect();
        after = format!("&after={encoded}");
    }
    assert_eq!(seen, ids);
}

#[test]
fn an_entry_is_one_that_the_policy_can_read() {
    let it = tenants(1);
    for (body, expected) in [
        ("", 400),
        ("{", 400),
        ("[]", 422),
        ("{}", 422),
        (r#"{"tier": "platinum"}"#, 422),
        (r#"{"tier": "gold", "tier": "gold"}"#, 422),
        (r#"{"tier": "gold", "x": 1}"#, 422),
        (r#"{"quotas": {"nobody": [{"limit": 1, "window": "1s"}]}}"#, 422),
        (r#"{"quotas": {"org": [{"limit": 1000000000000000, "window": "1s"}]}}"#, 422),
        (r#"{"quotas": {"org": [{"limit": 5, "window": "1s"}]}}"#, 201),
    ] {
        let ask = put("acme", "if-none-match", "*").json(body);
        let answer = it.ask(&ask);
        assert_eq!(answer.status, expected, "{body} {answer:?}");
        assert_eq!(expected == 422, answer.body.contains("\"errors\""), "{body}");
    }
    let long = format!(r#"{{"tier": "gold"{}}}"#, " ".repeat(16 << 10));
    assert_eq!(it.ask(&put("acme", "if-match", "*").json(long)).status, 413);
    assert_eq!(
        it.ask(&put("other", "if-none-match", "*")).status,
        507,
        "one is all there is room for"
    );
}

#[test]
fn of_two_who_saw_the_same_entry_exactly_one_writes() {
    let it = tenants(3);
    let tag = it.ask(&put("acme", "if-none-match", "*")).fields.get("etag").unwrap().to_owned();
    let asks = [
        put("acme", "if-match", &tag),
        Ask::new("DELETE", "admin/tenants/acme").with("if-match", &tag),
    ];
    for (first, second) in [(0, 1), (0, 0)] {
        let it = tenants(3);
        let tag = it.ask(&put("acme", "if-none-match", "*")).fields.get("etag").unwrap().to_owned();
        let [one, other] = [first, second].map(|i: usize| asks[i].clone().with("if-match", &tag));
        // Both have compared before either writes.
        let compared = |ask: &Ask| {
            let mut next = it.begin(ask);
            while !matches!(&next, Next::Store(wants) if !matches!(wants.call(), StoreCall::Tenants(tollgate_service::TenantCall::Get { .. })))
            {
                next = it.step(next, ask);
            }
            next
        };
        let (a, b) = (compared(&one), compared(&other));
        let finish = |mut next, ask: &Ask| loop {
            next = match next {
                Next::Response(answer) => return answer.status,
                other => it.step(other, ask),
            };
        };
        assert_eq!((finish(a, &one), finish(b, &other)), (200, 409));
    }
}

/// The policy that keys are counted under here.
fn counted() -> Policy {
    let policy = r#"{"version": 1, "rules": [{"name": "each", "key": ["client_ip"],
        "quotas": [{"name": "q", "limit": 1, "window": "1h"}]}]}"#;
    tollgate_language::compile(policy, Surface::Worker).unwrap()
}

/// The explanation of a request when everything is used up.
fn explained(request: &str) -> String {
    let policy = counted();
    let facts = DescribedRequest::parse(request.as_bytes()).unwrap();
    let mut plan = Plan::new();
    policy.plan(&facts, &mut plan);
    for _ in 0..2 {
        let mut value = Vec::new();
        for i in 0..plan.partitions().count() {
            value.extend_from_slice(plan.partition(i).unwrap().value());
            plan.partition_mut(i).unwrap().load(&policy, Some(&value));
        }
        plan.decide(&policy, Timestamp::from_millis(1));
    }
    key_report::explained(&policy, &plan.outcome(&policy))
}

/// The report of a blocked key.
fn state() -> String {
    let policy = counted();
    let key = GivenKey::new(&policy, "each", &["192.0.2.1".into()]).unwrap();
    let mut request = Vec::new();
    key.request(&policy, KeyOperation::Block(Timestamp::from_millis(9_000)), &mut request);
    let answered = Counts::default().operate(&request, Timestamp::from_millis(1)).unwrap();
    key_report::state(&policy, &key, &KeyState::read(&answered.reply).unwrap())
}

/// The report of clients that have used nothing.
fn usage(call: &UsageCall) -> StoreReply {
    let policy = r#"{"version": 1, "rules": [
        {"name": "each", "key": ["client_ip"], "quotas": [{"name": "month", "limit": 9, "window": "1mo",
            "algorithm": "fixed-window", "align": "calendar"}]},
        {"name": "hour", "key": ["client_ip"], "quotas": [{"limit": 1, "window": "1h"}]}]}"#;
    let policy = tollgate_language::compile(policy, Surface::Worker).unwrap();
    let now = Timestamp::from_millis(1_700_000_000_000);
    let count = |asked: OperatorRequest| {
        core::future::ready(Ok(Counts::default().operate(&asked.request, now).unwrap().reply))
    };
    let done = usage_work::carry_out(&policy, call, |_| core::future::ready(Ok(None)), count);
    match pin!(done).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(reply) => reply,
        Poll::Pending => panic!("nothing is waited for"),
    }
}

fn others(call: &StoreCall) -> StoreReply {
    match call {
        StoreCall::Keys(call) => StoreReply::Keys(match call {
            KeyCall::Explain { request } => KeyReply::Explained(explained(request)),
            KeyCall::State(key) if key.rule == "gone" => KeyReply::NoRule,
            KeyCall::State(key) if key.key.len() != 1 => {
                KeyReply::NoKey { path: "key".into(), why: "has 1 part".into() }
            }
            KeyCall::State(_) => KeyReply::State(state()),
            KeyCall::Reset(key) | KeyCall::Unblock(key) | KeyCall::Block { key, .. }
                if key.rule == "gone" =>
            {
                KeyReply::NoRule
            }
            KeyCall::Reset(key) | KeyCall::Unblock(key) | KeyCall::Block { key, .. } => {
                KeyReply::Done(KeyChange {
                    rule: key.rule.clone(),
                    tenant: key.tenant.clone(),
                    pk: 0xfe,
                    before: "year: 3 of 3 used, 0 left".into(),
                    after: "nothing is used".into(),
                })
            }
        }),
        StoreCall::Usage(call) => usage(call),
        StoreCall::Metrics(_) => StoreReply::Metrics(MetricsReply::Text("a 1\n".into())),
        StoreCall::Policy(_) | StoreCall::Tenants(_) => panic!("a matter of rules"),
    }
}

// Guards: an operation on a client that is invisible afterwards, or without its author; and a
// history that contains keys, or grows for ever.
#[test]
fn what_is_done_to_a_key_stands_in_the_history() {
    let mut it = Deployment::new();
    it.others = Box::new(others);
    let who = "cf-access-authenticated-user-email";
    let key = r#"{"rule": "each", "key": ["192.0.2.1"]}"#;
    let tenants = r#"{"rule": "each", "key": ["192.0.2.1"], "tenant": "acme"}"#;
    let block = format!(r#"{{"rule": "each", "key": ["192.0.2.1"], "until_ms": {}}}"#, it.now_ms);
    for (path, body, name) in [
        ("admin/keys/reset", key, Some("kim@example.com")),
        ("admin/keys/block", &*block, None),
        ("admin/keys/unblock", tenants, None),
    ] {
        let ask = Ask::new("POST", path).json(body);
        let ask = name.map_or(ask.clone(), |name| ask.with(who, name));
        assert_eq!(it.ask(&ask).status, 204);
    }
    // A denied or wrong operation is not in it.
    assert_eq!(
        it.ask(&Ask::new("POST", "admin/keys/reset").json(r#"{"rule": "gone", "key": ["a"]}"#))
            .status,
        404
    );
    let read = |query: &str| -> serde_json::Value {
        let answer = it.ask(&Ask::new("GET", &format!("admin/keys/history{query}")));
        assert!(answer.status == 200 && !answer.body.contains("192.0.2.1"), "{answer:?}");
        serde_json::from_str(&answer.body).unwrap()
    };
    let page = read("?limit=2");
    let first = serde_json::json!({
        "number": 3, "at_ms": it.now_ms, "act": "unblock", "rule": "each", "tenant": "acme",
        "pk": "AAAAAAAAAP4=", "who": null, "token": "admin",
        "before": "year: 3 of 3 used, 0 left", "after": "nothing is used",
    });
    assert_eq!((&page["changes"][0], &page["next_before"]), (&first, &2.into()));
    assert_eq!(page["changes"][1]["act"], "block");
    let rest = read("?before=2");
    assert_eq!(
        (&rest["changes"][0]["who"], &rest["next_before"]),
        (&"kim@example.com".into(), &serde_json::Value::Null)
    );
    assert_eq!(rest["changes"].as_array().map(Vec::len), Some(1));
    // A store keeps it, up to its limit.
    for _ in 0..KEY_ROWS {
        assert_eq!(it.ask(&Ask::new("POST", "admin/keys/reset").json(key)).status, 204);
    }
    let json = it.store.borrow().to_json();
    let again = MemoryStore::from_json(MemoryLimits::default(), &json).unwrap();
    *it.store.borrow_mut() = again;
    let (mut numbers, mut before) = (Vec::new(), String::new());
    loop {
        let answer = it.ask(&Ask::new("GET", &format!("admin/keys/history?limit=100{before}")));
        let page: serde_json::Value = serde_json::from_str(&answer.body).unwrap();
        numbers.extend(
            page["changes"].as_array().unwrap().iter().map(|row| row["number"].as_u64().unwrap()),
        );
        let Some(next) = page["next_before"].as_u64() else { break };
        before = format!("&before={next}");
    }
    assert_eq!(numbers, (4..=KEY_ROWS + 3).rev().collect::<Vec<_>>());
}

// Guards: a change that is reported as done although it is not in the history.
#[test]
fn what_cannot_be_noted_is_not_said_to_be_done() {
    let mut it = Deployment::new();
    it.others = Box::new(others);
    let ask = Ask::new("POST", "admin/keys/reset").json(r#"{"rule": "each", "key": ["a"]}"#);
    let next = it.begin(&ask);
    let next = it.step(next, &ask);
    let next = it.step(next, &ask);
    let Next::Store(wants) = next else { panic!("it is to be noted") };
    assert!(matches!(wants.call(), StoreCall::Policy(tollgate_service::PolicyCall::NoteKey(_))));
    let Next::Response(answer) = it.answered(wants, StoreReply::Failed("down".into())) else {
        panic!("an answer")
    };
    assert_eq!(answer.status, 503);
}

#[test]
fn a_key_is_named_by_its_value_and_bounded() {
    let mut it = Deployment::new();
    it.others = Box::new(others);
    let post = |path: &str, body: &str| it.ask(&Ask::new("POST", path).json(body)).status;
    let now = it.now_ms;
    for (body, expected) in [
        (r#"{"rule": "each", "key": ["192.0.2.1"]}"#, 204),
        (r#"{"rule": "each", "key": []}"#, 204),
        (r#"{"rule": "each", "key": ["a"], "tenant": "acme"}"#, 204),
        (r#"{"rule": "each", "key": ["a"], "tenant": ""}"#, 422),
        (r#"{"rule": "each", "key": ["a"], "tenant": null}"#, 204),
        (r#"{"rule": "each", "key": ["a"], "tenant": false}"#, 422),
        (r#"{"rule": "each", "key": ["a"], "tenant": ["acme"]}"#, 422),
        (r#"{"rule": "gone", "key": ["a"]}"#, 404),
        (r#"{"rule": "", "key": ["a"]}"#, 422),
        (r#"{"rule": 1, "key": ["a"]}"#, 422),
        (r#"{"key": ["a"]}"#, 422),
        (r#"{"rule": "each"}"#, 422),
        (r#"{"rule": "each", "key": "a"}"#, 422),
        (r#"{"rule": "each", "key": [1]}"#, 422),
        (r#"{"rule": "each", "key": ["a"], "key": ["b"]}"#, 422),
        (r#"{"rule": "each", "key": ["a"], "x": 1}"#, 422),
        (r#"["each"]"#, 422),
        ("", 400),
    ] {
        assert_eq!(post("admin/keys/reset", body), expected, "{body}");
        assert_eq!(post("admin/keys/unblock", body), expected, "{body}");
    }
    let long = format!(r#"{{"rule": "each", "key": ["{}"]}}"#, "a".repeat(1025));
    assert_eq!(post("admin/keys/reset", &long), 422);
    let many = format!(r#"{{"rule": "each", "key": {:?}}}"#, vec!["a"; 17]);
    assert_eq!(post("admin/keys/reset", &many), 422);
    let year = 366 * 86_400_000;
    for (until, expected) in [
        (json!(now), 204),
        (json!(now + year), 204),
        (json!(now - 1), 422),
        (json!(now + year + 1), 422),
        (json!("1"), 422),
        (json!(-1), 422),
        (json!(1.5), 422),
        (Value::Null, 422),
    ] {
        let body = json!({"rule": "each", "key": ["a"], "until_ms": until}).to_string();
        assert_eq!(post("admin/keys/block", &body), expected, "{until}");
    }
    for (body, expected) in [
        (r#"{"method": "GET", "path": "/"}"#, 200),
        (r#"{"method": "GET"}"#, 422),
        (r#"{"method": "GET", "path": "/", "response_status": 200}"#, 422),
        (r#"{"requests": []}"#, 422),
        ("x", 400),
    ] {
        assert_eq!(post("admin/explain", body), expected, "{body}");
    }
    let get = |query: &str| it.ask(&Ask::new("GET", &format!("admin/keys?{query}"))).status;
    assert_eq!(
        (get("rule=each&key=a"), get("rule=gone&key=a"), get("rule=each&key=a&key=b")),
        (200, 404, 422)
    );
    assert_eq!((get("rule=&key=a"), get(&format!("rule=each{}", "&key=a".repeat(17)))), (400, 400));
    // The parameter is named where programs look.
    let long = "a".repeat(1_025);
    for (query, path) in [
        ("key=a".to_owned(), "rule"),
        ("rule=&key=a".to_owned(), "rule"),
        ("rule=each&key=a&tenant=".to_owned(), "tenant"),
        (format!("rule=each&key=a&tenant={long}"), "tenant"),
        (format!("rule=each&key={long}"), "key"),
    ] {
        let answer = it.ask(&Ask::new("GET", &format!("admin/keys?{query}")));
        let problem: Value = serde_json::from_str(&answer.body).unwrap();
        assert_eq!((answer.status, &problem["errors"][0]["path"]), (400, &path.into()), "{query}");
        assert!(problem["detail"].as_str().unwrap().starts_with(path), "{problem}");
    }
}

/// Guards: an entry that never takes effect, because of a typing error in its year.
#[test]
fn an_entry_that_is_past_already_is_refused_and_one_that_comes_to_be_stays() {
    let mut it = tenants(3);
    let put = |it: &Deployment, expires: &str| {
        let entry = format!(r#"{{"tier": "gold", "expires": "{expires}"}}"#);
        it.ask(&Ask::new("PUT", "admin/tenants/acme").with("if-none-match", "*").json(entry))
    };
    it.now_ms = 1_700_000_000_000; // 2023-11-14T22:13:20Z
    for past in ["1999-12-31T00:00:00Z", "2023-11-14T22:13:20Z"] {
        let answer = put(&it, past);
        let problem: Value = serde_json::from_str(&answer.body).unwrap();
        let found = (answer.status, &problem["errors"][0]["path"]);
        assert_eq!(found, (422, &"expires".into()), "{problem}");
    }
    assert_eq!(put(&it, "2023-11-14T22:13:21Z").status, 201);
    it.now_ms += 1_000;
    let read = it.ask(&Ask::new("GET", "admin/tenants/acme"));
    let list = it.ask(&Ask::new("GET", "admin/tenants"));
    assert_eq!((read.status, list.status), (200, 200));
    assert!(list.body.contains("2023-11-14T22:13:21Z"), "{}", list.body);
}

#[test]
fn a_report_of_usage_comes_in_the_form_that_is_accepted() {
    let mut it = Deployment::new();
    it.others = Box::new(others);
    let get = |query: &str, accept: &str| {
        it.ask(&Ask::new("GET", &format!("admin/usage?{query}")).with("accept", accept))
    };
    let kind = |accept: &str| {
        let answer = get("rule=each&key=192.0.2.1&key=192.0.2.2", accept);
        assert_eq!((answer.status, answer.fields.get("cache-control")), (200, Some("no-store")));
        answer.fields.get("content-type").expect("a type").to_owned()
    };
    for (accept, expected) in [
        ("", "application/json"),
        ("*/*", "application/json"),
        ("text/csv;q=0", "application/json"),
        ("text/csv, application/json", "application/json"),
        ("text/csv", "text/csv; charset=utf-8; header=present"),
        ("Text/CSV;q=0.9, */*;q=0.1", "text/csv; charset=utf-8; header=present"),
    ] {
        assert_eq!(kind(accept), expected, "{accept}");
    }
    let report = read(&get("rule=each&key=192.0.2.1&key=192.0.2.2", ""));
    assert_eq!(report["keys"][1]["key"], json!(["192.0.2.2"]));
    let start = &report["keys"][0]["quotas"][0]["previous"]["start"];
    assert_eq!(start, "2023-10-01T00:00:00Z");
    for (query, status, path) in [
        ("rule=gone&key=a", 404, None),
        ("rule=hour&key=192.0.2.1", 422, Some("rule")),
        ("rule=each&key=here", 422, Some("key[0]")),
        ("rule=each&key=192.0.2.1&key=here", 422, Some("key[1]")),
        ("rule=each", 422, Some("key")),
        ("rule=each&key=192.0.2.1&tenant=acme", 422, Some("tenant")),
        (&format!("rule=each{}", "&key=192.0.2.1".repeat(101)), 422, Some("key")),
        ("rule=&key=a", 400, Some("rule")),
        ("rule=each&tenant=", 400, Some("tenant")),
        (&format!("rule=each&key={}", "a".repeat(1_025)), 400, Some("key")),
        ("rule=each&key=a&format=csv", 400, None),
    ] {
        for accept in ["", "text/csv"] {
            let answer = get(query, accept);
            assert_eq!(answer.status, status, "{query}: {answer:?}");
            let problem = read(&answer);
            assert_eq!(problem["errors"][0]["path"].as_str(), path, "{query}: {problem}");
        }
    }
    for (token, status) in [(READ, 200), (METRICS, 403), (FOLLOW, 403), ("", 401)] {
        let ask = Ask::new("GET", "admin/usage?rule=each&key=192.0.2.1");
        let ask = ask.with("authorization", &format!("Bearer {token}"));
        assert_eq!(it.ask(&ask).status, status, "{token}");
    }
    it.others = Box::new(|_| StoreReply::Failed("down".into()));
    assert_eq!(it.ask(&Ask::new("GET", "admin/usage?rule=each&key=a")).status, 503);
}

#[test]
fn metrics_come_in_the_form_that_is_accepted() {
    let mut it = Deployment::new();
    it.others = Box::new(others);
    for (accept, kind) in [
        ("", "text/plain; version=0.0.4; charset=utf-8"),
        ("*/*", "text/plain; version=0.0.4; charset=utf-8"),
        (
            "application/openmetrics-text; version=1.0.0",
            "application/openmetrics-text; version=1.0.0; charset=utf-8",
        ),
        (&"a".repeat(9999), "text/plain; version=0.0.4; charset=utf-8"),
    ] {
        for token in [METRICS, READ, ADMIN] {
            let ask = Ask::new("GET", "metrics").with("authorization", &format!("Bearer {token}"));
            let answer = it.ask(&ask.with("accept", accept));
            assert_eq!((answer.status, answer.fields.get("content-type")), (200, Some(kind)));
            assert_eq!(
                (answer.body.as_ref(), answer.fields.get("cache-control")),
                ("a 1\n", Some("no-store"))
            );
        }
    }
}

/// Sends requests of every kind, so that each documented response occurs.
fn provoke(it: &Deployment, method: &str, path: &str) {
    let whole = Ask::new(method, path).with("if-match", "*").json("{}");
    let body = match path.split('?').next().unwrap_or_default() {
        "admin/policy" => policy(20),
        "admin/policy/rollback" => "{\"to\":1}".into(),
        "admin/tenants/acme" => GOLD.into(),
        "admin/explain" => r#"{"method": "GET", "path": "/"}"#.into(),
        "admin/keys/block" => {
            format!(r#"{{"rule": "each", "key": ["a"], "until_ms": {}}}"#, it.now_ms)
        }
        _ => r#"{"rule": "each", "key": ["a"]}"#.into(),
    };
    let right = whole.clone().json(body.clone());
    let joint = if path.contains('?') { '&' } else { '?' };
    let open = |ask: &Ask| ask.clone().with("if-match", "").with("if-none-match", "");
    for ask in [
        right.clone(),
        open(&right),
        open(&right).with("if-none-match", "*"),
        right.clone().with("if-match", "\"x\""),
        right.clone().with("if-match", &"a".repeat(5000)),
        right.clone().with("authorization", ""),
        right.clone().with("authorization", &"a".repeat(5000)),
        right.clone().with("authorization", &format!("Bearer {READ}")),
        right.clone().with("authorization", &format!("Bearer {METRICS}")),
        right.clone().with("authorization", &format!("Bearer {FOLLOW}")),
        right.clone().with("content-type", "text/plain"),
        right.clone().json("{"),
        right.clone().json("[]"),
        right.clone().json(vec![b' '; (1 << 20) + 1]),
        Ask { target: format!("{}{joint}x", right.target), ..right.clone() },
        Ask { target: format!("{}?{}", right.target, "x".repeat(5000)), ..right.clone() },
        right.clone().json(body.replace("each", "gone")),
    ] {
        it.ask(&ask);
    }
    // The store fails; and another client is faster.
    for fails in [true, false] {
        let mut next = it.begin(&right);
        loop {
            next = match next {
                Next::Response(answer) => {
                    open_api::check(&right.method, &right.target, &answer);
                    break;
                }
                Next::Store(wants) if fails => {
                    it.answered(wants, StoreReply::Failed(String::new()))
                }
                Next::Store(wants) => {
                    let reply = match wants.call() {
                        StoreCall::Policy(tollgate_service::PolicyCall::Change(_)) => {
                            StoreReply::Policy(tollgate_service::PolicyReply::Conflict {
                                version: 9,
                            })
                        }
                        call => it.store.borrow_mut().answer(call).unwrap_or_else(|| others(call)),
                    };
                    it.answered(wants, reply)
                }
                other => it.step(other, &right),
            };
        }
    }
}

#[test]
fn every_documented_answer_can_be_had_and_no_other() {
    let fresh = || {
        let mut it = tenants(1);
        it.others = Box::new(others);
        it
    };
    for (method, path) in [
        ("GET", "admin/policy"),
        ("PUT", "admin/policy"),
        ("DELETE", "admin/policy"),
        ("GET", "admin/policy/history"),
        ("GET", "admin/policy/versions/1"),
        ("GET", "admin/policy/versions/77"),
        ("POST", "admin/policy/rollback"),
        ("GET", "admin/tenants"),
        ("GET", "admin/tenants/acme"),
        ("PUT", "admin/tenants/acme"),
        ("DELETE", "admin/tenants/acme"),
        ("POST", "admin/explain"),
        ("GET", "admin/keys?rule=each&key=a"),
        ("GET", "admin/keys?rule=gone"),
        ("GET", "admin/keys?rule=each&key=a&key=b"),
        ("GET", "admin/keys/history"),
        ("GET", "admin/usage?rule=each&key=192.0.2.1"),
        ("GET", "admin/usage?rule=gone"),
        ("GET", "admin/usage?rule=hour&key=192.0.2.1"),
        ("POST", "admin/keys/reset"),
        ("POST", "admin/keys/block"),
        ("POST", "admin/keys/unblock"),
        ("GET", "metrics"),
        ("GET", "openapi.json"),
    ] {
        let it = fresh();
        provoke(&it, method, path);
        // With something to change back, and an existing entry.
        let it = fresh();
        it.put(&TENANTS.replace("\"limit\": 10", "\"limit\": 11"));
        it.ask(&put("acme", "if-none-match", "*"));
        provoke(&it, method, path);
        it.ask(&Ask::new(method, path).with("if-match", "*").json("{\"to\":1}"));
        // An API without a secret, and a file that is not a policy.
        let mut it = fresh();
        (it.tokens.admin, it.tokens.metrics) = (None, None);
        provoke(&it, method, path);
        provoke(&Deployment::with("none", MemoryLimits::default()), method, path);
    }
    race_for_a_tenant(&fresh());
    it_is_full(&fresh());
    delete_to_a_broken_file();
    let documented = open_api::documented();
    let ours: std::collections::BTreeSet<String> = documented
        .into_iter()
        // The connecting service answers these; another method belongs to no operation.
        .filter(|it| {
            let others = ["check ", "settle ", "renew ", "done ", "lease ", "readHealth "];
            !others.iter().any(|id| it.starts_with(id)) && !it.ends_with(" 405")
        })
        .collect();
    let seen = open_api::seen();
    let missing: Vec<&String> = ours.difference(&seen).collect();
    assert!(missing.is_empty(), "documented, and never answered: {missing:#?}");
}

fn it_is_full(it: &Deployment) {
    it.ask(&put("acme", "if-none-match", "*"));
    assert_eq!(it.ask(&put("more", "if-none-match", "*")).status, 507);
}

fn race_for_a_tenant(it: &Deployment) {
    for method in ["PUT", "DELETE"] {
        it.ask(&put("acme", "if-none-match", "*"));
        let old = Ask::new(method, "admin/tenants/acme").with("if-match", "\"x\"").json(GOLD);
        assert_eq!(it.ask(&old).status, 412);
        let tag =
            it.ask(&Ask::new("GET", "admin/tenants/acme")).fields.get("etag").unwrap().to_owned();
        let ask = Ask::new(method, "admin/tenants/acme").with("if-match", &tag).json(GOLD);
        let compared = {
            let next = it.begin(&ask);
            let next = it.step(next, &ask);
            if method == "PUT" { it.step(next, &ask) } else { next }
        };
        it.ask(&put("acme", "if-match", "*"));
        let Next::Response(answer) = it.step(compared, &ask) else { panic!("an answer") };
        assert_eq!(answer.status, 409);
        open_api::check(&ask.method, &ask.target, &answer);
    }
}

fn delete_to_a_broken_file() {
    let it = Deployment::with("none", MemoryLimits::default());
    it.put(&policy(20));
    let tag = Ask::new("PUT", "admin/policy").with("if-match", "*").json(policy(20));
    assert_eq!(it.ask(&tag).status, 200);
    assert_eq!(it.ask(&Ask::new("DELETE", "admin/policy").with("if-match", "*")).status, 422);
    assert_eq!(it.ask(&Ask::new("GET", "admin/policy/versions/1")).status, 500);
    let back = Ask::new("POST", "admin/policy/rollback").with("if-match", "*").json("{\"to\":1}");
    assert_eq!(it.ask(&back).status, 422);
}
