//! The families of metrics of every surface: one row each. The text of the Worker and the server,
//! the names in Envoy and the tables of the documents are made from these rows.
//!
//! Invariant: names, labels and their words never change, because alerts are written with them. A
//! family's number never changes either, because sums are stored with it. Where Envoy counts the
//! same, it has the same name without `_total`, and for each rule the label `plugin`, too. A family
//! with other labels or another meaning in Envoy has a row of its own for it. A name from a policy
//! is one part of a dotted name in Envoy ([`metric_label`]); the compiler of documents checks that
//! two rules have different ones.
//!
//! Deliberately absent: how a family is counted. The filter reads names in constants alone, so that
//! its module contains no help.

use alloc::string::String;

use crate::spec::surface::Surface;

/// The type of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It only grows.
    Counter,
    /// It grows and shrinks.
    Gauge,
    /// The number of values up to each bound.
    Histogram,
}

impl Kind {
    /// Its name in the text: `counter`.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Description {
    /// The family of the row.
    pub family: Family,
    /// The whole name in the text of the Worker and the server; `_total` ends that of a counter.
    pub name: &'static str,
    /// The name in Envoy before the labels, which are parts of it there: `tollgate.requests`.
    pub envoy_name: &'static str,
    /// Counter, gauge or histogram.
    pub kind: Kind,
    /// The names of the labels, in the order of their values.
    pub labels: &'static [&'static str],
    /// The surfaces that have the family.
    pub surfaces: &'static [Surface],
    /// One sentence, without a full stop.
    pub help: &'static str,
}

macro_rules! text_name {
    (Counter $name:literal) => {
        concat!("tollgate_", $name, "_total")
    };
    ($kind:ident $name:literal) => {
        concat!("tollgate_", $name)
    };
}

macro_rules! families {
    ($($number:literal $family:ident $name:literal $kind:ident [$($label:ident),*]
        [$($surface:ident)*] $help:literal;)*) => {
        /// A family of metrics; its number is its place in [`FAMILIES`], counted from 1.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Family {
            $(#[doc = $help] $family = $number,)*
        }

        /// Every family, in the order of the text.
        pub const FAMILIES: &[Description] = &[$(Description {
            family: Family::$family,
            name: text_name!($kind $name),
            envoy_name: concat!("tollgate.", $name),
            kind: Kind::$kind,
            labels: &[$(stringify!($label)),*],
            surfaces: &[$(Surface::$surface),*],
            help: $help,
        },)*];
    };
}

