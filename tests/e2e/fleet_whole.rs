//! A whole fleet at once: three real Envoys with the filter, two servers, and a Redis cluster of
//! three primaries with a replica each, under skewed load, while one process after the other is
//! killed. Every commit goes through a recorder, and the history is checked in its order.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tollgate_e2e::history::{Engine, History, Judge, Key, check};
use tollgate_e2e::http::{Client, Request};
use tollgate_e2e::process::{READY_WITHIN, free_port, wait_until};
use tollgate_e2e::recorder::Log;
use tollgate_e2e::server::{FLEET_SECRET, Setup, TollgateServer};
use tollgate_test_support::Random;

use crate::envoy_server::{As, Envoy, Listener, Setup as EnvoySetup, tollgate};
use crate::fleet_cluster;
use crate::fleet_engine_redis::{Kind, Redis};

const SOON: Duration = Duration::from_secs(60);
/// The limit of each key that is not leased.
const EXACT: u64 = 150;
/// The limit of each key that is leased, in total.
const LEASED: u64 = 4_000;
/// The limits of each key that is leased, per second, and at once.
const RATE: u64 = 150;
const BURST: u64 = 100;

fn policy() -> Value {
    let rule = |name: &str, quota: Value| {
        json!({"name": name, "key": [{"header": format!("x-{name}")}], "scope": "fleet",
               "on_failure": "deny", "quotas": [quota]})
    };
    let all = |limit| json!({"algorithm": "fixed-window", "limit": limit, "window": "366d"});
    let mut exact = rule("exact", all(EXACT));
    exact["lease"] = json!(0);
    let rate = json!({"limit": RATE, "window": "1s", "burst": BURST});
    json!({"version": 1, "rules": [exact, rule("leased", all(LEASED)), rule("rate", rate)]})
}

/// All processes.
struct Fleet {
    log: Log,
    /// Three primaries, and their replicas in the same order.
    nodes: Vec<Redis>,
    servers: Vec<TollgateServer>,
    envoys: Vec<Envoy>,
}

impl Fleet {
    fn start() -> Self {
        let log = Log::default();
        let node = |_| {
            let listens = free_port();
            let announce = listens.to_string();
            let redis =
                Redis::start_with(Kind::Cluster, &["--cluster-announce-port", &announce], None);
            log.record(listens, redis.port);
            (listens, redis)
        };
        let (ports, nodes): (Vec<u16>, Vec<Redis>) = (0..6).map(node).unzip();
        fleet_cluster::join(&nodes[..3]);
        nodes[3..].iter().for_each(|replica| replica.meet(&nodes[0]));
        fleet_cluster::wait_for(&nodes);
        for (replica, primary) in nodes[3..].iter().zip(&nodes) {
            fleet_cluster::follow(replica, primary);
        }
        for node in &nodes {
            // Otherwise a primary that was cut off would continue to allow requests.
            assert_eq!(node.command(&["CONFIG", "SET", "min-replicas-to-write", "1"]), "+OK");
        }
        let policy = policy();
        let address = format!("redis+cluster://127.0.0.1:{}", ports[0]);
        let server = |_| {
            let server = Setup::new(&policy).variable("TOLLGATE_FLEET_SECRET", FLEET_SECRET);
            let server = server.set("store", &address).set("store_timeout", 1_000);
            server.set("store_tolerance", 1_000).start()
        };
        let servers: Vec<TollgateServer> = (0..2).map(server).collect();
        let envoys = (0..3).map(|i| envoy(&policy, servers[i % 2].port, servers[1 - i % 2].port));
        let envoys = envoys.collect();
        Self { log, nodes, servers, envoys }
    }

    fn ports(&self) -> Vec<u16> {
        self.envoys.iter().map(|envoy| envoy.ports[0]).collect()
    }

    fn stat(&self, name: &str) -> Vec<u64> {
        let name = format!("wasmcustom.tollgate.fleet_{name}");
        self.envoys.iter().map(|envoy| envoy.stat(&name)).collect()
    }

