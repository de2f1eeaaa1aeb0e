//! Simulated traffic that is hard for each algorithm in its own way, decided by the policy layer.
//!
//! Invariant: a traffic is a document for `tollgate simulate --traffic`, and a limiter is a policy.
//! So everything here can be repeated on the command line.

use crate::measure::Measured;
use crate::subject::Subject;
use serde_json::{Value, json};
use std::sync::Arc;
use tollgate_lab::simulator::{Run, Table, Traffic};
use tollgate_policy::{Policy, Surface};

/// Traffic that is the same for every algorithm, made for one limit and window.
#[derive(Clone, Copy, Debug)]
pub struct Model {
    /// Its name.
    pub name: &'static str,
    /// A description of the traffic.
    pub words: &'static str,
    document: fn(u64, u64) -> Value,
}

/// The seed of everything random.
const SEED: u64 = 1;

/// In the order of the document.
pub const MODELS: [Model; 7] = [
    Model {
        name: "Round an edge",
        words: "The whole limit in the last hundredth of every second fixed window, and the whole limit again on the \
                edge that follows.",
        document: |limit, seconds| {
            let (window, gap) = (format!("{}s", 2 * seconds), format!("{}ms", 10 * seconds));
            one(40 * seconds, json!({ "edge": { "window": window, "size": limit, "gap": gap } }))
        },
    },
    Model {
        name: "Exactly at the limit",
        words: "One client that sends evenly, exactly as many as are allowed: no request should be denied.",
        document: |limit, seconds| {
            one(20 * seconds, json!({ "steady": { "rate": format!("{limit}/{seconds}s") } }))
        },
    },
    Model {
        name: "A fifth above",
        words: "One client that sends evenly, a fifth more than are allowed.",
        document: |limit, seconds| {
            one(
                40 * seconds,
                json!({ "steady": { "rate": format!("{}/{}s", 6 * limit, 5 * seconds) } }),
            )
        },
    },
    Model {
        name: "In bursts",
        words: "One client that sends the whole limit at one instant, once in every window: no request should be denied.",
        document: |limit, seconds| {
            let every = format!("{seconds}s");
            one(20 * seconds, json!({ "bursts": { "size": limit, "every": every } }))
        },
    },
    Model {
        name: "By chance at the limit",
        words: "200 clients, each of which sends independently and at random, on average as many as are allowed.",
        document: |limit, seconds| many(limit, seconds, 1),
    },
    Model {
        name: "By chance at half of the limit",
        words: "The same with half as many: well-behaved clients that are over the limit by chance only.",
        document: |limit, seconds| many(limit, seconds, 2),
    },
    Model {
        name: "Flood and retries",
        words: "20 clients that each send three times what is allowed, and when they are denied try again up to three times, \
                each after the Retry-After of the response.",
        document: |limit, seconds| {
            json!({
                "length": format!("{}s", 10 * seconds),
                "sources": [{
                    "arrivals": { "poisson": { "rate": format!("{}/{seconds}s", 3 * limit) } },
                    "clients": { "count": 20 },
                    "each": true,
                    "retry": { "attempts": 3, "wait": "retry_after" },
                }],
            })
        },
    },
];

/// One client.
fn one(seconds: u64, arrivals: Value) -> Value {
    json!({ "length": format!("{seconds}s"), "sources": [{ "arrivals": arrivals }] })
}

/// 200 clients that send at random, each for the limit divided by `divisor`.
fn many(limit: u64, seconds: u64, divisor: u64) -> Value {
    let rate = format!("{limit}/{}s", divisor * seconds);
    json!({
        "length": format!("{}s", 10 * seconds),
        "sources": [{ "arrivals": { "poisson": { "rate": rate } }, "clients": { "count": 200 }, "each": true }],
    })
}

impl Model {
    /// The traffic document for `limit` per `seconds`.
    #[must_use]
    pub fn document(&self, limit: u64, seconds: u64) -> String {
        (self.document)(limit, seconds).to_string()
    }

    /// The results of `subject` on this model.
    ///
    /// # Errors
    /// The policy or the traffic is invalid.
    pub fn run(&self, subject: &Subject) -> Result<Measured, String> {
        let quota = subject.limiter.quota();
        let seconds = quota.window().as_secs_floor();
        let traffic = Traffic::parse(&self.document(quota.limit(), seconds));
        let traffic = traffic.map_err(|error| format!("{}: {error}", self.name))?;
        let table = Run::new(policy(subject)?, &traffic, SEED).finish();
        Ok(measured(&table))
    }
}

fn measured(table: &Table) -> Measured {
    Measured {
        requests: table.offered,
        denied: table.denied,
        exact_denied: table.denied + table.false_allow - table.false_deny,
        false_allow: table.false_allow,
        false_deny: table.false_deny,
        most: table.most_admitted,
    }
}

/// A policy with only this limiter, per client.
///
/// # Errors
/// The policy is invalid; the text contains the reason.
pub fn policy(subject: &Subject) -> Result<Arc<Policy>, String> {
    let (quota, algorithm) = (subject.limiter.quota(), subject.limiter.algorithm());
    let mut fields = json!({
        "limit": quota.limit(),
        "window": format!("{}s", quota.window().as_secs_floor()),
        "algorithm": algorithm.name(),
    });
    if quota.burst() != quota.limit() {
        fields["burst"] = quota.burst().into();
    }
    if quota.is_strict() {
        fields["strict"] = true.into();
    }
    if let Some(buckets) = algorithm.buckets() {
        fields["buckets"] = buckets.into();
        fields["weighted"] = algorithm.is_weighted().into();
    }
    let mut rule = json!({ "name": "each", "key": ["client_ip"], "quotas": [fields] });
    if algorithm.name() == "leaky-queue" {
        rule["action"] = json!({ "delay": { "max": "5m" } });
    }
    let document = json!({ "version": 1, "rules": [rule] }).to_string();
    let policy = tollgate_language::compile(&document, Surface::Library);
    policy.map(Arc::new).map_err(|problems| format!("{document}: {problems}"))
}
