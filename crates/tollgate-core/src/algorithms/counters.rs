//! The ring of counters of the sliding buckets, in its bytes.
//!
//! Layout 2: the index of the newest sub-window (`u64`), how many sub-windows older the oldest one
//! is that has any units (`u16`), the sum of all counters (48 bits), then the counter of sub-window
//! `k` (`u32`) at `k mod (N + 1)`. Layout 1 had neither age nor sum: the index, then the counters.
//!
//! Invariant: any bytes are a ring, and every way to read them agrees with every other. A sum that
//! is not that of the counters, which only damage causes, is [repaired](Shape::repair) where a
//! stored state is read; in memory it is used for one turn of the ring at most, because in every
//! turn the counters are added up once. Deliberately not here: time. A sub-window is a number.

use crate::encoding::position;

/// The bytes before the first counter.
const HEADER: usize = 16;
/// The same in layout 1, which had no sum.
const HEADER_OF_LAYOUT_1: usize = 8;
/// The bits of the second word that contain the age of the oldest sub-window; the sum takes the
/// others.
const AGE_BITS: u32 = 16;

/// How many counters there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    /// N.
    parts: u64,
    /// N + 1.
    counters: u64,
}

/// The content of a state's counters. Any bytes are valid: the counters are used from the oldest
/// on, up to the sum, and the units by which the sum exceeds them count as the newest's.
#[derive(Clone, Copy)]
pub(crate) struct Ring {
    pub(crate) newest: u64,
    /// The first sub-window with any units; the newest when there are none.
    pub(crate) oldest: u64,
    pub(crate) sum: u64,
}

/// Where the oldest units of a ring end: any sub-window of it together with the units before it.
#[derive(Clone, Copy)]
pub(crate) struct Reached {
    /// The sub-window.
    pub(crate) index: u64,
    /// The units of those before it.
    pub(crate) before: u64,
}

/// The header before the counters.
pub(crate) type Header = [u8; HEADER];
/// The counters of a ring, by their positions.
pub(crate) type Counters = [[u8; 4]];

impl Shape {
    /// The ring of a window in this many parts.
    pub(crate) const fn new(parts: u64) -> Self {
        Self { parts, counters: parts.saturating_add(1) }
    }

    /// N: the sub-windows that make up the window. One counter more is kept.
    #[inline]
    pub(crate) const fn parts(&self) -> u64 {
        self.parts
    }

    /// Bytes of a state.
    pub(crate) const fn state_len(&self) -> usize {
        self.counters_len().saturating_add(HEADER)
    }

    /// Bytes of a state in layout 1.
    pub(crate) const fn state_len_of_layout_1(&self) -> usize {
        self.counters_len().saturating_add(HEADER_OF_LAYOUT_1)
    }

    /// Writes to `state` the state that `earlier` was in layout 1: the same counters, and their
    /// sum. Bytes of other lengths stay unchanged.
    pub(crate) fn convert(&self, earlier: &[u8], state: &mut [u8]) {
        let Some((header, counters)) = self.split_mut(state) else { return };
        let Some((newest, earlier)) = earlier.split_first_chunk::<HEADER_OF_LAYOUT_1>() else {
            return;
        };
        let (earlier, []) = earlier.as_chunks() else { return };
        if earlier.len() != counters.len() {
            return;
        }
        counters.copy_from_slice(earlier);
        self.counted(counters, u64::from_le_bytes(*newest)).write(header);
    }

    /// True when the sum is that of the counters, and the oldest sub-window the first that has any
    /// units; for bytes of another length too.
    pub(crate) fn is_consistent(&self, state: &[u8]) -> bool {
        let Some((header, counters)) = self.split(state) else { return true };
        let ring = Ring::read(header, *self);
        let counted = self.counted(counters, ring.newest);
        ring.sum == counted.sum && ring.oldest == counted.oldest
    }

    /// Makes a state consistent by its counters. Bytes of other lengths stay unchanged.
    pub(crate) fn repair(&self, state: &mut [u8]) {
        let Some((header, counters)) = self.split_mut(state) else { return };
        let newest = Ring::read(header, *self).newest;
        self.counted(counters, newest).write(header);
    }

