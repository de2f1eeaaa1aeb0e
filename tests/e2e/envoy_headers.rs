//! Every generation of fields, as a client reads them: with an independent structured-field parser.

use serde_json::{Value, json};
use sfv::{BareItem, FieldType, Item, List, ListEntry, Parser};
use tollgate_e2e::http::{Request, Response};

use crate::envoy_server::{Envoy, Setup};

const NAME: &str = r#"a "quoted\name""#;

/// Two quotas by one key; the second is nearer to exhaustion.
fn start(response: &Value) -> Envoy {
    let policy = json!({"version": 1, "response": response, "rules": [{
        "name": "r",
        "key": [{"header": "x-key"}],
        "quotas": [
            {"name": "day", "limit": 1000, "window": "1d"},
            {"name": NAME, "limit": 2, "window": "1m"},
        ],
    }]});
    Setup::policy(1, &policy).start()
}

/// The responses to three requests of one key: two are allowed, the third is not.
fn answers(envoy: &Envoy, key: &str) -> [Response; 3] {
    let mut client = envoy.client();
    let answers = [(); 3].map(|()| client.send(&Request::get("/").header("x-key", key)));
    assert_eq!(answers.each_ref().map(|answer| answer.status), [200, 200, 429]);
    answers
}

/// The field's only line.
fn field(response: &Response, name: &str) -> String {
    response.header(name).unwrap_or_else(|| panic!("no {name} in {:?}", response.headers))
}

/// Every field about limits, sorted, except `Retry-After`.
fn names(response: &Response) -> Vec<&str> {
    let names = response.headers.iter().map(|(name, _)| name.as_str());
    let mut names: Vec<&str> = names.filter(|name| name.contains("ratelimit")).collect();
    names.sort_unstable();
    names
}

/// The members of a list in canonical form (RFC 9651, 4.1): the independent serialiser produces the
/// same text.
fn members(text: &str) -> Vec<Item> {
    let list: List = Parser::new(text).parse().unwrap_or_else(|e| panic!("{text}: {e}"));
    assert_eq!(list.serialize().as_deref(), Some(text), "not canonical");
    let item = |entry| match entry {
        ListEntry::Item(item) => item,
        ListEntry::InnerList(list) => panic!("an inner list: {list:?}"),
    };
    list.into_iter().map(item).collect()
}

fn name(item: &Item) -> &str {
    item.bare_item.as_string().expect("a String").as_str()
}

fn parameter<'a>(item: &'a Item, key: &str) -> &'a BareItem {
    item.params.get(key).unwrap_or_else(|| panic!("no {key} in {item:?}"))
}

fn number(item: &Item, key: &str) -> i64 {
    parameter(item, key).as_integer().expect("an Integer").into()
}

fn parameters(item: &Item) -> Vec<&str> {
    item.params.keys().map(|key| key.as_str()).collect()
}

// The default: both fields on every response, one member per quota, all numbers Integers.
#[test]
fn draft_11_is_a_structured_field() {
    let envoy = start(&json!({}));
    for (spent, answer) in (1..).zip(&answers(&envoy, "k")) {
        assert_eq!(names(answer), ["ratelimit", "ratelimit-policy"]);
        let policy = members(&field(answer, "ratelimit-policy"));
        let told: Vec<_> =
            policy.iter().map(|m| (name(m), number(m, "q"), number(m, "w"))).collect();
        assert_eq!(told, [("day", 1000, 86400), (NAME, 2, 60)]);
        assert!(policy.iter().all(|member| parameters(member) == ["q", "w"]));
        let limit = members(&field(answer, "ratelimit"));
        let told: Vec<_> = limit.iter().map(|m| (name(m), number(m, "r"))).collect();
        assert_eq!(told, [("day", 1000 - i64::min(spent, 2)), (NAME, i64::max(2 - spent, 0))]);
        assert!(limit.iter().all(|member| parameters(member) == ["r", "t"]));
        assert!(limit.iter().all(|member| (1..=86400).contains(&number(member, "t"))));
        assert_eq!(answer.header("retry-after").is_some(), answer.status == 429);
        if answer.status == 429 {
            let wait: i64 = field(answer, "retry-after").parse().expect("whole seconds");
            assert_eq!((wait, number(&limit[1], "t")), (30, 30));
        }
    }
}

// The partition key distinguishes a client's keys, on every worker, and is not the key.
#[test]
fn the_partition_key_is_a_byte_sequence() {
    let envoy = start(&json!({"partition_key": true}));
    let mut keys = vec![];
    for key in ["one", "two"] {
        for answer in answers(&envoy, key) {
            let lines =
                ["ratelimit", "ratelimit-policy"].map(|name| members(&field(&answer, name)));
            for member in lines.iter().flatten() {
                let pk = parameter(member, "pk").as_byte_sequence().expect("a Byte Sequence");
                assert_eq!(pk.len(), 8);
                keys.push((key, pk.to_vec()));
            }
        }
    }
    assert_eq!(keys.len(), 2 * 3 * 4);
    keys.dedup();
    assert_eq!(keys.len(), 2, "one of each: {keys:?}");
    assert_ne!(keys[0].1, keys[1].1);
}

