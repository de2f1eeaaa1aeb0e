//! How an isolate follows the policy in force.
//!
//! Invariant: a request that comes five seconds or more after a change was acknowledged is decided
//! under it, unless the policy object did not reply. In that case it is decided under the last good
//! policy, and both are counted. At most one check is under way in an isolate. A check continues
//! when the request that began it is over, and for longer than any request waits for it, so an
//! object that is always slower than that is followed, too. Once a check has failed, only the
//! request that asks waits for the next one.
//!
//! A new isolate asks before it decides. If there is no reply it enforces the deployed file, as of
//! the first generation. A key that was ever counted under a policy written at run time is then not
//! decided by that file. Its request is planned again, or `on_failure` decides.
//!
//! A policy in force that this code cannot compile (a newer version of it wrote it, and was rolled
//! back) is named in the log and in the health report, and the last good one stays.
//!
//! Deliberately absent: the known state of the policy, and when to ask; those are in the service
//! ([`following`](tollgate_service::following)).

pub(crate) mod fleet;
pub(crate) mod follower;

use std::rc::Rc;

use tollgate_core::Span;
use tollgate_policy::{Policy, Surface};
use tollgate_service::deployment::FIRST_GENERATION;
use tollgate_service::following::{Check, FollowStep, Freshness, PolicyQuestion, ToCompile};
use tollgate_service::{Current, PolicyReply, Source, StoreReply, health};

use crate::active::{self, Active};
use crate::deployment::{Gate, RequestContext};
use crate::follow::follower::Follower;
use crate::object::policy_wire::{InForce, Question};
use crate::operate::store;
use crate::operate::tally::FailureKind;
use crate::runtime::js;

/// How long a check may run, whether or not a request waits for it.
const CHECK_MS: u32 = 10_000;
/// How often a waiting request looks without being woken.
const LOOK_MS: u64 = 50;

/// The policy to decide a request under; `None` when there is none; the health report shows why.
pub(crate) async fn policy(visit: &RequestContext<'_>) -> Option<Rc<Active>> {
    let Some(follower) = &visit.gate.follower else { return best(visit.gate) };
    if !follower.following.borrow().is_fresh(js::now()) {
        follower.follow(visit, Freshness::Fresh).await;
        if !follower.following.borrow().is_fresh(js::now()) {
            visit.gate.objects.note(FailureKind::Outdated, "");
        }
    }
    best(visit.gate)
}

/// The policy that is in force now, if it can be fetched. It is for an operator, who may have
/// changed the policy in another isolate and must not see an earlier one.
pub(crate) async fn newest(visit: &RequestContext<'_>) -> Option<Rc<Active>> {
    if let Some(follower) = &visit.gate.follower {
        let wish = follower.following.borrow().newest();
        follower.follow(visit, wish).await;
    }
    policy(visit).await
}

/// A policy of `generation` or a later one, if it can be fetched, for a request that met counts of
/// it.
pub(crate) async fn policy_of(visit: &RequestContext<'_>, generation: u64) -> Option<Rc<Active>> {
    visit.gate.follower.as_ref()?.follow(visit, Freshness::Generation(generation)).await;
    best(visit.gate).filter(|active| active.policy.version() >= generation)
}

/// The policy that is enforced, as far as it is known without asking: the last good policy, or the
/// deployed file if there was none yet.
pub(crate) fn best(gate: &Gate) -> Option<Rc<Active>> {
    let deployed = || gate.deployed().as_ref().ok();
    let Some(follower) = &gate.follower else { return deployed().cloned() };
    if let Some(active) = follower.following.borrow().active() {
        return Some(Rc::clone(active));
    }
    let active = Rc::new(deployed()?.counted_as(FIRST_GENERATION, 0));
    follower.following.borrow_mut().set_active(Rc::clone(&active));
    Some(active)
}

impl Follower {
    /// Waits, within the time-out, for a check if one is due, or for the wished policy.
    async fn follow(&self, visit: &RequestContext<'_>, wish: Freshness) {
        let timeout = Span::from_millis(visit.gate.objects.timeout_ms.into());
        let mut has_asked = false;
        loop {
            let now = js::now();
            let next = self.following.borrow_mut().next(now, wish, timeout, has_asked);
            match next {
                FollowStep::Done => return,
                FollowStep::Late => return visit.gate.objects.note(FailureKind::Unchecked, ""),
                FollowStep::Ask => {
                    has_asked = true;
                    let check = self.following.borrow_mut().begin(now, wish.generation());
                    self.start(visit, check, wish.generation());
                }
                FollowStep::Wait => self.bell.wait(LOOK_MS).await,
            }
        }
    }

