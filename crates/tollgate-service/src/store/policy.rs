//! The policy in force and its versions, as a store keeps them.
//!
//! Invariant: version numbers only grow, from 1. The policy in force is the last written one, until
//! it is given back; else the deployed file of the caller. A deployed file is numbered at the first
//! request with it, and known by its fingerprint from then on. So a file that is deployed while a
//! written policy is in force is not numbered before that policy is given back.
//!
//! Texts are whole here, with the keys of tokens in them: texts that leave the service are masked.

use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::access::Actor;
use crate::store::key_history::KeyRow;

/// An operation on the policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PolicyCall {
    /// Read the policy in force: [`PolicyReply::Current`], or [`PolicyReply::SendText`].
    Read {
        /// The file that was deployed with the caller.
        deployed: Deployed,
        /// The version whose text the caller has already: it is not sent again.
        known: Option<u64>,
        /// The newest generation that a count was found to have, if it is newer than the known one.
        /// A store that does not know a generation this new was set back: it gives the policy in
        /// force a new number, above this.
        #[serde(default)]
        seen: Option<u64>,
        /// The time, in milliseconds since 1970: when the file was deployed, if it is new.
        now_ms: u64,
    },
    /// Puts another policy in force, if the one that is expected still is:
    /// [`PolicyReply::Changed`], or [`PolicyReply::Conflict`].
    Change(Change),
    /// The newest versions first: [`PolicyReply::History`].
    History {
        /// Only versions before this one.
        before: Option<u64>,
        /// The most versions.
        limit: u32,
    },
    /// Notes an operation on a key: [`PolicyReply::Noted`].
    NoteKey(KeyRow),
    /// Operations on keys, the newest first: [`PolicyReply::KeyHistory`].
    KeyHistory {
        /// Only rows before this one.
        before: Option<u64>,
        /// The most rows.
        limit: u32,
    },
    /// One version, if its text is still kept: [`PolicyReply::Version`].
    Version {
        /// Its number.
        number: u64,
    },
}

/// The store's reply to a [`PolicyCall`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PolicyReply {
    /// The policy in force.
    Current(Current),
    /// This deployed file has no number yet: ask again with its text.
    SendText,
    /// It is in force now.
    Changed {
        /// Its new number.
        version: u64,
    },
    /// Nothing was changed: another version is in force.
    Conflict {
        /// Its number.
        version: u64,
    },
    /// Some of the history, the newest first.
    History {
        /// The rows.
        rows: Vec<HistoryRow>,
        /// True when there are older ones.
        more: bool,
    },
    /// It is in the history.
    Noted,
    /// Some of the operations on keys, each with its number, the newest first.
    KeyHistory {
        /// The rows.
        rows: Vec<(u64, KeyRow)>,
        /// True when there are older ones.
        more: bool,
    },
    /// A version, or `None` when there never was one or its text is no longer kept.
    Version(Option<Current>),
}

/// The file that was deployed with a service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deployed {
    /// Its identifier.
    pub fingerprint: u64,
    /// The whole text, when the store asked for it.
    pub text: Option<String>,
}

/// A policy and its number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Current {
    /// Its number.
    pub version: u64,
    /// The number by which counts are ordered: the number of the last change at run time, which a
    /// written policy is itself; 1 before there was any. All files that are deployed between two
    /// changes are of one generation. While two of them are deployed side by side, or one is rolled
    /// back, counts go from each to the other, as they do where nothing is ever changed at run
    /// time.
    pub generation: u64,
    /// Its source.
    pub source: Source,
    /// Another number after each change of a key that was [noted](PolicyCall::NoteKey); 0 before
    /// there was any. It shows a cache of denials that a denial may have ended.
    #[serde(default)]
    pub relieved: u64,
    /// The whole text; `None` when the caller has it: the version that the caller named as known,
    /// or the deployed file of its request.
    pub text: Option<String>,
}

/// The source of a policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The deployed file.
    #[default]
    Deployed,
    /// It was written at run time.
    Written,
}

impl Source {
    /// Its name in all output: `deployed`, `written`.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Deployed => "deployed",
            Self::Written => "written",
        }
    }
}

/// A change of the policy in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// The version that must be in force.
    pub expects: u64,
    /// The fingerprint of the file that was deployed with the caller: the policy in force for that
    /// file counts.
    pub deployed: u64,
    /// The policy that replaces it.
    pub policy: NewPolicy,
    /// Its row of the history.
    pub row: Row,
}

/// The new policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NewPolicy {
    /// This text, whatever is deployed.
    Written(String),
    /// The deployed file again, and any file that is deployed later. The text is there. The file
    /// gets a new number, because versions only grow.
    Deployed(Deployed),
}

/// The description of a change in the history, in addition to its number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// The time, in milliseconds since 1970.
    pub at_ms: u64,
    /// The kind of change.
    pub kind: Kind,
    /// The author; `None` for a deployment.
    pub actor: Option<Actor>,
    /// The differences from the previous version; nothing of secrets.
    pub summary: Summary,
}

impl Row {
    /// As JSON, as a store may keep it.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// From JSON; `None` when it is not a row, or one of a later version.
    #[must_use]
    pub fn from_json(json: &str) -> Option<Self> {
        serde_json::from_str(json).ok()
    }
}

/// The kind of change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The first request with a deployed file.
    Deploy,
    /// A document was written.
    Put,
    /// An old text was put in force again.
    Rollback {
        /// The version that had it.
        to: u64,
    },
    /// The deployed file was put in force again.
    Delete,
}

/// The differences, in names: at most some of each, and the number of the others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// Rules that are new.
    pub added: Vec<String>,
    /// Rules that are gone.
    pub removed: Vec<String>,
    /// Rules that have changed.
    pub changed: Vec<String>,
    /// Members of the document other than `rules` that have changed.
    pub settings: Vec<String>,
    /// How many more names there would be.
    pub more: u32,
}

/// One version in the history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryRow {
    /// Its number.
    pub version: u64,
    /// The previous version; 0 for the first.
    pub before: u64,
    /// The description of the change.
    pub row: Row,
    /// Its source.
    pub source: Source,
    /// Bytes of its text.
    pub bytes: u64,
    /// True when its text is still kept, so that it can be read and rolled back to.
    pub is_kept: bool,
}
