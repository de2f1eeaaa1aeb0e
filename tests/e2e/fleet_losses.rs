//! An engine that loses its data while nodes hold units of it: emptied by an operator, restarted
//! without its data, or failed over to a replica that has all of it, or whose clock is an hour
//! ahead or behind.
//!
//! Guards: a loss that is not detected, and units that are leased in addition to those that are
//! still out. The number allowed is the one in docs/server.md: one more limit for each loss, and no
//! more.

use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tollgate_e2e::fleet_node::{Node, run_dry, wait_for_leases};
use tollgate_e2e::http::Request;
use tollgate_e2e::process::{READY_WITHIN, wait_until};
use tollgate_e2e::server::{Setup, TollgateServer};

use crate::fleet_engine_redis::{Kind, Redis};

const LIMIT: u64 = 4_000;
/// Nothing is leased for this long after a loss; the true pause is a second longer, as an allowance
/// for the test's clock.
const LEASE_PAUSE: Duration = Duration::from_secs(10);
const HOUR_NS: i64 = 3_600_000_000_000;
const IP: &str = "192.0.2.1";

fn server(store: &str, policy: &str) -> TollgateServer {
    let server = Setup::new(policy).leasing().operated().set("store", store);
    server.set("store_timeout", 1_000).set("store_tolerance", 900).start()
}

/// [`LIMIT`] in a year.
fn year() -> Value {
    json!({"algorithm": "fixed-window", "limit": LIMIT, "window": "366d"})
}

/// The number that two servers and four nodes on `store` allow under `quota` when `loses` happens
/// while two of them hold units; after it `is_seen` becomes true.
fn admitted(
    store: &str,
    quota: &Value,
    loses: impl FnOnce(),
    is_seen: impl Fn(&TollgateServer) -> bool,
) -> u64 {
    let policy = json!({"version": 1, "rules": [
        {"name": "each", "key": ["client_ip"], "scope": "fleet", "quotas": [quota]}]})
    .to_string();
    let servers = [server(store, &policy), server(store, &policy)];
    let ports = servers.each_ref().map(|server| server.port);
    ports.iter().for_each(|port| wait_for_leases(&policy, *port));
    let mut nodes: Vec<Node> = (1..=2)
        .map(|table| {
            let mut node = Node::new(table, &policy, IP, &ports);
            while node.left() == 0 || node.total() < LIMIT / 10 {
                node.admits();
            }
            node
        })
        .collect();
    let held: u64 = nodes.iter().map(Node::left).sum();
    let lost_at = Instant::now();
    loses();
    let mut fresh = Node::new(3, &policy, IP, &ports);
    wait_until("the loss is seen", READY_WITHIN, || {
        fresh.admits();
        servers.iter().all(&is_seen).then_some(())
    });
    // Nothing is leased for the life of a lease: requests are allowed one by one.
    let leased = fresh.leased;
    let mut direct = Node::new(4, &policy, IP, &ports);
    wait_until("requests are decided", READY_WITHIN, || {
        direct.admits();
        (direct.admitted > 0).then_some(())
    });
    (0..20).for_each(|_| _ = direct.admits());
    // On a stalled machine that time may be over.
    let is_soon = lost_at.elapsed() < LEASE_PAUSE;
    assert!(!is_soon || (direct.leased, direct.left()) == (0, 0), "nothing is leased");
    nodes.extend([fresh, direct]);
    thread::scope(|scope| {
        let running: Vec<_> =
            nodes.into_iter().map(|node| scope.spawn(move || run_dry(node))).collect();
        let admitted = running.into_iter().map(|node| node.join().expect("a node").total()).sum();
        println!("{admitted} of {LIMIT}, {held} held when it was lost, {leased} leased meanwhile");
        assert!(held > 0, "units were out");
        admitted
    })
}

#[test]
fn an_emptied_engine_is_seen_and_costs_one_limit() {
    let redis = Redis::start(Kind::Plain);
    let flush = || assert_eq!(redis.command(&["FLUSHALL"]), "+OK");
    let is_seen = |server: &TollgateServer| server.metric("tollgate_store_emptied_total") == 1;
    let admitted = admitted(&redis.address(), &year(), flush, is_seen);
    assert!((LIMIT + 1..=2 * LIMIT).contains(&admitted), "{admitted}");
}