    /// The value of a key, on the node that has it now.
    fn stands(&self, name: &[u8]) -> Vec<u8> {
        let of = |node: &Redis| {
            let value = node.try_value(&[b"GET", name])?;
            value.bytes().filter(|_| value.parts().is_none()).map(<[u8]>::to_vec)
        };
        self.nodes.iter().find_map(of).unwrap_or_default()
    }

    /// Kills a process of this kind under load, and starts it again.
    fn kill(&mut self, kind: Kill) {
        thread::sleep(Duration::from_millis(700));
        match kind {
            Kill::Envoy => {
                self.envoys[1].server.kill();
                thread::sleep(Duration::from_millis(700));
                self.envoys[1].crash();
            }
            Kill::Server => {
                self.servers[0].server.kill();
                thread::sleep(Duration::from_millis(700));
                self.servers[0].crash();
            }
            Kill::Primary(i) => self.fail_over(i),
        }
        thread::sleep(Duration::from_millis(700));
    }

    /// The replica receives nothing for a while, and takes over without those writes.
    fn fail_over(&mut self, i: usize) {
        let (primaries, replicas) = self.nodes.split_at_mut(3);
        self.log.mute(primaries[i].port);
        thread::sleep(Duration::from_millis(300));
        primaries[i].kill();
        self.log.mute(0);
        wait_until("the replica took over", READY_WITHIN, || {
            replicas[i].try_command(&["INFO", "replication"])?.contains("role:master").then_some(())
        });
        primaries[i].restart();
        assert_eq!(primaries[i].command(&["CONFIG", "SET", "min-replicas-to-write", "1"]), "+OK");
        wait_until("the old one follows", READY_WITHIN, || {
            let info = primaries[i].command(&["INFO", "replication"]);
            info.contains("master_link_status:up").then_some(())
        });
    }
}

fn envoy(policy: &Value, first: u16, second: u16) -> Envoy {
    let fleet = json!({"cluster": "origin", "secret": FLEET_SECRET, "timeout": "5s"});
    let configuration = json!({"policy": policy, "fleet": fleet});
    let listener = Listener::new("main", vec![tollgate(&configuration, "vm", As::Text)]);
    let mut setup = EnvoySetup::new(2, vec![listener]);
    setup.origin = first;
    setup.origins = vec![second];
    setup.start()
}

#[derive(Clone, Copy, Debug)]
enum Kill {
    Envoy,
    Server,
    Primary(usize),
}

/// Requests for keys; a key gets half as many as one of half its rank.
struct Load {
    header: &'static str,
    prefix: &'static str,
    keys: usize,
    /// The pause of a client between two requests, so that units remain when an event happens.
    pause: Duration,
}

/// The responses that clients got.
#[derive(Default)]
struct ClientResponses {
    admitted: BTreeMap<String, Vec<Instant>>,
    sent: BTreeMap<String, u64>,
    refused: u64,
    /// 503, or no response at all.
    failed: u64,
}

impl ClientResponses {
    fn count(&mut self, key: &str, status: Option<u16>) {
        *self.sent.entry(key.to_owned()).or_default() += 1;
        match status {
            Some(200) => self.admitted.entry(key.to_owned()).or_default().push(Instant::now()),
            Some(429) => self.refused += 1,
            Some(503) | None => self.failed += 1,
            Some(other) => panic!("{other}"),
        }
    }

    fn add(&mut self, other: Self) {
        for (key, times) in other.admitted {
            self.admitted.entry(key).or_default().extend(times);
        }
        for (key, count) in other.sent {
            *self.sent.entry(key).or_default() += count;
        }
        self.refused += other.refused;
        self.failed += other.failed;
    }

    fn of(&self, key: &str) -> &[Instant] {
        self.admitted.get(key).map_or(&[], Vec::as_slice)
    }

    fn all(&self) -> u64 {
        self.admitted.values().map(|times| times.len() as u64).sum()
    }
}

