//! The families of metrics: one row each, with its name, kind, labels and help.
//!
//! Invariant: names, labels and their words never change, because alerts are written with them. A
//! family's code never changes either, because sums are stored with it. Names follow the
//! conventions of Prometheus: `_total` ends a counter, base units (seconds). Where the filter for
//! Envoy counts the same, it has the same name (`tollgate.decisions` there,
//! `tollgate_decisions_total` here).

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

/// A family of metrics, in the order of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    /// Requests, by response.
    Requests,
    /// Results of each rule, by rule, quota, tier and result.
    Decisions,
    /// Allowed, but a quota is nearly used up.
    NearLimit,
    /// The waits of requests that were allowed after a wait.
    Waits,
    /// Denied because too many wait.
    WaitingFull,
    /// Denied without asking an object.
    RememberedDenials,
    /// Calls of objects.
    ObjectCalls,
    /// Calls of objects that failed, by cause.
    Failures,
    /// Requests that `on_failure` decided.
    FailedRequests,
    /// The origin gave no response.
    OriginFailures,
    /// Planned again, because an object knows a newer policy.
    PolicyRetries,
    /// Requests for the policy in force that failed.
    PolicyCheckFailures,
    /// Events of which no line was logged.
    LogDropped,
    /// Counts that could not be added to the sums at once.
    FlushFailures,
    /// The policy's version.
    PolicyVersion,
    /// The identity of that policy.
    PolicyInfo,
    /// Isolates that count.
    Isolates,
    /// Series that are kept.
    Series,
    /// Requests decided under a policy that may not be in force any more.
    OutdatedRequests,
    /// Requests whose tenant's entry was unknown.
    UnknownTenants,
    /// Requests denied for their token.
    Unauthorized,
    /// Requests of nodes about leases that got a response.
    LeaseQuestions,
    /// Requests of nodes with other fleet rules.
    LeaseConflicts,
    /// Units that were leased.
    LeaseUnits,
    /// Requests of keys with shards.
    ShardRequests,
}

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Description {
    /// The family of the row.
    pub family: Family,
    /// The code with which sums are stored.
    pub code: u8,
    /// The name in the text, whole.
    pub name: &'static str,
    /// Counter, gauge or histogram.
    pub kind: Kind,
    /// The names of the labels, in the order of their values.
    pub labels: &'static [&'static str],
    /// One sentence, without a full stop.
    pub help: &'static str,
}

/// Every family, in the order of the text.
pub static FAMILIES: [Description; 25] = [
    Description {
        family: Family::Requests,
        code: 1,
        name: "tollgate_requests_total",
        kind: Kind::Counter,
        labels: &["answer"],
        help: "Requests by what they were answered: passed, delayed, refused, or unlimited when \
                 no rule applied",
    },
    Description {
        family: Family::Decisions,
        code: 2,
        name: "tollgate_decisions_total",
        kind: Kind::Counter,
        labels: &["rule", "quota", "tier", "result"],
        help: "Decisions of each rule that applied to a request; quota is the one that refuses \
                 or delays, else empty",
    },
    Description {
        family: Family::NearLimit,
        code: 3,
        name: "tollgate_near_limit_total",
        kind: Kind::Counter,
        labels: &["rule", "quota", "tier"],
        help: "Decisions that admitted a request and left at most a fifth of a quota, or of its \
               burst where that is less, without those that a shard made by what it held",
    },
    Description {
        family: Family::Waits,
        code: 4,
        name: "tollgate_wait_seconds",
        kind: Kind::Histogram,
        labels: &["le"],
        help: "How long requests waited that passed after a wait",
    },
    Description {
        family: Family::WaitingFull,
        code: 5,
        name: "tollgate_waiting_full_total",
        kind: Kind::Counter,
        labels: &[],
        help: "Requests refused because too many wait",
    },
    Description {
        family: Family::RememberedDenials,
        code: 6,
        name: "tollgate_remembered_denials_total",
        kind: Kind::Counter,
        labels: &[],
        help: "Requests refused by a remembered denial, without asking an object",
    },
    Description {
        family: Family::ObjectCalls,
        code: 7,
        name: "tollgate_object_calls_total",
        kind: Kind::Counter,
        labels: &["call"],
        help: "Calls of objects: check charges, look only asks, settle follows the response \
                 or says a cost, refund gives back, tenant asks for an entry",
    },
    Description {
        family: Family::Failures,
        code: 8,
        name: "tollgate_failures_total",
        kind: Kind::Counter,
        labels: &["cause"],
        help: "Calls of objects without an answer in time (late), with an error (failed), with \
                 one that cannot be read (misread), and stored bytes that are no counts (corrupt)",
    },
    Description {
        family: Family::FailedRequests,
        code: 9,
        name: "tollgate_failed_requests_total",
        kind: Kind::Counter,
        labels: &["on_failure"],
        help: "Requests about which on_failure decided: let through (allow) or refused (deny)",
    },
    Description {
        family: Family::OriginFailures,
        code: 10,
        name: "tollgate_origin_failures_total",
        kind: Kind::Counter,
        labels: &[],
        help: "Requests that the origin did not answer",
    },
    Description {
        family: Family::PolicyRetries,
        code: 11,
        name: "tollgate_policy_retries_total",
        kind: Kind::Counter,
        labels: &[],
        help: "Requests planned again because an object knew a newer version of the policy",
    },
    Description {
        family: Family::PolicyCheckFailures,
        code: 12,
        name: "tollgate_policy_check_failures_total",
        kind: Kind::Counter,
        labels: &[],
        help: "Times that the policy in force could not be asked for, so that the last one stayed",
    },
    Description {
        family: Family::LogDropped,
        code: 13,
        name: "tollgate_log_dropped_total",
        kind: Kind::Counter,
        labels: &[],
        help: "Refusals, shadow refusals and failures of which no line was logged",
    },
    Description {
        family: Family::FlushFailures,
        code: 14,
        name: "tollgate_metrics_flush_failures_total",
        kind: Kind::Counter,
        labels: &[],
        help: "Times that counts could not be brought to the sums at once; they are brought later",
    },
    Description {
        family: Family::PolicyVersion,
        code: 15,
        name: "tollgate_policy_version",
        kind: Kind::Gauge,
        labels: &[],
        help: "The newest version of the policy that requests were decided under; 0 is the \
                 deployed file where no policy can be put",
    },
    Description {
        family: Family::PolicyInfo,
        code: 16,
        name: "tollgate_policy_info",
        kind: Kind::Gauge,
        labels: &["fingerprint", "source"],
        help: "1 for the policy of that version: the hash of its document, and whether it is the \
                 file that was deployed or was written by the API",
    },
    Description {
        family: Family::Isolates,
        code: 17,
        name: "tollgate_isolates",
        kind: Kind::Gauge,
        labels: &[],
        help: "Isolates that brought counts within the last minute",
    },
    Description {
        family: Family::Series,
        code: 18,
        name: "tollgate_metrics_series",
        kind: Kind::Gauge,
        labels: &[],
        help: "Series that the sums hold; at 10000 new ones are counted as rule (other)",
    },
    Description {
        family: Family::OutdatedRequests,
        code: 19,
        name: "tollgate_outdated_requests_total",
        kind: Kind::Counter,
        labels: &[],
        help: "Requests decided under a policy that could not be confirmed to be in force",
    },
    Description {
        family: Family::UnknownTenants,
        code: 20,
        name: "tollgate_unknown_tenants_total",
        kind: Kind::Counter,
        labels: &[],
        help: "Requests decided although the quotas of their tenant were unknown",
    },
    Description {
        family: Family::Unauthorized,
        code: 21,
        name: "tollgate_unauthorized_total",
        kind: Kind::Counter,
        labels: &["api", "reason"],
        help: "Requests of the admin API, metrics among it (admin), or of /check (check) whose \
                 token was missing, wrong, or forbidden to do this",
    },
    Description {
        family: Family::LeaseQuestions,
        code: 22,
        name: "tollgate_lease_questions_total",
        kind: Kind::Counter,
        labels: &[],
        help: "Questions of nodes about leases that were answered",
    },
    Description {
        family: Family::LeaseConflicts,
        code: 23,
        name: "tollgate_lease_conflicts_total",
        kind: Kind::Counter,
        labels: &[],
        help: "Questions refused with 409 because the node has other rules of the fleet",
    },
    Description {
        family: Family::LeaseUnits,
        code: 24,
        name: "tollgate_lease_units_total",
        kind: Kind::Counter,
        labels: &[],
        help: "Units leased to nodes",
    },
    Description {
        family: Family::ShardRequests,
        code: 25,
        name: "tollgate_shard_requests_total",
        kind: Kind::Counter,
        labels: &["by"],
        help: "Requests of keys with shards: paid from what a shard held (held), by the key's own \
                 object that it asked (asked), by a second shard after the first one refused \
                 (second), or refused although that was asked, too (refused)",
    },
];

