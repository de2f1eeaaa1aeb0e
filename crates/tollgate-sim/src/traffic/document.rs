//! The traffic document: what people write about made-up requests.
//!
//! Invariant: a field that may be left out has its default here; a field that is not here is a
//! mistake. The values are `scalar`'s.

use serde::{Deserialize, Serialize};
use tollgate_core::Span;

use super::scalar::{
    Bin, Bounded, Count, Descriptor, Exponent, Headers, Listed, Nodes, Positive, Ppm, Rate, Status,
    Text, Time,
};

/// Requests that come.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, expecting = "an object with `length` and `sources`")]
pub(crate) struct Document {
    /// How long requests come.
    pub(crate) length: Time,
    /// Where they come from, at the same time.
    pub(crate) sources: Vec<Source>,
    /// What they come to.
    #[serde(default)]
    pub(crate) servers: Servers,
}

/// Clients that do the same.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Source {
    #[serde(default)]
    pub(crate) name: Text,
    pub(crate) arrivals: Arrivals,
    /// When they begin and end, after the beginning of it all.
    #[serde(default)]
    pub(crate) from: Time,
    #[serde(default)]
    pub(crate) to: Option<Time>,
    #[serde(default)]
    pub(crate) clients: Clients,
    /// Every client has arrivals of its own.
    #[serde(default)]
    pub(crate) each: bool,
    #[serde(default)]
    pub(crate) request: Shape,
    #[serde(default)]
    pub(crate) status: Status,
    #[serde(default)]
    pub(crate) retry: Option<Retry>,
    /// Its clients space their requests by what the response says: `t / r`.
    #[serde(default)]
    pub(crate) paced: bool,
}

/// When requests come.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(
    rename_all = "snake_case",
    deny_unknown_fields,
    expecting = "an object, such as {\"steady\": {\"rate\": \"10/1s\"}}"
)]
pub(crate) enum Arrivals {
    /// Evenly.
    Steady { rate: Rate },
    /// Independently of each other.
    Poisson { rate: Rate },
    /// Evenly for `on`, then none for `off`.
    OnOff { rate: Rate, on: Positive, off: Time },
    /// `size` at one instant, `every` so often.
    Bursts { size: Count, every: Positive },
    /// A rate that goes evenly from one to the other.
    Ramp { from: Rate, to: Rate },
    /// `size` within `gap` before every edge of a fixed window, and `size` on it.
    Edge {
        window: Positive,
        size: Count,
        #[serde(default = "a_millisecond")]
        gap: Positive,
    },
    /// So many in each bin, evenly: a time line.
    Counts { bin: Positive, counts: Listed<Bin> },
    /// `size` in all, each `wait` after the one before, and up to `jitter` later by chance.
    Spaced {
        size: Count,
        wait: Time,
        #[serde(default)]
        jitter: Time,
    },
    /// At these times.
    Instants { at: Listed<Time> },
}

const fn a_millisecond() -> Positive {
    Positive(Span::from_millis(1))
}

/// Who asks.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Clients {
    #[serde(default)]
    pub(crate) count: Count,
    /// Client number `k` asks in proportion to `k^-zipf`; without it all ask as often, in turn by
    /// chance.
    #[serde(default)]
    pub(crate) zipf: Option<Exponent>,
    /// Every request is from a client that nobody has seen before.
    #[serde(default)]
    pub(crate) fresh: bool,
}

/// What a request is. `{client}`, `{address}` and `{n}` in a text stand for the client's number,
/// its address and the number of the request.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Shape {
    pub(crate) method: Text,
    pub(crate) path: Text,
    pub(crate) host: Text,
    pub(crate) headers: Headers,
    /// The domain that a rate limit service is asked with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) domain: Option<Text>,
    /// The entries of the descriptor that it is asked about.
    #[serde(skip_serializing_if = "Descriptor::is_empty")]
    pub(crate) descriptor: Descriptor,
}

impl Default for Shape {
    fn default() -> Self {
        let text = |text: &str| Text(text.into());
        Self {
            method: text("GET"),
            path: text("/"),
            host: text("example.com"),
            headers: Headers::default(),
            domain: None,
            descriptor: Descriptor::default(),
        }
    }
}

/// What a client does that is refused.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Retry {
    /// How often it asks again at most.
    #[serde(default)]
    pub(crate) attempts: Count,
    pub(crate) wait: Wait,
    /// Up to so much more, by chance.
    #[serde(default)]
    pub(crate) jitter: Time,
}

/// How long it waits.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Wait {
    /// As long as the response says in `Retry-After`; it does not come again without.
    RetryAfter,
    /// Always as long.
    Fixed(Time),
    /// Twice as long each time.
    Backoff { first: Positive, most: Positive },
}

/// What the requests come to.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Servers {
    /// Nodes with a store each.
    pub(crate) count: Nodes,
    pub(crate) spread: Spread,
    pub(crate) store: StoreKind,
    /// How many requests a node decides at the same time.
    pub(crate) workers: Nodes,
    /// How long each of them is at it, from reading a count to writing it.
    pub(crate) work: Time,
    /// How long the origin takes for each response, by which a rule may charge.
    #[serde(skip_serializing_if = "Time::is_zero")]
    pub(crate) latency: Time,
    /// Faults of their clocks: that of node `i` is number `i`, and so round again.
    pub(crate) clocks: Vec<Vec<Fault>>,
}

impl Default for Servers {
    fn default() -> Self {
        Self {
            count: Bounded(1),
            spread: Spread::default(),
            store: StoreKind::default(),
            workers: Bounded(1),
            work: Time::default(),
            latency: Time::default(),
            clocks: Vec::new(),
        }
    }
}

/// Which node a request comes to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Spread {
    /// One after the other.
    #[default]
    RoundRobin,
    /// By chance.
    Random,
    /// Each client has its own.
    Client,
}

/// Where a node keeps what keys have used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum StoreKind {
    /// Nothing is lost.
    #[default]
    Exact,
    /// Envoy's table, of the policy's `capacity`.
    Envoy,
}

/// What a clock does wrong. Times are those of the beginning of it all.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Fault {
    /// It is faster by so many millionths.
    Fast { ppm: Ppm },
    /// It is slower.
    Slow { ppm: Ppm },
    /// It is set forward at some time.
    Forward { at: Time, by: Positive },
    /// It is set back.
    Back { at: Time, by: Positive },
    /// It is ahead by `by` in every other `every`.
    Oscillates { by: Positive, every: Positive },
    /// It stands still, and then is right again.
    Freezes { at: Time, length: Positive },
}
