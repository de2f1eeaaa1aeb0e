//! Shared by the tests of the tables: a host's map for any number of threads, and workers that use
//! it.
#![allow(
    dead_code,
    unreachable_pub,
    missing_docs,
    clippy::arithmetic_side_effects,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "tests; each test binary uses a part"
)]

pub mod host_map;

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};
use tollgate_core::Timestamp;
use tollgate_filter::config::Config;
use tollgate_filter::counts::commit_stats::CommitStats;
use tollgate_filter::counts::enforce::Enforcement;
use tollgate_filter::counts::extents;
use tollgate_filter::counts::numbering;
use tollgate_filter::counts::scratch::Scratch;
use tollgate_filter::host::shared_data::{SharedData, Stored, Written};
use tollgate_policy::{Disposition, Facts, Plan};

use host_map::{HostMap, Numbered, Numbers};

/// The random key of the hash.
pub const SEED: [u8; 16] = [7; 16];

/// Bytes that no other call returns, as random ones are.
pub fn token() -> [u8; 16] {
    static LAST: AtomicU64 = AtomicU64::new(0);
    u128::from(LAST.fetch_add(1, Ordering::Relaxed)).to_le_bytes()
}

/// The host's map, for any number of threads.
#[derive(Default)]
pub struct Shared(Mutex<HostMap>);

impl Shared {
    /// One of a host with these numbers.
    pub fn numbering(numbers: Numbers) -> Self {
        Self(Mutex::new(HostMap { numbers, ..HostMap::default() }))
    }

    pub fn entries(&self) -> HashMap<Vec<u8>, Numbered> {
        self.0.lock().unwrap().entries.clone()
    }

    /// Bytes of all names and values.
    pub fn bytes(&self) -> usize {
        self.0
            .lock()
            .unwrap()
            .entries
            .iter()
            .map(|(name, (value, _))| name.len() + value.len())
            .sum()
    }

    /// The number of the last write.
    pub fn latest(&self) -> u32 {
        self.0.lock().unwrap().latest
    }

    /// Continues as if this many writes had been made before.
    pub fn set_latest(&self, number: u32) {
        self.0.lock().unwrap().latest = number;
    }

    /// Another host's map, with the same content.
    pub fn copy(&self) -> Self {
        Self(Mutex::new(self.0.lock().unwrap().clone()))
    }

    pub fn put(&self, name: &[u8], value: &[u8]) {
        self.0.lock().unwrap().put(name, value);
    }
}

impl SharedData for Shared {
    fn get(&self, name: &[u8]) -> Stored {
        self.0.lock().unwrap().get(name)
    }

    fn set(&self, name: &[u8], value: &[u8], cas: u32) -> Written {
        self.0.lock().unwrap().set(name, value, cas)
    }
}

/// A host that runs a function before every call to the map, as another worker.
pub struct Interrupted<'a> {
    pub shared: &'a Shared,
    /// Called with the number of the host call that comes next.
    pub meanwhile: RefCell<&'a mut dyn FnMut(usize)>,
    pub calls: RefCell<usize>,
}

impl Interrupted<'_> {
    fn interrupt(&self) {
        let call = *self.calls.borrow();
        *self.calls.borrow_mut() += 1;
        (self.meanwhile.borrow_mut())(call);
    }
}

impl SharedData for Interrupted<'_> {
    fn get(&self, name: &[u8]) -> Stored {
        self.interrupt();
        self.shared.get(name)
    }

    fn set(&self, name: &[u8], value: &[u8], cas: u32) -> Written {
        self.interrupt();
        self.shared.set(name, value, cas)
    }
}

/// A request of the client `key` for a path.
struct Of<'a>(&'a [u8], &'static str);

impl Facts for Of<'_> {
    fn method(&self) -> Cow<'_, [u8]> {
        b"GET".into()
    }

    fn target(&self) -> Cow<'_, [u8]> {
        self.1.as_bytes().into()
    }

    fn header(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        (name == "x-key").then(|| self.0.into())
    }

    fn peer(&self) -> Option<IpAddr> {
        None
    }
}

