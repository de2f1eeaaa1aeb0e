//! The versions of the policy, in memory.
//!
//! Invariant: numbers only grow, and a number never gets another text. A written version keeps its
//! text while it is in force, whatever the bounds are.

use alloc::collections::VecDeque;
use alloc::string::String;

use serde::{Deserialize, Serialize};

use crate::memory::limits::MemoryLimits;
use crate::store::key_history::{KEY_ROWS, KeyRow};
use crate::store::policy::{
    Change, Current, Deployed, HistoryRow, Kind, NewPolicy, PolicyCall, PolicyReply, Row, Source,
    Summary,
};

/// The most deployed files whose numbers are known: a deployment is forgotten after this many later
/// ones, and gets a new number if it comes back.
const MAX_DEPLOYED: usize = 64;

/// A count may be this many versions ahead of a store that was lost. A number further ahead was
/// never a version: it must not use up the numbers.
const MAX_AHEAD: u64 = 1_000_000;

/// The known state of policies.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Policies {
    #[serde(skip)]
    limits: MemoryLimits,
    /// The oldest first.
    versions: VecDeque<Version>,
    /// Fingerprints of deployed files and their numbers, the oldest first.
    deployed: VecDeque<(u64, u64)>,
    /// The version that was written at run time, while it is in force.
    written: Option<u64>,
    last: u64,
    /// The number of the last change at run time; 0 before there was any.
    changed: u64,
    /// Operations on keys, the oldest first, each with its number.
    #[serde(default)]
    keys: VecDeque<(u64, KeyRow)>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Version {
    row: HistoryRow,
    text: Option<String>,
}

impl Policies {
    pub(crate) fn new(limits: MemoryLimits) -> Self {
        Self { limits, ..Self::default() }
    }

    pub(crate) fn set_limits(&mut self, limits: MemoryLimits) {
        self.limits = limits;
        self.bound();
    }

    /// Greater after each change.
    pub(crate) fn changes(&self) -> u64 {
        self.last.saturating_add(self.changed).saturating_add(self.last_key())
    }

    /// Carries out `call`.
    pub(crate) fn answer(&mut self, call: &PolicyCall) -> PolicyReply {
        match call {
            PolicyCall::Read { deployed, known, seen, now_ms } => {
                self.catch_up(*seen, *now_ms);
                self.read(deployed, *known, *now_ms)
            }
            PolicyCall::Change(change) => self.change(change),
            PolicyCall::NoteKey(row) => {
                self.keys.push_back((self.last_key().saturating_add(1), row.clone()));
                while u64::try_from(self.keys.len()).unwrap_or(u64::MAX) > KEY_ROWS {
                    self.keys.pop_front();
                }
                PolicyReply::Noted
            }
            PolicyCall::KeyHistory { before, limit } => self.key_history(*before, *limit),
            PolicyCall::History { before, limit } => self.history(*before, *limit),
            PolicyCall::Version { number } => PolicyReply::Version(self.version(*number)),
        }
    }

    /// True when `call` would change something.
    pub(crate) fn would_change(&self, call: &PolicyCall) -> bool {
        match call {
            PolicyCall::Read { deployed, seen, .. } => {
                let is_new = self.in_force(deployed.fingerprint).is_none();
                self.lost_after(*seen).is_some() || (is_new && deployed.text.is_some())
            }
            PolicyCall::Change(change) => self.version_for(change) == change.expects,
            PolicyCall::NoteKey(_) => true,
            PolicyCall::KeyHistory { .. }
            | PolicyCall::History { .. }
            | PolicyCall::Version { .. } => false,
        }
    }

    fn read(&mut self, deployed: &Deployed, known: Option<u64>, now_ms: u64) -> PolicyReply {
        let Some(version) = self.in_force(deployed.fingerprint) else {
            let Some(text) = &deployed.text else { return PolicyReply::SendText };
            let row =
                Row { at_ms: now_ms, kind: Kind::Deploy, actor: None, summary: Summary::default() };
            let version = self.add(row, Source::Deployed, text.clone());
            self.number(deployed.fingerprint, version);
            return PolicyReply::Current(self.current(version, Source::Deployed, None));
        };
        let source = if self.written.is_some() { Source::Written } else { Source::Deployed };
        let is_known = source == Source::Deployed || known == Some(version);
        let text = self.text(version).filter(|_| !is_known).cloned();
        PolicyReply::Current(self.current(version, source, text))
    }

    fn current(&self, version: u64, source: Source, text: Option<String>) -> Current {
        let generation = self.generation();
        let relieved = self.keys.back().map_or(0, |(number, row)| row.relief(*number));
        Current { version, generation, source, relieved, text }
    }

