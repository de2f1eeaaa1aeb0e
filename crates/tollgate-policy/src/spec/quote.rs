//! A document's own text in a message.
//!
//! Invariant: one line, shortened, control characters escaped.

use alloc::string::String;

/// The longest piece of a document that a message repeats, in characters.
pub const MAX_QUOTED: usize = 60;

/// `text` in quotes, control characters escaped, shortened.
pub fn quoted_text(text: &str) -> String {
    let mut out = String::from("\"");
    for (i, c) in text.chars().enumerate() {
        if i == MAX_QUOTED {
            out.push_str("...");
            break;
        }
        out.extend(c.escape_debug());
    }
    out.push('"');
    out
}
