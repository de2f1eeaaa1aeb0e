//! The policy in force: the file, or the policy that was written at run time.
//!
//! Invariant: there is always a good one, and a policy that cannot be enforced here is never
//! enforced: it is named in the log and in the health report, and the last good one stays. Where
//! the policy cannot be changed at run time (no admin token) the file is in force, without
//! versions, as in the Worker. One check runs at a time. Deciding a request never waits for a
//! check, except for a request that met counts of a newer policy.

use std::sync::{Arc, PoisonError, RwLock};

use tollgate_core::Timestamp;
use tollgate_policy::{Policy, Problems};
use tollgate_service::deployment::fingerprint;
use tollgate_service::lease::FleetPolicies;
use tollgate_service::{
    Current, Deployed, PolicyCall, PolicyReply, Source, StoreCall, StoreReply, health,
};

use crate::log::{Level, Log};
use crate::policy::active::{self, Active, ProtocolRestrictions};
use crate::store::Store;

/// The policy file of this server.
#[derive(Debug)]
pub struct File {
    /// Its document, as JSON.
    pub text: String,
    /// The store's identifier of it.
    pub fingerprint: u64,
    /// The compiled policy.
    pub policy: Policy,
}

impl File {
    /// The `policy` that is in `text`.
    #[must_use]
    pub fn new(text: String, policy: Policy) -> Self {
        Self { fingerprint: fingerprint(&text), text, policy }
    }
}

/// The known state of the policy in force.
#[derive(Debug)]
pub struct Following {
    /// The policy may be changed at run time.
    is_on: bool,
    has_secret: bool,
    spoken: ProtocolRestrictions,
    state: RwLock<State>,
    asking: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct State {
    file: Arc<File>,
    active: Arc<Active>,
    checked_at_ms: Option<u64>,
    failure: Option<(u64, String)>,
    refused: Option<(u64, Problems)>,
    /// The policies under which nodes of a fleet get responses.
    fleet: FleetPolicies,
}

/// The data for the health report.
#[derive(Clone, Debug)]
pub struct Known {
    /// The enforced policy.
    pub active: Arc<Active>,
    /// When it was last known to be in force.
    pub checked_at_ms: Option<u64>,
    /// When a check failed, and the reason, if the last one did.
    pub failure: Option<(u64, String)>,
    /// The version that cannot be enforced here, and its mistakes.
    pub refused: Option<(u64, Problems)>,
}

impl Following {
    /// The file is in force until the store returns another policy.
    #[must_use]
    pub fn new(file: File, is_on: bool, has_secret: bool, spoken: ProtocolRestrictions) -> Self {
        let active = Arc::new(of_file(&file, is_on));
        let mut fleet = FleetPolicies::default();
        fleet.follow(&active.policy, Timestamp::ZERO);
        let state = State {
            file: Arc::new(file),
            active,
            fleet,
            checked_at_ms: None,
            failure: None,
            refused: None,
        };
        let asking = tokio::sync::Mutex::default();
        Self { is_on, has_secret, spoken, state: RwLock::new(state), asking }
    }

    /// True where the policy may be changed at run time.
    #[must_use]
    pub const fn is_on(&self) -> bool {
        self.is_on
    }

    /// The requirements on a policy in addition to that it compiles.
    #[must_use]
    pub const fn spoken(&self) -> ProtocolRestrictions {
        self.spoken
    }

    /// The policy to decide under.
    #[must_use]
    pub fn active(&self) -> Arc<Active> {
        Arc::clone(&self.read().active)
    }

    /// The policies under which nodes of a fleet get responses.
    #[must_use]
    pub fn fleet(&self) -> FleetPolicies {
        self.read().fleet.clone()
    }

    /// The policy file.
    #[must_use]
    pub fn file(&self) -> Arc<File> {
        Arc::clone(&self.read().file)
    }

