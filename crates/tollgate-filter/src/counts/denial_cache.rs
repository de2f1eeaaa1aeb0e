//! Denials that this worker saw: a denial can be repeated without reading the shared tables.
//!
//! A denial changes nothing, but for the one that starts a penalty and is not remembered, and
//! until its `retry_after` no other request is allowed. So the value stays the same: a request that
//! is denied on the remembered value is denied on the present one, with the same numbers.
//! Invariant: only denials are taken from here, never allowances, and only denials that are final
//! (`final_denials`) and under the number under which they were remembered. With several costs
//! another worker may allow a cheaper request, and the numbers would be old. Where slots are held
//! (`reserve`) or waited for (`leaky-queue`), a charge may be given back, and the denial would be
//! wrong. The monotonic clock guarantees that time goes forward.
//!
//! Deliberately absent: any decision; the policy decides on the value as on a loaded one.

use core::num::NonZeroU64;

/// The keys that one worker remembers for one policy. A key that maps to an occupied slot replaces
/// the key there.
const SLOTS: u64 = 4096;

/// Longer values (logs) are not remembered: 4096 of them would be 32 MB.
const MAX_VALUE_LEN: usize = 256;

/// Values on which a request was denied, by group and fingerprint of the key.
#[derive(Default)]
pub struct DenialCache {
    slots: Vec<Option<Denial>>,
}

struct Denial {
    group: usize,
    key: NonZeroU64,
    /// The number under which it holds; `None` when the key was denied on an unknown value.
    since: Option<u32>,
    value: Vec<u8>,
}

impl DenialCache {
    /// True when the key was denied last.
    pub fn contains(&self, group: usize, key: NonZeroU64) -> bool {
        self.find(group, key).is_some()
    }

    /// The value on which the key was denied last, under this number.
    pub fn get(&self, group: usize, key: NonZeroU64, since: u32) -> Option<&[u8]> {
        let denial = self.find(group, key)?;
        (denial.since == Some(since)).then_some(&*denial.value)
    }

    /// Remembers `value`, on which the key was just denied.
    pub fn put(&mut self, group: usize, key: NonZeroU64, value: &[u8], since: Option<u32>) {
        if value.len() > MAX_VALUE_LEN {
            return self.forget(group, key);
        }
        if self.slots.is_empty() {
            self.slots.resize_with(usize::try_from(SLOTS).unwrap_or(0), || None);
        }
        let Some(slot) = self.slots.get_mut(slot(key)) else { return };
        let denial = slot.get_or_insert_with(|| Denial { group, key, since, value: Vec::new() });
        (denial.group, denial.key, denial.since) = (group, key, since);
        denial.value.clear();
        if since.is_some() {
            denial.value.extend_from_slice(value);
        }
    }

    /// Forgets the key, which was allowed.
    pub fn forget(&mut self, group: usize, key: NonZeroU64) {
        if self.contains(group, key)
            && let Some(slot) = self.slots.get_mut(slot(key))
        {
            *slot = None;
        }
    }

    fn find(&self, group: usize, key: NonZeroU64) -> Option<&Denial> {
        let denial = self.slots.get(slot(key))?.as_ref()?;
        (denial.group == group && denial.key == key).then_some(denial)
    }
}

fn slot(key: NonZeroU64) -> usize {
    let random = key.get().checked_rem(SLOTS).unwrap_or(0);
    usize::try_from(random).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(fingerprint: u64) -> NonZeroU64 {
        NonZeroU64::new(fingerprint).unwrap()
    }

    #[test]
    fn a_key_is_found_until_another_takes_its_place() {
        let mut denials = DenialCache::default();
        assert_eq!(denials.get(0, key(5), 0), None);
        denials.put(0, key(5), b"five", Some(0));
        assert_eq!(denials.get(0, key(5), 0), Some(&b"five"[..]));
        assert_eq!(denials.get(0, key(5 + 4096), 0), None);
        denials.put(0, key(5 + 4096), b"other", Some(0));
        assert_eq!(denials.get(0, key(5), 0), None);
        assert_eq!(denials.get(0, key(5 + 4096), 0), Some(&b"other"[..]));
    }

    // Guards: rules with other keys that happen to have the same bytes, and charges that were taken
    // back.
    #[test]
    fn a_denial_is_of_its_group_and_number() {
        let mut denials = DenialCache::default();
        denials.put(1, key(5), b"five", None);
        assert!(denials.contains(1, key(5)) && !denials.contains(0, key(5)));
        assert_eq!(denials.get(1, key(5), 0), None, "on what is not known");
        denials.put(1, key(5), b"five", Some(7));
        assert_eq!(denials.get(1, key(5), 7), Some(&b"five"[..]));
        assert_eq!((denials.get(1, key(5), 8), denials.get(0, key(5), 7)), (None, None));
        denials.forget(0, key(5));
        assert!(denials.contains(1, key(5)));
        denials.forget(1, key(5));
        assert!(!denials.contains(1, key(5)));
    }

    #[test]
    fn long_values_are_not_kept() {
        let mut denials = DenialCache::default();
        for since in [None, Some(0)] {
            denials.put(0, key(5), &[0; MAX_VALUE_LEN + 1], since);
            assert!(!denials.contains(0, key(5)));
        }
        denials.put(0, key(5), &[0; MAX_VALUE_LEN], Some(0));
        assert!(denials.contains(0, key(5)));
    }
}
