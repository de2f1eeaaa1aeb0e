//! Clients that a log identifies by host name: each gets its own address.
//!
//! A policy counts by addresses, but old logs contain names. So each name gets an address that
//! represents it, out of e000::/4, which the Internet does not use (RFC 4291, 2.4, and IANA's
//! registry: reserved). Names are numbered in the order of arrival. The bits of the number are
//! written in reverse, after these four bits and one more. So, however few leading bits of an
//! address make one client to the policy (`ipv6_prefix`, p of them), the first 2^(p - 5) names are
//! separate clients. At the usual /64 that is more than there can be numbers.
//!
//! Invariant: no two names have the same address, and no name has that of a client with a true
//! address, because an address of e000::/4 in a log is itself treated as a name. Names are kept as
//! keyed hashes of 128 bits, 24 bytes each.

use std::hash::Hasher as _;
use std::net::{IpAddr, Ipv6Addr};

use hashbrown::HashTable;
use siphasher::sip128::{Hasher128 as _, SipHasher13};
use tollgate_access_log::Client;

/// The first four bits of the addresses that represent names.
const RESERVED: u128 = 0xe << 124;
const FIRST_FOUR: u128 = 0xf << 124;
/// The next bit: set when the address is made from a hash, because numbers are used up.
const HASHED: u128 = 1 << 123;

/// Names and their numbers.
#[derive(Debug)]
pub(crate) struct Names {
    secret: [u8; 16],
    numbers: HashTable<Numbered>,
    most: usize,
}

#[derive(Clone, Copy, Debug)]
struct Numbered {
    high: u64,
    low: u64,
    number: u32,
}

impl Names {
    /// Up to `most` names are numbered. Those beyond have an address made from their hash; among
    /// ten million of these two are equal with a probability of one in 10,000.
    pub(crate) fn new(secret: [u8; 16], most: usize) -> Self {
        Self { secret, numbers: HashTable::new(), most }
    }

    /// The address of a client: its own, or the one that represents its name.
    pub(crate) fn address(&mut self, client: Client<'_>) -> IpAddr {
        match client {
            Client::Address(IpAddr::V6(v6)) if v6.to_bits() & FIRST_FOUR == RESERVED => {
                self.stand_in(&v6.octets())
            }
            Client::Address(address) => address,
            Client::Name(name) => self.stand_in(name),
        }
    }

    /// True when any client was a name.
    pub(crate) fn is_any(&self) -> bool {
        !self.numbers.is_empty()
    }

    /// True when an address represents a name.
    pub(crate) fn is_stand_in(address: IpAddr) -> bool {
        matches!(address, IpAddr::V6(v6) if v6.to_bits() & FIRST_FOUR == RESERVED)
    }

    fn stand_in(&mut self, name: &[u8]) -> IpAddr {
        let mut hasher = SipHasher13::new_with_key(&self.secret);
        hasher.write(name);
        let hash = hasher.finish128();
        let (high, low) = (hash.h1, hash.h2);
        let is_it = |numbered: &Numbered| (numbered.high, numbered.low) == (high, low);
        let number = match self.numbers.find(low, is_it) {
            Some(numbered) => numbered.number,
            None => match u32::try_from(self.numbers.len()) {
                Ok(number) if self.numbers.len() < self.most => {
                    let numbered = Numbered { high, low, number };
                    self.numbers.insert_unique(low, numbered, |numbered| numbered.low);
                    number
                }
                _ => return hashed(high),
            },
        };
        let bits = u128::from(number.reverse_bits()) << 91;
        Ipv6Addr::from_bits(RESERVED | bits).into()
    }
}

/// 59 bits of the hash, also in reverse, so that both the first bits and the last differ.
fn hashed(hash: u64) -> IpAddr {
    let bits = u128::from(hash >> 5) << 64;
    Ipv6Addr::from_bits(RESERVED | HASHED | bits).into()
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn address(names: &mut Names, name: &str) -> u128 {
        match names.address(Client::Name(name.as_bytes())) {
            IpAddr::V6(v6) => v6.to_bits(),
            IpAddr::V4(v4) => panic!("{v4}"),
        }
    }

    #[test]
    fn each_name_is_a_client_of_its_own_whatever_the_prefix() {
        for prefix in [12, 20, 36, 48, 56, 64, 128_u32] {
            let mut names = Names::new([1; 16], usize::MAX);
            let many = 1_usize << (prefix - 5).min(14);
            let mask = u128::MAX << (128 - prefix);
            let networks: BTreeSet<u128> =
                (0..many).map(|i| address(&mut names, &format!("host-{i}")) & mask).collect();
            assert_eq!(networks.len(), many, "/{prefix}");
            assert_eq!(address(&mut names, "host-7"), address(&mut names, "host-7"));
        }
    }

    #[test]
    fn a_true_address_is_never_taken_for_a_name() {
        let mut names = Names::new([1; 16], usize::MAX);
        let stand_in = names.address(Client::Name(b"pppa006.compuserve.com"));
        assert!(Names::is_stand_in(stand_in));
        let imitated = names.address(Client::Address(stand_in));
        assert_ne!(imitated, stand_in, "this address belongs to another client");
        for own in ["192.0.2.1", "2001:db8::1", "fe80::1", "::ffff:192.0.2.1", "d000::", "f000::"] {
            let own: IpAddr = own.parse().unwrap();
            assert_eq!(names.address(Client::Address(own)), own);
            assert!(!Names::is_stand_in(own));
        }
    }

    #[test]
    fn beyond_the_bound_hashes_stand_for_names() {
        let mut names = Names::new([1; 16], 10);
        let all: BTreeSet<u128> =
            (0..5000).map(|i| address(&mut names, &i.to_string()) >> 64).collect();
        assert_eq!((all.len(), names.numbers.len()), (5000, 10));
        assert_eq!(address(&mut names, "4999"), address(&mut names, "4999"));
        assert!(all.iter().filter(|bits| *bits & (1 << 59) != 0).count() == 4990);
        assert_eq!(size_of::<Numbered>(), 24);
    }
}
