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
use crate::config::{Config, PluginSettings};
use crate::follow::last_good::{Keep, LastGood, ServedPolicy};
use crate::follow::log_once::LogOnce;
use crate::follow::turn::Turn;
use crate::host::calls::{HttpCall, NotSent};
use crate::host::proxy::Proxy;
use crate::watch::metrics::FollowMetrics;
use crate::watch::tally::Tally;
use crate::wire::header_map::HeaderMapWriter;

mod last_good;
pub(crate) mod log_once;
mod turn;

/// Until a server has responded for the first time, the longest interval between two fetches.
const FIRST_EVERY: Span = Span::from_secs(1);
/// After a failed fetch, the longest interval until the next one.
const AGAIN_AFTER: Span = Span::from_secs(60);
/// A response that is this late will not come: the host generates one when the time is over.
const GIVEN_UP: Span = Span::from_secs(5);
/// The interval at which this worker checks again while another worker compiles.
const NEXT_TURN: Span = Span::from_millis(20);
/// The longest entity tag that is sent back.
const MAX_TAG: usize = 256;
/// The most problems of one policy that are logged.
const MAX_LINES: usize = 20;

/// The next action.
enum State {
    /// Fetch, at this time.
    Rest(Timestamp),
    /// A response is expected, by this time.
    Asked { call: u32, until: Timestamp },
    /// Compile, when it is this worker's turn.
    Fetched(ServedPolicy, Timestamp),
}

/// One plugin that follows a server.
pub struct Follower<H> {
    host: H,
    tally: Rc<Tally<H>>,
    from: PolicyFrom,
    settings: PluginSettings,
    scope: Vec<u8>,
    kept: LastGood,
    failures: LogOnce,
    changes: LogOnce,
    metrics: FollowMetrics,
    /// `None` during a step.
    state: Cell<Option<State>>,
    version: Cell<u64>,
    /// The tag of the policy in force; empty while that came from no server.
    tag: Cell<Vec<u8>>,
    /// The tag of the last fetched policy, in force or rejected.
    seen: Cell<Vec<u8>>,
    has_answered: Cell<bool>,
    /// The tag of the kept policy, if that cannot be enforced here.
    unfit: Cell<Vec<u8>>,
    /// The policy that was fetched when a newer one, which may be unfit, was kept.
    instead: Cell<Option<ServedPolicy>>,
}

impl<H: Proxy> Follower<H> {
    /// The first policy of a plugin that is configured with `own`: the last good policy of its
    /// server, if this process has one, else its own. Returned with its follower, if it has a
    /// server.
    pub fn begin(
        host: &H,
        own: Config,
        scope: Vec<u8>,
        tally: &Rc<Tally<H>>,
    ) -> (Config, Option<Self>) {
        let from = own.policy_from.clone().filter(|_| H::READS_DOCUMENTS);
        let Some(from) = from else { return (own, None) };
        let kept = LastGood::new(&scope, &from);
        let metrics = FollowMetrics::define(&own.plugin, host);
        let settings = PluginSettings { fleet: own.fleet.clone(), hash_key: own.policy.hash_key() };
        let last = kept.get(host).and_then(|given| {
            let config = Config::followed(&given.text, &settings, &scope).ok()?;
            Some((config, given))
        });
        let (config, version, tag) = match last {
            Some((mut config, given)) => {
                config.policy.set_version(given.version);
                (config, given.version, given.tag)
            }
            None => (own, 0, Vec::new()),
        };
        metrics.set_version(version, host);
        let follower = Self {
            host: host.clone(),
            tally: Rc::clone(tally),
            failures: LogOnce::new(*b"err", &scope, &from),
            changes: LogOnce::new(*b"new", &scope, &from),
            from,
            settings,
            scope,
            kept,
            metrics,
            state: Cell::new(Some(State::Rest(Timestamp::ZERO))),
            version: Cell::new(version),
            seen: Cell::new(tag.clone()),
            tag: Cell::new(tag),
            has_answered: Cell::new(false),
            unfit: Cell::default(),
            instead: Cell::default(),
        };
        (config, Some(follower))
    }

    /// No root follows the server for this plugin any more; the gauge shows that.
    pub fn end(&self) {
        self.metrics.set_version(0, &self.host);
    }

