//! The part of a request that concerns the leases of one key, and its reply. It accompanies an
//! ordinary request, whose costs are direct ones.
//!
//! All numbers are little-endian. Request: `LEASES`; the node `u128`; the number of quota sets
//! that follow `u8`, then per set: its stable identity `u64`, the number of the requested lease
//! `u64`, the wanted units `u64` (0: none), the fewest useful units `u64`, the life in milliseconds
//! `u32`, the number of reports that follow `u8`, each the lease's number `u64`, the running total
//! of spent units `u64`, and 1 if that is final `u8`. Then the ordinary request (`wire`).
//!
//! Reply: `LEASED`, the number of sets `u8`, per set the leased units `u64`, the life in
//! milliseconds `u32`, and the reason if there are none `u8`; then the ordinary reply. The reply to
//! a request with an older policy has only the ordinary part.
//!
//! Invariant: a number is used for one request only, so a repeated message leases once. A node that
//! requests again counts the life from then, and takes another number.

use alloc::vec::Vec;

use tollgate_core::Span;

use crate::leases::account::{LeaseReport, NoLease};
use crate::wire::{LEASED, LEASES, Reader, WireError};

/// The most quota sets in one request. A node includes no more in one message, for all of its keys
/// together, so that the response has room for up to 16 decisions each.
pub const MAX_LEASE_SETS: usize = 64;
/// The most reports per set in one request: of a lease being spent, one still to come, and those
/// whose end is not confirmed.
pub const MAX_LEASE_REPORTS: usize = 8;

/// The lease part of a node's request for one key, in addition to an ordinary request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Leasing {
    /// See [`LeaseId::table`](crate::LeaseId::table).
    pub table: u128,
    /// At most [`MAX_LEASE_SETS`].
    pub sets: Vec<LeaseAsk>,
}

/// The part for one quota set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaseAsk {
    /// `QuotaSet::stable_id`.
    pub set: u64,
    /// The number of the requested lease: never one that was used before.
    pub number: u64,
    /// Wanted units, 0 for none.
    pub want: u64,
    /// The fewest useful units: the cost of one request.
    pub least: u64,
    /// The requested life: whole milliseconds, at most [`MAX_LEASE_LIFE`](crate::MAX_LEASE_LIFE).
    pub life: Span,
    /// At most [`MAX_LEASE_REPORTS`].
    pub reports: Vec<LeaseReport>,
}

/// The lease granted for one quota set.
pub type Leased = Result<LeaseGrant, NoLease>;

/// Units that the node may spend until `life` after its request, less the possible slowness of its
/// clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseGrant {
    /// The number of units.
    pub units: u64,
    /// Their life, in whole milliseconds.
    pub life: Span,
}

impl Leasing {
    /// Appends it to `out`; the ordinary request follows, or its head without rules when there is
    /// no direct request.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend(LEASES);
        out.extend(self.table.to_le_bytes());
        let sets = || self.sets.iter().take(MAX_LEASE_SETS);
        out.push(u8::try_from(sets().count()).unwrap_or(u8::MAX));
        for ask in sets() {
            ask.write(out);
        }
    }

    /// The lease part of `request`, if it has one, and the ordinary request in it.
    pub(crate) fn split(request: &[u8]) -> Result<(Option<Self>, &[u8]), WireError> {
        let Some(bytes) = request.strip_prefix(&LEASES) else { return Ok((None, request)) };
        let mut bytes = Reader(bytes);
        let mut leasing = Self { table: bytes.u128()?, sets: Vec::new() };
        let sets = bytes.u8()?;
        if usize::from(sets) > MAX_LEASE_SETS {
            return Err(WireError::Malformed);
        }
        for _ in 0..sets {
            leasing.sets.push(LeaseAsk::read(&mut bytes)?);
        }
        Ok((Some(leasing), bytes.0))
    }
}

