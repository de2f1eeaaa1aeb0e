//! The bytes of a state of a few fields: little-endian `u64`s in their order, nothing between them.
//!
//! Invariant: all zero bytes are the state "never seen", and decoding accepts any bytes (each
//! algorithm brings an impossible state within its quota before use), so no stored value can trap.
//! The version of the layout is kept once by the store of the bytes (`layout.rs`), not in every
//! state.

/// A state of a fixed number of bytes.
pub(crate) trait Encoded: Copy {
    /// Bytes it takes.
    const LEN: usize;
    /// Reads a state from exactly [`Encoded::LEN`] bytes; missing bytes read as zero.
    fn decode(bytes: &[u8]) -> Self;
    /// Writes the state into exactly [`Encoded::LEN`] bytes.
    fn encode(self, bytes: &mut [u8]);
}

/// The `index`-th little-endian `u64` of `bytes`; 0 beyond the end.
pub(crate) fn read_u64(bytes: &[u8], index: usize) -> u64 {
    let (words, _) = bytes.as_chunks::<8>();
    words.get(index).map_or(0, |word| u64::from_le_bytes(*word))
}

/// Writes the `index`-th little-endian `u64` of `bytes`; nothing happens beyond the end.
pub(crate) fn write_u64(bytes: &mut [u8], index: usize, value: u64) {
    let (words, _) = bytes.as_chunks_mut::<8>();
    if let Some(word) = words.get_mut(index) {
        *word = value.to_le_bytes();
    }
}

/// A position as `usize`. The callers' are at most 1025, so that it fits on every target; a larger
/// one would be cut, and reads and writes beyond the end do nothing.
#[expect(clippy::as_conversions, reason = "`usize::try_from` is not const")]
pub(crate) const fn position(index: u64) -> usize {
    index as usize
}
