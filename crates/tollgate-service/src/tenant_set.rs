//! A few tenants whose entries a service remembers: one set of a cache, which places tenants in
//! sets by a keyed hash.
//!
//! Invariant: a set contains at most [`TenantSet::WAYS`] tenants, and only a part of them are
//! places for tenants that were requested once. So a flood of unknown names evicts names of its own
//! kind and never a tenant that recurs. An entry is used for [`FRESH`] after it was requested;
//! while it cannot be requested again it is used for [`STALE`] at most. A response to a request
//! from before a change made here is not kept. Deliberately absent: sending requests, and the
//! content of an entry.

use alloc::boxed::Box;
use alloc::vec::Vec;

use tollgate_core::{Span, Timestamp};

/// How long an entry is used before it is fetched again.
const FRESH: Span = Span::from_secs(5);
/// How long an entry is used that cannot be fetched again.
const STALE: Span = Span::from_secs(600);
/// The time from a failed request to the next one about the same tenant.
const RETRY: Span = Span::from_secs(1);

/// The places of a set for tenants that recurred.
const KEPT_WAYS: usize = 6;

/// One set. `E` is an entry, cheap to clone.
#[derive(Debug)]
pub struct TenantSet<E> {
    tenants: Vec<CachedTenant<E>>,
}

/// The cached state of one tenant.
#[derive(Debug)]
struct CachedTenant<E> {
    id: Box<[u8]>,
    /// It was requested more than once.
    is_back: bool,
    used_at: Timestamp,
    /// When it was requested, and its entry, if it has one; `None` before the first response.
    answered: Option<(Timestamp, Option<E>)>,
    /// When the request was sent that has no response yet.
    asking_since: Option<Timestamp>,
    failed_at: Option<Timestamp>,
    /// When the entry was last changed here.
    changed_at: Option<Timestamp>,
}

/// What a store has for a tenant: an entry, or none.
pub type Found<E> = Option<E>;

/// The cached state of a tenant, and the next action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Look<E> {
    /// This is its entry, or it has none.
    Known(Option<E>),
    /// Request it: no request is in flight.
    Ask,
    /// A request is in flight: wait for its response.
    Wait,
    /// It could not be requested, and nothing is known of it.
    Unknown,
}

impl<E> Look<E> {
    /// The known state; `None` when there is no state that may be used.
    pub fn known(self) -> Option<Found<E>> {
        match self {
            Self::Known(found) => Some(found),
            Self::Ask | Self::Wait | Self::Unknown => None,
        }
    }
}

impl<E> Default for TenantSet<E> {
    fn default() -> Self {
        Self { tenants: Vec::new() }
    }
}

/// True when `at` is less than `span` ago. A clock that was set back makes nothing young.
fn is_within(at: Timestamp, span: Span, now: Timestamp) -> bool {
    at <= now && now < at.saturating_add(span)
}

impl<E: Clone> CachedTenant<E> {
    fn new(id: &[u8], now: Timestamp) -> Self {
        Self {
            id: id.into(),
            is_back: false,
            used_at: now,
            answered: None,
            asking_since: None,
            failed_at: None,
            changed_at: None,
        }
    }

    /// The state that may still be used at `now` when it cannot be requested.
    fn last(&self, now: Timestamp) -> Look<E> {
        match &self.answered {
            Some((at, entry)) if is_within(*at, STALE, now) => Look::Known(entry.clone()),
            _ => Look::Unknown,
        }
    }
}

impl<E: Clone> TenantSet<E> {
    /// Tenants of one set.
    pub const WAYS: usize = 8;

