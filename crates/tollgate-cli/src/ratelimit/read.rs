//! Reads a file of `envoyproxy/ratelimit` as a configuration, with all of its mistakes.
//!
//! Invariant: a mistake that the service rejects is rejected here, with its position. A limit that
//! no rule can express is rejected too, because a policy without it would allow more requests.

use super::config::{Config, Descriptor, Limit, UNITS, Value};
use super::fields::Fields;
use super::finding::{Findings, Kind, Place, shown};
use tollgate_yaml::Node;

const OF_DESCRIPTOR: [&str; 10] = [
    "key",
    "value",
    "rate_limit",
    "descriptors",
    "shadow_mode",
    "quota_mode",
    "detailed_metric",
    "value_to_metric",
    "share_threshold",
    "metadata",
];
const OF_LIMIT: [&str; 5] = ["unit", "requests_per_unit", "unlimited", "name", "replaces"];

/// Reads the whole file.
pub(super) fn config(root: &Node, findings: &mut Findings) -> Option<Config> {
    let fields = Fields::open(root, "the file", &["domain", "descriptors"], findings)?;
    let domain = fields.text("domain", findings).unwrap_or_default();
    if domain.is_empty() {
        let place = fields.place("domain").unwrap_or_else(|| Place::from(root));
        findings.problem(place, "has no domain; give it one");
    }
    let descriptors = descriptors(&fields, findings);
    Some(Config { at: Place::from(root), domain: domain.to_owned(), descriptors })
}

/// The descriptors of one level, all of which differ.
fn descriptors(fields: &Fields<'_>, findings: &mut Findings) -> Vec<Descriptor> {
    let items = fields.list("descriptors", findings);
    let mut seen = std::collections::BTreeSet::new();
    let mut level = Vec::new();
    for item in items {
        let Some(descriptor) = descriptor(item, findings) else { continue };
        let text = match &descriptor.value {
            Value::Default => "",
            Value::Exact(text) | Value::Pattern(text) => text,
        };
        if seen.insert((descriptor.key.clone(), text.to_owned())) {
            level.push(descriptor);
        } else {
            let key = &descriptor.key;
            findings.problem(
                descriptor.at,
                format!("the key {} with this value is already on this level", shown(key)),
            );
        }
    }
    level
}

fn descriptor(node: &Node, findings: &mut Findings) -> Option<Descriptor> {
    let at = Place::from(node);
    let fields = Fields::open(node, "a descriptor", &OF_DESCRIPTOR, findings)?;
    let key = fields.text("key", findings).unwrap_or_default();
    let value = value(&fields, findings);
    let limit = fields.node("rate_limit").and_then(|node| limit(node, findings));
    let shares = fields.truth("share_threshold", findings);
    if key.is_empty() && fields.node("key").is_none_or(|node| node.text().is_some()) {
        findings.problem(fields.place("key").unwrap_or(at), "a descriptor has no key; give it one");
    }
    if key.contains('*') {
        findings.problem(
            fields.place("key").unwrap_or(at),
            format!(
                "the key {} has a star, which in the service matches across the key and the value; no rule can express that: name the keys",
                shown(key)
            ),
        );
    } else if shares && !matches!(value, Value::Pattern(_)) {
        let place = fields.place("share_threshold").unwrap_or(at);
        findings.problem(place, "\"share_threshold\" is for a value with a star");
    }
    let is_shadow = fields.truth("shadow_mode", findings);
    without_effect(&fields, "shadow_mode", is_shadow && limit.is_none(), findings);
    unlike(&fields, limit.is_some(), findings);
    let descriptors = descriptors(&fields, findings);
    Some(Descriptor { at, key: key.to_owned(), value, limit, is_shadow, shares, descriptors })
}

fn value(fields: &Fields<'_>, findings: &mut Findings) -> Value {
    match fields.text("value", findings).unwrap_or_default() {
        "" => Value::Default,
        text if text.contains('*') => Value::Pattern(text.to_owned()),
        text => Value::Exact(text.to_owned()),
    }
}

/// Reports fields that have no equivalent, or no effect.
fn unlike(fields: &Fields<'_>, has_limit: bool, findings: &mut Findings) {
    for (name, message) in [
        ("detailed_metric", "metrics have a label for the rule, never for a value of a descriptor"),
        ("value_to_metric", "metrics have a label for the rule, never for a value of a descriptor"),
    ] {
        if let (true, Some(place)) = (fields.truth(name, findings), fields.place(name)) {
            findings.note(Kind::NoEquivalent, place, format!("{name:?}: {message}"));
        }
    }
    if let Some(place) = fields.place("metadata") {
        let message = "\"metadata\": responses contain no metadata of a limit";
        findings.note(Kind::NoEquivalent, place, message);
    }
    let is_quota = fields.truth("quota_mode", findings);
    without_effect(fields, "quota_mode", is_quota && !has_limit, findings);
    if let (true, true, Some(place)) = (is_quota, has_limit, fields.place("quota_mode")) {
        findings.note(
            Kind::Differs,
            place,
            "\"quota_mode\": a call is denied when this limit is reached; in the service only when all limits of the call with \"quota_mode\" are reached",
        );
    }
}

/// Reports a mode of a descriptor that has no limit.
fn without_effect(fields: &Fields<'_>, name: &str, is_idle: bool, findings: &mut Findings) {
    if let (true, Some(place)) = (is_idle, fields.place(name)) {
        let message = format!("{name:?} has no effect on a descriptor without \"rate_limit\"");
        findings.note(Kind::Ignored, place, message);
    }
}

fn limit(node: &Node, findings: &mut Findings) -> Option<Limit> {
    let at = Place::from(node);
    let fields = Fields::open(node, "\"rate_limit\"", &OF_LIMIT, findings)?;
    let is_unlimited = fields.truth("unlimited", findings);
    let count = fields.number("requests_per_unit", findings);
    let given = fields.text("unit", findings);
    let unit =
        UNITS.into_iter().find(|unit| given.is_some_and(|g| g.eq_ignore_ascii_case(unit.name)));
    let place = fields.place("unit").unwrap_or(at);
    match (is_unlimited, unit) {
        (true, Some(_)) => {
            findings.problem(place, "\"unlimited\" cannot be combined with \"unit\"")
        }
        (false, None) => {
            let names = UNITS.map(|unit| unit.name).join(", ");
            let given = given
                .map_or("has no unit".to_owned(), |text| format!("{} is not a unit", shown(text)));
            findings.problem(place, format!("{given}; use one of {names}"));
        }
        _ => {}
    }
    let name = fields.text("name", findings).filter(|name| !name.is_empty()).map(str::to_owned);
    let replaces = replaces(&fields, name.as_deref(), findings);
    let quota = unit.filter(|_| !is_unlimited).map(|unit| (count, unit));
    Some(Limit { at, quota, name, replaces })
}

fn replaces(fields: &Fields<'_>, own: Option<&str>, findings: &mut Findings) -> Vec<String> {
    let mut names = Vec::new();
    for item in fields.list("replaces", findings) {
        let place = Place::from(item);
        let Some(of) = Fields::open(item, "an item of \"replaces\"", &["name"], findings) else {
            continue;
        };
        match of.text("name", findings) {
            None | Some("") => findings.problem(place, "an item of \"replaces\" has no name"),
            Some(name) if own == Some(name) => {
                findings.problem(place, format!("a limit cannot replace itself, {}", shown(name)));
            }
            Some(name) => names.push(name.to_owned()),
        }
    }
    names
}
