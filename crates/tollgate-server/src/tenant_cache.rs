//! What the server remembers of tenants' entries, and that there is none of a tenant.
//!
//! Invariant: it holds a bounded number of tenants, whoever names how many, in sets that a keyed
//! hash chooses, so nobody knows whom he pushes out. What is remembered is right for [`FRESH`], and
//! what this server itself changed is forgotten at once; when it cannot be asked anew it is used
//! for [`STALE`] at most.

use std::hash::Hasher;
use std::sync::{Arc, Mutex, PoisonError};

use siphasher::sip::SipHasher13;
use tollgate_core::{Span, Timestamp};
use tollgate_policy::{Policy, Tenant, TenantEntry};

/// An entry is not asked for anew for so long.
const FRESH: Span = Span::from_secs(5);
/// What cannot be asked for anew is used for so long.
const STALE: Span = Span::from_secs(600);

const SETS: usize = 1024;
const WAYS: usize = 8;

/// The entries, as the server knows them.
#[derive(Debug)]
pub(crate) struct TenantCache {
    seed: [u8; 16],
    sets: Vec<Mutex<Vec<Known>>>,
}

#[derive(Debug)]
struct Known {
    id: Box<[u8]>,
    asked_at: Timestamp,
    entry: Option<Arc<Entry>>,
}

/// An entry, and what it is under the policy that it was last asked for.
#[derive(Debug)]
pub(crate) struct Entry {
    entry: TenantEntry,
    /// With the fingerprint of that policy.
    compiled: Mutex<Option<(u64, Arc<Tenant>)>>,
}

impl Entry {
    pub(crate) const fn new(entry: TenantEntry) -> Self {
        Self { entry, compiled: Mutex::new(None) }
    }

    /// The entry of the tenant `id` under `policy`.
    pub(crate) fn under(&self, policy: &Policy, id: &[u8]) -> Arc<Tenant> {
        let mut compiled = self.compiled.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, tenant)) = compiled.as_ref().filter(|(of, _)| *of == policy.fingerprint()) {
            return Arc::clone(tenant);
        }
        let tenant = Arc::new(policy.tenant(id, &self.entry));
        *compiled = Some((policy.fingerprint(), Arc::clone(&tenant)));
        tenant
    }
}

/// What is known: an entry, or that there is none.
pub(crate) type Found = Option<Arc<Entry>>;

impl TenantCache {
    pub(crate) fn new(seed: [u8; 16]) -> Self {
        let sets = std::iter::repeat_with(Mutex::default).take(SETS).collect();
        Self { seed, sets }
    }

    /// What is known of a tenant at `now`, while it is fresh.
    pub(crate) fn fresh(&self, id: &[u8], now: Timestamp) -> Option<Found> {
        self.find(id, now, FRESH)
    }

    /// What may still be used when it cannot be asked for.
    pub(crate) fn stale(&self, id: &[u8], now: Timestamp) -> Option<Found> {
        self.find(id, now, STALE)
    }

    fn find(&self, id: &[u8], now: Timestamp, span: Span) -> Option<Found> {
        self.with(id, |set| {
            let known = set.iter().find(|known| *known.id == *id)?;
            (now < known.asked_at.saturating_add(span)).then(|| known.entry.clone())
        })?
    }

    /// The store was asked at `asked_at`, and said this.
    pub(crate) fn put(&self, id: &[u8], asked_at: Timestamp, entry: Found) {
        self.with(id, |set| {
            set.retain(|known| *known.id != *id);
            if set.len() >= WAYS {
                let oldest = set.iter().enumerate().min_by_key(|(_, known)| known.asked_at);
                if let Some((i, _)) = oldest {
                    set.swap_remove(i);
                }
            }
            set.push(Known { id: id.into(), asked_at, entry });
        });
    }

    /// The tenant was changed here.
    pub(crate) fn forget(&self, id: &[u8]) {
        self.with(id, |set| set.retain(|known| *known.id != *id));
    }

    fn with<T>(&self, id: &[u8], step: impl FnOnce(&mut Vec<Known>) -> T) -> Option<T> {
        let mut hasher = SipHasher13::new_with_key(&self.seed);
        hasher.write(id);
        let sets = u64::try_from(self.sets.len()).unwrap_or(u64::MAX);
        let number = usize::try_from(hasher.finish().checked_rem(sets)?).ok()?;
        let set = self.sets.get(number)?;
        Some(step(&mut set.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}
