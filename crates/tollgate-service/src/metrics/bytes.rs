//! Reading little-endian fields from arbitrary bytes.

use alloc::vec::Vec;

/// The version of the deltas of isolates and of the stored pages.
pub(super) const VERSION: u8 = 1;

/// The rest of some bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_le_bytes)
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// A text after its length in two bytes.
    pub(super) fn block(&mut self) -> Option<&'a [u8]> {
        let length = usize::from(self.u16()?);
        let (block, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(block)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (array, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*array)
    }
}

/// Writes `block` after its length; the caller knows that it is at most 65,535 bytes.
pub(super) fn push_block(block: &[u8], to: &mut Vec<u8>) {
    debug_assert!(block.len() <= usize::from(u16::MAX), "a block of {} bytes", block.len());
    let length = u16::try_from(block.len()).unwrap_or(u16::MAX);
    to.extend(length.to_le_bytes());
    to.extend(block.iter().take(usize::from(length)));
}
