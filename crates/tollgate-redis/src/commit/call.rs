//! Calls to the engine, and the replies to them.
//!
//! Invariant: a call contains everything that it depends on: its transport adds nothing and repeats
//! nothing. Each call gets exactly one [`Reply`]; a transport that does not know the result reports
//! that.

use std::sync::Arc;

use tollgate_core::Timestamp;

use crate::commit::name::Name;

/// The only script. The comment in it describes its arguments.
pub const SCRIPT: &str = include_str!("commit.lua");

/// The number of a call, never used twice by one [`Committer`](crate::commit::Committer).
pub type CallId = u64;

/// A call for one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Its number, for the reply.
    pub id: CallId,
    /// The node of the call, as given with the request.
    pub lane: usize,
    /// The connection to the node that was known when this was decided
    /// ([`Committer::connected`](crate::commit::Committer::connected)). A commit that would use
    /// another connection is not sent: its reply is [`Reply::Elsewhere`], with the same lane.
    pub connection: u64,
    /// The key.
    pub name: Name,
    /// The operation.
    pub what: Operation,
}

/// An operation of the engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// [`SCRIPT`].
    Commit {
        /// The bytes that must be stored now; `None`: no bytes may be stored.
        expected: Option<Arc<[u8]>>,
        /// The replacement.
        write: Write,
        /// The engine's time of the decision, in milliseconds, rounded down.
        decided_at_ms: u64,
        /// The maximum difference between the engine's clock and that time.
        tolerance_ms: u64,
        /// The engine does not have the script: send its text, not its hash.
        has_script: bool,
    },
    /// Reads the stored bytes.
    Read,
}

/// The write of a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// Nothing: the responses depend on the bytes that are stored.
    Keep,
    /// Deletes the key: nothing is in use any more.
    Delete,
    /// Stores these bytes.
    Put {
        /// A whole value.
        value: Arc<[u8]>,
        /// The engine may forget the value after this time.
        life_ms: u64,
    },
}

/// The result of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The stored bytes were the expected ones, and the write is done.
    Done {
        /// The engine's clock.
        time: Timestamp,
    },
    /// Like [`Self::Done`], but not as many replicas are known to have it as required: the write
    /// stays, and no request is answered by it.
    Alone {
        /// The engine's clock.
        time: Timestamp,
        /// The fault.
        fault: Fault,
    },
    /// Other bytes are stored; nothing is written.
    Mismatch {
        /// The stored bytes, or nothing.
        stored: Option<Arc<[u8]>>,
        /// The engine's clock.
        time: Timestamp,
    },
    /// The engine's clock differs too much from the time of the decision; nothing is written.
    OtherTime {
        /// The stored bytes.
        stored: Option<Arc<[u8]>>,
        /// The engine's clock.
        time: Timestamp,
    },
    /// The key is on another node; nothing is written.
    Elsewhere {
        /// The lane of that node.
        lane: usize,
    },
    /// The reply to [`Operation::Read`]: the stored bytes.
    Stored(Option<Arc<[u8]>>),
    /// The engine does not have the script; nothing is written.
    NoScript,
    /// It is certain that nothing was written.
    Refused(Fault),
    /// It is unknown whether the call was applied, or ever will be.
    Unknown(Fault),
}

impl Reply {
    /// The engine's clock, if the reply contains it.
    #[must_use]
    pub const fn time(&self) -> Option<Timestamp> {
        match self {
            Self::Done { time }
            | Self::Alone { time, .. }
            | Self::Mismatch { time, .. }
            | Self::OtherTime { time, .. } => Some(*time),
            Self::Elsewhere { .. }
            | Self::Stored(_)
            | Self::NoScript
            | Self::Refused(_)
            | Self::Unknown(_) => None,
        }
    }
}

/// Why the engine did not apply a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// No connection to it.
    Unreachable,
    /// Its identity was not proved, or it does not accept this server's certificate.
    Tls,
    /// No reply in time.
    Late,
    /// The connection was cut.
    Cut,
    /// The reply is not a valid one.
    Nonsense,
    /// It has no memory left: it neither evicts nor stores more.
    OutOfMemory,
    /// It is loading its data.
    Loading,
    /// It is a replica, or became one.
    ReadOnly,
    /// Too few replicas follow it.
    TooFewReplicas,
    /// It wrote, and too few replicas acknowledged in time.
    Replicas,
    /// The cluster does not serve this key now.
    ClusterDown,
    /// It does not permit this user or this command.
    Forbidden,
    /// It does not keep the script.
    Script,
    /// Its clock and this server's differ repeatedly, or it replies later than the tolerance.
    Clock,
    /// The key contains a value of another version; the value stays.
    Foreign,
    /// Another error reported by the engine.
    Error,
}

impl Fault {
    /// True when the engine refused a write before it did anything, and may still read.
    #[must_use]
    pub const fn refuses_writes(self) -> bool {
        matches!(self, Self::OutOfMemory | Self::ReadOnly | Self::TooFewReplicas)
    }

    /// All faults.
    pub const ALL: [Self; 16] = [
        Self::Unreachable,
        Self::Tls,
        Self::Late,
        Self::Cut,
        Self::Nonsense,
        Self::OutOfMemory,
        Self::Loading,
        Self::ReadOnly,
        Self::TooFewReplicas,
        Self::Replicas,
        Self::ClusterDown,
        Self::Forbidden,
        Self::Script,
        Self::Clock,
        Self::Foreign,
        Self::Error,
    ];

    /// The label in metrics.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Unreachable => "unreachable",
            Self::Tls => "tls",
            Self::Late => "late",
            Self::Cut => "cut",
            Self::Nonsense => "nonsense",
            Self::OutOfMemory => "out_of_memory",
            Self::Loading => "loading",
            Self::ReadOnly => "read_only",
            Self::TooFewReplicas => "too_few_replicas",
            Self::Replicas => "replicas",
            Self::ClusterDown => "cluster_down",
            Self::Forbidden => "forbidden",
            Self::Script => "script",
            Self::Clock => "clock",
            Self::Foreign => "foreign",
            Self::Error => "error",
        }
    }

    /// True when the node itself may be unavailable.
    pub(crate) const fn is_silence(self) -> bool {
        matches!(self, Self::Unreachable | Self::Tls | Self::Late | Self::Cut | Self::Nonsense)
    }
}
