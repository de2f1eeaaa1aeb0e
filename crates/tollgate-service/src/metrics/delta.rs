//! The counts of one isolate since its last delta: the bytes between the isolate and the sums.
//!
//! Invariant: adding it once or several times is the same, by the isolate's number and a sequence;
//! any bytes either decode to a `Delta` or to none.

use alloc::vec;
use alloc::vec::Vec;

use tollgate_storage::{Bytes, push_block};

use super::policy::PolicyInForce;
use super::series::{MAX_SERIES, Series};

/// The version of the deltas of isolates and of the stored pages.
pub(super) const VERSION: u8 = 1;

/// The counts of an isolate since its last delta.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delta {
    /// The isolate's random number.
    pub isolate: u64,
    /// Greater than in each earlier delta of the isolate, and the same when it is sent again.
    pub sequence: u64,
    /// The policy that it decides under now.
    pub policy: PolicyInForce,
    /// The growth of each series.
    pub counts: Vec<(Series, u64)>,
}

impl Delta {
    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION];
        bytes.extend(self.isolate.to_le_bytes());
        bytes.extend(self.sequence.to_le_bytes());
        self.policy.encode(&mut bytes);
        for (series, count) in &self.counts {
            push_block(series.as_bytes(), &mut bytes);
            bytes.extend(count.to_le_bytes());
        }
        bytes
    }

    /// The delta in `bytes`. Series that this version does not know are left out; `None` when the
    /// bytes are not a delta, or too large for one.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = Bytes(bytes);
        if reader.u8()? != VERSION {
            return None;
        }
        let (isolate, sequence) = (reader.u64()?, reader.u64()?);
        let policy = PolicyInForce::decode(&mut reader)?;
        let mut counts = Vec::new();
        while !reader.0.is_empty() {
            let (series, count) = (Series::parse(reader.block()?), reader.u64()?);
            counts.extend(series.map(|series| (series, count)));
            if counts.len() > MAX_SERIES {
                return None;
            }
        }
        Some(Self { isolate, sequence, policy, counts })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Family;
    use crate::store::policy::Source;

    #[test]
    fn a_delta_comes_back_and_half_of_one_does_not() {
        let policy = PolicyInForce { version: 7, fingerprint: 9, source: Source::Written };
        let counts = vec![
            (Series::new(Family::Requests, &["passed"]), 3),
            (Series::new(Family::Decisions, &["api", "", "gold", "allowed"]), u64::MAX),
        ];
        let delta = Delta { isolate: 1, sequence: 2, policy, counts };
        let bytes = delta.encode();
        assert_eq!(Delta::decode(&bytes).as_ref(), Some(&delta));
        let head = 1 + 8 + 8 + 17;
        let ends = [head, head + 2 + 8 + 8];
        for length in (0..bytes.len()).filter(|length| !ends.contains(length)) {
            assert_eq!(Delta::decode(&bytes[..length]), None, "{length}");
        }
        let mut other = bytes.clone();
        other[0] = 2;
        assert_eq!(Delta::decode(&other), None, "of another version");
        // A family of a later version is left out, and the rest is taken.
        let mut later = bytes;
        later[head + 2] = 200;
        assert_eq!(Delta::decode(&later).map(|delta| delta.counts.len()), Some(1));
    }
}
