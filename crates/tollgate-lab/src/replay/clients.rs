//! The number of clients, and of those to which an event happened.
//!
//! Invariant: a client is counted once, by a keyed hash of 64 bits. Up to the bound each is counted
//! separately. Beyond it the half whose hashes end in a 1 is removed, then half of the rest. So the
//! table keeps a sample that depends only on the hashes (Gibbons, "Distinct sampling", VLDB 2001),
//! and each number is multiplied. With n clients kept the standard error of a share p of them is
//! the root of p (1 - p) / n.
//!
//! Among 10,000,000 clients, two have the same hash with a probability of 3 in a million.
//! Deliberately absent: the identity of the clients.

use hashbrown::HashTable;

/// The events that happened to a client at least once, one bit each.
pub(crate) type Marks = u16;

/// A table of clients; 16 bytes each and their place in it.
#[derive(Debug)]
pub(crate) struct ClientTable {
    table: HashTable<Client>,
    most: usize,
    /// Only clients whose hash ends in this many zeros are kept.
    level: u32,
}

#[derive(Clone, Copy, Debug)]
struct Client {
    hash: u64,
    marks: Marks,
}

impl ClientTable {
    pub(crate) fn new(most: usize) -> Self {
        Self { table: HashTable::new(), most: most.max(1), level: 0 }
    }

    /// Records the client of this hash, which must be spread over all bits, and these events.
    pub(crate) fn mark(&mut self, hash: u64, marks: Marks) {
        if hash.trailing_zeros() < self.level {
            return;
        }
        if let Some(client) = self.table.find_mut(place(hash), |client| client.hash == hash) {
            client.marks |= marks;
            return;
        }
        self.table.insert_unique(place(hash), Client { hash, marks }, |client| place(client.hash));
        while self.table.len() > self.most && self.level < u64::BITS {
            self.level = self.level.saturating_add(1);
            let level = self.level;
            self.table.retain(|client| client.hash.trailing_zeros() >= level);
        }
    }

    /// The clients for which `is_meant` is true; an estimate when [`ClientTable::one_of`] is above
    /// 1.
    pub(crate) fn count(&self, is_meant: impl Fn(Marks) -> bool) -> u64 {
        let kept = self.table.iter().filter(|client| is_meant(client.marks)).count();
        u64::try_from(kept).unwrap_or(u64::MAX).saturating_mul(self.one_of())
    }

    /// One of this many clients is kept.
    pub(crate) fn one_of(&self) -> u64 {
        1_u64.checked_shl(self.level).unwrap_or(u64::MAX)
    }
}

/// The bits by which a client is found: the low bits are the same for all that are kept.
const fn place(hash: u64) -> u64 {
    hash.rotate_right(32)
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects)]
mod tests {
    use super::*;

    /// Spreads a number over all bits (the finalizer of splitmix64).
    fn spread(i: u64) -> u64 {
        let mut x = i.wrapping_add(0x9e37_79b9_7f4a_7c15);
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    #[test]
    fn up_to_the_bound_it_is_exact() {
        let mut clients = ClientTable::new(1000);
        for i in 0..1000 {
            clients.mark(spread(i), 0);
            clients.mark(spread(i), if i % 10 == 0 { 2 } else { 0 });
            clients.mark(spread(i), 0);
        }
        assert_eq!(clients.one_of(), 1);
        assert_eq!(clients.count(|_| true), 1000);
        assert_eq!(clients.count(|marks| marks & 2 != 0), 100);
        clients.mark(spread(0), 1);
        assert_eq!((clients.one_of(), clients.count(|m| m & 3 == 3)), (1, 1));
    }

    #[test]
    fn beyond_it_is_a_sample_that_fits() {
        let mut clients = ClientTable::new(4096);
        for i in 0..1_000_000 {
            clients.mark(spread(i), u16::from(i % 4 == 0));
            assert!(clients.table.len() <= 4096);
        }
        assert_eq!(clients.one_of(), 256);
        // Five standard errors: with about 3,900 kept, the count's is 1.6 % and the quarter's 0.7.
        let (all, quarter) = (clients.count(|_| true), clients.count(|marks| marks == 1));
        assert!(all.abs_diff(1_000_000) < 80_000, "{all}");
        assert!((quarter * 1000 / all).abs_diff(250) < 35, "{quarter} of {all}");
    }

    /// A client that comes after the table was thinned out is treated the same.
    #[test]
    fn the_order_does_not_matter() {
        let run = |order: &mut dyn Iterator<Item = u64>| {
            let mut clients = ClientTable::new(100);
            order.for_each(|i| clients.mark(spread(i), u16::from(i % 3 == 0)));
            (clients.one_of(), clients.count(|_| true), clients.count(|marks| marks == 1))
        };
        assert_eq!(run(&mut (0..5000)), run(&mut (0..5000).rev()));
    }
}
