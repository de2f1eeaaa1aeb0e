//! The authority of a request: `api.example.com:8080`, and the host in it in normal form.
//!
//! Invariant: one grammar, stricter than the grammar of valid requests (RFC 9110, 7.2; RFC 3986,
//! 3.2): a host is a name of letters, digits, `-`, `.`, `_` and `~`, or an IPv6 address in
//! brackets, then optionally a colon and a port. Origins read any other host differently (the first
//! of two, the part before the first colon, the decoded escape), so nothing is read from it.

use alloc::vec::Vec;
use core::fmt::{self, Write};
use core::net::Ipv6Addr;

use crate::byte_set::ByteSet;
use crate::malformed::Malformed;
use crate::values::trimmed;

/// Writes the host of `authority` in lower case, without the port and without a final dot, into
/// `out`, which is cleared first; nothing when there is no host.
///
/// # Errors
/// It is not an authority.
pub fn write_host(authority: &[u8], out: &mut Vec<u8>) -> Result<(), Malformed> {
    out.clear();
    let authority = trimmed(authority);
    if authority.is_empty() {
        return Ok(());
    }
    let port = match authority {
        [b'[', rest @ ..] => {
            let end = rest.iter().position(|byte| *byte == b']').ok_or(Malformed::Authority)?;
            let (address, after) = rest.split_at_checked(end).ok_or(Malformed::Authority)?;
            write_address(address, out)?;
            after.get(1..).unwrap_or_default()
        }
        _ => {
            let (name, port) = split_name(authority).ok_or(Malformed::Authority)?;
            out.extend_from_slice(name);
            out.make_ascii_lowercase(); // `out` contains nothing else
            port
        }
    };
    match port {
        [] => Ok(()),
        [b':', digits @ ..] if is_port(digits) => Ok(()),
        _ => Err(Malformed::Authority),
    }
}

/// The bytes that may occur in a label.
static LABEL: ByteSet = ByteSet::alphanumeric_and(b"-_~");

/// The labels at the start of `authority`, with one dot between them, and the rest after them and
/// after one optional dot.
fn split_name(authority: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut len = 0_usize;
    loop {
        let label = LABEL.prefix_len(authority.get(len..)?);
        if label == 0 {
            return None;
        }
        len = len.saturating_add(label);
        let (name, after) = authority.split_at_checked(len)?;
        match after {
            [b'.', after @ ..] if matches!(after, [] | [b':', ..]) => return Some((name, after)),
            [b'.', ..] => len = len.saturating_add(1),
            _ => return Some((name, after)),
        }
    }
}

/// An address in its one spelling (RFC 5952). A zone is local to one machine, and not part of a
/// host.
fn write_address(text: &[u8], out: &mut Vec<u8>) -> Result<(), Malformed> {
    struct Out<'o>(&'o mut Vec<u8>);

    impl Write for Out<'_> {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            self.0.extend_from_slice(text.as_bytes());
            Ok(())
        }
    }

    let text = core::str::from_utf8(text).map_err(|_| Malformed::Authority)?;
    let address: Ipv6Addr = text.parse().map_err(|_| Malformed::Authority)?;
    write!(Out(out), "[{address}]").map_err(|_| Malformed::Authority)
}

/// True for digits of a valid port number; no digits mean the default port.
fn is_port(digits: &[u8]) -> bool {
    let add = |port: u32, digit: &u8| {
        let digit = digit.is_ascii_digit().then(|| u32::from(digit.saturating_sub(b'0')))?;
        port.checked_mul(10)?.checked_add(digit).filter(|port| *port <= u32::from(u16::MAX))
    };
    digits.iter().try_fold(0, add).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_has_one_form_or_none() {
        for (authority, host) in [
            ("api.example.com", Some("api.example.com")),
            ("API.Example.COM", Some("api.example.com")),
            ("api.example.com:80", Some("api.example.com")),
            ("api.example.com:", Some("api.example.com")),
            ("api.example.com:00080", Some("api.example.com")),
            ("api.example.com:65535", Some("api.example.com")),
            ("api.example.com.", Some("api.example.com")),
            ("api.example.com.:443", Some("api.example.com")),
            (" api.example.com\t", Some("api.example.com")),
            ("a_b~c-1.d", Some("a_b~c-1.d")),
            ("127.0.0.1:80", Some("127.0.0.1")),
            ("localhost", Some("localhost")),
            ("[2001:DB8:0::5]:8443", Some("[2001:db8::5]")),
            ("[2001:db8:0:0:0:0:0:5]", Some("[2001:db8::5]")),
            ("[::1]:", Some("[::1]")),
            ("", Some("")),
            (" \t", Some("")),
            ("api.example.com:80:80", None),
            ("api.example.com:65536", None),
            ("api.example.com:99999999999999999999", None),
            ("api.example.com:+80", None),
            ("api.example.com:8 0", None),
            ("api.example.com:x", None),
            ("user@api.example.com", None),
            ("user:password@api.example.com", None),
            ("api.example.com, other.test", None),
            ("api.example.com, api.example.com", None),
            ("api.example.com,", None),
            ("api.example.com/", None),
            ("api.example.com?x", None),
            ("api.example.com#x", None),
            ("api.example.com\\x", None),
            ("http://api.example.com", None),
            ("api.example.com..", None),
            (".example.com", None),
            ("api..example.com", None),
            (".", None),
            (":80", None),
            ("api.example.com ", Some("api.example.com")),
            ("api .example.com", None),
            ("api\t.example.com", None),
            ("%61pi.example.com", None),
            ("api.example.com%2eother.test", None),
            ("m\u{fc}nchen.example", None),
            ("api\u{ff0e}example.com", None),
            ("api.example.com\x00", None),
            ("api.example.com;x", None),
            ("*.example.com", None),
            ("[fe80::1%25eth0]", None),
            ("[fe80::1%eth0]", None),
            ("[v1.fe80]", None),
            ("[::1", None),
            ("[::1]x", None),
            ("[::1]80", None),
            ("[::1]:80:80", None),
            ("[api.example.com]", None),
            ("[]", None),
            ("[[::1]]", None),
            ("2001:db8::5", None),
            ("::1", None),
        ] {
            let mut out = b"before".to_vec();
            let written = write_host(authority.as_bytes(), &mut out).map(|()| out.as_slice());
            let expected = host.map(str::as_bytes).ok_or(Malformed::Authority);
            assert_eq!(written, expected, "{authority:?}");
        }
    }
}