impl Load {
    fn key(&self, rank: usize) -> String {
        format!("{}-{rank}", self.prefix)
    }

    fn request(&self, key: &str) -> Request {
        Request::get("/").header(self.header, key)
    }

    /// A rank by a number from 0 to 2^32: the weight of rank r is 1 / (r + 1).
    fn rank(&self, number: u64) -> usize {
        let weight = |rank: usize| 1_000_000 / (rank as u64 + 1);
        let sum: u64 = (0..self.keys).map(weight).sum();
        let mut left = (number * sum) >> 32;
        (0..self.keys)
            .find(|rank| {
                let is_here = left < weight(*rank);
                left = left.saturating_sub(weight(*rank));
                is_here
            })
            .unwrap_or(0)
    }

    /// Six clients send until `is_over`, or this number of requests each.
    fn run(&self, ports: &[u16], each: u64, is_over: &AtomicBool) -> ClientResponses {
        let all = Mutex::new(ClientResponses::default());
        thread::scope(|scope| {
            for client in 0..6_usize {
                let (all, port) = (&all, ports[client % ports.len()]);
                scope.spawn(move || {
                    let told = self.client(port, each, is_over, client as u64);
                    all.lock().expect("nobody panics with it").add(told);
                });
            }
        });
        all.into_inner().expect("all have ended")
    }

    fn client(&self, port: u16, each: u64, is_over: &AtomicBool, seed: u64) -> ClientResponses {
        let mut random = Random::new(seed);
        let (mut told, mut client) = (ClientResponses::default(), None);
        for _ in 0..each {
            if is_over.load(Ordering::Relaxed) {
                break;
            }
            let key = self.key(self.rank(random.below(1 << 32)));
            if client.is_none() {
                client = Client::try_connect(port).ok();
            }
            let answer = client.as_mut().and_then(|it| it.try_send(&self.request(&key)).ok());
            if answer.is_none() {
                client = None;
                thread::sleep(Duration::from_millis(10));
            }
            told.count(&key, answer.map(|answer| answer.status));
            thread::sleep(self.pause);
        }
        told
    }

    /// The same while a process is killed.
    fn run_while(&self, fleet: &mut Fleet, kind: Kill) -> ClientResponses {
        let (ports, is_over) = (fleet.ports(), AtomicBool::new(false));
        thread::scope(|scope| {
            let running = scope.spawn(|| self.run(&ports, u64::MAX, &is_over));
            fleet.kill(kind);
            is_over.store(true, Ordering::Relaxed);
            running.join().expect("no client fails")
        })
    }
}

/// Sends one request for each key, alone, and so learns the engine's name of the key.
fn names(fleet: &Fleet, load: &Load, told: &mut ClientResponses) -> BTreeMap<String, Vec<u8>> {
    let mut client = fleet.envoys[0].client();
    let keys = (0..load.keys).map(|rank| load.key(rank));
    let name = |key: String| {
        let status = client.send(&load.request(&key)).status;
        assert_eq!(status, 200, "{key}");
        told.count(&key, Some(status));
        (key, fleet.log.last_key().expect("a commit"))
    };
    keys.map(name).collect()
}

/// Checks the history of all keys that are not leased; never more than the limit, except for the
/// losses of a failover.
fn judged(
    fleet: &Fleet,
    told: &ClientResponses,
    names: &BTreeMap<String, Vec<u8>>,
    engine: Engine,
) -> History {
    let judge = Judge::new(
        &policy().to_string(),
        r#"{"method": "GET", "path": "/", "client_ip": "192.0.2.1", "headers": {"x-exact": "a"}}"#,
    );
    let (commits, mut all) = (fleet.log.commits(), History::default());
    for (key, name) in names {
        let told = told.of(key);
        let stands = fleet.stands(name);
        let of = Key { name, judge: Some(&judge), told, stands: &stands };
        let history = check(&commits, &of, engine).unwrap_or_else(|why| panic!("{key}: {why}"));
        let admitted = told.len() as u64;
        assert!(admitted <= EXACT + history.lost, "{key}: {admitted}, {history:?}");
        assert!(history.charged <= EXACT + history.lost, "{key}: {history:?}");
        all.add(&history);
    }
    all
}

