//! The values that all workers of a map agree on before a policy counts in it: how the host numbers
//! writes, the clock, and the key of the hash that places keys.
//!
//! Invariant: the first worker writes it, and it stays for as long as the host's map does. A client
//! that does not know the seed cannot aim at a bucket.

use tollgate_storage::table::{LAYOUT_VERSION, Seed};

use crate::counts::clock::{self, Clocks};
use crate::counts::numbering::{self, NO_ANSWER, Numbering};
use crate::host::proxy::Proxy;
use crate::host::shared_data::{INSERT, Stored, Written};

const SEED: &[u8] = &[LAYOUT_VERSION, b's', b'e', b'e', b'd'];

/// Attempts to agree. Every failed attempt means that another worker wrote the value.
const TRIES: u32 = 8;

/// The agreement.
pub struct Agreement {
    /// How the host numbers writes.
    pub numbering: Numbering,
    /// The key of the hash.
    pub seed: Seed,
    /// This worker wrote the seed: nothing was counted in the map before.
    pub is_new: bool,
}

impl Agreement {
    /// Reaches the agreement.
    ///
    /// # Errors
    /// The reason why the filter cannot count on this host.
    pub fn reach<H: Proxy>(host: &H) -> Result<Self, &'static str> {
        let token = host.random_seed().ok_or(NO_ANSWER)?;
        let numbering = numbering::probe(host, &token)?;
        // This comes before the seed: in a map with a seed and no offset, workers know of no
        // offset.
        let has_seed = || !matches!(host.get(SEED), Stored::Absent);
        let clocks = Clocks {
            own: host.clock_offset(),
            monotonic: host.monotonic(),
            wall: host.wall_clock(),
        };
        host.set_clock_offset(clock::agree(host, clocks, has_seed).ok_or(NO_ANSWER)?);
        let (seed, is_new) = seed(host).ok_or(NO_ANSWER)?;
        Ok(Self { numbering, seed, is_new })
    }
}

/// The seed, and true if this worker wrote it.
fn seed<H: Proxy>(host: &H) -> Option<(Seed, bool)> {
    let mut is_own = false;
    for _ in 0..TRIES {
        let cas = match host.get(SEED) {
            Stored::Value(bytes, cas) => match Seed::try_from(bytes) {
                Ok(seed) => return Some((seed, is_own)),
                Err(_) => cas,
            },
            Stored::Absent => INSERT,
            Stored::Unreachable => return None,
        };
        is_own = host.set(SEED, &host.random_seed()?, cas) == Written::Done && cas == INSERT;
    }
    None
}
