//! The time of a decision, by the clock that each group counts by.
//!
//! Invariant: all counts of one stored value are decided at the time of one clock.

use tollgate_core::Timestamp;

use crate::policy::compiled::Policy;

/// The time of a decision. A surface whose clock is not a wall clock reads a wall clock, too, for
/// groups that count [by a calendar](crate::Group::is_by_calendar).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    clock: Timestamp,
    wall: Timestamp,
}

impl Now {
    /// The time by the clock of the surface, and by a wall clock; without one the first is used for
    /// all groups.
    #[must_use]
    pub fn new(clock: Timestamp, wall: Option<Timestamp>) -> Self {
        Self { clock, wall: wall.unwrap_or(clock) }
    }

    /// The time by the clock of the surface.
    #[must_use]
    pub const fn clock(self) -> Timestamp {
        self.clock
    }

    /// The time for the counts of the group of this index.
    #[must_use]
    #[inline]
    pub fn of(self, policy: &Policy, group: usize) -> Timestamp {
        if self.wall == self.clock {
            return self.clock;
        }
        let by_calendar = policy.groups.get(group).is_some_and(|group| group.is_by_calendar);
        if by_calendar { self.wall } else { self.clock }
    }
}

impl From<Timestamp> for Now {
    fn from(clock: Timestamp) -> Self {
        Self { clock, wall: clock }
    }
}
