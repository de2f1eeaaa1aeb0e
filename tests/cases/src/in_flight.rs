//! Limits on requests in flight in random policies, and the ends of the requests.
//!
//! Invariant: they come from numbers of their own, so the cases without them stay what they were. A
//! trace ends long before a request would have to be confirmed.

use serde_json::{Value, json};
use tollgate_core::Algorithm;
use tollgate_test_support::Random;

use crate::bodies;

/// From this case on, requests wait for a place among those in flight.
pub(crate) const FIRST_WAITING: u32 = 400;
/// A request that runs on ends before this many others have come.
pub(crate) const LASTS: usize = 12;
/// The same where others wait for its place.
pub const LASTS_LONG: usize = 40;

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
        limit_rule(rule, random);
    }
}

/// Gives a rule such a limit.
fn limit_rule(rule: &mut Value, random: &mut Random) {
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

/// Such a limit is not for rules whose requests wait.
fn can_be_limited(rule: &Value) -> bool {
    let counts = rule["deny"].is_null();
    counts
        && rule["action"]["delay"].is_null()
        && !rule.to_string().contains(Algorithm::LeakyQueue.name())
}

/// Lets most rules of `document` delay, before they get the features that depend on it. A queue
/// gives times itself, so no rule counts by one. Rules and keys are few and quotas large, so that
/// most requests lack a place alone, and one end is enough for many.
pub(crate) fn delay_requests(document: &mut Value, random: &mut Random) {
    let Some(rules) = document["rules"].as_array_mut() else { return };
    rules.truncate(2);
    let is_by_tenant = random.chance(70) && !json!(rules).to_string().contains("path_param");
    for rule in rules {
        if is_by_tenant {
            rule["key"] = json!([{"header": "x-tenant"}]);
            ["when", "mode"].iter().filter(|_| random.chance(60)).for_each(|it| remove(rule, it));
        }
        bodies::give_up(rule, &[Algorithm::LeakyQueue]);
        for quota in quotas_of(rule) {
            quota["limit"] = json!(8 * quota["limit"].as_u64().expect("a limit"));
        }
        if random.chance(80) {
            let max = random.pick(&["100ms", "350ms", "1s", "1700ms", "5s"]);
            rule["action"] = json!({"delay": {"max": max}});
        }
    }
}

/// Gives most rules a limit on requests in flight, in addition to their quotas or in their place:
/// for a place of those that delay a request waits.
pub(crate) fn wait_for_places(document: &mut Value, random: &mut Random) {
    let rules = document["rules"].as_array_mut().into_iter().flatten();
    for rule in rules.filter(|rule| rule["deny"].is_null()) {
        if random.chance(80) {
            limit_rule(rule, random);
        }
    }
}

/// The quotas of a rule and of its tiers.
fn quotas_of(rule: &mut Value) -> Vec<&mut Value> {
    let Some(rule) = rule.as_object_mut() else { return vec![] };
    let mut all = vec![];
    for (name, value) in rule.iter_mut() {
        let items = value.as_array_mut().into_iter().flatten();
        match name.as_str() {
            "quotas" => all.extend(items),
            "tiers" => all.extend(items.flat_map(quotas_of)),
            _ => {}
        }
    }
    all
}

fn limit(random: &mut Random) -> Value {
    json!({"limit": random.lean(&[1, 2, 3, 5]), "max_age": MAX_AGE})
}

fn remove(object: &mut Value, field: &str) {
    if let Some(object) = object.as_object_mut() {
        object.remove(field);
    }
}

/// For each request the earlier ones, perhaps with itself, that end after it, in any order. Each
/// ends before this many others have come; one that cannot run on ends after itself.
pub(crate) fn ends(can_run_on: &[bool], most: usize, random: &mut Random) -> Vec<Vec<usize>> {
    let mut ends = vec![vec![]; can_run_on.len()];
    for (index, can_run_on) in can_run_on.iter().enumerate() {
        let is_at_once = !can_run_on || random.chance(30);
        let later = if is_at_once { 0 } else { random.index(most) };
        let Some(ended) = ends.get_mut(index + later) else { continue };
        let place = random.index(ended.len() + 1);
        ended.insert(place, index);
    }
    ends
}

/// Lets most of the requests that run when the request `index` comes end while it waits, if they
/// would end after it or a later one: each at the end of this wait of it, if there is one.
pub(crate) fn meanwhile(
    index: usize,
    ends: &mut [Vec<usize>],
    random: &mut Random,
) -> Vec<(usize, usize)> {
    if random.chance(70) {
        return vec![];
    }
    let later = ends.iter_mut().skip(index).take(LASTS_LONG);
    let taken = later.flat_map(|ends| {
        let is_taken = |ended: &mut usize| *ended < index && random.chance(60);
        ends.extract_if(.., is_taken).collect::<Vec<_>>()
    });
    let taken: Vec<usize> = taken.collect();
    taken.into_iter().map(|ended| (*random.lean(&[0, 1, 2, 3, 5]), ended)).collect()
}
