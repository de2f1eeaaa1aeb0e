//! The host's map that all workers share: reads and conditional writes as a trait, and one value
//! that several workers change.
//!
//! Invariant: there is no blind write. A value replaces exactly the bytes that were read
//! (compare-and-swap), or is inserted where the name was absent ([`INSERT`]). A change of a
//! [`SharedCell`] is decided on the bytes that it replaces: after a lost race it is decided again
//! on the other worker's bytes. Deliberately absent: the meaning of the bytes; that is `table`'s.

use std::borrow::Cow;

pub use tollgate_storage::table::Table;

/// The compare-and-swap number that inserts a bucket: the host inserts if there is none and returns
/// "mismatch" if another worker did. Writing without a number would be blind and lose updates.
pub const INSERT: u32 = u32::MAX;

/// The host's value under a name.
pub enum Stored {
    /// Nothing.
    Absent,
    /// These bytes; the number is the condition under which they may be replaced.
    Value(Vec<u8>, u32),
    /// The host did not respond.
    Unreachable,
}

/// The result of a conditional write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// The value was written.
    Done,
    /// Another worker wrote since the read.
    Lost,
    /// The host did not respond.
    Unreachable,
}

/// What was read of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BucketRead {
    /// There is no such bucket.
    Absent,
    /// Its bytes were read; the number is the condition under which they may be replaced.
    Present(u32),
    /// The host did not respond.
    Unreachable,
}

/// The host's map, shared by all workers.
pub trait SharedData {
    /// True where a read costs no more than the decision: then every request reads its bucket, and
    /// none is decided on the bytes that its worker wrote last.
    const READS_ARE_CHEAP: bool = false;
    /// The value under `name`.
    fn get(&self, name: &[u8]) -> Stored;
    /// Replaces the value that was read with the number `cas`; see [`INSERT`].
    fn set(&self, name: &[u8], value: &[u8], cas: u32) -> Written;
    /// Reads a bucket of a table into `bytes`. A host with tables of its own needs no name for it.
    fn get_bucket(&self, table: &Table, bucket: u32, bytes: &mut Vec<u8>) -> BucketRead {
        match self.get(&table.name(bucket)) {
            Stored::Absent => BucketRead::Absent,
            Stored::Value(value, number) => {
                *bytes = value;
                BucketRead::Present(number)
            }
            Stored::Unreachable => BucketRead::Unreachable,
        }
    }
    /// Replaces a bucket of a table as [`SharedData::set`] replaces a value.
    fn set_bucket(&self, table: &Table, bucket: u32, bytes: &[u8], cas: u32) -> Written {
        self.set(&table.name(bucket), bytes, cas)
    }
}

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
