//! The client of a line: an address in any of the forms that logs have, or a name.
//!
//! Invariant: one client has one form, so an IPv4 address mapped into IPv6 is the IPv4 address and
//! a port is not part of it. Grouping addresses into networks is the policy's business.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use memchr::{memchr, memrchr};

use crate::record::Client;

/// The client of a column. If a column lists several, it is the last one, because a list grows at
/// its end and a client can forge its beginning. `None` for `-`, an empty text and `unix:`.
pub(crate) fn client(text: &[u8]) -> Option<Client<'_>> {
    if let Some(found) = ipv4(text) {
        return Some(Client::Address(found));
    }
    let text = match memrchr(b',', text) {
        Some(comma) => text.get(comma.wrapping_add(1)..)?,
        None => text,
    };
    let text = text.trim_ascii();
    if matches!(text, b"" | b"-") || text.starts_with(b"unix:") {
        return None;
    }
    Some(address(text).map_or(Client::Name(text), Client::Address))
}

/// Reads `text` as an address, with or without a port; `None` for anything else.
pub(crate) fn address(text: &[u8]) -> Option<IpAddr> {
    if let Some(found) = ipv4(text) {
        return Some(found);
    }
    if let Some(inner) = text.strip_prefix(b"[") {
        let end = memchr(b']', inner)?;
        let port = inner.get(end.wrapping_add(1)..)?;
        return is_port(port).then(|| ipv6(inner.get(..end)?)).flatten();
    }
    let colon = memchr(b':', text)?;
    let (host, port) = text.split_at_checked(colon)?;
    match ipv4(host) {
        Some(found) if is_port(port) => Some(found),
        _ => ipv6(text),
    }
}

/// Nothing, or a colon and a number of at most five digits.
fn is_port(text: &[u8]) -> bool {
    match text.split_first() {
        None => true,
        Some((colon, digits)) => {
            *colon == b':' && digits.len() <= 5 && digits.iter().all(u8::is_ascii_digit)
        }
    }
}

/// Reads `text` as an address of version 4, with nothing before or after it.
fn ipv4(text: &[u8]) -> Option<IpAddr> {
    leading_ipv4(text).filter(|(_, rest)| rest.is_empty()).map(|(address, _)| address)
}

/// The address of version 4 at the beginning of `text`, and the rest after it.
#[inline]
pub(crate) fn leading_ipv4(text: &[u8]) -> Option<(IpAddr, &[u8])> {
    let (a, rest) = octet(text)?;
    let (b, rest) = octet(rest.strip_prefix(b".")?)?;
    let (c, rest) = octet(rest.strip_prefix(b".")?)?;
    let (d, rest) = octet(rest.strip_prefix(b".")?)?;
    Some((IpAddr::V4(Ipv4Addr::new(a, b, c, d)), rest))
}

/// The octet at the beginning of `text`, and the rest. None without digits, above 255 or with a
/// leading zero, which some programs read as octal.
#[inline]
fn octet(text: &[u8]) -> Option<(u8, &[u8])> {
    let digit = |byte: u8| u32::from(byte.wrapping_sub(b'0'));
    match *text {
        [a @ b'1'..=b'9', b @ b'0'..=b'9', c @ b'0'..=b'9', ref rest @ ..] => {
            let octet = digit(a).wrapping_mul(100).wrapping_add(digit(b).wrapping_mul(10));
            Some((u8::try_from(octet.wrapping_add(digit(c))).ok()?, rest))
        }
        [a @ b'1'..=b'9', b @ b'0'..=b'9', ref rest @ ..] => {
            let octet = digit(a).wrapping_mul(10).wrapping_add(digit(b));
            Some((u8::try_from(octet).ok()?, rest))
        }
        [a @ b'0'..=b'9', ref rest @ ..] => Some((u8::try_from(digit(a)).ok()?, rest)),
        _ => None,
    }
}

fn ipv6(text: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(text).ok()?;
    let address: Ipv6Addr = text.parse().ok()?;
    Some(IpAddr::V6(address).to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> String {
        match client(text.as_bytes()) {
            None => "none".to_owned(),
            Some(Client::Address(address)) => address.to_string(),
            Some(Client::Name(name)) => format!("name {}", name.escape_ascii()),
        }
    }

    #[test]
    fn addresses_in_every_form_are_one_client() {
        let rows = [
            ("192.0.2.1", "192.0.2.1"),
            ("192.0.2.1:5678", "192.0.2.1"),
            ("::ffff:192.0.2.1", "192.0.2.1"),
            ("[::ffff:192.0.2.1]:80", "192.0.2.1"),
            ("::FFFF:c000:0201", "192.0.2.1"),
            ("2001:DB8:0:0::1", "2001:db8::1"),
            ("[2001:db8::1]", "2001:db8::1"),
            ("[2001:db8::1]:65535", "2001:db8::1"),
            ("255.255.255.255", "255.255.255.255"),
            ("0.0.0.0", "0.0.0.0"),
            ("203.0.113.7, 198.51.100.1", "198.51.100.1"),
            ("spoofed, [2001:db8::1]:4", "2001:db8::1"),
            ("spoofed,203.0.113.7, 198.51.100.1", "198.51.100.1"),
        ];
        for (text, expected) in rows {
            assert_eq!(read(text), expected, "{text}");
        }
    }

    #[test]
    fn what_is_no_address_is_a_name_or_nobody() {
        let rows = [
            ("-", "none"),
            ("", "none"),
            ("unix:", "none"),
            ("unix:/run/x.sock", "none"),
            ("a.b, -", "none"),
            ("pppa006.compuserve.com", "name pppa006.compuserve.com"),
            ("1.2.3", "name 1.2.3"),
            ("1.2.3.4.5", "name 1.2.3.4.5"),
            ("1.2.3.256", "name 1.2.3.256"),
            ("1.2.3.04", "name 1.2.3.04"),
            ("1.2.3.", "name 1.2.3."),
            ("1..2.3", "name 1..2.3"),
            ("1.2.3.4:123456", "name 1.2.3.4:123456"),
            ("1.2.3.4:x", "name 1.2.3.4:x"),
            ("[::1]x", "name [::1]x"),
            ("[::1", "name [::1"),
            ("fe80::1%eth0", "name fe80::1%eth0"),
            ("\u{1b}[31m", "name \\x1b[31m"),
        ];
        for (text, expected) in rows {
            assert_eq!(read(text), expected, "{text}");
        }
    }

    #[test]
    fn every_octet_is_read_as_the_standard_library_reads_it() {
        for a in 0..=300_u32 {
            for text in [format!("{a}.0.0.1"), format!("1.{a:02}.3.4"), format!("1.2.3.{a}")] {
                let expected = text.parse::<Ipv4Addr>().ok().map(IpAddr::V4);
                assert_eq!(ipv4(text.as_bytes()), expected, "{text}");
            }
        }
    }
}
