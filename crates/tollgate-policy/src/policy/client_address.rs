//! The client's address behind proxies: lists of addresses, read from the right.
//!
//! Invariant: an entry is trusted only if the party that appended it is trusted. The walk never
//! passes the first entry that an untrusted party could have written. An entry that is not an
//! address ends the walk at the last address from a trusted party, so a client cannot avoid its
//! limit with invalid entries.
//!
//! The syntax of the lists is in `tollgate_http_syntax::forwarded`.

use core::net::IpAddr;

use crate::facts::Facts;
use crate::spec::client_ip::{ClientAddress, Source, Trust};
use tollgate_http_syntax::forwarded::{parse_element, parse_node, unquoted};
use tollgate_http_syntax::values::elements;

/// The most entries of a list that are read, from the right.
const MAX_ENTRIES: usize = 64;

impl ClientAddress {
    /// The client's address; `None` when the connection has none and no trusted party reports one.
    pub(crate) fn find(&self, facts: &impl Facts) -> Option<IpAddr> {
        let peer = facts.peer();
        let vouched = match &self.trust {
            Trust::NoProxy => false,
            Trust::Proxies(trusted) => peer.is_none_or(|peer| trusted.contain(peer)),
            Trust::Hops(_) => true,
        };
        match &self.source {
            Source::Connection | Source::CfConnectingIp => peer,
            Source::Header(name) if vouched => {
                let value = facts.header(&name.0).unwrap_or_default();
                let mut addresses = elements(&value).map(parse_node);
                let first = addresses.next().flatten();
                // If two addresses differ, neither is trusted.
                first.filter(|_| addresses.all(|address| address == first)).or(peer)
            }
            Source::XForwardedFor if vouched => facts
                .header("x-forwarded-for")
                .map_or(peer, |list| self.walk(peer, list.rsplit(|b| *b == b','), parse_node)),
            Source::Forwarded if vouched => facts
                .header("forwarded")
                .map_or(peer, |list| self.walk(peer, unquoted(&list, b','), parse_element)),
            Source::Header(_) | Source::XForwardedFor | Source::Forwarded => peer,
        }
    }

    /// Reads `entries`, the last one first; empty ones are skipped, as in lists (RFC 9110, 5.6.1).
    fn walk<'l>(
        &self,
        peer: Option<IpAddr>,
        entries: impl Iterator<Item = &'l [u8]>,
        parse: fn(&[u8]) -> Option<IpAddr>,
    ) -> Option<IpAddr> {
        let mut client = peer;
        let entries = entries.map(<[u8]>::trim_ascii).filter(|entry| !entry.is_empty());
        for (i, entry) in entries.take(MAX_ENTRIES).enumerate() {
            let Some(address) = parse(entry) else { return client };
            client = Some(address);
            match &self.trust {
                Trust::Proxies(trusted) if trusted.contain(address) => {}
                Trust::Hops(hops) if i.saturating_add(1) < *hops => {}
                _ => return client,
            }
        }
        match self.trust {
            // Fewer entries than proxies: the client bypassed a proxy, and only its own address
            // counts.
            Trust::Hops(_) => peer,
            _ => client,
        }
    }
}
