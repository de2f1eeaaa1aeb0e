//! Use of the reported numbers by clients: spread `r` over `t`, and wait `Retry-After`.
//!
//! Invariant: a client that does so is never denied, and one that spreads gets (nearly) all of the
//! rate. The fields are read with a structured-field parser that is not ours: see docs/fields.md.

use crate::support::{Seen, Surfaced, get};
use sfv::{BareItem, List, ListEntry, Parser};
use tollgate_policy::Disposition;

/// A time at which neither a window nor a second begins.
const START_MS: u64 = 1_900_000_900_137;
const DENIED: Disposition = Disposition::Deny { status: 429 };
const TEN_MINUTES_US: u64 = 600_000_000;

/// The algorithms whose clients get 95 % of the rate; `leaky-queue` itself spreads requests.
const PACED: [&str; 7] = [
    "gcra",
    "token-bucket",
    "leaky-bucket",
    "fixed-window",
    "sliding-window",
    "sliding-buckets",
    "sliding-log",
];

/// One client of a policy of one rule, on a clock of its own.
struct Client {
    surfaced: Surfaced,
    now_us: u64,
}

impl Client {
    fn new(quotas: &str) -> Self {
        let surfaced = Surfaced::new(&format!(
            r#"{{"version": 1, "rules": [{{"name": "r", "key": ["client_ip"], "cost": {{"header": "x-cost", "default": 1, "max": 64}}, "quotas": [{quotas}]}}]}}"#
        ));
        Self { surfaced, now_us: 0 }
    }

    fn asks(&mut self, cost: u64) -> Seen {
        let request = get("/", "192.0.2.1").header("x-cost", cost.to_string());
        self.surfaced.check(&request, START_MS + self.now_us.div_ceil(1_000))
    }

    /// Sends one request, expects to be allowed, and returns `r` and `t` of the quota with the
    /// longest pace.
    fn paced(&mut self) -> (u64, u64) {
        let seen = self.asks(1);
        assert_eq!(seen.answer, Disposition::Allow, "after {} us", self.now_us);
        let told = told(seen.header("ratelimit").unwrap());
        told.into_iter().max_by_key(|(r, t)| pace_us(*r, *t)).unwrap()
    }

    /// Uses up all units at once, and waits until one more is allowed.
    fn spends_everything(&mut self) {
        let t = loop {
            let (r, t) = self.paced();
            if r == 0 {
                break t;
            }
        };
        self.now_us += t * 1_000_000;
    }
}

/// The time between two requests that spread `r` over `t` seconds.
fn pace_us(r: u64, t: u64) -> u64 {
    (t * 1_000_000).div_ceil(r.max(1))
}

/// `r` and `t` of every member of the `RateLimit` field.
fn told(field: &str) -> Vec<(u64, u64)> {
    let list: List = Parser::new(field).parse().unwrap_or_else(|e| panic!("{field}: {e}"));
    let integer = |item: &BareItem| u64::try_from(i64::from(item.as_integer().unwrap())).unwrap();
    let member = |entry: &ListEntry| match entry {
        ListEntry::Item(item) => (integer(&item.params["r"]), integer(&item.params["t"])),
        ListEntry::InnerList(_) => panic!("{field}"),
    };
    list.iter().map(member).collect()
}

/// The requests allowed in ten minutes to a client that paces each request by the response to the
/// one before.
fn paced_by_every_answer(client: &mut Client) -> u64 {
    let (end_us, mut admitted) = (client.now_us + TEN_MINUTES_US, 0);
    while client.now_us < end_us {
        let (r, t) = client.paced();
        client.now_us += pace_us(r, t);
        admitted += 1;
    }
    admitted
}

/// The requests allowed in ten minutes to a client that sends `r` evenly over `t`, and only then
/// reads the fields again.
fn spread_in_batches(client: &mut Client) -> u64 {
    let (end_us, mut admitted) = (client.now_us + TEN_MINUTES_US, 0);
    let (mut r, mut t) = client.paced();
    while client.now_us < end_us {
        let pace_us = pace_us(r, t);
        for _ in 0..r.max(1) {
            client.now_us += pace_us;
            (r, t) = client.paced();
            admitted += 1;
        }
    }
    admitted
}

