//! A follower of a policy server: fetches the policy periodically, and puts it in force when it
//! changes.
//!
//! Invariant: there is always a good policy in force, the last good one or that of the
//! configuration. A policy that cannot be fetched, cannot be enforced here or is older changes
//! nothing, is counted, and is logged once for all workers together. No request waits for the
//! server; while a policy compiles, the requests of this one worker wait. Deliberately absent: the
//! further use of counts (`directories`), and requests in progress: they end under the policy that
//! they began with.

use std::cell::Cell;
use std::rc::Rc;

use tollgate_core::{Span, Timestamp};
use tollgate_language::MAX_DOCUMENT;
use tollgate_policy::plugin::PolicyFrom;

use crate::active_policy::ActivePolicy;
use crate::cell::with;
use crate::config::{Config, PluginSettings};
use crate::follow::compile_lock::CompileLock;
use crate::follow::last_good::{LastGood, ServedPolicy, StoreResult};
use crate::follow::log_once::LogOnce;
use crate::host::calls::{HttpCall, NotSent};
use crate::host::proxy::Proxy;
use crate::observability::counter_buffer::CounterBuffer;
use crate::observability::metrics::FollowMetrics;
use crate::wire::header_map::HeaderMapWriter;

mod compile_lock;
mod last_good;
pub(crate) mod log_once;
pub(crate) mod other_threads;
mod report;

/// Until a server has responded for the first time, the longest interval between two fetches.
const FIRST_INTERVAL: Span = Span::from_secs(1);
/// After a failed fetch, the longest interval until the next one.
const RETRY_INTERVAL: Span = Span::from_secs(60);
/// A response that is this late will not come: the host generates one when the time is over.
const LATE_AFTER: Span = Span::from_secs(5);
/// The interval at which this worker checks again while another worker compiles.
const LOCK_RETRY: Span = Span::from_millis(20);
/// The longest entity tag that is sent back.
const MAX_TAG: usize = 256;

/// The next action.
enum Step {
    /// Fetch, at this time.
    Idle(Timestamp),
    /// A response is expected, by this time.
    Fetching { call: u32, until: Timestamp },
    /// Compile, when no other worker does.
    Fetched(ServedPolicy, Timestamp),
}

impl Default for Step {
    fn default() -> Self {
        Self::Idle(Timestamp::ZERO)
    }
}

/// One plugin that follows a server.
pub struct Follower<H> {
    host: H,
    counters: Rc<CounterBuffer<H>>,
    from: PolicyFrom,
    settings: PluginSettings,
    scope: Vec<u8>,
    stored: LastGood,
    failures: LogOnce,
    changes: LogOnce,
    metrics: FollowMetrics,
    state: Cell<Step>,
    version: Cell<u64>,
    /// The tag of the policy in force; empty while that came from no server.
    tag: Cell<Vec<u8>>,
    /// The tag of the last fetched policy, in force or rejected.
    seen: Cell<Vec<u8>>,
    has_responded: Cell<bool>,
    /// The tag of the stored policy, if that cannot be enforced here.
    incompatible: Cell<Vec<u8>>,
    /// The policy that was fetched when a newer one, which may be incompatible, was stored.
    fallback: Cell<Option<ServedPolicy>>,
}

impl<H: Proxy> Follower<H> {
    /// The first policy of a plugin that is configured with `own`: the last good policy of its
    /// server, if this process has one, else its own. Returned with its follower, if it has a
    /// server.
    pub fn begin(
        host: &H,
        own: Config,
        scope: Vec<u8>,
        counters: &Rc<CounterBuffer<H>>,
    ) -> (Config, Option<Self>) {
        let from = own.policy_from.clone().filter(|_| H::FOLLOWS);
        let Some(from) = from else { return (own, None) };
        let stored = LastGood::new(&scope, &from);
        let metrics = FollowMetrics::define(&own.plugin, host);
        let settings = PluginSettings { fleet: own.fleet.clone(), hash_key: own.policy.hash_key() };
        let last = stored.get(host).and_then(|fetched| {
            let config = Config::followed(&fetched.text, &settings, &scope);
            Some((
                config.and_then(|it| it.for_module(H::READS_BODIES, host.unsupported())).ok()?,
                fetched,
            ))
        });
        let (config, version, tag) = match last {
            Some((mut config, fetched)) => {
                config.policy.set_version(fetched.version);
                (config, fetched.version, fetched.tag)
            }
            None => (own, 0, Vec::new()),
        };
        metrics.set_version(version, host);
        let follower = Self {
            host: host.clone(),
            counters: Rc::clone(counters),
            failures: LogOnce::new(*b"err", &scope, &from),
            changes: LogOnce::new(*b"new", &scope, &from),
            from,
            settings,
            scope,
            stored,
            metrics,
            state: Cell::default(),
            version: Cell::new(version),
            seen: Cell::new(tag.clone()),
            tag: Cell::new(tag),
            has_responded: Cell::new(false),
            incompatible: Cell::default(),
            fallback: Cell::default(),
        };
        (config, Some(follower))
    }

    /// No root follows the server for this plugin any more; the gauge shows that.
    pub fn end(&self) {
        self.metrics.set_version(0, &self.host);
    }

