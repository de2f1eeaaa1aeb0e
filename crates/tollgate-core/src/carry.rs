//! A state under other parameters: what a key has used stays used when its quota is changed.
//!
//! Invariant: at the change no more is admitted than the new capacity less what was used by the old
//! quota; all rounding is against the client. Deliberately not here: which quota a state belongs
//! to, and states of earlier layouts: whoever stores them [converts](Limiter::convert) them first.

use crate::limiter::Limiter;
use crate::time::Timestamp;

impl Limiter {
    /// Writes to `state` what `old_state`, which `old` left, is under this limiter at `now`.
    ///
    /// With equal parameters every byte is kept. Otherwise, where u is what `old` has used at
    /// `now`, its capacity less what remains: `min(u, capacity)` units are charged at `now`.
    ///
    /// Never fails, whatever the bytes. Where `old_state` is not as long as a state of `old`,
    /// nothing was used; where `state` is not as long as one of this limiter, nothing is written.
    pub fn carry(&self, old: &Self, old_state: &[u8], now: Timestamp, state: &mut [u8]) {
        if state.len() != self.state_len() {
            return;
        }
        state.fill(0);
        if old_state.len() != old.state_len() {
            return;
        }
        if self == old {
            state.copy_from_slice(old_state);
            return;
        }
        let used = old.capacity().saturating_sub(old.peek(old_state, now, 0).remaining);
        self.check(state, now, used.min(self.capacity()));
    }
}
