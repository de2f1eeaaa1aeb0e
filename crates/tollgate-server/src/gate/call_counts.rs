//! The number of gRPC calls that ended, by method and status.
//!
//! Invariant: every call is counted once, whichever side ends it; a call whose client left is not
//! counted.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::messages::status::Code;
use tollgate_service::metrics::{Family, Format};

/// The method of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallMethod {
    /// Envoy's rate limit service.
    RateLimit,
    /// Envoy's external authorization.
    ExtAuthz,
    /// Health, once or watched.
    Health,
    /// Another method, or one that is not supported here.
    Unknown,
}

impl CallMethod {
    const ALL: [Self; 4] = [Self::RateLimit, Self::ExtAuthz, Self::Health, Self::Unknown];

    const fn label(self) -> &'static str {
        match self {
            Self::RateLimit => "ratelimit",
            Self::ExtAuthz => "ext_authz",
            Self::Health => "health",
            Self::Unknown => "unknown",
        }
    }
}

/// A number for each of them and each status.
type Numbers<T> = [[T; Code::ALL.len()]; CallMethod::ALL.len()];

/// The counts.
#[derive(Debug, Default)]
pub struct CallCounts(Numbers<AtomicU64>);

impl CallCounts {
    /// Counts one.
    pub fn add(&self, called: CallMethod, code: Code) {
        let row = CallMethod::ALL.iter().position(|it| *it == called);
        let column = Code::ALL.iter().position(|it| *it == code);
        let cell = row.zip(column).and_then(|(row, column)| self.0.get(row)?.get(column));
        if let Some(cell) = cell {
            cell.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Appends the family; a code other than OK has a series from its first call on.
    pub fn write(&self, format: Format, text: &mut String) {
        let rows = CallMethod::ALL.iter().zip(&self.0);
        let samples = rows.flat_map(|(called, row)| {
            let cells = Code::ALL.iter().zip(row);
            cells.map(|(code, cell)| (*code, [called.label(), code.name()], cell))
        });
        let samples = samples
            .map(|(code, labels, cell)| (code, labels, cell.load(Ordering::Relaxed)))
            .filter(|(code, _, value)| *value > 0 || *code == Code::Ok)
            .map(|(_, labels, value)| (labels, value));
        format.push(Family::GrpcCalls, samples, text);
    }
}