/// Guards: a key whose counts cannot be read, and an operator who sees neither a metric nor its
/// name.
#[test]
fn a_value_that_is_not_ours_is_counted_and_named() {
    let redis = Redis::start(Kind::Plain);
    let policy = json!({"version": 1, "rules": [
        {"name": "each", "key": ["client_ip"], "on_failure": "deny", "quotas": [year()]}]});
    let server = Setup::new(policy).operated().set("store", redis.address());
    let server = server.set("store_timeout", 1_000).set("store_tolerance", 900).start();
    let mut client = server.client();
    let mut ask = || {
        let one = json!({"method": "GET", "path": "/", "client_ip": IP}).to_string();
        let answer = client.send(&Request::post("/check", one)).text();
        serde_json::from_str::<Value>(&answer).expect("JSON")["decision"].clone()
    };
    wait_until("it is counted", READY_WITHIN, || (ask() == "allow").then_some(()));
    let keys = redis.command(&["KEYS", "tollgate:*"]);
    let is_count = |key: &&str| key.len() == "tollgate:".len() + 64;
    let mut each = keys.split(['[', ' ', ']']);
    let key = each.find(is_count).unwrap_or_else(|| panic!("{keys}"));
    redis.command(&["SET", key, "\u{9}of a newer version"]);
    assert_eq!(ask(), "deny");
    assert_eq!(server.metric("tollgate_store_faults_total{fault=\"foreign\"}"), 1);
    assert_eq!(server.metric("tollgate_failures_total{cause=\"corrupt\"}"), 1);
    let lines = server.wait_for_events("store_failed", 1);
    assert!(lines.iter().any(|line| line["last"].to_string().contains(key)), "{lines:?}");
    assert_eq!(ask(), "deny", "it stays");
}

#[test]
fn an_engine_that_is_restarted_without_its_data_costs_one_limit() {
    let mut redis = Redis::start(Kind::Plain);
    let address = redis.address();
    let admitted = admitted(&address, &year(), || redis.restart(), |_| true);
    assert!((LIMIT + 1..=2 * LIMIT).contains(&admitted), "{admitted}");
}

/// The same across a failover to a replica that has all the data, and whose wall clock differs by
/// this much from the primary's.
fn admitted_across_a_failover(quota: &Value, apart_ns: i64) -> u64 {
    let mut primary = Redis::start_with(Kind::Plain, &[], Some(0));
    let of = primary.port.to_string();
    let replicaof = ["--replicaof", "127.0.0.1", &of];
    let replica = Redis::start_with(Kind::Plain, &replicaof, Some(apart_ns));
    let time = |node: &Redis| -> i64 {
        let time = node.command(&["TIME"]);
        let seconds = time.trim_start_matches('[').split(' ').next().map(str::parse);
        seconds.expect("seconds").expect("a number")
    };
    let apart_s = time(&replica) - time(&primary);
    assert!((apart_s - apart_ns / 1_000_000_000).abs() < 60, "{apart_s}");
    // A sentinel that makes it the primary ends all its connections.
    let tells = |text: &str| {
        wait_until(text, READY_WITHIN, || {
            replica.try_command(&["INFO", "replication"])?.contains(text).then_some(())
        });
    };
    tells("master_link_status:up");
    let sentinel = Redis::sentinel("main", primary.port);
    let fails_over = || {
        wait_until("the replica has it all", READY_WITHIN, || {
            let offset = |node: &Redis, name: &str| {
                let info = node.command(&["INFO", "replication"]);
                info.lines().find_map(|line| line.strip_prefix(name).map(str::to_owned))
            };
            let sent = offset(&primary, "master_repl_offset:")?;
            (offset(&replica, "slave_repl_offset:")? == sent).then_some(())
        });
        primary.kill();
        tells("role:master");
    };
    let store = format!("redis+sentinel://127.0.0.1:{}/main", sentinel.port);
    admitted(&store, quota, fails_over, |_| true)
}

#[test]
fn a_failover_costs_what_the_replica_had_not() {
    let admitted = admitted_across_a_failover(&year(), 0);
    assert!((LIMIT / 2..=LIMIT).contains(&admitted), "the replica had all of it: {admitted}");
}

/// [`LIMIT`] in less than an hour.
fn most_of_an_hour() -> Value {
    json!({"algorithm": "sliding-buckets", "limit": LIMIT, "window": "50m"})
}

// An hour later all the used units are returned: one more limit, and no more.
#[test]
fn a_failover_to_an_engine_that_is_an_hour_ahead_costs_one_limit() {
    let admitted = admitted_across_a_failover(&most_of_an_hour(), HOUR_NS);
    assert!((LIMIT + 1..=2 * LIMIT).contains(&admitted), "{admitted}");
}

// Charges of an hour ahead stay counted; this may also cost one limit, and no more.
#[test]
fn a_failover_to_an_engine_that_is_an_hour_behind_costs_one_limit_at_most() {
    let admitted = admitted_across_a_failover(&most_of_an_hour(), -HOUR_NS);
    assert!((LIMIT / 2..=2 * LIMIT).contains(&admitted), "{admitted}");
}
