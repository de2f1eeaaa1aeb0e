//! The store in this process: a bounded table of counts, and the rules.
//!
//! Invariant: each call is one step. What is written of rules is in the journal, if there is one,
//! before it is answered; whoever reads meanwhile may see it already. Deliberately absent: counts
//! on disk.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use tollgate_core::Timestamp;
use tollgate_policy::{self as policy, CLOCK_ERROR};
use tollgate_service::settle::Sealer;
use tollgate_service::{MemoryLimits, MemoryStore, PolicyCall, StoreCall, StoreReply, TenantCall};

use crate::clock::Clock;
use crate::store::ask::{Ask, Name, NoReply};
use crate::store::journal::Journal;
use crate::store::table::{Held, Table, TableLimits};

/// The store.
pub struct Memory {
    clock: Clock,
    table: Table,
    /// Of the table's seed: an id is worth something as long as the counts are there.
    sealer: Option<Sealer>,
    rules: Arc<Rules>,
}

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Memory").field("held", &self.held()).finish_non_exhaustive()
    }
}

/// The rules, and where they are kept, if they are.
#[derive(Debug)]
struct Rules {
    store: Mutex<MemoryStore>,
    /// Locked before the store by whoever writes.
    journal: Option<Mutex<Journal>>,
}

impl Memory {
    /// One with the rules that are kept in the folder `data`, if one is named. `seed` is random and
    /// known to nobody else.
    ///
    /// # Errors
    /// Why the folder cannot be used.
    pub fn open(
        clock: Clock,
        limits: TableLimits,
        seed: [u8; 16],
        data: Option<&Path>,
    ) -> Result<Self, String> {
        let of_rules = MemoryLimits::default();
        let (journal, store) = match data {
            Some(folder) => {
                let (journal, store) = Journal::open(folder, of_rules)?;
                (Some(Mutex::new(journal)), store)
            }
            None => (None, MemoryStore::new(of_rules)),
        };
        let rules = Arc::new(Rules { store: Mutex::new(store), journal });
        let sealer = Sealer::new(&seed, b"memory");
        Ok(Self { clock, table: Table::new(limits, seed), sealer, rules })
    }

    pub(super) fn name_of(&self, key: &[u8]) -> Name {
        self.table.name_of(key)
    }

    pub(super) const fn sealer(&self) -> Option<&Sealer> {
        self.sealer.as_ref()
    }

    pub(super) fn ask(&self, name: &Name, ask: Ask<'_>) -> Result<Vec<u8>, NoReply> {
        // What another process had leased before this one began, nobody knows here.
        let steady_since = self.clock.began();
        let at = |now| policy::Clock { now, steady_since, error: CLOCK_ERROR };
        let reply = self.table.step(name, &self.clock, |counts, now| match ask {
            Ask::Check(request) => counts.answer(request, at(now)),
            Ask::Refund { request, reply } => counts.refund(request, reply, at(now)),
            Ask::Operate(request) => counts.operate(request, at(now)),
        });
        reply.map(Option::unwrap_or_default).map_err(|why| NoReply::Failed(why.to_string()))
    }

    pub(super) async fn rules(&self, call: &StoreCall) -> StoreReply {
        if self.rules.journal.is_none() || is_read(call) {
            return self.rules.step(call);
        }
        // It waits for the disk, and so not in the way of requests.
        let (rules, call) = (Arc::clone(&self.rules), call.clone());
        let written = tokio::task::spawn_blocking(move || rules.write(&call)).await;
        written.unwrap_or_else(|why| StoreReply::Failed(why.to_string()))
    }

    pub(super) fn tick(&self, number: usize, now: Timestamp) {
        self.table.sweep(number, now);
    }

    pub(super) fn held(&self) -> Held {
        self.table.held()
    }
}

/// True for what changes nothing, or is no matter of rules.
const fn is_read(call: &StoreCall) -> bool {
    match call {
        // The first read with a file numbers it.
        StoreCall::Policy(
            PolicyCall::Read { .. } | PolicyCall::Change(_) | PolicyCall::NoteKey(_),
        ) => false,
        StoreCall::Tenants(TenantCall::Put { .. } | TenantCall::Delete { .. }) => false,
        StoreCall::Policy(
            PolicyCall::History { .. } | PolicyCall::KeyHistory { .. } | PolicyCall::Version { .. },
        )
        | StoreCall::Tenants(TenantCall::Get { .. } | TenantCall::List { .. })
        | StoreCall::Keys(_)
        | StoreCall::Metrics(_) => true,
    }
}

impl Rules {
    fn step(&self, call: &StoreCall) -> StoreReply {
        let mut store = self.store.lock().unwrap_or_else(PoisonError::into_inner);
        let failed = || StoreReply::Failed("it is no matter of rules".to_owned());
        store.answer(call).unwrap_or_else(failed)
    }

    fn write(&self, call: &StoreCall) -> StoreReply {
        let Some(journal) = &self.journal else { return self.step(call) };
        let mut journal = journal.lock().unwrap_or_else(PoisonError::into_inner);
        let changes = || self.store.lock().unwrap_or_else(PoisonError::into_inner).changes();
        let before = changes();
        let reply = self.step(call);
        if changes() == before {
            return reply;
        }
        // Nobody else writes meanwhile: whoever does holds the journal.
        let all = || self.store.lock().unwrap_or_else(PoisonError::into_inner).to_json();
        journal.append(call, all).map_or_else(StoreReply::Failed, |()| reply)
    }
}
