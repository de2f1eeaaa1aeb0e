//! What a client used under one quota, carried into another.
//!
//! Invariant: at the change no more is admitted than `max(0, new capacity - u)`, where `u` is what
//! the old quota says is used; an unchanged quota changes no byte.

use crate::limiter::Limiter;
use crate::time::Timestamp;

impl Limiter {
    /// Writes to `state`, which is this limiter's, what was used in `old_state`, a state of `old`,
    /// at `now`. Equal limiters keep every byte; otherwise the units that `old` counts as used are
    /// charged at `now` to a state never seen, at most this limiter's capacity. Any bytes are
    /// accepted: what is no state of `old` has used nothing, and a `state` of another length is
    /// left as it is.
    pub fn carry(&self, old: &Self, old_state: &[u8], now: Timestamp, state: &mut [u8]) {
        if state.len() != self.state_len() {
            return;
        }
        if self == old && old_state.len() == state.len() {
            state.copy_from_slice(old_state);
            return;
        }
        state.fill(0);
        if old_state.len() == old.state_len() {
            let used = old.capacity().saturating_sub(old.peek(old_state, now, 0).remaining);
            // An empty state admits up to its capacity, so this is never denied.
            let _ = self.check(state, now, used.min(self.capacity()));
        }
    }
}