    /// The time of the next call.
    pub fn next_call_at(&self) -> Option<Timestamp> {
        let at = with(&self.state, |state| match state {
            Step::Idle(at) | Step::Fetching { until: at, .. } | Step::Fetched(_, at) => *at,
        });
        self.fetches().then_some(at)
    }

    /// Does the work that is due. Returns the policy that is in force from now on, if that is
    /// another one. The current context is the root.
    pub fn tick(&self, now: Timestamp) -> Option<ActivePolicy<H>> {
        let (next, policy) = match self.begin_step(now) {
            Step::Idle(at) if at <= now => (self.fetch(now), None),
            Step::Fetching { until, .. } if until <= now => (self.failed("no response", now), None),
            Step::Fetched(fetched, at) if at <= now => self.compile_alone(fetched, now),
            state @ (Step::Idle(_) | Step::Fetching { .. } | Step::Fetched(..)) => (state, None),
        };
        self.state.set(next);
        policy
    }

    /// Takes the step out. If a panic leaves it, which some hosts survive, the policy is fetched
    /// later.
    fn begin_step(&self, now: Timestamp) -> Step {
        let again_at = now.saturating_add(self.from.every.min(RETRY_INTERVAL));
        self.state.replace(Step::Idle(again_at))
    }

    fn fetch(&self, now: Timestamp) -> Step {
        // Another root of this plugin may have ended since.
        self.metrics.set_version(self.version.get(), &self.host);
        let PolicyFrom { cluster, authority, path, token, timeout, .. } = &self.from;
        let mut headers = HeaderMapWriter::default();
        headers.push(":method", b"GET");
        headers.push(":path", path.as_bytes());
        headers.push(":authority", authority.as_bytes());
        headers.push("accept", b"application/json");
        if let Some(token) = token {
            headers.push("authorization", format!("Bearer {token}").as_bytes());
        }
        let seen = self.seen.take();
        if !seen.is_empty() {
            headers.push("if-none-match", &seen);
        }
        self.seen.set(seen);
        let headers = headers.finish();
        let timeout_ms = u32::try_from(timeout.as_millis_ceil()).unwrap_or(u32::MAX);
        let (headers, body, most_body) = (&headers, &[], MAX_DOCUMENT);
        match self.host.call(&HttpCall { cluster, headers, body, timeout_ms, most_body }) {
            Ok(call) => {
                let until = now.saturating_add(*timeout).saturating_add(LATE_AFTER);
                Step::Fetching { call, until }
            }
            Err(why) => self.failed(why.reason(), now),
        }
    }

    /// Takes the response to the call with this number, whose body has `len` bytes, or why the host
    /// could not send it; false when the call belongs to another follower.
    pub fn answered(&self, number: u32, response: Result<usize, NotSent>, now: Timestamp) -> bool {
        let next = match (self.begin_step(now), response) {
            (Step::Fetching { call, .. }, Ok(len)) if call == number => self.read(len, now),
            (Step::Fetching { call, .. }, Err(why)) if call == number => {
                self.failed(why.reason(), now)
            }
            (state, _) => {
                self.state.set(state);
                return false;
            }
        };
        self.state.set(next);
        true
    }

    fn read(&self, len: usize, now: Timestamp) -> Step {
        match self.host.answer_header(":status").as_deref() {
            Some(b"304") => {
                self.succeeded();
                self.idle(now)
            }
            Some(b"200") => match self.read_policy(len) {
                Ok(fetched) => {
                    self.succeeded();
                    self.accept(fetched, now)
                }
                Err(why) => self.failed(why, now),
            },
            Some(status) => {
                let status = String::from_utf8_lossy(status);
                self.failed(&format!("status {status}"), now)
            }
            None => self.failed("no response", now),
        }
    }

