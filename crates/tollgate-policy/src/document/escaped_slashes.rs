//! The names in the document of the readings of escaped slashes.
//!
//! Invariant: `http` defines the readings; this file only names them.

use crate::http::readings::EscapedSlashes;
use crate::json::reader::names;

names! {
    EscapedSlashes ("reading") {
        /// Perhaps a slash: a rule holds if either reading matches, an exemption only if both do.
        "separator" => Separator,
        /// A letter of its segment.
        "literal" => Literal,
    }
}
