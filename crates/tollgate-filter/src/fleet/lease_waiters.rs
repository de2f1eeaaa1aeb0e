//! Requests that wait for the authority of a fleet: in the line of a key for which another request
//! has a lease request in flight, for room to send a lease request, or for the response to one.
//!
//! Invariant: the limits bound the requests per key, the requests in all and their bytes; of a key
//! the first that came goes first. Any event of one request takes logarithmic time in the number of
//! waiting requests, and a client that leaves delays no other client. Deliberately absent: the
//! requests themselves, and any call.

use std::collections::VecDeque;

use tollgate_core::Timestamp;
use tollgate_policy::Paid;
use tollgate_policy::SlabMap;
use tollgate_policy::waiting::Limits;

use crate::fleet::holdings::HoldingsKey;

/// Where a request waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitStage {
    /// For the lease request that another request sent about this key.
    KeyQueue(HoldingsKey),
    /// For room to send a lease request.
    SendSlot,
    /// For the response to this call.
    Response(u32),
}

/// The state of a held request that needs leases. Its paid leases are in the plan of the same
/// request, and go back if it does not continue.
pub struct LeaseWait {
    /// The leases that are paid already, with the partition, while the rest is requested.
    pub paid: Vec<(usize, Paid)>,
    /// Where the request waits, and how many bytes are held meanwhile; `None` before it waits.
    pub stage: Option<(WaitStage, usize)>,
    /// The time until which the request waits.
    pub deadline: Timestamp,
}

/// All waiting requests of one root, by the numbers of their streams.
#[derive(Default)]
pub struct LeaseWaiters {
    limits: Limits,
    lines: SlabMap<HoldingsKey, KeyWaiters>,
    /// Lines whose first request may get units now, each with the number of its entry; and entries
    /// that ended, which no line has the number of.
    ready: ReadyLines,
    unsent: Queue,
    /// The number of each stream in its one queue.
    numbers: SlabMap<u64, u64>,
    len: usize,
    bytes: usize,
}

/// The requests that wait for another request's lease request about a key.
#[derive(Default)]
struct KeyWaiters {
    queue: Queue,
    /// The number of its entry among those that are ready, if its first request may get units now.
    entry: Option<u64>,
}

/// Keys of lines in the order of their turns, each with a number of its own.
#[derive(Default)]
struct ReadyLines {
    entries: VecDeque<(u64, HoldingsKey)>,
    next: u64,
}

impl ReadyLines {
    /// Adds a line at the end, and returns the number of its entry.
    fn add(&mut self, key: HoldingsKey) -> u64 {
        let number = self.next;
        self.next = number.wrapping_add(1);
        self.entries.push_back((number, key));
        number
    }
}

/// Streams by numbers in the order of their turns. It has the same type as the numbers of the
/// streams, so that the module has the code of one map.
#[derive(Default)]
struct Queue(SlabMap<u64, u64>);

/// Between those that join at the end and those that come back to the front.
const MIDDLE: u64 = 1 << 63;

impl Queue {
    /// The number of the next that joins at the end.
    fn after(&self) -> u64 {
        self.0.last().map_or(MIDDLE, |(last, _)| last.saturating_add(1))
    }

    /// The number of one that comes back to the front.
    fn before(&self) -> u64 {
        self.0.first().map_or(MIDDLE, |(first, _)| first.saturating_sub(1))
    }
}

impl LeaseWaiters {
    /// Sets the limits.
    pub const fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// How many wait.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// True when a request waits for others than the authority.
    pub fn is_polling(&self) -> bool {
        !self.lines.is_empty() || !self.unsent.0.is_empty()
    }

    /// True when a request may have its turn now.
    pub fn has_ready(&self) -> bool {
        !self.ready.entries.is_empty()
    }

    /// A request of this many bytes begins to wait; false when too many do.
    pub fn begin(&mut self, stage: WaitStage, stream: u32, bytes: usize) -> bool {
        let ahead = match stage {
            WaitStage::KeyQueue(key) => self.lines.get(&key).map_or(0, |line| line.queue.0.len()),
            WaitStage::SendSlot | WaitStage::Response(_) => 0,
        };
        let sum = self.bytes.saturating_add(bytes);
        let Limits { per_key, total, bytes } = self.limits;
        if self.len >= total || ahead >= per_key || sum > bytes {
            return false;
        }
        (self.len, self.bytes) = (self.len.saturating_add(1), sum);
        self.put(stage, stream, Queue::after);
        true
    }

    /// A request that was given its turn continues to wait, as the first.
    pub fn rejoin(&mut self, stage: WaitStage, stream: u32) {
        self.put(stage, stream, Queue::before);
        if let WaitStage::KeyQueue(key) = stage {
            self.mark_blocked(key);
        }
    }