    /// The whole known state.
    #[must_use]
    pub fn known(&self) -> Known {
        let state = self.read();
        Known {
            active: Arc::clone(&state.active),
            checked_at_ms: state.checked_at_ms,
            failure: state.failure.clone(),
            refused: state.refused.clone(),
        }
    }

    /// Sets another file, read at `now_ms`: from the next check on it is this server's.
    pub fn set_file(&self, file: File, now_ms: u64) {
        let mut state = self.write();
        if !self.is_on {
            state.enforce(of_file(&file, false), now_ms);
        }
        state.file = Arc::new(file);
    }

    /// Asks the store which policy is in force. `generation` is one that a count was found to have,
    /// or 0.
    pub async fn check(
        &self,
        store: &Store,
        hash_key: &[u8],
        log: &Log,
        now_ms: u64,
        generation: u64,
    ) {
        if !self.is_on {
            return;
        }
        let _one = self.asking.lock().await;
        match self.ask(store, generation, now_ms).await {
            Ok(current) => self.take(&current, hash_key, log, now_ms),
            Err(why) => {
                log.say(Level::Error, "policy_check_failed", &why);
                self.write().failure = Some((now_ms, why));
            }
        }
    }

    async fn ask(&self, store: &Store, generation: u64, now_ms: u64) -> Result<Current, String> {
        let mut text = None;
        loop {
            let has_text = text.is_some();
            let (file, known, seen) = {
                let state = self.read();
                let refused = state.refused.as_ref().map(|(version, _)| *version);
                let known = Some(refused.unwrap_or(state.active.version)).filter(|it| *it > 0);
                let seen = generation.max(state.active.policy.version());
                (Arc::clone(&state.file), known, Some(seen).filter(|seen| *seen > 0))
            };
            let deployed = Deployed { fingerprint: file.fingerprint, text: text.take() };
            let call = StoreCall::Policy(PolicyCall::Read { deployed, known, seen, now_ms });
            match store.rules(&call).await {
                StoreReply::Policy(PolicyReply::Current(current)) => return Ok(current),
                StoreReply::Policy(PolicyReply::SendText) if !has_text => {
                    text = Some(file.text.clone());
                }
                StoreReply::Failed(why) => return Err(why),
                _ => return Err("the store sent an unexpected response".to_owned()),
            }
        }
    }

    fn take(&self, current: &Current, hash_key: &[u8], log: &Log, now_ms: u64) {
        let (file, is_enforced) = {
            let state = self.read();
            (Arc::clone(&state.file), state.is_enforced(current))
        };
        let compiled = match (current.source, &current.text) {
            _ if is_enforced => None,
            (Source::Deployed, _) => Some(Ok(file.policy.clone())),
            (Source::Written, Some(text)) => Some(active::compile(text, hash_key, self.spoken)),
            (Source::Written, None) => {
                let why = "the text of the policy is missing from the response".to_owned();
                self.write().failure = Some((now_ms, why));
                return;
            }
        };
        let mut state = self.write();
        let changed_at_ms = state.changed_at_ms(now_ms);
        (state.checked_at_ms, state.failure) = (Some(now_ms), None);
        match compiled {
            None => {}
            Some(Ok(mut policy)) => {
                policy.set_version(current.generation);
                self.warn(&policy, current.version, log);
                let (version, source) = (current.version, current.source);
                state.enforce(Active { policy: Arc::new(policy), version, source }, changed_at_ms);
                state.refused = None;
            }
            Some(Err(problems)) => {
                let prefix = format!("policy {} cannot be enforced: ", current.version);
                health::log_each(&problems, &prefix, &mut |line| {
                    log.say(Level::Error, "policy_refused", line);
                });
                let last = state.active.counted_as(current.generation, state.active.version);
                state.enforce(last, changed_at_ms);
                state.refused = Some((current.version, problems));
            }
        }
    }

