//! The order in which the objects of a request are called and charged.
//!
//! Invariant: all or nothing. For a request with several keys, the count of one client is charged
//! and decides in one call. The other counts are asked for their decisions at the same time. The
//! count that most clients share is charged last, if nothing denies. When a count denies, the
//! charges of the counts that allowed the request are refunded before the denial is returned. Where
//! a charge cannot be refunded exactly (a queue, a request that waits), all counts are asked before
//! any is charged.
//!
//! A cached denial may have to be confirmed. The request then asks the count that denied before any
//! count is charged; if it still denies, nothing is written. If an object does not respond and a
//! cached denial was valid when the request came, the request is denied by it.
//!
//! All objects of a decision share one time-out. An object that is silent for half of it is waited
//! for until its end. If the request would pass without that object, the other counts are charged
//! first: a count that all clients share must not miss requests because one client's object is
//! slow.

use tollgate_core::{Span, Timestamp};
use tollgate_policy::{Answer, ChargingOrder, Plan, Policy};

use tollgate_service::metrics::Event;

use crate::counts::objects::{Asked, Keys, Objects, Round};
use crate::runtime::js::{self, Call};

/// The state when half of the time-out has passed.
struct Halfway {
    /// Objects that were asked to charge and responded.
    asked: Vec<Asked>,
    /// Objects that were asked to charge and have not responded yet.
    silent: Round<Asked>,
    /// Objects that were asked for their decision and have not responded yet.
    unheard: Round<usize>,
}

/// Decides the plan once, all or nothing, and returns the calls that were made.
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
        // Before any other reply is read: a charge is refunded only where the denial decides.
        if objects.denials.stands_in(policy, plan, came_at) {
            objects.counters.add(Event::RememberedDenial);
            objects.refund(policy, plan, charged).await;
            return Vec::new();
        }
    }
    asked
}

/// True when an object did not respond, and a cached denial was valid when the request came at
/// `came_at`: a slow object must not reopen a quota that is used up.
fn keeps_to_denial(objects: &Objects, policy: &Policy, plan: &Plan, came_at: Timestamp) -> bool {
    let outcome = plan.outcome(policy);
    let is_open = outcome.is_failure() || !matches!(outcome.answer(), Answer::Refuse { .. });
    plan.has_failed()
        && !plan.is_outdated()
        && is_open
        && objects.denials.would_stand_in(policy, plan, came_at)
}

/// Asks the count that denied last, if its denial is in doubt; true when it still denies. The
/// others are then only asked for their decisions, so that the response covers all counts. If the
/// count is silent for half of the time, it is treated as one without a denial. Exception: if the
/// denial was valid when the request came, the count is waited for.
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
        // The denial decides then; of a count that cannot be read there is no denial.
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

/// The same where charges can be refunded. The count of one client is charged and decides in one
/// call while the others are asked. The count that most clients share is charged without being
/// asked first. If another count denies before that, it is asked then: its decision is needed for
/// the retry time in the response.
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
        // An undecided count is treated as failed: it will have failed if it stays silent.
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

/// Charges the counts of `keys` while silent objects are still waited for, and then charges those.
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

/// Charges the counts of `keys`, in addition to those that `asked` already charged.
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
    /// Asks every object for its decision, for a request that has to wait behind others. Returns
    /// the calls that were made when the request is decided, because it is denied or because what
    /// it would wait for has failed.
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

    /// Asks every object for its decision before any of them charges: a request that one key denies
    /// never holds a place in the counts of the others, which a flood would fill.
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
