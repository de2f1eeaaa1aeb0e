//! The names in the document of the readings of escaped slashes.
//!
//! Invariant: `tollgate_http_syntax` defines the readings; this file only names them.

use crate::json::reader::names;
use tollgate_http_syntax::readings::EscapedSlashes;

names! {
    EscapedSlashes ("reading") {
        /// Possibly a slash: a rule holds if any reading matches, an exemption only if all do.
        "separator" => Separator,
        /// A character of its segment.
        "literal" => Literal,
    }
}