    fn change(&mut self, change: &Change) -> PolicyReply {
        let in_force = self.version_for(change);
        if in_force != change.expects {
            return PolicyReply::Conflict { version: in_force };
        }
        let version = match &change.policy {
            NewPolicy::Written(text) => {
                let version = self.add(change.row.clone(), Source::Written, text.clone());
                self.written = Some(version);
                version
            }
            NewPolicy::Deployed(deployed) => {
                let text = deployed.text.clone().unwrap_or_default();
                let version = self.add(change.row.clone(), Source::Deployed, text);
                // Every other file was numbered before, and versions only grow.
                self.deployed.clear();
                self.number(deployed.fingerprint, version);
                self.written = None;
                version
            }
        };
        self.changed = version;
        self.bound();
        PolicyReply::Changed { version }
    }

    /// The version that `change` must name.
    fn version_for(&self, change: &Change) -> u64 {
        self.in_force(change.deployed).unwrap_or(self.last)
    }

    fn generation(&self) -> u64 {
        self.changed.max(1)
    }

    /// The generation in `seen`, when this store does not know it and may have lost it.
    fn lost_after(&self, seen: Option<u64>) -> Option<u64> {
        let latest = self.last.saturating_add(MAX_AHEAD);
        seen.filter(|seen| *seen > self.generation() && *seen <= latest)
    }

    /// Counts have a generation that this store does not know: the store was lost, and gives the
    /// policy in force a new number, above that generation.
    fn catch_up(&mut self, seen: Option<u64>, now_ms: u64) {
        let Some(seen) = self.lost_after(seen) else { return };
        self.last = self.last.max(seen);
        self.deployed.clear();
        let text = self.written.and_then(|written| self.text(written)).cloned();
        // Without a text it is the file of the next caller, which is numbered then.
        self.changed = self.last.saturating_add(1);
        if let Some(text) = text {
            let row =
                Row { at_ms: now_ms, kind: Kind::Put, actor: None, summary: Summary::default() };
            self.written = Some(self.add(row, Source::Written, text));
        }
    }

    fn history(&self, before: Option<u64>, limit: u32) -> PolicyReply {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let is_older =
            |version: &&Version| before.is_none_or(|before| version.row.version < before);
        let mut older = self.versions.iter().rev().filter(is_older);
        let rows = older.by_ref().take(limit).map(|version| version.row.clone()).collect();
        PolicyReply::History { rows, more: older.next().is_some() }
    }

    fn last_key(&self) -> u64 {
        self.keys.back().map_or(0, |(number, _)| *number)
    }

    fn key_history(&self, before: Option<u64>, limit: u32) -> PolicyReply {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let is_older = |(number, _): &&(u64, KeyRow)| before.is_none_or(|before| *number < before);
        let mut older = self.keys.iter().rev().filter(is_older);
        let rows = older.by_ref().take(limit).cloned().collect();
        PolicyReply::KeyHistory { rows, more: older.next().is_some() }
    }

    fn version(&self, number: u64) -> Option<Current> {
        let found = self.versions.iter().find(|version| version.row.version == number)?;
        let text = Some(found.text.clone()?);
        Some(self.current(number, found.row.source, text))
    }

    /// The number of the policy in force for a service that was deployed with this file.
    fn in_force(&self, fingerprint: u64) -> Option<u64> {
        let known = || self.deployed.iter().find(|(known, _)| *known == fingerprint);
        self.written.or_else(|| known().map(|(_, version)| *version))
    }

    fn text(&self, number: u64) -> Option<&String> {
        self.versions.iter().find(|version| version.row.version == number)?.text.as_ref()
    }

    fn number(&mut self, fingerprint: u64, version: u64) {
        self.deployed.push_back((fingerprint, version));
        while self.deployed.len() > MAX_DEPLOYED {
            self.deployed.pop_front();
        }
    }

    /// Adds a version to the history.
    fn add(&mut self, row: Row, source: Source, text: String) -> u64 {
        let before = self.versions.back().map_or(0, |version| version.row.version);
        self.last = self.last.saturating_add(1);
        let bytes = u64::try_from(text.len()).unwrap_or(u64::MAX);
        let row = HistoryRow { version: self.last, before, row, source, bytes, is_kept: true };
        self.versions.push_back(Version { row, text: Some(text) });
        self.bound();
        self.last
    }

    /// Forgets the oldest versions, and the texts of older ones.
    fn bound(&mut self) {
        while self.versions.len() > self.limits.versions.max(1) {
            self.versions.pop_front();
        }
        let (mut bytes, last) = (0_usize, self.last);
        for version in self.versions.iter_mut().rev() {
            let len = version.text.as_ref().map_or(0, String::len);
            bytes = bytes.saturating_add(len);
            let number = version.row.version;
            if bytes > self.limits.text_bytes && number != last && Some(number) != self.written {
                version.text = None;
                version.row.is_kept = false;
            }
        }
    }
}
