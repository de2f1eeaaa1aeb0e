//! The server's counters, and their sums.
//!
//! Invariant: every decision is counted once. Threads count in parts with a lock each, so that two
//! threads seldom want the same one. Reading the sums first gathers the parts. Nothing is on disk:
//! a server starts at 0, as every Prometheus counter may.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use tollgate_core::Span;
use tollgate_policy::{Outcome, Policy};
use tollgate_redis::{Engine, Fault, Tally};
use tollgate_service::metrics::{Counters, Event, Family, Format, PolicyInForce, Sums};

use crate::gate::call_counts::CallCounts;
use crate::store::table::Occupancy;

/// Parts: more than the busy threads of any server.
const PARTS: usize = 64;

static NEXT: AtomicUsize = AtomicUsize::new(0);
thread_local! {
    /// The part of this thread.
    static PART: usize = NEXT.fetch_add(1, Ordering::Relaxed) & (PARTS - 1);
}

/// The counts.
#[derive(Debug)]
pub struct ServerMetrics {
    parts: Vec<Mutex<Counters>>,
    sums: Mutex<(Sums, u64)>,
}

impl ServerMetrics {
    /// Nothing counted; `is_off` when no caller can ever read the counters.
    #[must_use]
    pub fn new(is_off: bool) -> Self {
        let parts = (0..PARTS).map(|_| Mutex::new(Counters::new(is_off))).collect();
        Self { parts, sums: Mutex::default() }
    }

    /// Counts one.
    pub fn add(&self, event: Event) {
        self.add_many(event, 1);
    }

    /// Counts this many.
    pub fn add_many(&self, event: Event, count: u64) {
        self.with(|counters| counters.add_many(event, count));
    }

    /// Counts one decided request. True when a rule had a result that may be logged.
    pub fn count(&self, policy: &Policy, outcome: &Outcome<'_>, waited: Span) -> bool {
        self.with(|counters| counters.count(policy, outcome, waited)).unwrap_or(false)
    }

