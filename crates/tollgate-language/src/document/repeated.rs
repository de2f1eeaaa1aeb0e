//! The names in the document of the modes for several values.
//!
//! Invariant: `tollgate_http_syntax` defines the modes; this file only names them.

use crate::json::reader::names;
use tollgate_http_syntax::repeated::Repeated;

/// Why a cost or a token has fewer modes than a key.
pub(crate) const NO_JOIN: &str =
    "\"join\" makes a list, and one value is read here; use \"refuse\", \"first\" or \"last\"";

names! {
    Repeated ("mode") {
        /// The value that all are equal to; a request whose values differ is denied with 400.
        "refuse" => Refuse,
        /// The first value.
        "first" => First,
        /// The last value.
        "last" => Last,
        /// All values together, in their order.
        "join" => Join,
    }
}
