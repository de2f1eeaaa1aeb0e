//! The part of a policy that reads a fact, in the words of its document.
//!
//! Invariant: every reader has a name. Deliberately not here: which facts a source of requests has.

use tollgate_policy::explain::{Read, Reader};
use tollgate_policy::{Policy, Rule};

/// The name of the rule that reads it, if one does, and the part that does: `key`, `tier "gold"`.
pub(crate) fn reader<'p>(policy: &'p Policy, read: &Read<'p>) -> (Option<&'p str>, String) {
    let rule = match read.by {
        Reader::Deny(name, _) => Some(name),
        by => by.rule().and_then(|i| policy.rules().get(i)).map(Rule::name),
    };
    let part = match read.by {
        Reader::Exempt(i) => format!("exempt[{i}]"),
        Reader::Tenant => "tenant".to_owned(),
        Reader::Condition(_, name) | Reader::Deny(_, name) => name.to_owned(),
        Reader::Key(_) => "key".to_owned(),
        Reader::Tier(_, name) => format!("tier \"{name}\""),
        Reader::Cost(_) => "cost".to_owned(),
        Reader::Charge(_) => "charge".to_owned(),
        Reader::Limit(_) => "limit_from".to_owned(),
    };
    (rule, part)
}
