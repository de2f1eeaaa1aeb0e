//! Addresses and networks: normalised, grouped by prefix, compared.
//!
//! Invariant: one client has one form. An IPv4 address mapped into IPv6 is the IPv4 address; bits
//! beyond the prefix are zero. IPv6 is grouped by /64 because one customer gets a /64.

use crate::alternatives::{Alternative, Alternatives};
use crate::sort::sort_by;
use alloc::vec::Vec;
use core::cmp::Ordering;
use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The number of leading bits of an address that are one client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefixes {
    /// 0 to 32.
    pub ipv4: u32,
    /// 0 to 128.
    pub ipv6: u32,
}

impl Prefixes {
    /// Calls `write` with the bytes for `address` in a key: 4 or 16 of them.
    pub fn group(self, address: IpAddr, write: impl FnOnce(&[u8])) {
        match address.to_canonical() {
            IpAddr::V4(v4) => write(&mask_v4(v4, self.ipv4).to_be_bytes()),
            IpAddr::V6(v6) => write(&mask_v6(v6, self.ipv6).to_be_bytes()),
        }
    }

    /// The first of the addresses that are one client with `address`.
    pub fn network(self, address: IpAddr) -> IpAddr {
        match address.to_canonical() {
            IpAddr::V4(v4) => Ipv4Addr::from_bits(mask_v4(v4, self.ipv4)).into(),
            IpAddr::V6(v6) => Ipv6Addr::from_bits(mask_v6(v6, self.ipv6)).into(),
        }
    }
}

const fn mask_v4(address: Ipv4Addr, prefix: u32) -> u32 {
    match u32::MAX.checked_shl(32_u32.saturating_sub(prefix)) {
        Some(mask) => address.to_bits() & mask,
        None => 0,
    }
}

const fn mask_v6(address: Ipv6Addr, prefix: u32) -> u128 {
    match u128::MAX.checked_shl(128_u32.saturating_sub(prefix)) {
        Some(mask) => address.to_bits() & mask,
        None => 0,
    }
}

/// A network: an address and the number of its leading bits that count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cidr {
    address: IpAddr,
    prefix: u32,
}

impl Cidr {
    /// Reads `10.0.0.0/8`, `2001:db8::/32` or a single address; the error gives the reason.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        const WANTED: &str = "use an address, \"/\" and the number of its leading bits";
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| WANTED)?;
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let prefix = match prefix {
            // Rust's parser accepts a plus sign.
            Some(prefix) if !prefix.starts_with('+') => {
                prefix.parse().ok().filter(|p| *p <= bits).ok_or(WANTED)?
            }
            Some(_) => return Err(WANTED),
            None => bits,
        };
        let cidr = Self { address, prefix };
        if cidr.masked(address) != cidr.masked_exactly() {
            return Err("it has bits set beyond its prefix");
        }
        // IPv4 mapped into IPv6 has at least the 96 bits of the mapping prefix, or else bits beyond
        // its own prefix.
        match address.to_canonical() {
            canonical if canonical != address => {
                Ok(Self { address: canonical, prefix: prefix.saturating_sub(96) })
            }
            _ => Ok(cidr),
        }
    }

    /// The network of all addresses of IPv4.
    pub const ALL_OF_IPV4: Self = Self { address: IpAddr::V4(Ipv4Addr::UNSPECIFIED), prefix: 0 };

    /// The network, if that is its one spelling: no bits beyond the prefix, and IPv4 not mapped.
    pub fn from_parts(address: IpAddr, prefix: u32) -> Option<Self> {
        let cidr = Self { address, prefix };
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let is_one = prefix <= bits
            && address.to_canonical() == address
            && cidr.masked(address) == cidr.masked_exactly();
        is_one.then_some(cidr)
    }

    /// Its first address, and the number of leading bits that count.
    pub const fn parts(&self) -> (IpAddr, u32) {
        (self.address, self.prefix)
    }

    /// True when `address` is in this network; a mapped IPv4 address counts as IPv4.
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.address.is_ipv4() == address.is_ipv4()
            && self.masked(address) == self.masked(self.address)
    }

    /// True when every address of `other` is in this network.
    pub fn covers(&self, other: &Self) -> bool {
        self.prefix <= other.prefix && self.contains(other.address)
    }

    fn masked(&self, address: IpAddr) -> u128 {
        match address {
            IpAddr::V4(v4) => mask_v4(v4, self.prefix).into(),
            IpAddr::V6(v6) => mask_v6(v6, self.prefix),
        }
    }

    fn masked_exactly(&self) -> u128 {
        bits(self.address)
    }

    /// The position of its first address among all addresses, those of IPv4 first.
    fn begins_at(&self) -> (bool, u128) {
        (self.address.is_ipv6(), self.masked_exactly())
    }
}

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => v4.to_bits().into(),
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

