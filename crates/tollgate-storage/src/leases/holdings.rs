//! The units that a node holds of one key: a holding for each rule that counts by it. This is the
//! value under the key in the table that the workers of a node share.
//!
//! In bytes: `LAYOUT` `u8`, then for each rule the identity of its quota set `u64`, the length of
//! its holding `u16` and the holding; zeros up to a multiple of [`WORD`].
//!
//! Invariant: written bytes are read as the same holdings, and other bytes as none. A node that
//! loses them is too strict and never too lax: the units it held count as spent when their lease is
//! over.

use alloc::vec::Vec;

use tollgate_core::Timestamp;

use crate::leases::node::Holding;
use crate::stored_set::WORD;
use crate::wire::{Reader, WireError};

/// The version of these bytes.
const LAYOUT: u8 = 2;

/// The units that a node holds of one key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holdings {
    /// In the order of their quota sets.
    all: Vec<(u64, Holding)>,
}

/// The priority of a value against others that would replace it: the held units, and the end of
/// their lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HoldingsClaim {
    left: u64,
    until: Timestamp,
}

impl Holdings {
    /// Reads a value; empty for bytes that are not a value.
    #[must_use]
    pub fn decode(value: &[u8]) -> Self {
        Self::read(value).unwrap_or_default()
    }

    fn read(value: &[u8]) -> Result<Self, WireError> {
        let mut bytes = Reader(value);
        let mut holdings = Self::default();
        if bytes.u8()? != LAYOUT {
            return Err(WireError::Malformed);
        }
        // Fewer bytes than a rule's head are the rest of a word.
        while bytes.0.len() >= WORD.saturating_add(2) {
            let (set, len) = (bytes.u64()?, bytes.u16()?);
            let holding = bytes.bytes(len.into())?;
            let holding = Holding::decode(holding).ok_or(WireError::Malformed)?;
            *holdings.of(set) = holding;
        }
        Ok(holdings)
    }

    /// Writes it to `out`, replacing the contents.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.clear();
        out.push(LAYOUT);
        let mut bytes = Vec::new();
        for (set, holding) in self.all.iter().filter(|(_, it)| *it != Holding::default()) {
            bytes.clear();
            holding.encode(&mut bytes);
            out.extend(set.to_le_bytes());
            out.extend(u16::try_from(bytes.len()).unwrap_or(u16::MAX).to_le_bytes());
            out.extend_from_slice(&bytes);
        }
        out.resize(out.len().next_multiple_of(WORD), 0);
    }

    /// The holding of the quota set `set`.
    pub fn of(&mut self, set: u64) -> &mut Holding {
        let (place, holding) = match self.all.binary_search_by_key(&set, |(set, _)| *set) {
            Ok(place) => (place, self.all.remove(place).1),
            Err(place) => (place, Holding::default()),
        };
        let (_, holding) = self.all.insert_mut(place, (set, holding));
        holding
    }

    /// The quota sets that have a holding.
    pub fn sets(&self) -> impl Iterator<Item = u64> {
        self.all.iter().map(|(set, _)| *set)
    }

    /// The reason to keep `value`; `None` when dropping it loses nothing.
    #[must_use]
    pub fn claim(value: &[u8]) -> Option<HoldingsClaim> {
        let holdings = Self::decode(value);
        let busy =
            holdings.all.iter().map(|(_, holding)| holding).filter(|holding| !holding.is_idle());
        let claims = busy.map(|holding| (holding.left(), holding.ends_at()));
        claims
            .reduce(|(left, until), (more, at)| (left.saturating_add(more), until.max(at)))
            .map(|(left, until)| HoldingsClaim { left, until })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Guards: a key with more rules than one message contains, each for its own path: adding one
    // more dropped the leases of all of them.
    #[test]
    fn a_key_may_be_counted_by_any_number_of_rules() {
        let mut holdings = Holdings::default();
        let mut value = Vec::new();
        for set in 1..=1_000 {
            holdings.of(set).deny(Timestamp::from_millis(1), set, None);
            holdings.encode(&mut value);
            let read = Holdings::decode(&value);
            assert_eq!(read.sets().count(), holdings.sets().count(), "{set}");
            assert_eq!(read, holdings, "{set}");
        }
    }
}
