//! A worker's memory from one request to the next: buffers, denials it saw, its last writes.
//!
//! Invariant: nothing in it decides. An empty one gives the same decisions, with more host calls.

use core::num::NonZeroU64;

use crate::counts::denial_cache::DenialCache;
use crate::counts::guesses::Guesses;
use crate::counts::numbering::Numbering;

/// A bucket as it was read, and its location.
#[derive(Default)]
pub(crate) struct Read {
    pub(crate) fingerprint: Option<NonZeroU64>,
    pub(crate) bucket: u32,
    pub(crate) bytes: Vec<u8>,
    pub(crate) cas: u32,
    /// It was not read: these are the bytes that this worker wrote last, under a guessed number.
    pub(crate) is_guess: bool,
    pub(crate) committed: bool,
}

/// Buffers that are reused for every request.
#[derive(Default)]
pub struct Scratch {
    pub(crate) reads: Vec<Read>,
    pub(crate) out: Vec<u8>,
    pub(crate) denials: DenialCache,
    /// `None` where the host's numbers cannot be guessed.
    pub(crate) guesses: Option<Guesses>,
}

impl Scratch {
    /// Empty buffers, on a host that numbers writes like this.
    #[must_use]
    pub fn new(numbering: Numbering) -> Self {
        let guesses = match numbering {
            Numbering::OneSequence => Some(Guesses::default()),
            Numbering::Unproved => None,
        };
        Self { guesses, ..Self::default() }
    }
}
