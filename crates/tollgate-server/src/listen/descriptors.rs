//! File descriptors: how many connections of clients the process has room for.
//!
//! Invariant: connections of clients never take the descriptors that the server itself needs.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::config::Config;
use crate::log::{Level, Log};

/// Descriptors that are not connections of clients: probes, the engine's nodes, files, a collector.
const OWN_DESCRIPTORS: u64 = 128;
/// The descriptors for the engine's nodes where replicas must have charges: 32 for each of eight
/// nodes.
const REPLICAS_DESCRIPTORS: u64 = 256;

/// The number of connections that are served at a time: the configured number, or the number that
/// the process's descriptors leave room for in addition to its own. Otherwise clients that open
/// connections could take the descriptors of the store, of probes and of the file of rules.
pub(crate) fn connections(log: &Log, config: &Config) -> Result<usize, String> {
    let wanted = config.limits.connections;
    let has_replicas = config.engine.as_ref().is_some_and(|engine| engine.replicas.is_some());
    let own = OWN_DESCRIPTORS.saturating_add(if has_replicas { REPLICAS_DESCRIPTORS } else { 0 });
    let given = descriptors(u64::try_from(wanted).unwrap_or(u64::MAX).saturating_add(own));
    let room = room(given, own).ok_or_else(|| {
        format!(
            "the machine gives {given} file descriptors and the server itself needs {own}; raise \
             LimitNOFILE"
        )
    })?;
    if room < wanted {
        let message = format!(
            "max_connections is {wanted}, and only {room} connections are served at a time: the \
             machine gives {given} file descriptors, of which the server itself needs {own}; raise \
             LimitNOFILE, or lower max_connections"
        );
        log.message(Level::Warning, "few_descriptors", &message);
    }
    Ok(wanted.min(room))
}

/// The connections that this many descriptors leave room for; `None` for none.
fn room(descriptors: u64, own: u64) -> Option<usize> {
    let room = descriptors.checked_sub(own).filter(|room| *room > 0)?;
    Some(usize::try_from(room).unwrap_or(usize::MAX))
}

/// The descriptors that the process may have, raised to `wanted` if the machine permits.
fn descriptors(wanted: u64) -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let current = limit.current.unwrap_or(u64::MAX);
    if current >= wanted {
        return current;
    }
    let raised = wanted.min(limit.maximum.unwrap_or(u64::MAX));
    let to = Rlimit { current: Some(raised), maximum: limit.maximum };
    if setrlimit(Resource::Nofile, to).is_ok() { raised } else { current }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_the_server_its_own_descriptors() {
        let own = OWN_DESCRIPTORS;
        let rows = [(0, None), (own, None), (own + 1, Some(1)), (1024, Some(896))];
        for (descriptors, expected) in rows {
            assert_eq!(room(descriptors, own), expected, "{descriptors}");
        }
        assert_eq!(room(u64::MAX, own), usize::try_from(u64::MAX - own).ok());
    }
}
