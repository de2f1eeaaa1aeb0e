//! Reading numbers and blocks from the front of arbitrary bytes.
//!
//! Invariant: numbers are little-endian, and `None` means that the bytes end too early.

use alloc::vec::Vec;

/// The rest of some bytes.
#[derive(Clone, Copy, Debug)]
pub struct Bytes<'b>(pub &'b [u8]);

impl<'b> Bytes<'b> {
    /// The next `len` bytes.
    #[inline]
    pub fn take(&mut self, len: usize) -> Option<&'b [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    /// The next `N` bytes.
    #[inline]
    pub fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    /// The next byte.
    #[inline]
    pub fn u8(&mut self) -> Option<u8> {
        self.array().map(|[byte]| byte)
    }

    /// A number of two bytes.
    #[inline]
    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    /// A number of four bytes.
    #[inline]
    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    /// A number of eight bytes.
    #[inline]
    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// A number of 16 bytes.
    #[inline]
    pub fn u128(&mut self) -> Option<u128> {
        self.array().map(u128::from_le_bytes)
    }

    /// The bytes that [`push_block`] wrote.
    #[inline]
    pub fn block(&mut self) -> Option<&'b [u8]> {
        let len = self.u16()?;
        self.take(len.into())
    }
}

/// Appends `block` after its length in two bytes; the caller knows that it has at most 65,535.
pub fn push_block(block: &[u8], out: &mut Vec<u8>) {
    debug_assert!(block.len() <= usize::from(u16::MAX), "a block of {} bytes", block.len());
    let len = u16::try_from(block.len()).unwrap_or(u16::MAX);
    out.extend(len.to_le_bytes());
    out.extend(block.iter().take(len.into()));
}
