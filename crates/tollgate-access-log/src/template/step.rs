//! One variable of a template and the literal text after it, and the search for them in a line.
//!
//! Invariant: an escaped quote ends nothing.

use memchr::{memchr, memrchr};

use crate::draft::Action;
use crate::escape::Escape;

#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) action: Action,
    /// The text has no spaces: it is not text of a client, but an address, a number or a name of
    /// ours.
    pub(super) is_word: bool,
    pub(super) literal: Vec<u8>,
    /// The first eight bytes of the literal, and a mask of those that exist.
    word: u64,
    mask: u64,
    /// A text that [`Draft::take_at_once`](crate::draft::Draft::take_at_once) recognises cannot
    /// contain the literal: it would not be found earlier.
    pub(super) ends_what_is_taken_at_once: bool,
}

impl Step {
    pub(super) fn new(action: Action, is_word: bool, literal: Vec<u8>) -> Self {
        let mut word = [0; 8];
        word.iter_mut().zip(&literal).for_each(|(byte, of)| *byte = *of);
        let mut mask = [0; 8];
        mask.iter_mut().zip(&literal).for_each(|(byte, _)| *byte = 0xff);
        let (word, mask) = (u64::from_le_bytes(word), u64::from_le_bytes(mask));
        let first = literal.first();
        let ends_what_is_taken_at_once = match action {
            Action::Text(_) => first.is_some_and(|byte| !matches!(byte, b'.' | b'0'..=b'9')),
            Action::Time(_) => first.is_some(),
            Action::Skip | Action::Status | Action::Request { .. } => false,
            Action::Path | Action::Query => false,
        };
        Self { action, is_word, literal, word, mask, ends_what_is_taken_at_once }
    }

    /// The position in `rest`, at `from` or later, where the variable may end.
    pub(super) fn end(&self, rest: &[u8], from: usize, escape: Escape) -> Option<usize> {
        let Some(first) = self.literal.first() else { return Some(rest.len()) };
        let mut searched = from;
        loop {
            let found = find(*first, rest.get(searched..)?)?;
            let at = searched.wrapping_add(found);
            if self.begins(rest.get(at..)?)
                && !(*first == b'"' && is_escaped(rest.get(..at)?, escape))
            {
                return Some(at);
            }
            searched = at.wrapping_add(1);
        }
    }

    /// True when `text` begins with the literal; eight bytes are compared at once.
    #[inline]
    pub(super) fn begins(&self, text: &[u8]) -> bool {
        match text.first_chunk::<8>() {
            Some(eight) => {
                let differs = (u64::from_le_bytes(*eight) ^ self.word) & self.mask;
                differs == 0 && (self.literal.len() <= 8 || begins_with(text, &self.literal))
            }
            None => begins_with(text, &self.literal),
        }
    }

    /// The position in `line` of the last occurrence of the literal that ends at or before `to`.
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
    /// format's own, or a space after a text without spaces.
    pub(super) fn is_sure(&self, escape: Escape) -> bool {
        let has_quote = escape != Escape::None && self.literal.contains(&b'"');
        has_quote || self.literal.is_empty() || (self.is_word && self.literal.contains(&b' '))
    }
}

/// The first position of `byte`. Most texts of a line are short: sixteen bytes are compared here,
/// which takes less time than a call.
#[inline]
fn find(byte: u8, text: &[u8]) -> Option<usize> {
    let (near, _) = text.as_chunks::<8>();
    let mut near = near.iter().map(|eight| in_eight(byte, u64::from_le_bytes(*eight)));
    if let Some(Some(at)) = near.next() {
        return Some(at);
    }
    if let Some(Some(at)) = near.next() {
        return Some(at.wrapping_add(8));
    }
    memchr(byte, text)
}

/// The first of the eight bytes of `word`, the lowest first, that equals `byte`. Subtracting 1 from
/// each equal byte borrows its high bit; below the first such byte no other byte does that.
#[inline]
fn in_eight(byte: u8, word: u64) -> Option<usize> {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x8080_8080_8080_8080;
    let same_are_zero = word ^ u64::from_le_bytes([byte; 8]);
    let zeros = same_are_zero.wrapping_sub(ONES) & !same_are_zero & HIGH;
    let at = usize::try_from(zeros.trailing_zeros() >> 3).ok();
    at.filter(|at| *at < 8)
}

/// Whether the text after `before` is escaped by it: an odd number of backslashes.
fn is_escaped(before: &[u8], escape: Escape) -> bool {
    let has_backslashes = matches!(escape, Escape::Backslash | Escape::Json);
    if !has_backslashes || before.last() != Some(&b'\\') {
        return false;
    }
    let backslashes = before.iter().rev().take_while(|byte| **byte == b'\\').count();
    !backslashes.is_multiple_of(2)
}

/// `text.starts_with(literal)`, for literals of a few bytes, where a call costs more than the
/// comparison. A call costs most for an empty literal, since `memcmp` then does a masked read
/// of an address that is not memory.
#[inline]
pub(super) fn begins_with(text: &[u8], literal: &[u8]) -> bool {
    text.len() >= literal.len() && text.iter().zip(literal).all(|(one, other)| one == other)
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_is_found_where_memchr_finds_it() {
        // Bytes that differ by one, or by the high bit, could be confused by a borrow.
        let bytes = [b' ', b' ' + 1, b' ' - 1, b' ' | 0x80, 0, 0xff];
        for length in 0..20_usize {
            for start in 0..bytes.len().pow(2) {
                let text: Vec<u8> = (0..length)
                    .map(|i| bytes[(start / (1 + i % 2 * 5) + i * i * start) % bytes.len()])
                    .collect();
                for byte in bytes {
                    assert_eq!(find(byte, &text), memchr(byte, &text), "{byte} in {text:?}");
                }
            }
        }
    }

    #[test]
    fn a_literal_of_any_length_is_seen() {
        let text = b"abcdefghijkl";
        for length in 1..12 {
            let step = Step::new(Action::Skip, false, text[..length].to_vec());
            assert!(step.begins(text) && step.begins(&text[..length]));
            assert!(!step.begins(&text[..length - 1]) && !step.begins(&text[1..]));
            let mut other = text.to_vec();
            other[length - 1] ^= 1;
            assert!(!step.begins(&other), "{length}");
            assert_eq!(step.end(text, 0, Escape::None), Some(0));
        }
    }
}