    /// The header and the counters; `None` for bytes of another length.
    #[inline]
    pub(crate) fn split<'s>(&self, state: &'s [u8]) -> Option<(&'s Header, &'s Counters)> {
        let (header, counters) = state.split_first_chunk()?;
        let (counters, rest) = counters.as_chunks();
        let fits = rest.is_empty() && counters.len() == position(self.counters);
        fits.then_some((header, counters))
    }

    /// The same, writable.
    #[inline]
    pub(crate) fn split_mut<'s>(
        &self,
        state: &'s mut [u8],
    ) -> Option<(&'s mut Header, &'s mut Counters)> {
        let (header, counters) = state.split_first_chunk_mut()?;
        let (counters, rest) = counters.as_chunks_mut();
        let fits = rest.is_empty() && counters.len() == position(self.counters);
        fits.then_some((header, counters))
    }

    const fn counters_len(&self) -> usize {
        position(self.counters.saturating_mul(4))
    }

    /// The position of the counter of the `index`-th sub-window.
    #[inline]
    const fn place(&self, index: u64) -> u64 {
        match index.checked_rem(self.counters) {
            Some(place) => place,
            None => 0,
        }
    }

    /// The position after `place`.
    #[inline]
    const fn next(&self, place: u64) -> u64 {
        if place >= self.parts { 0 } else { place.wrapping_add(1) }
    }

    /// Counts `cost` in the newest sub-window of `ring`, whose sum includes it already, and writes
    /// the ring; `newest` was the newest one before. When another turn has begun the sum is that of
    /// the counters.
    #[inline]
    pub(crate) fn add(
        &self,
        header: &mut Header,
        counters: &mut Counters,
        newest: u64,
        ring: Ring,
        cost: u64,
    ) {
        ring.write(header);
        if ring.newest <= newest {
            add_count(counters, self.place(newest), cost);
        } else {
            self.advance(header, counters, newest, ring.newest, cost);
        }
    }

    /// The same for sub-windows after `newest`, up to `index`. By numbers alone, which are passed
    /// in registers.
    #[inline(never)]
    fn advance(
        &self,
        header: &mut Header,
        counters: &mut Counters,
        newest: u64,
        index: u64,
        cost: u64,
    ) {
        let place = self.clear(counters, newest, index);
        add_count(counters, place, cost);
        let passed = index.wrapping_sub(newest);
        if place < passed && passed <= self.parts {
            // After more than a whole turn there is one counter, and the sum is its.
            self.counted(counters, index).write(header);
        }
    }

    /// The ring according to the counters alone.
    #[inline(never)]
    fn counted(&self, counters: &Counters, newest: u64) -> Ring {
        let first = newest.saturating_sub(self.parts);
        // In the first turn no sub-window has the positions after the newest one's.
        let places = newest.min(self.parts).saturating_add(1);
        let counted = counters.get(..position(places)).unwrap_or(counters);
        let sum = counted.iter().map(|count| u64::from(u32::from_le_bytes(*count))).sum();
        self.without(Ring { newest, oldest: first, sum }, counters, first)
    }

    /// Clears the counters after `newest`, which still contain the counts of a turn of the ring
    /// ago, up to that of `index`; returns its position.
    #[inline]
    fn clear(&self, counters: &mut Counters, newest: u64, index: u64) -> u64 {
        let passed = index.saturating_sub(newest);
        if passed > self.parts {
            counters.fill([0; 4]);
            return self.place(index);
        }
        let mut place = self.place(newest);
        for _ in 0..passed {
            place = self.next(place);
            set_count(counters, place, 0);
        }
        place
    }

    /// The ring without the counts before `first`; its oldest sub-window has units, if any has.
    #[inline]
    pub(crate) fn without(&self, ring: Ring, counters: &Counters, first: u64) -> Ring {
        let (oldest, sum) = self.drop_before(counters, ring.newest, ring.oldest, ring.sum, first);
        Ring { oldest, sum, ..ring }
    }

    /// [`Shape::without`], by numbers alone, which are passed in registers.
    #[inline(never)]
    fn drop_before(
        &self,
        counters: &Counters,
        newest: u64,
        mut oldest: u64,
        mut sum: u64,
        first: u64,
    ) -> (u64, u64) {
        if first > newest {
            return (newest, 0);
        }
        let mut place = self.place(oldest);
        while sum > 0 && oldest < newest {
            let count = count(counters, place);
            if oldest < first {
                sum = sum.saturating_sub(count);
            } else if count > 0 {
                return (oldest, sum);
            }
            oldest = oldest.wrapping_add(1);
            place = self.next(place);
        }
        (newest, sum)
    }

    /// Takes up to `units` off `index`, where the ring counts any.
    pub(crate) fn take(&self, ring: Ring, counters: &mut Counters, index: u64, units: u64) -> Ring {
        if index < ring.oldest || index > ring.newest {
            return ring;
        }
        let place = self.place(index);
        let before = count(counters, place);
        let left = before.saturating_sub(units);
        set_count(counters, place, left);
        let sum = ring.sum.saturating_sub(before.saturating_sub(left));
        // The oldest may have none left.
        self.without(Ring { sum, ..ring }, counters, ring.oldest)
    }

    /// The sub-window that the oldest `units` of the ring reach into; the newest when there are
    /// fewer.
    pub(crate) fn reached_by(&self, ring: Ring, counters: &Counters, units: u64) -> Reached {
        let (mut index, mut place, mut before) = (ring.oldest, self.place(ring.oldest), 0_u64);
        while index < ring.newest {
            let up_to = before.saturating_add(count(counters, place));
            if up_to >= units {
                break;
            }
            before = up_to;
            index = index.saturating_add(1);
            place = self.next(place);
        }
        Reached { index, before }
    }

    /// The units of a sub-window of the ring.
    #[inline]
    pub(crate) fn units(&self, ring: Ring, counters: &Counters, of: Reached) -> u64 {
        let believed = ring.sum.saturating_sub(of.before);
        if of.index < ring.newest {
            return count(counters, self.place(of.index)).min(believed);
        }
        believed
    }

    /// The units of the newest sub-window.
    pub(crate) fn units_of_newest(&self, ring: Ring, counters: &Counters) -> u64 {
        self.units(ring, counters, self.reached_by(ring, counters, u64::MAX))
    }

    /// The newest sub-window that has any units; `None` when there are none.
    pub(crate) fn last(&self, mut ring: Ring, counters: &Counters) -> Option<u64> {
        if ring.sum == 0 || count(counters, self.place(ring.newest)) > 0 {
            return (ring.sum > 0).then_some(ring.newest);
        }
        let mut last = ring.oldest;
        while last < ring.newest {
            ring = self.without(ring, counters, last.saturating_add(1));
            if ring.sum == 0 {
                break;
            }
            last = ring.oldest;
        }
        Some(last)
    }
}

