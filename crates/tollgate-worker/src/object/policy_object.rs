//! The policy object: one Durable Object for the whole deployment, which knows the policy in force
//! and those before it.
//!
//! Invariant: a change compares and writes in one synchronous step, so of two writers that saw the
//! same version one succeeds; it is one statement, and the platform holds the reply back until that
//! is durable. Memory is only a copy of the data that a check needs, so a check reads no row.
//! Deliberately absent: the meaning of a policy; the writer has compiled it.
//!
//! The last change at run time decides which policy is in force: either its text, or the deployed
//! file of the isolate that asks. That file is numbered when an isolate first asks with it. If a
//! count has a newer generation than any number given here, this object was restored to an earlier
//! day, which the platform can do. The policy in force then gets a new number above that
//! generation.

use std::cell::RefCell;

use tollgate_service::deployment::FIRST_GENERATION;
use tollgate_service::{
    Change, Current, Deployed, Kind, NewPolicy, PolicyCall, PolicyReply, Row, Source, StoreCall,
    StoreReply, Summary,
};
use wasm_bindgen::prelude::*;
use worker::worker_sys::DurableObjectStorage;

use crate::object::key_history;
use crate::object::policy_wire::{InForce as Found, Question};
use crate::object::versions::{self, NewVersion, VersionSummary};
use crate::runtime::js;
use crate::settings::Binding;
use crate::settings::operator;

/// The longest text. A row of the platform's SQLite holds 2 MB, a policy is at most 1 MiB.
const MAX_TEXT: usize = 1_800_000;
const NO_TEXT: Fault = Fault::Ours("the text that is in force is not there");
/// The most rows of the history at once.
const MAX_ROWS: u32 = 1_000;
/// How many versions a count may be ahead of an object that was restored to an earlier day. A
/// number further ahead was never a version, and must not use up the numbers.
const MAX_AHEAD: u64 = 1_000_000;

/// The object behind `Policies` of `entry.mjs`. Its method is synchronous and does not panic.
#[wasm_bindgen]
pub struct Policies {
    storage: DurableObjectStorage,
    /// How many versions keep their texts.
    kept: u64,
    known: RefCell<Option<VersionSummary>>,
}

#[wasm_bindgen]
impl Policies {
    /// The object over its `ctx.storage`, with the bindings of the deployment; nothing is read yet.
    #[wasm_bindgen(constructor)]
    pub fn new(storage: DurableObjectStorage, env: &JsValue) -> Self {
        let kept = match js::text_binding(env, operator::HISTORY) {
            Binding::Text(value) => operator::texts_kept(Some(&value)),
            Binding::Absent | Binding::Other => operator::texts_kept(None),
        };
        Self { storage, kept, known: RefCell::default() }
    }

    /// Carries out a [`StoreCall`] on the policy, with JSON in both directions. Or replies to a
    /// [`Question`], in bytes where possible; otherwise its reply, in JSON, requests the same
    /// question in JSON.
    ///
    /// # Errors
    /// Storage fails; nothing was changed then.
    pub fn call(&self, request: &[u8]) -> Result<Vec<u8>, JsValue> {
        if let Some(question) = Question::read(request) {
            match self.in_force(question) {
                Ok(Some(in_force)) => return Ok(in_force.to_bytes()),
                Ok(None) => {}
                Err(Fault::Ours(why)) => {
                    return Ok(StoreReply::Failed(why.to_owned()).to_json().into_bytes());
                }
                Err(Fault::Storage(why)) => return Err(why),
            }
            return Ok(StoreReply::Policy(PolicyReply::SendText).to_json().into_bytes());
        }
        let answered = match StoreCall::from_json(request) {
            Some(StoreCall::Policy(call)) => self.answer(call),
            _ => Err(Fault::Ours("this is not a call of the policy object")),
        };
        let reply = match answered {
            Ok(reply) => StoreReply::Policy(reply),
            Err(Fault::Ours(why)) => StoreReply::Failed(why.to_owned()),
            Err(Fault::Storage(why)) => return Err(why),
        };
        Ok(reply.to_json().into_bytes())
    }
}

