//! The time for all decisions: the wall clock at the start, plus the time since then by the
//! monotonic clock.
//!
//! Invariant: it never goes back, even when the machine's clock is set. So no state is foreign and
//! no interval is credited twice. Deliberately absent: following a clock that is set while the
//! server runs. A block "until ten o'clock" then ends at what was ten o'clock before.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;
use tollgate_core::{Span, Timestamp};

/// A clock that does not go back.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    started: Instant,
    at: Timestamp,
}

impl Clock {
    /// A clock that shows the machine's time now.
    #[must_use]
    pub fn start() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self::showing(Timestamp::ZERO.saturating_add(span(since)))
    }

    /// A clock that shows this time now.
    #[must_use]
    pub fn showing(at: Timestamp) -> Self {
        // The runtime's clock: a test that stops its time stops this clock, too.
        Self { started: Instant::now(), at }
    }

    /// The time.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.at.saturating_add(span(self.started.elapsed()))
    }

    /// The time, in milliseconds since 1970.
    #[must_use]
    pub fn now_ms(&self) -> u64 {
        millis(self.now())
    }
}

/// Milliseconds since 1970, rounded up.
pub(crate) fn millis(at: Timestamp) -> u64 {
    at.since(Timestamp::ZERO).as_millis_ceil()
}

fn span(time: Duration) -> Span {
    Span::from_nanos(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}
