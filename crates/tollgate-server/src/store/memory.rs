//! The store in this process: a bounded table of counts, and the rules.
//!
//! Invariant: each call is one step. Deliberately absent: counts on disk.

use std::path::Path;
use std::sync::Arc;

use tollgate_core::Timestamp;
use tollgate_service::settle::Sealer;
use tollgate_service::{MemoryLimits, MemoryStore, StoreCall, StoreReply};

use crate::clock::Clock;
use crate::store::folder::OnDisk;
use crate::store::journal::{Journal, Opened};
use crate::store::request::{ClockKind, Name, NoReply, StoreRequest};
use crate::store::rules::Rules;
use crate::store::table::{Occupancy, Table, TableLimits, Times};

/// The store.
pub struct Memory {
    clock: Clock,
    table: Table,
    /// Derived from the table's seed: an id is valid as long as the counts are there.
    sealer: Option<Sealer>,
    rules: Arc<Rules<OnDisk>>,
    /// The reason that no change of the rules can be kept, since the start.
    unwritable: Option<String>,
}

/// The last byte of the name of a count by the wall clock; otherwise it is 0, because a hash has
/// half of the bytes.
const BY_WALL_CLOCK: u8 = 1;

/// Bytes of changes that are always kept before the file of rules is rewritten.
const LEAST_CHANGES: u64 = 4 << 20;

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Memory").field("held", &self.held()).finish_non_exhaustive()
    }
}

impl Memory {
    /// A store with the rules that are kept in the folder `data`, if one is named. `seed` is random
    /// and known only to this process.
    ///
    /// # Errors
    /// The reason that the folder cannot be used.
    pub fn open(
        clock: Clock,
        limits: TableLimits,
        seed: [u8; 16],
        data: Option<&Path>,
    ) -> Result<Self, String> {
        let of_rules = MemoryLimits::default();
        let (rules, unwritable) = match data {
            Some(path) => {
                let wrong = |why| format!("data: {}: {why}", path.display());
                let folder = OnDisk::open(path).map_err(wrong)?;
                let opened = Journal::open(folder, of_rules, LEAST_CHANGES).map_err(wrong)?;
                let Opened { journal, store, unwritable } = opened;
                (Rules::new(store, Some(journal)), unwritable.map(wrong))
            }
            None => (Rules::new(MemoryStore::new(of_rules), None), None),
        };
        let sealer = Sealer::new(&seed, b"memory");
        let (table, rules) = (Table::new(limits, seed), Arc::new(rules));
        Ok(Self { clock, table, sealer, rules, unwritable })
    }

    /// The reason that no change of the rules could be kept when the server began, if none could.
    #[must_use]
    pub fn unwritable(&self) -> Option<&str> {
        self.unwritable.as_deref()
    }

    /// The name contains the clock: a cost may be settled later, without its policy.
    pub(super) fn name_of(&self, key: &[u8], clock: ClockKind) -> Name {
        let mut name = self.table.name_of(key);
        if let (Some(last), ClockKind::Wall) = (name.last_mut(), clock) {
            *last = BY_WALL_CLOCK;
        }
        name
    }

    pub(super) const fn sealer(&self) -> Option<&Sealer> {
        self.sealer.as_ref()
    }

    pub(super) fn ask(&self, name: &Name, ask: StoreRequest<'_>) -> Result<Vec<u8>, NoReply> {
        // Leases may be granted from the start: leases of the previous process were of counts that
        // are gone with it, and are part of the cost of that loss.
        let by_wall_clock = name.last() == Some(&BY_WALL_CLOCK);
        let times = || {
            let table = self.clock.now();
            Times { table, key: if by_wall_clock { self.clock.wall() } else { table } }
        };
        let reply = self.table.step(name, times, |counts, now| match ask {
            StoreRequest::Check(request) => counts.answer(request, now),
            StoreRequest::Refund { request, reply } => counts.refund(request, reply, now),
            StoreRequest::Operate(request) => counts.operate(request, now),
            StoreRequest::InFlight(request) => counts.report_in_flight(request, now),
        });
        let unreadable =
            || NoReply::Unreadable("the stored counts are damaged; the key starts again".into());
        reply.map_err(|why| NoReply::Failed(why.to_string()))?.ok_or_else(unreadable)
    }

    pub(super) async fn rules(&self, call: &StoreCall) -> StoreReply {
        if let Some(reply) = self.rules.answer_at_once(call) {
            return reply;
        }
        // It waits for the disk, and so must not block requests.
        let (rules, call) = (Arc::clone(&self.rules), call.clone());
        let written = tokio::task::spawn_blocking(move || rules.answer(&call)).await;
        written.unwrap_or_else(|why| StoreReply::Failed(why.to_string()))
    }

    pub(super) fn tick(&self, number: usize, now: Timestamp) {
        self.table.sweep(number, now);
    }

    pub(super) fn held(&self) -> Occupancy {
        self.table.held()
    }
}