// A new row comes last, with the next number.
families! {
    1 Requests "requests" Counter [answer] [Worker Server Envoy]
        "Requests by their result: allowed (passed), delayed, denied (refused), or unlimited when \
         no rule applied";
    2 Decisions "decisions" Counter [rule, quota, tier, result] [Worker Server]
        "Decisions of each rule that applied to a request; quota is the one that denies or \
         delays, else empty";
    3 NearLimit "near_limit" Counter [rule, quota, tier] [Worker Server]
        "Decisions that allowed a request and left at most a fifth of a quota, or of its burst \
         where that is less, without those that a shard made from its own units";
    4 Waits "wait_seconds" Histogram [le] [Worker Server]
        "The wait of requests that were allowed after it, in seconds";
    5 WaitingFull "waiting_full" Counter [] [Worker Server Envoy]
        "Requests denied because too many wait";
    6 RememberedDenials "remembered_denials" Counter [] [Worker Server]
        "Requests denied by a remembered denial, without asking an object";
    7 ObjectCalls "object_calls" Counter [call] [Worker Server]
        "Calls of objects: check charges, look only reads, settle reports a response or a cost, \
         refund gives back, tenant reads an entry";
    8 Failures "failures" Counter [cause] [Worker Server]
        "Calls of objects without a response in time (late), with an error (failed), with an \
         unreadable response (misread), and unreadable stored bytes (corrupt)";
    9 FailedRequests "failed_requests" Counter [on_failure] [Worker Server Envoy]
        "Requests that on_failure decided: allowed (allow) or denied (deny)";
    10 OriginFailures "origin_failures" Counter [] [Worker Server]
        "Requests without a response of the origin";
    11 PolicyRetries "policy_retries" Counter [] [Worker Server]
        "Requests planned again because an object knew a newer version of the policy";
    12 PolicyCheckFailures "policy_check_failures" Counter [] [Worker Server]
        "Failed requests for the policy in force, after which the last one stayed";
    13 LogDropped "log_dropped" Counter [] [Worker Server]
        "Denials, shadow denials and failures that were not logged";
    14 FlushFailures "metrics_flush_failures" Counter [] [Worker Server]
        "Failed transfers of counts to the sums; they are repeated later";
    15 PolicyVersion "policy_version" Gauge [] [Worker Server]
        "The newest version of the policy that requests were decided under; 0 is the deployed \
         file where no policy can be put";
    16 PolicyInfo "policy_info" Gauge [fingerprint, source] [Worker Server]
        "1 for the policy of that version: the hash of its document, and whether it is the file \
         that was deployed or was written by the API";
    17 Isolates "isolates" Gauge [] [Worker Server]
        "Isolates that sent counts within the last minute";
    18 Series "metrics_series" Gauge [] [Worker Server]
        "Series in the sums; at 10000 new ones are counted as rule (other)";
    19 OutdatedRequests "outdated_requests" Counter [] [Worker Server]
        "Requests decided under a policy that could not be confirmed to be in force";
    20 UnknownTenants "unknown_tenants" Counter [] [Worker Server]
        "Requests decided although the quotas of their tenant were unknown";
    21 Unauthorized "unauthorized" Counter [api, reason] [Worker Server]
        "Requests of the admin API, including metrics (admin), or of /check (check) whose token \
         was missing, wrong, or without the permission";
    22 LeaseQuestions "lease_questions" Counter [] [Worker Server]
        "Lease requests of nodes that got a response";
    23 LeaseConflicts "lease_conflicts" Counter [] [Worker Server]
        "Lease requests denied with 409 because the node has other rules of the fleet";
    24 LeaseUnits "lease_units" Counter [] [Worker Server]
        "Units leased to nodes";
    25 ShardRequests "shard_requests" Counter [by] [Worker Server]
        "Requests of keys with shards: paid from the units of a shard (held), by the key's own \
         object that it asked (asked), by a second shard after the first one denied (second), or \
         denied by that one, too (refused)";
    26 Keys "keys" Gauge [] [Server]
        "Keys in memory";
    27 KeyBytes "key_bytes" Gauge [] [Server]
        "Bytes of these keys";
    28 Evictions "evictions" Counter [] [Server]
        "Keys that were evicted although they were not idle; raise max_keys";
    29 Connections "connections" Gauge [] [Server]
        "Open connections";
    30 ConnectionsRefused "connections_refused" Counter [] [Server]
        "Connections closed because there were max_connections";
    31 ConnectionsRefusedByAddress "connections_refused_by_address" Counter [] [Server]
        "Connections closed because their address had max_per_address";
    32 ForwardAuthMalformed "forward_auth_malformed" Counter [] [Server]
        "Requests denied because a proxy described them incompletely or twice";
    33 PolicyFileRefused "policy_file_refused" Counter [] [Server]
        "Times that the policy file was read and could not be enforced";
    34 Overloaded "overloaded" Counter [] [Server]
        "Requests denied with 503 because there were max_requests, or too many unfinished bodies";
    35 Timeouts "timeouts" Counter [] [Server]
        "Requests whose body did not arrive in time";
    36 ReportsDenied "reports_denied" Counter [] [Server]
        "Descriptors of several hits that a rule denied, so that none of them was charged";
    37 DescriptorLimitsIgnored "descriptor_limits_ignored" Counter [] [Server]
        "Descriptors with a limit of their own, which no quota takes";
    38 ClientCertificatesRefused "client_certificates_refused" Counter [] [Server]
        "Connections closed because the client had no accepted certificate";
    39 TlsFailures "tls_failures" Counter [] [Server]
        "Connections whose TLS handshake failed or took too long";
    40 SpansSent "spans_sent" Counter [] [Server]
        "Spans that the collector of traces accepted";
    41 SpansDropped "spans_dropped" Counter [] [Server]
        "Spans dropped because too many waited, or the collector did not accept them";
    42 StoreCalls "store_calls" Counter [] [Server]
        "Calls to the shared store";
    43 StoreAnswers "store_answers" Counter [] [Server]
        "Requests in these calls; a call for a hot key has many";
    44 StoreRaces "store_races" Counter [] [Server]
        "Calls that lost a race to another server, and were decided again";
    45 StoreLate "store_late" Counter [] [Server]
        "Calls denied because clocks differed or they arrived late";
    46 StoreUnknown "store_unknown" Counter [] [Server]
        "Calls with an unknown outcome";
    47 StoreOverloaded "store_overloaded" Counter [] [Server]
        "Requests denied with 503 because too many waited";
    48 StoreEmptied "store_emptied" Counter [] [Server]
        "Times that a node of the store had lost its data";
    49 StoreOpened "store_opened" Counter [] [Server]
        "Times that the store was not asked for a while, because it was silent";
    50 StoreFaults "store_faults" Counter [fault] [Server]
        "Failures of the shared store by their cause";
    51 GrpcCalls "grpc_calls" Counter [call, code] [Server]
        "Calls of gRPC by their code";
    52 EnvoyDecisions "decisions" Counter [plugin, rule, quota, tier, result] [Envoy]
        "Decisions of each rule that applied to a request; quota is the one that denies or \
         delays";
    53 EnvoyNearLimit "near_limit" Counter [plugin, rule, quota, tier] [Envoy]
        "Decisions that allowed a request and left at most a fifth of a quota, or of its burst \
         where that is less";
    54 EnvoyFailures "failures" Counter [] [Envoy]
        "States that could not be read or written";
    55 EnvoyRememberedDenials "remembered_denials" Counter [] [Envoy]
        "Requests denied without reading the tables";
    56 CasRetries "cas_retries" Counter [] [Envoy]
        "Commits that lost a race to another worker and were decided again";
    57 EnvoyEvictions "evictions" Counter [] [Envoy]
        "Live keys that were evicted from a full bucket";
    58 EvictionsHalfUsed "evictions_half_used" Counter [] [Envoy]
        "Evicted keys that had used half of a quota or more: clients that were limited, or near \
         it, and start again";
    59 TableKeys "table_keys" Gauge [plugin] [Envoy]
        "Keys in the tables, including idle ones until others take their place";
    60 TableRoom "table_room" Gauge [plugin] [Envoy]
        "Keys that the tables have room for";
    61 WaitMs "wait_ms" Histogram [] [Envoy]
        "The wait of requests that were allowed after it, in milliseconds";
    62 Waiting "waiting" Gauge [] [Envoy]
        "Requests that wait, in all workers";
    63 WaitingBytes "waiting_bytes" Gauge [] [Envoy]
        "Bytes of waiting requests";
    64 WaitingLeft "waiting_left" Counter [] [Envoy]
        "Requests that ended while they waited: the client left, or a timeout ended them";
    65 PlacesUnused "places_unused" Counter [] [Envoy]
        "Places of a leaky-queue that a client left and no request took";
    66 MemoryBytes "memory_bytes" Gauge [] [Envoy]
        "Memory of the filter in all workers, as of the last change of the gauges of waiting \
         requests; it does not shrink";
    67 Uncounted "uncounted" Gauge [] [Envoy]
        "Workers whose counts are not in the counters yet, including any that crashed in that \
         moment";
    68 UnverifiedAddresses "unverified_addresses" Gauge [] [Envoy]
        "Policies of workers that got a request whose address Envoy had not verified; above 0, a \
         client can choose the address by which it is counted";
    69 EnvoyPolicyVersion "policy_version" Gauge [plugin] [Envoy]
        "The version of the server's policy in force; 0 for the configuration's own policy, and \
         once no listener's plugin of that name follows a server any more";
    70 PolicyFetchFailures "policy_fetch_failures" Counter [] [Envoy]
        "Requests that returned no policy, of all workers";
    71 PolicyRefused "policy_refused" Counter [] [Envoy]
        "Policies that arrived and were not used, per worker: wrong here, or older";
    72 FleetAsked "fleet_asked" Counter [] [Envoy]
        "Lease requests to the authority; divided by all requests they are the share that \
         leaves the proxy";
    73 FleetGranted "fleet_granted" Counter [] [Envoy]
        "Leases that the authority granted";
    74 FleetRefused "fleet_refused" Counter [] [Envoy]
        "Requests that the authority denied";
    75 FleetFailed "fleet_failed" Counter [] [Envoy]
        "Lease requests without a usable response: no connection, timeout, 409, 5xx";
    76 FleetOverloaded "fleet_overloaded" Counter [] [Envoy]
        "Requests for which no lease request could be sent because too many are in flight";
    77 FleetPaused "fleet_paused" Gauge [] [Envoy]
        "Requests that wait for a response of the authority";
    78 CostUnits "cost_units" Counter [of] [Worker Server Envoy]
        "Units of requests whose cost their response settles: charged when a request arrived \
         (estimate), and in the end (final)";
    79 CostUnknown "cost_unknown" Counter [reason] [Worker Server Envoy]
        "Responses that did not show their cost, so that the estimate stayed charged";
    80 InFlightLate "in_flight_late" Counter [] [Worker Server Envoy]
        "Requests in flight that were confirmed too late, so that others may have had their places";
    81 InFlightReports "in_flight_reports" Counter [report] [Worker Server]
        "Reports of callers about requests in flight: they still run (renewed), or have ended \
         (done)";
}