/// No process is killed: each key gets exactly what one limiter allows.
fn calm(fleet: &Fleet) {
    let load = Load { header: "x-exact", prefix: "calm", keys: 20, pause: Duration::ZERO };
    let mut told = ClientResponses::default();
    let names = names(fleet, &load, &mut told);
    told.add(load.run(&fleet.ports(), 250, &AtomicBool::new(false)));
    assert_eq!(told.failed, 0);
    for rank in 0..load.keys {
        let key = load.key(rank);
        let sent = told.sent.get(&key).copied().unwrap_or(0);
        assert_eq!(told.of(&key).len() as u64, sent.min(EXACT), "{key}");
    }
    let history = judged(fleet, &told, &names, Engine::Keeps);
    println!("calm: {} admitted, {} refused; {history:?}", told.all(), told.refused);
    assert_eq!((history.charged, history.untold), (told.all(), 0));
    assert!(told.refused > 0, "no key is used up");
}

fn killed(fleet: &mut Fleet, prefix: &'static str, kind: Kill) -> History {
    let load = Load { header: "x-exact", prefix, keys: 20, pause: Duration::from_millis(5) };
    let mut told = ClientResponses::default();
    let names = names(fleet, &load, &mut told);
    told.add(load.run_while(fleet, kind));
    let engine = if let Kill::Primary(_) = kind { Engine::MayLose } else { Engine::Keeps };
    let history = judged(fleet, &told, &names, engine);
    println!(
        "{kind:?} killed: {} admitted, {} refused, {} failed; {history:?}",
        told.all(),
        told.refused,
        told.failed
    );
    history
}

// Guards: an admission that rests on no commit, whichever process is killed; and two counts where
// one should be.
#[test]
fn a_fleet_admits_what_one_limiter_does_whoever_is_killed() {
    let mut fleet = Fleet::start();
    calm(&fleet);
    for (prefix, kind) in [("envoy", Kill::Envoy), ("server", Kill::Server)] {
        assert_eq!(killed(&mut fleet, prefix, kind).lost, 0);
    }
    let history = killed(&mut fleet, "primary", Kill::Primary(0));
    assert!(history.lost_commits > 0, "the replica had heard of everything: {history:?}");
    leased_and_killed(&mut fleet);
    overloaded(&fleet);
}

/// Units of leases in all Envoys, while each kind of process is killed.
fn leased_and_killed(fleet: &mut Fleet) {
    let load =
        Load { header: "x-leased", prefix: "leased", keys: 6, pause: Duration::from_millis(1) };
    let mut told = ClientResponses::default();
    let names = names(fleet, &load, &mut told);
    wait_until("all of them lease", SOON, || {
        // Another key, so that none of their units are used meanwhile, and slowly, so that it
        // lasts.
        let pause = Duration::from_millis(50);
        let other = Load { header: "x-leased", prefix: "wait", keys: 1, pause };
        other.run(&fleet.ports(), 20, &AtomicBool::new(false));
        fleet.stat("granted").iter().all(|count| *count > 0).then_some(())
    });
    for kind in [Kill::Envoy, Kill::Server, Kill::Primary(1)] {
        let more = load.run_while(fleet, kind);
        println!("leases, {kind:?} killed: {} admitted, {} failed", more.all(), more.failed);
        told.add(more);
    }
    println!("granted {:?}", fleet.stat("granted"));
    // All remaining units, for longer than any lease lives.
    let mut used_up_at = Instant::now();
    while used_up_at.elapsed() < Duration::from_secs(5) {
        let more = load.run(&fleet.ports(), 300, &AtomicBool::new(false));
        if more.all() > 0 {
            used_up_at = Instant::now();
        }
        told.add(more);
    }
    let commits = fleet.log.commits();
    for (key, name) in &names {
        let stands = fleet.stands(name);
        let of = Key { name, judge: None, told: &[], stands: &stands };
        let history = check(&commits, &of, Engine::MayLose).expect("a history");
        let admitted = told.of(key).len() as u64;
        println!("{key}: {admitted} of {LEASED}, {} commits lost", history.lost_commits);
        let bursts = if history.lost_commits == 0 { 1 } else { 2 };
        assert!(admitted <= bursts * LEASED, "{key}: {admitted}, {history:?}");
        assert!(admitted * 10 >= LEASED * 6, "{key}: {admitted}, {history:?}");
    }
}

