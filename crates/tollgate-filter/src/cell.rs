//! The content of a cell, for the time of an action.
//!
//! Invariant: the content is there again afterwards, also after a panic of the action.

use core::mem::{ManuallyDrop, forget, take};
use std::cell::Cell;

/// Acts on the content of a cell. `act` must not make a host call: if the host called back, it
/// would find the cell empty.
pub fn with<T: Default, R>(cell: &Cell<T>, act: impl FnOnce(&mut T) -> R) -> R {
    act(&mut Taken { cell, value: ManuallyDrop::new(cell.take()) }.value)
}

/// The content of a cell while it is in use.
struct Taken<'a, T: Default> {
    cell: &'a Cell<T>,
    value: ManuallyDrop<T>,
}

impl<T: Default> Drop for Taken<'_, T> {
    fn drop(&mut self) {
        // An empty value owns nothing, so dropping the two would only cost time in every hook.
        forget(self.cell.replace(take(&mut *self.value)));
    }
}
