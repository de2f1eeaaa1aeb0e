//! Tollgate: an algorithm of the core with a map, and the whole policy with a map.

use crate::{Limiter, Rate};
use std::{borrow::Cow, collections::HashMap, net::IpAddr};
use tollgate::{Disposition, Facts, Partition, Plan, Policy, Timestamp};
use tollgate_core::{Algorithm, Quota, Span};

/// One algorithm, whose states are in a map by key.
pub struct Core {
    limiter: tollgate_core::Limiter,
    states: HashMap<String, Box<[u8]>>,
}

impl Core {
    pub fn new(algorithm: &str, rate: Rate) -> Self {
        let algorithm = Algorithm::parse(algorithm).expect("the name of a limiter");
        let quota = Quota::new(rate.limit.into(), Span::from_secs(rate.window.as_secs()));
        let limiter = tollgate_core::Limiter::new(algorithm, quota.expect("a quota"));
        Self { limiter: limiter.expect("a limiter"), states: HashMap::new() }
    }
}

impl Limiter for Core {
    fn admits(&mut self, key: &str, nanos: u64) -> bool {
        if !self.states.contains_key(key) {
            self.states.insert(key.to_owned(), vec![0; self.limiter.state_len()].into());
        }
        let state = self.states.get_mut(key).expect("it was inserted");
        self.limiter.check(state, Timestamp::from_nanos(nanos), 1).is_admitted()
    }
}

/// A policy with one rule by a header: plan, load, decide, store.
pub struct Whole {
    policy: Policy,
    plan: Plan,
    stored: HashMap<Vec<u8>, Vec<u8>>,
}

struct Request<'a>(&'a str);

impl Facts for Request<'_> {
    fn method(&self) -> Cow<'_, [u8]> {
        b"GET"[..].into()
    }
    fn target(&self) -> Cow<'_, [u8]> {
        b"/"[..].into()
    }
    fn header(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        (name == "x-client").then(|| self.0.as_bytes().into())
    }
    fn peer(&self) -> Option<IpAddr> {
        None
    }
}

impl Whole {
    pub fn new(Rate { limit, window }: Rate) -> Self {
        let document = format!(
            r#"{{"version": 1, "rules": [{{"name": "each", "key": [{{"header": "x-client"}}],
                "quotas": [{{"limit": {limit}, "window": "{}s"}}]}}]}}"#,
            window.as_secs()
        );
        let policy = tollgate::compile(&document).expect("a policy");
        Self { policy, plan: Plan::new(), stored: HashMap::new() }
    }
}

impl Limiter for Whole {
    fn admits(&mut self, key: &str, nanos: u64) -> bool {
        let Self { policy, plan, stored } = self;
        policy.plan(&Request(key), plan);
        plan.each_partition(|partition| {
            let value = stored.get(partition.key());
            partition.load(policy, value.map(Vec::as_slice));
        });
        plan.decide(policy, Timestamp::from_nanos(nanos));
        for partition in plan.partitions().filter(Partition::changed) {
            if let Some(value) = stored.get_mut(partition.key()) {
                value.clear();
                value.extend_from_slice(partition.value());
            } else {
                stored.insert(partition.key().to_vec(), partition.value().to_vec());
            }
        }
        plan.outcome(policy).disposition() == Disposition::Allow
    }
}
