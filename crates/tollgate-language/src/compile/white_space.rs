//! White space around a value in a document: no header value has any.
//!
//! Invariant: a value with a warning never matches a header, because the white space around a
//! header value is removed first.

use alloc::format;
use alloc::string::String;

use crate::document::rule::RuleDoc;
use crate::json::place::At;
use tollgate_http_syntax::values::trimmed;
use tollgate_policy::spec::{Condition, Conditions, KeyPart, Matcher, quoted_text};

const NEVER: &str =
    "has white space round it, which no header's value has, so it never matches one";

/// Notes the values of a rule that never match.
pub(super) fn of_rule(rule: &RuleDoc, at: &At<'_>) {
    for (name, conditions) in [("when", &rule.when), ("unless", &rule.unless)] {
        if let Some(conditions) = conditions {
            of_conditions(conditions, &at.field(name));
        }
    }
    for (i, conditions) in rule.priorities().iter().enumerate() {
        of_conditions(conditions, &at.field("action").field("delay").field("priority").item(i));
    }
    for (i, tier) in rule.tiers().iter().enumerate() {
        let at = at.field("tiers");
        if let Some(when) = &tier.when {
            of_conditions(when, &at.item(i).field("when"));
        }
        // A descriptor's value is compared as it is.
        let of_headers = tier.key_values.iter().filter(|_| !counts_by_descriptor(rule));
        let values = of_headers.flat_map(|values| &values.0);
        for value in values.filter(|value| trimmed(value.as_bytes()) != value.as_bytes()) {
            at.item(i).field("key_values").problem(format!("{} {NEVER}", quoted_text(value)));
        }
    }
}

fn counts_by_descriptor(rule: &RuleDoc) -> bool {
    rule.key.iter().any(|part| matches!(part, KeyPart::Descriptor(_)))
}

/// Notes the values that headers are compared with and that never match.
pub(super) fn of_conditions(conditions: &Conditions, at: &At<'_>) {
    let at = at.field("headers");
    for condition in &conditions.0 {
        let Condition::Header(name, wanted) = condition else { continue };
        for matcher in wanted.iter() {
            let text = match matcher {
                Matcher::Exact(text) if trimmed(text) != text => text,
                Matcher::Prefix(text) if matches!(text.first(), Some(b' ' | b'\t')) => text,
                _ => continue,
            };
            let text = quoted_text(&String::from_utf8_lossy(text));
            at.own(&name.0).problem(format!("{text} {NEVER}"));
        }
    }
}
