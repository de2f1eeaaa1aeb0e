//! The tenants' entries that an isolate remembers, including that a tenant has none.
//!
//! Invariant: it holds at most 512 x 8 tenants, however many names clients send. A keyed hash
//! chooses the set of a tenant, so a client cannot choose which tenant it evicts, and a flood of
//! names does not evict tenants that come again ([`TenantSet`]). Deliberately absent: fetching;
//! that is in `tenants`.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher};
use std::rc::Rc;
use std::sync::Arc;

use tollgate_policy::{Policy, Tenant, TenantEntry};
use tollgate_service::{TenantCacheEntry, TenantSet};

/// The sets are numbered from 0: 512 of them.
const LAST_SET: u64 = 511;

/// The tenants that an isolate knows.
pub(crate) struct TenantCache {
    seed: [u64; 2],
    sets: BTreeMap<u64, TenantSet<Rc<Entry>>>,
}

/// The known state of a tenant, and the next step.
pub(crate) type Look = tollgate_service::Look<Rc<Entry>>;

/// An entry that several requests use.
pub(crate) struct Entry {
    entry: RefCell<TenantCacheEntry>,
    pub(crate) revision: u64,
}

impl Entry {
    pub(crate) const fn new(entry: TenantEntry, revision: u64) -> Self {
        Self { entry: RefCell::new(TenantCacheEntry::new(entry)), revision }
    }

    /// The entry of the tenant `id` under `policy`.
    pub(crate) fn under(&self, policy: &Policy, id: &[u8]) -> Arc<Tenant> {
        self.entry.borrow_mut().under(policy, id)
    }
}

impl TenantCache {
    /// An empty cache; `seed` must be known only to this isolate.
    pub(crate) const fn new(seed: [u64; 2]) -> Self {
        Self { seed, sets: BTreeMap::new() }
    }

    /// The set that contains the tenant `id`, if it is known.
    pub(crate) fn set(&mut self, id: &[u8]) -> &mut TenantSet<Rc<Entry>> {
        let mut hasher = DefaultHasher::new();
        self.seed.iter().for_each(|half| hasher.write_u64(*half));
        hasher.write(id);
        self.sets.entry(hasher.finish() & LAST_SET).or_default()
    }
}

#[cfg(test)]
mod tests {
    use tollgate_core::{Span, Timestamp};

    use super::*;

