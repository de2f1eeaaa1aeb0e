//! A row: the usage of one key, as bytes that contain all information needed to read them.
//!
//! Invariant: any bytes are accepted: the result is counts or `None`. Idle sets are not written, so
//! a row does not grow with rules that no longer exist. Sets are identified by their content, never
//! by their position.
//!
//! | bytes | content (all numbers little-endian) |
//! |---|---|
//! | 1 | 2, the format; 3 if costs were settled recently; 4 if units are leased; 5 if requests in flight ended recently |
//! | 8 | identity of the key's group of rules |
//! | 8 | the alarm that is set, nanoseconds since 1970 |
//! | 8 | the newest version of the policy that was seen |
//! | 10 | in formats 3 to 5: the time up to which nothing is refunded, nanoseconds, and the number of settled costs that follow, of 32 bytes: the number of the request, when it was charged, nanoseconds, the cost, the charged units |
//! | 10 | in format 5: the time until which the requests in flight are known that have ended, nanoseconds, and the number of their numbers, `u64`, that follow |
//! | 1 | the number of an operator's marks that follow, of 24 bytes: a rule's stable identity, until when it blocks the key and when it was reset, nanoseconds, or 0 |
//! | n | the sets: the parameters ([`StoredSet`]), the length of the states `u32`, the states, in formats 4 and 5 the leases (`leases::lease`); at most two per rule and tier, the second with the usage that other quotas had counted before |

use alloc::boxed::Box;
use alloc::vec::Vec;

use tollgate_core::Timestamp;

use crate::counted_set::CountedSet;
use crate::counts::Counts;
use crate::leases::lease::{Leases, MAX_LEASES};
use crate::marks::{MAX_MARKS, Mark};
use crate::released::{MAX_RELEASED, ReleasedRequests};
use crate::settled::{MAX_SETTLED, Settled, SettledCosts};
use crate::stored_set::StoredSet;
use crate::wire::{Reader, WireError};

/// The formats of a row: a later one is written only when its additional content is not empty,
/// because earlier code would discard the whole row.
const FORMAT: u8 = 2;
const WITH_SETTLED: u8 = 3;
const WITH_LEASES: u8 = 4;
const WITH_RELEASED: u8 = 5;

impl Counts {
    /// Appends the row to `out`, without the sets that are idle at `now`.
    pub fn encode(&self, now: Timestamp, out: &mut Vec<u8>) {
        let len = self.sets.iter().fold(64_usize, |sum, kept| sum.saturating_add(kept.len()));
        out.reserve(len);
        let is_settled = self.settled.idle_at() > now;
        let is_leased = self.sets.iter().any(|kept| !kept.leases.is_empty() && !kept.is_idle(now));
        let is_released = self.released.idle_at() > now;
        let is_leased = is_leased || is_released;
        out.push(match (is_released, is_leased, is_settled) {
            (true, _, _) => WITH_RELEASED,
            (false, true, _) => WITH_LEASES,
            (false, false, true) => WITH_SETTLED,
            (false, false, false) => FORMAT,
        });
        out.extend(self.group.to_le_bytes());
        out.extend(self.alarm_at.as_nanos().to_le_bytes());
        out.extend(self.version.to_le_bytes());
        if is_leased || is_settled {
            self.settled.encode(out);
        }
        if is_released {
            self.released.encode(out);
        }
        let marks = || self.marks.iter().filter(|mark| mark.idle_at() > now).take(MAX_MARKS);
        out.push(u8::try_from(marks().count()).unwrap_or(u8::MAX));
        for mark in marks() {
            out.extend(mark.rule.to_le_bytes());
            out.extend(mark.blocked_until.as_nanos().to_le_bytes());
            out.extend(mark.reset_at.as_nanos().to_le_bytes());
        }
        for kept in self.sets.iter().flat_map(|kept| kept.live(now)) {
            out.extend_from_slice(&kept.quotas.parameters);
            // States of one set are far below 4 GiB: at most 16 quotas of 8,200 bytes.
            out.extend(u32::try_from(kept.states.len()).unwrap_or(u32::MAX).to_le_bytes());
            out.extend_from_slice(&kept.states);
            if is_leased {
                kept.leases.encode(out);
            }
        }
    }

