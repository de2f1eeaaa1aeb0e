//! `POST /check/renew` and `POST /check/done`: callers report that requests in flight still run, or
//! have ended.
//!
//! Invariant: an id is valid where it was issued: its seal is the store's. Every count confirms or
//! releases a request on its own, and remembers the ended ones, so repeated reports make no
//! difference, whichever server gets them. A store that does not respond may have carried out the
//! report: the caller is asked to send it again. A request that ends at no server is counted for
//! `max_age`. Deliberately absent: the policy; the id contains the counts.

use futures_util::future::join_all;
use futures_util::stream::{self, StreamExt};
use tollgate_policy::{Partition, Policy};
use tollgate_service::ApiResponse;
use tollgate_service::check::{self, BATCH_AT_ONCE, Decided, MAX_BATCH};
use tollgate_service::in_flight::{self, InFlight, InFlightId, InFlightRequests, Renewal};
use tollgate_service::metrics::Event;
use tollgate_service::settle::Sealer;
use tollgate_storage::InFlightReport;

use crate::check::settling;
use crate::gate::Gate;
use crate::store::{NoReply, StoreRequest};

/// The id of a decided request that is counted while it is in flight.
pub(crate) fn id(gate: &Gate, policy: &Policy, decided: &Decided) -> Option<InFlightId> {
    if !policy.rules().iter().any(|rule| rule.limits_requests_in_flight()) {
        return None;
    }
    let sealer = gate.store.sealer()?;
    let name_of =
        |partition: Partition<'_>| gate.name_of(policy, (partition.group(), partition.key()));
    let number = settling::number()?;
    Some(InFlight::of(&decided.plan, policy, number, &name_of)?.seal(sealer))
}

/// Carries out the reports in `body`.
pub async fn answer(gate: &Gate, report: InFlightReport, body: &[u8]) -> ApiResponse {
    let sealer = gate.store.sealer();
    let requests = match in_flight::requests(sealer, body, MAX_BATCH) {
        Ok(requests) => requests,
        Err(answer) => return answer,
    };
    // Without one nothing was read.
    let Some(sealer) = sealer else { return in_flight::done(false) };
    match requests {
        InFlightRequests::One(one) => one_of(gate, sealer, report, &one).await,
        InFlightRequests::Many(requests) => {
            let each = requests.into_iter().map(async |request| match request {
                Ok(one) => one_of(gate, sealer, report, &one).await,
                Err(problems) => in_flight::refused(&problems),
            });
            let each = stream::iter(each).buffered(BATCH_AT_ONCE).collect::<Vec<_>>().await;
            let each = each.into_iter().map(|answer| answer.body.into_owned());
            check::answers(&each.collect::<Vec<_>>())
        }
    }
}

/// Carries out one report.
async fn one_of(
    gate: &Gate,
    sealer: &Sealer,
    report: InFlightReport,
    one: &InFlight,
) -> ApiResponse {
    let each = one.counts.iter().map(|(name, receipt)| async move {
        gate.counting.add(Event::Settle);
        let request = report.request(one.number, receipt);
        gate.store.ask(name, StoreRequest::InFlight(&request)).await
    });
    let each = join_all(each).await.into_iter().map(|reply| read(gate, reply));
    let each: Vec<Option<Vec<u8>>> = each.collect();
    match report {
        InFlightReport::Runs => {
            let renewal = Renewal::of(one, each);
            match &renewal {
                Renewal::Counted(_) => gate.counting.add(Event::Renewed),
                Renewal::Expired => gate.counting.add(Event::InFlightLate),
                Renewal::Silent => {}
            }
            renewal.answer(sealer)
        }
        InFlightReport::Ended => {
            let is_whole = each.iter().all(Option::is_some);
            if is_whole {
                gate.counting.add(Event::Done);
            }
            in_flight::done(is_whole)
        }
    }
}

/// Reads a count's response; a wrong response is counted.
fn read(gate: &Gate, reply: Result<Vec<u8>, NoReply>) -> Option<Vec<u8>> {
    let reply = reply.inspect_err(|why| gate.note_no_reply(why)).ok()?;
    let receipt = InFlightReport::read(&reply).map(<[u8]>::to_vec);
    if receipt.is_err() {
        gate.note(Event::Misread, "the reply about a request in flight cannot be read");
    }
    receipt.ok()
}
