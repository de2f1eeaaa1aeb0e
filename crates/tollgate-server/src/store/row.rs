//! The row of a key in the table: a few bytes of states and what it has in common with other rows,
//! or encoded.
//!
//! Invariant: both forms of a row have the same counts. A shape is kept once, for as long as a row
//! has it; at most [`MAX_SHAPES`] are kept, of a few hundred bytes each, which the table does not
//! count. A row for whose shape there is no place is encoded.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use tollgate_core::Timestamp;
use tollgate_storage::{Counts, RowShape};

/// The longest states that are kept in their entry: those of every algorithm with one or two
/// numbers, and of three `gcra` quotas.
const INLINE: usize = 24;

/// The most shapes: for each group of rules and version of the policy one for each set of rules
/// that count for a key, and the same for tenants' own quotas.
const MAX_SHAPES: usize = 1024;

/// A row.
#[derive(Debug)]
pub(super) enum Row {
    /// The states, in the order of the shape.
    Inline(Arc<RowShape>, [u8; INLINE]),
    /// As [`Counts::encode`] writes it.
    Encoded(Box<[u8]>),
}

/// The shapes of rows.
#[derive(Debug, Default)]
pub(super) struct Shapes(Mutex<HashSet<Arc<RowShape>>>);

impl Row {
    /// The counts; `None` when they cannot be read.
    pub(super) fn counts(&self) -> Option<Counts> {
        match self {
            Self::Inline(shape, states) => Some(shape.counts(states)),
            Self::Encoded(row) => Counts::decode(row),
        }
    }

    /// Takes over the states of `counts`, which were made from this row; false when they differ in
    /// more than that.
    pub(super) fn set_states(&mut self, counts: &Counts, now: Timestamp) -> bool {
        match self {
            Self::Inline(shape, states) if counts.still_has(shape, now) => {
                *states = states_of(counts);
                true
            }
            Self::Inline(..) | Self::Encoded(_) => false,
        }
    }

    /// Bytes that it has outside of its entry.
    pub(super) const fn allocated(&self) -> usize {
        match self {
            Self::Inline(..) => 0,
            Self::Encoded(row) => row.len(),
        }
    }
}

impl Shapes {
    /// The row of `counts` at `now`.
    pub(super) fn row(&self, counts: &mut Counts, now: Timestamp) -> Row {
        let shape = counts.shape(now).filter(|shape| shape.states_len() <= INLINE);
        if let Some(shape) = shape.and_then(|shape| self.share(shape)) {
            return Row::Inline(shape, states_of(counts));
        }
        let mut row = Vec::new();
        counts.encode(now, &mut row);
        Row::Encoded(row.into_boxed_slice())
    }

    /// Forgets the shapes that no row has any more.
    pub(super) fn forget_unused(&self) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|shape| Arc::strong_count(shape) > 1);
    }

    /// The shape as it is kept; `None` when there is no place for it.
    fn share(&self, shape: RowShape) -> Option<Arc<RowShape>> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = known.get(&shape) {
            return Some(Arc::clone(known));
        }
        let shape = (known.len() < MAX_SHAPES).then(|| Arc::new(shape))?;
        known.insert(Arc::clone(&shape));
        Some(shape)
    }
}

/// The states of `counts`, which have room.
fn states_of(counts: &Counts) -> [u8; INLINE] {
    let mut states = [0; INLINE];
    let mut rest = states.as_mut_slice();
    for own in counts.states() {
        let Some((slot, others)) = rest.split_at_mut_checked(own.len()) else { break };
        slot.copy_from_slice(own);
        rest = others;
    }
    states
}

#[cfg(test)]
mod tests {
    use tollgate_core::{Algorithm, Limiter, Quota, Span};
    use tollgate_storage::StoredSet;

    use super::*;

    /// Counts of one quota per second by this algorithm; `id` is that of its rule.
    fn counts(id: u64, algorithm: Algorithm, is_used: bool) -> Counts {
        Counts::of_states(1, [states(id, algorithm, is_used)])
    }

    fn states(id: u64, algorithm: Algorithm, is_used: bool) -> (StoredSet, Vec<u8>) {
        let quota = Quota::new(10, Span::from_secs(1)).expect("a quota");
        let limiter = Limiter::new(algorithm, quota).expect("a limiter");
        let set = StoredSet::new((id, 1, limiter.state_version()), [(7, limiter)]);
        let mut states = vec![0; set.states_len()];
        if is_used {
            limiter.check(&mut states, now(), 1);
        }
        (set, states)
    }

    fn now() -> Timestamp {
        Timestamp::from_millis(1_000_000)
    }

    /// The counts of the row that they are written to.
    fn read(shapes: &Shapes, counts: &Counts) -> (bool, Counts) {
        let row = shapes.row(&mut counts.clone(), now());
        (matches!(row, Row::Inline(..)), row.counts().expect("a row"))
    }

    #[test]
    fn both_forms_have_the_same_counts() {
        let shapes = Shapes::default();
        for algorithm in Algorithm::ALL {
            let counts = counts(1, algorithm, true);
            let (is_inline, read) = read(&shapes, &counts);
            assert_eq!(read, counts, "{algorithm:?}");
            let is_long =
                matches!(algorithm, Algorithm::SlidingLog | Algorithm::SlidingBuckets { .. });
            assert_eq!(is_inline, !is_long, "{algorithm:?}");
        }
    }

    #[test]
    fn states_that_are_idle_are_not_kept() {
        let (is_inline, read) = read(&Shapes::default(), &counts(1, Algorithm::Gcra, false));
        assert!(is_inline && read == Counts::of_states(1, []));
    }

    #[test]
    fn a_shape_is_kept_while_a_row_has_it_and_beyond_the_most_rows_are_encoded() {
        let shapes = Shapes::default();
        let row = |id: usize| {
            let id = u64::try_from(id).expect("few");
            shapes.row(&mut counts(id, Algorithm::Gcra, true), now())
        };
        let mut rows: Vec<Row> = (0..MAX_SHAPES).map(row).collect();
        assert!(rows.iter().all(|row| matches!(row, Row::Inline(..))));
        assert!(matches!(row(0), Row::Inline(..)), "it has the shape of another one");
        assert!(matches!(row(MAX_SHAPES), Row::Encoded(_)));
        rows.pop();
        assert!(matches!(row(MAX_SHAPES), Row::Encoded(_)));
        shapes.forget_unused();
        assert!(matches!(row(MAX_SHAPES), Row::Inline(..)));
    }

    // Guards: a client that uses many rules in ever another order and takes the places of all
    // shapes.
    #[test]
    fn the_order_of_first_use_makes_no_other_shape() {
        let shapes = Shapes::default();
        let rows = [[1, 2], [2, 1]].map(|ids| {
            let used = ids.map(|id| states(id, Algorithm::Gcra, true));
            shapes.row(&mut Counts::of_states(1, used), now())
        });
        let [Row::Inline(one, _), Row::Inline(other, _)] = &rows else { panic!("{rows:?}") };
        assert!(Arc::ptr_eq(one, other));
        assert_eq!(rows[0].counts(), rows[1].counts());
    }

    #[test]
    fn other_quotas_are_no_change_of_states() {
        let shapes = Shapes::default();
        let mut row = shapes.row(&mut counts(1, Algorithm::Gcra, true), now());
        let same = row.counts().expect("a row");
        assert!(row.set_states(&same, now()));
        assert!(!row.set_states(&counts(1, Algorithm::FixedWindow, true), now()));
    }
}