impl Alternative for Cidr {
    fn is_ordered(&self) -> bool {
        true
    }

    fn order(&self, other: &Self) -> Ordering {
        self.begins_at().cmp(&other.begins_at()).then(self.prefix.cmp(&other.prefix))
    }

    fn covers(&self, other: &Self) -> bool {
        self.covers(other)
    }
}

impl Alternatives<Cidr> {
    /// True when `address` is in one of these networks; a mapped IPv4 address counts as IPv4.
    pub fn contain(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        let place = (address.is_ipv6(), bits(address));
        self.candidates(|it| it.begins_at() <= place).any(|it| it.contains(address))
    }
}

/// The percentage of all IPv4 addresses in these networks together, rounded down.
pub fn percent_of_ipv4(networks: &[Cidr]) -> u8 {
    let ranges = networks.iter().filter_map(|cidr| match cidr.address {
        IpAddr::V4(first) => {
            let first = first.to_bits();
            Some((
                u128::from(first),
                u128::from(first | !mask_v4(Ipv4Addr::BROADCAST, cidr.prefix)),
            ))
        }
        IpAddr::V6(_) => None,
    });
    percent_of(ranges.collect(), (0, u32::MAX.into()))
}

/// The same for the IPv6 addresses that the Internet uses, 2000::/3 (RFC 4291, 2.4).
pub fn percent_of_ipv6(networks: &[Cidr]) -> u8 {
    const FIRST: u128 = 0x2000 << 112;
    let ranges = networks.iter().filter_map(|cidr| match cidr.address {
        IpAddr::V6(first) => {
            let first = first.to_bits();
            Some((first, first | !mask_v6(Ipv6Addr::from_bits(u128::MAX), cidr.prefix)))
        }
        IpAddr::V4(_) => None,
    });
    percent_of(ranges.collect(), (FIRST, FIRST | u128::MAX >> 3))
}

