//! Lists of addresses as proxies write them: X-Forwarded-For, and Forwarded (RFC 7239, 4 to 6).
//!
//! Invariant: text that is not an address is never read as one; the inside of a quote is not
//! searched. The policy's `client_address` decides which proxies are trusted.

use core::net::IpAddr;

/// The pieces of `list` between separators outside of quotes (RFC 9110, 5.6.4), from the right. A
/// proxy may quote text that its client sent (`host`), including separators. The text further left
/// may be the client's own, with a quote that never ends; only a search from the right prevents
/// such a quote from hiding later pieces.
pub fn unquoted(list: &[u8], separator: u8) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(list);
    core::iter::from_fn(move || {
        let list = rest?;
        let Some(at) = last_unquoted(list, separator) else { return rest.take() };
        let (before, piece) = list.split_at_checked(at)?;
        rest = Some(before);
        piece.get(1..)
    })
}

/// The position of the last separator outside of quotes.
fn last_unquoted(list: &[u8], separator: u8) -> Option<usize> {
    let mut is_quoted = false;
    list.iter().enumerate().rposition(|(i, byte)| {
        is_quoted ^= *byte == b'"' && !is_escaped(list.get(..i).unwrap_or_default());
        *byte == separator && !is_quoted
    })
}

/// True when the text `before` a quote escapes it: an odd number of backslashes.
fn is_escaped(before: &[u8]) -> bool {
    before.iter().rev().take_while(|byte| **byte == b'\\').count() & 1 == 1
}

/// The address of one element of Forwarded: `for=192.0.2.60;proto=http;by=203.0.113.43`.
pub fn parse_element(element: &[u8]) -> Option<IpAddr> {
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
pub fn parse_node(node: &[u8]) -> Option<IpAddr> {
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
    zoned(address)
}

/// An address with a zone (`fe80::1%eth0`) or without, in canonical form.
pub fn zoned(text: &str) -> Option<IpAddr> {
    let (address, zone) = text.split_once('%').map_or((text, None), |(a, z)| (a, Some(z)));
    let parsed: IpAddr = address.parse().ok()?;
    // Only IPv6 has zones (RFC 4007, 11).
    (zone.is_none() || parsed.is_ipv6()).then(|| parsed.to_canonical())
}

fn is_port(text: &str) -> bool {
    !text.is_empty() && text.len() <= 5 && text.bytes().all(|b| b.is_ascii_digit())
}
