//! Requests that wait for the authority of a fleet: in the line of a key that somebody else asks
//! about, for a question that may go, or for the answer to one.
//!
//! Invariant: so many of one key, so many in all and so many bytes as the limits say; of a key the
//! first that came goes first. Deliberately absent: the requests themselves, and any call.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use tollgate_policy::waiting::Limits;

use crate::spending::Place;

/// Where a request waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// For what somebody else asks about this key.
    Line(Place),
    /// For a question that may go.
    Unsent,
    /// For the answer to this call.
    Asked(u32),
}

/// All that wait at one root, by the numbers of their streams.
#[derive(Default)]
pub struct Pauses {
    limits: Limits,
    lines: BTreeMap<Place, VecDeque<u32>>,
    /// Lines whose first may have something now.
    ready: VecDeque<Place>,
    unsent: VecDeque<u32>,
    len: usize,
    bytes: usize,
}

impl Pauses {
    /// As many may wait from now on.
    pub const fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// How many wait.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// True when somebody waits for others than the authority.
    pub fn wait(&self) -> bool {
        !self.lines.is_empty() || !self.unsent.is_empty()
    }

    /// True when somebody may have his turn now.
    pub fn has_more(&self) -> bool {
        !self.ready.is_empty()
    }

    /// A request of so many bytes begins to wait; false when too many do.
    pub fn begin(&mut self, stage: Stage, stream: u32, bytes: usize) -> bool {
        let ahead = match stage {
            Stage::Line(place) => self.lines.get(&place).map_or(0, VecDeque::len),
            Stage::Unsent | Stage::Asked(_) => 0,
        };
        let sum = self.bytes.saturating_add(bytes);
        let Limits { per_key, total, bytes } = self.limits;
        if self.len >= total || ahead >= per_key || sum > bytes {
            return false;
        }
        (self.len, self.bytes) = (self.len.saturating_add(1), sum);
        match stage {
            Stage::Line(place) => self.lines.entry(place).or_default().push_back(stream),
            Stage::Unsent => self.unsent.push_back(stream),
            Stage::Asked(_) => {}
        }
        true
    }

    /// A request that was given its turn waits on, as the first.
    pub fn go_on(&mut self, stage: Stage, stream: u32) {
        match stage {
            Stage::Line(place) => {
                self.lines.entry(place).or_default().push_front(stream);
                self.ready.retain(|ready| *ready != place);
            }
            Stage::Unsent => self.unsent.push_front(stream),
            Stage::Asked(_) => {}
        }
    }

    /// A request waits no longer.
    pub fn end(&mut self, stage: Stage, stream: u32, bytes: usize) {
        self.len = self.len.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
        match stage {
            Stage::Line(place) => {
                if let Some(line) = self.lines.get_mut(&place) {
                    line.retain(|other| *other != stream);
                    if line.is_empty() {
                        self.lines.remove(&place);
                    }
                }
            }
            Stage::Unsent => self.unsent.retain(|other| *other != stream),
            Stage::Asked(_) => {}
        }
    }

    /// The first of a line may have something now.
    pub fn may_go_on(&mut self, place: Place) {
        if self.lines.contains_key(&place) && !self.ready.contains(&place) {
            self.ready.push_back(place);
        }
    }

    /// The first of every line may. Lines that were to have their turn already stay ahead: else
    /// only the first ones would have it, and who stands in the last ones would wait for ever.
    pub fn wake(&mut self) {
        // One by one: collected they would be sorted, by a sort of their own.
        let mut known = BTreeSet::new();
        for place in &self.ready {
            known.insert(*place);
        }
        self.ready.extend(self.lines.keys().filter(|place| !known.contains(place)));
    }

    /// The next that may have its turn; it stands in no line any more.
    pub fn next(&mut self, may_ask: bool) -> Option<u32> {
        while let Some(place) = self.ready.front() {
            if let Some(stream) = self.lines.get_mut(place).and_then(VecDeque::pop_front) {
                return Some(stream);
            }
            self.lines.remove(place);
            self.ready.pop_front();
        }
        if may_ask { self.unsent.pop_front() } else { None }
    }
}

#[cfg(test)]
mod tests {
    use core::num::NonZeroU64;

    use super::*;

    // Guards: requests that are held for ever, past every deadline, because at each tick the same
    // first lines are looked at.
    #[test]
    fn every_line_has_its_turn_however_few_have_it_at_a_tick() {
        let lines = 100_u32;
        let place = |i: u32| Place {
            policy: 1,
            group: 0,
            fingerprint: NonZeroU64::MIN.saturating_add(i.into()),
        };
        let mut pauses = Pauses::default();
        pauses.set_limits(Limits { per_key: 10, total: 1_000, bytes: 1 << 20 });
        for i in 0..lines {
            assert!(pauses.begin(Stage::Line(place(i)), i, 1));
        }
        let mut turns = vec![0; 100];
        for _ in 0..20 {
            pauses.wake();
            for _ in 0..10 {
                let stream = pauses.next(true).unwrap();
                turns[usize::try_from(stream).unwrap()] += 1;
                pauses.go_on(Stage::Line(place(stream)), stream);
            }
        }
        assert_eq!(turns, [2; 100]);
    }
}
