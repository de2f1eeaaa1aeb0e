//! One client of a rule, by its key: its used quota, and whether it is blocked.
//!
//! Invariant: a key is named by its value, which the caller knows; keys are never listed.

use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};
use tollgate_core::Timestamp;
use tollgate_storage::KeyOperation;

use crate::store::key_history::KeyChange;

/// An operation on one key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyCall {
    /// The decision that a request would get; nothing is consumed: [`KeyReply::Explained`].
    Explain {
        /// The request as `POST /check` takes it, validated.
        request: String,
    },
    /// The used quota of a key: [`KeyReply::State`].
    State(RuleKey),
    /// Forgets the used quota of a key: [`KeyReply::Done`].
    Reset(RuleKey),
    /// Denies a key until a time: [`KeyReply::Done`].
    Block {
        /// The key.
        key: RuleKey,
        /// The end of the block, in milliseconds since 1970.
        until_ms: u64,
    },
    /// Ends a block: [`KeyReply::Done`].
    Unblock(RuleKey),
}

/// The request in a [`KeyCall`]: about a described request, or about one key.
#[derive(Clone, Copy, Debug)]
pub enum KeyTask<'a> {
    /// The decision that this request would get.
    Explain(&'a str),
    /// An operation on a key.
    Operate(&'a RuleKey, KeyOperation),
}

impl KeyCall {
    /// The request.
    #[must_use]
    pub const fn task(&self) -> KeyTask<'_> {
        match self {
            Self::Explain { request } => KeyTask::Explain(request.as_str()),
            Self::State(key) => KeyTask::Operate(key, KeyOperation::Describe),
            Self::Reset(key) => KeyTask::Operate(key, KeyOperation::Reset),
            Self::Block { key, until_ms } => {
                let until = Timestamp::from_millis(*until_ms);
                KeyTask::Operate(key, KeyOperation::Block(until))
            }
            Self::Unblock(key) => KeyTask::Operate(key, KeyOperation::Unblock),
        }
    }
}

/// A rule and the value of its key: one for each part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleKey {
    /// The rule's name.
    pub rule: String,
    /// The parts of its key, in the rule's order.
    pub key: Vec<String>,
    /// The tenant whose own quotas count separately; `None` for the counts of the rule and its
    /// tiers.
    #[serde(default)]
    pub tenant: Option<String>,
    /// No tenant is meant, and the caller has stated that.
    #[serde(default)]
    pub is_of_no_tenant: bool,
}

/// The reply to a [`KeyCall`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyReply {
    /// The decision that the request would get, as JSON.
    Explained(String),
    /// The used quota, as JSON.
    State(String),
    /// It is done.
    Done(KeyChange),
    /// The policy has no rule of this name.
    NoRule,
    /// This is not a key of the rule.
    NoKey {
        /// The part of it that is wrong: `key`, `key[1]`, `tenant`.
        path: String,
        /// The reason.
        why: String,
    },
}