    /// The policy in a response.
    fn read_policy(&self, len: usize) -> Result<ServedPolicy, &'static str> {
        if len > MAX_DOCUMENT {
            return Err("the policy is longer than 1 MiB");
        }
        let tag = self.host.answer_header("etag").unwrap_or_default();
        let is_tag = |byte: &u8| matches!(byte, b'!'..=b'~');
        if !(1..=MAX_TAG).contains(&tag.len()) || !tag.iter().all(is_tag) {
            return Err("the response has no etag");
        }
        let version = self.host.answer_header("tollgate-policy-version").unwrap_or_default();
        let version = core::str::from_utf8(&version).ok().and_then(|text| text.parse().ok());
        let version = version.ok_or("the response has no tollgate-policy-version")?;
        if self.host.is_memory_short() {
            return Err("not enough memory for the policy");
        }
        let body = self.host.answer_body(len);
        if body.len() != len {
            return Err("not enough memory for the policy");
        }
        let text = String::from_utf8(body).map_err(|_| "the policy is not UTF-8")?;
        Ok(ServedPolicy { version, tag, text })
    }

    /// The next step for a fetched policy.
    fn accept(&self, fetched: ServedPolicy, now: Timestamp) -> Step {
        let in_force = self.tag.take();
        let is_in_force = in_force == fetched.tag;
        self.tag.set(in_force);
        self.seen.set(fetched.tag.clone());
        if is_in_force {
            return self.idle(now);
        }
        if fetched.is_behind(self.version.get()) {
            return self.behind(&fetched, now);
        }
        Step::Fetched(fetched, now)
    }

    /// The server has an older policy than the one in force, because it was reset, or another
    /// document of the same version. This follower keeps its policy: otherwise two servers that
    /// disagree would each take effect in turn.
    fn behind(&self, fetched: &ServedPolicy, now: Timestamp) -> Step {
        let (served, version) = (fetched.version, self.version.get());
        let other = if served == version { "another " } else { "" };
        let line = format!("serves {other}policy {served}; policy {version} remains in force");
        self.refused(&fetched.tag, &[line]);
        self.idle(now)
    }

    /// Compiles, unless another worker does.
    fn compile_alone(
        &self,
        fetched: ServedPolicy,
        now: Timestamp,
    ) -> (Step, Option<ActivePolicy<H>>) {
        let Some(lock) = CompileLock::acquire(&self.host, now) else {
            return (Step::Fetched(fetched, now.saturating_add(LOCK_RETRY)), None);
        };
        let done = self.compile(fetched, now);
        lock.release(&self.host);
        done
    }

    fn compile(&self, fetched: ServedPolicy, now: Timestamp) -> (Step, Option<ActivePolicy<H>>) {
        let config = Config::followed(&fetched.text, &self.settings, &self.scope);
        let config =
            match config.and_then(|it| it.for_module(H::READS_BODIES, self.host.unsupported())) {
                Ok(mut config) => {
                    config.policy.set_version(fetched.version);
                    config
                }
                Err(problems) => {
                    let version = fetched.version;
                    let line = |it: &String| format!("policy {version} is rejected: {it}");
                    self.refused(&fetched.tag, &problems.iter().map(line).collect::<Vec<_>>());
                    let next = match self.fallback.take() {
                        Some(fallback) => {
                            self.incompatible.set(fetched.tag);
                            Step::Fetched(fallback, now)
                        }
                        None => self.idle(now),
                    };
                    return (next, None);
                }
            };
        match self.store(&fetched) {
            StoreResult::Stored => {
                self.fallback.set(None);
                if self.fetches() {
                    self.host.policy_stored();
                }
            }
            // Another worker got this newer policy. It compiles that, unless another build of this
            // filter did.
            StoreResult::Newer(newer) => {
                self.fallback.set(Some(fetched).filter(|_| self.fetches()));
                return (Step::Fetched(newer, now), None);
            }
            StoreResult::Unreachable => return (self.retry("no shared data", now), None),
        }
        let is_first = self.changes.is_new(&self.host, &fetched.tag);
        let log = is_first.then_some(&self.host);
        match ActivePolicy::activate(self.host.clone(), config, log, &self.counters) {
            Ok(policy) => {
                self.version.set(fetched.version);
                self.metrics.set_version(fetched.version, &self.host);
                if is_first {
                    self.log(&format!("policy {} is in force", fetched.version));
                }
                self.seen.set(fetched.tag.clone());
                self.tag.set(fetched.tag);
                (self.idle(now), Some(policy))
            }
            Err(why) => (self.retry(why, now), None),
        }
    }

    /// Stores a policy that this thread has fetched. One that another thread has fetched is stored
    /// already, or another one is by now: written again, it could replace that, because policies of
    /// version 0 have no order.
    fn store(&self, fetched: &ServedPolicy) -> StoreResult {
        if !self.fetches() {
            return self.stored.confirm(&self.host, fetched);
        }
        let incompatible = self.incompatible.take();
        let result = self.stored.store(&self.host, fetched, &incompatible);
        self.incompatible.set(incompatible);
        result
    }

    /// After a failure here, the next response is tried again.
    fn retry(&self, why: &str, now: Timestamp) -> Step {
        self.seen.set(Vec::new());
        self.failed(why, now)
    }

    fn failed(&self, why: &str, now: Timestamp) -> Step {
        self.metrics.count_failure(&self.host);
        if self.failures.is_new(&self.host, why.as_bytes()) {
            self.log(&format!("cannot fetch the policy: {why}; keeping the last one"));
        }
        self.idle_at_most(RETRY_INTERVAL, now)
    }

    /// The rest until the next fetch: a little shorter than the interval, by a random part for each
    /// worker.
    fn idle(&self, now: Timestamp) -> Step {
        self.idle_at_most(self.from.every, now)
    }

    /// The same, with at most this interval.
    fn idle_at_most(&self, most: Span, now: Timestamp) -> Step {
        let every = self.from.every.min(most);
        let every = if self.has_responded.get() { every } else { every.min(FIRST_INTERVAL) };
        let seed = self.host.random_seed().unwrap_or_default();
        let random = seed.first_chunk().map_or(0, |bytes| u16::from_le_bytes(*bytes));
        // An eighth of it, in parts of 2^16.
        let sooner = (every.as_nanos() >> 19).saturating_mul(random.into());
        Step::Idle(now.saturating_add(every.saturating_sub(Span::from_nanos(sooner))))
    }
}