impl Ring {
    #[inline]
    pub(crate) fn read(header: &Header, shape: Shape) -> Self {
        let (words, _) = header.as_chunks::<8>();
        let [newest, summary] = [0, 1].map(|i| words.get(i).map_or(0, |w| u64::from_le_bytes(*w)));
        let sum = summary >> AGE_BITS;
        let age = (summary & u64::from(u16::MAX)).min(shape.parts);
        let age = if sum == 0 { 0 } else { age };
        Self { newest, oldest: newest.saturating_sub(age), sum }
    }

    #[inline]
    pub(crate) fn write(self, header: &mut Header) {
        let age = self.newest.saturating_sub(self.oldest);
        let summary = self.sum << AGE_BITS | age;
        let (words, _) = header.as_chunks_mut::<8>();
        for (word, value) in words.iter_mut().zip([self.newest, summary]) {
            *word = value.to_le_bytes();
        }
    }
}

#[inline]
fn count(counters: &Counters, place: u64) -> u64 {
    counters.get(position(place)).map_or(0, |count| u32::from_le_bytes(*count).into())
}

#[inline]
fn add_count(counters: &mut Counters, place: u64, units: u64) {
    set_count(counters, place, count(counters, place).saturating_add(units));
}

#[inline]
fn set_count(counters: &mut Counters, place: u64, count: u64) {
    if let Some(counter) = counters.get_mut(position(place)) {
        *counter = u32::try_from(count).unwrap_or(u32::MAX).to_le_bytes();
    }
}
