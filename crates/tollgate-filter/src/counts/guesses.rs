//! Buckets as this worker wrote them last, and the probable number of each: a request that is
//! decided on them reads nothing.
//!
//! This is for hosts that number all writes of the map in one sequence (`numbering` proves it) and
//! do not return a write's number to its writer. That number is later than every number that was
//! given out before, so it is `latest + 1` at the earliest, where `latest` is the latest that this
//! worker knows of. That is the guess. If it is right and no worker has written since, the bucket
//! is unchanged, and a write on that condition replaces exactly the bytes that were decided on. If
//! it is wrong, another write had that number before: this bucket has a later one, now and after
//! every write to come. So a wrong guess can only lose, as in any lost race, and costs one failed
//! write; a right one saves a read, which costs four times as much. It pays where one guess in five
//! is right; below that, guesses are few.
//!
//! Invariant: a number is never guessed that a later write of the bucket could have. Numbers wrap
//! at 2^32: a bucket that no worker wrote since then has one that looks later than all, and the
//! known number falls behind while other workers write, so that it finally looks later. So only the
//! number of a bucket that this worker wrote within [`KEPT`] is used, nothing is used for longer
//! than that since the host returned it, and the two numbers with a special meaning are never
//! guessed: 0 (write blindly) and [`INSERT`]. Deliberately absent: any decision, and host calls.

use tollgate_core::{Span, Timestamp};

use crate::host::shared_data::INSERT;

/// The buckets that one worker remembers for one policy. A bucket that maps to an occupied place
/// replaces the one there.
const PLACES: usize = 1024;

/// Longer buckets (of logs) are not remembered: a thousand of them would be megabytes.
const MAX_LEN: usize = 2048;

/// For how long an entry is used. 2^32 writes take an hour at a million per second.
const KEPT: Span = Span::from_secs(10);

/// The value of a right guess in wrong ones: where one in five is right, guesses cost as much as
/// they save.
const RIGHT: u8 = 4;
/// After this many wrong guesses it stops, soon after other workers began to write.
const MOST: u8 = 60;
/// From then on, this many opportunities are skipped before one is tried.
const SKIPPED: u8 = 32;

/// The last writes of one worker.
#[derive(Default)]
pub struct Guesses {
    places: Vec<Option<Remembered>>,
    /// The latest number that is known to have been given out, and when the host last returned one.
    latest: Option<(u32, Timestamp)>,
    /// The cost of wrong guesses that right ones have not yet recovered.
    owed: u8,
    /// How many more opportunities are skipped before one is tried.
    skipped: u8,
}

/// A bucket as this worker wrote it.
struct Remembered {
    group: usize,
    bucket: u32,
    at: Timestamp,
    /// The bytes and their number, until they are used.
    guess: Option<(Vec<u8>, u32)>,
}

impl Guesses {
    /// The bytes of a bucket and the number that they probably have. This also forgets them,
    /// because a write will change them.
    pub fn take(&mut self, group: usize, bucket: u32, now: Timestamp) -> Option<(Vec<u8>, u32)> {
        let guess = self.fresh(group, bucket, now)?.guess.take()?;
        self.may_guess().then_some(guess)
    }

    /// Learns the number that the host returned with a bucket's bytes.
    pub fn saw(&mut self, group: usize, bucket: u32, number: u32, now: Timestamp) {
        if self.fresh(group, bucket, now).is_none() {
            return; // it may be older than the wrap
        }
        let is_later = |latest: u32| number.wrapping_sub(latest) <= u32::MAX / 2;
        if self.told(now).is_none_or(|(latest, _)| is_later(latest)) {
            self.latest = Some((number, now));
        }
    }

    /// Remembers a bucket that was written under a number which the host does not return. `bytes`
    /// are different afterwards.
    pub fn wrote(&mut self, group: usize, bucket: u32, bytes: &mut Vec<u8>, now: Timestamp) {
        let told = self.told(now);
        self.latest = told.map(|(latest, told_at)| (latest.wrapping_add(1), told_at));
        if self.places.is_empty() {
            self.places.resize_with(PLACES, || None);
        }
        let Some(place) = self.places.get_mut(place_of(group, bucket)) else { return };
        let spare = place.take().and_then(|it| it.guess).map(|(bytes, _)| bytes);
        let number = self.latest.map(|(number, _)| number);
        let number = number.filter(|number| !matches!(*number, 0 | INSERT));
        let guess = number.filter(|_| bytes.len() <= MAX_LEN).map(|number| {
            // The buffer may be one that a long bucket has used.
            let is_long = bytes.capacity() > 2 * MAX_LEN;
            let spare = spare.unwrap_or_default();
            let written = if is_long { bytes.to_vec() } else { core::mem::replace(bytes, spare) };
            (written, number)
        });
        *place = Some(Remembered { group, bucket, at: now, guess });
    }

    /// A guess was right, or its write failed.
    pub fn was(&mut self, right: bool) {
        self.owed = if right {
            self.owed.saturating_sub(RIGHT)
        } else {
            self.owed.saturating_add(1).min(MOST)
        };
    }

    /// The last write of this bucket, if that was recent.
    fn fresh(&mut self, group: usize, bucket: u32, now: Timestamp) -> Option<&mut Remembered> {
        let it = self.places.get_mut(place_of(group, bucket))?.as_mut()?;
        (it.group == group && it.bucket == bucket && is_fresh(it.at, now)).then_some(it)
    }

