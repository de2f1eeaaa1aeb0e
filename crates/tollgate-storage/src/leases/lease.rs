//! The leases of one quota set of a key, as stored in a row.
//!
//! In a row: the time from which units that are out fit `u64`, the awaited cost `u64` and until
//! when it is awaited `u64`, the number of leases that follow `u8`, then each in 52 bytes: the node
//! `u128`, the lease's number `u64`, its units `u64`, the reported units `u64`, its end in
//! nanoseconds `u64`, its life in milliseconds `u32`.
//!
//! Invariant: no lease has reported more than its units, and every stored lease has units left. Any
//! bytes are accepted: the result is such leases or an error.

use alloc::vec::Vec;

use tollgate_core::{Span, Timestamp};

use crate::wire::{Reader, WireError};

/// The most leases of one key; beyond this number nothing is leased, and every request asks the
/// authority. 6.6 KB of a row.
pub const MAX_LEASES: usize = 128;

/// The identity of a lease: its node, and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LeaseId {
    /// 128 random bits that the node's table received when it started. It is never a name, which a
    /// restarted node would have again.
    pub table: u128,
    /// Incremented by the node for every lease that it requests.
    pub number: u64,
}

/// Units that a node may spend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lease {
    pub(crate) id: LeaseId,
    pub(crate) units: u64,
    pub(crate) reported: u64,
    pub(crate) ends_at: Timestamp,
    pub(crate) life: Span,
}

/// The leases of one quota set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Leases {
    /// The soonest end first.
    pub(crate) all: Vec<Lease>,
    /// The key's time at its last request: units that are out fit from then on.
    pub(crate) since: Timestamp,
    /// A direct cost that did not fit in addition to the units that are out: nothing is leased
    /// until its time, or until it is met.
    pub(crate) awaited: Option<Awaited>,
}

/// A cost that is too large in addition to the units that are out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Awaited {
    pub(crate) cost: u64,
    pub(crate) until: Timestamp,
}

/// Bytes of a lease, and of the head before the leases of a set.
const LEASE_LEN: usize = 52;
const HEAD_LEN: usize = 25;

impl Lease {
    /// Units that may have been spent without a report.
    pub(crate) const fn out(&self) -> u64 {
        self.units.saturating_sub(self.reported)
    }
}

impl Leases {
    /// Units that are leased and not yet reported.
    pub(crate) fn out(&self) -> u64 {
        self.all.iter().fold(0, |sum, lease| sum.saturating_add(lease.out()))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty() && self.awaited.is_none()
    }

    pub(crate) fn find(&mut self, id: LeaseId) -> Option<&mut Lease> {
        self.all.iter_mut().find(|lease| lease.id == id)
    }

    pub(crate) fn insert(&mut self, lease: Lease) {
        let place = self.all.partition_point(|other| other.ends_at <= lease.ends_at);
        self.all.insert(place, lease);
    }

    /// How many nodes hold a lease, including `table`.
    pub(crate) fn nodes_with(&self, table: u128) -> u64 {
        let is_first = |(i, lease): &(usize, &Lease)| {
            let before = self.all.iter().take(*i);
            lease.id.table != table
                && before.filter(|other| other.id.table == lease.id.table).count() == 0
        };
        let others = self.all.iter().enumerate().filter(is_first).count();
        u64::try_from(others).unwrap_or(u64::MAX).saturating_add(1)
    }

    /// Bytes that they take in a row.
    pub(crate) fn len(&self) -> usize {
        self.all.len().saturating_mul(LEASE_LEN).saturating_add(HEAD_LEN)
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let (cost, until) =
            self.awaited.map_or((0, 0), |awaited| (awaited.cost, awaited.until.as_nanos()));
        out.extend(self.since.as_nanos().to_le_bytes());
        out.extend(cost.to_le_bytes());
        out.extend(until.to_le_bytes());
        // At most MAX_LEASES in a row.
        out.push(u8::try_from(self.all.len()).unwrap_or(u8::MAX));
        for lease in &self.all {
            out.extend(lease.id.table.to_le_bytes());
            for number in [lease.id.number, lease.units, lease.reported, lease.ends_at.as_nanos()] {
                out.extend(number.to_le_bytes());
            }
            // At most MAX_LEASE_LIFE.
            let life_ms = u32::try_from(lease.life.as_millis_ceil()).unwrap_or(u32::MAX);
            out.extend(life_ms.to_le_bytes());
        }
    }

    pub(crate) fn read(row: &mut Reader<'_>) -> Result<Self, WireError> {
        let since = Timestamp::from_nanos(row.u64()?);
        let (cost, until) = (row.u64()?, Timestamp::from_nanos(row.u64()?));
        let awaited = (until > Timestamp::ZERO).then_some(Awaited { cost, until });
        let mut leases = Self { awaited, since, ..Self::default() };
        let count = row.u8()?;
        if usize::from(count) > MAX_LEASES {
            return Err(WireError::Malformed);
        }
        for _ in 0..count {
            let id = LeaseId { table: row.u128()?, number: row.u64()? };
            let (units, reported) = (row.u64()?, row.u64()?);
            let ends_at = Timestamp::from_nanos(row.u64()?);
            let life = Span::from_millis(row.u32()?.into());
            if reported >= units || leases.find(id).is_some() {
                return Err(WireError::Malformed);
            }
            leases.insert(Lease { id, units, reported, ends_at, life });
        }
        Ok(leases)
    }
}
