//! The whole pipeline on one page: compile, plan, load, decide, commit, outcome, settle.
//!
//! `cargo run -p tollgate --example pipeline`. The store is a `HashMap` that only one thread
//! uses, so no update is lost between load and commit. It grows with every key that is charged. A
//! service must bound it; `examples/axum` shows how. The output is asserted, so the example stays
//! correct.
#![allow(clippy::unwrap_used, clippy::panic)] // it is its own test

use std::borrow::Cow;
use std::collections::HashMap;
use std::net::IpAddr;

use tollgate::{Disposition, Ending, Facts, Partition, Plan, Policy, Timestamp};

/// Two rules. Every client may send two requests at once and then one per 30 seconds. A client that
/// has sent three wrong passwords has to wait.
const DOCUMENT: &str = r#"{
  "version": 1,
  "rules": [
    { "name": "each", "key": ["client_ip"], "quotas": [{ "limit": 120, "window": "1h", "burst": 2 }] },
    {
      "name": "guesses",
      "when": { "methods": ["POST"], "paths": ["/login"] },
      "key": ["client_ip"],
      "quotas": [{ "limit": 3, "window": "1d" }],
      "charge": { "response_status": ["401"], "reserve": true }
    }
  ]
}"#;

/// The request data that this service has. The policy uses only what its rules read.
struct Request {
    method: &'static str,
    target: &'static str,
    peer: IpAddr,
}

impl Facts for Request {
    fn method(&self) -> Cow<'_, [u8]> {
        self.method.as_bytes().into()
    }
    fn target(&self) -> Cow<'_, [u8]> {
        self.target.as_bytes().into()
    }
    fn header(&self, _: &str) -> Option<Cow<'_, [u8]>> {
        None // these requests have no headers
    }
    fn peer(&self) -> Option<IpAddr> {
        Some(self.peer)
    }
}

/// The compiled policy and the stored usage of each key.
struct Service {
    policy: Policy,
    /// One value per partition: the group determines which rules count in it, the bytes are its
    /// key.
    store: HashMap<(usize, Vec<u8>), Vec<u8>>,
}

impl Service {
    /// Loads, decides and commits every partition of the plan at one point in time.
    fn decide(&mut self, plan: &mut Plan, now: Timestamp) {
        plan.each_partition(|partition| {
            let stored = self.store.get(&(partition.group(), partition.key().to_vec()));
            partition.load(&self.policy, stored.map(Vec::as_slice));
        });
        plan.decide(&self.policy, now);
        // A denied request changes nothing, so there is nothing to write.
        for partition in plan.partitions().filter(Partition::changed) {
            let name = (partition.group(), partition.key().to_vec());
            self.store.insert(name, partition.value().to_vec());
        }
    }

    /// One request from its arrival to its response, both at `seconds`.
    fn handle(&mut self, request: &Request, seconds: u64) -> u16 {
        let now = Timestamp::from_millis(seconds.saturating_mul(1_000));
        let mut plan = Plan::new();
        self.policy.plan(request, &mut plan);
        self.decide(&mut plan, now);

        let outcome = plan.outcome(&self.policy);
        let answer = outcome.disposition();
        println!("{seconds:>3} s  {} {}  {answer:?}", request.method, request.target);
        outcome.headers(&mut |name, value| println!("         {name}: {value}"));
        let status = match answer {
            Disposition::Deny { status } => {
                println!("         {}", outcome.body());
                return status;
            }
            Disposition::Allow => respond(request),
            Disposition::Delay(_) | Disposition::Retry(_) => {
                panic!("no rule here lets requests wait")
            }
        };
        // The rule for guesses was charged at the decision; a request that was not a guess is
        // refunded.
        let is_deferred = plan.settlement(&self.policy).is_deferred();
        if is_deferred && plan.settle(&self.policy, Ending::Response(status), &()) {
            self.decide(&mut plan, now);
        }
        status
    }
}

/// The service itself: every password is wrong.
fn respond(request: &Request) -> u16 {
    if request.target == "/login" { 401 } else { 200 }
}

fn main() {
    // A document with mistakes is rejected. The error lists every mistake with its place and the
    // allowed values.
    let mistakes = tollgate::compile(r#"{"version": 1, "ruls": []}"#).unwrap_err();
    println!("{mistakes}\n");

    let policy = tollgate::compile(DOCUMENT).unwrap_or_else(|mistakes| panic!("{mistakes}"));
    let mut service = Service { policy, store: HashMap::new() };
    let peer = "192.0.2.1".parse().unwrap();
    let page = Request { method: "GET", target: "/", peer };
    let login = Request { method: "POST", target: "/login", peer };

    // Two at once. The third is denied with a wait of 30 seconds, which is then sufficient.
    assert_eq!([0, 0, 0].map(|at| service.handle(&page, at)), [200, 200, 429]);
    assert_eq!([29, 30].map(|at| service.handle(&page, at)), [429, 200]);

    // Three guesses, one minute apart. The other rule denies the fourth; pages are still served.
    assert_eq!([120, 180, 240, 300].map(|at| service.handle(&login, at)), [401, 401, 401, 429]);
    assert_eq!(service.handle(&page, 300), 200);
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_example_runs() {
        super::main();
    }
}
