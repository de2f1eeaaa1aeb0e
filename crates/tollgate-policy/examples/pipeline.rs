//! The whole pipeline on one page: compile, plan, load, decide, commit, outcome, settle.
//!
//! `cargo run -p tollgate-policy --example pipeline`. The store is a `HashMap` that one thread has
//! to itself, so nothing can be lost between loading and committing. It grows with every key that
//! is charged: a service bounds it, and shows how in `examples/axum`. What is printed is asserted,
//! so the example stays true.
#![allow(clippy::unwrap_used, clippy::panic)] // it is its own test

use std::borrow::Cow;
use std::collections::HashMap;
use std::net::IpAddr;

use tollgate_policy::{Answer, Facts, Partition, Plan, Policy, Surface, Timestamp};

/// Two rules: everybody may send two requests at once and then one in half a minute, and who has
/// given three wrong passwords has to wait.
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

/// What this service knows of a request. The policy asks only for what its rules read.
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

/// The compiled policy and what each key has used.
struct Service {
    policy: Policy,
    /// One value for each partition: the group says which rules count in it, the key whose it is.
    store: HashMap<(usize, Vec<u8>), Vec<u8>>,
}

impl Service {
    /// Loads, decides and commits every partition of the plan, at one time.
    fn decide(&mut self, plan: &mut Plan, now: Timestamp) {
        plan.each_partition(|partition| {
            let stored = self.store.get(&(partition.group(), partition.key().to_vec()));
            partition.load(&self.policy, stored.map(Vec::as_slice));
        });
        plan.decide(&self.policy, now);
        // A refused request changed nothing, so there is nothing to write.
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
        let answer = outcome.answer();
        println!("{seconds:>3} s  {} {}  {answer:?}", request.method, request.target);
        outcome.headers(&mut |name, value| println!("         {name}: {value}"));
        let status = match answer {
            Answer::Refuse { status } => {
                println!("         {}", outcome.body());
                return status;
            }
            Answer::Pass => respond(request),
            Answer::Delay(_) | Answer::Retry(_) => panic!("no rule here lets requests wait"),
        };
        // The rule for guesses was charged when it was decided; what is no guess is given back now.
        if plan.is_deferred() && plan.settle(&self.policy, Some(status)) {
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
    // A document with mistakes is refused with all of them, each with its place and what is
    // allowed.
    let mistakes = Policy::compile(r#"{"version": 1, "ruls": []}"#, Surface::Library).unwrap_err();
    println!("{mistakes}\n");

    let policy =
        Policy::compile(DOCUMENT, Surface::Library).unwrap_or_else(|mistakes| panic!("{mistakes}"));
    let mut service = Service { policy, store: HashMap::new() };
    let peer = "192.0.2.1".parse().unwrap();
    let page = Request { method: "GET", target: "/", peer };
    let login = Request { method: "POST", target: "/login", peer };

    // Two at once; the third is refused, and told to come back in 30 seconds, which is then enough.
    assert_eq!([0, 0, 0].map(|at| service.handle(&page, at)), [200, 200, 429]);
    assert_eq!([29, 30].map(|at| service.handle(&page, at)), [429, 200]);

    // Three guesses, a minute apart. The fourth is refused by the other rule, and pages are still
    // served.
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
