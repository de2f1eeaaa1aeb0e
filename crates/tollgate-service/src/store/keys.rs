//! One client of a rule, by its key: what it has used, and whether it is blocked.
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
    /// What would be decided about a request; nothing is consumed: [`KeyReply::Explained`].
    Explain {
        /// The request as `POST /check` takes it, validated.
        request: String,
    },
    /// What a key has used: [`KeyReply::State`].
    State(RuleKey),
    /// Forgets what a key has used: [`KeyReply::Done`].
    Reset(RuleKey),
    /// Refuses a key until a time: [`KeyReply::Done`].
    Block {
        /// Whom.
        key: RuleKey,
        /// Until when, in milliseconds since 1970.
        until_ms: u64,
    },
    /// Ends a block: [`KeyReply::Done`].
    Unblock(RuleKey),
}

/// What a [`KeyCall`] asks: about a request, or of one key.
#[derive(Clone, Copy, Debug)]
pub enum AskedOfKey<'a> {
    /// What would be decided about this request.
    Explain(&'a str),
    /// An operation on a key.
    Operate(&'a RuleKey, KeyOperation),
}

impl KeyCall {
    /// What is asked.
    #[must_use]
    pub const fn asked(&self) -> AskedOfKey<'_> {
        match self {
            Self::Explain { request } => AskedOfKey::Explain(request.as_str()),
            Self::State(key) => AskedOfKey::Operate(key, KeyOperation::Describe),
            Self::Reset(key) => AskedOfKey::Operate(key, KeyOperation::Reset),
            Self::Block { key, until_ms } => {
                let until = Timestamp::from_millis(*until_ms);
                AskedOfKey::Operate(key, KeyOperation::Block(until))
            }
            Self::Unblock(key) => AskedOfKey::Operate(key, KeyOperation::Unblock),
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
    /// The tenant whose own quotas count apart; none for what the rule and its tiers count.
    #[serde(default)]
    pub tenant: Option<String>,
    /// No tenant is meant, and whoever asks has said so.
    #[serde(default)]
    pub is_of_no_tenant: bool,
}

/// What is answered to a [`KeyCall`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyReply {
    /// What would be decided, as JSON.
    Explained(String),
    /// What was used, as JSON.
    State(String),
    /// It is done.
    Done(KeyChange),
    /// The policy has no rule of this name.
    NoRule,
    /// This is no key of the rule.
    NoKey {
        /// What of it: `key`, `key[1]`, `tenant`.
        path: String,
        /// Why.
        why: String,
    },
}