    /// The time of the next call.
    pub fn wants_at(&self) -> Option<Timestamp> {
        let state = self.state.take();
        let at = state.as_ref().map(|state| match state {
            State::Rest(at) | State::Asked { until: at, .. } | State::Fetched(_, at) => *at,
        });
        self.state.set(state);
        at
    }

    /// Does the work that is due. Returns the policy that is in force from now on, if that is
    /// another one. The current context is the root.
    pub fn tick(&self, now: Timestamp) -> Option<ActivePolicy<H>> {
        let (next, policy) = match self.state.take()? {
            State::Rest(at) if at <= now => (self.ask(now), None),
            State::Asked { until, .. } if until <= now => (self.failed("no answer", now), None),
            State::Fetched(given, at) if at <= now => self.take_turn(given, now),
            state @ (State::Rest(_) | State::Asked { .. } | State::Fetched(..)) => (state, None),
        };
        self.state.set(Some(next));
        policy
    }

    fn ask(&self, now: Timestamp) -> State {
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
        let call = HttpCall { cluster, headers: &headers, body: &[], timeout_ms };
        match self.host.call(&call) {
            Ok(call) => {
                let until = now.saturating_add(*timeout).saturating_add(GIVEN_UP);
                State::Asked { call, until }
            }
            Err(NotSent::Refused) => self.failed("there is no such cluster", now),
            Err(NotSent::Failed) => self.failed("no host of the cluster takes a request", now),
        }
    }

    /// Takes the response to the call with this number, whose body has `len` bytes; false when the
    /// call belongs to another follower.
    pub fn answered(&self, number: u32, len: usize, now: Timestamp) -> bool {
        let next = match self.state.take() {
            Some(State::Asked { call, .. }) if call == number => self.read(len, now),
            state => {
                self.state.set(state);
                return false;
            }
        };
        self.state.set(Some(next));
        true
    }

    fn read(&self, len: usize, now: Timestamp) -> State {
        match self.host.answer_header(":status").as_deref() {
            Some(b"304") => {
                self.succeeded();
                self.rest(now)
            }
            Some(b"200") => match self.given(len) {
                Ok(given) => {
                    self.succeeded();
                    self.consider(given, now)
                }
                Err(why) => self.failed(why, now),
            },
            Some(status) => {
                let status = String::from_utf8_lossy(status);
                self.failed(&format!("status {status}"), now)
            }
            None => self.failed("no answer", now),
        }
    }

