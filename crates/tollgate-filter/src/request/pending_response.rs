//! Additions to a response when it comes: the fields of an allowed request, and all of a gRPC
//! denial.
//!
//! Invariant: a plan comes back to the policy that lent it, whether a response comes or not.
//! Deliberately absent: the content of the fields; that is the policy's.

use std::rc::Rc;

use tollgate_core::Span;
use tollgate_policy::{BodyScan, Outcome, Plan};

use crate::active_policy::ActivePolicy;
use crate::host::proxy::Proxy;
use crate::host::reply::Reply;

/// The additions that a stream's response still needs.
pub enum PendingResponse<H> {
    /// Nothing: no rule applies, or the response is ours and complete.
    Nothing,
    /// The fields of an allowed request, and the charges that its response's status causes.
    Fields(Rc<ActivePolicy<H>>, Box<Plan>),
    /// Every field of a denied gRPC request, with this content type. The host's own response has no
    /// content type without a body, and uses the type that the request came with, which a filter in
    /// front (`grpc_web`) may have changed.
    Trailers(Rc<ActivePolicy<H>>, Box<Plan>, &'static str),
    /// The costs that only the rest of the response shows.
    Costs(OpenCosts<H>),
}

/// The costs of a request that only the rest of its response shows.
pub struct OpenCosts<H> {
    policy: Rc<ActivePolicy<H>>,
    plan: Box<Plan>,
    /// The status of the response.
    status: u16,
    /// Its body, where a rule reads that.
    scan: Option<Box<BodyScan>>,
}

/// The most bytes of a body that are copied at once. Other filters may hold a body back and send it
/// on in one piece of any size.
const PIECE: usize = 1 << 20;

impl<H: Proxy> PendingResponse<H> {
    /// Counts the denial of the request of the current context, which has waited this long, and
    /// responds in the origin's place; returns the additions that the response still needs.
    pub fn refusal(
        host: &H,
        policy: Rc<ActivePolicy<H>>,
        plan: Box<Plan>,
        how: (Option<&'static str>, Span),
    ) -> Self {
        Self::refuse(host, &policy, policy.outcome(&plan), how);
        Self::of_refusal(policy, plan, how.0)
    }

    /// The first part of [`PendingResponse::refusal`], where the outcome is known.
    pub fn refuse(
        host: &H,
        policy: &ActivePolicy<H>,
        outcome: Outcome<'_>,
        (grpc, waited): (Option<&'static str>, Span),
    ) {
        policy.count(&outcome, waited);
        host.reply(Reply::new(outcome, &policy.observer.labels, grpc));
    }

    /// The additions that the response to a denied request still needs.
    pub fn of_refusal(
        policy: Rc<ActivePolicy<H>>,
        plan: Box<Plan>,
        grpc: Option<&'static str>,
    ) -> Self {
        if let Some(content_type) = grpc {
            return Self::Trailers(policy, plan, content_type);
        }
        policy.keep(plan);
        Self::Nothing
    }

    /// Writes the additions to the response of the current context, and charges as its head
    /// requires; returns what its end needs.
    pub fn put_on_response(self, host: &H) -> Self {
        match self {
            Self::Nothing | Self::Costs(_) => return self,
            Self::Fields(policy, mut plan) => {
                policy
                    .outcome(&plan)
                    .headers(&mut |name, value| host.add_response_header(name, value));
                if let Some((status, scan)) = policy.settle(&mut plan) {
                    plan.memory().shrink();
                    return Self::Costs(OpenCosts { policy, plan, status, scan });
                }
                policy.keep(plan);
            }
            Self::Trailers(policy, plan, kind) => {
                let mut set =
                    |name: &'static str, value: &str| host.set_response_header(name, value);
                policy.outcome(&plan).grpc_headers(kind, &mut set);
                policy.keep(plan);
            }
        }
        Self::Nothing
    }

    /// True when it needs the body or the trailers of the response.
    pub const fn reads_body(&self) -> bool {
        matches!(self, Self::Costs(_))
    }

    /// A piece of `len` bytes of the response's body passes, perhaps the last one.
    pub fn read_body(self, host: &H, len: usize, is_last: bool) -> Self {
        match self {
            Self::Costs(costs) => costs.read_body(host, len, is_last),
            other => other,
        }
    }

    /// The response's trailers pass.
    pub fn read_trailers(self) -> Self {
        match self {
            Self::Costs(costs) => costs.settle_tail(true),
            other => other,
        }
    }

    /// The stream of the current context ends.
    pub fn end(self) {
        match self {
            Self::Nothing => {}
            Self::Costs(costs) => costs.end(),
            Self::Fields(policy, plan) => policy.end_without_status(plan),
            Self::Trailers(policy, plan, _) => policy.keep(plan),
        }
    }
}

impl<H: Proxy> OpenCosts<H> {
    fn read_body(mut self, host: &H, len: usize, is_last: bool) -> PendingResponse<H> {
        if let Some(scan) = self.scan.as_mut().filter(|scan| scan.is_open()) {
            let mut from = 0;
            while from < len {
                let bytes = host.response_body(from, len.saturating_sub(from).min(PIECE));
                if bytes.is_empty() {
                    scan.fail();
                    break;
                }
                scan.push(&bytes);
                from = from.saturating_add(bytes.len());
            }
        }
        if is_last { self.settle_tail(false) } else { PendingResponse::Costs(self) }
    }

    /// Settles the costs that are known at the end of the body.
    fn settle_tail(mut self, has_trailers: bool) -> PendingResponse<H> {
        if let Some(scan) = &mut self.scan {
            scan.end(true);
        }
        let Self { policy, plan, status, scan } = &mut self;
        if policy.settle_tail(plan, *status, scan.as_deref(), has_trailers) {
            return PendingResponse::Costs(self);
        }
        self.policy.keep(self.plan);
        PendingResponse::Nothing
    }

    /// The stream ends, perhaps in the middle of the body.
    fn end(mut self) {
        let mut scan = if H::READS_BODIES { self.scan.take() } else { None };
        if let Some(scan) = &mut scan {
            scan.end(false);
        }
        self.policy.settle_end(self.plan, self.status, scan.as_deref());
    }
}
