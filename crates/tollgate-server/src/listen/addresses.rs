//! The number of connections of each address.
//!
//! Invariant: no address has more than its part of the connections, whatever it does on them, so
//! that one client cannot take all connections. In IPv6, where a client has a whole network of
//! addresses, the first 64 bits count as one address. Memory is bounded by the open connections: an
//! address without one is forgotten.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

/// Connections by address.
#[derive(Debug)]
pub(crate) struct Addresses {
    most: usize,
    // The standard map's hash is keyed at random: a client cannot choose addresses that collide.
    open: Mutex<HashMap<IpAddr, usize>>,
}

/// A connection of an address; given back when it is dropped.
#[derive(Debug)]
pub(crate) struct ConnectionSlot {
    addresses: Arc<Addresses>,
    address: IpAddr,
}

impl Addresses {
    /// Allows at most `most` connections per address.
    pub(crate) fn new(most: usize) -> Self {
        Self { most, open: Mutex::default() }
    }

    /// One more connection of `address`; `None` when it has the most that it may have.
    pub(crate) fn take(self: &Arc<Self>, address: IpAddr) -> Option<ConnectionSlot> {
        let address = one(address);
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        match open.entry(address) {
            Entry::Occupied(held) if *held.get() >= self.most => return None,
            Entry::Occupied(mut held) => *held.get_mut() = held.get().saturating_add(1),
            Entry::Vacant(free) => drop(free.insert(1)),
        }
        Some(ConnectionSlot { addresses: Arc::clone(self), address })
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let mut open = self.addresses.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Entry::Occupied(mut held) = open.entry(self.address) {
            match held.get().checked_sub(1) {
                None | Some(0) => drop(held.remove()),
                Some(left) => *held.get_mut() = left,
            }
        }
    }
}

/// The address that represents all addresses of one holder.
fn one(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(v4) => IpAddr::V4(v4),
        IpAddr::V6(v6) => IpAddr::V6((v6.to_bits() & !u128::from(u64::MAX)).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_address_has_its_part_and_gets_it_back() {
        let addresses = Arc::new(Addresses::new(2));
        let take = |text: &str| addresses.take(text.parse().expect(text));
        let first = take("192.0.2.1").expect("one");
        let second = take("::ffff:192.0.2.1").expect("the same address, over IPv6");
        assert!(take("192.0.2.1").is_none());
        let other = take("192.0.2.2").expect("another");
        let network = [take("2001:db8::1").expect("one"), take("2001:db8::ffff:1").expect("two")];
        assert!(take("2001:db8:0:0:ffff::").is_none(), "all of a /64 are one");
        assert!(take("2001:db8:0:1::").is_some());
        drop(first);
        let third = take("192.0.2.1").expect("it was given back");
        assert!(take("192.0.2.1").is_none());
        drop((second, third, other, network));
        assert!(addresses.open.lock().expect("no panic").is_empty(), "nobody is remembered");
    }
}
