//! One variable of a template and the literal text behind it, as a line is searched for them.
//!
//! Invariant: a quote that is escaped ends nothing.

use memchr::{memchr, memrchr};

use crate::draft::Action;
use crate::escape::Escape;

#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) action: Action,
    /// The text has no spaces: no client's words, but an address, a number or a name of ours.
    pub(super) is_word: bool,
    pub(super) literal: Vec<u8>,
}

impl Step {
    /// Where in `rest`, at `from` or later, the variable may end.
    pub(super) fn end(&self, rest: &[u8], from: usize, escape: Escape) -> Option<usize> {
        let Some(first) = self.literal.first() else { return Some(rest.len()) };
        let mut searched = from;
        loop {
            let found = memchr(*first, rest.get(searched..)?)?;
            let at = searched.wrapping_add(found);
            let is_escaped = *first == b'"' && is_escaped(rest.get(..at)?, escape);
            if !is_escaped && begins_with(rest.get(at..)?, &self.literal) {
                return Some(at);
            }
            searched = at.wrapping_add(1);
        }
    }

    /// Where in `line`, before `to`, the literal begins for the last time, and ends by then.
    pub(super) fn last_end(&self, line: &[u8], to: usize, escape: Escape) -> Option<usize> {
        let first = self.literal.first()?;
        let mut searched = to.checked_sub(self.literal.len())?.checked_add(1)?;
        loop {
            let at = memrchr(*first, line.get(..searched)?)?;
            let is_escaped = *first == b'"' && is_escaped(line.get(..at)?, escape);
            if !is_escaped && begins_with(line.get(at..)?, &self.literal) {
                return Some(at);
            }
            searched = at;
        }
    }

    /// Whether only one place of a line can be the variable's end: an unescaped quote of the
    /// format's own, or a space behind what has none.
    pub(super) fn is_sure(&self, escape: Escape) -> bool {
        let has_quote = escape != Escape::None && self.literal.contains(&b'"');
        has_quote || self.literal.is_empty() || (self.is_word && self.literal.contains(&b' '))
    }
}

/// Whether what stands behind `before` is escaped by it: an odd number of backslashes.
fn is_escaped(before: &[u8], escape: Escape) -> bool {
    let has_backslashes = matches!(escape, Escape::Backslash | Escape::Json);
    if !has_backslashes || before.last() != Some(&b'\\') {
        return false;
    }
    let backslashes = before.iter().rev().take_while(|byte| **byte == b'\\').count();
    !backslashes.is_multiple_of(2)
}

/// `text.starts_with(literal)`, for literals of a few bytes: a call costs more than they do. With
/// none at all it costs most, since `memcmp` then looks at what is no memory, by a mask.
#[inline]
pub(super) fn begins_with(text: &[u8], literal: &[u8]) -> bool {
    text.len() >= literal.len() && text.iter().zip(literal).all(|(one, other)| one == other)
}
