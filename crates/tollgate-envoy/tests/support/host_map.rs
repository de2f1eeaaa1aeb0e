//! The host's map as proxy-wasm-cpp-host has it: all writes of a process are numbered one after the
//! other, 0 writes whatever stands there, and an absent name takes any number.
#![allow(dead_code, unreachable_pub, missing_docs, reason = "each test binary uses a part")]

use std::collections::HashMap;

use tollgate_envoy::shared_data::{Stored, Written};

/// A value with the number of its last write.
pub type Numbered = (Vec<u8>, u32);

#[derive(Clone, Default)]
pub struct HostMap {
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
        let stands = self.entries.get(name).map(|(_, number)| *number);
        if condition != 0 && stands.is_some_and(|number| number != condition) {
            return Written::Lost;
        }
        self.put(name, value);
        Written::Done
    }

    /// Writes whatever stands there.
    pub fn put(&mut self, name: &[u8], value: &[u8]) {
        self.latest = self.latest.checked_add(1).unwrap_or(1);
        self.entries.insert(name.to_vec(), (value.to_vec(), self.latest));
    }
}
