//! The fields in responses, of every generation, read with an independent structured-field parser.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use sfv::{BareItem, Dictionary, FieldType, Item, List, ListEntry, Parameters, Parser};
use tollgate_e2e::http::{Request, Response};
use tollgate_e2e::workerd::{Setup, Workerd};

use crate::worker_origin::serve;

/// A name that must be escaped, two windows in whole seconds and one that is not.
const NAMES: [&str; 3] = [r#"a "b" \c"#, "day", "short"];
const WINDOWS: [Option<i64>; 3] = [Some(60), Some(86_400), None];
const LIMITS: [i64; 3] = [3, 100, 50];

fn worker(generation: &str, response: Value) -> Workerd {
    let windows = ["1m", "1d", "2500ms"];
    let quotas: Vec<Value> = (0..3)
        .map(|i| json!({"name": NAMES[i], "limit": LIMITS[i], "window": windows[i], "algorithm": "fixed-window"}))
        .collect();
    let mut settings = json!({"headers": generation});
    let fields = response.as_object().expect("settings").clone();
    settings.as_object_mut().expect("settings").extend(fields);
    let rules = json!([{"name": "all", "key": ["client_ip"], "quotas": quotas}]);
    let origin = serve(|request| request.answer("200 OK", "", "hello"));
    Setup::new(json!({"version": 1, "response": settings, "rules": rules}))
        .binding("ORIGIN", origin)
        .binding("HASH_KEY", "s3cret")
        .start()
}

fn get(worker: &Workerd, client_ip: &str) -> Response {
    worker.client().send(&Request::get("/").header("cf-connecting-ip", client_ip))
}

/// The first response that is allowed and the first that is denied.
fn allowed_and_denied(worker: &Workerd) -> [Response; 2] {
    let first = get(worker, "192.0.2.1");
    assert_eq!(first.status, 200);
    let denied = (0..8).map(|_| get(worker, "192.0.2.1")).find(|response| response.status == 429);
    [first, denied.expect("a denial, even when a minute ends meanwhile")]
}

fn parsed<T: FieldType>(response: &Response, name: &str) -> T {
    let value = response.header(name).unwrap_or_else(|| panic!("no {name}: {response:?}"));
    Parser::new(&value).parse().unwrap_or_else(|e| panic!("{name}: {value}: {e}"))
}

fn items(response: &Response, name: &str) -> Vec<Item> {
    let item = |entry| match entry {
        ListEntry::Item(item) => item,
        ListEntry::InnerList(list) => panic!("{name} has a list within: {list:?}"),
    };
    parsed::<List>(response, name).into_iter().map(item).collect()
}

fn parameter<'p>(parameters: &'p Parameters, name: &str) -> Option<&'p BareItem> {
    parameters.iter().find(|(key, _)| key.as_str() == name).map(|(_, value)| value)
}

fn integer(item: &BareItem) -> i64 {
    item.as_integer().unwrap_or_else(|| panic!("{item:?} is no Integer")).into()
}

fn number(parameters: &Parameters, name: &str) -> Option<i64> {
    parameter(parameters, name).map(integer)
}

fn retry_after(denied: &Response) -> i64 {
    integer(&parsed::<Item>(denied, "retry-after").bare_item)
}

/// The partition keys in a response, each once.
fn partition_keys(response: &Response) -> BTreeSet<Vec<u8>> {
    let mut keys = BTreeSet::new();
    for name in ["ratelimit-policy", "ratelimit"] {
        for item in items(response, name) {
            let pk = parameter(&item.params, "pk").expect("pk");
            keys.insert(pk.as_byte_sequence().expect("a Byte Sequence").to_vec());
        }
    }
    keys
}

// Guards: fields of the current draft that other parsers cannot read: an unescaped name, an invalid
// number, a window that is not whole seconds.
#[test]
fn draft_11_is_two_lists_of_strings_with_parameters() {
    let [allowed, denied] = allowed_and_denied(&worker("draft-11", json!({})));
    for response in [&allowed, &denied] {
        let policies = items(response, "ratelimit-policy");
        let states = items(response, "ratelimit");
        assert_eq!((policies.len(), states.len()), (3, 3));
        for i in 0..3 {
            let name =
                |item: &Item| item.bare_item.as_string().expect("a String").as_str().to_owned();
            assert_eq!((name(&policies[i]), name(&states[i])), (NAMES[i].into(), NAMES[i].into()));
            assert_eq!(number(&policies[i].params, "q"), Some(LIMITS[i]));
            assert_eq!(number(&policies[i].params, "w"), WINDOWS[i]);
            assert!(number(&states[i].params, "r").is_some_and(|r| (0..LIMITS[i]).contains(&r)));
            assert!(number(&states[i].params, "t").is_some_and(|t| (1..=86_400).contains(&t)));
            assert_eq!(parameter(&states[i].params, "pk"), None);
        }
    }
    let state = &items(&denied, "ratelimit")[0].params;
    assert_eq!(number(state, "r"), Some(0));
    assert_eq!(number(state, "t"), Some(retry_after(&denied)));
}

