//! Events that are counted one by one, without a rule, and the series of each.
//!
//! Invariant: every event has a series of its own, which is there from the start, with 0.

use tollgate_policy::metrics::Family;

macro_rules! events {
    ($($event:ident $family:ident [$($value:literal),*] $doc:literal;)*) => {
        /// An event that is counted without a rule: its series is always there.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Event {
            $(#[doc = $doc] $event,)*
        }

        impl Event {
            /// Every event, in the order of [`Event::index`].
            pub const ALL: &[Self] = &[$(Self::$event),*];

            /// The series that it is counted in.
            #[must_use]
            pub const fn series(self) -> (Family, &'static [&'static str]) {
                match self {
                    $(Self::$event => (Family::$family, &[$($value),*]),)*
                }
            }
        }
    };
}

// The values are those of the family's labels.
events! {
    Passed Requests ["passed"] "A request was allowed.";
    Delayed Requests ["delayed"] "A request was allowed after a wait, or with the advice to wait.";
    Refused Requests ["refused"] "A request was denied.";
    Unlimited Requests ["unlimited"] "No rule applied to a request.";
    WaitingFull WaitingFull [] "A request was denied because too many wait.";
    RememberedDenial RememberedDenials [] "A request was denied without asking an object.";
    Check ObjectCalls ["check"] "An object was asked to decide and to charge.";
    Look ObjectCalls ["look"] "An object was asked for the decision that it would make.";
    Settle ObjectCalls ["settle"] "An object got the report of a response.";
    Refund ObjectCalls ["refund"] "An object was asked to refund a charge.";
    ReadTenant ObjectCalls ["tenant"] "A tenant's object was asked for its entry.";
    Late Failures ["late"] "An object did not respond in time.";
    Failed Failures ["failed"] "An object returned an error.";
    Misread Failures ["misread"] "An object's response was invalid.";
    Corrupt Failures ["corrupt"] "An object could not read its stored bytes.";
    LetThrough FailedRequests ["allow"] "A request was allowed by `on_failure`.";
    RefusedByFailure FailedRequests ["deny"] "A request was denied by `on_failure`.";
    Origin OriginFailures [] "The origin gave no response.";
    PolicyRetry PolicyRetries [] "A request was planned again under a newer policy.";
    PolicyCheckFailed PolicyCheckFailures [] "A request for the policy in force failed.";
    OutdatedPolicy OutdatedRequests []
        "A request was decided under a policy that may not be in force any more.";
    UnknownTenant UnknownTenants []
        "A request was decided without its tenant's quotas, which were unknown.";
    AdminTokenMissing Unauthorized ["admin", "missing"] "A request of the admin API had no token.";
    AdminTokenWrong Unauthorized ["admin", "wrong"] "It had a token that is not ours.";
    AdminTokenForbidden Unauthorized ["admin", "forbidden"]
        "It had a token without the permission.";
    CheckTokenMissing Unauthorized ["check", "missing"] "A request of `/check` had no token.";
    CheckTokenWrong Unauthorized ["check", "wrong"] "It had a wrong token.";
    LogDropped LogDropped [] "No line was logged of an event.";
    FlushFailed FlushFailures [] "Counts could not be brought to the sums.";
    LeaseQuestion LeaseQuestions [] "A node's request for leases got a response.";
    LeaseConflict LeaseConflicts []
        "A node had fleet rules other than those of the last two policies.";
    LeaseUnit LeaseUnits [] "A unit was leased to a node.";
    ShardHeld ShardRequests ["held"] "A shard paid a request from its own units.";
    ShardAsked ShardRequests ["asked"] "The key's own object, asked by a shard, allowed a request.";
    ShardSecond ShardRequests ["second"] "A second shard paid a request that the first one denied.";
    ShardRefused ShardRequests ["refused"] "A second shard was asked and denied, too.";
    EstimatedUnit CostUnits ["estimate"] "A unit was charged before its response settled it.";
    FinalUnit CostUnits ["final"] "A unit stayed charged after its response.";
    CostNoResponse CostUnknown ["no_response"] "A request had no response to settle its cost.";
    CostAbsent CostUnknown ["absent"] "A response had no cost.";
    CostUnreadable CostUnknown ["unreadable"] "The cost in a response was not a whole number.";
    Renewed InFlightReports ["renewed"] "A request in flight was confirmed.";
    Done InFlightReports ["done"] "A request in flight has ended.";
    InFlightLate InFlightLate []
        "A request in flight was confirmed too late: nothing counted it any more.";
    CostConflicting CostUnknown ["conflicting"] "A response had two different costs.";
    CostCompressed CostUnknown ["compressed"] "The body with the cost was compressed.";
    CostContentType CostUnknown ["content_type"] "The body with the cost was of another type.";
    CostIncomplete CostUnknown ["incomplete"] "The body with the cost ended too early.";
}

impl Event {
    /// Its place in [`Event::ALL`].
    #[must_use]
    #[expect(clippy::as_conversions, reason = "an enumeration without fields, from 0")]
    pub const fn index(self) -> usize {
        self as usize
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_event_is_a_series_of_its_own() {
        let all: BTreeSet<_> = Event::ALL.iter().map(|event| event.series()).collect();
        assert_eq!(all.len(), Event::ALL.len());
        for (place, event) in Event::ALL.iter().enumerate() {
            let (family, values) = event.series();
            assert_eq!(event.index(), place);
            assert_eq!(values.len(), family.describe().labels.len(), "{event:?}");
        }
    }
}
