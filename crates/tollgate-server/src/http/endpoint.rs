//! The endpoints for callers that ask about requests: their paths, and what answers each.
//!
//! Invariant: a path is listed once. Deliberately absent: which callers are allowed, and the limits
//! of a body.

use std::sync::Arc;

use tollgate_service::ApiResponse;
use tollgate_storage::InFlightReport;

use crate::check::{self, in_flight, settling};
use crate::gate::Gate;

/// An endpoint. Each takes a POST of JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Endpoint {
    /// Decides requests.
    Check,
    /// Settles the cost of one.
    Settle,
    /// Confirms those in flight.
    Renew,
    /// Ends those in flight.
    Done,
}

impl Endpoint {
    const ALL: [Self; 4] = [Self::Check, Self::Settle, Self::Renew, Self::Done];

    /// The endpoint of a path.
    pub(crate) fn of(path: &str) -> Option<Self> {
        // The name contains the method.
        let is_of = |it: &Self| it.name().strip_prefix("POST ") == Some(path);
        Self::ALL.into_iter().find(is_of)
    }

    /// Its name in traces.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Check => "POST /check",
            Self::Settle => "POST /check/settle",
            Self::Renew => "POST /check/renew",
            Self::Done => "POST /check/done",
        }
    }

    /// The response to `body`.
    pub(crate) async fn answer(self, gate: &Arc<Gate>, body: &[u8]) -> ApiResponse {
        match self {
            Self::Check => check::answer(gate, body).await,
            Self::Settle => settling::answer(gate, body).await,
            Self::Renew => in_flight::answer(gate, InFlightReport::Runs, body).await,
            Self::Done => in_flight::answer(gate, InFlightReport::Ended, body).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_one_spelling() {
        for endpoint in Endpoint::ALL {
            let path = endpoint.name().strip_prefix("POST ").expect("a POST");
            assert_eq!(Endpoint::of(path), Some(endpoint));
            for other in [format!("{path}/"), format!("/{path}"), path.to_uppercase()] {
                assert_eq!(Endpoint::of(&other), None, "{other}");
            }
        }
        assert_eq!((Endpoint::of(""), Endpoint::of("POST /check")), (None, None));
    }
}
