//! The last log line about a server or a plugin, by any worker: a line that all workers have is
//! logged once.
//!
//! Invariant: only a hash of it is stored, and losing it costs a line. In the host's map: sixteen
//! bytes, or none when there is nothing to log.

use std::borrow::Cow;

use tollgate_policy::plugin::PolicyFrom;
use tollgate_storage::table::{LAYOUT_VERSION, Seed, digest};

use crate::follow::last_good::name;
use crate::host::shared_data::{Change, NotChanged, SharedCell, SharedData};

/// The last line about one matter.
pub struct LogOnce([u8; 12]);

impl LogOnce {
    /// Of one matter of the plugin with this label.
    pub fn of_plugin(kind: [u8; 3], plugin: &str) -> Self {
        let id = digest(&Seed::default(), plugin.as_bytes());
        let mut name = [LAYOUT_VERSION; 12];
        for (byte, part) in name.iter_mut().skip(1).zip(kind.into_iter().chain(id)) {
            *byte = part;
        }
        Self(name)
    }

    /// Of one matter of one server, for one plugin.
    pub fn new(kind: [u8; 3], scope: &[u8], from: &PolicyFrom) -> Self {
        Self(name(kind, scope, from))
    }

    /// True for the worker that is to log it.
    pub fn is_new(&self, shared: &impl SharedData, what: &[u8]) -> bool {
        let hash = digest(&Seed::default(), what);
        let is_new = SharedCell::new(shared, &self.0).change_once(|found| match found {
            Some((bytes, _)) if bytes == hash => Change::Keep(false),
            _ => Change::Write(hash.as_slice().into(), true),
        });
        is_new.unwrap_or_else(|why| why == NotChanged::Unreachable)
    }

    /// True for the worker that is to log that the matter is over.
    pub fn is_over(&self, shared: &impl SharedData) -> bool {
        let is_over = SharedCell::new(shared, &self.0).change_once(|found| match found {
            Some((bytes, _)) if !bytes.is_empty() => Change::Write(Cow::Borrowed(&[]), true),
            _ => Change::Keep(false),
        });
        is_over == Ok(true)
    }
}
