//! Requests that rules count while they are in flight: confirmed while they run, released when they
//! have ended.
//!
//! Invariant: a forwarded request holds its places until its response has ended, whatever ended it,
//! and gives them back once: an object remembers the ended requests, so a report may be repeated.
//! What is needed for that is in the memory of this isolate alone. An end that is not seen (the
//! isolate is lost, or the platform does not report it) frees the places after `max_age`.
//! Deliberately absent: what is counted, and when it expires; that is in the objects.

use tollgate_policy::{Partition, Plan, Policy, Rule};
use tollgate_service::ApiResponse;
use tollgate_service::check::Decided;
use tollgate_service::in_flight::{AGAIN_AFTER, InFlight, InFlightId, Renewal};
use tollgate_service::in_flight_reports::{self, InFlightCounts};
use tollgate_service::metrics::Event;
use tollgate_storage::InFlightReport;

use crate::counts::object_name::name_of;
use crate::counts::objects::Objects;
use crate::deployment::Gate;
use crate::request::response_end::ResponseEnd;
use crate::request::settle::{read, send};
use crate::runtime::js;

/// A report without a reply is sent again after each of these, in milliseconds.
const END_AGAIN_AFTER_MS: [u64; 2] = [1_000, 5_000];

/// The places of an allowed request; `None` when no rule counts it while it is in flight.
pub(crate) fn places(objects: &Objects, policy: &Policy, plan: &Plan) -> Option<InFlight> {
    let name_of = |partition: Partition<'_>| objects.hash_of(policy, partition.key());
    let unnumbered = InFlight::of(plan, policy, 0, &name_of)?;
    Some(InFlight { number: js::random(), ..unnumbered })
}

/// The id of a decided request that is counted while it is in flight.
pub(crate) fn id(gate: &Gate, policy: &Policy, decided: &Decided) -> Option<InFlightId> {
    let places = places(&gate.objects, policy, &decided.plan)?;
    gate.sealer().map(|sealer| places.seal(sealer))
}

/// True when a caller could not end a request, because ids are not given out here.
pub(crate) fn lacks_ids(gate: &Gate, policy: &Policy) -> bool {
    policy.rules().iter().any(Rule::limits_requests_in_flight) && gate.sealer().is_none()
}

/// Holds the places of a forwarded request until its response has ended, then gives them back.
pub(crate) async fn hold(objects: &Objects, mut places: InFlight, end: &ResponseEnd) {
    let counts = Counts(objects);
    let mut after_ms = places.renew_after_ms();
    while !end.comes_within(after_ms).await {
        after_ms = match places.renew(&counts).await {
            Renewal::Counted(renewed) => {
                places = renewed;
                places.renew_after_ms()
            }
            Renewal::Expired => return objects.report(),
            Renewal::Partly(renewed) => {
                places = renewed;
                again_after(&places)
            }
            Renewal::Silent => again_after(&places),
        };
        objects.report();
    }
    if end.is_hidden() {
        return;
    }
    for pause_ms in END_AGAIN_AFTER_MS {
        if places.end(&counts).await {
            return;
        }
        objects.report();
        js::wait(pause_ms).await;
    }
    places.end(&counts).await;
    objects.report();
}

/// The time after which a confirmation is sent again that a count did not reply to.
fn again_after(places: &InFlight) -> u64 {
    places.renew_after_ms().checked_div(AGAIN_AFTER).unwrap_or_default()
}

/// Carries out the reports in `body`.
pub(crate) async fn reported(gate: &Gate, report: InFlightReport, body: &[u8]) -> ApiResponse {
    let counts = Counts(&gate.objects);
    let answer = in_flight_reports::answer(gate.sealer(), report, body, &counts).await;
    gate.objects.report();
    answer
}

/// The counts of the objects.
struct Counts<'a>(&'a Objects);

impl InFlightCounts for Counts<'_> {
    async fn report(&self, name: [u8; 32], request: Vec<u8>) -> Option<Vec<u8>> {
        let reply = send(self.0, &name, &request, js::now()).reply().await;
        read(self.0, reply, |reply| InFlightReport::read(reply).map(<[u8]>::to_vec))
    }

    fn freed(&self, name: &[u8; 32]) {
        self.0.lines.place_freed(&name_of(name), js::now());
    }

    fn add(&self, event: Event) {
        self.0.counters.add(event);
    }
}
