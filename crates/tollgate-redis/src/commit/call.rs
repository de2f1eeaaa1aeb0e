//! What the engine is asked, and what may come back.
//!
//! Invariant: a call says everything that it depends on: who carries it adds nothing and repeats
//! nothing. Each is answered by exactly one [`Reply`], and a carrier that knows nothing says so.

use std::sync::Arc;

use tollgate_core::Timestamp;

use crate::commit::name::Name;

/// The one script. Its arguments are in its comment.
pub const SCRIPT: &str = include_str!("commit.lua");

/// The number of a call, never used twice by one [`Committer`](crate::commit::Committer).
pub type CallId = u64;

/// A call for one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Its number, for the reply.
    pub id: CallId,
    /// The node that it goes to, as it was given with what was asked.
    pub lane: usize,
    /// The connection to it that was known when this was decided
    /// ([`Committer::connected`](crate::commit::Committer::connected)). A commit that would go by
    /// another one is not sent: its reply is [`Reply::Elsewhere`], with the lane that it has.
    pub connection: u64,
    /// The key.
    pub name: Name,
    /// What is asked.
    pub what: What,
}

/// What is asked of the engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// [`SCRIPT`].
    Commit {
        /// The bytes that must stand there; `None`: nothing may.
        expected: Option<Arc<[u8]>>,
        /// What takes their place.
        write: Write,
        /// The engine's time that it was decided at, in milliseconds, rounded down.
        decided_at_ms: u64,
        /// By how much the engine's clock may differ from that.
        tolerance_ms: u64,
        /// The engine does not know the script: send it whole, not its hash.
        has_script: bool,
    },
    /// What stands there now.
    Read,
}

/// What a commit writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// Nothing: the answers rest on the bytes that stand there.
    Keep,
    /// Nothing is used any more.
    Delete,
    /// These bytes.
    Put {
        /// A whole value.
        value: Arc<[u8]>,
        /// The engine may forget it after so long.
        life_ms: u64,
    },
}

/// What became of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The expected bytes stood there, and it is written.
    Done {
        /// The engine's clock.
        time: Timestamp,
    },
    /// As [`Self::Done`], but it is not known that as many replicas have it as were asked for: what
    /// is written stays, and nobody is answered by it.
    Alone {
        /// The engine's clock.
        time: Timestamp,
        /// What was wrong.
        fault: Fault,
    },
    /// Others stand there; nothing is written.
    Mismatch {
        /// These, or nothing.
        stands: Option<Arc<[u8]>>,
        /// The engine's clock.
        time: Timestamp,
    },
    /// The engine's clock differs too much from the time it was decided at; nothing is written.
    OtherTime {
        /// What stands there.
        stands: Option<Arc<[u8]>>,
        /// The engine's clock.
        time: Timestamp,
    },
    /// The key is on another node; nothing is written.
    Elsewhere {
        /// That one.
        lane: usize,
    },
    /// Of [`What::Read`].
    Stands(Option<Arc<[u8]>>),
    /// The engine does not know the script; nothing is written.
    NoScript,
    /// It is certain that nothing was written.
    Refused(Fault),
    /// It is not known whether it was done, or ever will be.
    Unknown(Fault),
}

impl Reply {
    /// The engine's clock, where it told it.
    #[must_use]
    pub const fn time(&self) -> Option<Timestamp> {
        match self {
            Self::Done { time }
            | Self::Alone { time, .. }
            | Self::Mismatch { time, .. }
            | Self::OtherTime { time, .. } => Some(*time),
            Self::Elsewhere { .. }
            | Self::Stands(_)
            | Self::NoScript
            | Self::Refused(_)
            | Self::Unknown(_) => None,
        }
    }
}

/// Why the engine did not do what it was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// No connection to it.
    Unreachable,
    /// It is not known to be the one it should be, or does not take us for who we should be.
    Tls,
    /// No reply in time.
    Late,
    /// The connection was cut.
    Cut,
    /// A reply that is none.
    Nonsense,
    /// It has no memory left: it neither evicts nor takes more.
    OutOfMemory,
    /// It is reading its data.
    Loading,
    /// It is a replica, or became one.
    ReadOnly,
    /// Too few replicas follow it.
    TooFewReplicas,
    /// It wrote, and too few replicas said in time that they have it.
    Replicas,
    /// The cluster does not serve this key now.
    ClusterDown,
    /// It refuses who asks, or what.
    Forbidden,
    /// It does not keep the script.
    Script,
    /// Its clock and ours differ again and again, or it answers later than it tolerates.
    Clock,
    /// The key contains a value that this version does not write; the value stays.
    Foreign,
    /// Another error that it named.
    Error,
}

impl Fault {
    /// All of them.
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

    /// What it is called in metrics.
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

    /// True when the node itself may be gone.
    pub(crate) const fn is_silence(self) -> bool {
        matches!(self, Self::Unreachable | Self::Tls | Self::Late | Self::Cut | Self::Nonsense)
    }
}
