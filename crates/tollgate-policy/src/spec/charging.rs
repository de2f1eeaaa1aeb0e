//! When a request is charged.
//!
//! Invariant: the document lists the responses that are charged; they are never guessed.

use alloc::vec::Vec;

use crate::spec::settled_cost::{ResponseFacts, SettledCost};
use crate::spec::status::{Ending, StatusPattern};

/// The event that charges a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Charging {
    /// When it is allowed.
    Request,
    /// By its response.
    Response(ResponseCharge),
    /// When it is allowed, by an estimate; the response settles it.
    Settled(SettledCost),
    /// While it is in flight: its quotas limit how many run at the same time.
    InFlight,
}

impl Charging {
    /// True when units are held from the request to its response.
    pub const fn holds(&self) -> bool {
        match self {
            Self::Request => false,
            Self::Response(charge) => charge.reserves(),
            Self::Settled(_) | Self::InFlight => true,
        }
    }

    /// How the response settles the cost, where it does.
    pub const fn settled_cost(&self) -> Option<&SettledCost> {
        match self {
            Self::Settled(cost) => Some(cost),
            Self::Request | Self::Response(_) | Self::InFlight => None,
        }
    }

    /// The units that an allowed request of this cost finally uses when it ends like this; an
    /// unknown cost is that cost.
    pub fn used(&self, cost: u64, ending: Ending, response: &dyn ResponseFacts) -> u64 {
        match self {
            Self::Request => cost,
            Self::InFlight => 0,
            Self::Response(charge) => {
                if charge.charges(ending) {
                    cost
                } else {
                    0
                }
            }
            Self::Settled(settled) => {
                settled.used(ending, response).and_then(Result::ok).unwrap_or(cost)
            }
        }
    }
}

/// Charging by response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResponseCharge {
    /// The statuses that are charged.
    pub response_status: Statuses,
    /// Hold the cost from the request on, and give it back when the response is not charged; false
    /// by default.
    pub reserve: Option<bool>,
    /// The charge for a request without a response; charged by default.
    pub on_abort: Option<OnAbort>,
}

impl ResponseCharge {
    /// True when a request that ended like this is charged.
    pub fn charges(&self, ending: Ending) -> bool {
        match ending {
            Ending::Response(status) => {
                self.response_status.0.iter().any(|pattern| pattern.matches(status))
            }
            Ending::Disconnect => self.on_abort != Some(OnAbort::Skip),
            Ending::NotSent => false,
        }
    }

    /// True when units are reserved until the response.
    pub const fn reserves(&self) -> bool {
        matches!(self.reserve, Some(true))
    }
}

/// The charge for a request that never had a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnAbort {
    /// The same as for a status that is charged.
    Charge,
    /// Nothing.
    Skip,
}

/// The statuses that are charged: at least one. The field is required.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statuses(pub Vec<StatusPattern>);
