//! Servers that share one budget in a real Redis: several engines, each with its own memory, clock
//! and connections, like that many servers.
//!
//! Guards: exactly the limit is allowed whatever the servers do to each other; an engine that fails
//! costs charges, never admissions, as far as it keeps its acknowledged writes.

mod fleet_cluster;
mod fleet_engine_clocks;
mod fleet_engine_faults;
mod fleet_engine_flood;
mod fleet_engine_hostile;
mod fleet_engine_nodes;
mod fleet_engine_redis;
mod fleet_engine_replicas;
mod fleet_engine_tls;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fleet_engine_redis::{Kind, Redis};
use tokio::runtime::{Builder, Runtime};
use tollgate_e2e::process::times;
use tollgate_language::DescribedRequest;
use tollgate_policy::{Plan, Surface};
use tollgate_redis::{Address, Engine, Failed, KeyRequest, Name, Options, Tally};

/// The limit of one key, for longer than any test.
pub const LIMIT: u64 = 1_000;

pub fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

/// The message for a request under `limit` in 366 days: one more unit is returned after hours.
pub fn request(limit: u64) -> Vec<u8> {
    request_under(&format!(r#"{{"limit": {limit}, "window": "366d"}}"#))
}

/// The message for a request under a quota.
pub fn request_under(quota: &str) -> Vec<u8> {
    let document = format!(
        r#"{{"version": 1, "rules": [{{"name": "r", "key": ["client_ip"], "quotas": [{quota}]}}]}}"#
    );
    let policy = tollgate_language::compile(&document, Surface::Library).expect("a policy");
    let body = br#"{"method": "GET", "path": "/", "client_ip": "192.0.2.1"}"#;
    let facts = DescribedRequest::parse(body).expect("a request");
    let mut plan = Plan::new();
    policy.plan(&facts, &mut plan);
    let mut request = Vec::new();
    plan.partition(0).expect("one key").request(&policy, &mut request);
    request
}

pub use tollgate_e2e::history::is_charged;

/// A server of a fleet on the engine at an address.
pub fn server(address: &str, change: impl Fn(&mut Options)) -> Engine {
    let mut options = Options::new(Address::parse(address).expect("an address"));
    // A machine that runs other tests may stall for long.
    options.timeout = Duration::from_secs(2);
    options.settings.tolerance_ms = 1_000;
    change(&mut options);
    Engine::new(options).expect("random bytes")
}

/// The totals of many requests.
#[derive(Debug, Default)]
pub struct Sum {
    pub admitted: AtomicU64,
    pub denied: AtomicU64,
    pub failed: AtomicU64,
    pub overloaded: AtomicU64,
}

impl Sum {
    pub fn count(&self, answer: &Result<Vec<u8>, Failed>) {
        let count = match answer {
            Ok(reply) if is_charged(reply) => &self.admitted,
            Ok(_) => &self.denied,
            Err(Failed::Overloaded) => &self.overloaded,
            Err(_) => &self.failed,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }

    /// The counts of allowed, denied, failed and overloaded requests.
    pub fn get(&self) -> [u64; 4] {
        [&self.admitted, &self.denied, &self.failed, &self.overloaded]
            .map(|count| count.load(Ordering::Relaxed))
    }
}

/// Sends `each` requests from each of `clients`, spread over the servers; `name` chooses the key of
/// each.
pub async fn ask_all(
    servers: &[Engine],
    clients: usize,
    each: usize,
    name: impl Fn(&Engine, usize, usize) -> Name + Send + Sync + 'static,
) -> Arc<Sum> {
    let sum = Arc::new(Sum::default());
    let name = Arc::new(name);
    let request = request(LIMIT);
    let mut tasks = Vec::new();
    for client in 0..clients {
        let server = servers[client % servers.len()].clone();
        let (sum, name, request) = (sum.clone(), name.clone(), request.clone());
        tasks.push(tokio::spawn(async move {
            for i in 0..each {
                let name = name(&server, client, i);
                sum.count(&server.ask(name, KeyRequest::Check(request.clone())).await);
            }
        }));
    }
    for task in tasks {
        task.await.expect("no client fails");
    }
    sum
}

pub fn tally(servers: &[Engine]) -> Tally {
    let mut sum = Tally::default();
    servers.iter().for_each(|server| sum.add_all(&server.tally()));
    sum
}

// `TOLLGATE_HOT_REQUESTS=1000000` is the long form: this many for each number of servers.
#[test]
fn servers_on_one_hot_key_admit_exactly_the_limit_and_fail_nobody() {
    let each = times("TOLLGATE_HOT_REQUESTS", 64_000) / 64;
    let all = 64 * each as u64;
    let redis = Redis::start(Kind::Plain);
    runtime().block_on(async {
        for count in [1, 2, 4, 8] {
            let servers: Vec<_> = (0..count).map(|_| server(&redis.address(), |_| {})).collect();
            let sum = ask_all(&servers, 64, each, move |server, _, _| {
                server.name(format!("hot {count}").as_bytes())
            });
            let sum = sum.await.get();
            let tally = tally(&servers);
            println!(
                "{count} servers: {:.3} round trips a decision, {tally:?}",
                tally.calls as f64 / all as f64
            );
            assert_eq!(sum, [LIMIT, all - LIMIT, 0, 0], "{count} servers");
            assert!(count > 1 || tally.calls < all / 20, "0.05 round trips on one server");
        }
    });
}

#[test]
fn a_key_that_nobody_else_asks_for_costs_one_round_trip() {
    let redis = Redis::start(Kind::Plain);
    runtime().block_on(async {
        let servers = [server(&redis.address(), |_| {})];
        let name = |server: &Engine, client: usize, i: usize| {
            server.name(format!("{client} {}", i % 100).as_bytes())
        };
        let sum = ask_all(&servers, 16, 500, name).await;
        let tally = tally(&servers);
        assert_eq!(sum.get(), [8_000, 0, 0, 0]);
        // The first calls of each committer set its clock.
        assert!((8_000..8_100).contains(&tally.calls), "{tally:?}");
        assert_eq!(tally.mismatches, 0, "a new key is taken to be absent");
    });
}

#[test]
fn what_was_charged_is_given_back_once_and_operators_see_it() {
    let redis = Redis::start(Kind::Plain);
    runtime().block_on(async {
        let servers: Vec<_> = (0..2).map(|_| server(&redis.address(), |_| {})).collect();
        let request = request(10);
        for round in 0..50 {
            let [here, there] = [&servers[round % 2], &servers[(round + 1) % 2]];
            let name = here.name(b"key");
            assert_eq!(name, there.name(b"key"));
            let reply =
                here.ask(name, KeyRequest::Check(request.clone())).await.expect("an answer");
            assert!(is_charged(&reply), "{round}");
            let refund = KeyRequest::Refund { request: request.clone(), reply };
            there.ask(name, refund).await.expect("an answer");
        }
        let name = servers[0].name(b"key");
        let mut admitted = 0;
        for _ in 0..20 {
            let reply = servers[0].ask(name, KeyRequest::Check(request.clone())).await;
            admitted += u32::from(is_charged(&reply.expect("an answer")));
        }
        // A refund that comes later than its charge is smaller by that time: milliseconds of weeks.
        assert!(admitted == 9 || admitted == 10, "{admitted}");
    });
    let keys = redis.command(&["KEYS", "*"]);
    assert!(keys.contains("tollgate:") && !keys.contains("key\""), "{keys}");
}

#[test]
fn a_value_lives_until_it_is_idle_and_half_a_minute() {
    let redis = Redis::start(Kind::Plain);
    runtime().block_on(async {
        let server = server(&redis.address(), |_| {});
        let name = server.name(b"key");
        server.ask(name, KeyRequest::Check(request(1))).await.expect("an answer");
    });
    let key = format!("tollgate:{}", server(&redis.address(), |_| {}).name(b"key"));
    let left: i64 = redis.command(&["PTTL", &key]).trim_start_matches(':').parse().expect("ms");
    let window: i64 = 366 * 86_400_000;
    assert!((window..=window + 30_001).contains(&left), "{left}");
}