    /// Tenants that are in it.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.tenants.len()
    }

    /// True before the first tenant.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.tenants.is_empty()
    }

    /// The known state of the tenant `id` at `now`. A request without a response after `patience`
    /// is treated as stopped with its caller; with a patience of zero no caller waits for another's
    /// request.
    pub fn look(&mut self, id: &[u8], now: Timestamp, patience: Span) -> Look<E> {
        self.update(id, now, |tenant| {
            tenant.used_at = now;
            if let Some((at, entry)) = &tenant.answered
                && is_within(*at, FRESH, now)
            {
                tenant.is_back = true;
                return Look::Known(entry.clone());
            }
            if tenant.failed_at.is_some_and(|at| is_within(at, RETRY, now)) {
                return tenant.last(now);
            }
            if tenant.asking_since.is_some_and(|at| is_within(at, patience, now)) {
                return Look::Wait;
            }
            tenant.is_back |= tenant.answered.is_some();
            tenant.asking_since = Some(now);
            Look::Ask
        })
    }

    /// The entry of the last response, however long ago.
    pub fn guess(&mut self, id: &[u8], now: Timestamp) -> Option<E> {
        self.update(id, now, |tenant| tenant.answered.as_ref()?.1.clone())
    }

    /// Records that a [guess](Self::guess) was right at `asked_at`, if the entry remembered now
    /// `is_same`.
    pub fn confirm(
        &mut self,
        id: &[u8],
        asked_at: Timestamp,
        is_same: impl FnOnce(Option<&E>) -> bool,
    ) {
        self.update(id, asked_at, |tenant| {
            tenant.asking_since = None;
            tenant.failed_at = None;
            let entry = tenant.answered.as_ref().and_then(|(_, entry)| entry.clone());
            // Else a later request got another response meanwhile.
            if is_same(entry.as_ref()) {
                tenant.answered = Some((asked_at, entry));
            }
        });
    }

    /// The request about `id` ended without a response, which shows nothing about the tenant.
    pub fn release(&mut self, id: &[u8], now: Timestamp) {
        self.update(id, now, |tenant| tenant.asking_since = None);
    }

    /// The state that may still be used at `now` when it cannot be requested: [`Look::Known`] or
    /// [`Look::Unknown`].
    pub fn last(&mut self, id: &[u8], now: Timestamp) -> Look<E> {
        self.update(id, now, |tenant| tenant.last(now))
    }

    /// Records the response to the request about `id`, sent at `asked_at`.
    pub fn answer(&mut self, id: &[u8], asked_at: Timestamp, entry: Option<E>) {
        self.update(id, asked_at, |tenant| {
            tenant.asking_since = None;
            tenant.failed_at = None;
            // The response may be from before a change that was made here meanwhile.
            if tenant.changed_at.is_none_or(|changed_at| changed_at < asked_at) {
                tenant.answered = Some((asked_at, entry));
            }
        });
    }

    /// Records that the request about `id` failed.
    pub fn fail(&mut self, id: &[u8], now: Timestamp) {
        self.update(id, now, |tenant| {
            tenant.asking_since = None;
            tenant.failed_at = Some(now);
        });
    }

    /// Records that the entry of `id` was changed here: the next look requests it.
    pub fn forget(&mut self, id: &[u8], now: Timestamp) {
        self.update(id, now, |tenant| {
            tenant.answered = None;
            tenant.changed_at = Some(now);
        });
    }

    /// Calls `step` with the place of `id`. If it has none, a place is freed: that of the tenant
    /// that came once, and longest ago.
    fn update<T>(
        &mut self,
        id: &[u8],
        now: Timestamp,
        step: impl FnOnce(&mut CachedTenant<E>) -> T,
    ) -> T {
        let tenants = &mut self.tenants;
        let mut tenant = match tenants.iter().position(|tenant| *tenant.id == *id) {
            Some(at) => tenants.swap_remove(at),
            None => {
                if tenants.len() >= Self::WAYS {
                    let (at, _) = oldest(tenants, false).unzip();
                    tenants.swap_remove(at.unwrap_or_default());
                }
                CachedTenant::new(id, now)
            }
        };
        let done = step(&mut tenant);
        tenants.push(tenant);
        // A tenant that recurs is kept; of too many of them the one that came longest ago is not.
        if tenants.iter().filter(|tenant| tenant.is_back).count() > KEPT_WAYS
            && let Some((_, oldest)) = oldest(tenants, true)
        {
            oldest.is_back = false;
        }
        done
    }
}

/// Of the tenants that recurred, or of those that did not, the one that came longest ago.
fn oldest<E>(
    tenants: &mut [CachedTenant<E>],
    is_back: bool,
) -> Option<(usize, &mut CachedTenant<E>)> {
    let them = tenants.iter_mut().enumerate().filter(|(_, tenant)| tenant.is_back == is_back);
    them.min_by_key(|(_, tenant)| tenant.used_at)
}

#[cfg(test)]
mod tests {
    use alloc::format;

    use super::*;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(1_000_000).saturating_add(Span::from_millis(millis))
    }

    // Guards: a flood of names that evicts tenants that come all the time.
    #[test]
    fn a_flood_of_names_evicts_its_own_kind() {
        let mut set = TenantSet::default();
        for _ in 0..2 {
            for id in [b"a", b"b", b"c", b"d", b"e", b"f"] {
                if set.look(id, at(0), Span::ZERO) == Look::Ask {
                    set.answer(id, at(0), Some(1));
                }
            }
        }
        for i in 0..1000 {
            let name = format!("name {i}");
            assert_eq!(set.look(name.as_bytes(), at(10), Span::ZERO), Look::Ask);
            set.answer(name.as_bytes(), at(10), None);
            assert!(set.len() <= TenantSet::<u8>::WAYS);
        }
        for id in [b"a", b"b", b"c", b"d", b"e", b"f"] {
            assert_eq!(set.look(id, at(20), Span::ZERO), Look::Known(Some(1)));
        }
    }

    // Guards: a change whose response was sent and that the next request does not see.
    #[test]
    fn an_answer_from_before_a_change_is_not_kept() {
        let mut set = TenantSet::default();
        assert_eq!(set.look(b"a", at(0), Span::ZERO), Look::Ask);
        set.forget(b"a", at(1));
        set.answer(b"a", at(0), Some("before"));
        assert_eq!(set.look(b"a", at(2), Span::ZERO), Look::Ask);
        set.answer(b"a", at(2), Some("behind"));
        assert_eq!(set.look(b"a", at(3), Span::ZERO), Look::Known(Some("behind")));
        set.forget(b"a", at(4));
        assert_eq!(set.last(b"a", at(4)), Look::Unknown);
    }
}