    fn with<T>(&self, step: impl FnOnce(&Counters) -> T) -> Option<T> {
        let part = self.parts.get(PART.with(|part| *part))?;
        Some(step(&part.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    /// Adds the parts to the sums. Called now and then, so that no part grows, and before each
    /// read.
    pub fn gather(&self, policy: PolicyInForce, now_ms: u64) {
        let mut sums = self.sums.lock().unwrap_or_else(PoisonError::into_inner);
        let (sums, sequence) = &mut *sums;
        for part in &self.parts {
            *sequence = sequence.saturating_add(1);
            let part = part.lock().unwrap_or_else(PoisonError::into_inner);
            // All parts are one isolate: the process.
            if let Some(delta) = part.take(1, *sequence, policy) {
                sums.add(&delta, now_ms / 1000);
            }
        }
    }

    /// The text of all counters, including those of the store and the server.
    #[must_use]
    pub fn text(
        &self,
        format: Format,
        now_ms: u64,
        own: &ServerCounts,
        calls: &CallCounts,
    ) -> String {
        let sums = self.sums.lock().unwrap_or_else(PoisonError::into_inner);
        let mut text = sums.0.text(format, now_ms / 1000);
        let end = "# EOF\n";
        let is_open = text.ends_with(end);
        if is_open {
            text.truncate(text.len().saturating_sub(end.len()));
        }
        own.write(format, &mut text);
        calls.write(format, &mut text);
        text.push_str(if is_open { end } else { "" });
        text
    }
}

/// Numbers that only a server has.
#[derive(Clone, Copy, Debug, Default)]
pub struct ServerCounts {
    /// The contents of the table.
    pub held: Occupancy,
    /// Open connections.
    pub connections: u64,
    /// Connections that were closed because there were too many.
    pub connections_refused: u64,
    /// Connections that were closed because their address had too many.
    pub connections_of_one: u64,
    /// Forward auth requests whose proxy did not describe them.
    pub misled: u64,
    /// Descriptors of several hits that a rule denied, so that none of them was charged.
    pub reports_denied: u64,
    /// Descriptors with a limit of their own, which no quota takes.
    pub limits_ignored: u64,
    /// Times that the policy file was read and could not be enforced.
    pub files_refused: u64,
    /// Requests that were denied with 503 because too many were in progress.
    pub overloaded: u64,
    /// Requests whose head or body did not arrive in time.
    pub timed_out: u64,
    /// Connections denied because the client had no certificate that is accepted.
    pub certificates_refused: u64,
    /// Connections whose TLS handshake failed or took too long.
    pub handshakes_failed: u64,
    /// Spans that a collector took, and those that were dropped.
    pub spans: (u64, u64),
    /// Operations on the engine, if there is one.
    pub engine: Option<EngineCounts>,
}

/// Operations on the engine that servers share.
#[derive(Clone, Copy, Debug)]
pub struct EngineCounts {
    /// Calls, and their results.
    pub tally: Tally,
    /// How often a node was found to have lost its data.
    pub emptied: u64,
    /// How often each fault occurred.
    pub faults: [(Fault, u64); Fault::ALL.len()],
}

impl ServerCounts {
    fn write(&self, format: Format, text: &mut String) {
        let number = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
        let (spans_sent, spans_dropped) = self.spans;
        for (family, value) in [
            (Family::Keys, number(self.held.keys)),
            (Family::KeyBytes, number(self.held.bytes)),
            (Family::Evictions, self.held.evicted),
            (Family::Connections, self.connections),
            (Family::ConnectionsRefused, self.connections_refused),
            (Family::ConnectionsRefusedByAddress, self.connections_of_one),
            (Family::ForwardAuthMalformed, self.misled),
            (Family::PolicyFileRefused, self.files_refused),
            (Family::Overloaded, self.overloaded),
            (Family::Timeouts, self.timed_out),
            (Family::ReportsDenied, self.reports_denied),
            (Family::DescriptorLimitsIgnored, self.limits_ignored),
            (Family::ClientCertificatesRefused, self.certificates_refused),
            (Family::TlsFailures, self.handshakes_failed),
            (Family::SpansSent, spans_sent),
            (Family::SpansDropped, spans_dropped),
        ] {
            format.push(family, [([], value)], text);
        }
        if let Some(engine) = &self.engine {
            engine.write(format, text);
        }
    }
}

impl EngineCounts {
    /// The numbers of an engine.
    #[must_use]
    pub fn of(engine: &Engine) -> Self {
        let mut faults = Fault::ALL.map(|fault| (fault, 0));
        for (total, counted) in faults.iter_mut().zip(engine.faults()) {
            *total = counted;
        }
        Self { tally: engine.tally(), emptied: engine.emptied(), faults }
    }

    fn write(&self, format: Format, text: &mut String) {
        let Tally { calls, acknowledged, mismatches, other_times, unknown, .. } = self.tally;
        let Tally { overloaded, opened, .. } = self.tally;
        for (family, value) in [
            (Family::StoreCalls, calls),
            (Family::StoreAnswers, acknowledged),
            (Family::StoreRaces, mismatches),
            (Family::StoreLate, other_times),
            (Family::StoreUnknown, unknown),
            (Family::StoreOverloaded, overloaded),
            (Family::StoreEmptied, self.emptied),
            (Family::StoreOpened, opened),
        ] {
            format.push(family, [([], value)], text);
        }
        let faults = self.faults.iter().map(|(fault, value)| ([fault.label()], *value));
        format.push(Family::StoreFaults, faults, text);
    }
}

#[cfg(test)]
mod tests {
    use tollgate_policy::Surface;
    use tollgate_policy::metrics::FAMILIES;

    use super::*;

    #[test]
    fn the_text_has_every_family_of_the_server_once() {
        let counting = ServerMetrics::new(false);
        let tally = Tally::default();
        let faults = Fault::ALL.map(|fault| (fault, 0));
        let own = ServerCounts {
            engine: Some(EngineCounts { tally, emptied: 0, faults }),
            ..ServerCounts::default()
        };
        let text = counting.text(Format::Prometheus, 0, &own, &CallCounts::default());
        let heads = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
        let mut heads: Vec<_> = heads.map(str::to_owned).collect();
        heads.sort();
        let rows = FAMILIES.iter().filter(|row| row.surfaces.contains(&Surface::Server));
        let mut rows: Vec<_> =
            rows.map(|row| format!("{} {}", row.name, row.kind.word())).collect();
        rows.sort();
        assert_eq!(heads, rows);
    }
}
