//! How many names of metrics there are, agreed by all workers through the host's map: the host
//! never frees one.
//!
//! Invariant: the names of one `vm_id` are at most [`MAX_NAMES`], however often policies are
//! replaced; what comes then is counted under names that are there. A name that was given stays
//! given, also when its rule is gone. Deliberately absent: a look by a request.
//!
//! In the map, for each family of names: eight bytes, little-endian, a hash whose lowest byte is
//! how many names the family has.

use std::collections::BTreeSet;

use tollgate_table::{LAYOUT_VERSION, Seed, digest};

use crate::host::shared_data::{INSERT, SharedData, Stored, Written};

/// The most names.
pub const MAX_NAMES: usize = 10_000;

/// Of these, for what is of no rule and no plugin.
pub const OWN_NAMES: usize = 64;

const NAME: &[u8] = &[LAYOUT_VERSION, b'n', b'a', b'm', b'e', b's'];

/// Tries to write: every lost race means that another worker wrote, mostly the same.
const MAX_TRIES: u32 = 32;

/// Which of `families`, each with how many names it has, may have their names. Those that had them
/// have them still, of others as many as there is room for, the first ones first; none when the
/// host does not answer.
pub fn claim(shared: &impl SharedData, families: &[(String, u8)]) -> Vec<bool> {
    for _ in 0..MAX_TRIES {
        let (mut named, cas) = match shared.get(NAME) {
            Stored::Value(bytes, cas) => (Named::read(&bytes), cas),
            Stored::Absent => (Named::default(), INSERT),
            Stored::Unreachable => break,
        };
        let before = named.entries.len();
        let may: Vec<bool> = families.iter().map(|(name, of)| named.enter(name, *of)).collect();
        if named.entries.len() == before {
            return may;
        }
        match shared.set(NAME, &named.bytes(), cas) {
            Written::Done => return may,
            Written::Lost => {}
            Written::Unreachable => break,
        }
    }
    vec![false; families.len()]
}

/// The families that have their names.
#[derive(Default)]
struct Named {
    entries: BTreeSet<u64>,
    names: usize,
}

impl Named {
    /// Those in `bytes`; none in what is damaged.
    fn read(bytes: &[u8]) -> Self {
        let (entries, rest) = bytes.as_chunks::<8>();
        let mut named = Self::default();
        for entry in entries.iter().filter(|_| rest.is_empty()) {
            let [of, ..] = entry;
            if named.entries.insert(u64::from_le_bytes(*entry)) {
                named.names = named.names.saturating_add(usize::from(*of));
            }
        }
        named
    }

    fn bytes(&self) -> Vec<u8> {
        self.entries.iter().flat_map(|entry| entry.to_le_bytes()).collect()
    }

    /// Enters a family of `of` names; false when there is no room for it.
    fn enter(&mut self, family: &str, of: u8) -> bool {
        // Names are the operator's: nobody gains by two that meet.
        let [_, hash @ ..] = digest(&Seed::default(), family.as_bytes());
        let mut entry = [of; 8];
        for (byte, part) in entry.iter_mut().skip(1).zip(hash) {
            *byte = part;
        }
        let entry = u64::from_le_bytes(entry);
        if self.entries.contains(&entry) {
            return true;
        }
        let names = self.names.saturating_add(usize::from(of));
        let has_room = names <= MAX_NAMES.saturating_sub(OWN_NAMES);
        if has_room {
            self.entries.insert(entry);
            self.names = names;
        }
        has_room
    }
}
