//! Client addresses: brought into one form and grouped by prefix.
//!
//! Invariant: one client has one form. An IPv4 address mapped into IPv6 is the IPv4 address; bits
//! beyond the prefix are zero. IPv6 is grouped by /64 because that is what one customer gets.

use core::net::IpAddr;

/// How many leading bits of an address are one client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Prefixes {
    /// 0 to 32.
    pub(crate) ipv4: u32,
    /// 0 to 128.
    pub(crate) ipv6: u32,
}

impl Prefixes {
    /// A whole IPv4 address; 64 bits of an IPv6 one.
    pub(crate) const DEFAULT: Self = Self { ipv4: 32, ipv6: 64 };

    /// Calls `write` with the bytes that stand for `address` in a key: 4 or 16 of them.
    pub(crate) fn group(self, address: IpAddr, write: impl FnOnce(&[u8])) {
        match address.to_canonical() {
            IpAddr::V4(v4) => {
                let mask = u32::MAX.checked_shl(32_u32.saturating_sub(self.ipv4)).unwrap_or(0);
                write(&(v4.to_bits() & mask).to_be_bytes());
            }
            IpAddr::V6(v6) => {
                let mask = u128::MAX.checked_shl(128_u32.saturating_sub(self.ipv6)).unwrap_or(0);
                write(&(v6.to_bits() & mask).to_be_bytes());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn check(prefixes: Prefixes, address: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        prefixes.group(address.parse().unwrap(), |b| bytes.extend_from_slice(b));
        bytes
    }

    #[test]
    fn a_client_has_one_form() {
        let default = Prefixes::DEFAULT;
        assert_eq!(check(default, "192.0.2.7"), [192, 0, 2, 7]);
        assert_eq!(check(default, "::ffff:192.0.2.7"), [192, 0, 2, 7]);
        assert_eq!(check(default, "2001:db8::1"), check(default, "2001:db8::ffff:1"));
        assert_ne!(check(default, "2001:db8::1"), check(default, "2001:db8:0:1::1"));
        assert_eq!(check(Prefixes { ipv4: 24, ipv6: 64 }, "192.0.2.7"), [192, 0, 2, 0]);
        assert_eq!(check(Prefixes { ipv4: 0, ipv6: 0 }, "192.0.2.7"), [0; 4]);
        assert_eq!(check(Prefixes { ipv4: 0, ipv6: 0 }, "2001:db8::1"), [0; 16]);
    }
}