    /// A request waits no longer.
    pub fn end(&mut self, stage: WaitStage, stream: u32, bytes: usize) {
        self.len = self.len.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
        let Some(number) = self.numbers.remove(&stream.into()) else { return };
        match stage {
            WaitStage::KeyQueue(key) => {
                if let Some(line) = self.lines.get_mut(&key) {
                    line.queue.0.remove(&number);
                    if line.queue.0.is_empty() {
                        self.lines.remove(&key);
                    }
                }
            }
            WaitStage::SendSlot => {
                self.unsent.0.remove(&number);
            }
            WaitStage::Response(_) => {}
        }
    }

    /// The first of a line may get units now.
    pub fn mark_ready(&mut self, key: HoldingsKey) {
        if let Some(line) = self.lines.get_mut(&key) {
            line.entry.get_or_insert_with(|| self.ready.add(key));
            self.drop_ended();
        }
    }

    /// The first of every line may. Lines that were to have their turn already stay ahead:
    /// otherwise only the first lines would have it, and requests in the last ones would wait
    /// forever.
    pub fn mark_all_ready(&mut self) {
        let ready = &mut self.ready;
        self.lines.for_each_mut(|key, line| {
            line.entry.get_or_insert_with(|| ready.add(*key));
        });
        self.drop_ended();
    }

    /// The next request that may have its turn, removed from its line.
    pub fn pop_next(&mut self, may_send: bool) -> Option<u32> {
        while let Some((entry, key)) = self.ready.entries.front() {
            let line = self.lines.get_mut(key).filter(|line| line.entry == Some(*entry));
            let first = line.and_then(|line| {
                let (_, stream) = line.queue.0.pop_first()?;
                Some((stream, line.queue.0.is_empty()))
            });
            if let Some((stream, is_last)) = first {
                if is_last {
                    self.lines.remove(key);
                    self.ready.entries.pop_front();
                }
                return self.leave(stream);
            }
            self.ready.entries.pop_front();
        }
        let (_, stream) = if may_send { self.unsent.0.pop_first() } else { None }?;
        self.leave(stream)
    }

    fn put(&mut self, stage: WaitStage, stream: u32, number: fn(&Queue) -> u64) {
        let queue = match stage {
            WaitStage::KeyQueue(key) => {
                self.lines.insert_new(key, KeyWaiters::default());
                self.lines.get_mut(&key).map(|line| &mut line.queue)
            }
            WaitStage::SendSlot => Some(&mut self.unsent),
            WaitStage::Response(_) => None,
        };
        let Some(queue) = queue else { return };
        let number = number(queue);
        queue.0.insert(number, stream.into());
        self.numbers.insert(stream.into(), number);
    }

    /// The first of this line gets nothing now. It is mostly the one that had its turn last.
    fn mark_blocked(&mut self, key: HoldingsKey) {
        if let Some(line) = self.lines.get_mut(&key) {
            let entry = line.entry.take();
            if entry.is_some() && self.ready.entries.front().map(|(first, _)| *first) == entry {
                self.ready.entries.pop_front();
            }
        }
    }

    /// Drops the entries that ended when they are more than half, so that clients that come and
    /// leave do not add up.
    fn drop_ended(&mut self) {
        if self.ready.entries.len() / 2 > self.lines.len() {
            let lines = &self.lines;
            self.ready.entries.retain(|(entry, key)| {
                lines.get(key).is_some_and(|line| line.entry == Some(*entry))
            });
        }
    }

    /// A stream is in no queue any more.
    fn leave(&mut self, stream: u64) -> Option<u32> {
        self.numbers.remove(&stream);
        u32::try_from(stream).ok()
    }
}

#[cfg(test)]
mod tests {
    use core::num::NonZeroU64;

    use tollgate_test_support::Random;

    use super::*;

    // Guards: requests that are held forever, past every deadline, because at each tick the same
    // first lines are checked.
    #[test]
    fn every_line_has_its_turn_however_few_have_it_at_a_tick() {
        let lines = 100_u32;
        let key = |i: u32| HoldingsKey {
            policy: 1,
            group: 0,
            fingerprint: NonZeroU64::MIN.saturating_add(i.into()),
        };
        let mut waiters = LeaseWaiters::default();
        waiters.set_limits(Limits { per_key: 10, total: 1_000, bytes: 1 << 20 });
        for i in 0..lines {
            assert!(waiters.begin(WaitStage::KeyQueue(key(i)), i, 1));
        }
        let mut turns = vec![0; 100];
        for _ in 0..20 {
            waiters.mark_all_ready();
            for _ in 0..10 {
                let stream = waiters.pop_next(true).unwrap();
                turns[usize::try_from(stream).unwrap()] += 1;
                waiters.rejoin(WaitStage::KeyQueue(key(stream)), stream);
            }
        }
        assert_eq!(turns, [2; 100]);
    }

