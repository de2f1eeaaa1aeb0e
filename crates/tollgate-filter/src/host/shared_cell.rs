//! One value in the host's map that several workers change: read, decide, write if it is unchanged.
//!
//! Invariant: a change is decided on the bytes that it replaces. A lost race means that another
//! worker wrote, so the change is decided again on its bytes.

use std::borrow::Cow;

use crate::host::shared_data::{INSERT, SharedData, Stored, Written};

/// Attempts to write. As many workers as this may write at the same time.
const TRIES: u32 = 64;

/// One value, under a name of its own.
pub struct SharedCell<'a, S> {
    shared: &'a S,
    name: &'a [u8],
}

/// The value that was read: its bytes, and the number under which they may be replaced.
pub type Found<'b> = Option<(&'b [u8], u32)>;

/// A change of the value that was read, and its result.
pub enum Change<'a, T> {
    /// The value stays.
    Keep(T),
    /// These bytes replace it.
    Write(Cow<'a, [u8]>, T),
}

/// Why a value was not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotChanged {
    /// Other workers were faster each time.
    Lost,
    /// The host did not respond.
    Unreachable,
}

impl<'a, S: SharedData> SharedCell<'a, S> {
    /// The value under `name`.
    pub const fn new(shared: &'a S, name: &'a [u8]) -> Self {
        Self { shared, name }
    }

    /// Changes the value once.
    ///
    /// # Errors
    /// See [`NotChanged`].
    pub fn change_once<'c, T>(
        &self,
        change: impl FnOnce(Found<'_>) -> Change<'c, T>,
    ) -> Result<T, NotChanged> {
        let found = match self.shared.get(self.name) {
            Stored::Value(bytes, number) => Some((bytes, number)),
            Stored::Absent => None,
            Stored::Unreachable => return Err(NotChanged::Unreachable),
        };
        let number = found.as_ref().map_or(INSERT, |(_, number)| *number);
        match change(found.as_ref().map(|(bytes, number)| (bytes.as_slice(), *number))) {
            Change::Keep(result) => Ok(result),
            Change::Write(bytes, result) => match self.shared.set(self.name, &bytes, number) {
                Written::Done => Ok(result),
                Written::Lost => Err(NotChanged::Lost),
                Written::Unreachable => Err(NotChanged::Unreachable),
            },
        }
    }

    /// Changes the value, again after each lost race.
    ///
    /// # Errors
    /// See [`NotChanged`].
    pub fn change<'c, T>(
        &self,
        mut change: impl FnMut(Found<'_>) -> Change<'c, T>,
    ) -> Result<T, NotChanged> {
        for _ in 0..TRIES {
            match self.change_once(&mut change) {
                Err(NotChanged::Lost) => {}
                result => return result,
            }
        }
        Err(NotChanged::Lost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// A map with one value, the number 1 or 2, that loses the first `races` writes.
    struct Raced {
        races: Cell<u32>,
        value: Cell<Option<u8>>,
    }

    impl SharedData for Raced {
        fn get(&self, _: &[u8]) -> Stored {
            self.value.get().map_or(Stored::Absent, |byte| Stored::Value(vec![byte], 7))
        }

        fn set(&self, _: &[u8], value: &[u8], number: u32) -> Written {
            let expected = if self.value.get().is_some() { 7 } else { INSERT };
            assert_eq!(number, expected, "replaces what was read");
            if let Some(left) = self.races.get().checked_sub(1) {
                self.races.set(left);
                self.value.set(Some(1));
                return Written::Lost;
            }
            self.value.set(value.first().copied());
            Written::Done
        }
    }

    fn changed(races: u32) -> (Result<Option<u8>, NotChanged>, Option<u8>) {
        let shared = Raced { races: Cell::new(races), value: Cell::default() };
        let result = SharedCell::new(&shared, b"name").change(|found| {
            let before = found.and_then(|(bytes, _)| bytes.first().copied());
            Change::Write(Cow::Borrowed(&[2]), before)
        });
        (result, shared.value.get())
    }

    #[test]
    fn a_change_is_decided_on_the_bytes_that_it_replaces() {
        assert_eq!(changed(0), (Ok(None), Some(2)));
        assert_eq!(changed(1), (Ok(Some(1)), Some(2)));
        assert_eq!(changed(TRIES - 1), (Ok(Some(1)), Some(2)));
        assert_eq!(changed(TRIES), (Err(NotChanged::Lost), Some(1)));
    }
}
