//! The state that all requests share: the store, the policy in force, the waiting requests, and the
//! counters.
//!
//! Invariant: shared by all threads, and nothing of it is locked across an await.

pub mod call_counts;
pub mod counting;
pub(crate) mod lines;
pub(crate) mod cached_denials;
pub(crate) mod tenant_cache;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use tollgate_policy::{Disposition, Group, Outcome, Outdated, Plan, Policy};
use tollgate_service::log::{Kind, Sampler, Share};
use tollgate_service::metrics::Event;
use tollgate_service::{NotableResult, Unauthorized, lease, notable_results};

use crate::clock::Clock;
use crate::gate::cached_denials::CachedDenials;
use crate::gate::call_counts::CallCounts;
use crate::gate::counting::{EngineCounts, ServerCounts, ServerMetrics};
use crate::gate::lines::Lines;
use crate::gate::tenant_cache::TenantCache;
use crate::log::{Level, Log};
use crate::policy::following::Following;
use crate::store::{ClockKind, Name, NoReply, Store};
use crate::traces::Traces;

/// The time between two lines about a store that fails, in milliseconds.
const BETWEEN_LINES_MS: u64 = 10_000;

/// The time between two lines about features of rate limit requests without effect, in
/// milliseconds.
const BETWEEN_HINTS_MS: u64 = 60_000;

/// The shared state.
#[derive(Debug)]
pub struct Gate {
    /// The store of counts and rules.
    pub store: Store,
    /// The time here.
    pub clock: Clock,
    /// The log.
    pub log: Log,
    /// The counters.
    pub counting: ServerMetrics,
    /// The policy in force.
    pub following: Following,
    pub(crate) lines: Lines,
    pub(crate) tenants: TenantCache,
    /// Denies requests without asking the store.
    pub(crate) denials: CachedDenials,
    pub(crate) hash_key: Vec<u8>,
    /// The secret from which the names of the fleet's counts are derived; `None` where no node
    /// leases.
    pub(crate) fleet_secret: Option<[u8; 16]>,
    sampler: Mutex<Sampler>,
    failures: Mutex<(u64, u64)>,
    misled_logged_ms: Mutex<u64>,
    certificate_logged_ms: Mutex<u64>,
    report_logged_ms: Mutex<u64>,
    limit_logged_ms: Mutex<u64>,
    /// The sender of spans, if traces are configured; set before the first request.
    pub(crate) traces: OnceLock<Traces>,
    /// The counters of the listeners: see [`ServerCounts`].
    pub traffic: Traffic,
}

/// The counters of the listeners.
#[derive(Debug, Default)]
pub struct Traffic {
    /// See [`ServerCounts::connections`].
    pub connections: AtomicU64,
    /// See [`ServerCounts::connections_refused`].
    pub connections_refused: AtomicU64,
    /// See [`ServerCounts::connections_of_one`].
    pub connections_of_one: AtomicU64,
    /// See [`ServerCounts::misled`].
    pub misled: AtomicU64,
    /// See [`ServerCounts::reports_denied`].
    pub reports_denied: AtomicU64,
    /// See [`ServerCounts::limits_ignored`].
    pub limits_ignored: AtomicU64,
    /// See [`ServerCounts::files_refused`].
    pub files_refused: AtomicU64,
    /// See [`ServerCounts::overloaded`].
    pub overloaded: AtomicU64,
    /// See [`ServerCounts::timed_out`].
    pub timed_out: AtomicU64,
    /// See [`ServerCounts::certificates_refused`].
    pub certificates_refused: AtomicU64,
    /// See [`ServerCounts::handshakes_failed`].
    pub handshakes_failed: AtomicU64,
    /// gRPC calls, and their statuses.
    pub calls: CallCounts,
}

/// The parts that a gate is made from.
#[derive(Debug)]
pub struct Parts {
    /// The store of counts and rules.
    pub store: Store,
    /// The time.
    pub clock: Clock,
    /// The log.
    pub log: Log,
    /// The policy in force.
    pub following: Following,
    /// The secret with which keys are hashed before any caller gets them; empty for none.
    pub hash_key: Vec<u8>,
    /// The secret from which the names of the fleet's counts are derived
    /// ([`tollgate_policy::fleet_secret`]); `None` where no node leases.
    pub fleet_secret: Option<[u8; 16]>,
    /// The share of denials that is logged.
    pub log_share: Share,
    /// No caller can read the counters.
    pub is_uncounted: bool,
    /// Random, and known only to this process.
    pub seed: [u8; 16],
}

