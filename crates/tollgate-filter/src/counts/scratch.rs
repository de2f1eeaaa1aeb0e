//! A worker's memory from one request to the next: buffers, denials it saw, its last writes.
//!
//! Invariant: nothing in it decides. An empty one gives the same decisions, with more host calls.

use core::num::NonZeroU64;

use crate::counts::denial_cache::DenialCache;
use crate::counts::numbering::Numbering;
use crate::counts::predicted_writes::PredictedWrites;
use crate::host::shared_data::SharedData;

/// A bucket as it was read, and its location.
#[derive(Default)]
pub(crate) struct Read {
    pub(crate) fingerprint: Option<NonZeroU64>,
    pub(crate) bucket: u32,
    pub(crate) bytes: Vec<u8>,
    pub(crate) cas: u32,
    /// It was not read: these are the bytes that this worker wrote last, under a predicted number.
    pub(crate) is_predicted: bool,
    pub(crate) committed: bool,
}

/// Buffers that are reused for every request.
#[derive(Default)]
pub struct Scratch {
    pub(crate) reads: Vec<Read>,
    pub(crate) out: Vec<u8>,
    pub(crate) denials: DenialCache,
    /// `None` where the host's numbers cannot be predicted, or need not be.
    pub(crate) predictions: Option<PredictedWrites>,
}

impl Scratch {
    /// Empty buffers, on a host that numbers writes like this.
    #[must_use]
    pub fn new<S: SharedData>(numbering: Numbering) -> Self {
        let predictions = match numbering {
            Numbering::OneSequence if !S::READS_ARE_CHEAP => Some(PredictedWrites::default()),
            Numbering::OneSequence | Numbering::Unproved => None,
        };
        Self { predictions, ..Self::default() }
    }
}
