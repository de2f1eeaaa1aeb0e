//! A store of rules in memory: for a server without another store, and for tests.
//!
//! Invariant: a [`StoreCall`] means the same as in every store, and each call is one step. Its
//! memory is bounded ([`MemoryLimits`]). Deliberately absent: counters; calls on keys and metrics
//! go to the service that decides requests.

pub(crate) mod policies;
pub(crate) mod tenants;
pub(crate) mod limits;

use alloc::string::String;

use serde::{Deserialize, Serialize};

use self::limits::MemoryLimits;
use self::policies::Policies;
use self::tenants::Tenants;
use crate::store::{StoreCall, StoreReply};

/// A store of rules in memory.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct MemoryStore {
    policies: Policies,
    tenants: Tenants,
}

impl MemoryStore {
    /// An empty store.
    #[must_use]
    pub fn new(limits: MemoryLimits) -> Self {
        Self { policies: Policies::new(limits), tenants: Tenants::new(limits) }
    }

    /// True when [`MemoryStore::answer`] would change something. A store that also keeps its
    /// changes elsewhere asks this first, keeps the call there, and then carries it out.
    #[must_use]
    pub fn would_change(&self, call: &StoreCall) -> bool {
        match call {
            StoreCall::Policy(call) => self.policies.would_change(call),
            StoreCall::Tenants(call) => self.tenants.would_change(call),
            StoreCall::Keys(_) | StoreCall::Usage(_) | StoreCall::Metrics(_) => false,
        }
    }

    /// Carries out a change that was kept elsewhere, as [`StoreCall::to_json`] wrote it.
    ///
    /// # Errors
    /// The reason that it is not a change of this store, in words; nothing is changed then.
    pub fn replay(&mut self, json: &[u8]) -> Result<(), &'static str> {
        let call = StoreCall::from_json(json).ok_or("is not a change that this version knows")?;
        if !self.would_change(&call) {
            return Err("does not apply to the changes before it");
        }
        self.answer(&call);
        Ok(())
    }

    /// All of it as JSON, on one line.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// The store that [`MemoryStore::to_json`] wrote, within these limits from now on; `None` when
    /// it is not a store, or one of a later version.
    #[must_use]
    pub fn from_json(limits: MemoryLimits, json: &str) -> Option<Self> {
        let mut store: Self = serde_json::from_str(json).ok()?;
        store.policies.set_limits(limits);
        store.tenants.set_limits(limits);
        Some(store)
    }

    /// Carries out `call`; `None` when it is not about rules: keys and metrics.
    pub fn answer(&mut self, call: &StoreCall) -> Option<StoreReply> {
        let (before, would_change) = (self.changes(), self.would_change(call));
        let reply = match call {
            StoreCall::Policy(call) => StoreReply::Policy(self.policies.answer(call)),
            StoreCall::Tenants(call) => StoreReply::Tenants(self.tenants.answer(call)),
            StoreCall::Keys(_) | StoreCall::Usage(_) | StoreCall::Metrics(_) => return None,
        };
        debug_assert_eq!(would_change, self.changes() != before, "{call:?}");
        Some(reply)
    }

    /// Greater after each change, and the same after a call that only reads.
    fn changes(&self) -> u64 {
        self.policies.changes().saturating_add(self.tenants.changes())
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;
    use crate::store::key_history::KeyRow;
    use crate::store::policy::{Change, Deployed, NewPolicy, PolicyCall, Row};
    use crate::store::tenants::{Expect, TenantCall};
    use proptest::prelude::*;
    use proptest::test_runner::RngSeed;

    fn limits() -> MemoryLimits {
        MemoryLimits { versions: 3, text_bytes: 12, tenants: 2 }
    }

    fn row() -> Row {
        let summary = r#"{"added":[],"removed":[],"changed":[],"settings":[],"more":0}"#;
        let json = r#"{"at_ms":1,"kind":"put","actor":null,"summary":SUMMARY}"#;
        Row::from_json(&json.replace("SUMMARY", summary)).expect("a row")
    }

    fn key_row() -> KeyRow {
        let change = r#"{"rule":"r","tenant":null,"pk":1,"before":"","after":""}"#;
        let json = r#"{"at_ms":1,"act":"reset","actor":null,"change":CHANGE}"#;
        serde_json::from_str(&json.replace("CHANGE", change)).expect("a row")
    }

    fn tenant() -> impl Strategy<Value = TenantCall> {
        let id = || "[abc]";
        let expect = prop_oneof![
            Just(Expect::Nothing),
            Just(Expect::Anything),
            (0..6_u64).prop_map(|revision| Expect::Revisions([revision].into())),
        ];
        prop_oneof![
            id().prop_map(|id| TenantCall::Get { id }),
            (id(), "[x-z]{0,3}", expect.clone()).prop_map(|(id, entry, expect)| TenantCall::Put {
                id,
                entry,
                expect
            }),
            (id(), expect).prop_map(|(id, expect)| TenantCall::Delete { id, expect }),
            Just(TenantCall::List { after: None, limit: 2 }),
        ]
    }

    fn policy() -> impl Strategy<Value = PolicyCall> {
        let deployed = || {
            (0..3_u64, proptest::option::of("[a-c]{0,9}"))
                .prop_map(|(fingerprint, text)| Deployed { fingerprint, text })
        };
        let new = prop_oneof![
            "[a-c]{0,9}".prop_map(NewPolicy::Written),
            deployed().prop_map(NewPolicy::Deployed),
        ];
        let seen = proptest::option::of(prop_oneof![0..9_u64, Just(u64::MAX)]);
        prop_oneof![
            (deployed(), seen).prop_map(|(deployed, seen)| {
                PolicyCall::Read { deployed, known: None, seen, now_ms: 1 }
            }),
            (0..9_u64, 0..3_u64, new).prop_map(|(expects, deployed, policy)| {
                PolicyCall::Change(Change { expects, deployed, policy, row: row() })
            }),
            Just(PolicyCall::History { before: None, limit: 3 }),
            Just(PolicyCall::NoteKey(key_row())),
            Just(PolicyCall::KeyHistory { before: None, limit: 3 }),
            (0..5_u64).prop_map(|number| PolicyCall::Version { number }),
        ]
    }

    fn config() -> ProptestConfig {
        let rng_seed = RngSeed::Fixed(21);
        ProptestConfig { failure_persistence: None, rng_seed, ..ProptestConfig::default() }
    }

    fn call() -> impl Strategy<Value = StoreCall> {
        prop_oneof![tenant().prop_map(StoreCall::Tenants), policy().prop_map(StoreCall::Policy)]
    }

    proptest! {
        #![proptest_config(config())]

        /// Guards: a change whose reply reports success and that is not kept, and a kept change
        /// that is not made again.
        #[test]
        fn what_would_change_changes_and_the_changes_alone_make_the_same_store(
            calls in proptest::collection::vec(call(), 0..60),
        ) {
            let (mut store, mut changes) = (MemoryStore::new(limits()), Vec::new());
            for call in &calls {
                let (before, would_change) = (store.to_json(), store.would_change(call));
                store.answer(call);
                prop_assert_eq!(would_change, before != store.to_json(), "{:?}", call);
                if would_change {
                    changes.push(call.to_json());
                }
            }
            let mut again = MemoryStore::new(limits());
            for change in &changes {
                prop_assert_eq!(again.replay(change.as_bytes()), Ok(()));
            }
            prop_assert_eq!(again.to_json(), store.to_json());
        }
    }
}
