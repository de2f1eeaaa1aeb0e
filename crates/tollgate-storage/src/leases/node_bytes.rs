//! A node's holding as bytes, for a table that its workers share.
//!
//! Little-endian: the number of held leases `u8`, each number, units, spent, life and end, all
//! `u64`; the number of closed ones `u8`, each number, spent and the last request that contained
//! it, all `u64`; the request in flight (number, units, sent at, until when, zeros for none), when
//! closed leases are reported, until when no interval is used, the denied cost (cost, until when),
//! the current and the first interval, half of the time in which the burst grows back, the burst,
//! the end of quiet, and the demand (since when, now, before), each `u64`; then the last response:
//! the number of its quotas `u8`, and if there are any, its time and cost, and per quota how long
//! it denies, the remaining units and the time to its reset, all `u64`. Times are of the node's
//! monotonic clock, in nanoseconds.
//!
//! Invariant: written bytes are read as the same holding. Any bytes are accepted: the result is a
//! holding or `None`. Only the node itself can write them.

use alloc::vec::Vec;

use tollgate_core::{Span, Timestamp};

use crate::leases::account::LeaseReport;
use crate::leases::demand::Demand;
use crate::leases::last_answer::LastAnswer;
use crate::leases::node::{Asking, Closed, HeldLease, Holding, MAX_CLOSED, MAX_HELD};
use crate::leases::paces::Paces;
use crate::wire::{Reader, WireError};

impl Holding {
    /// Appends it to `out`: at most 355 bytes, and if it has a response, 16 more and 24 per quota.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(u8::try_from(self.held.len()).unwrap_or(u8::MAX));
        for held in &self.held {
            let (life, ends_at) = (held.life.as_nanos(), held.ends_at.as_nanos());
            write(&[held.number, held.units, held.spent, life, ends_at], out);
        }
        out.push(u8::try_from(self.closed.len()).unwrap_or(u8::MAX));
        for Closed { report, sent } in &self.closed {
            write(&[report.number, report.spent, *sent], out);
        }
        let asking = self.asking.unwrap_or_default();
        let Asking { number, want, asked_at, until } = asking;
        write(&[number, want, asked_at.as_nanos(), until.as_nanos()], out);
        write(&[self.report_at.as_nanos(), self.unpaced_until.as_nanos()], out);
        let (cost, until) = self.denied.unwrap_or_default();
        let quiet_until = self.quiet_until.as_nanos();
        let Paces { first, half, burst } = self.paces;
        let (first, half) = (first.as_nanos(), half.as_nanos());
        write(
            &[cost, until.as_nanos(), self.pace.as_nanos(), first, half, burst, quiet_until],
            out,
        );
        write(&[self.demand.from.as_nanos(), self.demand.now, self.demand.before], out);
        match &self.last {
            Some(last) => last.encode(out),
            None => out.push(0),
        }
    }

    /// Reads it; `None` for bytes that [`Holding::encode`] does not write.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        Self::read(Reader(bytes)).ok()
    }

    fn read(mut bytes: Reader<'_>) -> Result<Self, WireError> {
        let mut holding = Self::default();
        for _ in 0..count(&mut bytes, MAX_HELD)? {
            let [number, units, spent] = [bytes.u64()?, bytes.u64()?, bytes.u64()?];
            let life = Span::from_nanos(bytes.u64()?);
            let ends_at = Timestamp::from_nanos(bytes.u64()?);
            holding.held.push(HeldLease { number, units, spent, life, ends_at });
        }
        for _ in 0..count(&mut bytes, MAX_CLOSED)? {
            let (number, spent) = (bytes.u64()?, bytes.u64()?);
            let report = LeaseReport { number, spent, is_final: true };
            let sent = bytes.u64()?;
            holding.closed.push(Closed { report, sent });
        }
        let (number, want) = (bytes.u64()?, bytes.u64()?);
        let asked_at = Timestamp::from_nanos(bytes.u64()?);
        let until = Timestamp::from_nanos(bytes.u64()?);
        holding.asking = (number > 0).then_some(Asking { number, want, asked_at, until });
        holding.report_at = Timestamp::from_nanos(bytes.u64()?);
        holding.unpaced_until = Timestamp::from_nanos(bytes.u64()?);
        let denied = (bytes.u64()?, Timestamp::from_nanos(bytes.u64()?));
        holding.denied = (denied.1 > Timestamp::ZERO).then_some(denied);
        holding.pace = Span::from_nanos(bytes.u64()?);
        let (first, half, burst) = (bytes.u64()?, bytes.u64()?, bytes.u64()?);
        holding.paces =
            Paces { first: Span::from_nanos(first), half: Span::from_nanos(half), burst };
        holding.quiet_until = Timestamp::from_nanos(bytes.u64()?);
        let from = Timestamp::from_nanos(bytes.u64()?);
        holding.demand = Demand { from, now: bytes.u64()?, before: bytes.u64()? };
        holding.last = LastAnswer::read(&mut bytes)?;
        bytes.end()?;
        Ok(holding)
    }
}

fn write(numbers: &[u64], out: &mut Vec<u8>) {
    out.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
}

fn count(bytes: &mut Reader<'_>, most: usize) -> Result<u8, WireError> {
    let count = bytes.u8()?;
    if usize::from(count) > most { Err(WireError::Malformed) } else { Ok(count) }
}
