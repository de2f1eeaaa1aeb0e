//! The server's cache of tenants' entries, including that a tenant has no entry.
//!
//! Invariant: it holds at most 1,024 x 8 tenants, however many names clients send, in sets that a
//! keyed hash chooses. So a client cannot choose which tenant it evicts, and a flood of names
//! evicts no tenant that recurs ([`TenantSet`]). A tenant that this server changed is forgotten at
//! once.

use std::hash::Hasher;
use std::sync::{Arc, Mutex, PoisonError};

use siphasher::sip::SipHasher13;
use tollgate_core::{Span, Timestamp};
use tollgate_policy::{Policy, Tenant, TenantEntry};
use tollgate_service::{TenantCacheEntry, TenantSet};

const SETS: usize = 1024;

/// The entries, as the server knows them.
#[derive(Debug)]
pub(crate) struct TenantCache {
    seed: [u8; 16],
    sets: Vec<Mutex<TenantSet<Arc<Entry>>>>,
}

/// An entry that several requests use at the same time.
#[derive(Debug)]
pub(crate) struct Entry(Mutex<TenantCacheEntry>);

impl Entry {
    pub(crate) const fn new(entry: TenantEntry) -> Self {
        Self(Mutex::new(TenantCacheEntry::new(entry)))
    }

    /// The entry of the tenant `id` under `policy`.
    pub(crate) fn under(&self, policy: &Policy, id: &[u8]) -> Arc<Tenant> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).under(policy, id)
    }
}

/// The known state: an entry, or that there is none.
pub(crate) type Found = Option<Arc<Entry>>;

impl TenantCache {
    pub(crate) fn new(seed: [u8; 16]) -> Self {
        let sets = std::iter::repeat_with(Mutex::default).take(SETS).collect();
        Self { seed, sets }
    }

    /// The known state of a tenant at `now`, while it is fresh.
    pub(crate) fn fresh(&self, id: &[u8], now: Timestamp) -> Option<Found> {
        // Each request asks separately: the store is near, and responds at once.
        self.with(id, |set| set.look(id, now, Span::ZERO))?.known()
    }

    /// The state that may still be used when the store cannot be asked.
    pub(crate) fn stale(&self, id: &[u8], now: Timestamp) -> Option<Found> {
        self.with(id, |set| set.last(id, now))?.known()
    }

    /// Stores `entry`, which the store returned to a request at `asked_at`.
    pub(crate) fn put(&self, id: &[u8], asked_at: Timestamp, entry: Found) {
        self.with(id, |set| set.answer(id, asked_at, entry));
    }

    /// The tenant was changed here at `now`.
    pub(crate) fn forget(&self, id: &[u8], now: Timestamp) {
        self.with(id, |set| set.forget(id, now));
    }

    fn with<T>(&self, id: &[u8], step: impl FnOnce(&mut TenantSet<Arc<Entry>>) -> T) -> Option<T> {
        let mut hasher = SipHasher13::new_with_key(&self.seed);
        hasher.write(id);
        let sets = u64::try_from(self.sets.len()).unwrap_or(u64::MAX);
        let number = usize::try_from(hasher.finish().checked_rem(sets)?).ok()?;
        let set = self.sets.get(number)?;
        Some(step(&mut set.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(1_000_000).saturating_add(Span::from_millis(millis))
    }

    fn gold() -> Found {
        let entry = tollgate_language::tenant_entry(br#"{"tier": "gold"}"#).expect("an entry");
        Some(Arc::new(Entry::new(entry)))
    }

    // Guards: a flood of unknown names that makes every request of real tenants ask the store, and
    // that evicts the quotas of all tenants while the store does not respond.
    #[test]
    fn a_flood_of_unknown_names_evicts_no_tenant_that_comes_again() {
        let cache = TenantCache::new([7; 16]);
        let tenants: Vec<String> = (0..500).map(|i| format!("tenant {i}")).collect();
        for name in &tenants {
            assert!(cache.fresh(name.as_bytes(), at(0)).is_none());
            cache.put(name.as_bytes(), at(0), gold());
            assert!(cache.fresh(name.as_bytes(), at(1)).is_some(), "it comes again");
        }
        for i in 0..100_000 {
            let name = format!("flood {i}");
            assert!(cache.fresh(name.as_bytes(), at(10)).is_none());
            cache.put(name.as_bytes(), at(10), None);
        }
        let is_known = |name: &&String| cache.fresh(name.as_bytes(), at(20)).is_some();
        assert_eq!(tenants.iter().filter(is_known).count(), tenants.len());
        let is_kept = |name: &&String| cache.stale(name.as_bytes(), at(500_000)).is_some();
        assert_eq!(tenants.iter().filter(is_kept).count(), tenants.len());
        let held: usize = cache.sets.iter().map(|set| set.lock().expect("free").len()).sum();
        assert!(held <= SETS * TenantSet::<Arc<Entry>>::WAYS, "{held}");
    }

    #[test]
    fn what_was_changed_here_is_asked_for_again() {
        let cache = TenantCache::new([7; 16]);
        cache.put(b"a", at(0), gold());
        assert!(cache.fresh(b"a", at(1)).is_some_and(|found| found.is_some()));
        cache.forget(b"a", at(2));
        // The response to a request from before the change may contain the previous entry.
        cache.put(b"a", at(1), gold());
        assert!(cache.fresh(b"a", at(3)).is_none() && cache.stale(b"a", at(3)).is_none());
        cache.put(b"a", at(4), None);
        assert!(cache.fresh(b"a", at(5)).is_some_and(|found| found.is_none()));
    }
}