/// A policy with one rule by `x-key`.
pub fn policy(capacity: u32, quotas: &Value) -> Value {
    json!({"version": 1, "rules": [
        {"name": "r", "key": [{"header": "x-key"}], "capacity": capacity, "quotas": quotas},
    ]})
}

/// One quota.
pub fn quota(limit: u32, algorithm: &str) -> Value {
    json!([{"name": "q", "limit": limit, "window": "1d", "algorithm": algorithm}])
}

/// A worker with a policy in force.
pub struct Worker {
    pub config: Config,
    /// The lines that it logged when it was configured.
    pub log: Vec<String>,
    plan: Plan,
    scratch: Scratch,
}

impl Worker {
    pub fn new<S: SharedData>(policy: &Value, shared: &S) -> Self {
        let mut config = Config::compile(policy.to_string().as_bytes(), b"scope").unwrap();
        let mut log = extents::agree(shared, &mut config).expect("the map answers");
        let Config { policy, tables, directories, .. } = &config;
        log.extend(directories.agree(shared, policy, tables).expect("the map answers"));
        let numbering = numbering::probe(shared, &token()).expect("the map counts exactly");
        Self { config, log, plan: Plan::new(), scratch: Scratch::new::<S>(numbering) }
    }

    /// A worker whose policy was registered before others were, and that read the directory then:
    /// it knows no other quotas.
    pub fn late(policy: &Value, shared: &Shared) -> Self {
        let before = Shared::default();
        let mut worker = Self::new(policy, &before);
        extents::agree(shared, &mut worker.config).expect("the map answers");
        worker
    }

    /// One request; true when it passes.
    pub fn ask(&mut self, shared: &impl SharedData, key: &[u8], now: u64) -> (bool, CommitStats) {
        self.config.policy.plan(&Of(key, "/"), &mut self.plan);
        let stats = self.enforcement(shared, now).run();
        let answer = self.plan.outcome(&self.config.policy).disposition();
        (matches!(answer, Disposition::Allow | Disposition::Delay(_)), stats)
    }

    /// The whole response to a request of `key` for `path`, and whether it came from memory.
    pub fn told(
        &mut self,
        shared: &impl SharedData,
        (path, key): (&'static str, &[u8]),
        now: u64,
    ) -> (String, bool) {
        self.config.policy.plan(&Of(key, path), &mut self.plan);
        let stats = self.enforcement(shared, now).run();
        let outcome = self.plan.outcome(&self.config.policy);
        let mut said = format!("{:?}", outcome.disposition());
        outcome.headers(&mut |name, value| said.push_str(&format!("\n{name}: {value}")));
        for (rule, result) in outcome.rules() {
            said.push_str(&format!("\nrule {rule}: {result:?}"));
        }
        (said, stats.remembered > 0)
    }

    /// The last decided request will not continue, whatever the decision was.
    pub fn take_back(&mut self, shared: &impl SharedData, now: u64) -> bool {
        self.enforcement(shared, now).take_back(&mut CommitStats::default())
    }

    fn enforcement<'a, S: SharedData>(&'a mut self, shared: &'a S, now: u64) -> Enforcement<'a, S> {
        Enforcement {
            shared,
            seed: &SEED,
            config: &self.config,
            plan: &mut self.plan,
            scratch: &mut self.scratch,
            now: Timestamp::from_nanos(now).into(),
        }
    }

    /// The hashed bytes of a request of `key`.
    pub fn key_of(&mut self, key: &[u8]) -> Vec<u8> {
        self.config.policy.plan(&Of(key, "/"), &mut self.plan);
        self.plan.partition(0).unwrap().key().to_vec()
    }

    /// How many requests of `key` pass before the first that does not, at most `most`.
    pub fn passes(&mut self, shared: &impl SharedData, key: &[u8], now: u64, most: usize) -> usize {
        (0..most).take_while(|_| self.ask(shared, key, now).0).count()
    }

    /// Forgets the denials that it saw.
    pub fn forget(&mut self) {
        self.scratch = Scratch::default();
    }
}