impl LeaseAsk {
    /// Appends it to a message.
    pub fn write(&self, out: &mut Vec<u8>) {
        for number in [self.set, self.number, self.want, self.least] {
            out.extend(number.to_le_bytes());
        }
        let life_ms = u32::try_from(self.life.as_millis_ceil()).unwrap_or(u32::MAX);
        out.extend(life_ms.to_le_bytes());
        let reports = || self.reports.iter().take(MAX_LEASE_REPORTS);
        out.push(u8::try_from(reports().count()).unwrap_or(u8::MAX));
        for report in reports() {
            out.extend(report.number.to_le_bytes());
            out.extend(report.spent.to_le_bytes());
            out.push(report.is_final.into());
        }
    }

    /// The part of `leased` that a node accepts: no more than it requested, whatever an authority
    /// sends. Otherwise a hostile or faulty authority could make it spend without limit.
    ///
    /// # Errors
    /// Nothing was leased, or nothing was requested.
    pub fn within(&self, leased: Leased) -> Leased {
        let LeaseGrant { units, life } = leased?;
        if self.want == 0 {
            return Err(NoLease::Unasked);
        }
        Ok(LeaseGrant { units: units.min(self.want), life: life.min(self.life) })
    }

    pub(crate) fn read(bytes: &mut Reader<'_>) -> Result<Self, WireError> {
        let [set, number, want, least] = [bytes.u64()?, bytes.u64()?, bytes.u64()?, bytes.u64()?];
        let life = Span::from_millis(bytes.u32()?.into());
        let mut ask = Self { set, number, want, least, life, reports: Vec::new() };
        let reports = bytes.u8()?;
        if usize::from(reports) > MAX_LEASE_REPORTS {
            return Err(WireError::Malformed);
        }
        for _ in 0..reports {
            let (number, spent) = (bytes.u64()?, bytes.u64()?);
            let is_final = match bytes.u8()? {
                0 => false,
                1 => true,
                _ => return Err(WireError::Malformed),
            };
            ask.reports.push(LeaseReport { number, spent, is_final });
        }
        Ok(ask)
    }
}

/// The leases for each set of a request, and the ordinary reply after them; no leases if it has
/// only that reply.
///
/// # Errors
/// The bytes are not a reply to a request about leases.
pub fn read_leased(reply: &[u8]) -> Result<(Vec<Leased>, &[u8]), WireError> {
    let Some((&LEASED, bytes)) = reply.split_first() else { return Ok((Vec::new(), reply)) };
    let mut bytes = Reader(bytes);
    let sets = bytes.u8()?;
    if usize::from(sets) > MAX_LEASE_SETS {
        return Err(WireError::Malformed);
    }
    let mut leased = Vec::new();
    for _ in 0..sets {
        let (units, life) = (bytes.u64()?, Span::from_millis(bytes.u32()?.into()));
        leased.push(match bytes.u8()? {
            0 if units > 0 => Ok(LeaseGrant { units, life }),
            0 => return Err(WireError::Malformed),
            why => Err(NoLease::of(why)?),
        });
    }
    Ok((leased, bytes.0))
}

impl NoLease {
    /// All of them, by their numbers, starting at 1.
    const ALL: [Self; 7] = [
        Self::Unasked,
        Self::NearLimit,
        Self::TooMany,
        Self::Awaited,
        Self::Unsteady,
        Self::Refused,
        Self::Unleasable,
    ];

    fn of(number: u8) -> Result<Self, WireError> {
        let place = usize::from(number).checked_sub(1);
        place.and_then(|i| Self::ALL.get(i)).copied().ok_or(WireError::Malformed)
    }

    pub(crate) fn number(self) -> u8 {
        let place = Self::ALL.iter().position(|why| *why == self).unwrap_or(0);
        u8::try_from(place).unwrap_or(0).saturating_add(1)
    }
}

/// Appends the leases to a reply.
pub(crate) fn write_leased(leased: &[Leased], out: &mut Vec<u8>) {
    out.push(LEASED);
    out.push(u8::try_from(leased.len()).unwrap_or(u8::MAX));
    for leased in leased {
        let (units, life, why) = match leased {
            Ok(grant) => (grant.units, grant.life, 0),
            Err(why) => (0, Span::ZERO, why.number()),
        };
        out.extend(units.to_le_bytes());
        out.extend(u32::try_from(life.as_millis_ceil()).unwrap_or(u32::MAX).to_le_bytes());
        out.push(why);
    }
}
