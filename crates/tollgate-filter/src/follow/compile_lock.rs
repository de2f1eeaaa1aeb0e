//! A lock with an expiry: one worker of this process at a time compiles a policy, so that not all
//! workers pause at the same time.
//!
//! Invariant: a worker that ends while it holds the lock delays the others for at most [`EXPIRY`].
//! Correctness does not depend on the lock: two workers that compile at once are only slower.

use std::borrow::Cow;

use tollgate_core::{Span, Timestamp};
use tollgate_storage::table::{LAYOUT_VERSION, Seed};

use crate::host::proxy::Proxy;
use crate::host::shared_data::{Change, NotChanged, SharedCell};

/// Many times the compile time of a policy of 1 MiB on a busy machine.
pub const EXPIRY: Span = Span::from_secs(10);

const NAME: &[u8] = &[LAYOUT_VERSION, b't', b'u', b'r', b'n'];

/// The lock as this worker acquired it: its expiry, and a unique number.
pub struct CompileLock([u8; 24]);

impl CompileLock {
    /// Acquires the lock; `None` while another worker holds it. Without shared data every worker
    /// has its own.
    pub fn acquire<H: Proxy>(host: &H, now: Timestamp) -> Option<Self> {
        let mut own = Self::until(now, Seed::default());
        let acquired = SharedCell::new(host, NAME).change_once(|found| match found {
            Some((bytes, _)) if is_held(bytes, now) => Change::Keep(false),
            _ => {
                own = Self::until(now, host.random_seed().unwrap_or_default());
                Change::Write(own.0.to_vec().into(), true)
            }
        });
        // A worker whose host does not respond compiles, too.
        let is_acquired = acquired.unwrap_or_else(|why| why == NotChanged::Unreachable);
        is_acquired.then_some(own)
    }

    /// Releases the lock, unless it has expired and another worker holds it.
    pub fn release<H: Proxy>(self, host: &H) {
        // Lost: another worker took it over meanwhile. Unreachable: it expires.
        let _ = SharedCell::new(host, NAME).change_once(|found| match found {
            Some((bytes, _)) if bytes == self.0 => Change::Write(Cow::Borrowed(&[]), ()),
            _ => Change::Keep(()),
        });
    }

    fn until(now: Timestamp, number: Seed) -> Self {
        let until = now.saturating_add(EXPIRY).as_nanos().to_le_bytes();
        let mut lock = [0; 24];
        for (byte, part) in lock.iter_mut().zip(until.into_iter().chain(number)) {
            *byte = part;
        }
        Self(lock)
    }
}

/// True while a worker holds the lock. A time further ahead than any expiry belongs to no worker.
fn is_held(bytes: &[u8], now: Timestamp) -> bool {
    let Some((until, _)) = bytes.split_first_chunk() else { return false };
    let until = Timestamp::from_nanos(u64::from_le_bytes(*until));
    until > now && until <= now.saturating_add(EXPIRY)
}
