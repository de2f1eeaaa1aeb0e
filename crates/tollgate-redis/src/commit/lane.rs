//! One node of the engine, as a server sees it: its clock, its circuit, the number of calls it is
//! sent at a time, and the keys with requests to decide for it.
//!
//! Invariant: a key is in the queue at most once. The number of calls is between [`FEWEST`] and the
//! limit of the settings. A call that waits in the engine longer than its decision may be old is
//! rejected, and costs the engine as much as one that is applied: so a rejection for lateness
//! halves the window, and each window of applied calls adds one. Requests beyond the window wait
//! here, undecided, and are decided when they are sent.

use std::collections::VecDeque;

use crate::commit::breaker::Breaker;
use crate::commit::clock::EngineClock;
use crate::commit::name::Name;
use crate::commit::settings::Settings;
use crate::commit::steady::Steady;

/// A node.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) clock: EngineClock,
    pub(crate) steady: Steady,
    /// The connection that is known; 0 where none was reported.
    pub(crate) connection: u64,
    pub(crate) breaker: Breaker,
    pub(crate) window: Window,
    /// Keys with requests to decide and no call under way.
    pub(crate) ready: VecDeque<Name>,
    /// The next calls contain the script.
    pub(crate) lacks_script: bool,
}

impl Lane {
    pub(crate) fn new(settings: &Settings) -> Self {
        Self {
            clock: EngineClock::default(),
            steady: Steady::default(),
            connection: 0,
            breaker: Breaker::new(settings),
            window: Window::new(settings.max_calls),
            ready: VecDeque::new(),
            lacks_script: false,
        }
    }
}

/// Never fewer: one slow key must not stop the others.
const FEWEST: u32 = 8;

/// The window of one node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    most: u32,
    size: u32,
    done: u32,
    out: u32,
}

impl Window {
    pub(crate) const fn new(most: u32) -> Self {
        let most = if most < FEWEST { FEWEST } else { most };
        Self { most, size: most, done: 0, out: 0 }
    }

    /// Takes a place; false when none is free.
    pub(crate) const fn take(&mut self) -> bool {
        if self.out >= self.size {
            return false;
        }
        self.out = self.out.saturating_add(1);
        true
    }

    /// Returns the place of a call that has ended.
    pub(crate) const fn give(&mut self) {
        debug_assert!(self.out > 0);
        self.out = self.out.saturating_sub(1);
    }

    /// A call was applied in time.
    pub(crate) const fn done(&mut self) {
        self.done = self.done.saturating_add(1);
        if self.done >= self.size {
            self.done = 0;
            if self.size < self.most {
                self.size = self.size.saturating_add(1);
            }
        }
    }

    /// A call arrived too late.
    pub(crate) fn late(&mut self) {
        self.done = 0;
        self.size = (self.size >> 1).max(FEWEST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lateness_halves_it_and_success_adds_one() {
        let mut window = Window::new(64);
        let full = |window: &mut Window| (0..1_000).filter(|_| window.take()).count();
        assert_eq!(full(&mut window), 64);
        (0..64).for_each(|_| window.give());
        window.late();
        assert_eq!(full(&mut window), 32);
        (0..32).for_each(|_| window.give());
        (0..32 + 33).for_each(|_| window.done());
        assert_eq!(full(&mut window), 34);
        (0..34).for_each(|_| window.give());
        (0..9).for_each(|_| window.late());
        assert_eq!(full(&mut window), 8, "never fewer");
        (0..8).for_each(|_| window.give());
        (0..100_000).for_each(|_| window.done());
        assert_eq!(full(&mut window), 64, "never more");
    }
}
