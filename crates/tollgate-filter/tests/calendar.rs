//! Counts by a calendar: they follow the wall clock, which is read for them alone.
//!
//! Invariant: a group is decided by one clock. A step of the wall clock moves a calendar's windows,
//! and never a count of another group.

use std::rc::Rc;

use tollgate_core::{Span, Timestamp};
use tollgate_filter::filter::{Filter, Flow};

use crate::waiting::{Host, World, come, with_policy};

/// 2026-11-30 23:00 UTC, an hour before December.
const NOVEMBER: u64 = 1_796_079_600;
const HOUR: u64 = 3_600;
const DAY: u64 = 24 * HOUR;

/// 3 per month for `/month`, and 3 in each 10 s for `/other`, which has another key.
const POLICY: &str = r#"{"version": 1, "rules": [
    {"name": "month", "when": {"paths": ["/month"]}, "key": ["client_ip"],
     "quotas": [{"limit": 3, "window": "1mo", "algorithm": "fixed-window", "align": "calendar"}]},
    {"name": "other", "when": {"paths": ["/other"]}, "key": ["path"],
     "quotas": [{"limit": 3, "window": "10s", "algorithm": "fixed-window"}]}]}"#;

fn at(seconds: u64) -> Timestamp {
    Timestamp::ZERO.saturating_add(Span::from_secs(seconds))
}

struct Machine {
    filter: Filter<Host>,
    world: Rc<World>,
    next: u32,
}

impl Machine {
    /// Its monotonic clock shows 1,000 s.
    fn new(policy: &str, wall: Option<u64>) -> Self {
        let (filter, world) = with_policy(policy.to_owned());
        world.now.set(at(1_000));
        world.wall.set(wall.map(at));
        world.wall_reads.set(0);
        Self { filter, world, next: 100 }
    }

    /// How many of four requests pass.
    fn passed(&mut self, path: &'static str) -> usize {
        let each = (0..4).map(|_| {
            self.next += 1;
            let flow = come(&self.filter, &self.world, self.next, path);
            self.filter.on_delete(self.next);
            usize::from(flow == Flow::Continue)
        });
        each.sum()
    }
}

#[test]
fn a_month_begins_by_the_wall_clock() {
    let mut machine = Machine::new(POLICY, Some(NOVEMBER));
    assert_eq!(machine.passed("/month"), 3);
    machine.world.wall.set(Some(at(NOVEMBER + HOUR - 1)));
    assert_eq!(machine.passed("/month"), 0);
    machine.world.wall.set(Some(at(NOVEMBER + HOUR)));
    assert_eq!(machine.passed("/month"), 3);
    // A clock that is set back by a second is late, and counts in December.
    machine.world.wall.set(Some(at(NOVEMBER + HOUR - 1)));
    assert_eq!(machine.passed("/month"), 0);
    machine.world.wall.set(Some(at(NOVEMBER + HOUR + 31 * DAY)));
    assert_eq!(machine.passed("/month"), 3);
}

#[test]
fn the_monotonic_clock_moves_no_month() {
    let mut machine = Machine::new(POLICY, Some(NOVEMBER));
    assert_eq!(machine.passed("/month"), 3);
    machine.world.now.set(at(1_000 + 40 * DAY));
    assert_eq!(machine.passed("/month"), 0);
}

#[test]
fn other_groups_have_the_ordinary_clock_and_no_host_call_more() {
    let mut machine = Machine::new(POLICY, Some(NOVEMBER));
    assert_eq!(machine.passed("/other"), 3);
    machine.world.wall.set(Some(at(NOVEMBER + 400 * DAY)));
    assert_eq!(machine.passed("/other"), 0);
    assert_eq!(machine.world.wall_reads.get(), 0);
    machine.world.now.set(at(1_010));
    assert_eq!(machine.passed("/other"), 3);
    assert_eq!(machine.world.wall_reads.get(), 0);
    machine.passed("/month");
    assert_eq!(machine.world.wall_reads.get(), 4, "once for each request");
}

#[test]
fn without_a_wall_clock_the_ordinary_one_decides() {
    let mut machine = Machine::new(POLICY, None);
    assert_eq!(machine.passed("/month"), 3);
    assert_eq!(machine.passed("/month"), 0);
    machine.world.now.set(at(31 * DAY));
    assert_eq!(machine.passed("/month"), 3, "February of 1970");
}

/// Both rules apply, each by its own clock, and a denial by one charges neither.
#[test]
fn a_request_of_two_groups_is_decided_by_two_clocks() {
    let policy = POLICY.replace(r#""paths": ["/month"]"#, r#""methods": ["GET"]"#);
    let policy = policy.replace(r#""paths": ["/other"]"#, r#""methods": ["GET"]"#);
    let mut machine = Machine::new(&policy, Some(NOVEMBER));
    assert_eq!(machine.passed("/"), 3);
    machine.world.now.set(at(1_010));
    assert_eq!(machine.passed("/"), 0, "the month is used up");
    machine.world.wall.set(Some(at(NOVEMBER + HOUR)));
    assert_eq!(machine.passed("/"), 3, "the denials took nothing of the other quota");
    assert_eq!(machine.passed("/"), 0);
}