    /// Begins a check that outlives this request.
    fn start(&self, visit: &RequestContext<'_>, check: Check, generation: u64) {
        let deployment = Rc::clone(visit.deployment);
        visit.context.wait_until(async move {
            if let Some(gate) = deployment.gate()
                && let Some(follower) = &gate.follower
            {
                follower.check(gate, check, generation).await;
                follower.bell.ring();
            }
        });
    }

    async fn check(&self, gate: &Gate, check: Check, generation: u64) {
        let (current, compiled) = match self.ask(gate, generation).await {
            Ok(found) => found,
            Err(why) => return self.failed(gate, check, why),
        };
        let to_compile = self.following.borrow_mut().found(check, &current);
        let compiled = match (to_compile, compiled) {
            (ToCompile::Nothing, _) => None,
            (ToCompile::Deployed, _) => {
                let deployed = gate.deployed().as_ref();
                let policy = deployed.map(|active| Policy::clone(&active.policy));
                Some(policy.map_err(Clone::clone))
            }
            (ToCompile::Text(text), _) => Some(active::compile(text, &gate.settings)),
            (ToCompile::Missing, Some(policy)) => Some(active::enforced(policy, &gate.settings)),
            (ToCompile::Missing, None) => {
                let why = "the policy is missing from the response";
                return self.failed(gate, check, why.to_owned());
            }
        };
        match &compiled {
            None => {}
            Some(Ok(policy)) => announce(gate, &current, policy),
            Some(Err(problems)) => {
                let prefix = format!("policy {} cannot be enforced: ", current.version);
                health::log_each(problems, &prefix, &mut js::fail);
                // Without a policy of an earlier check the deployed file stays in force.
                best(gate);
            }
        }
        let now = js::now();
        let other = self.following.borrow_mut().checked(check, &current, compiled, now);
        if let Some((active, since)) = other.filter(|_| gate.objects.fleet_secret.is_some()) {
            gate.fleet.follow_since(&active, since);
        }
    }

    fn failed(&self, gate: &Gate, check: Check, why: String) {
        gate.objects.note(FailureKind::Unchecked, &why);
        gate.objects.report();
        self.following.borrow_mut().failed(check, js::now(), why);
    }

    /// Returns which policy is in force. If it is not the one known here, also returns the policy
    /// itself, compiled or as a text.
    async fn ask(&self, gate: &Gate, generation: u64) -> Result<(Current, Option<Policy>), String> {
        let (known, seen) = self.following.borrow().known(generation);
        let question =
            Question { fingerprint: self.fingerprint, known, seen, now_ms: js::now_ms() };
        let reply = store::follow(gate, question, CHECK_MS).await?;
        if let Some(InForce { version, generation, relieved, source, compiled }) =
            InForce::read(&reply)
        {
            let current = Current { version, generation, source, relieved, text: None };
            if compiled.is_empty() {
                return Ok((current, None));
            }
            // If another version of this code compiled it, the text is asked for.
            if let Ok(policy) = Policy::read_compiled(&compiled, Surface::Worker) {
                return Ok((current, Some(policy)));
            }
        }
        // A file that the object has not seen before is sent at once.
        let wants_text = StoreReply::from_json(&reply) == StoreReply::Policy(PolicyReply::SendText);
        let text = wants_text.then(js::policy_text);
        self.ask_in_json(gate, generation, text).await.map(|current| (current, None))
    }

    /// The same with the text: for a file that the object has not seen before, a compiled policy
    /// that this version cannot read, or a policy object of an earlier version.
    async fn ask_in_json(
        &self,
        gate: &Gate,
        generation: u64,
        text: Option<String>,
    ) -> Result<Current, String> {
        let mut question = PolicyQuestion::new(self.fingerprint, text);
        loop {
            let known = self.following.borrow().known(generation);
            let call = question.call(known, js::now_ms());
            let reply = store::policy(gate, &call, CHECK_MS).await;
            if let Some(done) = question.receive(reply, "the policy object", js::policy_text) {
                return done;
            }
        }
    }
}

/// Prepares for `policy`, which is enforced from now on, and logs its warnings.
fn announce(gate: &Gate, current: &Current, policy: &Policy) {
    if current.source == Source::Written {
        let prefix = format!("policy {}: ", current.version);
        let warnings = active::warnings(policy, &gate.settings);
        health::log_each(&warnings, &prefix, &mut js::warn);
    }
    gate.objects.lines.set_limits(policy.waiting());
}
