//! Additions to a response when it comes: the fields of an allowed request, and all of a gRPC
//! denial.
//!
//! Invariant: a plan comes back to the policy that lent it, whether a response comes or not.
//! Deliberately absent: the content of the fields; that is the policy's.

use std::rc::Rc;

use tollgate_policy::Plan;

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
    /// The costs that only the end of the response shows, which has this status.
    Costs(Rc<ActivePolicy<H>>, Box<Plan>, u16),
}

impl<H: Proxy> PendingResponse<H> {
    /// Responds to the request of the current context in the origin's place, and returns the
    /// additions that the response still needs.
    pub fn refusal(
        host: &H,
        policy: Rc<ActivePolicy<H>>,
        plan: Box<Plan>,
        grpc: Option<&'static str>,
    ) -> Self {
        host.reply(&Reply::new(&policy.outcome(&plan), &policy.observer.labels, grpc));
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
            Self::Nothing | Self::Costs(..) => return self,
            Self::Fields(policy, mut plan) => {
                policy
                    .outcome(&plan)
                    .headers(&mut |name, value| host.add_response_header(name, value));
                if let Some(status) = policy.settle(&mut plan) {
                    plan.memory().shrink();
                    return Self::Costs(policy, plan, status);
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

    /// The stream of the current context ends.
    pub fn end(self) {
        match self {
            Self::Nothing => {}
            Self::Costs(policy, plan, status) => policy.settle_end(plan, status),
            Self::Fields(policy, plan) => policy.end_without_status(plan),
            Self::Trailers(policy, plan, _) => policy.keep(plan),
        }
    }
}
