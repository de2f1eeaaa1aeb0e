//! Reports about requests in flight, carried out: each is sent to all counts of its request.
//!
//! Invariant: every count confirms or releases a request on its own, so repeated reports make no
//! difference, whichever process sends them. A count that does not reply may have carried a report
//! out. Deliberately absent: how a count is asked, and when.

use alloc::vec::Vec;

use tollgate_storage::InFlightReport;

use crate::api_response::ApiResponse;
use crate::check::{self, BATCH_AT_ONCE, MAX_BATCH};
use crate::in_flight::{InFlight, InFlightRequests, Renewal, done, refused, requests};
use crate::metrics::Event;
use crate::settle::Sealer;
use crate::together::all;

/// The counts of requests in flight, for reports to them.
pub trait InFlightCounts {
    /// Sends a report to the count of this name, and returns the receipt of what is still counted
    /// there, empty when nothing is; `None` when it did not reply.
    fn report(&self, name: [u8; 32], request: Vec<u8>) -> impl Future<Output = Option<Vec<u8>>>;

    /// The count of this name has released a request: another one may have its place.
    fn freed(&self, name: &[u8; 32]);

    /// Counts an event.
    fn add(&self, event: Event);
}

impl InFlight {
    /// Confirms it in every count.
    pub async fn renew(&self, counts: &impl InFlightCounts) -> Renewal {
        let renewal = Renewal::of(self, self.report(InFlightReport::Runs, counts).await);
        match &renewal {
            Renewal::Counted(_) => counts.add(Event::Renewed),
            Renewal::Expired => counts.add(Event::InFlightLate),
            Renewal::Partly(_) | Renewal::Silent => {}
        }
        renewal
    }

    /// Releases it in every count; false when one did not reply.
    pub async fn end(&self, counts: &impl InFlightCounts) -> bool {
        let each = self.report(InFlightReport::Ended, counts).await;
        let is_whole = each.iter().all(Option::is_some);
        self.counts.iter().for_each(|(name, _)| counts.freed(name));
        if is_whole {
            counts.add(Event::Done);
        }
        is_whole
    }

    async fn report(
        &self,
        report: InFlightReport,
        counts: &impl InFlightCounts,
    ) -> Vec<Option<Vec<u8>>> {
        let each = self.counts.iter().map(|(name, receipt)| {
            counts.add(Event::Settle);
            counts.report(*name, report.request(self.number, receipt))
        });
        all(each.collect(), usize::MAX).await
    }

    async fn answer(
        &self,
        report: InFlightReport,
        sealer: &Sealer,
        counts: &impl InFlightCounts,
    ) -> ApiResponse {
        match report {
            InFlightReport::Runs => self.renew(counts).await.answer(sealer),
            InFlightReport::Ended => done(self.end(counts).await),
        }
    }
}

/// Carries out the reports in `body`, of at most [`MAX_BATCH`] requests.
pub async fn answer(
    sealer: Option<&Sealer>,
    report: InFlightReport,
    body: &[u8],
    counts: &impl InFlightCounts,
) -> ApiResponse {
    let requests = match requests(sealer, body, MAX_BATCH) {
        Ok(requests) => requests,
        Err(answer) => return answer,
    };
    // Without one nothing was read.
    let Some(sealer) = sealer else { return done(false) };
    match requests {
        InFlightRequests::One(one) => one.answer(report, sealer, counts).await,
        InFlightRequests::Many(requests) => {
            let each = requests.into_iter().map(async |request| match request {
                Ok(one) => one.answer(report, sealer, counts).await,
                Err(problems) => refused(&problems),
            });
            let each = all(each.collect(), BATCH_AT_ONCE).await;
            let each = each.into_iter().map(|answer| answer.body.into_owned());
            check::answers(&each.collect::<Vec<_>>())
        }
    }
}
