//! The value of a field while it is written: on the stack unless it is unusually long.
//!
//! Invariant: the text that was written is read back whole, whatever its length; only text longer
//! than [`INLINE`] bytes is allocated. It belongs to one call, so that a plan contains no buffer
//! that two threads could write at once.

use alloc::string::String;

/// Bytes on the stack: the fields of ten quotas with usual names.
const INLINE: usize = 512;

/// The digits of the greatest number.
pub(crate) const DIGITS: usize = 20;

/// A number in decimal, in `room`. Not with `core::fmt`, which takes several times as long: fields
/// are written for every request.
pub(crate) fn digits(number: u64, room: &mut [u8; DIGITS]) -> &str {
    core::str::from_utf8(digit_bytes(number, room)).unwrap_or_default()
}

/// The same, not yet as text.
fn digit_bytes(number: u64, room: &mut [u8; DIGITS]) -> &[u8] {
    let (mut first, mut rest) = (DIGITS, number);
    for (index, digit) in room.iter_mut().enumerate().rev() {
        let [last, ..] = (rest % 10).to_le_bytes();
        *digit = b'0' | last;
        first = index;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    room.get(first..).unwrap_or_default()
}

/// A growing text.
pub(crate) struct Text {
    inline: [u8; INLINE],
    /// Bytes of `inline` in use; longer text is all in `long`.
    len: usize,
    long: String,
}

impl Text {
    pub(crate) const fn new() -> Self {
        Self { inline: [0; INLINE], len: 0, long: String::new() }
    }

    pub(crate) fn clear(&mut self) {
        self.len = 0;
        self.long.clear();
    }

    pub(crate) fn as_str(&self) -> &str {
        if self.long.is_empty() { self.short() } else { &self.long }
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.len == 0 && self.long.is_empty()
    }

    pub(crate) fn push(&mut self, more: &str) {
        if self.push_inline(more.as_bytes()) {
            return;
        }
        if self.long.is_empty() {
            let len = self.len.saturating_add(more.len());
            let mut long = String::with_capacity(len.saturating_mul(2));
            long.push_str(self.short());
            self.long = long;
        }
        self.long.push_str(more);
    }

    /// False when there is no room for these bytes, which are whole characters.
    fn push_inline(&mut self, more: &[u8]) -> bool {
        let end = self.len.saturating_add(more.len());
        let room = self.inline.get_mut(self.len..end).filter(|_| self.long.is_empty());
        if let Some(room) = room {
            room.copy_from_slice(more);
            self.len = end;
            return true;
        }
        false
    }

    /// Appends a number in decimal.
    pub(crate) fn push_number(&mut self, number: u64) {
        if !self.push_inline(digit_bytes(number, &mut [0; DIGITS])) {
            self.push(digits(number, &mut [0; DIGITS]));
        }
    }

    /// `inline` contains only whole `&str`s.
    fn short(&self) -> &str {
        let written = self.inline.get(..self.len).unwrap_or_default();
        let text = core::str::from_utf8(written);
        debug_assert!(text.is_ok(), "only text was written");
        text.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn text_is_whole_at_the_edge_and_beyond() {
        for piece in ["a", "ä", "abc"] {
            for count in [0, 1, INLINE / piece.len(), INLINE / piece.len() + 1, 3 * INLINE] {
                let mut text = Text::new();
                text.push("before");
                text.clear();
                assert!(text.is_empty());
                (0..count).for_each(|_| text.push(piece));
                assert_eq!(text.as_str(), piece.repeat(count));
                assert_eq!(text.long.is_empty(), count * piece.len() <= INLINE);
            }
        }
    }

    #[test]
    fn numbers_are_in_decimal() {
        let powers = (0..20).map(|power| 10_u64.pow(power));
        let around = powers.flat_map(|power| [power - 1, power, power + 1]);
        for number in around.chain([u64::MAX - 1, u64::MAX]) {
            let mut text = Text::new();
            text.push("n=");
            text.push_number(number);
            assert_eq!(text.as_str().strip_prefix("n="), Some(&*number.to_string()));
        }
    }
}
