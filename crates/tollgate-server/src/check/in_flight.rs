//! `POST /check/renew` and `POST /check/done`: callers report that requests in flight still run, or
//! have ended.
//!
//! Invariant: an id is valid where it was issued: its seal is the store's. Every count confirms or
//! releases a request on its own, and remembers the ended ones, so repeated reports make no
//! difference, whichever server gets them. A store that does not respond may have carried out the
//! report: the caller is asked to send it again. A request that ends at no server is counted for
//! `max_age`. Deliberately absent: the policy; the id contains the counts.

use tollgate_policy::{Partition, Policy};
use tollgate_service::ApiResponse;
use tollgate_service::check::Decided;
use tollgate_service::in_flight::{InFlight, InFlightId};
use tollgate_service::in_flight_reports::{self, InFlightCounts};
use tollgate_service::metrics::Event;
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
    in_flight_reports::answer(gate.store.sealer(), report, body, &Counts(gate)).await
}

/// The counts of the store.
struct Counts<'a>(&'a Gate);

impl InFlightCounts for Counts<'_> {
    async fn report(&self, name: [u8; 32], request: Vec<u8>) -> Option<Vec<u8>> {
        let Self(gate) = self;
        read(gate, gate.store.ask(&name, StoreRequest::InFlight(&request)).await)
    }

    fn freed(&self, name: &[u8; 32]) {
        self.0.lines.place_freed(name, self.0.clock.now());
    }

    fn add(&self, event: Event) {
        self.0.counting.add(event);
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
