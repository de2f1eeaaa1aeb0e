//! The filter's values of streams, found by the numbers of their contexts.
//!
//! Invariant: a number has at most one value. Deliberately absent: which numbers there are; a host
//! that chooses them needs no search.

use tollgate_policy::SlabMap;

/// Values by the numbers of streams.
pub trait StreamMap<T>: Default {
    /// Without values.
    const EMPTY: Self;
    /// Inserts a value unless the number has one.
    fn insert_new(&mut self, id: u32, value: T);
    /// The value of a stream.
    fn get(&self, id: u32) -> Option<&T>;
    /// The value of a stream, for changes.
    fn get_mut(&mut self, id: u32) -> Option<&mut T>;
    /// Takes the value of a stream out.
    fn remove(&mut self, id: u32) -> Option<T>;
    /// How many values there are.
    fn len(&self) -> usize;
    /// True when there is no value.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// For a host whose numbers may be any.
pub type AnyNumbers<T> = SlabMap<u64, T>;

impl<T> StreamMap<T> for AnyNumbers<T> {
    const EMPTY: Self = Self::new();

    fn insert_new(&mut self, id: u32, value: T) {
        self.insert_new(id.into(), value);
    }

    fn get(&self, id: u32) -> Option<&T> {
        self.get(&id.into())
    }

    fn get_mut(&mut self, id: u32) -> Option<&mut T> {
        self.get_mut(&id.into())
    }

    fn remove(&mut self, id: u32) -> Option<T> {
        self.remove(&id.into())
    }

    fn len(&self) -> usize {
        self.len()
    }
}