// Guards: a partition key that reveals a client or that changes: it is 64 bits of a hash with
// HASH_KEY, one per client, and the same after a restart.
#[test]
fn a_partition_key_is_a_byte_sequence_that_stays() {
    let mut first = worker("draft-11", json!({"partition_key": true}));
    let keys = partition_keys(&get(&first, "192.0.2.1"));
    assert_eq!(keys.len(), 1, "one client has one key, in both fields");
    assert!(keys.iter().all(|key| key.len() == 8));
    assert_ne!(keys, partition_keys(&get(&first, "192.0.2.2")));
    first.kill();
    first.restart();
    assert_eq!(keys, partition_keys(&get(&first, "192.0.2.1")));
    let policy = json!({"version": 1, "response": {"partition_key": true}, "rules": [
        {"name": "all", "key": ["client_ip"], "quotas": [{"name": "q", "limit": 1, "window": "1m"}]}]});
    let origin = serve(|request| request.answer("200 OK", "", "hello"));
    let told = |secret: &str| {
        let setup = Setup::new(&policy).binding("ORIGIN", &origin).binding("HASH_KEY", secret);
        partition_keys(&get(&setup.start(), "192.0.2.1"))
    };
    assert_ne!(told("one"), told("two"), "the secret is in it");
}

// Guards: the generations that clients read today. The numbers are those of the quota that is
// nearest to exhaustion.
#[test]
fn earlier_generations_tell_the_nearest_quota() {
    let policies = |response: &Response| {
        for (i, item) in items(response, "ratelimit-policy").iter().enumerate() {
            assert_eq!(integer(&item.bare_item), LIMITS[i]);
            assert_eq!(number(&item.params, "w"), WINDOWS[i]);
        }
    };
    for generation in ["draft-7", "draft-6", "x-ratelimit"] {
        let [allowed, denied] = allowed_and_denied(&worker(generation, json!({})));
        let numbers = |response: &Response| match generation {
            "draft-7" => {
                let fields: Dictionary = parsed(response, "ratelimit");
                let names: Vec<_> = fields.keys().map(|key| key.as_str()).collect();
                assert_eq!(names, ["limit", "remaining", "reset"]);
                fields
                    .values()
                    .map(|entry| match entry {
                        ListEntry::Item(item) => integer(&item.bare_item),
                        ListEntry::InnerList(list) => panic!("{list:?}"),
                    })
                    .collect::<Vec<_>>()
            }
            _ => {
                let prefix = if generation == "draft-6" { "ratelimit" } else { "x-ratelimit" };
                let number = |name| {
                    integer(&parsed::<Item>(response, &format!("{prefix}-{name}")).bare_item)
                };
                ["limit", "remaining", "reset"].map(number).to_vec()
            }
        };
        assert_eq!(numbers(&allowed)[..2], [3, 2], "{generation}");
        assert_eq!(numbers(&denied), [3, 0, retry_after(&denied)], "{generation}");
        if generation != "x-ratelimit" {
            policies(&allowed);
            policies(&denied);
        }
    }
}

// Guards: fields of one generation together with those of another, and fields where none are
// configured; Retry-After stays.
#[test]
fn no_field_is_sent_that_was_not_asked_for() {
    for (generation, wanted) in [
        ("draft-11", vec!["ratelimit", "ratelimit-policy"]),
        ("draft-7", vec!["ratelimit", "ratelimit-policy"]),
        (
            "draft-6",
            vec!["ratelimit-limit", "ratelimit-policy", "ratelimit-remaining", "ratelimit-reset"],
        ),
        ("x-ratelimit", vec!["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"]),
        ("off", vec![]),
    ] {
        for response in allowed_and_denied(&worker(generation, json!({"body": "none"}))) {
            let names = response.headers.iter().map(|(name, _)| name.as_str());
            let ours: BTreeSet<_> = names.filter(|name| name.contains("ratelimit")).collect();
            assert_eq!(ours.into_iter().collect::<Vec<_>>(), wanted);
            let is_denied = response.status == 429;
            assert_eq!(response.header("retry-after").is_some(), is_denied);
            assert!(
                !is_denied || response.body.is_empty() && response.header("content-type").is_none()
            );
        }
    }
}
