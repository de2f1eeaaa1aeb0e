//! The mode of a rule: the keys for which it is enforced.
//!
//! Invariant: an enforced key is enforced every time, and a client cannot compute which keys are
//! enforced.

use crate::document::scalar::Salt;
use crate::json::node::Node;
use crate::json::place::At;
use crate::json::reader::{FromNode, record, schema};
use tollgate_policy::spec::{Bounded, Mode, Share};

record! {
    /// Enforcement for a percentage of the keys.
    PercentDoc {
        /// The percentage of keys for which the rule is enforced; the same keys every time.
        enforce_percent: Bounded<0, 100>,
        /// A secret that selects the keys, the same keys on every surface. Keep it secret. By
        /// default a secret of the surface selects the keys.
        salt: Option<Salt>,
    }
}

impl FromNode for Mode {
    fn read(node: &Node, at: &At<'_>) -> Option<Self> {
        match node {
            Node::Text(text) if text == "enforce" => Some(Self::Enforce),
            Node::Text(text) if text == "shadow" => Some(Self::Shadow),
            Node::Object(_) => {
                let doc = PercentDoc::read(node, at)?;
                let hash_key = doc.salt.map(|salt| salt.hash_key());
                Some(Self::EnforcePercent(Share { percent: doc.enforce_percent.0, hash_key }))
            }
            _ => at
                .not_text(node, "a mode; use \"enforce\", \"shadow\" or {\"enforce_percent\": 10}"),
        }
    }

    schema!({"anyOf": [{"enum": ["enforce", "shadow"]}, PercentDoc::schema()]});
}
