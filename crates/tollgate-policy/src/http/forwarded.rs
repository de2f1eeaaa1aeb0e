//! Who the client is behind proxies: lists of addresses, walked from the right.
//!
//! Invariant: an entry is believed only if whoever appended it is trusted; the first entry that an
//! untrusted party could have written is never stepped past. What is no address ends the walk at
//! the last address that was vouched for, so garbage makes a client no harder to limit.
//!
//! Sources: X-Forwarded-For as proxies write it; Forwarded (RFC 7239, section 5.2 and 6).

use alloc::vec::Vec;
use core::net::IpAddr;

use crate::document::identity::{ClientIpDoc, Source};
use crate::facts::Facts;
use crate::http::address::Cidr;
use crate::http::values::elements;

/// The longest list that is walked, in entries from the right.
const MAX_ENTRIES: usize = 64;

/// How the client's address is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClientAddress {
    pub(crate) source: Source,
    pub(crate) trust: Trust,
}

/// Who may speak for others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Trust {
    Nobody,
    Proxies(Vec<Cidr>),
    Hops(usize),
}

impl ClientAddress {
    /// What the document says; `default` where it says nothing.
    pub(crate) fn new(doc: Option<&ClientIpDoc>, default: Source) -> Self {
        let source = doc.and_then(|doc| doc.source.clone()).unwrap_or(default);
        let trust = match doc.map(|doc| (&doc.trusted_proxies, doc.trusted_hops)) {
            Some((Some(proxies), _)) => Trust::Proxies(proxies.0.clone()),
            Some((None, Some(hops))) => Trust::Hops(usize::try_from(hops.0).unwrap_or(1)),
            Some((None, None)) | None => Trust::Nobody,
        };
        Self { source, trust }
    }

    /// True when a header is to be read and nobody is trusted to have written it.
    pub(crate) fn ignores_its_header(&self) -> bool {
        self.trust == Trust::Nobody
            && !matches!(self.source, Source::Connection | Source::CfConnectingIp)
    }

    /// The client's address; `None` when the connection has none and nobody vouches for another.
    pub(crate) fn find(&self, facts: &impl Facts) -> Option<IpAddr> {
        let peer = facts.peer();
        let vouched = match &self.trust {
            Trust::Nobody => false,
            Trust::Proxies(trusted) => peer.is_none_or(|peer| is_trusted(trusted, peer)),
            Trust::Hops(_) => true,
        };
        match &self.source {
            Source::Connection | Source::CfConnectingIp => peer,
            Source::Header(name) if vouched => {
                let value = facts.header(&name.0).unwrap_or_default();
                let mut addresses = elements(&value).map(parse_node);
                let first = addresses.next().flatten();
                // Of two that differ nobody vouches for either.
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

    /// Walks `entries`, the last one first; empty ones are skipped, as lists have it (RFC 9110, 5.6.1).
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
                Trust::Proxies(trusted) if is_trusted(trusted, address) => {}
                Trust::Hops(hops) if i.saturating_add(1) < *hops => {}
                _ => return client,
            }
        }
        match self.trust {
            // Fewer entries than proxies: somebody came round them, and speaks for himself only.
            Trust::Hops(_) => peer,
            _ => client,
        }
    }
}

fn is_trusted(trusted: &[Cidr], address: IpAddr) -> bool {
    trusted.iter().any(|cidr| cidr.contains(address))
}

/// The pieces of `list` between separators outside of quotes (RFC 9110, 5.6.4), from the right. A proxy may quote what
/// its client sent (`host`), separators and all. And what stands further left may be the client's own, with a quote that
/// never ends: only from the right does it hide nothing.
fn unquoted(list: &[u8], separator: u8) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(list);
    core::iter::from_fn(move || {
        let list = rest?;
        let Some(at) = last_unquoted(list, separator) else { return rest.take() };
        let (before, piece) = list.split_at_checked(at)?;
        rest = Some(before);
        piece.get(1..)
    })
}

/// Where the last separator outside of quotes is.
fn last_unquoted(list: &[u8], separator: u8) -> Option<usize> {
    let mut is_quoted = false;
    list.iter().enumerate().rposition(|(i, byte)| {
        is_quoted ^= *byte == b'"' && !is_escaped(list.get(..i).unwrap_or_default());
        *byte == separator && !is_quoted
    })
}

/// True when what stands `before` a quote makes it part of the text: an odd number of backslashes.
fn is_escaped(before: &[u8]) -> bool {
    before.iter().rev().take_while(|byte| **byte == b'\\').count() & 1 == 1
}

/// The address of one element of Forwarded: `for=192.0.2.60;proto=http;by=203.0.113.43`.
fn parse_element(element: &[u8]) -> Option<IpAddr> {
    let mut found = None;
    for pair in unquoted(element, b';') {
        let Some(equals) = pair.iter().position(|b| *b == b'=') else { continue };
        let (name, value) = pair.split_at_checked(equals)?;
        if name.trim_ascii().eq_ignore_ascii_case(b"for") {
            if found.is_some() {
                return None;
            }
            found = Some(value.strip_prefix(b"=")?.trim_ascii());
        }
    }
    parse_node(found?)
}

/// An address as proxies write it: quoted or not, with brackets, a port or a zone, or without.
fn parse_node(node: &[u8]) -> Option<IpAddr> {
    let node = node.trim_ascii();
    let node = node.strip_prefix(b"\"").and_then(|n| n.strip_suffix(b"\"")).unwrap_or(node);
    let text = core::str::from_utf8(node).ok()?;
    let address = match text.strip_prefix('[') {
        Some(rest) => {
            let (address, port) = rest.split_once(']')?;
            if !(port.is_empty() || port.strip_prefix(':').is_some_and(is_port)) {
                return None;
            }
            address
        }
        None => match text.split_once(':') {
            Some((address, port)) if is_port(port) => address,
            _ => text,
        },
    };
    let (address, zone) = address.split_once('%').map_or((address, None), |(a, z)| (a, Some(z)));
    let parsed: IpAddr = address.parse().ok()?;
    // A zone belongs to IPv6 only (RFC 4007, 11).
    (zone.is_none() || parsed.is_ipv6()).then(|| parsed.to_canonical())
}

fn is_port(text: &str) -> bool {
    !text.is_empty() && text.len() <= 5 && text.bytes().all(|b| b.is_ascii_digit())
}