/// The percentage of the range `all` in these ranges together; the first and the last address of
/// each are included.
fn percent_of(mut ranges: Vec<(u128, u128)>, all: (u128, u128)) -> u8 {
    sort_by(&mut ranges, Ord::cmp);
    let (mut held, mut next) = (0_u128, all.0);
    for (first, last) in ranges {
        let (first, last) = (first.max(next), last.min(all.1));
        if first <= last {
            held = held.saturating_add(last.saturating_sub(first)).saturating_add(1);
            next = last.saturating_add(1);
        }
    }
    // In hundredths of the range, which is much larger than a hundred.
    let hundredth = all.1.saturating_sub(all.0).checked_div(100).unwrap_or(0);
    held.checked_div(hundredth).and_then(|share| u8::try_from(share).ok()).unwrap_or(0).min(100)
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(ipv4: u32, ipv6: u32, address: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        Prefixes { ipv4, ipv6 }.group(address.parse().unwrap(), |b| bytes.extend_from_slice(b));
        bytes
    }

    #[test]
    fn a_client_has_one_form() {
        assert_eq!(check(32, 64, "192.0.2.7"), [192, 0, 2, 7]);
        assert_eq!(check(32, 64, "::ffff:192.0.2.7"), [192, 0, 2, 7]);
        assert_eq!(check(32, 64, "2001:db8::1"), check(32, 64, "2001:db8::ffff:1"));
        assert_ne!(check(32, 64, "2001:db8::1"), check(32, 64, "2001:db8:0:1::1"));
        assert_eq!(check(24, 64, "192.0.2.7"), [192, 0, 2, 0]);
        assert_eq!(check(0, 0, "192.0.2.7"), [0; 4]);
        assert_eq!(check(0, 0, "2001:db8::1"), [0; 16]);
    }

    #[test]
    fn a_network_contains_its_addresses_only() {
        for (network, address, inside) in [
            ("10.0.0.0/8", "10.255.0.1", true),
            ("10.0.0.0/8", "11.0.0.1", false),
            ("10.0.0.0/8", "::ffff:10.1.1.1", true),
            ("::ffff:10.0.0.0/104", "10.255.0.1", true),
            ("::ffff:10.0.0.0/104", "11.0.0.1", false),
            ("::ffff:0:0/96", "203.0.113.1", true),
            ("::ffff:192.0.2.1", "192.0.2.1", true),
            ("192.0.2.1", "192.0.2.1", true),
            ("192.0.2.1", "192.0.2.2", false),
            ("0.0.0.0/0", "203.0.113.1", true),
            ("0.0.0.0/0", "2001:db8::1", false),
            ("2001:db8::/32", "2001:db8:ffff::1", true),
            ("2001:db8::/32", "2001:db9::1", false),
            ("::/0", "192.0.2.1", false),
        ] {
            let cidr = Cidr::parse(network).unwrap();
            assert_eq!(cidr.contains(address.parse().unwrap()), inside, "{address} in {network}");
        }
    }

    #[test]
    fn networks_hold_a_share_of_all_addresses_together() {
        for (networks, ipv4, ipv6) in [
            (&["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"][..], 0, 0),
            (&["0.0.0.0/0"], 100, 0),
            (&["::ffff:0:0/96"], 100, 0),
            (&["0.0.0.0/1", "128.0.0.0/1"], 100, 0),
            (&["128.0.0.0/1", "0.0.0.0/2", "0.0.0.0/1", "200.1.2.3"], 100, 0),
            (&["0.0.0.0/1"], 50, 0),
            (&["0.0.0.0/1", "128.0.0.0/2", "192.0.0.0/3"], 87, 0),
            (&["32.0.0.0/3"], 12, 0),
            (&["32.0.0.0/4", "48.0.0.0/5"], 9, 0),
            (&["::/0"], 0, 100),
            (&["2000::/3", "2001:db8::/32"], 0, 100),
            (&["2000::/4", "3000::/4"], 0, 100),
            (&["::/3", "4000::/2", "8000::/1"], 0, 0),
            (&["fc00::/7", "2001:db8::/32"], 0, 0),
            (&["0.0.0.0/0", "::/0"], 100, 100),
            (&["255.255.255.255", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"], 0, 0),
        ] {
            let cidrs: Vec<_> = networks.iter().map(|text| Cidr::parse(text).unwrap()).collect();
            let shares = (percent_of_ipv4(&cidrs), percent_of_ipv6(&cidrs));
            assert_eq!(shares, (ipv4, ipv6), "{networks:?}");
        }
    }

    #[test]
    fn what_is_no_network_is_refused() {
        for text in
            ["", "10.0.0.0/33", "10.0.0.0/", "10.0.0/8", "::/129", "10.0.0.0/-1", "10.0.0.0/+8"]
        {
            assert!(Cidr::parse(text).is_err(), "{text}");
        }
        assert_eq!(Cidr::parse("10.0.0.1/8"), Err("it has bits set beyond its prefix"));
    }
}
