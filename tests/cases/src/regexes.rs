//! Regular expressions in the keys and conditions of random policies.
//!
//! Invariant: they come from numbers of their own, so the cases without them stay what they were.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tollgate_test_support::Random;

const HEADERS: [&str; 4] = ["^k(.)", "^(.*?)[0-9]", "^[kK](?:([0-9])|.*)$", "."];

/// Lets parts of keys count by a part of a value, and conditions search values. Rules that had one
/// key still have one.
pub(crate) fn add_regexes(document: &mut Value, random: &mut Random) {
    let mut searched: BTreeMap<String, Value> = BTreeMap::new();
    if random.chance(30) {
        document["exempt"] = json!([{"headers": {"x-key": matcher(random)}}]);
    }
    let rules = document["rules"].as_array_mut().into_iter().flatten();
    // The core alone reproduces the plain one, and one that denies has no key.
    for rule in rules.filter(|rule| rule["name"] != "plain") {
        let parts = rule.get_mut("key").and_then(Value::as_array_mut);
        for part in parts.into_iter().flatten() {
            let other = searched.entry(part.to_string());
            *part = other.or_insert_with(|| search(part, random)).clone();
        }
        if random.chance(30) {
            rule["unless"] = json!({"headers": {"x-key": matcher(random)}});
        }
        if random.chance(40) {
            if rule["when"].is_null() {
                rule["when"] = json!({});
            }
            let header = json!({"x-plan": [{"match": "^(?i)GOLD$"}, "go", {"match": "v.r"}]});
            let query = json!({"user": {"match": "^u[0-9]*$"}});
            match random.chance(50) {
                true => rule["when"]["headers"] = header,
                false => rule["when"]["query"] = query,
            }
        }
        let tiers = rule.get_mut("tiers").and_then(Value::as_array_mut);
        for tier in tiers.into_iter().flatten().filter(|tier| !tier["when"].is_null()) {
            tier["when"] = json!({"headers": {"x-key": matcher(random)}});
        }
    }
}

fn matcher(random: &mut Random) -> Value {
    json!({"match": random.pick(&["^k[12]$", "^k.$", "[0-9]$", "^[^,]*$", "\\xC3.$", "^l+ ?1$"])})
}

/// The same part, or mostly a part of its value.
fn search(part: &Value, random: &mut Random) -> Value {
    let mut other = part.clone();
    let name = |name: &str| !part[name].is_null();
    let regex: &str = match () {
        () if random.chance(25) => return other,
        () if part == "host" => return json!({"host": {"match": "^([^.]+)"}}),
        () if part == "path" => return json!({"path": {"match": "^/([a-z]+)"}}),
        () if part["header"] == "x-tenant" => "[0-9]$",
        () if name("header") => random.pick::<&str>(&HEADERS),
        () if name("cookie") => "^s([0-9])$",
        () if name("query") => "u(.*)",
        () if name("path_param") => "^[0-9]",
        () => return other,
    };
    other["match"] = regex.into();
    other
}
