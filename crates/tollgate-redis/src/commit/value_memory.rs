//! The last seen bytes of keys without requests now.
//!
//! Invariant: the bytes are bounded. There are two generations: a key in use enters the young one;
//! when that holds half of the capacity, the old one is dropped and the young one becomes old. So a
//! key that is used again within half of the capacity is remembered, and nothing is ever sorted. A
//! forgotten key costs one more round trip when it is used again, and never a wrong decision.

use std::collections::HashMap;
use std::sync::Arc;

use tollgate_core::Timestamp;

use crate::commit::name::Name;

/// The memory of an entry in addition to its bytes: its name, a pointer, counts, and the space of a
/// table that is half full.
const OVERHEAD: usize = 160;

/// The value of a key.
#[derive(Clone, Debug)]
pub(crate) struct KnownValue {
    pub(crate) value: Arc<[u8]>,
    /// The engine forgets it then, unless it is written again; unknown where another server wrote
    /// it.
    pub(crate) until: Timestamp,
}

impl KnownValue {
    /// A value that another server wrote, or that this one wrote with an unknown result.
    pub(crate) const fn of_another(value: Arc<[u8]>) -> Self {
        Self { value, until: Timestamp::MAX }
    }
}

/// The bytes of many keys.
#[derive(Debug)]
pub(crate) struct ValueMemory {
    young: HashMap<Name, KnownValue>,
    old: HashMap<Name, KnownValue>,
    young_bytes: usize,
    max_bytes: usize,
}

impl ValueMemory {
    pub(crate) fn new(max_bytes: usize) -> Self {
        Self { young: HashMap::new(), old: HashMap::new(), young_bytes: 0, max_bytes }
    }

    /// Takes the value of `name`, which is no longer remembered then.
    pub(crate) fn take(&mut self, name: &Name) -> Option<KnownValue> {
        if let Some(seen) = self.young.remove(name) {
            self.young_bytes = self.young_bytes.saturating_sub(size(&seen));
            return Some(seen);
        }
        self.old.remove(name)
    }

    pub(crate) fn put(&mut self, name: Name, seen: KnownValue) {
        let size = size(&seen);
        let half = self.max_bytes >> 1;
        if size > half {
            return;
        }
        if self.young_bytes.saturating_add(size) > half {
            self.old = std::mem::take(&mut self.young);
            self.young_bytes = 0;
        }
        self.young_bytes = self.young_bytes.saturating_add(size);
        self.young.insert(name, seen);
    }
}

fn size(seen: &KnownValue) -> usize {
    seen.value.len().saturating_add(OVERHEAD)
}

#[cfg(test)]
#[allow(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "tests"
)]
mod tests {
    use super::*;

    fn seen(len: usize) -> KnownValue {
        KnownValue { value: vec![7; len].into(), until: Timestamp::MAX }
    }

    #[test]
    fn it_is_bounded_and_keeps_who_comes_again() {
        let name = |i: u32| Name::new([i.to_le_bytes(); 8].concat().try_into().expect("32 bytes"));
        let mut remembered = ValueMemory::new(100 * 260);
        remembered.put(name(0), seen(100));
        for i in 1..10_000 {
            remembered.put(name(i), seen(100));
            if i % 40 == 0 {
                let again = remembered.take(&name(0)).expect("requested recently");
                remembered.put(name(0), again);
            }
            assert!(remembered.young.len() + remembered.old.len() <= 100);
        }
        assert!(remembered.take(&name(9_999)).is_some());
        assert!(remembered.take(&name(9_999)).is_none(), "taken");
        assert!(remembered.take(&name(9_960)).is_some());
        assert!(remembered.take(&name(5_000)).is_none());
        remembered.put(name(1), seen(20_000));
        assert!(remembered.take(&name(1)).is_none(), "larger than its share");
    }
}
