//! Whether tenants' entries are stored next to the counts of a policy, as their list reported.
//!
//! Invariant: the reply is used for a minute, and for five seconds while the policy is new here:
//! isolates that still have the one before it may put entries elsewhere for this long. It is never
//! used for another version of the policy, and unknown means no. Deliberately absent: the call;
//! that is in `tenants`.

use tollgate_core::{Span, Timestamp};

/// How long the reply is used.
const BELIEVED: Span = Span::from_secs(60);
/// The same while the policy is new.
const BELIEVED_AT_FIRST: Span = Span::from_secs(5);
/// How long a policy is new after it was first seen: three times as long as isolates take to
/// follow.
const NEW: Span = Span::from_secs(15);
/// A call that is under way for longer was stopped with its request.
const PATIENCE: Span = Span::from_secs(5);

/// The known state of one tenancy.
#[derive(Default)]
pub(crate) struct EntryLocation {
    /// The tenancy, and the version of the policy.
    of: (u64, u64),
    since: Timestamp,
    asking_since: Option<Timestamp>,
    /// When the list was asked, and its reply.
    answered: Option<(Timestamp, bool)>,
}

/// True when `at` is less than `span` ago; false for a time in the future, after the clock was set
/// back.
fn is_within(at: Timestamp, span: Span, now: Timestamp) -> bool {
    at <= now && now < at.saturating_add(span)
}

impl EntryLocation {
    /// True when the caller must ask: no call is under way and the last reply is too old.
    pub(crate) fn is_to_be_asked(&mut self, tenancy: u64, version: u64, now: Timestamp) -> bool {
        if self.of != (tenancy, version) {
            *self = Self { of: (tenancy, version), since: now, ..Self::default() };
        }
        let is_asking = self.asking_since.is_some_and(|at| is_within(at, PATIENCE, now));
        if is_asking || self.is_believed(now) {
            return false;
        }
        self.asking_since = Some(now);
        true
    }

    /// Records the reply to the call that was sent at `asked_at`. A missing reply means no.
    pub(crate) fn answer(&mut self, tenancy: u64, are_beside: bool, asked_at: Timestamp) {
        if self.of.0 == tenancy && self.since <= asked_at {
            self.answered = Some((asked_at, are_beside));
            self.asking_since = None;
        }
    }

    /// True when all entries are known to be stored next to the counts of this tenancy.
    pub(crate) fn is_known(&self, tenancy: u64, version: u64, now: Timestamp) -> bool {
        let is_so = self.answered.is_some_and(|(_, is_so)| is_so);
        self.of == (tenancy, version) && is_so && self.is_believed(now)
    }

    fn is_believed(&self, now: Timestamp) -> bool {
        let is_new = is_within(self.since, NEW, now);
        let believed = if is_new { BELIEVED_AT_FIRST } else { BELIEVED };
        self.answered.is_some_and(|(at, _)| is_within(at, believed, now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_millis(1_000_000).saturating_add(Span::from_secs(seconds))
    }

    #[test]
    fn what_was_said_is_believed_of_one_version_for_a_while() {
        let mut entry_location = EntryLocation::default();
        assert!(entry_location.is_to_be_asked(7, 1, at(0)));
        assert!(!entry_location.is_to_be_asked(7, 1, at(1)), "a call is under way");
        assert!(!entry_location.is_known(7, 1, at(1)));
        entry_location.answer(7, true, at(0));
        assert!(
            entry_location.is_known(7, 1, at(4)) && !entry_location.is_to_be_asked(7, 1, at(4))
        );
        // While other isolates may have the policy before.
        assert!(
            !entry_location.is_known(7, 1, at(5)) && entry_location.is_to_be_asked(7, 1, at(5))
        );
        entry_location.answer(7, true, at(14));
        assert!(entry_location.is_known(7, 1, at(73)) && !entry_location.is_known(7, 1, at(74)));
        // Of another version, or tenancy, nothing is known.
        assert!(!entry_location.is_known(7, 2, at(20)) && !entry_location.is_known(8, 1, at(20)));
        assert!(entry_location.is_to_be_asked(7, 2, at(20)));
        entry_location.answer(7, true, at(14));
        assert!(!entry_location.is_known(7, 2, at(20)), "asked under the one before");
        entry_location.answer(7, false, at(20));
        assert!(
            !entry_location.is_known(7, 2, at(20)) && !entry_location.is_to_be_asked(7, 2, at(21))
        );
        // A call that was stopped, and a clock that was set back.
        let mut entry_location = EntryLocation::default();
        assert!(
            entry_location.is_to_be_asked(7, 1, at(10))
                && entry_location.is_to_be_asked(7, 1, at(15))
        );
        entry_location.answer(7, true, at(15));
        assert!(!entry_location.is_known(7, 1, at(3)));
    }
}
