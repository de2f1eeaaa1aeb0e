//! The name of this process's table in the fleet, and the numbers of its leases.
//!
//! Invariant: the name is 128 random bits that the table was given when it began, agreed by all
//! workers, so a restarted process has another one; and no number is used twice, by whichever
//! worker. Deliberately absent: a node's own name, which it would have again.

use std::cell::Cell;

use tollgate_storage::table::LAYOUT_VERSION;

use crate::host::proxy::Proxy;
use crate::host::shared_data::{Change, SharedCell};

/// The location in the host's map: the name, then how many configurations have asked for it.
const NAME: &[u8] = &[LAYOUT_VERSION, b'n', b'o', b'd', b'e'];

/// Numbers per configuration of one worker: more than it ever uses.
const NUMBERS: u32 = 40;

/// One configuration of one worker.
pub struct NodeId {
    table: u128,
    next: Cell<u64>,
}

impl NodeId {
    /// Agrees with the other workers; `None` when the host provides no shared data or no random
    /// bits.
    pub fn agree<H: Proxy>(host: &H) -> Option<Self> {
        let agreed = SharedCell::new(host, NAME).change(|found| {
            let known = found.and_then(|(bytes, _)| read(bytes));
            let Some((table, count)) = known.or_else(|| Some((random(host)?, 0))) else {
                return Change::Keep(None);
            };
            let mut bytes = table.to_le_bytes().to_vec();
            bytes.extend(count.saturating_add(1).to_le_bytes());
            Change::Write(bytes.into(), Some((table, count)))
        });
        let (table, count) = agreed.ok()??;
        // Never 0, which is not a valid number.
        let first = u64::from(count).wrapping_shl(NUMBERS).saturating_add(1);
        Some(Self { table, next: Cell::new(first) })
    }

    /// The table's name.
    pub const fn table(&self) -> u128 {
        self.table
    }

    /// A number that was never used.
    pub fn number(&self) -> u64 {
        let number = self.next.get();
        self.next.set(number.saturating_add(1));
        number
    }
}

fn random<H: Proxy>(host: &H) -> Option<u128> {
    host.random_seed().map(u128::from_le_bytes)
}

fn read(bytes: &[u8]) -> Option<(u128, u32)> {
    let (table, count) = bytes.split_first_chunk()?;
    Some((u128::from_le_bytes(*table), u32::from_le_bytes(count.try_into().ok()?)))
}
