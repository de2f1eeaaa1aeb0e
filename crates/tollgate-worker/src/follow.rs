//! How an isolate follows the policy in force.
//!
//! Invariant: a request that comes five seconds or more after a change was acknowledged is decided
//! under it, unless the policy object did not answer; then under the last good policy, and both are
//! counted. At most one check is under way in an isolate. A check runs on when the request that
//! began it is over, and for longer than any request waits for it, so an object that is always
//! slower than that is followed, too. Once a check has failed nobody waits for the next one but the
//! request that asks.
//!
//! A new isolate asks before it decides. If there is no answer it enforces the deployed file, as of
//! the first generation: a key that was ever counted under a policy written at run time is then not
//! decided by that file, but planned anew, or by `on_failure`.
//!
//! A policy in force that this code cannot compile (a newer version of it wrote it, and was rolled
//! back) is named in the log and in the health report, and the last good one stays.

use std::rc::Rc;

use tollgate_core::Timestamp;
use tollgate_policy::Policy;
use tollgate_service::{
    Current, Deployed, PolicyCall, PolicyReply, Source, StoreCall, StoreReply, health,
};

use crate::active::{self, Active};
use crate::deployment::{Gate, Visit};
use crate::following::{Follower, Next};
use crate::js;
use crate::policy_object::FIRST_GENERATION;
use crate::store;
use crate::tally::Trouble;

/// How long a check may run, whoever waits for it.
const CHECK_MS: u32 = 10_000;
/// Whoever waits looks so often by itself.
const LOOK_MS: u64 = 50;

/// The policy to decide a request under; `None` when there is none, and the health report says why.
pub(crate) async fn policy(visit: &Visit<'_>) -> Option<Rc<Active>> {
    let Some(follower) = &visit.gate.follower else { return best(visit.gate) };
    if !follower.following.borrow().is_fresh(js::now()) {
        follower.follow(visit, 0).await;
        if !follower.following.borrow().is_fresh(js::now()) {
            visit.gate.objects.note(Trouble::Outdated, "");
        }
    }
    best(visit.gate)
}

/// A policy of `generation` or a later one, if it can be had, for a request that met counts of it.
pub(crate) async fn policy_of(visit: &Visit<'_>, generation: u64) -> Option<Rc<Active>> {
    visit.gate.follower.as_ref()?.follow(visit, generation).await;
    best(visit.gate).filter(|active| active.policy.version() >= generation)
}

/// What is enforced as far as it is known without asking: the last good policy, and before there
/// was any, the deployed file.
pub(crate) fn best(gate: &Gate) -> Option<Rc<Active>> {
    let deployed = || gate.deployed().as_ref().ok();
    let Some(follower) = &gate.follower else { return deployed().cloned() };
    if let Some(active) = &follower.following.borrow().active {
        return Some(Rc::clone(active));
    }
    let active = Rc::new(deployed()?.counted_as(FIRST_GENERATION, 0));
    follower.following.borrow_mut().active = Some(Rc::clone(&active));
    Some(active)
}

impl Follower {
    /// Waits, within the time-out, for a check if one is due, or for a policy of `generation`.
    async fn follow(&self, visit: &Visit<'_>, generation: u64) {
        let timeout_ms = visit.gate.objects.timeout_ms;
        let mut has_asked = false;
        loop {
            let now = js::now();
            let next = self.following.borrow_mut().next(now, generation, timeout_ms, has_asked);
            match next {
                Next::Done => return,
                Next::Late => return visit.gate.objects.note(Trouble::Unchecked, ""),
                Next::Ask => {
                    has_asked = true;
                    self.start(visit, now, generation);
                }
                Next::Wait => self.bell.wait(LOOK_MS).await,
            }
        }
    }

    /// Begins a check that outlives this request.
    fn start(&self, visit: &Visit<'_>, now: Timestamp, generation: u64) {
        self.following.borrow_mut().asks(now);
        let deployment = Rc::clone(visit.deployment);
        visit.context.wait_until(async move {
            if let Some(gate) = deployment.gate()
                && let Some(follower) = &gate.follower
            {
                follower.check(gate, now, generation).await;
                follower.bell.ring();
            }
        });
    }

    async fn check(&self, gate: &Gate, sent: Timestamp, generation: u64) {
        let current = match self.ask(gate, generation).await {
            Ok(current) => current,
            Err(why) => return self.failed(gate, &why),
        };
        let following = self.following.borrow();
        if following.is_enforced(&current) {
            drop(following);
            return self.following.borrow_mut().checked(sent, generation);
        }
        drop(following);
        let compiled = match (current.source, &current.text) {
            (Source::Deployed, _) => gate
                .deployed()
                .as_ref()
                .map(|active| Policy::clone(&active.policy))
                .map_err(Clone::clone),
            (Source::Written, Some(text)) => active::compile(text, &gate.settings),
            (Source::Written, None) => {
                return self.failed(gate, "the text of the policy did not come with it");
            }
        };
        match compiled {
            Ok(mut policy) => {
                policy.set_version(current.generation);
                self.take(gate, &current, policy);
            }
            Err(problems) => {
                let prefix = format!("policy {} cannot be enforced: ", current.version);
                health::log_each(&problems, &prefix, &mut js::fail);
                let last = best(gate);
                let mut following = self.following.borrow_mut();
                following.active =
                    last.map(|last| Rc::new(last.counted_as(current.generation, last.version)));
                following.refused = Some((current.version, problems));
            }
        }
        self.following.borrow_mut().checked(sent, generation);
    }

    /// From now on `policy` is enforced.
    fn take(&self, gate: &Gate, current: &Current, policy: Policy) {
        if current.source == Source::Written {
            let prefix = format!("policy {}: ", current.version);
            let warnings = active::warnings(&policy, &gate.settings);
            health::log_each(&warnings, &prefix, &mut js::warn);
        }
        gate.objects.lines.set_limits(policy.waiting());
        let (version, source) = (current.version, current.source);
        let mut following = self.following.borrow_mut();
        following.active = Some(Rc::new(Active { policy: Rc::new(policy), version, source }));
        following.refused = None;
    }

    fn failed(&self, gate: &Gate, why: &str) {
        gate.objects.note(Trouble::Unchecked, why);
        gate.objects.report();
        self.following.borrow_mut().failed(js::now(), why);
    }

    /// Which policy is in force.
    async fn ask(&self, gate: &Gate, generation: u64) -> Result<Current, String> {
        let mut text = None;
        loop {
            let has_text = text.is_some();
            let (known, seen) = self.following.borrow().known(generation);
            let deployed = Deployed { fingerprint: self.fingerprint, text: text.take() };
            let now_ms = js::now_ms();
            let call = StoreCall::Policy(PolicyCall::Read { deployed, known, seen, now_ms });
            match store::policy(gate, &call, CHECK_MS).await {
                StoreReply::Policy(PolicyReply::Current(current)) => return Ok(current),
                StoreReply::Policy(PolicyReply::SendText) if !has_text => {
                    text = Some(js::policy_text());
                }
                StoreReply::Failed(why) => return Err(why),
                _ => return Err("the policy object answered something else".to_owned()),
            }
        }
    }
}