/// The reason why there is no reply.
enum Fault {
    /// Storage failed.
    Storage(JsValue),
    /// This object cannot carry it out.
    Ours(&'static str),
}

impl From<JsValue> for Fault {
    fn from(why: JsValue) -> Self {
        Self::Storage(why)
    }
}

/// The policy in force for one isolate.
struct InForce {
    version: u64,
    source: Source,
}

impl Policies {
    /// The policy in force for an isolate; `None` where its question does not suffice to find it.
    fn in_force(&self, question: Question) -> Result<Option<Found>, Fault> {
        let Question { fingerprint, known, seen, now_ms } = question;
        let deployed = Deployed { fingerprint, text: None };
        let call = PolicyCall::Read { deployed, known, seen, now_ms };
        let PolicyReply::Current(current) = self.answer(call)? else { return Ok(None) };
        let Current { version, generation, source, relieved, text } = current;
        let mut compiled = Vec::new();
        if text.is_some() {
            match versions::compiled(&self.storage, version)? {
                Some(bytes) => compiled = bytes,
                None => return Ok(None),
            }
        }
        Ok(Some(Found { version, generation, relieved, source, compiled }))
    }

    fn answer(&self, call: PolicyCall) -> Result<PolicyReply, Fault> {
        let mut known = self.known.try_borrow_mut().map_err(|_| Fault::Ours("re-entered"))?;
        let known = match &mut *known {
            Some(known) => known,
            none => none.insert(VersionSummary::read(&self.storage)?),
        };
        match call {
            PolicyCall::Read { deployed, known: version, seen, now_ms } => {
                let seen = seen.unwrap_or_default();
                self.read(known, &deployed, version, seen, now_ms)
            }
            PolicyCall::Change(change) => self.change(known, &change),
            PolicyCall::History { before, limit } => {
                let (before, limit) = (before.unwrap_or(u64::MAX), limit.min(MAX_ROWS));
                let (rows, more) = versions::history(&self.storage, before, limit.into())?;
                Ok(PolicyReply::History { rows, more })
            }
            PolicyCall::NoteKey(row) => {
                key_history::note(&self.storage, &row)?;
                known.relieved = key_history::relief(&self.storage)?;
                Ok(PolicyReply::Noted)
            }
            PolicyCall::KeyHistory { before, limit } => {
                let (before, limit) = (before.unwrap_or(u64::MAX), limit.min(MAX_ROWS));
                let (rows, more) = key_history::read(&self.storage, before, limit.into())?;
                Ok(PolicyReply::KeyHistory { rows, more })
            }
            PolicyCall::Version { number } => {
                Ok(PolicyReply::Version(versions::version(&self.storage, number)?))
            }
        }
    }

    /// The policy in force for an isolate that has the file `deployed`, knows the text of `version`
    /// and met a count of the generation `seen`.
    fn read(
        &self,
        known: &mut VersionSummary,
        deployed: &Deployed,
        version: Option<u64>,
        seen: u64,
        now_ms: u64,
    ) -> Result<PolicyReply, Fault> {
        let was_set_back = seen > generation(known)
            && seen.checked_sub(known.newest).is_none_or(|ahead| ahead <= MAX_AHEAD);
        let in_force = in_force(known, deployed.fingerprint).filter(|_| !was_set_back);
        let InForce { version: number, source } = match in_force {
            Some(in_force) => in_force,
            None => {
                let written = known.change.filter(|change| change.source == Source::Written);
                if written.is_none() && deployed.text.is_none() {
                    return Ok(PolicyReply::SendText);
                }
                let number = known.newest.max(if was_set_back { seen } else { 0 });
                let number = number.saturating_add(1);
                self.number(known, number, deployed, was_set_back, now_ms)?
            }
        };
        let mut text = None;
        if source == Source::Written && version != Some(number) {
            text = Some(versions::text(&self.storage, number)?.ok_or(NO_TEXT)?);
        }
        let generation = generation(known);
        let relieved = known.relieved;
        Ok(PolicyReply::Current(Current { version: number, generation, source, relieved, text }))
    }

