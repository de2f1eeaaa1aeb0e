//! What goes onto a response when it comes: the fields of what passed, and all of a gRPC refusal.
//!
//! Invariant: a plan comes back to the force that lent it, whether a response comes or not. Deliberately absent:
//! what the fields say; that is the policy's.

use core::cell::Cell;
use std::rc::Rc;

use tollgate_policy::{Facts, Plan, grpc_content_type};

use crate::facts::RequestFacts;
use crate::filter::Force;
use crate::host::Host;
use crate::reply::Reply;

/// What a stream owes its client.
#[derive(Default)]
pub enum Owed {
    /// Nothing: no rule applies, or the answer is ours and complete.
    #[default]
    Nothing,
    /// The fields of a request that was let through.
    Fields(Plan),
    /// Every field of a refused gRPC request, with this content type. The host's own answer has no content type
    /// without a body, and goes by the type that the request came with, which a filter in front (`grpc_web`)
    /// may have changed.
    Trailers(Plan, &'static str),
}

/// What a stream and its retry owe.
pub type SharedOwed = Rc<Cell<Owed>>;

impl Owed {
    /// Answers the request of the current context in the origin's place, and says what that answer still lacks.
    pub fn refusal(force: &Force, facts: &RequestFacts<Host>, plan: Plan, status: u16) -> Self {
        let grpc = facts.header("content-type").and_then(|kind| grpc_content_type(&kind));
        Host.reply(&Reply::new(&force.outcome(&plan), status, grpc));
        if let Some(content_type) = grpc {
            return Self::Trailers(plan, content_type);
        }
        force.keep(plan);
        Self::Nothing
    }

    /// Writes it onto the response of the current context, and charges what the response's status brings about.
    pub fn put_on_response(self, force: &Force) {
        match self {
            Self::Nothing => {}
            Self::Fields(mut plan) => {
                let outcome = force.outcome(&plan);
                outcome.headers(&mut |name, value| Host.add_response_header(name, value));
                if plan.is_deferred() {
                    force.settle(&mut plan);
                }
                force.keep(plan);
            }
            Self::Trailers(plan, kind) => {
                let outcome = force.outcome(&plan);
                outcome
                    .grpc_headers(kind, &mut |name, value| Host.set_response_header(name, value));
                force.keep(plan);
            }
        }
    }

    /// There will be no response: its client left.
    pub fn forget(self, force: &Force) {
        if let Self::Fields(plan) | Self::Trailers(plan, _) = self {
            force.keep(plan);
        }
    }
}
