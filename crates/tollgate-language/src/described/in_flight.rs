//! Requests in flight that a caller names in JSON by their ids: the input of `POST /check/renew`
//! and `POST /check/done`.
//!
//! Invariant: any input is either an id or a list of all mistakes, each with the name of its field.
//! Deliberately absent: the format of an id, which its issuer defines.

use alloc::string::String;
use alloc::vec::Vec;

use crate::described::request::{REQUESTS, items_of};
use crate::described::settlement::Id;
use crate::json::node::Node;
use crate::json::place::read_document;
use crate::json::reader::{FromNode, record};
use tollgate_policy::spec::Problems;

record! {
    /// A request in flight.
    InFlightDoc {
        /// The id in the response to the request, or to its last confirmation.
        id: Id,
    }
}

/// The ids of requests in flight.
#[derive(Clone, Debug)]
pub enum DescribedInFlight {
    /// The id of one.
    One(String),
    /// The ids of several in their order, each of which may be wrong independently.
    Many(Vec<Result<String, Problems>>),
}

impl DescribedInFlight {
    /// Reads `{"id": "..."}`, or `{"requests": [...]}` with at most `most` of them.
    ///
    /// # Errors
    /// Every mistake of the one request, or the mistakes of the list.
    ///
    /// ```
    /// use tollgate_language::DescribedInFlight;
    /// let several = br#"{"requests": [{"id": "x"}, {}]}"#;
    /// let Ok(DescribedInFlight::Many(ids)) = DescribedInFlight::parse(several, 100) else {
    ///     panic!("several");
    /// };
    /// assert_eq!(ids[0].as_deref(), Ok("x"));
    /// assert_eq!(ids[1].as_ref().unwrap_err().to_string(), "requests[1].id: is missing");
    /// ```
    pub fn parse(json: &[u8], most: usize) -> Result<Self, Problems> {
        let node = Node::parse_bytes(json)?;
        let Some(items) = items_of(&node, most)? else {
            let one = read_document(&node, |root| InFlightDoc::read(&node, root))?;
            return Ok(Self::One(one.id.0));
        };
        let read = |(i, item)| {
            let of_item =
                read_document(&node, |root| InFlightDoc::read(item, &root.field(REQUESTS).item(i)));
            of_item.map(|doc| doc.id.0)
        };
        Ok(Self::Many(items.iter().enumerate().map(read).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn an_id_is_text() {
        let parse = |json: &str| match DescribedInFlight::parse(json.as_bytes(), 2) {
            Ok(DescribedInFlight::One(id)) => id,
            Ok(DescribedInFlight::Many(ids)) => ids
                .into_iter()
                .map(|id| id.unwrap_or_else(|problems| problems.to_string()))
                .collect::<Vec<_>>()
                .join(" | "),
            Err(problems) => problems.to_string(),
        };
        for (json, expected) in [
            (r#"{"id":"x"}"#, "x"),
            (r#"{"requests":[{"id":"x"},{"id":"y"}]}"#, "x | y"),
            (
                r#"{"requests":[{"id":1},{"id":"y"}]}"#,
                "requests[0].id: 1 is not an id; use the one in the response to the request | y",
            ),
            (r#"{"requests":[]}"#, "requests: is empty; give at least one"),
            ("{}", "id: is missing"),
        ] {
            assert_eq!(parse(json), expected, "{json}");
        }
        for wrong in [
            "",
            "[]",
            "\"x\"",
            r#"{"id":"x","cost":1}"#,
            r#"{"id":"x","id":"x"}"#,
            r#"{"id":"x","requests":[{"id":"x"}]}"#,
            r#"{"requests":{"id":"x"}}"#,
            r#"{"requests":[{"id":"x"},{"id":"x"},{"id":"x"}]}"#,
        ] {
            assert!(DescribedInFlight::parse(wrong.as_bytes(), 2).is_err(), "{wrong}");
        }
    }
}
