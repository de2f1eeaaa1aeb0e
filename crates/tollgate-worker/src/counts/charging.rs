//! In which order the objects of a request are asked and charged.
//!
//! Invariant: all or nothing. Of a request of several keys the count of one client is charged and
//! asked in one call, the others are asked beside it, and what most share is charged last, if
//! nothing refuses; when something refuses, the charges of those that admitted it are taken back
//! before the refusal is answered. Where a charge cannot be given back as it was (a queue, a
//! request that waits) all are asked before any is charged.
//!
//! A request that asks whether a denial still stands that is no longer believed asks the count
//! that denied, before any is charged: where it does, nothing is written. Where an object does not
//! answer and a denial stood when the request came, that denial is the answer.
//!
//! All objects of a decision have one time-out together. Who is silent for half of it is waited for
//! to its end, but not before the others are charged, if the request would pass without it: a count
//! that all share must not miss requests because one client's object is slow.

use tollgate_core::{Span, Timestamp};
use tollgate_policy::{Answer, ChargingOrder, Plan, Policy};

use tollgate_service::metrics::Event;

use crate::counts::objects::{Asked, Keys, Objects, Round};
use crate::runtime::js::{self, Call};

/// What is known when half of the time is over.
struct Halfway {
    /// Who was asked to charge and answered.
    asked: Vec<Asked>,
    /// Who was asked to charge, and is waited for.
    silent: Round<Asked>,
    /// Who was asked what it would decide, and is waited for.
    unheard: Round<usize>,
}

/// Decides the plan once, all or nothing, and says what was asked.
pub(crate) async fn decide_once(
    objects: &Objects,
    policy: &Policy,
    plan: &mut Plan,
    waited: Span,
) -> Vec<Asked> {
    let keys = objects.of_all(policy, plan);
    let came_at = js::now();
    let asked = if let Some(order) = plan.charging_order(policy) {
        if still_denies(objects, policy, plan, (&keys, came_at), waited).await {
            Vec::new()
        } else {
            charge_in_order(objects, policy, plan, (keys, order), waited).await
        }
    } else if keys.len() < 2 || objects.admit_everywhere(policy, plan, &keys, waited).await {
        charge(objects, policy, plan, (keys, Vec::new()), waited).await
    } else {
        Vec::new()
    };
    objects.denials.close(policy, plan);
    if keeps_to_denial(objects, policy, plan, came_at) {
        let charged = Objects::charged(plan, &asked);
        // Before anything else is heard: a charge is given back only where the denial decides.
        if objects.denials.stands_in(policy, plan, came_at) {
            objects.counters.add(Event::RememberedDenial);
            objects.refund(policy, plan, charged).await;
            return Vec::new();
        }
    }
    asked
}

/// True when an object did not answer, and a denial stood when the request came at `came_at`: it is
/// not for a slow object to open what is used up.
fn keeps_to_denial(objects: &Objects, policy: &Policy, plan: &Plan, came_at: Timestamp) -> bool {
    let outcome = plan.outcome(policy);
    let is_open = outcome.is_failure() || !matches!(outcome.answer(), Answer::Refuse { .. });
    plan.has_failed()
        && !plan.is_outdated()
        && is_open
        && objects.denials.would_stand_in(policy, plan, came_at)
}

/// Asks the count that denied last, if a denial is in doubt: true when it still denies. The others
/// are only looked at then, so that the answer is of all. Silent for half of the time it is like
/// one without a denial, but where that denial stood when the request came: it is waited for.
async fn still_denies(
    objects: &Objects,
    policy: &Policy,
    plan: &mut Plan,
    (keys, came_at): (&Keys, Timestamp),
    waited: Span,
) -> bool {
    let Some(suspect) = plan.suspect() else { return false };
    let (of_it, others): (Keys, Keys) = keys.iter().cloned().partition(|(i, _)| *i == suspect);
    others.iter().for_each(|(i, _)| plan.set_aside(*i));
    let peeked = objects.peek_each(policy, plan, &of_it, Call::check_soon);
    let unheard = objects.hear_peeked_soon(policy, plan, &of_it, peeked).await;
    let is_silent = !unheard.calls.is_empty();
    let stood = objects.denials.would_stand_in_for(policy, plan, suspect, came_at);
    if is_silent && stood {
        objects.hear_peeked(policy, plan, unheard).await;
    }
    let is_denied = match plan.has_failed() {
        // The denial is the answer then; of a count that cannot be read there is none.
        true => stood && plan.partition(suspect).is_some_and(|it| it.is_silent()),
        false => is_refused(policy, plan, waited) && (stood || !is_silent),
    };
    others.iter().for_each(|(i, _)| plan.take_up(*i));
    if is_denied && !plan.has_failed() {
        let peeked = objects.peek_each(policy, plan, &others, Call::check);
        objects.hear_peeked(policy, plan, peeked).await;
    }
    is_denied || plan.is_outdated()
}

