//! The last log line about a server or a plugin, by any worker: a line that all workers have is
//! logged once.
//!
//! Invariant: only a hash of it is stored, and losing it costs a line. In the host's map: sixteen
//! bytes, or none when there is nothing to log.

use tollgate_policy::PolicyFrom;
use tollgate_table::{LAYOUT_VERSION, Seed, digest};

use crate::follow::kept::name;
use crate::host::shared_data::{INSERT, SharedData, Stored, Written};

/// The last line about one matter.
pub struct Said([u8; 12]);

impl Said {
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
        let cas = match shared.get(&self.0) {
            Stored::Value(bytes, _) if bytes == hash => return false,
            Stored::Value(_, cas) => cas,
            Stored::Absent => INSERT,
            Stored::Unreachable => return true,
        };
        shared.set(&self.0, &hash, cas) != Written::Lost
    }

    /// True for the worker that is to log that the matter is over.
    pub fn is_over(&self, shared: &impl SharedData) -> bool {
        match shared.get(&self.0) {
            Stored::Value(bytes, cas) if !bytes.is_empty() => {
                shared.set(&self.0, &[], cas) == Written::Done
            }
            Stored::Value(..) | Stored::Absent | Stored::Unreachable => false,
        }
    }
}
