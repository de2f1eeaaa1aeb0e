//! What goes onto a response when it comes: the fields of what passed, and all of a gRPC refusal.
//!
//! Invariant: a plan comes back to the policy that lent it, whether a response comes or not.
//! Deliberately absent: what the fields say; that is the policy's.

use std::rc::Rc;

use tollgate_policy::Plan;

use crate::active_policy::ActivePolicy;
use crate::host::proxy::Proxy;
use crate::host::reply::Reply;

/// What a stream's response still lacks.
pub enum PendingResponse<H> {
    /// Nothing: no rule applies, or the answer is ours and complete.
    Nothing,
    /// The fields of a request that was let through, and what its response's status brings about.
    Fields(Rc<ActivePolicy<H>>, Box<Plan>),
    /// Every field of a refused gRPC request, with this content type. The host's own answer has no
    /// content type without a body, and goes by the type that the request came with, which a filter
    /// in front (`grpc_web`) may have changed.
    Trailers(Rc<ActivePolicy<H>>, Box<Plan>, &'static str),
}

impl<H: Proxy> PendingResponse<H> {
    /// Answers the request of the current context in the origin's place, and says what that answer
    /// still lacks.
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

    /// Writes it onto the response of the current context, and charges what the response's status
    /// brings about.
    pub fn put_on_response(self, host: &H) {
        match self {
            Self::Nothing => {}
            Self::Fields(policy, mut plan) => {
                policy
                    .outcome(&plan)
                    .headers(&mut |name, value| host.add_response_header(name, value));
                policy.settle(&mut plan);
                policy.keep(plan);
            }
            Self::Trailers(policy, plan, kind) => {
                let mut set =
                    |name: &'static str, value: &str| host.set_response_header(name, value);
                policy.outcome(&plan).grpc_headers(kind, &mut set);
                policy.keep(plan);
            }
        }
    }

    /// The stream ends, and no response was seen.
    pub fn end(self) {
        match self {
            Self::Nothing => {}
            Self::Fields(policy, plan) => policy.end_without_status(plan),
            Self::Trailers(policy, plan, _) => policy.keep(plan),
        }
    }
}
