//! The host's map as in proxy-wasm-cpp-host: all writes of a process are numbered one after the
//! other, 0 writes over any value, and an absent name takes any number. It can also be as other
//! hosts may have it, because the specification leaves the numbers to them.

use std::collections::HashMap;

use tollgate_filter::host::shared_data::{Stored, Written};

/// A value with the number of its last write.
pub type Numbered = (Vec<u8>, u32);

/// The number that a write gets, and the condition for an absent or a present name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Numbers {
    /// As in Envoy.
    #[default]
    OneSequence,
    /// Each name counts its own writes, in steps of this size.
    PerName(u32),
    /// The same, and the first number is 0, under which every write is accepted.
    FromZero,
    /// An absent name takes no number but 0.
    StrictInsertion,
    /// An inserted value's number is the one that its writer gave.
    Given,
    /// A write under `u32::MAX` has no condition.
    Unconditional,
    /// The number changes only with the bytes.
    OfBytes,
    /// No present value is replaced on a condition.
    NeverReplaced,
}

#[derive(Clone, Default)]
pub struct HostMap {
    pub numbers: Numbers,
    pub entries: HashMap<Vec<u8>, Numbered>,
    /// The number that was given out last.
    pub latest: u32,
}

impl HostMap {
    pub fn get(&self, name: &[u8]) -> Stored {
        match self.entries.get(name) {
            Some((value, number)) => Stored::Value(value.clone(), *number),
            None => Stored::Absent,
        }
    }

    pub fn set(&mut self, name: &[u8], value: &[u8], condition: u32) -> Written {
        let current = self.entries.get(name).cloned();
        let is_same = current.as_ref().is_none_or(|(_, number)| *number == condition);
        let is_taken = condition == 0
            || match self.numbers {
                Numbers::StrictInsertion => current.is_some() && is_same,
                Numbers::Unconditional => is_same || condition == u32::MAX,
                Numbers::NeverReplaced => current.is_none(),
                _ => is_same,
            };
        if !is_taken {
            return Written::Lost;
        }
        self.latest = self.latest.checked_add(1).unwrap_or(1);
        let number = match (self.numbers, &current) {
            (Numbers::PerName(step), Some((_, number))) => number.wrapping_add(step),
            (Numbers::PerName(step), None) => step,
            (Numbers::FromZero, Some((_, number))) => number.wrapping_add(1),
            (Numbers::FromZero, None) => 0,
            (Numbers::Given, None) => condition,
            (Numbers::OfBytes, Some((bytes, number))) if bytes == value => *number,
            _ => self.latest,
        };
        self.entries.insert(name.to_vec(), (value.to_vec(), number));
        Written::Done
    }

    /// Writes over any value.
    pub fn put(&mut self, name: &[u8], value: &[u8]) {
        self.set(name, value, 0);
    }
}
