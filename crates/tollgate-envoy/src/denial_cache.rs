//! What this worker saw denied: a denial needs no look into the shared tables to be repeated.
//!
//! A denial changes nothing, and until its `retry_after` nobody else is admitted, so the value
//! stays as it was: a request that is denied on the remembered value is denied on the present one,
//! with the same numbers. Invariant: only denials are taken from here, never admissions, and only
//! under a policy of one rule with one cost. With several rules of one key the others' quotas go on
//! being charged, and with several costs another worker may admit a cheaper request: the numbers
//! would be old. With several keys, where places are held (`reserve`) or waited for
//! (`leaky-queue`), a charge may be given back, and the denial was false. That time goes forward is
//! the monotonic clock's promise.
//!
//! Deliberately absent: any decision; the policy decides on the value like on a loaded one.

use core::num::NonZeroU64;

/// Keys remembered by one worker for one policy; a key that falls onto another's place replaces it.
const PLACES: u64 = 4096;

/// Longer values (logs) are not remembered: 4096 of them would be 32 MB.
const MAX_VALUE_LEN: usize = 256;

/// Values on which a request was denied, by the fingerprint of the key.
#[derive(Default)]
pub struct DenialCache {
    places: Vec<Option<(NonZeroU64, Vec<u8>)>>,
}

impl DenialCache {
    /// The value on which the key was denied last.
    pub fn get(&self, key: NonZeroU64) -> Option<&[u8]> {
        let (known, value) = self.places.get(place(key))?.as_ref()?;
        (*known == key).then_some(value)
    }

    /// Remembers `value`, on which the key was just denied.
    pub fn put(&mut self, key: NonZeroU64, value: &[u8]) {
        if value.len() > MAX_VALUE_LEN {
            return;
        }
        if self.places.is_empty() {
            self.places.resize(usize::try_from(PLACES).unwrap_or(0), None);
        }
        let Some(place) = self.places.get_mut(place(key)) else { return };
        match place {
            Some((known, bytes)) => {
                *known = key;
                bytes.clear();
                bytes.extend_from_slice(value);
            }
            None => *place = Some((key, value.to_vec())),
        }
    }

    /// Forgets the key: it was admitted.
    pub fn forget(&mut self, key: NonZeroU64) {
        if self.get(key).is_some()
            && let Some(place) = self.places.get_mut(place(key))
        {
            *place = None;
        }
    }
}

fn place(key: NonZeroU64) -> usize {
    let random = key.get().checked_rem(PLACES).unwrap_or(0);
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
        assert_eq!(denials.get(key(5)), None);
        denials.put(key(5), b"five");
        assert_eq!(denials.get(key(5)), Some(&b"five"[..]));
        assert_eq!(denials.get(key(5 + 4096)), None);
        denials.put(key(5 + 4096), b"other");
        assert_eq!(denials.get(key(5)), None);
        assert_eq!(denials.get(key(5 + 4096)), Some(&b"other"[..]));
    }

    #[test]
    fn long_values_are_not_kept() {
        let mut denials = DenialCache::default();
        denials.put(key(5), &[0; MAX_VALUE_LEN + 1]);
        assert_eq!(denials.get(key(5)), None);
        denials.put(key(5), &[0; MAX_VALUE_LEN]);
        assert!(denials.get(key(5)).is_some());
    }
}
