//! The report of what clients used in the periods of a calendar, against an exact log: random
//! charges and settlements over months, through the HTTP API of any surface.
//!
//! Invariant: the log contains what the surface's own responses say was charged, by the time that
//! the test set; the periods are computed from a table of days that shares nothing with the core.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use tollgate_test_support::Random;

use crate::http::{Request, Response};
use crate::workerd::answer;

const MINUTE: u64 = 60_000;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;
/// 2031-01-20 09:00 UTC.
pub const START: u64 = 1_926_666_000_000;
const PATH: &str = "/.well-known/tollgate/admin/usage";
/// The quota per month, in which the log expects no denial to matter.
const MONTH: u64 = 2_000;
/// The quota per day.
const DAILY: u64 = 300;
/// A name that would be a formula in a spreadsheet.
const USERS: [&str; 3] = ["ann", "=1+2", "bob"];

/// A surface with the API.
pub trait Counting {
    /// Sets the clock of its counts to this many milliseconds after 1970; it continues from there.
    fn set_time(&mut self, ms: u64);

    /// The response to a request, with the token of an operator where it is one for the API.
    fn send(&self, request: Request) -> Response;
}

/// The difference of a time from the machine's clock, in nanoseconds.
#[must_use]
pub fn ahead_ns(ms: u64) -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_nanos();
    let to = i128::from(ms) * 1_000_000;
    i64::try_from(to - i128::try_from(now).expect("a time")).expect("some centuries")
}

/// The policy: months from day 15 at +02:00, and days in UTC; and a rule without a calendar.
#[must_use]
pub fn policy() -> Value {
    let quota = |name: &str, limit: u64, window: &str| json!({"name": name, "limit": limit, "window": window, "algorithm": "fixed-window", "align": "calendar"});
    let mut month = quota("month", MONTH, "1mo");
    month["anchor_day"] = json!(15);
    month["utc_offset"] = json!("+02:00");
    json!({"version": 1, "rules": [
        {"name": "plan", "key": [{"header": "x-user"}], "cost": {"header": "x-cost", "max": 500},
         "quotas": [month, quota("day", DAILY, "1d")]},
        {"name": "hour", "key": ["client_ip"], "quotas": [{"limit": 1_000_000, "window": "1h"}]}]})
}

