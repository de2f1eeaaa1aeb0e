//! Random policies with all of it: penalties, quotas by a calendar, limits on requests in flight,
//! costs that responses show, rules that deny, and limits from requests.
//!
//! Invariant: they come from numbers of their own, so the cases without them stay what they were.

use serde_json::Value;
use tollgate_core::Calendar;
use tollgate_test_support::Random;

use crate::in_flight::FIRST_WAITING;
use crate::{bodies, in_flight, policies};

/// What the costs of a mixed policy depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mix {
    /// The request alone, so that a server can decide everything by `/check`.
    Requests,
    /// Headers of responses, too.
    Headers,
    /// Bodies of responses, too.
    Bodies,
}

impl Mix {
    /// That of the case `number`; `None` for a case with some features alone.
    pub(crate) const fn of(number: u32) -> Option<Self> {
        match number % 32 {
            _ if number >= FIRST_WAITING => None,
            11 => Some(Self::Requests),
            15 | 31 => Some(Self::Headers),
            26 => Some(Self::Bodies),
            _ => None,
        }
    }

    /// True when the cases have bodies.
    pub(crate) const fn has_bodies(self) -> bool {
        matches!(self, Self::Bodies)
    }

    /// Gives all features to `document`, each to a share of its rules. Returns its calendar, if any
    /// quota has one.
    ///
    /// The order matters: a calendar replaces a whole quota, a cost may replace its algorithm, and
    /// which quotas can have a penalty or take the limit of a request depends on both.
    pub(crate) fn apply(self, document: &mut Value, random: &mut Random) -> Option<Calendar> {
        let calendar = policies::add_calendar(document, random);
        match self {
            Self::Requests => {}
            Self::Headers => policies::settle_costs(document, 60, random),
            Self::Bodies => bodies::settle_by_bodies(document, 50, random),
        }
        in_flight::limit_requests_in_flight(document, random);
        policies::add_deny_rules(document, random);
        policies::add_penalties(document, 75, random);
        policies::add_limits(document, random);
        calendar
    }
}