    /// The policy in a response.
    fn given(&self, len: usize) -> Result<ServedPolicy, &'static str> {
        if len > MAX_DOCUMENT {
            return Err("its policy is longer than 1 MiB");
        }
        let tag = self.host.answer_header("etag").unwrap_or_default();
        let is_tag = |byte: &u8| matches!(byte, b'!'..=b'~');
        if !(1..=MAX_TAG).contains(&tag.len()) || !tag.iter().all(is_tag) {
            return Err("its answer has no etag");
        }
        let version = self.host.answer_header("tollgate-policy-version").unwrap_or_default();
        let version = core::str::from_utf8(&version).ok().and_then(|text| text.parse().ok());
        let version = version.ok_or("its answer has no tollgate-policy-version")?;
        if self.host.is_memory_short() {
            return Err("there is no memory for its policy");
        }
        let body = self.host.answer_body(len);
        if body.len() != len {
            return Err("there is no memory for its policy");
        }
        let text = String::from_utf8(body).map_err(|_| "its policy is not UTF-8")?;
        Ok(ServedPolicy { version, tag, text })
    }

    /// The next step for a fetched policy.
    fn consider(&self, given: ServedPolicy, now: Timestamp) -> State {
        let in_force = self.tag.take();
        let is_in_force = in_force == given.tag;
        self.tag.set(in_force);
        self.seen.set(given.tag.clone());
        if is_in_force {
            return self.rest(now);
        }
        if given.is_behind(self.version.get()) {
            return self.behind(&given, now);
        }
        State::Fetched(given, now)
    }

    /// The server has an older policy than the one in force, because it was reset, or another
    /// document of the same version. This follower keeps its policy: otherwise two servers that
    /// disagree would each take effect in turn.
    fn behind(&self, given: &ServedPolicy, now: Timestamp) -> State {
        let (told, version) = (given.version, self.version.get());
        let has = if told == version { "has another" } else { "has" };
        let line = format!("{has} policy {told}, and {version} is in force here, which stays");
        self.refused(&given.tag, &[line]);
        self.rest(now)
    }

    /// Compiles, unless another worker does.
    fn take_turn(&self, given: ServedPolicy, now: Timestamp) -> (State, Option<ActivePolicy<H>>) {
        let Some(turn) = Turn::take(&self.host, now) else {
            return (State::Fetched(given, now.saturating_add(NEXT_TURN)), None);
        };
        let done = self.compile(given, now);
        turn.give_back(&self.host);
        done
    }

    fn compile(&self, given: ServedPolicy, now: Timestamp) -> (State, Option<ActivePolicy<H>>) {
        let config = match Config::followed(&given.text, &self.settings, &self.scope) {
            Ok(mut config) => {
                config.policy.set_version(given.version);
                config
            }
            Err(problems) => {
                let version = given.version;
                let line = |it: &String| format!("has policy {version}, refused: {it}");
                self.refused(&given.tag, &problems.iter().map(line).collect::<Vec<_>>());
                let next = match self.instead.take() {
                    Some(instead) => {
                        self.unfit.set(given.tag);
                        State::Fetched(instead, now)
                    }
                    None => self.rest(now),
                };
                return (next, None);
            }
        };
        let unfit = self.unfit.take();
        let kept = self.kept.keep(&self.host, &given, &unfit);
        self.unfit.set(unfit);
        match kept {
            Keep::Stored => self.instead.set(None),
            // Another worker got this newer policy. It compiles that, unless another build of this
            // filter did.
            Keep::Newer(newer) => {
                self.instead.set(Some(given));
                return (State::Fetched(newer, now), None);
            }
            Keep::Unreachable => return (self.again("no shared data", now), None),
        }
        let is_first = self.changes.is_new(&self.host, &given.tag);
        let says = is_first.then_some(&self.host);
        match ActivePolicy::activate(self.host.clone(), config, says, &self.tally) {
            Ok(policy) => {
                self.version.set(given.version);
                self.metrics.set_version(given.version, &self.host);
                if is_first {
                    self.say(&format!("policy {} is in force", given.version));
                }
                self.seen.set(given.tag.clone());
                self.tag.set(given.tag);
                (self.rest(now), Some(policy))
            }
            Err(why) => (self.again(why, now), None),
        }
    }

    /// After a failure here, the next response is tried again.
    fn again(&self, why: &str, now: Timestamp) -> State {
        self.seen.set(Vec::new());
        self.failed(why, now)
    }

    fn failed(&self, why: &str, now: Timestamp) -> State {
        self.metrics.count_failure(&self.host);
        if self.failures.is_new(&self.host, why.as_bytes()) {
            self.say(&format!("no policy could be had: {why}; the last one stays"));
        }
        self.rest_at_most(AGAIN_AFTER, now)
    }

    fn succeeded(&self) {
        self.has_answered.set(true);
        if self.failures.is_over(&self.host) {
            self.say("it answers again");
        }
    }

    fn refused(&self, tag: &[u8], lines: &[String]) {
        self.metrics.count_refused(&self.host);
        if self.changes.is_new(&self.host, tag) {
            lines.iter().take(MAX_LINES).for_each(|line| self.say(line));
            let more = lines.len().saturating_sub(MAX_LINES);
            if more > 0 {
                self.say(&format!("and {more} problems more"));
            }
        }
    }

    fn say(&self, what: &str) {
        let cluster = &self.from.cluster;
        self.host.log_warning(&format!("tollgate: server \"{cluster}\": {what}"));
    }

    /// The rest until the next fetch: a little shorter than the interval, by a random part for each
    /// worker.
    fn rest(&self, now: Timestamp) -> State {
        self.rest_at_most(self.from.every, now)
    }

    /// The same, with at most this interval.
    fn rest_at_most(&self, most: Span, now: Timestamp) -> State {
        let every = self.from.every.min(most);
        let every = if self.has_answered.get() { every } else { every.min(FIRST_EVERY) };
        let seed = self.host.random_seed().unwrap_or_default();
        let random = seed.first_chunk().map_or(0, |bytes| u16::from_le_bytes(*bytes));
        // An eighth of it, in parts of 2^16.
        let sooner = (every.as_nanos() >> 19).saturating_mul(random.into());
        State::Rest(now.saturating_add(every.saturating_sub(Span::from_nanos(sooner))))
    }
}
