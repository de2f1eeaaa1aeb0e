//! A replica with another clock than its primary had takes over.
//!
//! Guards: a limit that is exceeded after such a failover by more than the documented one burst per
//! key; a key that is locked.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use tollgate_e2e::process::{READY_WITHIN, wait_until};
use tollgate_redis::{Engine, KeyRequest};

use crate::fleet_engine_redis::{Kind, Redis};
use crate::{Sum, is_charged, request_under, runtime, server, tally};

const SECOND_NS: i64 = 1_000_000_000;
const HOUR_NS: i64 = 3_600 * SECOND_NS;
const LIMIT: u64 = 100;
/// One, and one more for each 36 s that a busy machine takes.
const FEW: u64 = 5;
const ALGORITHMS: [&str; 3] = ["gcra", "fixed-window", "sliding-window"];

fn request(algorithm: &str) -> Vec<u8> {
    request_under(&format!(r#"{{"algorithm": "{algorithm}", "limit": {LIMIT}, "window": "1h"}}"#))
}

/// A clock at ten minutes past an hour, from the machine's: no window ends while a test runs.
fn past_the_hour() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_nanos();
    let in_hour = i64::try_from(now % HOUR_NS.unsigned_abs() as u128).expect("within an hour");
    600 * SECOND_NS - in_hour
}

/// The clock of a node, in seconds.
fn time(node: &Redis) -> i64 {
    let said = node.command(&["TIME"]);
    let seconds = said.trim_start_matches('[').split(' ').next().and_then(|n| n.parse().ok());
    seconds.expect(&said)
}

fn field(node: &Redis, name: &str) -> Option<String> {
    let info = node.command(&["INFO", "replication"]);
    info.lines().find_map(|line| line.strip_prefix(name).map(str::to_owned))
}

/// Eight clients send this many requests each for the key of an algorithm.
async fn ask(servers: &[Engine], algorithm: &'static str, each: usize) -> [u64; 4] {
    let sum = std::sync::Arc::new(Sum::default());
    let tasks: Vec<_> = (0..8)
        .map(|client| {
            let (server, sum) = (servers[client % servers.len()].clone(), sum.clone());
            tokio::spawn(async move {
                let name = server.name(algorithm.as_bytes());
                for _ in 0..each {
                    sum.count(&server.ask(name, KeyRequest::Check(request(algorithm))).await);
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("no client fails");
    }
    sum.get()
}

/// Fails over to a replica whose clock differs by this much from its primary's; returns the number
/// allowed before and after, per algorithm.
fn fail_over(apart_ns: i64) -> [[u64; 2]; 3] {
    let wall = past_the_hour();
    let mut primary = Redis::start_with(Kind::Plain, &[], Some(wall));
    let of = primary.port.to_string();
    let follows = ["--replicaof", "127.0.0.1", &of];
    let replica = Redis::start_with(Kind::Plain, &follows, Some(wall + apart_ns));
    wait_until("the replica follows", READY_WITHIN, || {
        (field(&replica, "master_link_status:")? == "up").then_some(())
    });
    let apart = time(&replica) - time(&primary);
    assert!((apart - apart_ns / SECOND_NS).abs() <= 5, "the clocks are {apart} s apart");
    let sentinel = Redis::sentinel("main", primary.port);
    let address = format!("redis+sentinel://127.0.0.1:{}/main", sentinel.port);
    let began = Instant::now();
    runtime().block_on(async {
        let mut servers: Vec<_> = (0..2).map(|_| server(&address, |_| {})).collect();
        for server in &servers {
            server.greet().await.expect("it is there");
        }
        let mut sums = [[0; 2]; 3];
        for (sum, algorithm) in sums.iter_mut().zip(ALGORITHMS) {
            let [admitted, denied, failed, _] = ask(&servers, algorithm, 50).await;
            assert!(denied > 0 && failed == 0, "{algorithm}: {denied} denied, {failed} failed");
            sum[0] = admitted;
        }
        wait_until("the replica has it", READY_WITHIN, || {
            let sent = field(&primary, "master_repl_offset:");
            (sent == field(&replica, "slave_repl_offset:")).then_some(())
        });
        primary.kill();
        // A server that remembers no denials, and has seen no clock.
        servers.push(server(&address, |_| {}));
        let deadline = tokio::time::Instant::now() + READY_WITHIN;
        let mut rounds_without_failure = 0;
        while rounds_without_failure < 3 {
            let mut failures = 0;
            for (sum, algorithm) in sums.iter_mut().zip(ALGORITHMS) {
                let [admitted, _, failed, _] = ask(&servers, algorithm, 50).await;
                sum[1] += admitted;
                failures += failed;
            }
            rounds_without_failure = if failures == 0 { rounds_without_failure + 1 } else { 0 };
            assert!(tokio::time::Instant::now() < deadline, "{failures} fail for ever");
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
        // Other keys are decided by the new clock as usual.
        let fresh = servers[0].name(b"fresh");
        let reply = servers[0].ask(fresh, KeyRequest::Check(request("gcra"))).await;
        assert!(is_charged(&reply.expect("an answer")));
        println!("{apart} s apart, {:?}: {sums:?}, {:?}", began.elapsed(), tally(&servers));
        let passed = began.elapsed().as_secs() * LIMIT / 3_600 + 1;
        for (sum, algorithm) in sums.iter().zip(ALGORITHMS) {
            assert!(sum[0] >= LIMIT && sum[0] <= LIMIT + passed, "{algorithm}: {sum:?}");
            assert!(sum[1] <= LIMIT + passed, "{algorithm}: more than one burst: {sum:?}");
        }
        sums
    })
}

#[test]
fn a_replica_an_hour_ahead_takes_over_and_costs_one_burst() {
    let [gcra, fixed, _] = fail_over(HOUR_NS);
    // For every server an hour has passed: the new clock was accepted.
    assert!(gcra[1] >= LIMIT && fixed[1] >= LIMIT, "{gcra:?} {fixed:?}");
}

#[test]
fn a_replica_an_hour_behind_takes_over_and_costs_one_request() {
    let [gcra, fixed, sliding] = fail_over(-HOUR_NS);
    // A count more than half a minute in the future is foreign: the next request is allowed, and
    // the rest stays counted. The debt under gcra is less than two bursts, so it is kept.
    assert!(gcra[1] <= FEW, "{gcra:?}");
    let is_few = |sum: [u64; 2]| (1..=FEW).contains(&sum[1]);
    assert!(is_few(fixed) && is_few(sliding), "{fixed:?} {sliding:?}");
}

#[test]
fn a_replica_a_little_behind_takes_over_and_costs_nothing() {
    let sums = fail_over(-20 * SECOND_NS);
    assert!(sums.iter().all(|sum| sum[1] <= FEW), "{sums:?}");
}