    /// The latest number, if the host returned one recently.
    fn told(&self, now: Timestamp) -> Option<(u32, Timestamp)> {
        self.latest.filter(|(_, told_at)| is_fresh(*told_at, now))
    }

    fn may_guess(&mut self) -> bool {
        if self.owed < MOST {
            return true;
        }
        self.skipped = self.skipped.checked_sub(1).unwrap_or(SKIPPED);
        self.skipped == SKIPPED
    }
}

/// A time ahead comes from a clock that went back, by which nothing is known.
fn is_fresh(at: Timestamp, now: Timestamp) -> bool {
    at <= now && now.since(at) < KEPT
}

fn place_of(group: usize, bucket: u32) -> usize {
    // Numbers of buckets are bits of a hash already; groups begin at different offsets.
    let number = usize::try_from(bucket).unwrap_or(0).wrapping_add(group.wrapping_mul(389));
    number.checked_rem(PLACES).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::ZERO.saturating_add(Span::from_secs(seconds))
    }

    /// A worker that wrote bucket 5 of group 0 and then read it under `number`.
    fn knowing(number: u32) -> Guesses {
        let mut guesses = Guesses::default();
        guesses.wrote(0, 5, &mut b"a".to_vec(), at(100));
        guesses.saw(0, 5, number, at(100));
        guesses
    }

    fn guess(guesses: &mut Guesses, seconds: u64) -> Option<u32> {
        guesses.wrote(0, 5, &mut b"b".to_vec(), at(seconds));
        guesses.take(0, 5, at(seconds)).map(|(_, number)| number)
    }

    #[test]
    fn the_guess_is_the_number_after_the_latest_that_is_known() {
        let mut guesses = knowing(7);
        let mut bytes = b"b".to_vec();
        guesses.wrote(0, 5, &mut bytes, at(101));
        guesses.wrote(1, 5, &mut b"c".to_vec(), at(101));
        assert_eq!(guesses.take(0, 5, at(102)), Some((b"b".to_vec(), 8)));
        assert_eq!(guesses.take(0, 5, at(102)), None, "it is used");
        assert_eq!(guesses.take(1, 5, at(102)), Some((b"c".to_vec(), 9)));
        assert_eq!(guesses.take(1, 6, at(102)), None);
    }

    #[test]
    fn nothing_is_believed_for_long_and_no_number_of_a_bucket_that_others_wrote() {
        let mut guesses = Guesses::default();
        guesses.saw(0, 5, 7, at(100));
        assert_eq!(guess(&mut guesses, 100), None);
        assert_eq!(guess(&mut knowing(7), 109), Some(8));
        assert_eq!(guess(&mut knowing(7), 110), None);
        assert_eq!(guess(&mut knowing(7), 99), None);
        let mut guesses = knowing(7);
        guesses.wrote(0, 5, &mut b"b".to_vec(), at(101));
        assert_eq!(guesses.take(0, 5, at(111)), None);
        // A worker's own writes show nothing of other workers' writes: its known number could fall
        // behind by the whole range.
        let mut guesses = knowing(7);
        assert_eq!(guess(&mut guesses, 105), Some(8));
        assert_eq!(guess(&mut guesses, 109), Some(9));
        assert_eq!(guess(&mut guesses, 110), None);
    }

    #[test]
    fn what_is_kept_takes_no_more_than_it_is_long() {
        let mut guesses = knowing(7);
        let mut bytes = Vec::with_capacity(64 * MAX_LEN);
        bytes.extend_from_slice(b"b");
        guesses.wrote(0, 5, &mut bytes, at(100));
        assert!(bytes.capacity() >= 64 * MAX_LEN, "the buffer stays where it is used again");
        let (kept, _) = guesses.take(0, 5, at(100)).unwrap();
        assert!(kept.capacity() <= MAX_LEN, "{}", kept.capacity());
    }

    #[test]
    fn numbers_go_on_after_the_wrap_and_two_are_never_guessed() {
        let mut guesses = knowing(u32::MAX - 2);
        assert_eq!(guess(&mut guesses, 100), Some(u32::MAX - 1));
        assert_eq!(guess(&mut guesses, 100), None, "INSERT");
        assert_eq!(guess(&mut guesses, 100), None, "0");
        assert_eq!(guess(&mut guesses, 100), Some(1));
        guesses.saw(0, 5, u32::MAX - 1, at(100));
        assert_eq!(guess(&mut guesses, 100), Some(2), "an earlier number says nothing");
        guesses.saw(0, 5, 100, at(100));
        assert_eq!(guess(&mut guesses, 100), Some(101));
    }

    #[test]
    fn who_guesses_wrong_guesses_seldom_until_it_is_right_again() {
        let mut guesses = knowing(7);
        let mut tried = |wanted: bool| {
            let guessed = guess(&mut guesses, 100).is_some();
            if guessed {
                guesses.was(wanted);
            }
            guessed
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
        let mut guesses = knowing(7);
        let mut bytes = vec![0; MAX_LEN + 1];
        guesses.wrote(0, 5, &mut bytes, at(100));
        assert_eq!(bytes.len(), MAX_LEN + 1);
        assert_eq!(guesses.take(0, 5, at(100)), None);
        assert_eq!(guess(&mut guesses, 100), Some(9));
    }
}
