//! The work that a request leaves to its end: costs that its response settles, and its place among
//! requests in flight.
//!
//! Invariant: what cannot be written then is counted as a failure, and is on the strict side.

use tollgate_policy::{BodyScan, Ending, Plan, ResponseFacts};

use crate::active_policy::ActivePolicy;
use crate::host::proxy::Proxy;
use crate::request::response::{EndedResponse, ResponseHeaders, ResponseTail};

impl<H: Proxy> ActivePolicy<H> {
    /// Charges and refunds as the head of the response requires; returns its status when its rest
    /// must be settled as well, and its body where a rule reads that.
    pub fn settle(&self, plan: &mut Plan) -> Option<(u16, Option<Box<BodyScan>>)> {
        if !plan.settlement(&self.config.policy).is_deferred() {
            return None;
        }
        let status = self.host.response_status();
        let ending = status.map_or(Ending::Disconnect, Ending::Response);
        let head = ResponseHeaders::new(&self.host);
        self.settle_as(plan, ending, &head);
        let settlement = plan.settlement(&self.config.policy);
        let status = status.filter(|_| settlement.awaits_end())?;
        let scan = if H::READS_BODIES { settlement.body_scan(&head) } else { None };
        Some((status, scan))
    }

    /// The same for the end of the body of a response with this status; true when the end of the
    /// response must be settled as well.
    pub fn settle_tail(
        &self,
        plan: &mut Plan,
        status: u16,
        scan: Option<&BodyScan>,
        has_trailers: bool,
    ) -> bool {
        let tail = ResponseTail::new(&self.host, scan, has_trailers);
        self.settle_as(plan, Ending::Response(status), &tail);
        plan.settlement(&self.config.policy).awaits_end()
    }

    /// The same for the end of a response with this status.
    pub fn settle_end(&self, mut plan: Box<Plan>, status: u16, scan: Option<&BodyScan>) {
        let end = EndedResponse::new(&self.host, scan);
        self.settle_as(&mut plan, Ending::Response(status), &end);
        self.keep(plan);
    }

    /// The same for a request that ended like this.
    fn settle_as(&self, plan: &mut Plan, ending: Ending, response: &dyn ResponseFacts) {
        let is_due = plan.settle(&self.config.policy, ending, response);
        let settlement = plan.settlement(&self.config.policy);
        self.observer.count_costs(&settlement, response.has_ended());
        if is_due {
            self.charge(plan); // without a clock nothing is
        }
    }

    /// Confirms or releases the requests in flight of a plan that was prepared for it.
    pub(crate) fn charge(&self, plan: &mut Plan) {
        let Some(now) = self.host.now() else { return self.count_failure() };
        let stats = self.enforce(plan, now, |enforcement| enforcement.charge());
        self.add(&stats);
    }

    /// Counts requests in flight that were confirmed too late.
    pub(crate) fn count_late(&self, count: usize) {
        self.observer.count_late(count);
    }

    /// The stream of an allowed request ended before it had a response: its client left, or the
    /// host aborted it.
    pub fn end_without_status(&self, mut plan: Box<Plan>) {
        if plan.settlement(&self.config.policy).is_deferred() {
            self.settle_as(&mut plan, Ending::Disconnect, &());
        }
        self.keep(plan);
    }
}
