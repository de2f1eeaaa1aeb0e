//! The host's map that all workers share, as a trait: what can be read, and what can be written on
//! a condition.
//!
//! Invariant: there is no blind write. A value replaces exactly the bytes that were read (compare
//! and swap), or is inserted where none stood ([`INSERT`]). Deliberately absent: what the bytes
//! mean; that is `table`'s.

/// The compare-and-swap number that inserts a bucket: the host inserts if there is none and answers
/// "mismatch" if somebody else did. Writing without a number would be blind and lose updates.
pub const INSERT: u32 = u32::MAX;

/// What the host holds under a name.
pub enum Stored {
    /// Nothing.
    Absent,
    /// These bytes; the number is the condition under which they may be replaced.
    Value(Vec<u8>, u32),
    /// The host did not answer.
    Unreachable,
}

/// What became of a conditional write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// It stands.
    Done,
    /// Somebody else wrote since the read.
    Lost,
    /// The host did not answer.
    Unreachable,
}

/// The host's map, shared by all workers.
pub trait SharedData {
    /// What stands under `name`.
    fn get(&self, name: &[u8]) -> Stored;
    /// Replaces what was read with the number `cas`; see [`INSERT`].
    fn set(&self, name: &[u8], value: &[u8], cas: u32) -> Written;
}
