//! The features that the cases exercise, counted from the reference's results.
//!
//! Invariant: a feature counts where it affected a response, not where a document mentions it: its
//! rule applied to the request and produced the counted result.

use std::collections::BTreeMap;

use serde_json::Value;
use tollgate_policy::{RuleResult, UnknownCost};

use crate::case::Case;
use crate::reference::{AppliedRule, EndedRequest, Expected};

/// How often each feature occurred.
#[derive(Default)]
pub struct Coverage(BTreeMap<String, usize>);

impl Coverage {
    /// Counts one event of `case`.
    pub fn add(&mut self, case: &Case, index: usize, expected: &Expected) {
        let seen = &expected.seen;
        self.count("events", true);
        self.count("refused", !seen.passed());
        self.count("passed, with fields", seen.passed() && !seen.fields.is_empty());
        self.count("no rule", expected.rules.is_empty());
        self.count("marked", !seen.marks.is_empty());
        self.count("refused as gRPC", seen.field("grpc-status").is_some());
        self.count("waited", !seen.waits_ms.is_empty());
        self.count("charged by the response", expected.charged_later);
        self.count("the clock goes back", case.events[index].step_ms < 0);
        self.count("several rules", expected.rules.len() > 1);
        self.count("several keys", expected.partitions > 1);
        self.count("several keys, refused", expected.partitions > 1 && !seen.passed());
        let lacks_key = seen.body.as_ref().is_some_and(|b| b.contains("lacks what its quota"));
        self.count("refused without a key", lacks_key);
        self.count("refused as malformed", seen.is_malformed());
        let lacks_place =
            expected.rules.iter().any(|rule| rule.limits_in_flight && rule.result.denies());
        let never = seen.status == 429 && seen.field("retry-after").is_none();
        self.count("refused for ever", never && !lacks_key && !lacks_place);
        let generation = case.policy["response"]["headers"].as_str().unwrap_or_default();
        self.count(&format!("generation {generation}"), !seen.fields.is_empty());
        self.count("pk", seen.field("ratelimit").is_some_and(|field| field.contains(";pk=:")));
        for AppliedRule { place, limits_in_flight, result } in &expected.rules {
            let rule = &case.policy["rules"][*place];
            if *limits_in_flight {
                self.count(&format!("in flight {}", result.label()), true);
                self.count(
                    "in flight in a tier",
                    rule["tiers"].to_string().contains("concurrency"),
                );
                self.count("in flight alone", rule["quotas"].is_null());
            } else {
                self.rule(rule, *result);
                self.pairs(rule, *result);
            }
        }
        let denied_by_rule = |it: &AppliedRule| !case.policy["rules"][it.place]["deny"].is_null();
        let in_flight = expected.rules.iter().any(|it| it.limits_in_flight);
        let waited = case.waits_for_places && in_flight && !seen.waits_ms.is_empty();
        self.count("waited for a place, passed", waited && seen.passed());
        self.count("waited for a place in vain", waited && lacks_place);
        let ended_last = expected.ends_meanwhile.last().is_some_and(|ends| !ends.is_empty());
        self.count("a place ended, passed", waited && seen.passed() && ended_last);
        let ended = expected.ends_meanwhile.iter().any(|ends| !ends.is_empty());
        self.count("a place ended, waited on", waited && ended && !ended_last);
        self.count("deny and in flight", in_flight && expected.rules.iter().any(denied_by_rule));
        for EndedRequest { index: ended, was_counted, costs } in &expected.ended {
            self.count("in flight ended", *was_counted);
            self.count("in flight ended later", *was_counted && *ended < index);
            for cost in costs {
                let reason = cost.map_or_else(UnknownCost::label, |_| "known");
                self.count(&format!("cost in a body {reason}"), true);
                self.count("cost in a body later", *ended < index);
            }
        }
    }

    /// How often `name` occurred.
    pub fn of(&self, name: &str) -> usize {
        self.0.get(name).copied().unwrap_or(0)
    }

    /// All counts, one per line.
    pub fn table(&self) -> String {
        self.0.iter().map(|(name, count)| format!("{count:>8}  {name}\n")).collect()
    }

    fn count(&mut self, name: &str, happened: bool) {
        *self.0.entry(name.to_owned()).or_default() += usize::from(happened);
    }

    /// The pairs of budgets that one rule has.
    fn pairs(&mut self, rule: &Value, result: RuleResult) {
        let said = result.label();
        let text = rule.to_string();
        let budgets = [
            ("penalty", text.contains("\"penalty\"")),
            ("calendar", text.contains("\"calendar\"")),
            ("limit_from", text.contains("\"limit_from\"")),
            ("settled", !rule["cost"]["estimate"].is_null()),
            ("concurrency", !rule["concurrency"].is_null()),
        ];
        let mut present = budgets.iter().filter(|(_, is_there)| *is_there);
        while let Some((one, _)) = present.next() {
            for (other, _) in present.clone() {
                self.count(&format!("{one} and {other} {said}"), true);
            }
        }
    }

    fn rule(&mut self, rule: &Value, result: RuleResult) {
        let said = result.label();
        if !rule["deny"].is_null() {
            self.count(&format!("deny {said}"), true);
            self.count("deny, own response", rule["deny"].is_object());
            self.count("deny, unless", !rule["unless"].is_null());
            return;
        }
        let searches = |what: &Value| what.to_string().contains("\"match\"");
        self.count(&format!("key match {said}"), searches(&rule["key"]));
        self.count(&format!("when match {said}"), searches(&rule["when"]));
        self.count(&format!("tier match {said}"), searches(&rule["tiers"]));
        for quota in rule["quotas"].as_array().into_iter().flatten() {
            let algorithm = quota["algorithm"].as_str().unwrap_or_default();
            self.count(&format!("{algorithm} {said}"), true);
            if quota["align"] == "calendar" {
                let window = quota["window"].as_str().unwrap_or_default();
                self.count(&format!("calendar {window} {said}"), true);
            }
            self.count(&format!("limit_from {said}"), !quota["limit_from"].is_null());
            self.count(&format!("limit 0 {said}"), quota["algorithm"].is_null()); // a closed one
            self.count("strict", quota["strict"] == true);
            self.count("burst", !quota["burst"].is_null());
        }
        for part in rule["key"].as_array().into_iter().flatten() {
            let is_part = |name: &&String| *name != "match";
            let name = match part.as_object().and_then(|it| it.keys().find(is_part)) {
                Some(name) => name,
                None => part.as_str().unwrap_or_default(),
            };
            self.count(&format!("key {name}"), true);
            self.count("key in lower case", part["lower"] == true);
            self.count("key with prefixes", part["client_ip"].is_object());
        }
        self.count("key of nothing", rule["key"].as_array().is_some_and(Vec::is_empty));
        for field in ["action", "mode", "charge", "cost", "on_missing"] {
            let name = match &rule[field] {
                Value::Object(object) if object.contains_key("header") => "header",
                Value::Object(object) if object.contains_key("reserve") => "reserve",
                settled if !settled["actual"]["json"].is_null() => "json",
                Value::Object(object) => object.keys().next().map_or("", String::as_str),
                Value::String(text) => text,
                Value::Number(_) => "number",
                _ => "default",
            };
            self.count(&format!("{field} {name} {said}"), true);
        }
        for field in ["when", "unless", "tiers", "durability"] {
            self.count(field, !rule[field].is_null());
        }
        for condition in rule["when"].as_object().into_iter().flatten() {
            self.count(&format!("when {}", condition.0), true);
        }
    }
}
