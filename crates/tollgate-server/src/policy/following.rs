//! The policy in force: the file, or the policy that was written at run time.
//!
//! Invariant: there is always a good one, and a policy that cannot be enforced here is never
//! enforced: it is named in the log and in the health report, and the last good one stays. Where
//! the policy cannot be changed at run time (no admin token) the file is in force, without
//! versions, as in the Worker. One check runs at a time. Deciding a request never waits for a
//! check, except for a request that met counts of a newer policy.

use std::sync::{Arc, PoisonError, RwLock};

use tollgate_core::Timestamp;
use tollgate_policy::Policy;
use tollgate_service::deployment::{FIRST_GENERATION, fingerprint};
use tollgate_service::following::{self, Check, PolicyQuestion, ToCompile};
use tollgate_service::lease::FleetPolicies;
use tollgate_service::{Current, Source, health};

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
    state: RwLock<FollowedPolicy>,
    asking: tokio::sync::Mutex<()>,
}

/// The policy in force, and the result of the last check for another one.
#[derive(Debug)]
struct FollowedPolicy {
    file: Arc<File>,
    following: Known,
    /// The policies under which nodes of a fleet get responses.
    fleet: FleetPolicies,
}

/// The known state of the policy in force; an active policy is always set.
pub type Known = following::Following<Arc<Active>>;

impl Following {
    /// The file is in force until the store returns another policy.
    #[must_use]
    pub fn new(file: File, is_on: bool, has_secret: bool, spoken: ProtocolRestrictions) -> Self {
        let active = of_file(&file, is_on);
        let (file, following) = (Arc::new(file), Known::default());
        let mut state = FollowedPolicy { file, following, fleet: FleetPolicies::default() };
        state.enforce(active, Timestamp::ZERO);
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
        let state = self.read();
        state.following.active().map_or_else(
            || {
                debug_assert!(false, "`new` sets it");
                of_file(&state.file, self.is_on)
            },
            Arc::clone,
        )
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
        self.read().following.clone()
    }

    /// Sets another file, read at `now_ms`: from the next check on it is this server's.
    pub fn set_file(&self, file: File, now_ms: u64) {
        let mut state = self.write();
        if !self.is_on {
            state.enforce(of_file(&file, false), Timestamp::from_millis(now_ms));
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
        let now = Timestamp::from_millis(now_ms);
        let check = self.write().following.begin(now, generation);
        match self.ask(store, generation, now_ms).await {
            Ok(current) => self.take((check, &current), hash_key, log, now),
            Err(why) => {
                log.message(Level::Error, "policy_check_failed", &why);
                self.write().following.failed(check, now, why);
            }
        }
    }

    async fn ask(&self, store: &Store, generation: u64, now_ms: u64) -> Result<Current, String> {
        let file = self.file();
        let mut question = PolicyQuestion::new(file.fingerprint, None);
        loop {
            let known = self.read().following.known(generation);
            let call = question.call(known, now_ms);
            let reply = store.rules(&call).await;
            if let Some(done) = question.receive(reply, "the store", || file.text.clone()) {
                return done;
            }
        }
    }

    fn take(
        &self,
        (check, current): (Check, &Current),
        hash_key: &[u8],
        log: &Log,
        now: Timestamp,
    ) {
        let to_compile = self.write().following.found(check, current);
        let compiled = match to_compile {
            ToCompile::Nothing => None,
            ToCompile::Deployed => Some(Ok(self.file().policy.clone())),
            ToCompile::Text(text) => Some(active::compile(text, hash_key, self.spoken)),
            ToCompile::Missing => {
                let why = "the text of the policy is missing from the response".to_owned();
                return self.write().following.failed(check, now, why);
            }
        };
        match &compiled {
            None => {}
            Some(Ok(policy)) => self.warn(policy, current.version, log),
            Some(Err(problems)) => {
                let prefix = format!("policy {} cannot be enforced: ", current.version);
                health::log_each(problems, &prefix, &mut |line| {
                    log.message(Level::Error, "policy_refused", line);
                });
            }
        }
        let mut state = self.write();
        if let Some((active, since)) = state.following.checked(check, current, compiled, now) {
            state.fleet.follow(&active.policy, since);
        }
    }

    /// Logs certain mistakes in a policy.
    pub fn warn(&self, policy: &Policy, version: u64, log: &Log) {
        let prefix = format!("policy {version}: ");
        let warnings = active::warnings(policy, self.has_secret, self.spoken);
        health::log_each(&warnings, &prefix, &mut |line| {
            log.message(Level::Warning, "policy_warning", line);
        });
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, FollowedPolicy> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, FollowedPolicy> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FollowedPolicy {
    /// Enforces `active` without a check, in force since `since`.
    fn enforce(&mut self, active: Arc<Active>, since: Timestamp) {
        self.fleet.follow(&active.policy, since);
        self.following.set_active(active);
    }
}

fn of_file(file: &File, is_on: bool) -> Arc<Active> {
    let mut policy = file.policy.clone();
    if is_on {
        policy.set_version(FIRST_GENERATION);
    }
    Arc::new(Active { policy: Arc::new(policy), version: 0, source: Source::Deployed })
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
            let now = Timestamp::from_millis(at_ms);
            let check = following.write().following.begin(now, 0);
            following.take((check, &current), b"", &log, now);
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
