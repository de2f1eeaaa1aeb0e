//! The value of a field while it is written: on the stack as long as it is as short as values are.
//!
//! Invariant: what was written is what is read, whole, however long it is; only what is longer than
//! [`INLINE`] bytes is allocated. It belongs to one call, so that a plan holds nothing that two
//! threads could write at once.

use alloc::string::String;
use core::fmt;

/// Bytes on the stack: the fields of ten quotas with usual names.
const INLINE: usize = 512;

/// Text that grows.
pub(crate) struct Text {
    inline: [u8; INLINE],
    /// Bytes of `inline` in use; what is longer is all in `long`.
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

    pub(crate) fn is_empty(&self) -> bool {
        self.as_str().is_empty()
    }

    /// Only whole `&str`s were copied there.
    fn short(&self) -> &str {
        let written = self.inline.get(..self.len).unwrap_or_default();
        let text = core::str::from_utf8(written);
        debug_assert!(text.is_ok(), "only text was written");
        text.unwrap_or_default()
    }
}

impl fmt::Write for Text {
    fn write_str(&mut self, more: &str) -> fmt::Result {
        if self.long.is_empty() {
            let end = self.len.saturating_add(more.len());
            if let Some(room) = self.inline.get_mut(self.len..end) {
                room.copy_from_slice(more.as_bytes());
                self.len = end;
                return Ok(());
            }
            let mut long = String::with_capacity(end.saturating_mul(2));
            long.push_str(self.short());
            self.long = long;
        }
        self.long.push_str(more);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::fmt::Write;

    #[test]
    fn text_is_whole_at_the_edge_and_beyond() {
        for piece in ["a", "ä", "abc"] {
            for count in [0, 1, INLINE / piece.len(), INLINE / piece.len() + 1, 3 * INLINE] {
                let mut text = Text::new();
                text.write_str("before").expect("text");
                text.clear();
                assert!(text.is_empty());
                (0..count).for_each(|_| text.write_str(piece).expect("text"));
                assert_eq!(text.as_str(), piece.repeat(count));
                assert_eq!(text.long.is_empty(), count * piece.len() <= INLINE);
            }
        }
    }
}