/// More is requested than a rate has: nearly all of it is allowed, and never more.
fn overloaded(fleet: &Fleet) {
    let load = Load { header: "x-rate", prefix: "rate", keys: 4, pause: Duration::ZERO };
    let mut shares = Vec::new();
    // A stalled machine allows less: take the best of several runs.
    for _ in 0..5 {
        let is_over = AtomicBool::new(false);
        let (ports, began) = (fleet.ports(), Instant::now());
        let told = thread::scope(|scope| {
            let running = scope.spawn(|| load.run(&ports, u64::MAX, &is_over));
            thread::sleep(Duration::from_secs(5));
            is_over.store(true, Ordering::Relaxed);
            running.join().expect("no client fails")
        });
        let lasted = u64::try_from(began.elapsed().as_millis()).expect("a short time");
        let most = RATE * lasted / 1_000;
        let (mut admitted, mut limits) = (0, 0);
        for (key, sent) in &told.sent {
            let passed = told.of(key).len() as u64;
            assert!(passed <= most + BURST + 1, "{key}: {passed} of {most}");
            if *sent >= 2 * most {
                (admitted, limits) = (admitted + passed, limits + most);
            }
        }
        println!("overload: {admitted} of {limits} of keys that twice as much was asked of");
        shares.extend((admitted * 1_000).checked_div(limits));
        if shares.last() >= Some(&850) {
            break;
        }
    }
    assert!(shares.last() >= Some(&850), "in thousandths: {shares:?}");
}

// Guards: a checker that finds nothing. An engine reports once that it wrote and did not.
#[test]
fn the_history_of_an_engine_that_lies_once_is_refused() {
    let log = Log::default();
    let redis = Redis::start(Kind::Plain);
    let listens = free_port();
    log.record(listens, redis.port);
    let policy = policy();
    let server = |_| {
        let setup = Setup::new(&policy).set("store", format!("redis://127.0.0.1:{listens}"));
        setup.variable("TOLLGATE_FLEET_SECRET", FLEET_SECRET).set("store_timeout", 5_000).start()
    };
    let servers: Vec<TollgateServer> = (0..2).map(server).collect();
    let described =
        r#"{"method": "GET", "path": "/", "client_ip": "192.0.2.1", "headers": {"x-exact": "a"}}"#;
    let judge = Judge::new(&policy.to_string(), described);
    let mut told = Vec::new();
    let mut ask = |times: usize| {
        let mut clients: Vec<Client> = servers.iter().map(TollgateServer::client).collect();
        for i in 0..times {
            let text = clients[i % 2].send(&Request::post("/check", described)).text();
            assert!(text.contains("\"decision\":\"allow\""), "{text}");
            told.push(Instant::now());
        }
        let name = log.last_key().expect("a commit");
        let stands = redis.try_value(&[b"GET", &name]).expect("redis answers");
        let stands = stands.bytes().unwrap_or_default().to_vec();
        let key = Key { name: &name, judge: Some(&judge), told: &told, stands: &stands };
        check(&log.commits(), &key, Engine::Keeps)
    };
    assert_eq!(ask(10).map(|history| history.charged), Ok(10));
    log.drop_one();
    let found = ask(10).expect_err("eleven of twenty are lost");
    assert!(log.has_dropped() && found.contains("commits follow"), "{found}");
}