impl Family {
    /// Its number, with which sums are stored.
    #[must_use]
    #[expect(clippy::as_conversions, reason = "an enumeration without fields, of this type")]
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// Its row.
    #[must_use]
    #[expect(clippy::as_conversions, reason = "an enumeration without fields, from 1")]
    #[expect(clippy::indexing_slicing, reason = "the table has a row for each, in this order")]
    #[expect(clippy::arithmetic_side_effects, reason = "no family has the number 0")]
    pub const fn describe(self) -> &'static Description {
        &FAMILIES[self as usize - 1]
    }

    /// Its name in Envoy. Called in constants, so that the filter contains only the name.
    #[must_use]
    pub const fn envoy_name(self) -> &'static str {
        self.describe().envoy_name
    }
}

/// `name`, of a rule, a quota or a plugin, as a part of a metric's name: a dot would end the part,
/// and other characters confuse exporters, so every character except letters, digits, `-` and `_`
/// becomes `_`.
#[must_use]
pub fn metric_label(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_') { c } else { '_' };
    name.chars().map(plain).collect()
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeSet;

    use super::*;

    /// The numbers are stored and the names are used in alerts: a row may be added, never changed.
    #[test]
    fn rows_differ_and_are_named_by_convention() {
        let mut names = BTreeSet::new();
        for (place, row) in FAMILIES.iter().enumerate() {
            assert_eq!(usize::from(row.family.number()), place + 1, "{}", row.name);
            assert_eq!(row.name.ends_with("_total"), row.kind == Kind::Counter, "{}", row.name);
            let plain = |c: char| c.is_ascii_lowercase() || c == '_';
            assert!(row.name.chars().all(plain) && row.help.is_ascii(), "{}", row.name);
            assert!(!row.help.contains(['\\', '\n', '|']) && !row.help.ends_with('.'));
            for surface in row.surfaces {
                assert!(names.insert((surface.name(), row.name)), "{} twice", row.name);
            }
        }
        assert_eq!(Family::ShardRequests.number(), 25, "no row was inserted before it");
    }
}
