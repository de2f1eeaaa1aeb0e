//! The host's map that all workers share, as a trait: reads, and conditional writes.
//!
//! Invariant: there is no blind write. A value replaces exactly the bytes that were read (compare
//! and swap), or is inserted where the name was absent ([`INSERT`]). Deliberately absent: the
//! meaning of the bytes; that is `table`'s.

/// The compare-and-swap number that inserts a bucket: the host inserts if there is none and returns
/// "mismatch" if another worker did. Writing without a number would be blind and lose updates.
pub const INSERT: u32 = u32::MAX;

/// The host's value under a name.
pub enum Stored {
    /// Nothing.
    Absent,
    /// These bytes; the number is the condition under which they may be replaced.
    Value(Vec<u8>, u32),
    /// The host did not respond.
    Unreachable,
}

/// The result of a conditional write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// The value was written.
    Done,
    /// Another worker wrote since the read.
    Lost,
    /// The host did not respond.
    Unreachable,
}

/// The host's map, shared by all workers.
pub trait SharedData {
    /// The value under `name`.
    fn get(&self, name: &[u8]) -> Stored;
    /// Replaces the value that was read with the number `cas`; see [`INSERT`].
    fn set(&self, name: &[u8], value: &[u8], cas: u32) -> Written;
}
