//! A row: everything that one key has used, as bytes that say by themselves what they mean.
//!
//! Invariant: any bytes are read as counts or as `None`. What is idle is not written, so a row does
//! not grow with rules that are gone; nothing is told apart by its place.
//!
//! | bytes | what (all numbers little-endian) |
//! |---|---|
//! | 1 | 2, the format |
//! | 8 | identity of the key's group of rules |
//! | 8 | the alarm that is set, nanoseconds since 1970 |
//! | 8 | the newest version of the policy that was seen |
//! | 1 | how many marks of an operator follow, of 24 bytes: a rule's stable identity, until when it blocks the key and when it was reset, nanoseconds, or 0 |
//! | n | the sets: the parameters ([`StoredSet`]), the length of the states `u32`, the states; of one rule and tier at most two, then the second is what other quotas had counted before |

use alloc::boxed::Box;
use alloc::vec::Vec;

use tollgate_core::Timestamp;

use crate::pipeline::remote::counts::Counts;
use crate::pipeline::remote::kept::Kept;
use crate::pipeline::remote::marks::{MAX_MARKS, Mark};
use crate::pipeline::remote::wire::{Reader, WireError};
use crate::policy::stored_set::StoredSet;

/// The format of a row.
const FORMAT: u8 = 2;

impl Counts {
    /// Appends the row to `out`, without what is idle at `now`.
    pub fn encode(&self, now: Timestamp, out: &mut Vec<u8>) {
        let len = self.sets.iter().fold(64_usize, |sum, kept| sum.saturating_add(kept.len()));
        out.reserve(len);
        out.push(FORMAT);
        out.extend(self.group.to_le_bytes());
        out.extend(self.alarm_at.as_nanos().to_le_bytes());
        out.extend(self.version.to_le_bytes());
        let marks = || self.marks.iter().filter(|mark| mark.idle_at() > now).take(MAX_MARKS);
        out.push(u8::try_from(marks().count()).unwrap_or(u8::MAX));
        for mark in marks() {
            out.extend(mark.rule.to_le_bytes());
            out.extend(mark.blocked_until.as_nanos().to_le_bytes());
            out.extend(mark.reset_at.as_nanos().to_le_bytes());
        }
        for kept in self.sets.iter().flat_map(|kept| kept.live(now)) {
            out.extend_from_slice(&kept.parameters);
            // States of one set are far below 4 GiB: 16 quotas of 8,200 bytes at the most.
            out.extend(u32::try_from(kept.states.len()).unwrap_or(u32::MAX).to_le_bytes());
            out.extend_from_slice(&kept.states);
        }
    }

    /// The counts in a row; `None` when nobody wrote these bytes.
    #[must_use]
    pub fn decode(row: &[u8]) -> Option<Self> {
        Self::read(Reader(row)).ok()
    }

    fn read(mut row: Reader<'_>) -> Result<Self, WireError> {
        if row.u8()? != FORMAT {
            return Err(WireError::Malformed);
        }
        let group = row.u64()?;
        let alarm_at = Timestamp::from_nanos(row.u64()?);
        let version = row.u64()?;
        let mut counts = Self { group, alarm_at, version, ..Self::default() };
        for _ in 0..row.u8()? {
            let rule = row.u64()?;
            let blocked_until = Timestamp::from_nanos(row.u64()?);
            let reset_at = Timestamp::from_nanos(row.u64()?);
            counts.marks.push(Mark { rule, blocked_until, reset_at });
        }
        while !row.0.is_empty() {
            let set = StoredSet::read(&mut row.0).ok_or(WireError::Malformed)?;
            let len = usize::try_from(row.u32()?).map_err(|_| WireError::Malformed)?;
            let stored = row.bytes(len)?;
            let states = set.current_states(stored).ok_or(WireError::Malformed)?.into_owned();
            let read = Kept::new(set.in_current_layout(), states);
            match counts.kept(read.stable_id()) {
                None => counts.sets.push(read),
                Some(kept) if kept.before.is_none() => kept.before = Some(Box::new(read)),
                Some(_) => return Err(WireError::Malformed),
            }
        }
        Ok(counts)
    }
}
