//! What escaped slashes are, in the words of the document.
//!
//! Invariant: the ways to read them are those of `http`; here they have their names.

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
