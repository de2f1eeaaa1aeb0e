//! The rules in memory, and the file that keeps them, if there is one.
//!
//! Invariant: a change is in the file, synchronised, before it is made in memory, so nothing is
//! enforced, read or sent that a restart would undo. A change that cannot be written to the file is
//! a failure, and is not made.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tollgate_service::{MemoryStore, StoreCall, StoreReply};

use crate::store::folder::Folder;
use crate::store::journal::Journal;

/// The rules.
#[derive(Debug)]
pub(super) struct Rules<F: Folder> {
    store: Mutex<MemoryStore>,
    /// Locked before the store by every call that changes the store.
    journal: Option<Mutex<Journal<F>>>,
}

impl<F: Folder> Rules<F> {
    /// The rules in `store`, each change of which is kept in `journal`.
    pub(super) fn new(store: MemoryStore, journal: Option<Journal<F>>) -> Self {
        Self { store: Mutex::new(store), journal: journal.map(Mutex::new) }
    }

    /// The reply to a call that is not kept; for other calls `None`, and nothing is done.
    pub(super) fn answer_at_once(&self, call: &StoreCall) -> Option<StoreReply> {
        let mut store = self.store();
        let is_kept = self.journal.is_some() && store.would_change(call);
        (!is_kept).then(|| answer(&mut store, call))
    }

    /// The reply to any call; a change is kept first. It waits for the disk.
    pub(super) fn answer(&self, call: &StoreCall) -> StoreReply {
        let journal = self.journal.as_ref();
        let journal = journal.map(|it| it.lock().unwrap_or_else(PoisonError::into_inner));
        if let Some(mut journal) = journal
            && self.store().would_change(call)
        {
            let before = || self.store().to_json();
            if let Err(why) = journal.append(&call.to_json(), before) {
                return StoreReply::Failed(why);
            }
            // Still locked: no other call changes the store between the file and here.
            return answer(&mut self.store(), call);
        }
        answer(&mut self.store(), call)
    }

