//! The server's counters, and their sums.
//!
//! Invariant: every decision is counted once. Threads count in parts with a lock each, so that two
//! threads seldom want the same one. Reading the sums first gathers the parts. Nothing is on disk:
//! a server starts at 0, as every Prometheus counter may.

use std::fmt::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use tollgate_core::Span;
use tollgate_policy::{Outcome, Policy};
use tollgate_redis::{Engine, Fault, Tally};
use tollgate_service::metrics::{Counters, Event, Format, PolicyInForce, Sums};

use crate::gate::call_counts::CallCounts;
use crate::store::table::Held;

/// Parts: more than the busy threads of any server.
const PARTS: usize = 64;

static NEXT: AtomicUsize = AtomicUsize::new(0);
thread_local! {
    /// The part of this thread.
    static PART: usize = NEXT.fetch_add(1, Ordering::Relaxed) & (PARTS - 1);
}

/// The counts.
#[derive(Debug)]
pub struct Counting {
    parts: Vec<Mutex<Counters>>,
    sums: Mutex<(Sums, u64)>,
}

impl Counting {
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
    pub fn text(&self, format: Format, now_ms: u64, own: &Own, calls: &CallCounts) -> String {
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
pub struct Own {
    /// The contents of the table.
    pub held: Held,
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
    /// Descriptors with a limit of their own, which decides nothing.
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
    pub engine: Option<EngineTold>,
}

/// Operations on the engine that servers share.
#[derive(Clone, Copy, Debug)]
pub struct EngineTold {
    /// Calls, and their results.
    pub tally: Tally,
    /// How often a node was found to have lost its data.
    pub emptied: u64,
    /// How often each fault occurred.
    pub faults: [(Fault, u64); Fault::ALL.len()],
}

/// A family of one row: its name, whether it only grows, its description, and the value.
type Row<'a> = (&'a str, bool, &'a str, u64);

impl Own {
    fn write(&self, format: Format, text: &mut String) {
        let number = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
        let rows = [
            ("tollgate_keys", false, "Keys that are held in memory", number(self.held.keys)),
            ("tollgate_key_bytes", false, "Bytes of them", number(self.held.bytes)),
            (
                "tollgate_evictions_total",
                true,
                "Keys that were forgotten although they were not idle; raise max_keys",
                self.held.evicted,
            ),
            ("tollgate_connections", false, "Connections that are open", self.connections),
            (
                "tollgate_connections_refused_total",
                true,
                "Connections closed because there were max_connections",
                self.connections_refused,
            ),
            (
                "tollgate_connections_refused_by_address_total",
                true,
                "Connections closed because their address had max_per_address",
                self.connections_of_one,
            ),
            (
                "tollgate_forward_auth_malformed_total",
                true,
                "Requests refused because a proxy did not say, or said twice, what they are",
                self.misled,
            ),
            (
                "tollgate_policy_file_refused_total",
                true,
                "Times that the policy file was read and could not be enforced",
                self.files_refused,
            ),
            (
                "tollgate_overloaded_total",
                true,
                "Requests refused with 503 because there were max_requests, or too many unfinished bodies",
                self.overloaded,
            ),
            (
                "tollgate_timeouts_total",
                true,
                "Requests whose body did not come in time",
                self.timed_out,
            ),
        ];
        let rows = rows.into_iter().chain(self.descriptors());
        for row in rows.chain(self.tls()).chain(self.spans()) {
            push(format, row, text);
        }
        if let Some(engine) = &self.engine {
            engine.write(format, text);
        }
    }

    /// Features of rate limit requests that have no effect.
    const fn descriptors(&self) -> [Row<'static>; 2] {
        [
            (
                "tollgate_reports_denied_total",
                true,
                "Descriptors of several hits that a rule denied, so that none of them was charged",
                self.reports_denied,
            ),
            (
                "tollgate_descriptor_limits_ignored_total",
                true,
                "Descriptors that brought a limit of their own, which decides nothing",
                self.limits_ignored,
            ),
        ]
    }

    /// The numbers of TLS.
    const fn tls(&self) -> [Row<'static>; 2] {
        [
            (
                "tollgate_client_certificates_refused_total",
                true,
                "Connections refused because the client had no certificate that is accepted",
                self.certificates_refused,
            ),
            (
                "tollgate_tls_failures_total",
                true,
                "Connections on which TLS was not agreed upon, or not in time",
                self.handshakes_failed,
            ),
        ]
    }

    /// The numbers of traces.
    const fn spans(&self) -> [Row<'static>; 2] {
        let (sent, dropped) = self.spans;
        [
            ("tollgate_spans_sent_total", true, "Spans that the collector of traces took", sent),
            (
                "tollgate_spans_dropped_total",
                true,
                "Spans dropped because too many waited, or the collector did not take them",
                dropped,
            ),
        ]
    }
}

impl EngineTold {
    /// The numbers of an engine.
    #[must_use]
    pub fn of(engine: &Engine) -> Self {
        let mut faults = Fault::ALL.map(|fault| (fault, 0));
        for (told, counted) in faults.iter_mut().zip(engine.faults()) {
            *told = counted;
        }
        Self { tally: engine.tally(), emptied: engine.emptied(), faults }
    }

    fn write(&self, format: Format, text: &mut String) {
        let Tally { calls, acknowledged, mismatches, other_times, unknown, .. } = self.tally;
        let Tally { overloaded, opened, .. } = self.tally;
        let rows = [
            ("calls", "Calls to the shared store", calls),
            ("answers", "Requests that they answered; a hot key has many in a call", acknowledged),
            (
                "races",
                "Calls that found what another server wrote, and were decided again",
                mismatches,
            ),
            ("late", "Calls refused because clocks differed or they came late", other_times),
            ("unknown", "Calls of which nobody knew whether they were done", unknown),
            ("overloaded", "Requests refused with 503 because too many waited", overloaded),
            ("emptied", "Times that a node of the store had lost what it had", self.emptied),
            ("opened", "Times that the store was not asked for a while, being silent", opened),
        ];
        for (name, help, value) in rows {
            push(format, (&format!("tollgate_store_{name}_total"), true, help, value), text);
        }
        let name = "tollgate_store_faults";
        let family = match format {
            Format::OpenMetrics => name.to_owned(),
            Format::Prometheus => format!("{name}_total"),
        };
        let help = "What the shared store did not do, and why";
        let _ = write!(text, "# HELP {family} {help}\n# TYPE {family} counter\n");
        for (fault, value) in self.faults {
            let label = fault.label();
            let _ = writeln!(text, "{name}_total{{fault=\"{label}\"}} {value}");
        }
    }
}

/// Appends a family of one row: its name, whether it only grows, its description, and the value.
fn push(format: Format, row: Row<'_>, text: &mut String) {
    let (name, is_counter, help, value) = row;
    let kind = if is_counter { "counter" } else { "gauge" };
    let family = match format {
        Format::OpenMetrics => name.trim_end_matches("_total"),
        Format::Prometheus => name,
    };
    let lines = format_args!("# HELP {family} {help}\n# TYPE {family} {kind}\n{name} {value}\n");
    // Writing to a text cannot fail.
    let _ = text.write_fmt(lines);
}
