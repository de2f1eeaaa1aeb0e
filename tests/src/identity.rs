//! The spoofing corpus on a real server: a policy that shows which client was counted, and a check
//! of the responses.
//!
//! Invariant: a case passes only if the server named its client, and gave that client the same
//! partition key as in every other case; two clients never have one key. Deliberately absent: how a
//! server learns the peer address.

use std::collections::BTreeMap;

use serde_json::{Value, json};

#[path = "../identity/format.rs"]
pub mod format;

use format::{Case, Group};

impl Group {
    /// A rule for each expected client, with the client's name, which applies to that client alone.
    pub fn policy(&self) -> Value {
        let mut clients: Vec<_> = self.cases.iter().map(|case| case.client).collect();
        clients.sort_unstable();
        clients.dedup();
        let rule = |client: &std::net::IpAddr| {
            json!({
                "name": client.to_string(),
                "when": {"client_cidrs": [format!("{client}/{}", if client.is_ipv4() { 32 } else { 128 })]},
                "key": ["client_ip"],
                "quotas": [{"limit": 1000, "window": "1h"}],
            })
        };
        let mut client_ip: Value = serde_json::from_str(self.settings).expect("settings are JSON");
        client_ip["ipv6_prefix"] = json!(128);
        let rules: Vec<Value> = clients.iter().map(rule).collect();
        json!({"version": 1, "client_ip": client_ip, "response": {"partition_key": true}, "rules": rules})
    }
}

/// The results so far: the partition key of each client.
#[derive(Default)]
pub struct KeyNames {
    keys: BTreeMap<String, String>,
    ran: usize,
}

impl KeyNames {
    /// Records the `RateLimit` field of the response to `case`: it names its client as the only
    /// quota.
    pub fn record(&mut self, case: &Case, ratelimit: &str) {
        let mut parts = ratelimit.split(';').map(|part| part.trim_matches('"').to_owned());
        let (name, key) = (parts.next(), parts.find(|part| part.starts_with("pk=")));
        let (Some(name), Some(key)) = (name, key) else {
            panic!("line {}: no quota with a key in {ratelimit:?}", case.line)
        };
        assert_eq!(name, case.client.to_string(), "line {}", case.line);
        let known = self.keys.entry(name).or_insert_with(|| key.clone());
        assert_eq!(*known, key, "line {}", case.line);
        self.ran += 1;
    }

    /// The number of cases that passed; a failed test when two clients were counted as one.
    pub fn ran(self) -> usize {
        let mut distinct: Vec<&String> = self.keys.values().collect();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), self.keys.len(), "two clients are counted as one");
        self.ran
    }
}