    fn store(&self) -> MutexGuard<'_, MemoryStore> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn answer(store: &mut MemoryStore, call: &StoreCall) -> StoreReply {
    let failed = || StoreReply::Failed("it is not a matter of rules".to_owned());
    store.answer(call).unwrap_or_else(failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::failing::{Extent, Failing, Faults, Left};
    use tollgate_service::{
        Change, Deployed, Expect, MemoryLimits, NewPolicy, PolicyCall, PolicyReply, TenantCall,
        TenantReply,
    };

    fn put(id: &str, entry: &str) -> StoreCall {
        let (id, entry, expect) = (id.to_owned(), entry.to_owned(), Expect::Nothing);
        StoreCall::Tenants(TenantCall::Put { id, entry, expect })
    }

    fn delete(id: &str) -> StoreCall {
        StoreCall::Tenants(TenantCall::Delete { id: id.to_owned(), expect: Expect::Anything })
    }

    fn read(text: Option<&str>) -> StoreCall {
        let deployed = Deployed { fingerprint: 7, text: text.map(str::to_owned) };
        StoreCall::Policy(PolicyCall::Read { deployed, known: None, seen: None, now_ms: 5 })
    }

    fn change(expects: u64, text: &str) -> StoreCall {
        let row = serde_json::json!({"at_ms": 6, "kind": "put", "actor": null, "summary":
            {"added": [], "removed": [], "changed": [], "settings": [], "more": 0}});
        let row = serde_json::from_value(row).expect("a row");
        let policy = NewPolicy::Written(text.to_owned());
        StoreCall::Policy(PolicyCall::Change(Change { expects, deployed: 7, policy, row }))
    }

    /// Changes, among them some that must fail because another did, and some that are long enough
    /// for the file to be rewritten.
    fn script() -> Vec<StoreCall> {
        let long = "x".repeat(300);
        vec![
            read(Some("{}")),
            put("a", "1"),
            change(1, "first"),
            put("b", &long),
            delete("a"),
            put("c", &long),
            change(2, "second"),
            change(3, "third"),
            delete("b"),
            put("a", "2"),
        ]
    }

    /// Bytes of changes before the file is rewritten.
    const LEAST: u64 = 400;

    fn open(folder: &Failing) -> Rules<Failing> {
        let opened = Journal::open(folder.clone(), MemoryLimits::default(), LEAST).expect("opened");
        Rules::new(opened.store, Some(opened.journal))
    }

    fn is_failure(reply: &StoreReply) -> bool {
        matches!(reply, StoreReply::Failed(_))
    }

    /// The contents of a folder that a process left.
    fn kept(folder: &Failing, left: Left) -> String {
        open(&folder.left(left)).store().to_json()
    }

    /// Plays the script on a folder with these faults. `truth` has the changes whose replies
    /// reported success.
    fn play(folder: &Failing, calls: &[StoreCall]) -> (MemoryStore, Vec<StoreCall>) {
        let mut truth = MemoryStore::new(MemoryLimits::default());
        let (rules, mut denied) = (open(folder), Vec::new());
        for call in calls {
            let reply = rules.answer_at_once(call).unwrap_or_else(|| rules.answer(call));
            if is_failure(&reply) {
                denied.push(call.clone());
            } else {
                assert_eq!(Some(reply), truth.answer(call), "{call:?}");
            }
            assert_eq!(rules.store().to_json(), truth.to_json(), "in memory after {call:?}");
        }
        (truth, denied)
    }

    /// Every fault that the script can meet.
    fn each_fault(mut case: impl FnMut(Faults, Extent)) {
        let whole = Failing::default();
        whole.fail(Faults::None, Extent::All);
        let (_, denied) = play(&whole, &script());
        assert!(denied.is_empty(), "{denied:?}");
        let operations = whole.operations();
        // Five for each time that the file is rewritten, and two for each change.
        assert!(operations >= 2 * 5 + 2 * 10, "{operations}");
        for n in 0..operations {
            for faults in [Faults::At(n), Faults::From(n)] {
                for extent in [Extent::Part, Extent::All] {
                    case(faults, extent);
                }
            }
        }
    }

    // Guards: a change that is answered with 200 and gone after a restart; one that is answered
    // with 503 and in force.
    #[test]
    fn whatever_the_disk_refuses_a_restart_has_what_was_answered_and_nothing_else() {
        let (mut failed, mut unknown) = (0, 0);
        each_fault(|faults, extent| {
            let folder = Failing::default();
            folder.fail(faults, extent);
            let (truth, denied) = play(&folder, &script());
            failed += usize::from(!denied.is_empty());
            let truth = truth.to_json();
            for left in [Left::Written, Left::Synced] {
                let found = kept(&folder, left);
                if found != truth {
                    // The one exception: a denied change could not be removed, either.
                    assert!(folder.is_uncut(), "{faults:?} {extent:?} {left:?}: {found}");
                    let is_of = |call| {
                        let mut store = MemoryStore::from_json(MemoryLimits::default(), &truth)?;
                        store.answer(call).map(|_| store.to_json() == found)
                    };
                    let is_of_one = denied.iter().any(|call| is_of(call) == Some(true));
                    assert!(is_of_one, "{faults:?} {extent:?} {left:?}: {found}");
                    unknown += 1;
                }
            }
        });
        assert!(failed > 100 && unknown > 0, "{failed} {unknown}");
    }

    // Guards: changes after a line of which any part may be there.
    #[test]
    fn once_the_disk_takes_changes_again_every_one_that_is_answered_is_kept() {
        each_fault(|faults, extent| {
            let folder = Failing::default();
            folder.fail(faults, extent);
            let (rules, script) = (open(&folder), script());
            let (before, behind) = script.split_at(script.len() / 2);
            for call in before {
                rules.answer(call);
            }
            folder.fail(Faults::None, Extent::All);
            for call in behind {
                let reply = rules.answer(call);
                assert!(!is_failure(&reply), "{faults:?} {extent:?}: {reply:?}");
            }
            let reply = rules.answer(&put("last", "3"));
            let is_written =
                matches!(reply, StoreReply::Tenants(TenantReply::Written { is_new: true, .. }));
            assert!(is_written, "{reply:?}");
            for left in [Left::Written, Left::Synced] {
                let found = kept(&folder, left);
                assert_eq!(found, rules.store().to_json(), "{faults:?} {extent:?} {left:?}");
            }
        });
    }

    #[test]
    fn on_a_full_disk_the_rules_are_read_and_changes_are_denied() {
        let folder = Failing::default();
        let (truth, _) = play(&folder, &script());
        folder.fail(Faults::From(0), Extent::Part);
        let opened = Journal::open(folder.clone(), MemoryLimits::default(), LEAST).expect("opened");
        let why = opened.unwritable.expect("the disk is full");
        assert!(why.starts_with("rules cannot be written: "), "{why}");
        let rules = Rules::new(opened.store, Some(opened.journal));
        let current = rules.answer_at_once(&read(None)).expect("it changes nothing");
        let StoreReply::Policy(PolicyReply::Current(current)) = current else {
            panic!("{current:?}")
        };
        assert_eq!((current.version, current.text.as_deref()), (4, Some("third")));
        assert!(rules.answer_at_once(&put("d", "4")).is_none(), "it is to be kept");
        for call in [put("d", "4"), change(4, "fourth"), delete("c")] {
            assert!(is_failure(&rules.answer(&call)), "{call:?}");
        }
        assert_eq!(rules.store().to_json(), truth.to_json());
        assert_eq!(kept(&folder, Left::Synced), truth.to_json());
        folder.fail(Faults::None, Extent::All);
        assert!(!is_failure(&rules.answer(&put("d", "4"))), "there is room again");
        assert_eq!(kept(&folder, Left::Synced), rules.store().to_json());
    }
}
