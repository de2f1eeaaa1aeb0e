//! How many names of metrics there are, agreed by all workers through the host's map: the host
//! never frees a name.
//!
//! Invariant: the names of one `vm_id` are at most [`MAX_NAMES`], however often policies are
//! replaced; later rules are counted under existing names. A name that was given stays given, also
//! when its rule is gone. Deliberately absent: a read by a request.
//!
//! In the map, for each family of names: eight bytes, little-endian, a hash whose lowest byte is
//! how many names the family has.

use tollgate_storage::table::{LAYOUT_VERSION, Seed, digest};

use crate::host::shared_data::{Change, SharedCell, SharedData};

/// The most names.
pub const MAX_NAMES: usize = 10_000;

/// Of these, the names for metrics of no rule and no plugin.
pub const OWN_NAMES: usize = 64;

const NAME: &[u8] = &[LAYOUT_VERSION, b'n', b'a', b'm', b'e', b's'];

/// Reserves the names of `families`, each with its number of names, where there is room; true for
/// each family that may use its names. Families that had them
/// keep them; of the others, the first ones for which there is room; none when the host does not
/// respond.
pub fn reserve(shared: &impl SharedData, families: &[(String, u8)]) -> Vec<bool> {
    let is_reserved = SharedCell::new(shared, NAME).change(|found| {
        let mut reserved =
            found.map_or_else(ReservedNames::default, |(bytes, _)| ReservedNames::read(bytes));
        let before = reserved.entries.len();
        let is_reserved: Vec<bool> =
            families.iter().map(|(name, of)| reserved.reserve(name, *of)).collect();
        match reserved.entries.len() == before {
            true => Change::Keep(is_reserved),
            false => Change::Write(reserved.bytes().into(), is_reserved),
        }
    });
    is_reserved.unwrap_or_else(|_| vec![false; families.len()])
}

/// The families that have their names.
#[derive(Default)]
struct ReservedNames {
    /// Sorted, and each once.
    entries: Vec<u64>,
    names: usize,
}

impl ReservedNames {
    /// The families in `bytes`; none in damaged bytes.
    fn read(bytes: &[u8]) -> Self {
        let (entries, rest) = bytes.as_chunks::<8>();
        let mut reserved = Self::default();
        for entry in entries.iter().filter(|_| rest.is_empty()) {
            let [of, ..] = entry;
            if reserved.insert(u64::from_le_bytes(*entry)) {
                reserved.names = reserved.names.saturating_add(usize::from(*of));
            }
        }
        reserved
    }

    /// Inserts an entry; false if it is there already.
    fn insert(&mut self, entry: u64) -> bool {
        let place = self.entries.binary_search(&entry);
        if let Err(place) = place {
            self.entries.insert(place, entry);
        }
        place.is_err()
    }

    fn bytes(&self) -> Vec<u8> {
        self.entries.iter().flat_map(|entry| entry.to_le_bytes()).collect()
    }

    /// Enters a family of `of` names; false when there is no room for it.
    fn reserve(&mut self, family: &str, of: u8) -> bool {
        // Names are the operator's: no one gains by two that collide.
        let [_, hash @ ..] = digest(&Seed::default(), family.as_bytes());
        let mut entry = [of; 8];
        for (byte, part) in entry.iter_mut().skip(1).zip(hash) {
            *byte = part;
        }
        let entry = u64::from_le_bytes(entry);
        if self.entries.binary_search(&entry).is_ok() {
            return true;
        }
        let names = self.names.saturating_add(usize::from(of));
        let has_room = names <= MAX_NAMES.saturating_sub(OWN_NAMES);
        if has_room {
            self.insert(entry);
            self.names = names;
        }
        has_room
    }
}
