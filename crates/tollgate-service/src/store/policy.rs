//! The policy in force and its versions, as a store keeps them.
//!
//! Invariant: version numbers only grow, from 1. Which policy is in force: what was written last,
//! until it was given back; else the deployed file that asks. A deployed file is numbered when it
//! is first asked with, and known by its fingerprint from then on, so one that was deployed anew
//! under a policy that somebody wrote is not numbered before that is given back.
//!
//! Texts are whole here, with the keys of tokens in them: what leaves the service is masked.

use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::access::Actor;
use crate::store::key_history::KeyRow;

/// An operation on the policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PolicyCall {
    /// Which policy is in force: [`PolicyReply::Current`], or [`PolicyReply::SendText`].
    Read {
        /// The file that was deployed with whoever asks.
        deployed: Deployed,
        /// The version whose text is known there already: it is not sent again.
        known: Option<u64>,
        /// The newest generation that a count was found to be of, if that was newer than what is
        /// known. A store that knows of none so new was set back: it numbers what is in force anew,
        /// above this.
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
        /// At most so many.
        limit: u32,
    },
    /// Takes note of what was done to a key: [`PolicyReply::Noted`].
    NoteKey(KeyRow),
    /// What was done to keys, the newest first: [`PolicyReply::KeyHistory`].
    KeyHistory {
        /// Only rows before this one.
        before: Option<u64>,
        /// At most so many.
        limit: u32,
    },
    /// One version, if its text is still kept: [`PolicyReply::Version`].
    Version {
        /// Its number.
        number: u64,
    },
}

/// What the store answers to a [`PolicyCall`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PolicyReply {
    /// The policy in force.
    Current(Current),
    /// This deployed file has no number yet: ask again with its text.
    SendText,
    /// It is in force now.
    Changed {
        /// The number that it got.
        version: u64,
    },
    /// Nothing was changed: another version is in force.
    Conflict {
        /// That one.
        version: u64,
    },
    /// Some of the history, the newest first.
    History {
        /// The rows.
        rows: Vec<HistoryRow>,
        /// True when there are older ones.
        more: bool,
    },
    /// It stands in the history.
    Noted,
    /// Some of what was done to keys, each with its number, the newest first.
    KeyHistory {
        /// The rows.
        rows: Vec<(u64, KeyRow)>,
        /// True when there are older ones.
        more: bool,
    },
    /// A version, or none when there never was one or its text is no longer kept.
    Version(Option<Current>),
}

/// The file that was deployed with a service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deployed {
    /// What it is known by.
    pub fingerprint: u64,
    /// The whole text, when the store asked for it.
    pub text: Option<String>,
}

/// A policy and its number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Current {
    /// Its number.
    pub version: u64,
    /// What counts are ordered by: the number of the last change at run time, which a written
    /// policy is itself; 1 before there was any. All files that are deployed between two changes
    /// are of one generation: while two of them are deployed side by side, or one is rolled back,
    /// counts go from each to the other, as they do where nothing is ever changed at run time.
    pub generation: u64,
    /// Where it comes from.
    pub source: Source,
    /// Another number after each change of a key that was [noted](PolicyCall::NoteKey); 0 before
    /// there was any. Whoever remembers refusals learns by it that one may have been ended.
    #[serde(default)]
    pub relieved: u64,
    /// The whole text; none when the caller knows it: the version that it said it knows, or the
    /// deployed file that it asked with.
    pub text: Option<String>,
}

/// Where a policy comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The deployed file.
    #[default]
    Deployed,
    /// Somebody wrote it at run time.
    Written,
}

impl Source {
    /// The word for it wherever it is told: `deployed`, `written`.
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
    /// The file that was deployed with whoever asks, without its text: what is in force for it
    /// counts.
    pub deployed: u64,
    /// What comes in its place.
    pub policy: NewPolicy,
    /// What the history says about it.
    pub row: Row,
}

/// What is put in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NewPolicy {
    /// This text, whatever is deployed.
    Written(String),
    /// The deployed file again, and whichever is deployed later. The text is there. The file gets a
    /// new number, because versions only grow.
    Deployed(Deployed),
}

/// What the history says about a change, beside its number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
    /// What was done.
    pub kind: Kind,
    /// Who did it; none for a deployment.
    pub actor: Option<Actor>,
    /// What is different since the version before; nothing of secrets.
    pub summary: Summary,
}

impl Row {
    /// As JSON, as a store may keep it.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// From JSON; `None` for what is none, or of a later version.
    #[must_use]
    pub fn from_json(json: &str) -> Option<Self> {
        serde_json::from_str(json).ok()
    }
}

/// What was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A deployed file was first asked with.
    Deploy,
    /// A document was put.
    Put,
    /// An old text was put in force again.
    Rollback {
        /// The version that had it.
        to: u64,
    },
    /// The deployed file was put in force again.
    Delete,
}

/// What is different, in names: at most some of each, and how many more.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// Rules that are new.
    pub added: Vec<String>,
    /// Rules that are gone.
    pub removed: Vec<String>,
    /// Rules that are not as they were.
    pub changed: Vec<String>,
    /// Members of the document beside `rules` that are not as they were.
    pub settings: Vec<String>,
    /// How many more names there would be.
    pub more: u32,
}

/// One version in the history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryRow {
    /// Its number.
    pub version: u64,
    /// The one that was in force before; 0 for the first.
    pub before: u64,
    /// How it came.
    pub row: Row,
    /// Where it comes from.
    pub source: Source,
    /// Bytes of its text.
    pub bytes: u64,
    /// True when its text is still kept, so that it can be read and rolled back to.
    pub is_kept: bool,
}