impl Gate {
    /// A gate. Refunds after a client left use it, too. It sends nothing to the store yet.
    #[must_use]
    pub fn new(parts: Parts) -> Arc<Self> {
        let lines = Lines::new(parts.following.active().policy.waiting());
        let denials = CachedDenials::new(parts.store.timeout(), parts.seed);
        Arc::new(Self {
            store: parts.store,
            clock: parts.clock,
            log: parts.log,
            counting: ServerMetrics::new(parts.is_uncounted),
            following: parts.following,
            lines,
            tenants: TenantCache::new(parts.seed),
            denials,
            hash_key: parts.hash_key,
            fleet_secret: parts.fleet_secret,
            sampler: Mutex::new(Sampler::new(parts.log_share)),
            failures: Mutex::default(),
            misled_logged_ms: Mutex::default(),
            certificate_logged_ms: Mutex::default(),
            report_logged_ms: Mutex::default(),
            limit_logged_ms: Mutex::default(),
            traces: OnceLock::new(),
            traffic: Traffic::default(),
        })
    }

    /// The name of the count of `key` in the group of this index, under `policy`.
    pub(crate) fn name_of(&self, policy: &Policy, (group, key): (usize, &[u8])) -> Name {
        let by_calendar = policy.groups().get(group).is_some_and(Group::is_by_calendar);
        let clock = if by_calendar { ClockKind::Wall } else { ClockKind::Steady };
        self.store.name_of(&lease::key_name(policy, self.fleet_secret, key), clock)
    }

    /// The server's own numbers.
    #[must_use]
    pub fn own(&self) -> ServerCounts {
        use std::sync::atomic::Ordering::Relaxed;
        let Traffic { connections, connections_refused, .. } = &self.traffic;
        let Traffic { connections_of_one, misled, overloaded, timed_out, .. } = &self.traffic;
        let Traffic { certificates_refused, handshakes_failed, .. } = &self.traffic;
        let Traffic { reports_denied, limits_ignored, files_refused, .. } = &self.traffic;
        ServerCounts {
            held: self.store.held(),
            connections: connections.load(Relaxed),
            connections_refused: connections_refused.load(Relaxed),
            connections_of_one: connections_of_one.load(Relaxed),
            misled: misled.load(Relaxed),
            reports_denied: reports_denied.load(Relaxed),
            limits_ignored: limits_ignored.load(Relaxed),
            files_refused: files_refused.load(Relaxed),
            overloaded: overloaded.load(Relaxed),
            timed_out: timed_out.load(Relaxed),
            certificates_refused: certificates_refused.load(Relaxed),
            handshakes_failed: handshakes_failed.load(Relaxed),
            spans: self.traces.get().map(Traces::counts).unwrap_or_default(),
            engine: self.store.engine().map(EngineCounts::of),
        }
    }

    /// Logs the notable results of one decided request.
    pub(crate) fn log_refusals(&self, policy: &Policy, outcome: &Outcome<'_>) {
        let now_ms = self.clock.now_ms();
        for NotableResult { mut line, partition } in notable_results(policy, *outcome) {
            let taken = {
                let mut sampler = self.sampler.lock().unwrap_or_else(PoisonError::into_inner);
                if !sampler.is_on() {
                    return;
                }
                sampler.take(line.event, now_ms)
            };
            match taken {
                None => self.counting.add(Event::LogDropped),
                Some(dropped) => {
                    line.dropped = dropped;
                    if !self.hash_key.is_empty() {
                        line.pk = partition.and_then(|i| outcome.partition_key_hash(i));
                    }
                    self.log.line(&line.to_json());
                }
            }
        }
    }

    /// Counts a request that was denied for its token or its address, and logs some of them.
    pub(crate) fn note_unauthorized(&self, refused: Unauthorized) {
        self.counting.add(refused.event());
        let now_ms = self.clock.now_ms();
        let mut sampler = self.sampler.lock().unwrap_or_else(PoisonError::into_inner);
        let (is_on, taken) = (sampler.is_on(), sampler.take(Kind::Unauthorized, now_ms));
        drop(sampler);
        match taken {
            Some(dropped) => self.log.line(&refused.line(dropped)),
            None if is_on => self.counting.add(Event::LogDropped),
            None => {}
        }
    }

    /// Counts that a client had no certificate that is accepted; logs it now and then.
    pub(crate) fn note_certificate(&self, why: &dyn std::fmt::Display) {
        let count = self.traffic.certificates_refused.fetch_add(1, Ordering::Relaxed);
        if self.is_line_due(&self.certificate_logged_ms, BETWEEN_LINES_MS) {
            let count = count.saturating_add(1);
            let fields = [("count", count.into()), ("last", why.to_string().into())];
            self.log.event(Level::Warning, "client_certificate_refused", &fields);
        }
    }