    /// The counts in a row; `None` for bytes that are not a row.
    #[must_use]
    pub fn decode(row: &[u8]) -> Option<Self> {
        Self::read(Reader(row)).ok()
    }

    fn read(mut row: Reader<'_>) -> Result<Self, WireError> {
        let format = row.u8()?;
        if !matches!(format, FORMAT | WITH_SETTLED | WITH_LEASES | WITH_RELEASED) {
            return Err(WireError::Malformed);
        }
        let group = row.u64()?;
        let alarm_at = Timestamp::from_nanos(row.u64()?);
        let version = row.u64()?;
        let mut counts = Self { group, alarm_at, version, ..Self::default() };
        if format != FORMAT {
            counts.settled = SettledCosts::read(&mut row)?;
        }
        if format == WITH_RELEASED {
            counts.released = ReleasedRequests::read(&mut row)?;
        }
        for _ in 0..row.u8()? {
            let rule = row.u64()?;
            let blocked_until = Timestamp::from_nanos(row.u64()?);
            let reset_at = Timestamp::from_nanos(row.u64()?);
            counts.marks.push(Mark { rule, blocked_until, reset_at });
        }
        let mut leased = 0_usize;
        while !row.0.is_empty() {
            let set = StoredSet::read(&mut row.0).ok_or(WireError::Malformed)?;
            let len = usize::try_from(row.u32()?).map_err(|_| WireError::Malformed)?;
            let stored = row.bytes(len)?;
            let states = set.current_states(stored).ok_or(WireError::Malformed)?.into_owned();
            let mut read = CountedSet::new(set.in_current_layout(), states);
            if matches!(format, WITH_LEASES | WITH_RELEASED) {
                read.leases = Leases::read(&mut row)?;
                leased = leased.saturating_add(read.leases.all.len());
            }
            match counts.kept(read.stable_id()) {
                None => counts.sets.push(read),
                Some(kept) if kept.before.is_none() => kept.before = Some(Box::new(read)),
                Some(_) => return Err(WireError::Malformed),
            }
        }
        if leased > MAX_LEASES {
            return Err(WireError::Malformed);
        }
        Ok(counts)
    }
}

impl SettledCosts {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend(self.kept_until.as_nanos().to_le_bytes());
        // At most MAX_SETTLED.
        out.extend(u16::try_from(self.all.len()).unwrap_or(u16::MAX).to_le_bytes());
        for Settled { id, charged_at, cost, charged } in &self.all {
            for number in [*id, charged_at.as_nanos(), *cost, *charged] {
                out.extend(number.to_le_bytes());
            }
        }
    }

    fn read(row: &mut Reader<'_>) -> Result<Self, WireError> {
        let mut costs = Self { kept_until: Timestamp::from_nanos(row.u64()?), ..Self::default() };
        let count = row.u16()?;
        if usize::from(count) > MAX_SETTLED {
            return Err(WireError::Malformed);
        }
        for _ in 0..count {
            let (id, charged_at) = (row.u64()?, Timestamp::from_nanos(row.u64()?));
            let settled = Settled { id, charged_at, cost: row.u64()?, charged: row.u64()? };
            if costs.all.last().is_some_and(|before| before.charged_at > charged_at) {
                return Err(WireError::Malformed);
            }
            costs.all.push(settled);
        }
        Ok(costs)
    }
}

impl ReleasedRequests {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend(self.until.as_nanos().to_le_bytes());
        // At most MAX_RELEASED.
        out.extend(u16::try_from(self.numbers.len()).unwrap_or(u16::MAX).to_le_bytes());
        out.extend(self.numbers.iter().flat_map(|number| number.to_le_bytes()));
    }

    fn read(row: &mut Reader<'_>) -> Result<Self, WireError> {
        let (until, count) = (Timestamp::from_nanos(row.u64()?), row.u16()?);
        if usize::from(count) > MAX_RELEASED {
            return Err(WireError::Malformed);
        }
        let numbers = (0..count).map(|_| row.u64()).collect::<Result<_, _>>()?;
        Ok(Self { until, numbers })
    }
}
