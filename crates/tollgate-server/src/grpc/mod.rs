//! gRPC calls: Envoy's rate limit service, its external authorization, and health.
//!
//! Invariant: a call is decided by the policy, as `POST /check` is. Details of a denial that it
//! cannot carry are left out, and a denial is never sent as permission. A call with a time limit
//! gets its response within it: no call waits for a place that comes later. Deliberately absent:
//! the allowed callers, and the length of a message; those are in `http`.

mod answering;
mod authorization;
pub mod calls;
mod facts;
mod health;
mod rate_limit;

pub(crate) use self::answering::overloaded;
pub use self::health::Watchers;
pub(crate) use self::health::is_known;

use std::sync::Arc;

use crate::messages::status::{Code, Status};
use crate::messages::{authorization as authorizations, health as healths, rate_limit as limits};
use tollgate_core::Span;

use crate::gate::Gate;
use crate::gate::call_counts::CallMethod;
use crate::http::protocols::Protocols;

/// The method of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    /// Envoy's rate limit service.
    RateLimit,
    /// Envoy's external authorization.
    Authorize,
    /// Whether to send requests here.
    Health,
    /// The same, and every change of it.
    Watch,
}

impl Method {
    /// The method of a path, if it is supported here.
    ///
    /// # Errors
    /// It is not.
    pub(crate) fn of(path: &str, spoken: Protocols) -> Result<Self, Status> {
        let off = |name: &str| {
            let message = format!("{name} is off here; the setting protocols turns it on");
            Err(Status::new(Code::Unimplemented, message))
        };
        match path {
            limits::PATH if spoken.rate_limit => Ok(Self::RateLimit),
            limits::PATH => off("ratelimit"),
            authorizations::PATH if spoken.ext_authz => Ok(Self::Authorize),
            authorizations::PATH => off("ext_authz"),
            healths::CHECK_PATH => Ok(Self::Health),
            healths::WATCH_PATH => Ok(Self::Watch),
            _ => Err(Status::new(Code::Unimplemented, "there is no such method here")),
        }
    }

    /// The method that it is counted as.
    pub(crate) const fn called(self) -> CallMethod {
        match self {
            Self::RateLimit => CallMethod::RateLimit,
            Self::Authorize => CallMethod::ExtAuthz,
            Self::Health | Self::Watch => CallMethod::Health,
        }
    }

    /// True when every caller is allowed.
    pub(crate) const fn is_public(self) -> bool {
        matches!(self, Self::Health | Self::Watch)
    }
}

/// The name in traces of a call about requests.
pub(crate) fn traced(path: &str) -> Option<&'static str> {
    match path {
        limits::PATH => limits::PATH.strip_prefix('/'),
        authorizations::PATH => authorizations::PATH.strip_prefix('/'),
        _ => None,
    }
}

/// Returns the response to a message about requests; `patience` is how long its caller waits.
///
/// # Errors
/// The status with which the call ends instead.
pub(crate) async fn answer(
    gate: &Arc<Gate>,
    method: Method,
    message: &[u8],
    patience: Span,
) -> Result<Vec<u8>, Status> {
    match method {
        Method::RateLimit => rate_limit::answer(gate, message, patience).await,
        Method::Authorize => authorization::answer(gate, message, patience).await,
        Method::Health | Method::Watch => Err(Status::invalid("it asks about no request")),
    }
}
