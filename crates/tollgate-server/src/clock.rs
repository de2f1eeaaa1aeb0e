//! The time for decisions: the wall clock at the start, plus the time since then by the monotonic
//! clock. Counts by a calendar are decided by the wall clock alone.
//!
//! Invariant: the first never goes back, even when the machine's clock is set. So no state is
//! foreign and no interval is credited twice. Deliberately absent: following a clock that is set
//! while the server runs, except for calendars. A block "until ten o'clock" then ends at what was
//! ten o'clock before.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;
use tollgate_core::{Span, Timestamp};

/// A clock that does not go back, and a wall clock.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    started: Instant,
    at: Timestamp,
    wall: WallClock,
}

/// The source of the wall clock's time.
#[derive(Clone, Copy, Debug)]
enum WallClock {
    Machine,
    /// Ahead of the other clock by this many seconds, as a test sets it.
    Ahead(u32),
}

impl Clock {
    /// A clock that shows the machine's time now.
    #[must_use]
    pub fn start() -> Self {
        let clock = Self::showing(machine_time().unwrap_or_default());
        Self { wall: WallClock::Machine, ..clock }
    }

    /// A clock that shows this time now.
    #[must_use]
    pub fn showing(at: Timestamp) -> Self {
        // The runtime's clock: a test that stops its time stops this clock, too.
        Self { started: Instant::now(), at, wall: WallClock::Ahead(0) }
    }

    /// The same clock, whose wall clock is this many seconds ahead of it.
    #[must_use]
    pub const fn with_wall_ahead(self, seconds: u32) -> Self {
        Self { wall: WallClock::Ahead(seconds), ..self }
    }

    /// The time.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.at.saturating_add(span(self.started.elapsed()))
    }

    /// The time by the wall clock, which may be set; that of the other clock if it shows a time
    /// before 1970.
    #[must_use]
    pub fn wall(&self) -> Timestamp {
        match self.wall {
            WallClock::Machine => machine_time().unwrap_or_else(|| self.now()),
            WallClock::Ahead(seconds) => self.now().saturating_add(Span::from_secs(seconds.into())),
        }
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

fn machine_time() -> Option<Timestamp> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    Some(Timestamp::ZERO.saturating_add(span(since)))
}

fn span(time: Duration) -> Span {
    Span::from_nanos(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}