/// A client's share of `rate_per_hour` under these quotas, in thousandths: the least of every way
/// to pace and to begin.
fn least_share(quotas: &str, rate_per_hour: u64) -> u64 {
    let ways: [fn(&mut Client) -> u64; 2] = [paced_by_every_answer, spread_in_batches];
    let begins: [fn(&mut Client); 2] = [|_| {}, Client::spends_everything];
    let admitted =
        ways.into_iter().flat_map(|way| begins.map(|begin| (way, begin))).map(|(way, begin)| {
            let mut client = Client::new(quotas);
            begin(&mut client);
            way(&mut client)
        });
    admitted.min().unwrap() * 1_000 * 6 / rate_per_hour
}

fn quota(algorithm: &str, limit: u64, window: &str) -> String {
    format!(r#"{{"limit": {limit}, "window": "{window}", "algorithm": "{algorithm}"}}"#)
}

#[test]
fn who_spreads_r_over_t_gets_95_percent_of_the_rate_and_no_429() {
    let windows = [
        (7, "1m", 60),
        (60, "1m", 60),
        (100, "1m", 60),
        (600, "1m", 60),
        (1000, "1h", 1),
        (30, "30s", 120),
    ];
    let mut shares = vec![];
    for algorithm in PACED {
        for (limit, window, per_hour) in windows {
            let share = least_share(&quota(algorithm, limit, window), limit * per_hour);
            shares.push((format!("{algorithm} {limit} / {window}"), share));
        }
    }
    for burst in [5, 20, 300] {
        let quota = format!(r#"{{"limit": 100, "window": "1m", "burst": {burst}}}"#);
        shares.push((quota.clone(), least_share(&quota, 6_000)));
    }
    let layers = r#"{"name": "minute", "limit": 60, "window": "1m", "algorithm": "sliding-log"},
                    {"name": "hour", "limit": 1200, "window": "1h"}"#;
    shares.push(("layers".into(), least_share(layers, 1_200)));
    let below: Vec<_> = shares.iter().filter(|(_, share)| *share < 950).collect();
    assert!(below.is_empty(), "thousandths of the rate: {below:?}");
}

/// The fields count whole seconds, so the pace of a quota that grows back within seconds cannot be
/// reported exactly; the reported pace is on the safe side.
#[test]
fn who_spreads_r_over_t_of_a_short_window_gets_no_429() {
    for algorithm in PACED {
        for (limit, window, per_hour) in [
            (1, "1s", 3600),
            (2, "1s", 3600),
            (20, "1s", 3600),
            (10, "10s", 360),
            (3, "1500ms", 2400),
        ] {
            let share = least_share(&quota(algorithm, limit, window), limit * per_hour);
            assert!(share >= 450, "{algorithm} {limit} / {window}: {share}");
        }
    }
}

/// Waiting `Retry-After` is enough, and a second less is not, for one unit and for several.
#[test]
fn retry_after_is_exact_to_the_second() {
    for algorithm in PACED.into_iter().chain(["leaky-queue"]) {
        for (limit, window) in [(1, "1s"), (3, "10s"), (7, "1m"), (60, "1m"), (100, "1h")] {
            for (cost, step_us) in [(1, 0), (1, 250_123), (3, 499_999), (limit, 450_001)] {
                let cost = cost.min(limit).min(64);
                let at = format!("{algorithm} {limit} / {window}, cost {cost}, every {step_us} us");
                check_waits(&quota(algorithm, limit, window), cost, step_us, &at);
            }
        }
    }
}

/// Sends requests, and after each of five denials two more: a second too early, and at the reported
/// time.
fn check_waits(quota: &str, cost: u64, step_us: u64, at: &str) {
    let mut client = Client::new(quota);
    for _ in 0..5 {
        let wait_us = denied_for(&mut client, cost, step_us, at) * 1_000_000;
        let denied_us = client.now_us;
        client.now_us = denied_us + wait_us - 1_000_000;
        assert_eq!(client.asks(cost).answer, DENIED, "{at}: {wait_us} us");
        client.now_us = denied_us + wait_us;
        assert_ne!(client.asks(cost).answer, DENIED, "{at}: {wait_us} us");
    }
}

/// Sends requests until one is denied; returns the `Retry-After` of that denial.
fn denied_for(client: &mut Client, cost: u64, step_us: u64, at: &str) -> u64 {
    for _ in 0..1_000 {
        let seen = client.asks(cost);
        if seen.answer == DENIED {
            return seen.header("retry-after").unwrap().parse().unwrap();
        }
        client.now_us += step_us;
    }
    panic!("{at}: never denied")
}
