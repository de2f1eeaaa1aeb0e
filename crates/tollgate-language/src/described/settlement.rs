//! A settlement of a cost that a caller describes in JSON: the input of the Worker's `POST
//! /check/settle`.
//!
//! Invariant: any input is either a settlement or a list of all mistakes, each with the name of its
//! field. Deliberately absent: the format of an id, which its issuer defines.

use alloc::string::String;

use crate::json::node::Node;
use crate::json::place::{At, read_document};
use crate::json::reader::{FromNode, record, schema};
use tollgate_policy::spec::{Bounded, Problems};

record! {
    /// The final cost of a request.
    SettlementDoc {
        /// The id in the response to the request.
        id: Id,
        /// Its final cost.
        cost: Bounded<0, 1_000_000_000>,
    }
}

/// A settlement as its caller described it.
#[derive(Clone, Debug)]
pub struct DescribedSettlement(SettlementDoc);

impl DescribedSettlement {
    /// Reads `{"id": "...", "cost": 350}`.
    ///
    /// # Errors
    /// Every mistake, with the name of its field and what is allowed.
    ///
    /// ```
    /// use tollgate_language::DescribedSettlement;
    /// let settlement = DescribedSettlement::parse(br#"{"id": "x", "cost": 350}"#)?;
    /// assert_eq!((settlement.id(), settlement.cost()), ("x", 350));
    /// let wrong = DescribedSettlement::parse(br#"{"id": "x", "cost": -1}"#).unwrap_err();
    /// assert_eq!(wrong.to_string(), "cost: -1 is not a whole number from 0 to 1000000000");
    /// # Ok::<(), tollgate_policy::Problems>(())
    /// ```
    pub fn parse(json: &[u8]) -> Result<Self, Problems> {
        let node = Node::parse_bytes(json)?;
        read_document(&node, |root| SettlementDoc::read(&node, root)).map(Self)
    }

    /// The id, unchanged.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.0.id.0
    }

    /// The cost in quota units, 0 to 1,000,000,000.
    #[must_use]
    pub fn cost(&self) -> u64 {
        self.0.cost.0.into()
    }
}

/// An id of a request.
#[derive(Clone, Debug)]
pub(crate) struct Id(pub(crate) String);

impl FromNode for Id {
    fn read(node: &Node, at: &At<'_>) -> Option<Self> {
        match node {
            Node::Text(text) => Some(Self(text.clone())),
            _ => at.wrong(node, "an id; use the one in the response to the request"),
        }
    }

    schema!({"type": "string"});
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::string::ToString;

    #[test]
    fn a_cost_is_a_whole_number_of_units() {
        for (cost, expected) in [("0", Some(0)), ("1000000000", Some(1_000_000_000))] {
            let json = format!("{{\"cost\":{cost},\"id\":\"\"}}");
            assert_eq!(
                DescribedSettlement::parse(json.as_bytes()).ok().map(|s| s.cost()),
                expected
            );
        }
        for wrong in [
            "-1",
            "-0.5",
            "0.5",
            "1e-1",
            "1000000001",
            "18446744073709551615",
            "18446744073709551616",
            "null",
            "\"5\"",
            "[5]",
            "true",
        ] {
            let json = format!("{{\"id\":\"x\",\"cost\":{wrong}}}");
            let problems =
                DescribedSettlement::parse(json.as_bytes()).expect_err(wrong).to_string();
            assert!(problems.starts_with("cost: "), "{wrong}: {problems}");
        }
        for (wrong, expected) in [
            ("", "not JSON"),
            (r#"{"id":"x","cost":1e400}"#, "not JSON"),
            ("[]", "is not an object"),
            (r#"{"id":"x"}"#, "cost: is missing"),
            (r#"{"cost":1}"#, "id: is missing"),
            (r#"{"id":1,"cost":1}"#, "id: 1 is not an id"),
            (r#"{"id":"x","cost":1,"costs":1}"#, "costs"),
            (r#"{"id":"x","cost":1,"cost":2}"#, "cost"),
        ] {
            let problems =
                DescribedSettlement::parse(wrong.as_bytes()).expect_err(wrong).to_string();
            assert!(problems.contains(expected), "{wrong}: {problems}");
        }
    }
}