/// Days from 1970 to the first of each month of 2030 to 2032.
fn months() -> Vec<u64> {
    let mut day = 60 * 365 + 15;
    let lengths = |february| [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let each = [28, 28, 29].into_iter().flat_map(lengths);
    each.map(|length| {
        day += length;
        day - length
    })
    .collect()
}

/// The start of the period that contains `at`, and of the one before: of the month, or of the day.
fn starts(quota: &str, at: u64) -> [u64; 2] {
    if quota == "day" {
        let start = at / DAY * DAY;
        return [start, start - DAY];
    }
    let begins = months().into_iter().map(|first| (first + 14) * DAY - 2 * HOUR);
    let mut before = begins.filter(|start| *start <= at).collect::<Vec<_>>().into_iter().rev();
    [before.next().expect("one"), before.next().expect("one")]
}

/// Units by user, quota and start of the period.
#[derive(Default)]
struct Log(BTreeMap<(String, &'static str, u64), u64>);

impl Log {
    fn change(&mut self, user: &str, at: u64, change: impl Fn(u64, u64) -> u64) {
        for (quota, limit) in [("month", MONTH), ("day", DAILY)] {
            let [start, _] = starts(quota, at);
            let count = self.0.entry((user.to_owned(), quota, start)).or_default();
            *count = change(*count, limit);
        }
    }

    fn charge(&mut self, user: &str, at: u64, units: u64) {
        self.change(user, at, |count, limit| (count + units).min(count.max(2 * limit)));
    }

    fn used(&self, user: &str, quota: &'static str, at: u64) -> [u64; 2] {
        starts(quota, at)
            .map(|start| self.0.get(&(user.to_owned(), quota, start)).copied().unwrap_or(0))
    }
}

fn post(surface: &impl Counting, path: &str, body: &Value) -> Value {
    answer(&surface.send(Request::post(path, body.to_string())))
}

fn report(surface: &impl Counting, query: &str, accept: &str) -> Response {
    surface.send(Request::get(&format!("{PATH}?{query}")).header("accept", accept))
}

/// The users as parameters.
fn users() -> String {
    USERS.map(|user| format!("&key={}", user.replace('=', "%3D").replace('+', "%2B"))).concat()
}

/// Sends random requests over some months, settles some of them, also after the end of their
/// period, and compares each report with the log.
///
/// # Panics
/// When a report is not the log.
pub fn assert_is_an_exact_log(surface: &mut impl Counting, seed: u64) {
    let (mut random, mut log, mut at) = (Random::new(seed), Log::default(), START);
    let (mut lower, mut higher, mut after_the_end) = (0, 0, 0);
    for round in 0..60 {
        at += 2 * MINUTE
            + match random.below(8) {
                0..2 => random.below(5 * HOUR),
                2..4 => random.below(3 * DAY),
                4 => 20 * DAY + random.below(25 * DAY),
                // Three minutes before a day ends.
                _ => (at / DAY + 2) * DAY - at - 5 * MINUTE,
            };
        let user = *random.pick(&USERS);
        let cost = random.between(1, 150);
        surface.set_time(at);
        let headers = json!({"x-user": user, "x-cost": cost.to_string()});
        let decided = post(
            surface,
            "/check",
            &json!({"method": "POST", "path": "/",
            "client_ip": "192.0.2.1", "headers": headers, "settle": true}),
        );
        if decided["decision"] == "allow" {
            log.charge(user, at, cost);
            if random.chance(60) {
                let (charged_at, used) = (at, random.below(200));
                at += random.between(1, 8) * MINUTE;
                surface.set_time(at);
                let settled =
                    post(surface, "/check/settle", &json!({"id": decided["id"], "cost": used}));
                assert_eq!(settled, json!({"result": "settled", "cost": used, "charged": used}));
                let back = cost.saturating_sub(used);
                log.change(user, charged_at, |count, _| count.saturating_sub(back));
                log.charge(user, at, used.saturating_sub(cost));
                (lower, higher) = (lower + u64::from(back > 0), higher + u64::from(used > cost));
                after_the_end += u64::from(charged_at / DAY < at / DAY);
            }
        }
        let reply = report(surface, &format!("rule=plan{}", users()), "*/*");
        let reported = answer(&reply);
        for (user, of_key) in USERS.iter().zip(reported["keys"].as_array().expect("keys")) {
            assert_eq!(of_key["key"], json!([user]));
            for (i, quota) in ["month", "day"].into_iter().enumerate() {
                let of_quota = &of_key["quotas"][i];
                let found = ["current", "previous"].map(|period| of_quota[period]["used"].clone());
                let expected = log.used(user, quota, at).map(Value::from);
                assert_eq!(found, expected, "round {round}: {quota} of {user}: {of_key}");
            }
        }
    }
    assert!(lower > 3 && higher > 3 && after_the_end > 1, "{lower} {higher} {after_the_end}");
    as_lines(surface, &log, at);
    what_is_refused(surface);
}

/// The same report for a spreadsheet.
fn as_lines(surface: &impl Counting, log: &Log, at: u64) {
    let reply = report(surface, &format!("rule=plan{}", users()), "text/csv");
    assert_eq!(
        reply.header("content-type").as_deref(),
        Some("text/csv; charset=utf-8; header=present")
    );
    let text = reply.text();
    let mut lines = text.split_terminator("\r\n");
    let names: Vec<&str> = lines.next().expect("a header").split(',').collect();
    let column = |name: &str| names.iter().position(|it| *it == name).expect(name);
    let mut expected = Vec::new();
    for user in USERS {
        let shown = if user.starts_with('=') { format!("'{user}") } else { user.to_owned() };
        for quota in ["month", "day"] {
            for (period, used) in ["current", "previous"].iter().zip(log.used(user, quota, at)) {
                expected.push(format!("{shown} {quota} {period} {used}"));
            }
        }
    }
    let found: Vec<String> = lines
        .map(|line| {
            let values: Vec<&str> = line.split(',').collect();
            assert_eq!(values.len(), names.len(), "{line}");
            ["key[0]", "quota", "period", "used"].map(|name| values[column(name)]).join(" ")
        })
        .collect();
    assert_eq!(found, expected);
}

fn what_is_refused(surface: &impl Counting) {
    let status = |query: &str| report(surface, query, "*/*").status;
    assert_eq!(status("rule=gone&key=a"), 404);
    assert_eq!(status("rule=hour&key=192.0.2.1"), 422, "a rule without a calendar");
    assert_eq!(status("rule=plan"), 422, "without a key");
    assert_eq!(status(&format!("rule=plan{}", "&key=a".repeat(101))), 422);
    assert_eq!(status("rule=plan&key=a&format=csv"), 400);
}
