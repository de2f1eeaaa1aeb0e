//! The turn to compile a policy: one worker of this process at a time, so that not all pause
//! together.
//!
//! Invariant: a worker that ends while it has its turn delays the others for [`LONGEST`] and no
//! longer. Only time depends on it: two workers that compile at once are only slower.

use std::borrow::Cow;

use tollgate_core::{Span, Timestamp};
use tollgate_table::{LAYOUT_VERSION, Seed};

use crate::host::proxy::Proxy;
use crate::host::shared_data::{Change, NotChanged, SharedCell};

/// Many times the compile time of a policy of 1 MiB on a busy machine.
pub const LONGEST: Span = Span::from_secs(10);

const NAME: &[u8] = &[LAYOUT_VERSION, b't', b'u', b'r', b'n'];

/// A turn that was taken: its end, and a unique number.
pub struct Turn([u8; 24]);

impl Turn {
    /// Takes the turn; `None` while another worker has it. Without shared data every worker has its
    /// own.
    pub fn take<H: Proxy>(host: &H, now: Timestamp) -> Option<Self> {
        let mut own = Self::until(now, Seed::default());
        let taken = SharedCell::new(host, NAME).change_once(|found| match found {
            Some((bytes, _)) if is_taken(bytes, now) => Change::Keep(false),
            _ => {
                own = Self::until(now, host.random_seed().unwrap_or_default());
                Change::Write(own.0.to_vec().into(), true)
            }
        });
        // A worker whose host does not respond compiles, too.
        let is_taken = taken.unwrap_or_else(|why| why == NotChanged::Unreachable);
        is_taken.then_some(own)
    }

    /// Gives the turn back, unless it was over and another worker has it.
    pub fn give_back<H: Proxy>(self, host: &H) {
        // Lost: another worker took it over meanwhile. Unreachable: it expires.
        let _ = SharedCell::new(host, NAME).change_once(|found| match found {
            Some((bytes, _)) if bytes == self.0 => Change::Write(Cow::Borrowed(&[]), ()),
            _ => Change::Keep(()),
        });
    }

    fn until(now: Timestamp, number: Seed) -> Self {
        let until = now.saturating_add(LONGEST).as_nanos().to_le_bytes();
        let mut turn = [0; 24];
        for (byte, part) in turn.iter_mut().zip(until.into_iter().chain(number)) {
            *byte = part;
        }
        Self(turn)
    }
}

/// True while a worker has the turn. A time further ahead than any turn belongs to no worker.
fn is_taken(bytes: &[u8], now: Timestamp) -> bool {
    let Some((until, _)) = bytes.split_first_chunk() else { return false };
    let until = Timestamp::from_nanos(u64::from_le_bytes(*until));
    until > now && until <= now.saturating_add(LONGEST)
}
