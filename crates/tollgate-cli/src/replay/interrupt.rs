//! Ctrl-C: the first one ends the reading, and the report covers the part read so far; the second
//! one ends the program.
//!
//! Invariant: a signal only sets a flag.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};

/// The exit code after SIGINT (128 and its number), as in shells.
const ENDED: i32 = 130;

/// Whether the user has interrupted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Handles signals from now on. Where that is not possible, they keep their default effect.
    pub(crate) fn listen() -> Self {
        let interrupt = Self::default();
        for signal in [SIGINT, SIGTERM] {
            let flag = || Arc::clone(&interrupt.0);
            // In this order: the first signal finds the flag unset.
            let _ = signal_hook::flag::register_conditional_shutdown(signal, ENDED, flag());
            let _ = signal_hook::flag::register(signal, flag());
        }
        interrupt
    }

    /// True once there was a signal.
    pub(crate) fn is_wanted(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
