//! The number of fleet rules that may apply to one request. A proxy sends one message about all of
//! them to its authority, so that all are charged or none, and a message has room for a limited
//! number.
//!
//! Invariant: the count is never too low for a path that is read in one way. It may be too high:
//! rules are distinguished only by their conditions on one segment of the path, or on the host.

use alloc::format;
use alloc::vec::Vec;

use crate::document::root::Document;
use crate::document::rule::RuleDoc;
use crate::json::place::At;
use tollgate_http_syntax::path::Segment;
use tollgate_http_syntax::sort::sort_by;
use tollgate_policy::SlabMap;
use tollgate_policy::spec::{Conditions, Host, MAX_FLEET_RULES, Scope};

/// The leading segments of a path that can distinguish rules.
const DEPTH: usize = 8;

/// Notes the first rule above the limit.
pub(super) fn errors(document: &Document, rules_at: &At<'_>) {
    let is_fleet = |(_, rule): &(usize, &RuleDoc)| rule.scope() == Scope::Fleet;
    let rules: Vec<(usize, &RuleDoc)> = document.rules().filter(is_fleet).collect();
    if rules.len() <= MAX_FLEET_RULES {
        return;
    }
    let by_host = together(&rules, hosts);
    let by_path = (0..DEPTH).map(|depth| together(&rules, |rule| segments(rule, depth)));
    let Some(most) = by_path.chain([by_host]).min_by_key(Vec::len) else { return };
    if let Some(i) = most.get(MAX_FLEET_RULES) {
        rules_at.item(*i).field("scope").problem(format!(
            "is one of {} rules with \"fleet\" that may apply to one request; use at most \
             {MAX_FLEET_RULES}, or give them different \"paths\" or \"hosts\"",
            most.len()
        ));
    }
}

/// The most rules that may apply together, when a request has one of the values that each names;
/// `None` names any.
fn together<'d>(
    rules: &[(usize, &'d RuleDoc)],
    values: impl Fn(&'d RuleDoc) -> Option<Vec<&'d [u8]>>,
) -> Vec<usize> {
    let mut always = Vec::new();
    let mut by_value: SlabMap<&[u8], Vec<usize>> = SlabMap::new();
    for (i, rule) in rules {
        match values(rule) {
            None => always.push(*i),
            Some(mut values) => {
                sort_by(&mut values, Ord::cmp);
                values.dedup();
                for value in values {
                    by_value.insert_new(value, Vec::new());
                    by_value.get_mut(&value).into_iter().for_each(|rules| rules.push(*i));
                }
            }
        }
    }
    always.extend(by_value.values().max_by_key(|rules| rules.len()).into_iter().flatten());
    always
}

/// The values of the path segment at `depth` that the rule applies to: none where the path ends.
fn segments(rule: &RuleDoc, depth: usize) -> Option<Vec<&[u8]>> {
    let paths = rule.when.as_ref().and_then(Conditions::paths)?;
    paths
        .iter()
        .map(|pattern| match pattern.segments.get(depth) {
            Some(Segment::Literal(literal)) => Some(literal.as_slice()),
            None if !pattern.rest => Some(&[][..]),
            Some(Segment::Any | Segment::Capture(_)) | None => None,
        })
        .collect()
}

/// The hosts that the rule applies to.
fn hosts(rule: &RuleDoc) -> Option<Vec<&[u8]>> {
    let hosts = rule.when.as_ref().and_then(Conditions::hosts)?;
    hosts
        .iter()
        .map(|host| match host {
            Host::Exact(name) => Some(name.as_slice()),
            Host::Suffix(_) => None,
        })
        .collect()
}
