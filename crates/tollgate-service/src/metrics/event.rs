//! Events that are counted one by one, without a rule, and the series of each.
//!
//! Invariant: every event has a series of its own, which is there from the start, with 0.

use super::family::Family;

/// An event that is counted without a rule: its series is always there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A request was allowed.
    Passed,
    /// A request was allowed after a wait, or with the advice to wait.
    Delayed,
    /// A request was denied.
    Refused,
    /// No rule applied to a request.
    Unlimited,
    /// A request was denied because too many wait.
    WaitingFull,
    /// A request was denied without asking an object.
    RememberedDenial,
    /// An object was asked to decide and to charge.
    Check,
    /// An object was asked for the decision that it would make.
    Look,
    /// An object got the report of a response.
    Settle,
    /// An object was asked to refund a charge.
    Refund,
    /// A tenant's object was asked for its entry.
    ReadTenant,
    /// An object did not respond in time.
    Late,
    /// An object returned an error.
    Failed,
    /// An object's response was invalid.
    Misread,
    /// An object could not read its stored bytes.
    Corrupt,
    /// A request was allowed by `on_failure`.
    LetThrough,
    /// A request was denied by `on_failure`.
    RefusedByFailure,
    /// The origin gave no response.
    Origin,
    /// A request was planned again under a newer policy.
    PolicyRetry,
    /// A request for the policy in force failed.
    PolicyCheckFailed,
    /// A request was decided under a policy that may not be in force any more.
    OutdatedPolicy,
    /// A request was decided without its tenant's quotas, which were unknown.
    UnknownTenant,
    /// A request of the admin API had no token.
    AdminTokenMissing,
    /// It had a token that is not ours.
    AdminTokenWrong,
    /// It had a token without the permission.
    AdminTokenForbidden,
    /// A request of `/check` had no token.
    CheckTokenMissing,
    /// It had a wrong token.
    CheckTokenWrong,
    /// No line was logged of an event.
    LogDropped,
    /// Counts could not be brought to the sums.
    FlushFailed,
    /// A node's request for leases got a response.
    LeaseQuestion,
    /// A node had fleet rules other than those of the last two policies.
    LeaseConflict,
    /// A unit was leased to a node.
    LeaseUnit,
    /// A shard paid a request from its own units.
    ShardHeld,
    /// The key's own object, asked by a shard, allowed a request.
    ShardAsked,
    /// A second shard paid a request that the first one denied.
    ShardSecond,
    /// A second shard was asked and denied, too.
    ShardRefused,
}

impl Event {
    /// Every event, in the order of [`Event::index`].
    pub const ALL: [Self; 36] = [
        Self::Passed,
        Self::Delayed,
        Self::Refused,
        Self::Unlimited,
        Self::WaitingFull,
        Self::RememberedDenial,
        Self::Check,
        Self::Look,
        Self::Settle,
        Self::Refund,
        Self::ReadTenant,
        Self::Late,
        Self::Failed,
        Self::Misread,
        Self::Corrupt,
        Self::LetThrough,
        Self::RefusedByFailure,
        Self::Origin,
        Self::PolicyRetry,
        Self::PolicyCheckFailed,
        Self::OutdatedPolicy,
        Self::UnknownTenant,
        Self::AdminTokenMissing,
        Self::AdminTokenWrong,
        Self::AdminTokenForbidden,
        Self::CheckTokenMissing,
        Self::CheckTokenWrong,
        Self::LogDropped,
        Self::FlushFailed,
        Self::LeaseQuestion,
        Self::LeaseConflict,
        Self::LeaseUnit,
        Self::ShardHeld,
        Self::ShardAsked,
        Self::ShardSecond,
        Self::ShardRefused,
    ];

    /// Its place in [`Event::ALL`].
    #[must_use]
    #[expect(clippy::as_conversions, reason = "an enumeration without fields, from 0")]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The series that it is counted in.
    #[must_use]
    pub const fn series(self) -> (Family, &'static [&'static str]) {
        match self {
            Self::Passed => (Family::Requests, &["passed"]),
            Self::Delayed => (Family::Requests, &["delayed"]),
            Self::Refused => (Family::Requests, &["refused"]),
            Self::Unlimited => (Family::Requests, &["unlimited"]),
            Self::WaitingFull => (Family::WaitingFull, &[]),
            Self::RememberedDenial => (Family::RememberedDenials, &[]),
            Self::Check => (Family::ObjectCalls, &["check"]),
            Self::Look => (Family::ObjectCalls, &["look"]),
            Self::Settle => (Family::ObjectCalls, &["settle"]),
            Self::Refund => (Family::ObjectCalls, &["refund"]),
            Self::ReadTenant => (Family::ObjectCalls, &["tenant"]),
            Self::Late => (Family::Failures, &["late"]),
            Self::Failed => (Family::Failures, &["failed"]),
            Self::Misread => (Family::Failures, &["misread"]),
            Self::Corrupt => (Family::Failures, &["corrupt"]),
            Self::LetThrough => (Family::FailedRequests, &["allow"]),
            Self::RefusedByFailure => (Family::FailedRequests, &["deny"]),
            Self::Origin => (Family::OriginFailures, &[]),
            Self::PolicyRetry => (Family::PolicyRetries, &[]),
            Self::PolicyCheckFailed => (Family::PolicyCheckFailures, &[]),
            Self::OutdatedPolicy => (Family::OutdatedRequests, &[]),
            Self::UnknownTenant => (Family::UnknownTenants, &[]),
            Self::AdminTokenMissing => (Family::Unauthorized, &["admin", "missing"]),
            Self::AdminTokenWrong => (Family::Unauthorized, &["admin", "wrong"]),
            Self::AdminTokenForbidden => (Family::Unauthorized, &["admin", "forbidden"]),
            Self::CheckTokenMissing => (Family::Unauthorized, &["check", "missing"]),
            Self::CheckTokenWrong => (Family::Unauthorized, &["check", "wrong"]),
            Self::LogDropped => (Family::LogDropped, &[]),
            Self::FlushFailed => (Family::FlushFailures, &[]),
            Self::LeaseQuestion => (Family::LeaseQuestions, &[]),
            Self::LeaseConflict => (Family::LeaseConflicts, &[]),
            Self::LeaseUnit => (Family::LeaseUnits, &[]),
            Self::ShardHeld => (Family::ShardRequests, &["held"]),
            Self::ShardAsked => (Family::ShardRequests, &["asked"]),
            Self::ShardSecond => (Family::ShardRequests, &["second"]),
            Self::ShardRefused => (Family::ShardRequests, &["refused"]),
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_event_is_a_series_of_its_own() {
        let all: BTreeSet<_> = Event::ALL.map(Event::series).into_iter().collect();
        assert_eq!(all.len(), Event::ALL.len());
        for (place, event) in Event::ALL.into_iter().enumerate() {
            let (family, values) = event.series();
            assert_eq!(event.index(), place);
            assert_eq!(values.len(), family.describe().labels.len(), "{event:?}");
        }
    }
}
