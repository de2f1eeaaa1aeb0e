//! The order of the waiters in a line.
//!
//! Invariant: every waiter of a line is here once. A waiter inserted before another one goes before
//! it, and after all that were before that one. Positions have gaps, so that others fit in between;
//! when a gap is used up, all positions are assigned again.

use alloc::vec::Vec;

use crate::slab_map::SlabMap;

/// The gap between two waiters that came one after the other.
const GAP: u64 = 1 << 32;
/// The distance to the previous waiter when one is inserted between two: many are inserted at one
/// place.
const STEP: u64 = 1 << 16;

/// Tickets in the order in which they go.
#[derive(Debug, Default)]
pub(super) struct Order {
    by_position: SlabMap<u64, u64>,
    positions: SlabMap<u64, u64>,
}

impl Order {
    pub(super) fn len(&self) -> usize {
        self.by_position.len()
    }

    pub(super) fn first(&self) -> Option<u64> {
        self.by_position.first().map(|(_, ticket)| *ticket)
    }

    /// The tickets that go before `ticket`.
    pub(super) fn before(&self, ticket: u64) -> impl Iterator<Item = u64> {
        let position = self.positions.get(&ticket).copied().unwrap_or_default();
        self.by_position.before(&position).map(|(_, ticket)| *ticket)
    }

    /// All of them, from the last to the first.
    pub(super) fn last_first(&self) -> impl Iterator<Item = u64> {
        self.by_position.values().rev().copied()
    }

    /// Adds a ticket: directly before `other`, or as the last one.
    pub(super) fn insert(&mut self, ticket: u64, other: Option<u64>) {
        let position = self.free_position(other).unwrap_or_else(|| {
            self.set_apart();
            self.free_position(other).unwrap_or(u64::MAX) // there is room now
        });
        self.put(ticket, position);
    }

    pub(super) fn remove(&mut self, ticket: u64) {
        if let Some(position) = self.positions.remove(&ticket) {
            self.by_position.remove(&position);
        }
    }

    fn put(&mut self, ticket: u64, position: u64) {
        self.by_position.insert(position, ticket);
        self.positions.insert(ticket, position);
    }

    fn free_position(&self, other: Option<u64>) -> Option<u64> {
        let Some(at) = other.and_then(|other| self.positions.get(&other)).copied() else {
            let last = self.by_position.last().map_or(0, |(position, _)| *position);
            return last.checked_add(GAP);
        };
        let previous = self.by_position.before(&at).next_back();
        let previous = previous.map_or(0, |(position, _)| *position);
        let step = (at.saturating_sub(previous) / 2).min(STEP);
        (step > 0).then(|| previous.saturating_add(step))
    }

    fn set_apart(&mut self) {
        let tickets: Vec<u64> = self.by_position.values().copied().collect();
        self.by_position = SlabMap::new();
        let mut position = 0_u64;
        for ticket in tickets {
            position = position.saturating_add(GAP);
            self.put(ticket, position);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Guards: a long line with repeated insertions at the same place, until positions meet.
    #[test]
    fn there_is_always_room_between_two() {
        let mut order = Order::default();
        order.insert(0, None);
        order.insert(1, None);
        let mut expected: Vec<u64> = Vec::from([0, 1]);
        for ticket in 2..600 {
            // Each before the previous one: the gap is halved each time.
            order.insert(ticket, Some(ticket - 1));
            let at = expected.iter().position(|other| *other == ticket - 1).unwrap_or_default();
            expected.insert(at, ticket);
        }
        let found: Vec<u64> = order.last_first().collect();
        expected.reverse();
        assert_eq!(found, expected);
        order.remove(599);
        assert_eq!(order.before(598).collect::<Vec<_>>(), [0]);
        assert_eq!((order.first(), order.len()), (Some(0), 599));
    }
}
