//! Warnings about regular expressions that match more, or less, than a client should be able to
//! choose.
//!
//! Invariant: a `when` that counts requests has no warning for what it matches in addition: such a
//! request is only counted, too.

use alloc::format;

use crate::document::deny::RuleItem;
use crate::document::root::Document;
use crate::json::place::At;
use tollgate_http_syntax::header::is_credentials;
use tollgate_policy::spec::{
    Condition, Conditions, KeyItem, KeyPart, KeySource, Matcher, Origin, Regex, items, quoted_text,
};

const OPEN_KEY: &str = "matches inside a longer value, so a client can send a value in which it finds the part of another client; begin it with ^ and end it with $";
const OPEN_CONDITION: &str = "matches inside a longer value, so a client can add text that matches to any value; begin it with ^ and end it with $";
const EMPTY: &str = "may find an empty text, so all clients that send such a value share one count; let it find at least one character";
const SCHEME: &str = "is compared with the scheme as it was sent, and a client may send that in any case; begin it with (?i)";
const KEY_SCHEME: &str = "is compared with credentials in one form, whose scheme is in lower case and whose password is decoded, so one with capitals may find nothing; begin it with (?i)";

/// Notes the regular expressions of a document that are legal but hardly intended.
pub(super) fn warnings(document: &Document, root: &At<'_>) {
    if let Some(part) = &document.tenant {
        of_part(part, &root.field("tenant"));
    }
    for (i, exempt) in document.exempt().iter().enumerate() {
        of_conditions(exempt, true, &root.field("exempt").item(i));
    }
    let rules_at = root.field("rules");
    for (i, rule) in document.all_rules() {
        of_rule(rule, &rules_at.item(i));
    }
}

fn of_rule(rule: &RuleItem, at: &At<'_>) {
    if let Some(when) = rule.when() {
        of_conditions(when, false, &at.field("when"));
    }
    if let Some(unless) = rule.unless() {
        of_conditions(unless, true, &at.field("unless"));
    }
    let RuleItem::Count(rule) = rule else { return };
    for (i, item) in items(&rule.key.0).enumerate() {
        of_item(item, &at.field("key").item(i));
    }
    for (i, tier) in rule.tiers().iter().enumerate() {
        if let Some(when) = &tier.when {
            of_conditions(when, true, &at.field("tiers").item(i).field("when"));
        }
    }
    for (i, conditions) in rule.priorities().iter().enumerate() {
        let at = at.field("action");
        let at = at.field("delay");
        of_conditions(conditions, true, &at.field("priority").item(i));
    }
}

fn of_item(item: KeyItem<'_>, at: &At<'_>) {
    match item.parts {
        [part] => of_part(part, at),
        parts => {
            for (i, part) in parts.iter().enumerate() {
                of_part(part, &at.field("any_of").item(i));
            }
        }
    }
}

fn of_part(part: &KeyPart, at: &At<'_>) {
    let Some(regex) = &part.regex else { return };
    let text = quoted_text(regex.text());
    let is_chosen = matches!(part.source.about().origin, Origin::Client | Origin::Target);
    if is_chosen && !regex.is_anchored() {
        at.problem(format!("{text} {OPEN_KEY}"));
    }
    if regex.may_be_empty() {
        at.problem(format!("{text} {EMPTY}"));
    }
    let is_scheme = matches!(&part.source, KeySource::Header(name, _) if is_credentials(&name.0));
    let has_capitals = regex.text().bytes().any(|byte| byte.is_ascii_uppercase());
    if is_scheme && has_capitals && !regex.text().starts_with("(?i)") {
        at.problem(format!("{text} {KEY_SCHEME}"));
    }
}

/// Conditions on headers and parameters, which clients write. `gain` is true where a client gains
/// by a match: it is exempt, or has other quotas.
fn of_conditions(conditions: &Conditions, gain: bool, at: &At<'_>) {
    for condition in &conditions.0 {
        let (name, wanted) = match condition {
            Condition::Header(name, wanted) => (name.0.as_str(), wanted),
            Condition::Query(name, wanted) => (name.as_str(), wanted),
            Condition::Methods(..)
            | Condition::Hosts(..)
            | Condition::Paths(..)
            | Condition::ClientCidrs(..)
            | Condition::Routes(..)
            | Condition::Countries(..)
            | Condition::Asns(..)
            | Condition::Domain(..)
            | Condition::Descriptor(..)
            | Condition::Entries(..)
            | Condition::Beside(..) => continue,
        };
        let at = at.field(condition.field());
        let is_scheme = condition.field() == "headers" && is_credentials(name);
        for matcher in wanted.iter() {
            let Matcher::Match(regex) = matcher else { continue };
            of_value(regex, (gain, is_scheme && !gain), &at.user_field(name));
        }
    }
}

fn of_value(regex: &Regex, (gain, is_scheme): (bool, bool), at: &At<'_>) {
    let text = quoted_text(regex.text());
    if gain && !regex.is_anchored() {
        at.problem(format!("{text} {OPEN_CONDITION}"));
    }
    if is_scheme && !regex.text().starts_with("(?i)") {
        at.problem(format!("{text} {SCHEME}"));
    }
}
