//! The remaining knowledge about keys outside a sample: an upper bound on the usage of the busiest
//! of them in one window.
//!
//! A count-min sketch (Cormode and Muthukrishnan, "An improved data stream summary: the count-min
//! sketch and its applications", 2005) whose counters each count the last eight eighths of a window
//! and the one under way.
//!
//! Invariant: the bound is never below the true maximum. It exceeds it by the units of one more
//! eighth of a window, and by those that other keys have added to the same counters. With N units
//! in nine eighths of a window, the latter exceeds e x N / 2^18 in at most one of e^4 = 55
//! estimates.
//!
//! Deliberately not here: an estimate for one key.

use tollgate_core::Span;

const ROWS: usize = 4;
const WIDTH: usize = 1 << 18;
/// The number of eighths of a window in a counter, including the current one.
const SLICES: usize = 9;
const EIGHTHS: u64 = 8;

/// One counter: the units of each of the newest slices.
#[derive(Clone, Copy, Debug)]
struct Counter {
    newest: u64,
    slices: [u32; SLICES],
}

#[derive(Debug)]
pub(super) struct UnsampledKeys {
    slice: u64,
    counters: Vec<Counter>,
    peak: u64,
}

impl UnsampledKeys {
    /// Allocates 48 MiB.
    pub fn new(window: Span) -> Self {
        let empty = Counter { newest: 0, slices: [0; SLICES] };
        Self {
            slice: window.as_nanos().div_ceil(EIGHTHS).max(1),
            counters: vec![empty; ROWS.saturating_mul(WIDTH)],
            peak: 0,
        }
    }

    /// An upper bound for every key in one window; `u64::MAX` when none is known.
    pub const fn peak(&self) -> u64 {
        self.peak
    }

    /// A key reached `peak` while it was counted separately.
    pub const fn reached(&mut self, peak: u64) {
        if peak > self.peak {
            self.peak = peak;
        }
    }

    /// Counts one request of a key; `hash` is spread over all bits.
    pub fn push(&mut self, hash: u64, at: u64, cost: u64) {
        let slice = at.checked_div(self.slice).unwrap_or(0);
        let mut least = u64::MAX;
        for row in 0..ROWS {
            if let Some(counter) = self.counters.get_mut(place(row, hash)) {
                least = least.min(counter.add(slice, cost));
            }
        }
        self.reached(least);
    }
}

impl Counter {
    /// Adds the cost, and returns the units since eight slices before `slice`; `u64::MAX` when they
    /// are no longer known.
    fn add(&mut self, slice: u64, cost: u64) -> u64 {
        let ring = u64::try_from(SLICES).unwrap_or(1);
        // The usage of a key before its removal may be older than additions of others since.
        // Counted with those it stays longer, never shorter.
        let slice = slice.max(self.newest);
        if slice.saturating_sub(self.newest) >= ring {
            self.slices = [0; SLICES];
            self.newest = slice;
        }
        while self.newest < slice {
            self.newest = self.newest.saturating_add(1);
            if let Some(oldest) = slot(&mut self.slices, self.newest) {
                *oldest = 0;
            }
        }
        if let Some(newest) = slot(&mut self.slices, slice) {
            *newest = newest.saturating_add(u32::try_from(cost).unwrap_or(u32::MAX));
        }
        if self.slices.contains(&u32::MAX) {
            return u64::MAX;
        }
        self.slices.iter().map(|count| u64::from(*count)).fold(0, u64::saturating_add)
    }
}

fn slot(slices: &mut [u32; SLICES], slice: u64) -> Option<&mut u32> {
    let ring = u64::try_from(SLICES).ok()?;
    slices.get_mut(usize::try_from(slice.checked_rem(ring)?).ok()?)
}

/// Each row uses its own bits of a hash that is spread again for it.
fn place(row: usize, hash: u64) -> usize {
    let seed = u64::try_from(row).unwrap_or(0).wrapping_mul(2).wrapping_add(1);
    let spread = (hash ^ (hash >> 29)).wrapping_mul(seed.wrapping_mul(0xbf58_476d_1ce4_e5b9));
    let column = usize::try_from(spread >> 46).unwrap_or(0);
    row.saturating_mul(WIDTH).saturating_add(column)
}