    const PATIENCE: Span = Span::from_millis(500);

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(1_000_000).saturating_add(Span::from_millis(millis))
    }

    fn cache() -> TenantCache {
        TenantCache::new([7; 2])
    }

    fn gold() -> Rc<Entry> {
        Rc::new(Entry::new(
            tollgate_language::tenant_entry(br#"{"tier": "gold"}"#).expect("an entry"),
            7,
        ))
    }

    fn word(look: &Look) -> &'static str {
        match look {
            Look::Known(Some(_)) => "entry",
            Look::Known(None) => "none",
            Look::Ask => "ask",
            Look::Wait => "wait",
            Look::Unknown => "unknown",
        }
    }

    fn look(cache: &mut TenantCache, id: &str, millis: u64) -> &'static str {
        word(&cache.set(id.as_bytes()).look(id.as_bytes(), at(millis), PATIENCE))
    }

    #[test]
    fn one_asks_and_the_others_wait_until_it_is_answered() {
        let mut cache = cache();
        assert_eq!(look(&mut cache, "a", 0), "ask");
        assert_eq!(look(&mut cache, "a", 499), "wait");
        assert_eq!(look(&mut cache, "b", 499), "ask");
        cache.set(b"a").answer(b"a", at(0), Some(gold()));
        assert_eq!(look(&mut cache, "a", 4_999), "entry");
        // Counted from when it was sent: later changes may not be in the reply.
        assert_eq!(look(&mut cache, "a", 5_000), "ask");
        cache.set(b"a").answer(b"a", at(5_000), None);
        assert_eq!(look(&mut cache, "a", 9_999), "none");
        // The request that asked was stopped.
        assert_eq!(look(&mut cache, "b", 999), "ask");
    }

    #[test]
    fn what_cannot_be_asked_is_what_it_was_and_asked_again_after_a_second() {
        let mut cache = cache();
        assert_eq!(look(&mut cache, "a", 0), "ask");
        cache.set(b"a").fail(b"a", at(500));
        assert_eq!(look(&mut cache, "a", 1_499), "unknown");
        assert_eq!(look(&mut cache, "a", 1_500), "ask");
        cache.set(b"a").answer(b"a", at(1_500), Some(gold()));
        assert_eq!(look(&mut cache, "a", 6_500), "ask");
        cache.set(b"a").fail(b"a", at(7_000));
        assert_eq!(look(&mut cache, "a", 7_999), "entry");
        assert_eq!(look(&mut cache, "a", 600_000), "ask");
        cache.set(b"a").fail(b"a", at(601_400));
        assert_eq!(look(&mut cache, "a", 601_499), "entry");
        assert_eq!(word(&cache.set(b"a").last(b"a", at(601_500))), "unknown");
    }

    #[test]
    fn a_clock_that_was_set_back_makes_nobody_wait_for_ever() {
        let mut cache = cache();
        assert_eq!(look(&mut cache, "a", 10_000), "ask");
        assert_eq!(look(&mut cache, "a", 0), "ask");
        cache.set(b"a").answer(b"a", at(10_000), Some(gold()));
        assert_eq!(look(&mut cache, "a", 0), "ask");
    }

    /// Guards: a spray of names that makes an isolate grow, or that evicts tenants which come all
    /// the time.
    #[test]
    fn a_spray_neither_grows_it_nor_pushes_out_who_comes_again() {
        let mut cache = cache();
        let hot: Vec<String> = (0..500).map(|i| format!("hot {i}")).collect();
        for (round, name) in (0..2).flat_map(|round| hot.iter().map(move |name| (round, name))) {
            let is_asked = look(&mut cache, name, round) == "ask";
            assert!(is_asked || round == 1);
            cache.set(name.as_bytes()).answer(name.as_bytes(), at(round), Some(gold()));
        }
        for i in 0..100_000_u32 {
            let name = format!("sprayed {i}");
            assert_eq!(look(&mut cache, &name, 10), "ask");
            cache.set(name.as_bytes()).answer(name.as_bytes(), at(10), None);
        }
        assert!(cache.sets.values().all(|set| set.len() <= TenantSet::<Rc<Entry>>::WAYS));
        assert!(cache.sets.keys().all(|set| *set <= LAST_SET));
        let known = hot.iter().filter(|name| look(&mut cache, name, 20) == "entry").count();
        assert_eq!(known, hot.len());
        // So does a client that comes twice with every name. It first takes the places of its own
        // kind, then of the tenants that have not come for longest, and the number of places does
        // not change.
        for (i, _) in (0..20_000_u32).flat_map(|i| [(i, 0), (i, 1)]) {
            let name = format!("again {i}");
            look(&mut cache, &name, 30);
            cache.set(name.as_bytes()).answer(name.as_bytes(), at(30), None);
        }
        assert!(cache.sets.values().all(|set| set.len() <= TenantSet::<Rc<Entry>>::WAYS));
    }

    #[test]
    fn an_entry_is_compiled_once_for_each_policy() {
        let policy = |limit: u32| {
            let document = format!(
                r#"{{"version": 1, "tenant": "host", "rules": [{{"name": "r", "key": [], "quotas": [{{"limit": {limit}, "window": "1m"}}]}}]}}"#
            );
            tollgate_language::compile(&document, tollgate_policy::Surface::Worker)
                .expect("a policy")
        };
        let (entry, one, other) = (gold(), policy(1), policy(2));
        let first = entry.under(&one, b"a");
        assert!(Arc::ptr_eq(&first, &entry.under(&one, b"a")));
        assert!(!Arc::ptr_eq(&first, &entry.under(&other, b"a")));
    }
}
