//! The shipped module on machines that were started at odd times: windows begin at the full minute
//! of the wall clock, and no step of that clock moves a count.

use serde_json::{Value, json};

use crate::envoy_host::{Filter, Shared};

const SECOND: u64 = 1_000_000_000;
/// A full minute of the year 2025.
const MINUTE: u64 = 1_752_800_040 * SECOND;
/// The start time of the machine: 33.3 s after a full minute, and five days before [`MINUTE`].
const BOOTED: u64 = MINUTE - 5 * 86_400 * SECOND + 33_300_000_000;

fn policy() -> Value {
    json!({"version": 1, "rules": [{"name": "all", "key": [], "quotas": [
        {"name": "all", "limit": 3, "window": "1m", "algorithm": "fixed-window"}]}]})
}

/// Sends `count` requests at this time of the wall clock, on a machine that was started at
/// `booted`; returns how many pass, and the last `Retry-After`.
fn ask(filter: &mut Filter, (wall, booted): (u64, u64), count: usize) -> (usize, Option<String>) {
    let (mut passed, mut retry_after) = (0, None);
    for _ in 0..count {
        let answer = filter.request(wall - booted, &[(":path", b"/")]);
        passed += usize::from(answer.passed());
        retry_after = answer.field("retry-after").map(str::to_owned);
    }
    (passed, retry_after)
}

fn machine(shared: &Shared, (wall, booted): (u64, u64)) -> Filter {
    Filter::on_machine(&policy(), shared, (booted, wall - booted))
}

// Guards: a window "per calendar minute" that begins with the machine and not with the minute.
#[test]
fn a_window_begins_at_the_full_minute() {
    let late = (MINUTE - SECOND, BOOTED);
    let mut filter = machine(&Shared::default(), late);
    assert_eq!(ask(&mut filter, late, 4), (3, Some("1".into())));
    assert_eq!(ask(&mut filter, (MINUTE - 1, BOOTED), 1), (0, Some("1".into())));
    assert_eq!(ask(&mut filter, (MINUTE, BOOTED), 4), (3, Some("60".into())));
}

// Guards: counts that end, or never end, when the wall clock is set: it moves no window, nor does a
// worker that starts afterwards, with another configuration or after a trap.
#[test]
fn no_step_of_the_wall_clock_moves_a_count() {
    for set_to in [0, BOOTED - 86_400 * SECOND, BOOTED + 59 * SECOND, 4_102_444_800 * SECOND] {
        let shared = Shared::default();
        let now = (MINUTE + SECOND, BOOTED);
        let mut filter = machine(&shared, now);
        assert_eq!(ask(&mut filter, now, 2), (2, None));
        filter.set_wall_clock(set_to);
        assert_eq!(ask(&mut filter, now, 2), (1, Some("59".into())), "{set_to}");
        assert!(filter.configure_policy(&policy()));
        assert_eq!(ask(&mut filter, now, 1), (0, Some("59".into())), "{set_to}: configured again");
        let mut other = Filter::on_machine(&policy(), &shared, (set_to, now.0 - now.1));
        assert_eq!(ask(&mut other, now, 1), (0, Some("59".into())), "{set_to}: another worker");
        assert_eq!(ask(&mut other, (MINUTE + 60 * SECOND, BOOTED), 4), (3, Some("60".into())));
    }
}

// Guards: a month that begins with the clock of the start. Counts by a calendar follow the wall
// clock, whose step moves them, and no others.
#[test]
fn a_calendar_follows_the_wall_clock() {
    let policy = json!({"version": 1, "rules": [
        {"name": "month", "key": [], "when": {"paths": ["/month"]}, "quotas": [{"name": "month", "limit": 2,
            "window": "1mo", "algorithm": "fixed-window", "align": "calendar", "anchor_day": 19}]},
        {"name": "hour", "key": ["path"], "when": {"paths": ["/hour"]}, "quotas": [{"name": "hour", "limit": 2,
            "window": "1h", "algorithm": "fixed-window"}]}]});
    // Friday, 18 July 2025, 00:54.
    let uptime = MINUTE - BOOTED;
    let mut filter = Filter::on_machine(&policy, &Shared::default(), (BOOTED, uptime));
    let asked = |filter: &mut Filter, path: &[u8]| {
        let answer = filter.request(uptime, &[(":path", path)]);
        (answer.passed(), answer.field("ratelimit-policy").unwrap_or_default().to_owned())
    };
    let june = "\"month\";q=2;w=2592000"; // from 19 June to 19 July
    for passes in [true, true, false] {
        assert_eq!(asked(&mut filter, b"/month"), (passes, june.into()));
        assert_eq!(asked(&mut filter, b"/hour").0, passes);
    }
    filter.set_wall_clock(BOOTED + 86_400 * SECOND);
    let july = "\"month\";q=2;w=2678400";
    for passes in [true, true, false] {
        assert_eq!(asked(&mut filter, b"/month"), (passes, july.into()));
        assert!(!asked(&mut filter, b"/hour").0);
    }
}

// A machine whose clock is not set, or is set to a time at which nothing can be decided: windows
// begin with the machine, and counts are exact.
#[test]
fn a_clock_that_cannot_be_believed_is_left_out() {
    for booted in [0, 7_258_118_400 * SECOND] {
        let uptime = 1_000 * 60 * SECOND + 7 * SECOND;
        let mut filter = Filter::on_machine(&policy(), &Shared::default(), (booted, uptime));
        assert_eq!(ask(&mut filter, (uptime, 0), 4), (3, Some("53".into())), "{booted}");
        assert_eq!(ask(&mut filter, (uptime + 53 * SECOND, 0), 4), (3, Some("60".into())));
    }
}

// Two `vm_id`s have two maps: each is aligned by the clock at its beginning.
#[test]
fn each_map_has_its_own_offset() {
    let now = (MINUTE + SECOND, BOOTED);
    let mut one = machine(&Shared::default(), now);
    let mut other = Filter::on_machine(
        &policy(),
        &Shared::default(),
        (BOOTED - 10 * SECOND, now.0 - now.1), // the clock was set back meanwhile
    );
    assert_eq!(ask(&mut one, now, 4), (3, Some("59".into())));
    assert_eq!(ask(&mut other, now, 4), (3, Some("9".into())));
}
