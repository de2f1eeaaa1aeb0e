//! Sets of allowed bytes, as a table: one look-up for each byte of a path or a host.
//!
//! Invariant: a set is computed by the compiler, which reports an error where the computation would
//! panic.

/// A set of bytes.
pub struct ByteSet([bool; 256]);

impl ByteSet {
    /// ASCII letters, digits and `others`.
    #[expect(clippy::as_conversions, clippy::indexing_slicing, clippy::arithmetic_side_effects)]
    pub const fn alphanumeric_and(others: &[u8]) -> Self {
        let mut set = [false; 256];
        let mut byte = 0_u8;
        while byte < 128 {
            set[byte as usize] = byte.is_ascii_alphanumeric();
            byte += 1;
        }
        let mut i = 0;
        while i < others.len() {
            set[others[i] as usize] = true;
            i += 1;
        }
        Self(set)
    }

    /// True when `byte` is in the set.
    pub fn contains(&self, byte: u8) -> bool {
        self.0.get(usize::from(byte)) == Some(&true)
    }

    /// The number of bytes of `text` in the set before the first that is not.
    pub fn prefix_len(&self, text: &[u8]) -> usize {
        text.iter().position(|byte| !self.contains(*byte)).unwrap_or(text.len())
    }
}