/// The same where what is charged can be given back. The count of one client is charged and asked
/// in one call while the others are asked, and what most share is charged without being asked. Who
/// is not asked yet when another refuses is asked then: its word belongs to the answer, which says
/// when to come back.
async fn charge_in_order(
    objects: &Objects,
    policy: &Policy,
    plan: &mut Plan,
    (mut keys, order): (Keys, ChargingOrder),
    waited: Span,
) -> Vec<Asked> {
    let mut take = |i| Some(keys.swap_remove(keys.iter().position(|(of, _)| *of == i)?));
    let (first, last) = (take(order.first), take(order.last));
    plan.set_aside(order.last);
    let first = objects.ask_each(policy, plan, first.into_iter().collect(), Call::check_soon);
    let peeked = objects.peek_each(policy, plan, &keys, Call::check_soon);
    let (mut asked, silent) = objects.hear_soon(policy, plan, first).await;
    let unheard = objects.hear_peeked_soon(policy, plan, &keys, peeked).await;
    if !(silent.calls.is_empty() && unheard.calls.is_empty()) {
        // What is not decided counts as failed: so it is if they stay silent.
        if !plan.is_outdated() && !is_refused(policy, plan, waited) {
            plan.take_up(order.last);
            keys.extend(last);
            let halfway = Halfway { asked, silent, unheard };
            return charge_beside(objects, policy, plan, (keys, halfway), waited).await;
        }
        asked.extend(objects.hear_asked(policy, plan, silent).await);
        objects.hear_peeked(policy, plan, unheard).await;
    }
    let is_outdated = plan.is_outdated();
    let is_refused = !is_outdated && is_refused(policy, plan, waited);
    plan.take_up(order.last);
    if is_outdated || is_refused {
        let last: Vec<_> = last.into_iter().filter(|_| is_refused).collect();
        let peeked = objects.peek_each(policy, plan, &last, Call::check);
        objects.refund_committed(policy, plan, &asked).await;
        objects.hear_peeked(policy, plan, peeked).await;
        return asked;
    }
    keys.extend(last);
    charge(objects, policy, plan, (keys, asked), waited).await
}

/// Charges the counts of `keys` beside those that are silent and waited for, and then those.
async fn charge_beside(
    objects: &Objects,
    policy: &Policy,
    plan: &mut Plan,
    (keys, Halfway { mut asked, silent, unheard }): (Keys, Halfway),
    waited: Span,
) -> Vec<Asked> {
    let is_late = |i: usize| unheard.calls.iter().any(|(of, _)| *of == i);
    let (late, others): (Keys, Keys) = keys.into_iter().partition(|(i, _)| is_late(*i));
    let beside = objects.ask_each(policy, plan, others, Call::check);
    asked.extend(objects.hear_asked(policy, plan, silent).await);
    objects.hear_peeked(policy, plan, unheard).await;
    asked.extend(objects.hear_asked(policy, plan, beside).await);
    charge(objects, policy, plan, (late, asked), waited).await
}

/// Charges the counts of `keys`, beside those that `asked` charged already.
async fn charge(
    objects: &Objects,
    policy: &Policy,
    plan: &mut Plan,
    (keys, mut asked): (Keys, Vec<Asked>),
    waited: Span,
) -> Vec<Asked> {
    let calls = objects.ask_each(policy, plan, keys, Call::check);
    asked.extend(objects.hear_asked(policy, plan, calls).await);
    if plan.is_outdated() || is_refused(policy, plan, waited) {
        objects.refund_committed(policy, plan, &asked).await;
    }
    asked
}

fn is_refused(policy: &Policy, plan: &Plan, waited: Span) -> bool {
    let answer = plan.outcome(policy).answer_after(waited);
    matches!(answer, Answer::Refuse { .. } | Answer::Retry(_))
}

impl Objects {
    /// Asks what every object would decide, for a request that has to wait behind others. When it
    /// has its answer instead, because it is refused or what it would wait for has failed: what was
    /// asked.
    pub(crate) async fn look(&self, policy: &Policy, plan: &mut Plan) -> Option<Vec<Asked>> {
        let keys = self.of_all(policy, plan);
        self.peek(policy, plan, &keys).await;
        if plan.newer().is_some() {
            return Some(Vec::new());
        }
        if plan.has_failed() {
            return Some(charge(self, policy, plan, (keys, Vec::new()), Span::ZERO).await);
        }
        matches!(plan.outcome(policy).answer(), Answer::Refuse { .. }).then(Vec::new)
    }

    /// Asks what every object would decide, before any of them charges: what one key refuses never
    /// holds a place in the counts of the others, which a flood would fill.
    async fn admit_everywhere(
        &self,
        policy: &Policy,
        plan: &mut Plan,
        keys: &Keys,
        waited: Span,
    ) -> bool {
        self.peek(policy, plan, keys).await;
        !plan.is_outdated() && !is_refused(policy, plan, waited)
    }
}
