//! The pictures of `docs/choosing.md`: one client under each algorithm, in virtual time.
//!
//! Invariant: every algorithm gets the same requests and the same limit. The pictures count the
//! requests that were sent on, not the algorithm's own state. Nothing here decides.

use std::sync::Arc;

use tollgate_core::{Span, Timestamp};
use tollgate_lab::simulator::{Fate, ObservedDecision, Run, START, Traffic};
use tollgate_policy::Surface;
use tollgate_report::{Axis, Mark, Plot, Series, Shape};

/// A client that is polite for two minutes, sends ten requests per second from three seconds before
/// the fourth minute until the sixth, and is polite again.
pub const TRAFFIC: &str = r#"{
  "length": "8m",
  "sources": [
    { "name": "polite", "arrivals": { "steady": { "rate": "1/5s" } }, "to": "2m",
      "request": { "headers": { "x-client": "a" } } },
    { "name": "flood", "arrivals": { "steady": { "rate": "10/1s" } }, "from": "177s", "to": "5m",
      "request": { "headers": { "x-client": "a" } } },
    { "name": "polite again", "arrivals": { "steady": { "rate": "1/5s" } }, "from": "5m",
      "request": { "headers": { "x-client": "a" } } }
  ]
}"#;

/// Requests per minute.
pub const LIMIT: u32 = 20;
const SECONDS: u64 = 480;
/// The width of a bar, in seconds.
const BAR: u64 = 5;

/// One picture.
#[derive(Debug)]
pub struct Picture {
    /// The name of its file, without the theme.
    pub name: &'static str,
    /// The plot.
    pub plot: Plot,
    /// The most requests sent on within any one minute.
    pub most: usize,
    /// The polite requests that were denied after the burst.
    pub polite_refused: u64,
}

/// The name of a picture, its heading, and the quota's fields after limit and window.
const SUBJECTS: [(&str, &str, &str); 9] = [
    ("gcra", "gcra", r#""algorithm": "gcra""#),
    ("gcra-burst", "gcra, burst 5", r#""algorithm": "gcra", "burst": 5"#),
    (
        "gcra-strict",
        "gcra, burst 10, strict",
        r#""algorithm": "gcra", "burst": 10, "strict": true"#,
    ),
    ("leaky-queue", "leaky-queue, burst 5", r#""algorithm": "leaky-queue", "burst": 5"#),
    ("fixed-window", "fixed-window", r#""algorithm": "fixed-window""#),
    ("sliding-window", "sliding-window", r#""algorithm": "sliding-window""#),
    (
        "sliding-buckets",
        "sliding-buckets, 6 parts",
        r#""algorithm": "sliding-buckets", "buckets": 6"#,
    ),
    (
        "sliding-buckets-weighted",
        "sliding-buckets, 6 parts, weighted",
        r#""algorithm": "sliding-buckets", "buckets": 6, "weighted": true"#,
    ),
    ("sliding-log", "sliding-log", r#""algorithm": "sliding-log""#),
];

/// All of them, in the order of the document.
#[must_use]
pub fn pictures() -> Vec<Picture> {
    SUBJECTS.into_iter().map(|(name, title, quota)| picture(name, title, quota)).collect()
}

fn picture(name: &'static str, title: &str, quota: &str) -> Picture {
    let document = format!(
        r#"{{"version": 1, "rules": [{{"name": "each", "key": [{{"header": "x-client"}}],
             "quotas": [{{"limit": {LIMIT}, "window": "1m", {quota}}}]}}]}}"#
    );
    let policy = tollgate_language::compile(&document, Surface::Library).expect("a policy of ours");
    let traffic = Traffic::parse(TRAFFIC).expect("a traffic of ours");
    let mut went_on = Vec::new();
    let (mut refused, mut polite_refused) = (0_u64, 0);
    let mut run = Run::new(Arc::new(policy), &traffic, 1);
    let observe = &mut |seen: &ObservedDecision<'_>| match seen.decided.fate() {
        Fate::Admitted => went_on.push(millis(seen.at)),
        Fate::Delayed(wait) => {
            let more = wait.saturating_sub(seen.decided.waited());
            went_on.push(millis(seen.at.saturating_add(more)));
        }
        Fate::Waiting => {}
        Fate::Denied { .. } => {
            refused += 1;
            let at = millis(seen.request.at);
            polite_refused += u64::from(!(177_000..300_000).contains(&at));
        }
    };
    while !run.step(1_000, observe).is_done {}
    went_on.sort_unstable();
    let most = went_on.iter().map(|end| within_a_minute(&went_on, *end)).max().unwrap_or(0);
    let plot = plot(name, title, &went_on)
        .describe(format!("At most {most} requests pass in any minute; {refused} are refused."));
    Picture { name, plot, most, polite_refused }
}

/// Milliseconds since the start of the traffic.
fn millis(at: Timestamp) -> u64 {
    at.since(START).as_millis_ceil()
}

/// The number of requests sent on in the minute that ends with this millisecond.
fn within_a_minute(went_on: &[u64], end: u64) -> usize {
    let until = went_on.partition_point(|at| *at <= end);
    until - went_on.partition_point(|at| at + Span::from_secs(60).as_millis_ceil() <= end)
}

fn plot(name: &str, title: &str, went_on: &[u64]) -> Plot {
    let bars = (0..SECONDS / BAR).map(|i| {
        let begin = i * BAR;
        let inside = went_on.iter().filter(|at| (begin..begin + BAR).contains(&(*at / 1000)));
        (begin as f64, inside.count() as f64)
    });
    let counts = (0..=SECONDS)
        .map(|second| (second as f64, within_a_minute(went_on, second * 1000 + 999) as f64));
    let x = Axis::duration("since the beginning");
    Plot::new(name, title, x, Axis::count("requests that pass"))
        .series(Series::new("in five seconds", Shape::Bars).points(bars))
        .series(Series::new("in the last minute", Shape::Line).points(counts))
        .mark(Mark::level("limit", f64::from(LIMIT)))
        // This gives all pictures the same scale.
        .mark(Mark::level("twice the limit", f64::from(2 * LIMIT)))
}
