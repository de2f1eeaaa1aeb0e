//! The traffic document, in which users describe simulated requests.
//!
//! Invariant: an optional field has its default here; a field that is not here is a mistake. The
//! values are `scalar`'s.

use serde::{Deserialize, Serialize};
use tollgate_core::Span;

use super::scalar::{
    Bin, Bounded, Count, Descriptor, Exponent, Headers, Listed, Nodes, Positive, Ppm, Rate, Status,
    Text, Time, Units,
};

/// A description of requests and servers.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, expecting = "an object with `length` and `sources`")]
pub(crate) struct Document {
    /// How long requests arrive.
    pub(crate) length: Time,
    /// The sources, which all send at the same time.
    pub(crate) sources: Vec<Source>,
    /// The servers that receive the requests.
    #[serde(default)]
    pub(crate) servers: Servers,
}

/// A source: clients with the same behaviour.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Source {
    #[serde(default)]
    pub(crate) name: Text,
    pub(crate) arrivals: Arrivals,
    /// Its start and end, counted from the start of the traffic.
    #[serde(default)]
    pub(crate) from: Time,
    #[serde(default)]
    pub(crate) to: Option<Time>,
    #[serde(default)]
    pub(crate) clients: Clients,
    /// True when every client has arrivals of its own.
    #[serde(default)]
    pub(crate) each: bool,
    #[serde(default)]
    pub(crate) request: Shape,
    #[serde(default)]
    pub(crate) status: Status,
    /// The cost that the origin's response shows; none without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) actual: Option<Actual>,
    /// How long a request runs, in milliseconds, for rules that limit requests in flight; the
    /// servers' latency without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) duration: Option<Actual>,
    #[serde(default)]
    pub(crate) retry: Option<Retry>,
    /// Its clients space their requests by the response: `t / r`.
    #[serde(default)]
    pub(crate) paced: bool,
}

/// The model of the costs that responses show, in quota units, or of their durations.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(
    rename_all = "snake_case",
    deny_unknown_fields,
    expecting = "an object, such as {\"exponential\": {\"mean\": 500}}"
)]
pub(crate) enum Actual {
    /// The same for each.
    Always(Units),
    /// Each number from one to the other is as likely.
    Uniform { from: Units, to: Units },
    /// Most are small, few are large; rounded down.
    Exponential { mean: Units },
}

/// The model of arrivals.
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
    /// `size` at one instant, once per `every`.
    Bursts { size: Count, every: Positive },
    /// A rate that changes evenly from one to the other.
    Ramp { from: Rate, to: Rate },
    /// `size` within `gap` before every edge of a fixed window, and `size` on it.
    Edge {
        window: Positive,
        size: Count,
        #[serde(default = "a_millisecond")]
        gap: Positive,
    },
    /// These counts, each evenly in its bin: a time line.
    Counts { bin: Positive, counts: Listed<Bin> },
    /// `size` in total, each `wait` after the one before, and up to `jitter` later by random.
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

/// The clients of a source.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Clients {
    #[serde(default)]
    pub(crate) count: Count,
    /// Client number `k` sends in proportion to `k^-zipf`; without it all send equally often, in
    /// random order.
    #[serde(default)]
    pub(crate) zipf: Option<Exponent>,
    /// Every request comes from a new client.
    #[serde(default)]
    pub(crate) fresh: bool,
}

/// The fields of a request. `{client}`, `{address}` and `{n}` in a text are replaced by the
/// client's number, its address and the number of the request.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Shape {
    pub(crate) method: Text,
    pub(crate) path: Text,
    pub(crate) host: Text,
    pub(crate) headers: Headers,
    /// The domain in a request to a rate limit service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) domain: Option<Text>,
    /// The entries of the descriptor in that request.
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

/// The reaction of a client to a denial.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Retry {
    /// The most retries.
    #[serde(default)]
    pub(crate) attempts: Count,
    pub(crate) wait: Wait,
    /// Up to this much more, by random.
    #[serde(default)]
    pub(crate) jitter: Time,
}

/// How long it waits.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Wait {
    /// As long as `Retry-After` in the response; without it the client does not retry.
    RetryAfter,
    /// Always the same time.
    Fixed(Time),
    /// Twice as long each time.
    Backoff { first: Positive, most: Positive },
}

/// The servers that receive the requests.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Servers {
    /// Nodes with a store each.
    pub(crate) count: Nodes,
    pub(crate) spread: Spread,
    pub(crate) store: StoreKind,
    /// How many requests a node decides at the same time.
    pub(crate) workers: Nodes,
    /// How long each decision takes, from reading a count to writing it.
    pub(crate) work: Time,
    /// How long the origin takes for each response, by which a rule may charge.
    #[serde(skip_serializing_if = "Time::is_zero")]
    pub(crate) latency: Time,
    /// Faults of their clocks: node `i` has number `i`, and after the last one the first again.
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

/// How requests are distributed over the nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Spread {
    /// To each node in turn.
    #[default]
    RoundRobin,
    /// To a random node.
    Random,
    /// Each client always to the same node.
    Client,
}

/// Where a node keeps the usage of keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum StoreKind {
    /// Nothing is lost.
    #[default]
    Exact,
    /// Envoy's table, of the policy's `capacity`.
    Envoy,
}

/// A fault of a clock. Times are counted from the start of the traffic.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Fault {
    /// It is faster by `ppm` millionths.
    Fast { ppm: Ppm },
    /// It is slower.
    Slow { ppm: Ppm },
    /// It is set forward at some time.
    Forward { at: Time, by: Positive },
    /// It is set back.
    Back { at: Time, by: Positive },
    /// It is ahead by `by` in every other `every`.
    Oscillates { by: Positive, every: Positive },
    /// It stops, and then is right again.
    Freezes { at: Time, length: Positive },
}
