//! The clock of every decision: the host's monotonic clock plus one offset, so that it counts from
//! 1970 and windows begin where those of a server and of a Worker do.
//!
//! Invariant: the first worker of a map writes the offset, and all workers of the map have the same
//! one for as long as the process lives. So no step of the wall clock moves the time of a decision.
//! Deliberately absent: a correction. If the wall clock was wrong when the process began, windows
//! are aligned to that, and counts are as exact as ever.

use tollgate_core::{Span, Timestamp};
use tollgate_storage::table::LAYOUT_VERSION;

use crate::host::shared_data::{INSERT, SharedData, Stored};

/// The offset, in nanoseconds, little-endian.
const NAME: &[u8] = &[LAYOUT_VERSION, b'w', b'a', b'l', b'l'];

/// Attempts to agree. Every failed attempt means that another worker wrote the value.
const TRIES: u32 = 8;

/// The start of the year 2200. A wall clock that shows more is not trusted: the core decides at no
/// time later than 2545, where a count would never end.
pub const LATEST_WALL: Timestamp = Timestamp::from_millis(7_258_118_400_000);

/// The values that a worker has when it first uses a map.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clocks {
    /// The offset that it has had; zero for none.
    pub own: Span,
    /// Its monotonic clock.
    pub monotonic: Option<Timestamp>,
    /// Its wall clock.
    pub wall: Option<Timestamp>,
}

/// The offset that all workers of the map have: that of `clocks`, if none has one yet. `is_counted`
/// is true when a filter without an offset counts in the map, which then stays without. `None` when
/// the host does not respond.
pub fn agree(
    shared: &impl SharedData,
    clocks: Clocks,
    is_counted: impl Fn() -> bool,
) -> Option<Span> {
    for _ in 0..TRIES {
        let cas = match shared.get(NAME) {
            Stored::Value(bytes, cas) => match bytes.try_into() {
                Ok(offset) => return Some(Span::from_nanos(u64::from_le_bytes(offset))),
                Err(_) => cas,
            },
            Stored::Absent => INSERT,
            Stored::Unreachable => return None,
        };
        let offset = if cas == INSERT && is_counted() { Span::ZERO } else { clocks.offset() };
        shared.set(NAME, &offset.as_nanos().to_le_bytes(), cas);
    }
    None
}

impl Clocks {
    /// The offset that this worker would propose: its own, if it has one.
    fn offset(self) -> Span {
        match (self.monotonic, self.wall) {
            (Some(now), Some(wall)) if self.own == Span::ZERO && wall <= LATEST_WALL => {
                wall.since(now)
            }
            _ => self.own,
        }
    }
}
