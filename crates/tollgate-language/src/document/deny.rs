//! An item of `rules`: a rule that counts, or one that denies without counting.
//!
//! Invariant: the field `deny` distinguishes the two. A field that only a rule that counts has is
//! an error in one that denies, with the reason, never ignored.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use tollgate_policy::spec::{
    Action, Bounded, Conditions, DENY_STATUS, DenyRule, Name, Reply, Text,
};

use crate::document::rule::RuleDoc;
use crate::json::node::Node;
use crate::json::place::At;
use crate::json::reader::{FromNode, choice, record, schema};

/// One item of `rules`.
#[derive(Clone, Debug)]
pub(crate) enum RuleItem {
    /// A rule that counts.
    Count(Box<RuleDoc>),
    /// A rule that denies.
    Deny(DenyRuleDoc),
}

record! {
    /// A rule that denies every request that it matches. It counts nothing.
    DenyRuleDoc {
        /// The rule's name, unique in the policy.
        name: Name,
        /// Conditions that must all hold; without conditions every request is denied.
        when: Option<Conditions>,
        /// Conditions that exclude a request when all of them hold, even if `when` holds.
        unless: Option<Conditions>,
        /// true for a denial with 403, or the status and the body of the response.
        deny: DenialDoc,
        /// "shadow" only counts the requests that would be denied; "enforce" by default.
        mode: Option<DenyMode>,
    }
}

choice! {
    /// Whether a rule denies.
    DenyMode ("mode") {
        /// Requests that match are denied.
        "enforce" => Enforce,
        /// Requests that match are counted and not denied.
        "shadow" => Shadow,
    }
}

/// The response to a denied request.
#[derive(Clone, Debug)]
pub(crate) struct DenialDoc(Reply);

record! {
    /// The status and the body of a denial.
    DenialReplyDoc {
        /// The response's status; 403 by default.
        status: Option<Bounded<400, 599>>,
        /// The response's body, text/plain; the body of a denial in `response` by default.
        body: Option<Text>,
    }
}

/// Fields of a rule that counts, and the reason why a rule that denies has none of them.
const OF_COUNTS: [(&str, &str); 14] = [
    ("key", COUNTS_NOTHING),
    ("on_missing", COUNTS_NOTHING),
    ("quotas", COUNTS_NOTHING),
    ("concurrency", COUNTS_NOTHING),
    ("cost", COUNTS_NOTHING),
    ("charge", COUNTS_NOTHING),
    ("tiers", COUNTS_NOTHING),
    ("action", NO_LIMIT),
    ("on_failure", NO_STATE),
    ("scope", COUNTS_NOTHING),
    ("lease", COUNTS_NOTHING),
    ("capacity", COUNTS_NOTHING),
    ("durability", COUNTS_NOTHING),
    ("shards", COUNTS_NOTHING),
];

const COUNTS_NOTHING: &str =
    "is for a rule that counts, and a rule with \"deny\" counts nothing; leave it out";
const NO_LIMIT: &str = "is for a request over a limit, and a rule with \"deny\" has no limit; leave it out, and give \
                        \"deny\" a status and a body";
const NO_KEY: &str =
    "selects keys, and a rule with \"deny\" has no key; use \"enforce\" or \"shadow\"";
const NO_STATE: &str =
    "is for a count that cannot be read, and a rule with \"deny\" reads none; leave it out";

impl FromNode for RuleItem {
    fn read(node: &Node, at: &At<'_>) -> Option<Self> {
        match node {
            Node::Object(fields) if fields.iter().any(|(name, _)| name == "deny") => {
                DenyRuleDoc::read(&without_counts(fields, at), at).map(Self::Deny)
            }
            _ => RuleDoc::read(node, at).map(|rule| Self::Count(Box::new(rule))),
        }
    }

    schema!({"anyOf": [counting_schema(), DenyRuleDoc::schema()]});
}

/// A rule that counts has quotas, or a limit on requests in flight.
#[cfg(feature = "schema")]
fn counting_schema() -> serde_json::Value {
    let mut schema = RuleDoc::schema();
    let one = ["quotas", "concurrency"].map(|name| serde_json::json!({"required": [name]}));
    if let Some(object) = schema.as_object_mut() {
        object.insert("allOf".into(), serde_json::json!([{"anyOf": one}]));
    }
    schema
}

/// The object without the fields of a rule that counts, each of which is noted as a problem.
fn without_counts(fields: &[(String, Node)], at: &At<'_>) -> Node {
    let mut own = Vec::new();
    for (name, value) in fields {
        match OF_COUNTS.iter().find(|(of_counts, _)| of_counts == name) {
            Some((name, message)) => at.field(name).problem((*message).into()),
            None if name == "mode" && matches!(value, Node::Object(_)) => {
                at.field("mode").problem(NO_KEY.into());
            }
            None => own.push((name.clone(), value.clone())),
        }
    }
    Node::Object(own)
}

impl FromNode for DenialDoc {
    fn read(node: &Node, at: &At<'_>) -> Option<Self> {
        match node {
            Node::Bool(true) => Some(Self(Reply { status: DENY_STATUS, body: None })),
            Node::Object(_) => {
                let DenialReplyDoc { status, body } = DenialReplyDoc::read(node, at)?;
                let status = status.map_or(DENY_STATUS, |status| Bounded(status.0));
                Some(Self(Reply { status, body }))
            }
            _ => at.wrong(
                node,
                "a denial; use true or {\"status\": 403}, or leave it out for a rule that counts",
            ),
        }
    }

    schema!({"anyOf": [{"const": true}, DenialReplyDoc::schema()]});
}

impl DenyRuleDoc {
    /// True unless it is in shadow mode.
    pub(crate) fn is_enforced(&self) -> bool {
        self.mode != Some(DenyMode::Shadow)
    }

    /// The rule at this place among all rules.
    pub(crate) fn into_rule(self, place: u16) -> DenyRule {
        let is_enforced = self.is_enforced();
        let Self { name, when, unless, deny: DenialDoc(reply), mode: _ } = self;
        DenyRule { name: name.0, place, when, unless, is_enforced, reply }
    }
}

impl RuleItem {
    /// The rule's name.
    pub(crate) fn name(&self) -> &Name {
        match self {
            Self::Count(rule) => &rule.name,
            Self::Deny(rule) => &rule.name,
        }
    }

    /// Conditions that must all hold.
    pub(crate) fn when(&self) -> Option<&Conditions> {
        match self {
            Self::Count(rule) => rule.when.as_ref(),
            Self::Deny(rule) => rule.when.as_ref(),
        }
    }

    /// All conditions, to be rewritten.
    pub(crate) fn conditions_mut(&mut self) -> Vec<&mut Conditions> {
        match self {
            Self::Deny(rule) => rule.when.iter_mut().chain(&mut rule.unless).collect(),
            Self::Count(rule) => {
                let own = rule.when.iter_mut().chain(&mut rule.unless);
                let tiers = rule.tiers.iter_mut().flat_map(|list| &mut list.0);
                let own = own.chain(tiers.filter_map(|tier| tier.when.as_mut()));
                match &mut rule.action {
                    Some(Action::Delay(delay)) => own.chain(&mut delay.priority).collect(),
                    Some(Action::Deny(_) | Action::Mark(_) | Action::Respond(_)) | None => {
                        own.collect()
                    }
                }
            }
        }
    }

    /// Conditions that exclude a request when all of them hold.
    pub(crate) fn unless(&self) -> Option<&Conditions> {
        match self {
            Self::Count(rule) => rule.unless.as_ref(),
            Self::Deny(rule) => rule.unless.as_ref(),
        }
    }
}
