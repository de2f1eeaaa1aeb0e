//! The requests of a run, and the responses that a policy may give.
//!
//! Invariant: every client has one key and one quota, so that the most that may be served in a run
//! is known before it begins: more is a failure of the limiter, and fails the run.

use super::h2load::Pace;
use serde_json::json;
use std::time::Duration;

/// How many clients there are; a connection takes them in turn.
pub const CLIENTS: u32 = 20;
/// Units per second of each client, and as many at once.
pub const LIMIT: u32 = 25;
/// Answers to a burst come for this long at most; the next begins then.
pub const BETWEEN_BURSTS: Duration = Duration::from_secs(2);

/// One way to load a server.
#[derive(Debug, Clone, Copy)]
pub struct Scenario {
    pub name: &'static str,
    /// For the heading of its plot.
    pub words: &'static str,
    pub connections: u32,
    pub pace: Pace,
    /// How often `pace` is run, [`BETWEEN_BURSTS`] apart.
    pub times: u32,
}

/// With this many seconds of each.
pub const fn all(seconds: u32) -> [Scenario; 3] {
    let bursts = seconds.div_ceil(2);
    [
        Scenario {
            name: "steady, below the limit",
            words: "400 requests a second, 500 allowed",
            connections: CLIENTS,
            pace: Pace::Steady { per_second: 20, seconds },
            times: 1,
        },
        Scenario {
            name: "steady, twice the limit",
            words: "1,000 requests a second, 500 allowed",
            connections: CLIENTS,
            pace: Pace::Steady { per_second: 50, seconds },
            times: 1,
        },
        Scenario {
            name: "bursts",
            words: "2,000 requests at once every two seconds, 500 allowed at once and a second",
            connections: 50,
            pace: Pace::AtOnce { requests: 40 },
            times: bursts,
        },
    ]
}

impl Scenario {
    /// Requests that are meant to be sent.
    pub const fn offered(&self) -> u64 {
        let each = match self.pace {
            Pace::Steady { per_second, seconds } => per_second.saturating_mul(seconds),
            Pace::AtOnce { requests } => requests,
        };
        (each as u64).saturating_mul(self.connections as u64).saturating_mul(self.times as u64)
    }

    /// The most that may be served of `sent` requests within `elapsed`: GCRA allows the burst, and
    /// a unit whenever another interval is over.
    pub fn most_served(&self, sent: u64, elapsed: Duration) -> u64 {
        let grown = elapsed.as_nanos() * u128::from(LIMIT) / 1_000_000_000;
        let each = u64::try_from(grown).unwrap_or(u64::MAX).saturating_add(u64::from(LIMIT) + 1);
        each.saturating_mul(u64::from(CLIENTS)).min(sent)
    }
}

/// The policy that all of it is for.
pub fn policy() -> String {
    json!({"version": 1, "rules": [{
        "name": "load",
        "key": [{"query": "client"}],
        "quotas": [{"limit": LIMIT, "window": "1s"}],
    }]})
    .to_string()
}

/// The requests, by client.
pub fn paths() -> Vec<String> {
    (0..CLIENTS).map(|client| format!("/?client={client}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_offered_and_what_may_be_served_is_known() {
        let [below, twice, bursts] = all(10);
        assert_eq!([below, twice, bursts].map(|s| s.offered()), [4_000, 10_000, 10_000]);
        let ten = Duration::from_secs(10);
        assert_eq!(twice.most_served(10_000, ten), 20 * (250 + 26));
        assert_eq!(below.most_served(4_000, ten), 4_000);
        assert_eq!(bursts.most_served(10_000, Duration::ZERO), 520);
    }

    #[test]
    fn the_policy_is_one() {
        assert!(serde_json::from_str::<serde_json::Value>(&policy()).is_ok());
        assert_eq!(paths().len(), 20);
    }
}
