//! Buckets as this worker wrote them last, and the probable number of each: a request that is
//! decided on them reads nothing.
//!
//! This is for hosts that number all writes of the map in one sequence (`numbering` proves it) and
//! do not return a write's number to its writer. That number is later than every number that was
//! given out before, so it is `latest + 1` at the earliest, where `latest` is the latest that this
//! worker knows of. That is the prediction. If it is right and no worker has written since, the
//! bucket is unchanged, and a write on that condition replaces exactly the bytes that were decided
//! on. If it is wrong, another write had that number before: this bucket has a later one, now and
//! after every write to come. So a wrong prediction can only lose, as in any lost race, and costs
//! one failed write; a right one saves a read, which costs four times as much. It pays where one
//! prediction in five is right; below that, predictions are few.
//!
//! Invariant: a number is never predicted that a later write of the bucket could have. Numbers wrap
//! at 2^32: a bucket that no worker wrote since then has one that looks later than all, and the
//! known number falls behind while other workers write, so that it finally looks later. So only the
//! number of a bucket that this worker wrote within [`KEPT_FOR`] is used, nothing is used for
//! longer than that since the host returned it, and the two numbers with a special meaning are
//! never predicted: 0 (write blindly) and [`INSERT`]. Deliberately absent: any decision, and host
//! calls.

use tollgate_core::{Span, Timestamp};

use crate::host::shared_data::INSERT;

/// The buckets that one worker remembers for one policy. A bucket that maps to an occupied slot
/// replaces the one there.
const SLOTS: usize = 1024;

/// Longer buckets (of logs) are not remembered: a thousand of them would be megabytes.
const MAX_LEN: usize = 2048;

/// For how long an entry is used. 2^32 writes take an hour at a million per second.
const KEPT_FOR: Span = Span::from_secs(10);

/// The value of a right prediction in wrong ones: where one in five is right, predictions cost as
/// much as they save.
const HIT_VALUE: u8 = 4;
/// After this many wrong predictions it stops, soon after other workers began to write.
const MAX_MISSES: u8 = 60;
/// From then on, this many opportunities are skipped before one is tried.
const SKIP: u8 = 32;

/// The last writes of one worker.
#[derive(Default)]
pub struct PredictedWrites {
    slots: Vec<Option<Write>>,
    /// The latest number that is known to have been given out, and when the host last returned one.
    latest: Option<(u32, Timestamp)>,
    /// The cost of wrong predictions that right ones have not yet recovered.
    misses: u8,
    /// How many more opportunities are skipped before one is tried.
    skipped: u8,
}

/// A bucket as this worker wrote it.
struct Write {
    group: usize,
    bucket: u32,
    at: Timestamp,
    /// The bytes and their number, until they are used.
    prediction: Option<(Vec<u8>, u32)>,
}

impl PredictedWrites {
    /// The bytes of a bucket and the number that they probably have. This also forgets them,
    /// because a write will change them.
    pub fn take(&mut self, group: usize, bucket: u32, now: Timestamp) -> Option<(Vec<u8>, u32)> {
        let prediction = self.find_recent(group, bucket, now)?.prediction.take()?;
        self.is_worthwhile().then_some(prediction)
    }

    /// Learns the number that the host returned with a bucket's bytes.
    pub fn record_read(&mut self, group: usize, bucket: u32, number: u32, now: Timestamp) {
        if self.find_recent(group, bucket, now).is_none() {
            return; // it may be older than the wrap
        }
        let is_later = |latest: u32| number.wrapping_sub(latest) <= u32::MAX / 2;
        if self.latest_known(now).is_none_or(|(latest, _)| is_later(latest)) {
            self.latest = Some((number, now));
        }
    }

    /// Remembers a bucket that was written under a number which the host does not return. `bytes`
    /// are different afterwards.
    pub fn record_write(&mut self, group: usize, bucket: u32, bytes: &mut Vec<u8>, now: Timestamp) {
        let known = self.latest_known(now);
        self.latest = known.map(|(latest, known_at)| (latest.wrapping_add(1), known_at));
        if self.slots.is_empty() {
            self.slots.resize_with(SLOTS, || None);
        }
        let Some(slot) = self.slots.get_mut(slot_of(group, bucket)) else { return };
        let spare = slot.take().and_then(|it| it.prediction).map(|(bytes, _)| bytes);
        let number = self.latest.map(|(number, _)| number);
        let number = number.filter(|number| !matches!(*number, 0 | INSERT));
        let prediction = number.filter(|_| bytes.len() <= MAX_LEN).map(|number| {
            // The buffer may be one that a long bucket has used.
            let is_long = bytes.capacity() > 2 * MAX_LEN;
            let spare = spare.unwrap_or_default();
            let written = if is_long { bytes.to_vec() } else { core::mem::replace(bytes, spare) };
            (written, number)
        });
        *slot = Some(Write { group, bucket, at: now, prediction });
    }

    /// A prediction was right, or its write failed.
    pub fn record_result(&mut self, right: bool) {
        self.misses = if right {
            self.misses.saturating_sub(HIT_VALUE)
        } else {
            self.misses.saturating_add(1).min(MAX_MISSES)
        };
    }

    /// The last write of this bucket, if that was recent.
    fn find_recent(&mut self, group: usize, bucket: u32, now: Timestamp) -> Option<&mut Write> {
        let it = self.slots.get_mut(slot_of(group, bucket))?.as_mut()?;
        (it.group == group && it.bucket == bucket && is_fresh(it.at, now)).then_some(it)
    }

