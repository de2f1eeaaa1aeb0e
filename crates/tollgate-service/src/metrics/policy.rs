//! The policy that requests are decided under, in metrics.
//!
//! Invariant: versions only grow, so the greatest reported version is the one in force.
//! Deliberately absent: the policy itself.

use alloc::vec::Vec;

use tollgate_storage::Bytes;

use crate::store::policy::Source;

/// The policy that an isolate decides under.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PolicyInForce {
    /// Its version; 0 where there are no versions.
    pub version: u64,
    /// The hash of its document.
    pub fingerprint: u64,
    /// Its source.
    pub source: Source,
}

impl PolicyInForce {
    pub(super) fn encode(self, to: &mut Vec<u8>) {
        to.extend(self.version.to_le_bytes());
        to.extend(self.fingerprint.to_le_bytes());
        to.push(u8::from(self.source == Source::Written));
    }

    pub(super) fn decode(reader: &mut Bytes<'_>) -> Option<Self> {
        let (version, fingerprint) = (reader.u64()?, reader.u64()?);
        let source = match reader.u8()? {
            0 => Source::Deployed,
            1 => Source::Written,
            _ => return None,
        };
        Some(Self { version, fingerprint, source })
    }
}
