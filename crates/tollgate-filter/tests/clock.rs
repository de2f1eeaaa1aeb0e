//! The offset that makes windows begin at the full minute, agreed by all workers of a map.
//!
//! Invariant: workers of one map never have two offsets, whatever their wall clocks show.

use std::cell::RefCell;

use crate::support::{Interrupted, Shared};
use tollgate_core::{Span, Timestamp};
use tollgate_filter::counts::clock::{Clocks, agree};
use tollgate_filter::host::shared_data::{INSERT, SharedData, Stored, Written};

/// 18 July 2025, after the machine has run for a day.
const WALL_S: u64 = 1_752_800_000;
const UPTIME_S: u64 = 86_401;

fn seconds(seconds: u64) -> Span {
    Span::from_secs(seconds)
}

fn clocks(uptime_s: u64, wall_s: u64) -> Clocks {
    let at = |s| Some(Timestamp::ZERO.saturating_add(seconds(s)));
    Clocks { own: Span::ZERO, monotonic: at(uptime_s), wall: at(wall_s) }
}

fn agreed(shared: &impl SharedData, clocks: Clocks) -> Span {
    agree(shared, clocks, || false).expect("the map answers")
}

/// The name of the offset in a map that contains nothing else.
fn name(shared: &Shared) -> Vec<u8> {
    shared.entries().into_keys().next().unwrap()
}

// Guards: windows that begin at the start of the machine, and clocks with implausible times.
#[test]
fn the_offset_is_what_the_wall_clock_is_ahead() {
    let never = Clocks { wall: None, ..clocks(UPTIME_S, 0) };
    let rows = [
        (clocks(UPTIME_S, WALL_S), WALL_S - UPTIME_S),
        (clocks(0, WALL_S), WALL_S),
        (clocks(UPTIME_S, 0), 0), // a machine without a clock of its own
        (clocks(UPTIME_S, UPTIME_S - 1), 0), // and a day later
        (clocks(UPTIME_S, 7_258_118_400), 7_258_118_400 - UPTIME_S), // 2200
        (clocks(UPTIME_S, 7_258_118_401), 0),
        (clocks(UPTIME_S, u64::MAX / 1_000_000_000), 0),
        (never, 0),
        (Clocks { monotonic: None, ..clocks(0, WALL_S) }, 0),
    ];
    for (clocks, expected) in rows {
        assert_eq!(agreed(&Shared::default(), clocks), seconds(expected), "{clocks:?}");
    }
}

// Guards: a count that begins again, or a key that is locked out, because someone set the clock.
#[test]
fn no_step_of_the_wall_clock_changes_it() {
    let shared = Shared::default();
    let first = agreed(&shared, clocks(UPTIME_S, WALL_S));
    for wall_s in [0, WALL_S - 3_600, WALL_S + 3_600, WALL_S * 2, u64::MAX / 1_000_000_000] {
        assert_eq!(agreed(&shared, clocks(UPTIME_S + 10, wall_s)), first, "{wall_s}");
        // An existing virtual machine keeps it, too.
        let known = Clocks { own: first, ..clocks(UPTIME_S + 10, wall_s) };
        assert_eq!(agreed(&shared, known), first, "{wall_s}");
    }
}

// Two workers that start at once, the second between any two calls of the first.
#[test]
fn workers_that_come_at_once_have_one() {
    for at in 0..4 {
        let shared = Shared::default();
        let mut other = None;
        let mut meanwhile = |call: usize| {
            if call == at {
                other = Some(agreed(&shared, clocks(UPTIME_S, WALL_S + 7)));
            }
        };
        let host = Interrupted {
            shared: &shared,
            meanwhile: RefCell::new(&mut meanwhile),
            calls: RefCell::new(0),
        };
        let one = agreed(&host, clocks(UPTIME_S, WALL_S));
        assert_eq!(other.unwrap_or(one), one, "{at}");
    }
}

// Guards: a module that replaces an earlier one in a living process, and reads its times as those
// of 56 years ago: every count would begin again.
#[test]
fn a_map_that_is_counted_in_without_an_offset_stays_without() {
    let shared = Shared::default();
    let offset = agree(&shared, clocks(UPTIME_S, WALL_S), || true);
    assert_eq!(offset, Some(Span::ZERO));
    assert_eq!(agreed(&shared, clocks(UPTIME_S, WALL_S)), Span::ZERO);
}

// Bytes that are not an offset, of another plugin with this `vm_id`: a machine that has one
// restores it.
#[test]
fn a_damaged_offset_is_written_again() {
    let shared = Shared::default();
    let first = agreed(&shared, clocks(UPTIME_S, WALL_S));
    let name = name(&shared);
    for bytes in [&b""[..], b"1234567", b"123456789"] {
        shared.put(&name, bytes);
        let known = Clocks { own: first, ..clocks(UPTIME_S, WALL_S + 100) };
        assert_eq!(agree(&shared, known, || true), Some(first));
        assert_eq!(agreed(&shared, clocks(UPTIME_S, 0)), first);
    }
}

#[test]
fn a_host_that_does_not_answer_has_none() {
    struct Nothing;
    impl SharedData for Nothing {
        fn get(&self, _: &[u8]) -> Stored {
            Stored::Unreachable
        }
        fn set(&self, _: &[u8], _: &[u8], cas: u32) -> Written {
            assert_eq!(cas, INSERT);
            Written::Unreachable
        }
    }
    assert_eq!(agree(&Nothing, clocks(0, WALL_S), || false), None);
}