    /// The latest number, if the host returned one recently.
    fn latest_known(&self, now: Timestamp) -> Option<(u32, Timestamp)> {
        self.latest.filter(|(_, known_at)| is_fresh(*known_at, now))
    }

    fn is_worthwhile(&mut self) -> bool {
        if self.misses < MAX_MISSES {
            return true;
        }
        self.skipped = self.skipped.checked_sub(1).unwrap_or(SKIP);
        self.skipped == SKIP
    }
}

/// A time ahead comes from a clock that went back, by which nothing is known.
fn is_fresh(at: Timestamp, now: Timestamp) -> bool {
    at <= now && now.since(at) < KEPT_FOR
}

fn slot_of(group: usize, bucket: u32) -> usize {
    // Numbers of buckets are bits of a hash already; groups begin at different offsets.
    let number = usize::try_from(bucket).unwrap_or(0).wrapping_add(group.wrapping_mul(389));
    number.checked_rem(SLOTS).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::ZERO.saturating_add(Span::from_secs(seconds))
    }

    /// A worker that wrote bucket 5 of group 0 and then read it under `number`.
    fn knowing(number: u32) -> PredictedWrites {
        let mut predictions = PredictedWrites::default();
        predictions.record_write(0, 5, &mut b"a".to_vec(), at(100));
        predictions.record_read(0, 5, number, at(100));
        predictions
    }

    fn prediction(predictions: &mut PredictedWrites, seconds: u64) -> Option<u32> {
        predictions.record_write(0, 5, &mut b"b".to_vec(), at(seconds));
        predictions.take(0, 5, at(seconds)).map(|(_, number)| number)
    }

    #[test]
    fn the_prediction_is_the_number_after_the_latest_that_is_known() {
        let mut predictions = knowing(7);
        let mut bytes = b"b".to_vec();
        predictions.record_write(0, 5, &mut bytes, at(101));
        predictions.record_write(1, 5, &mut b"c".to_vec(), at(101));
        assert_eq!(predictions.take(0, 5, at(102)), Some((b"b".to_vec(), 8)));
        assert_eq!(predictions.take(0, 5, at(102)), None, "it is used");
        assert_eq!(predictions.take(1, 5, at(102)), Some((b"c".to_vec(), 9)));
        assert_eq!(predictions.take(1, 6, at(102)), None);
    }

    #[test]
    fn known_numbers_expire_and_a_bucket_that_others_wrote_has_none() {
        let mut predictions = PredictedWrites::default();
        predictions.record_read(0, 5, 7, at(100));
        assert_eq!(prediction(&mut predictions, 100), None);
        assert_eq!(prediction(&mut knowing(7), 109), Some(8));
        assert_eq!(prediction(&mut knowing(7), 110), None);
        assert_eq!(prediction(&mut knowing(7), 99), None);
        let mut predictions = knowing(7);
        predictions.record_write(0, 5, &mut b"b".to_vec(), at(101));
        assert_eq!(predictions.take(0, 5, at(111)), None);
        // A worker's own writes show nothing of other workers' writes: its known number could fall
        // behind by the whole range.
        let mut predictions = knowing(7);
        assert_eq!(prediction(&mut predictions, 105), Some(8));
        assert_eq!(prediction(&mut predictions, 109), Some(9));
        assert_eq!(prediction(&mut predictions, 110), None);
    }

    #[test]
    fn kept_bytes_use_no_more_memory_than_their_length() {
        let mut predictions = knowing(7);
        let mut bytes = Vec::with_capacity(64 * MAX_LEN);
        bytes.extend_from_slice(b"b");
        predictions.record_write(0, 5, &mut bytes, at(100));
        assert!(bytes.capacity() >= 64 * MAX_LEN, "the buffer stays where it is used again");
        let (kept, _) = predictions.take(0, 5, at(100)).unwrap();
        assert!(kept.capacity() <= MAX_LEN, "{}", kept.capacity());
    }

    #[test]
    fn numbers_go_on_after_the_wrap_and_two_are_never_predicted() {
        let mut predictions = knowing(u32::MAX - 2);
        assert_eq!(prediction(&mut predictions, 100), Some(u32::MAX - 1));
        assert_eq!(prediction(&mut predictions, 100), None, "INSERT");
        assert_eq!(prediction(&mut predictions, 100), None, "0");
        assert_eq!(prediction(&mut predictions, 100), Some(1));
        predictions.record_read(0, 5, u32::MAX - 1, at(100));
        assert_eq!(prediction(&mut predictions, 100), Some(2), "an earlier number says nothing");
        predictions.record_read(0, 5, 100, at(100));
        assert_eq!(prediction(&mut predictions, 100), Some(101));
    }

    #[test]
    fn wrong_predictions_make_predictions_rare_until_one_is_right() {
        let mut predictions = knowing(7);
        let mut tried = |wanted: bool| {
            let predicted = prediction(&mut predictions, 100).is_some();
            if predicted {
                predictions.record_result(wanted);
            }
            predicted
        };
        for _ in 0..100 {
            tried(true);
        }
        let wrong = (0..1_000).filter(|_| tried(false)).count();
        assert!((60 + 25..=60 + 35).contains(&wrong), "{wrong}");
        while !tried(true) {}
        assert!(tried(true));
    }

    #[test]
    fn long_buckets_are_not_kept() {
        let mut predictions = knowing(7);
        let mut bytes = vec![0; MAX_LEN + 1];
        predictions.record_write(0, 5, &mut bytes, at(100));
        assert_eq!(bytes.len(), MAX_LEN + 1);
        assert_eq!(predictions.take(0, 5, at(100)), None);
        assert_eq!(prediction(&mut predictions, 100), Some(9));
    }
}