    /// Numbers the policy in force: the deployed file that no isolate asked with before, or any
    /// policy when this object was restored to an earlier day.
    fn number(
        &self,
        known: &mut VersionSummary,
        number: u64,
        deployed: &Deployed,
        was_set_back: bool,
        now_ms: u64,
    ) -> Result<InForce, Fault> {
        if was_set_back {
            js::fail(
                "the policy object was set back: what is in force gets a number above all counts",
            );
        }
        let written = known.change.filter(|change| change.source == Source::Written);
        if let Some(change) = written {
            let text = versions::text(&self.storage, change.number)?.ok_or(NO_TEXT)?;
            let row = row(now_ms, Kind::Rollback { to: change.number });
            self.write(known, number, true, None, &row, &text)?;
            return Ok(InForce { version: number, source: Source::Written });
        }
        let text = deployed.text.as_deref().ok_or(NO_TEXT)?;
        let row = row(now_ms, if was_set_back { Kind::Delete } else { Kind::Deploy });
        self.write(known, number, was_set_back, Some(deployed.fingerprint), &row, text)?;
        Ok(InForce { version: number, source: Source::Deployed })
    }

    fn change(&self, known: &mut VersionSummary, change: &Change) -> Result<PolicyReply, Fault> {
        let version = in_force(known, change.deployed).map_or(0, |in_force| in_force.version);
        if version != change.expects {
            return Ok(PolicyReply::Conflict { version });
        }
        let (fingerprint, text) = match &change.policy {
            NewPolicy::Written(text) => (None, text),
            NewPolicy::Deployed(file) => {
                (Some(file.fingerprint), file.text.as_ref().ok_or(NO_TEXT)?)
            }
        };
        let number = known.newest.saturating_add(1);
        self.write(known, number, true, fingerprint, &change.row, text)?;
        Ok(PolicyReply::Changed { version: number })
    }

    fn write(
        &self,
        known: &mut VersionSummary,
        number: u64,
        is_change: bool,
        fingerprint: Option<u64>,
        row: &Row,
        text: &str,
    ) -> Result<(), Fault> {
        if text.len() > MAX_TEXT {
            return Err(Fault::Ours("the text is too long"));
        }
        let new = NewVersion { is_change, fingerprint, row, text };
        known.write(&self.storage, number, &new)?;
        if fingerprint.is_none() && versions::compiled(&self.storage, number).is_err() {
            js::fail("each isolate compiles the policy: its compiled form could not be stored");
        }
        // It is in force already; the remaining rows are removed with the next one.
        if known.prune(&self.storage, self.kept).is_err() {
            js::fail("old versions of the policy could not be removed");
        }
        Ok(())
    }
}

/// The policy in force for an isolate that has the deployed file with this fingerprint; `None` when
/// that is the file itself, and it has no number yet.
fn in_force(known: &VersionSummary, fingerprint: u64) -> Option<InForce> {
    match known.change {
        Some(change) if change.source == Source::Written => {
            Some(InForce { version: change.number, source: Source::Written })
        }
        _ => {
            let version = known.deployed(fingerprint)?;
            Some(InForce { version, source: Source::Deployed })
        }
    }
}

/// The number that orders counts.
fn generation(known: &VersionSummary) -> u64 {
    known.change.map_or(FIRST_GENERATION, |change| change.number)
}

/// The history row of a change that no operator made.
fn row(at_ms: u64, kind: Kind) -> Row {
    Row { at_ms, kind, actor: None, summary: Summary::default() }
}
