//! The key of the hash that places keys, the same for every worker of a `vm_id`.
//!
//! Invariant: whoever comes first writes it, and it stays as long as the host's map does. Nobody
//! who does not know it can aim at a bucket.

use tollgate_table::{LAYOUT_VERSION, Seed};

use crate::proxy::Proxy;
use crate::shared_data::{INSERT, Stored, Written};

const NAME: &[u8] = &[LAYOUT_VERSION, b's', b'e', b'e', b'd'];

/// Tries to agree: every failed one means that somebody else set it.
const TRIES: u32 = 8;

/// The seed, and true if it is this worker's: then nothing else is in the map yet. `None` when the
/// host gives none.
pub fn agree<H: Proxy>(host: &H) -> Option<(Seed, bool)> {
    let mut is_own = false;
    for _ in 0..TRIES {
        let cas = match host.get(NAME) {
            Stored::Value(bytes, cas) => match Seed::try_from(bytes) {
                Ok(seed) => return Some((seed, is_own)),
                Err(_) => cas,
            },
            Stored::Absent => INSERT,
            Stored::Unreachable => return None,
        };
        is_own = host.set(NAME, &host.random_seed()?, cas) == Written::Done && cas == INSERT;
    }
    None
}
