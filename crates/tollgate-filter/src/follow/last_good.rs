//! The last good policy of a server, stored in the host's map: later instances begin with it.
//!
//! Invariant: its version never goes back, whichever worker writes. Of several workers that got
//! different versions, all continue with the newest; of two documents of one version, with the one
//! that came first. But a policy that cannot be enforced here, of another build of this filter,
//! blocks no worker. It is written before any decision uses it, so an instance that is created
//! again (after a trap, or for another listener) never begins with an earlier one. Deliberately
//! absent: a read by a request.
//!
//! In the map, little-endian: version `u64`, length of the tag `u16`, the tag, the text.

use tollgate_policy::plugin::PolicyFrom;
use tollgate_storage::Bytes;
use tollgate_storage::table::{LAYOUT_VERSION, Seed, digest};

use crate::host::shared_data::{Change, SharedCell, SharedData, Stored};

/// A policy from a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServedPolicy {
    /// Its number, which grows with each change.
    pub version: u64,
    /// Its entity tag.
    pub tag: Vec<u8>,
    /// The document.
    pub text: String,
}

/// The result of storing a policy.
#[derive(Debug, PartialEq, Eq)]
pub enum StoreResult {
    /// It is stored, by this worker or another.
    Stored,
    /// Another one is stored, and is not to be replaced by this one.
    Newer(ServedPolicy),
    /// The host did not respond.
    Unreachable,
}

/// A name in the host's map for data about one server and one plugin. No name of a table has its
/// length.
pub fn name(kind: [u8; 3], scope: &[u8], from: &PolicyFrom) -> [u8; 12] {
    let parts = [scope, from.cluster.as_bytes(), from.authority.as_bytes(), from.path.as_bytes()];
    let id = digest(&Seed::default(), &parts.join(&0));
    let mut name = [LAYOUT_VERSION; 12];
    for (byte, part) in name.iter_mut().skip(1).zip(kind.into_iter().chain(id)) {
        *byte = part;
    }
    name
}

/// The location of the stored policy.
pub struct LastGood([u8; 12]);

impl LastGood {
    /// The location for one server and one plugin.
    pub fn new(scope: &[u8], from: &PolicyFrom) -> Self {
        Self(name(*b"pol", scope, from))
    }

    /// The stored policy.
    pub fn get(&self, shared: &impl SharedData) -> Option<ServedPolicy> {
        match shared.get(&self.0) {
            Stored::Value(bytes, _) => ServedPolicy::read(&bytes),
            Stored::Absent | Stored::Unreachable => None,
        }
    }

    /// Stores `fetched`, unless a newer one is stored whose tag is not `incompatible`.
    pub fn store(
        &self,
        shared: &impl SharedData,
        fetched: &ServedPolicy,
        incompatible: &[u8],
    ) -> StoreResult {
        let Some(bytes) = fetched.bytes() else { return StoreResult::Unreachable };
        let result = SharedCell::new(shared, &self.0).change(|found| {
            let before = found.map(|(before, _)| before);
            if before == Some(bytes.as_slice()) {
                return Change::Keep(StoreResult::Stored);
            }
            match before.and_then(ServedPolicy::read) {
                Some(stored) if fetched.is_behind(stored.version) && stored.tag != incompatible => {
                    Change::Keep(StoreResult::Newer(stored))
                }
                _ => Change::Write(bytes.as_slice().into(), StoreResult::Stored),
            }
        });
        result.unwrap_or(StoreResult::Unreachable)
    }

    /// Finds out whether `taken`, which was read here, is still stored.
    pub fn confirm(&self, shared: &impl SharedData, taken: &ServedPolicy) -> StoreResult {
        match self.get(shared) {
            Some(stored) if stored == *taken => StoreResult::Stored,
            Some(other) => StoreResult::Newer(other),
            None => StoreResult::Unreachable,
        }
    }
}

impl ServedPolicy {
    /// True where this policy, another document, must not replace one of `version`. Policies of
    /// version 0 come from files and have no order.
    pub const fn is_behind(&self, version: u64) -> bool {
        self.version < version || self.version == version && version > 0
    }

    fn bytes(&self) -> Option<Vec<u8>> {
        let len = u16::try_from(self.tag.len()).ok()?.to_le_bytes();
        let (version, text) = (self.version.to_le_bytes(), self.text.as_bytes());
        Some([&version[..], &len, &self.tag, text].concat())
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let mut rest = Bytes(bytes);
        let (version, tag) = (rest.u64()?, rest.block()?.into());
        let text = core::str::from_utf8(rest.0).ok()?.to_owned();
        Some(Self { version, tag, text })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes_and_no_cut_traps() {
        let given = ServedPolicy { version: 7, tag: b"\"7-ab\"".into(), text: "{}".into() };
        let bytes = given.bytes().unwrap();
        assert_eq!(bytes, b"\x07\0\0\0\0\0\0\0\x06\0\"7-ab\"{}");
        assert_eq!(ServedPolicy::read(&bytes), Some(given));
        for len in 0..bytes.len() {
            let read = ServedPolicy::read(&bytes[..len]);
            assert_eq!(read.is_some(), len >= 16, "{len}");
        }
        assert_eq!(ServedPolicy::read(b"\x07\0\0\0\0\0\0\0\0\0\xff"), None);
    }
}