    fn key(i: u64) -> HoldingsKey {
        HoldingsKey { policy: 1, group: 0, fingerprint: NonZeroU64::MIN.saturating_add(i) }
    }

    // Guards: many clients that leave and delay every other client of the worker meanwhile. With a
    // search through the line for each this takes 5,000,000,000 steps.
    #[test]
    fn many_clients_leave_one_by_one_in_any_order() {
        const CLIENTS: u32 = 100_000;
        let clients = usize::try_from(CLIENTS).unwrap();
        for stage in [WaitStage::KeyQueue(key(0)), WaitStage::SendSlot] {
            let mut waiters = LeaseWaiters::default();
            waiters.set_limits(Limits { per_key: clients, total: clients, bytes: clients });
            for stream in 0..CLIENTS {
                assert!(waiters.begin(stage, stream, 1));
            }
            // A factor without a common divisor: every stream once.
            for i in 0..CLIENTS {
                let stream = u32::try_from(u64::from(i) * 99_991 % u64::from(CLIENTS)).unwrap();
                if stream != 7 {
                    waiters.end(stage, stream, 1);
                }
            }
            waiters.mark_ready(key(0));
            assert_eq!((waiters.len(), waiters.pop_next(true)), (1, Some(7)));
            waiters.end(stage, 7, 1);
            assert_eq!(
                (waiters.len(), waiters.pop_next(true), waiters.has_ready()),
                (0, None, false)
            );
        }
    }

    // Compared with lists that are searched: the same turns, whatever happens.
    #[test]
    fn the_turns_are_those_of_lists() {
        let turns = (0..20).map(turns_of_a_schedule).sum::<u32>();
        assert!(turns > 20_000, "{turns}");
    }

    /// One random schedule of 10,000 steps; returns the turns that it had.
    fn turns_of_a_schedule(seed: u64) -> u32 {
        let mut random = Random::new(seed);
        let mut waiters = LeaseWaiters::default();
        waiters.set_limits(Limits { per_key: 20_000, total: 20_000, bytes: 1 << 20 });
        // The waiting requests of each of three lines, and which of these lines are ready, in their
        // order.
        let mut lines = [const { Vec::<u32>::new() }; 3];
        let mut ready = Vec::<usize>::new();
        let mut turns = 0_u32;
        for stream in 0..10_000 {
            let line = usize::try_from(random.below(3)).unwrap();
            let at = |line: usize| WaitStage::KeyQueue(key(u64::try_from(line).unwrap()));
            match random.below(4) {
                0 | 1 => {
                    assert!(waiters.begin(at(line), stream, 1));
                    lines[line].push(stream);
                }
                2 if !lines[line].is_empty() => {
                    let index =
                        usize::try_from(random.below(u64::try_from(lines[line].len()).unwrap()));
                    let gone = lines[line].remove(index.unwrap());
                    waiters.end(at(line), gone, 1);
                    if lines[line].is_empty() {
                        ready.retain(|other| *other != line);
                    }
                }
                _ => {
                    waiters.mark_ready(key(u64::try_from(line).unwrap()));
                    if !lines[line].is_empty() && !ready.contains(&line) {
                        ready.push(line);
                    }
                    let Some(first) = ready.first().copied() else { continue };
                    let next = lines[first].remove(0);
                    assert_eq!(waiters.pop_next(true), Some(next));
                    turns = turns.saturating_add(1);
                    if random.below(2) == 0 {
                        waiters.rejoin(at(first), next);
                        lines[first].insert(0, next);
                        ready.remove(0);
                    } else {
                        waiters.end(at(first), next, 1);
                        if lines[first].is_empty() {
                            ready.remove(0);
                        }
                    }
                }
            }
        }
        turns
    }

    // Guards: a list that grows with every client that comes and leaves behind a line that has its
    // turn first.
    #[test]
    fn clients_that_come_and_leave_do_not_add_up() {
        let mut waiters = LeaseWaiters::default();
        waiters.set_limits(Limits { per_key: 10, total: 10, bytes: 10 });
        assert!(waiters.begin(WaitStage::KeyQueue(key(0)), 0, 1));
        waiters.mark_ready(key(0));
        for stream in 1..10_000 {
            assert!(waiters.begin(WaitStage::KeyQueue(key(1)), stream, 1));
            waiters.mark_ready(key(1));
            waiters.end(WaitStage::KeyQueue(key(1)), stream, 1);
        }
        assert!(waiters.ready.entries.len() < 10, "{}", waiters.ready.entries.len());
        assert_eq!(waiters.pop_next(true), Some(0));
    }
}