    /// True, and noted, when the last line of its kind is long enough ago.
    fn is_line_due(&self, last_ms: &Mutex<u64>, between_ms: u64) -> bool {
        let now_ms = self.clock.now_ms();
        let mut last_ms = last_ms.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = *last_ms == 0 || now_ms >= last_ms.saturating_add(between_ms);
        if is_due {
            *last_ms = now_ms;
        }
        is_due
    }

    /// Counts that a proxy did not describe the request that it holds; logs it now and then.
    pub(crate) fn note_misled(&self, protocol: &str, why: &str) {
        let count = self.traffic.misled.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        if !self.is_line_due(&self.misled_logged_ms, BETWEEN_LINES_MS) {
            return;
        }
        let fields = [("protocol", protocol.into()), ("count", count.into()), ("last", why.into())];
        self.log.event(Level::Error, "proxy_misconfigured", &fields);
    }

    /// Counts a report of several hits that this rule denied, so that none of them was charged;
    /// logs it at most once a minute.
    pub(crate) fn note_report_denied(&self, rule: &str, hits: u64, hint: &'static str) {
        let count = self.traffic.reports_denied.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        if self.is_line_due(&self.report_logged_ms, BETWEEN_HINTS_MS) {
            let fields = [
                ("rule", rule.into()),
                ("hits", hits.into()),
                ("count", count.into()),
                ("hint", hint.into()),
            ];
            self.log.event(Level::Warning, "report_denied", &fields);
        }
    }

    /// Counts a descriptor with its own limit, which no quota takes; logs it at most once a
    /// minute.
    pub(crate) fn note_limit_ignored(&self, limit: &str) {
        let count = self.traffic.limits_ignored.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        if self.is_line_due(&self.limit_logged_ms, BETWEEN_HINTS_MS) {
            let hint =
                "limits are the policy's; leave it out of the descriptor, and give the rule a tier";
            let fields = [("limit", limit.into()), ("count", count.into()), ("hint", hint.into())];
            self.log.event(Level::Warning, "descriptor_limit_ignored", &fields);
        }
    }

    /// Counts a missing or invalid reply of the store; logs it now and then.
    pub(crate) fn note(&self, event: Event, why: &str) {
        self.counting.add(event);
        let now_ms = self.clock.now_ms();
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        let (since, last_ms) = &mut *failures;
        *since = since.saturating_add(1);
        if *last_ms != 0 && now_ms < last_ms.saturating_add(BETWEEN_LINES_MS) {
            return;
        }
        let fields = [("failures", (*since).into()), ("last", why.into())];
        self.log.event(Level::Error, "store_failed", &fields);
        (*since, *last_ms) = (0, now_ms);
    }

    /// Counts a failure of the store under its event of the metrics.
    pub(crate) fn note_no_reply(&self, why: &NoReply) {
        match why {
            NoReply::Late => self.note(Event::Late, "it does not respond in time"),
            NoReply::Failed(why) => self.note(Event::Failed, why),
            NoReply::Unreadable(why) => self.note(Event::Corrupt, why),
            NoReply::Overloaded => {}
        }
    }

    /// Counts the decisions of `on_failure`, if there are any.
    pub(crate) fn report_failures(&self, policy: &Policy, plan: &Plan) {
        if let Some(Outdated::Policy(_)) = plan.outdated() {
            self.note(Event::Failed, "its counts are of a newer policy");
        }
        if plan.has_failed() {
            let outcome = plan.outcome(policy);
            match outcome.final_disposition() {
                Disposition::Allow | Disposition::Delay(_) => self.counting.add(Event::LetThrough),
                Disposition::Deny { .. } | Disposition::Retry(_) => {
                    if outcome.is_failure() {
                        self.counting.add(Event::RefusedByFailure);
                    }
                }
            }
        }
    }

    /// Work that is due about once a second; `number` counts up.
    pub fn tick(&self, number: usize) {
        self.store.tick(number, self.clock.now());
        if number.is_multiple_of(8) {
            self.gather();
        }
    }

    /// Checks whether the engine still has its data; logs when it has not.
    pub(crate) async fn watch(&self) {
        let Some(engine) = self.store.engine() else { return };
        let nodes = engine.watch().await;
        if nodes > 0 {
            self.log.event(Level::Error, "store_emptied", &[("nodes", nodes.into())]);
        }
    }

    /// Adds the counters of all threads to the sums.
    pub fn gather(&self) {
        self.counting.gather(self.following.active().in_force(), self.clock.now_ms());
    }
}