// Draft 7 has Integers in its policy and its own dictionary of three; it shows the nearest quota.
#[test]
fn draft_7_tells_the_nearest_quota() {
    let envoy = start(&json!({"headers": "draft-7"}));
    for (answer, remaining) in answers(&envoy, "k").iter().zip([1, 0, 0]) {
        assert_eq!(names(answer), ["ratelimit", "ratelimit-policy"]);
        check_plain_policy(answer);
        let text = field(answer, "ratelimit");
        let dictionary: sfv::Dictionary = Parser::new(&text).parse().expect("a Dictionary");
        assert_eq!(dictionary.serialize().as_deref(), Some(text.as_str()), "not canonical");
        let told = ["limit", "remaining", "reset"].map(|key| match dictionary.get(key) {
            Some(ListEntry::Item(item)) => {
                i64::from(item.bare_item.as_integer().expect("an Integer"))
            }
            other => panic!("{key}: {other:?}"),
        });
        assert_eq!(told, [2, remaining, if remaining == 1 { 30 } else { told[2] }]);
        assert!((1..=60).contains(&told[2]) && dictionary.len() == 3);
    }
}

/// `1000;w=86400, 2;w=60`.
fn check_plain_policy(answer: &Response) {
    let policy = members(&field(answer, "ratelimit-policy"));
    let limit = |member: &Item| member.bare_item.as_integer().expect("an Integer").into();
    let told: Vec<(i64, i64)> = policy.iter().map(|m| (limit(m), number(m, "w"))).collect();
    assert_eq!(told, [(1000, 86400), (2, 60)]);
}

// The generations of three fields: each an Integer, without the fields of another generation.
#[test]
fn draft_6_and_x_ratelimit_have_three_integers() {
    for (generation, prefix) in [("draft-6", "ratelimit"), ("x-ratelimit", "x-ratelimit")] {
        let envoy = start(&json!({"headers": generation}));
        for (answer, expected) in answers(&envoy, "k").iter().zip([1, 0, 0]) {
            let mut fields: Vec<String> =
                ["limit", "remaining", "reset"].map(|name| format!("{prefix}-{name}")).into();
            let told = [0, 1, 2].map(|i: usize| {
                let item: Item = Parser::new(&field(answer, &fields[i])).parse().expect("an Item");
                assert!(item.params.is_empty());
                i64::from(item.bare_item.as_integer().expect("an Integer"))
            });
            assert_eq!(told[..2], [2, expected]);
            assert!((1..=60).contains(&told[2]), "{told:?}");
            if generation == "draft-6" {
                check_plain_policy(answer);
                fields.insert(1, "ratelimit-policy".into());
            }
            assert_eq!(names(answer), fields);
        }
    }
}

// Nothing is shown: neither the remaining amount nor, when so configured, any field on allowed
// responses.
#[test]
fn what_is_switched_off_is_not_sent() {
    let envoy = start(&json!({"headers": "off", "body": "none"}));
    let [_, allowed, denied] = answers(&envoy, "k");
    assert_eq!((names(&allowed), names(&denied)), (vec![], vec![]));
    assert_eq!((denied.header("retry-after"), denied.text()), (Some("30".into()), String::new()));
    assert_eq!(denied.header("content-type"), None);

    let envoy = start(&json!({"policy": false}));
    for answer in answers(&envoy, "k") {
        assert_eq!(names(&answer), ["ratelimit"]);
    }

    let envoy = start(&json!({"on_allow": false, "body": "text", "jitter": "5s"}));
    let [_, allowed, denied] = answers(&envoy, "k");
    assert_eq!((names(&allowed), names(&denied).len()), (vec![], 2));
    assert_eq!(field(&denied, "content-type"), "text/plain");
    let wait: i64 = field(&denied, "retry-after").parse().expect("whole seconds");
    assert!((30..=35).contains(&wait), "jitter is added, at most 5 s: {wait}");
    assert_eq!(denied.text(), format!("try again in {wait} seconds\n"));
}

// A gRPC client reads the same fields from a trailers-only response.
#[test]
fn grpc_gets_the_same_fields() {
    let envoy = start(&json!({"partition_key": true}));
    let request = Request::post("/s/m", "x").header("content-type", "application/grpc");
    let request = request.header("x-key", "g");
    let mut client = envoy.client();
    let [_, _, denied] = [(); 3].map(|()| client.send(&request));
    assert_eq!((denied.status, denied.text()), (200, String::new()));
    assert_eq!(field(&denied, "grpc-status"), "8");
    assert_eq!(field(&denied, "content-type"), "application/grpc");
    let limit = members(&field(&denied, "ratelimit"));
    assert_eq!((name(&limit[1]), number(&limit[1], "r"), number(&limit[1], "t")), (NAME, 0, 30));
    assert_eq!(members(&field(&denied, "ratelimit-policy")).len(), 2);
    assert_eq!(field(&denied, "retry-after"), "30");
}
