//! One node of the engine, as a server sees it: its clock, its circuit, the number of calls it is
//! sent, and the keys with requests to decide for it.
//!
//! Invariant: a key is in the queue at most once.

use std::collections::VecDeque;

use crate::commit::breaker::Breaker;
use crate::commit::clock::EngineClock;
use crate::commit::name::Name;
use crate::commit::settings::Settings;
use crate::commit::steady::Steady;
use crate::commit::window::Window;

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