impl Family {
    /// Its row.
    #[must_use]
    #[expect(clippy::as_conversions, reason = "an enumeration without fields, from 0")]
    #[expect(clippy::indexing_slicing, reason = "the table has a row for each: its test says so")]
    pub fn describe(self) -> &'static Description {
        &FAMILIES[self as usize]
    }

    /// The family with this code.
    pub(super) fn of_code(code: u8) -> Option<Self> {
        FAMILIES.iter().find(|row| row.code == code).map(|row| row.family)
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeSet;
    use alloc::format;
    use alloc::string::String;
    use alloc::vec::Vec;

    use super::*;

    /// The codes are stored and the names are used in alerts: a row may be added, never changed.
    #[test]
    fn rows_are_told_apart_and_named_by_convention() {
        let rows = &FAMILIES;
        let codes: BTreeSet<u8> = rows.iter().map(|row| row.code).collect();
        let names: BTreeSet<&str> = rows.iter().map(|row| row.name).collect();
        assert_eq!((codes.len(), names.len()), (rows.len(), rows.len()));
        for (place, row) in rows.iter().enumerate() {
            assert_eq!(usize::from(row.code), place + 1, "{}", row.name);
            assert_eq!(row.family.describe().name, row.name, "the order of the table");
            assert_eq!(row.name.ends_with("_total"), row.kind == Kind::Counter, "{}", row.name);
            assert!(row.name.starts_with("tollgate_") && !row.help.ends_with('.'), "{}", row.name);
            let plain = |c: char| c.is_ascii_lowercase() || c == '_';
            assert!(row.name.chars().all(plain) && row.help.is_ascii(), "{}", row.name);
        }
    }

    /// The document's description of each family, whole.
    #[test]
    fn the_document_has_every_row() {
        let document = include_str!("../../../../docs/metrics.md");
        let mut told = document.lines().filter(|line| line.starts_with("| `tollgate_"));
        for row in &FAMILIES {
            let labels: Vec<String> = row.labels.iter().map(|label| format!("`{label}`")).collect();
            let (name, kind, labels) = (row.name, row.kind.word(), labels.join(", "));
            let space = if labels.is_empty() { "" } else { " " };
            let line = format!("| `{name}` | {kind} |{space}{labels} | {} |", row.help);
            assert_eq!(told.next(), Some(line.as_str()));
        }
        assert_eq!(told.next(), None, "the document has another one");
    }
}
