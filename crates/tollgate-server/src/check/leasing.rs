//! `POST /lease`: nodes of a fleet lease units of its counts, report the units they spent, and ask
//! for decisions about keys that they have no units for.
//!
//! Invariant: a count has the same name for a node and for a request to `/check`, by a hash under
//! the fleet's secret, so that both use one count. When one of several keys of a request is denied,
//! the others stay uncharged, also when the node leaves meanwhile: work that has begun runs to its
//! end. Deliberately absent: which callers are allowed (`http`), and the formats of request and
//! response; those are in the service.

use std::sync::Arc;

use futures_util::future::join_all;
use tollgate_service::lease::{self, Lease};
use tollgate_service::metrics::Event;
use tollgate_service::{ApiResponse, Course, Round};
use tollgate_storage::{LeaseReply, read_leased};

use crate::finish::to_its_end;
use crate::gate::Gate;
use crate::store::{ClockKind, Name, NoReply};

/// The response to a body: the bytes, or the problem.
///
/// # Errors
/// The problem that is returned.
pub async fn answer(
    gate: &Arc<Gate>,
    content_type: Option<&str>,
    body: &[u8],
) -> Result<Vec<u8>, ApiResponse> {
    if gate.fleet_secret.is_none() {
        return Err(lease::off("fleet_secret"));
    }
    let lease = Lease::read(&gate.following.fleet(), gate.clock.now(), content_type, body);
    let lease = lease.map_err(|refused| {
        if refused.is_of_another_policy {
            gate.counting.add(Event::LeaseConflict);
        }
        refused.answer
    })?;
    gate.counting.add(Event::LeaseQuestion);
    let asked = Arc::clone(gate);
    let replies = to_its_end(async move { decide(&asked, &lease).await }).await;
    let replies = replies.into_iter().map(|reply| replied(gate, reply));
    Ok(lease::answer(replies.collect()))
}

/// Decides all keys; charges none of them for a request that another key denies.
async fn decide(gate: &Gate, lease: &Lease) -> Vec<Result<Vec<u8>, NoReply>> {
    let names: Vec<Name> =
        lease.keys().iter().map(|key| gate.store.name_of(&key.name, ClockKind::Steady)).collect();
    let mut course = Course::new(lease);
    loop {
        let round = course.round();
        if round.is_empty() {
            return course.replies(|| NoReply::Late);
        }
        let replies = join_all(round.iter().map(|it| ask(gate, &names, it))).await;
        course.receive(replies).iter().for_each(|why| gate.note_no_reply(why));
    }
}

/// Sends the request to one count.
async fn ask(gate: &Gate, names: &[Name], round: &Round<'_>) -> Result<Vec<u8>, NoReply> {
    gate.counting.add(round.ask.event());
    let Some(name) = names.get(round.key) else { return Err(NoReply::Late) };
    gate.store.ask(name, round.ask.into()).await
}

/// A count's reply as it is sent to the node.
fn replied(gate: &Gate, reply: Result<Vec<u8>, NoReply>) -> LeaseReply {
    match reply {
        Ok(reply) => {
            let leased = read_leased(&reply).map(|(leased, _)| leased).unwrap_or_default();
            let units = leased.iter().flatten().fold(0_u64, |sum, it| sum.saturating_add(it.units));
            gate.counting.add_many(Event::LeaseUnit, units);
            LeaseReply::Decided(reply)
        }
        Err(NoReply::Overloaded) => LeaseReply::Overloaded,
        Err(why) => {
            gate.note_no_reply(&why);
            LeaseReply::Failed
        }
    }
}
