//! Limits on requests in flight in random policies, and the ends of the requests.
//!
//! Invariant: they come from numbers of their own, so the cases without them stay what they were. A
//! trace ends long before a request would have to be confirmed.

use serde_json::{Value, json};
use tollgate_core::Algorithm;
use tollgate_test_support::Random;

/// Longer than three times any trace, so no request has to be confirmed meanwhile.
const MAX_AGE: &str = "1d";

/// Gives a share of the rules of `document` a limit on requests in flight, in addition to their
/// quotas or in their place.
pub(crate) fn limit_requests_in_flight(document: &mut Value, random: &mut Random) {
    for rule in document["rules"].as_array_mut().into_iter().flatten() {
        if random.chance(60) && !rule["action"]["delay"].is_null() {
            remove(rule, "action");
        }
        // The core alone reproduces the plain one.
        if rule["name"] == "plain" || !can_be_limited(rule) || random.chance(10) {
            continue;
        }
        rule["concurrency"] = limit(random);
        if random.chance(20) {
            rule["concurrency"]["name"] = json!("at \"once\"");
        }
        let has_quotas = random.chance(70);
        for tier in rule.get_mut("tiers").and_then(Value::as_array_mut).into_iter().flatten() {
            if !has_quotas {
                remove(tier, "quotas");
            }
            if !has_quotas || random.chance(50) {
                tier["concurrency"] = limit(random);
            }
        }
        if !has_quotas {
            ["quotas", "cost", "charge"].iter().for_each(|field| remove(rule, field));
        }
    }
}

/// Such a limit is not for rules whose requests wait.
fn can_be_limited(rule: &Value) -> bool {
    let counts = rule["deny"].is_null();
    counts
        && rule["action"]["delay"].is_null()
        && !rule.to_string().contains(Algorithm::LeakyQueue.name())
}

fn limit(random: &mut Random) -> Value {
    json!({"limit": random.lean(&[1, 2, 3, 5]), "max_age": MAX_AGE})
}

fn remove(object: &mut Value, field: &str) {
    if let Some(object) = object.as_object_mut() {
        object.remove(field);
    }
}

/// For each request the earlier ones, perhaps with itself, that end after it, in any order. One
/// that cannot run on ends after itself.
pub(crate) fn ends(can_run_on: &[bool], random: &mut Random) -> Vec<Vec<usize>> {
    let mut ends = vec![vec![]; can_run_on.len()];
    for (index, can_run_on) in can_run_on.iter().enumerate() {
        let is_at_once = !can_run_on || random.chance(30);
        let later = if is_at_once { 0 } else { random.index(12) };
        let Some(ended) = ends.get_mut(index + later) else { continue };
        let place = random.index(ended.len() + 1);
        ended.insert(place, index);
    }
    ends
}
