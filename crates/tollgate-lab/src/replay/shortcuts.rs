//! Clients whose requests need no planning: the places of their counts, by the name in the log.
//!
//! Invariant: every entry came from the node for the same client of the log, under a policy in
//! which nothing else of a request matters. It is a cache: a client that is not in it is decided in
//! the long way, and clearing it loses nothing.

use std::hash::Hasher as _;
use std::net::IpAddr;

use crate::simulator::CountPlace;
use hashbrown::HashTable;
use siphasher::sip::SipHasher13;
use tollgate_access_log::Client;

/// The most clients. Beyond it all are removed and looked up again. 32 bytes and a place each.
const MOST: usize = 1 << 19;

/// The places of clients' counts.
#[derive(Debug)]
pub(crate) struct Shortcuts {
    secret: [u8; 16],
    table: HashTable<Shortcut>,
}

#[derive(Clone, Copy, Debug)]
struct Shortcut {
    client: u64,
    known: CountPlace,
}

/// The known facts about a request's client before the decision.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Hint {
    /// The hash by which it is found; `None` when there is no client, or no short way.
    pub(crate) client: Option<u64>,
    /// The place of its count.
    pub(crate) known: Option<CountPlace>,
}

impl Shortcuts {
    pub(crate) const fn new(secret: [u8; 16]) -> Self {
        Self { secret, table: HashTable::new() }
    }

    /// The hint of a client, before it is looked up.
    pub(crate) fn hint(&self, client: Option<Client<'_>>) -> Hint {
        Hint { client: client.map(|client| self.client(client)), known: None }
    }

    /// Looks up all of them.
    pub(crate) fn find_all(&self, hints: &mut [Hint]) {
        for hint in hints {
            hint.known = hint.client.and_then(|client| self.find(client));
        }
    }

    /// The keyed hash of the client in the log: an address and a name are never equal.
    fn client(&self, client: Client<'_>) -> u64 {
        let mut hasher = SipHasher13::new_with_key(&self.secret);
        match client {
            Client::Address(IpAddr::V4(v4)) => {
                hasher.write(&v4.octets());
                hasher.write_u8(4);
            }
            Client::Address(IpAddr::V6(v6)) => {
                hasher.write(&v6.octets());
                hasher.write_u8(6);
            }
            Client::Name(name) => {
                hasher.write(name);
                hasher.write_u8(0);
            }
        }
        hasher.finish()
    }

    /// The number of known clients.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    pub(crate) fn find(&self, client: u64) -> Option<CountPlace> {
        let found = self.table.find(client, |shortcut| shortcut.client == client);
        found.map(|shortcut| shortcut.known)
    }

    pub(crate) fn learn(&mut self, client: u64, known: CountPlace) {
        if let Some(found) = self.table.find_mut(client, |shortcut| shortcut.client == client) {
            found.known = known;
            return;
        }
        if self.table.len() >= MOST {
            self.table.clear();
        }
        self.table.insert_unique(client, Shortcut { client, known }, |shortcut| shortcut.client);
    }
}