    /// Logs certain mistakes in a policy.
    pub fn warn(&self, policy: &Policy, version: u64, log: &Log) {
        let prefix = format!("policy {version}: ");
        let warnings = active::warnings(policy, self.has_secret, self.spoken);
        health::log_each(&warnings, &prefix, &mut |line| {
            log.say(Level::Warning, "policy_warning", line);
        });
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The time from one check to the next, unless the check failed or nothing ran.
const CHECKED_WITHIN_MS: u64 = 5_000;

impl State {
    /// Enforces `active`, in force since `changed_at_ms`.
    fn enforce(&mut self, active: Active, changed_at_ms: u64) {
        self.fleet.follow(&active.policy, Timestamp::from_millis(changed_at_ms));
        self.active = Arc::new(active);
    }

    /// The time from which a policy that a check finds at `now_ms` counts as in force, if it is a
    /// different policy. A server that had no store for an hour, or only the file until now,
    /// answers nodes of the replaced policy no longer than other servers do.
    fn changed_at_ms(&self, now_ms: u64) -> u64 {
        let known_at_ms = self.checked_at_ms;
        known_at_ms.map_or(0, |at| now_ms.min(at.saturating_add(CHECKED_WITHIN_MS)))
    }

    fn is_enforced(&self, current: &Current) -> bool {
        let counts = self.active.policy.version() == current.generation;
        match &self.refused {
            Some((version, _)) => counts && *version == current.version,
            None => {
                counts
                    && (self.active.version, self.active.source)
                        == (current.version, current.source)
            }
        }
    }
}

/// The first generation of the policy: the one of counts before the first change at run time.
const FIRST_GENERATION: u64 = 1;

fn of_file(file: &File, is_on: bool) -> Active {
    let mut policy = file.policy.clone();
    if is_on {
        policy.set_version(FIRST_GENERATION);
    }
    Active { policy: Arc::new(policy), version: 0, source: Source::Deployed }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use tollgate_policy::Surface;
    use tollgate_service::lease::{CONTENT_TYPE, Lease};
    use tollgate_storage::LeaseQuestion;

    fn text(limit: u32) -> String {
        format!(
            r#"{{"version": 1, "rules": [{{"name": "a", "key": ["client_ip"], "scope": "fleet", "quotas": [{{"limit": {limit}, "window": "1h"}}]}}]}}"#
        )
    }

    fn policy(limit: u32) -> Policy {
        tollgate_language::compile(&text(limit), Surface::Server).expect("a policy")
    }

    /// True when nodes of the policy with this limit get responses.
    fn answers(following: &Following, limit: u32, now_ms: u64) -> bool {
        let (policy, mut body) = (policy(limit).fleet().fingerprint(), Vec::new());
        LeaseQuestion { policy, ..LeaseQuestion::default() }.write(&mut body);
        let now = Timestamp::from_millis(now_ms);
        Lease::read(&following.fleet(), now, Some(CONTENT_TYPE), &body).is_ok()
    }

    // Guards: rules that were withdrawn long ago, which nodes still follow at a server that had no
    // store meanwhile, or that was started with the file of that time.
    #[test]
    fn who_hears_late_of_a_change_answers_the_policy_before_no_longer() {
        let file = File::new(text(1), policy(1));
        let following = Following::new(file, true, false, ProtocolRestrictions::default());
        let log = Log::nowhere(Clock::start());
        let start = 1_780_000_000_000;
        let put = |version: u64, at_ms: u64| {
            let limit = u32::try_from(version).expect("a small number");
            let text = Some(text(limit));
            let (generation, source, relieved) = (version, Source::Written, 0);
            let current = Current { version, generation, source, relieved, text };
            following.take(&current, b"", &log, at_ms);
        };
        put(2, start);
        assert!(answers(&following, 2, start) && !answers(&following, 1, start), "only the file");
        put(3, start + 5_000);
        assert!(answers(&following, 2, start + 24_999) && !answers(&following, 2, start + 25_000));
        let late = start + 3_600_000;
        put(4, late);
        assert!(answers(&following, 4, late) && !answers(&following, 3, late), "an hour ago");
    }
}
