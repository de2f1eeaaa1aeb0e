//! Commits that count only when a replica has them.
//!
//! Guards: an admission that a failover loses although it was acknowledged; a charge that is
//! refunded because no replica confirmed it in time; connections without a bound; and a circuit
//! that opens although the engine responds.

use std::slice::from_ref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::Signal;
use tollgate_core::Span;
use tollgate_e2e::process::{READY_WITHIN, wait_until};
use tollgate_redis::{Engine, Failed, Fault, KeyRequest, Replicas};

use crate::fleet_engine_redis::{Kind, Redis};
use crate::{LIMIT, Sum, ask_all, is_charged, request, runtime, server, tally};

/// A replica of `primary` that has all its data.
fn replica_of(primary: &Redis) -> Redis {
    let of = primary.port.to_string();
    let replica = Redis::start_with(Kind::Plain, &["--replicaof", "127.0.0.1", &of], None);
    wait_until("the replica follows", READY_WITHIN, || {
        // A replica reports that the link is up before it receives writes.
        let online = format!("port={},state=online", replica.port);
        primary.command(&["INFO", "replication"]).contains(&online).then_some(())
    });
    replica
}

/// A server that requires each commit on one replica.
fn replicated(address: &str, ms: u64) -> Engine {
    let timeout = Duration::from_millis(ms);
    server(address, |options| options.replicas = Some(Replicas { count: 1, timeout }))
}

fn faults(server: &Engine, fault: Fault) -> u64 {
    server.faults().find(|(other, _)| *other == fault).map_or(0, |(_, count)| count)
}

#[test]
fn a_charge_that_no_replica_has_fails_and_stays() {
    let primary = Redis::start(Kind::Plain);
    let replica = replica_of(&primary);
    runtime().block_on(async {
        let server = replicated(&primary.address(), 300);
        let ask = |key: &'static str| {
            let (name, request) = (server.name(key.as_bytes()), request(2));
            let server = server.clone();
            async move {
                server.ask(name, KeyRequest::Check(request)).await.map(|reply| is_charged(&reply))
            }
        };
        // A machine that runs other tests may be slow once; then use another key.
        let (mut first, keys) = (Err(Failed::Open), ["a", "b", "c", "d", "e"]);
        let mut key = "";
        for next in keys {
            (first, key) = (ask(next).await, next);
            if first.is_ok() {
                break;
            }
        }
        assert_eq!(first, Ok(true));
        let before = faults(&server, Fault::Replicas);
        replica.signal(Signal::STOP);
        let too_few = Err(Failed::Engine(Fault::Replicas));
        assert_eq!(ask(key).await, too_few);
        assert_eq!(ask(key).await, Ok(false), "it is charged, and a refusal writes nothing");
        for other in ["1", "2", "3", "4", "5", "6", "7", "8"] {
            assert_eq!(ask(other).await, too_few);
        }
        assert_eq!(faults(&server, Fault::Replicas), before + 9);
        assert_eq!(server.tally().opened, 0, "the engine answers");
        replica.signal(Signal::CONT);
        wait_until("the replica has all", READY_WITHIN, || {
            (primary.command(&["WAIT", "1", "1000"]) == ":1").then_some(())
        });
        let deadline = tokio::time::Instant::now() + READY_WITHIN;
        let mut again = 0;
        while ask(["w", "x", "y", "z"][again % 4]).await.is_err() {
            again += 1;
            assert!(tokio::time::Instant::now() < deadline, "it fails for ever");
        }
        assert_eq!(ask(key).await, Ok(false), "the charge stays");
    });
}

// Guards: a pool that grows with the waiting requests, and requests that wait without end.
#[test]
fn connections_that_wait_for_replicas_are_bounded() {
    let primary = Redis::start(Kind::Plain);
    let replica = replica_of(&primary);
    runtime().block_on(async {
        let server = server(&primary.address(), |options| {
            let timeout = Duration::from_millis(200);
            options.replicas = Some(Replicas { count: 1, timeout });
            options.settings.max_wait = Span::from_millis(500);
        });
        let warm = |server: &Engine, _, i: usize| server.name(format!("warm {i}").as_bytes());
        ask_all(from_ref(&server), 1, 20, warm).await;
        replica.signal(Signal::STOP);
        let is_over = Arc::new(AtomicBool::new(false));
        let most = std::thread::scope(|scope| {
            let watching = scope.spawn(|| {
                let mut most = 0;
                while !is_over.load(Ordering::Relaxed) {
                    let info = primary.command(&["INFO", "clients"]);
                    let line = info.lines().find_map(|l| l.strip_prefix("connected_clients:"));
                    most = most.max(line.and_then(|n| n.trim().parse().ok()).unwrap_or(0_u32));
                }
                most
            });
            let asked = tokio::task::block_in_place(|| {
                tokio::runtime::Handle::current().block_on(async {
                    let each = |server: &Engine, client: usize, _| {
                        server.name(format!("{client}").as_bytes())
                    };
                    ask_all(from_ref(&server), 1_000, 1, each).await.get()
                })
            });
            is_over.store(true, Ordering::Relaxed);
            let [admitted, denied, failed, overloaded] = asked;
            println!("{asked:?}");
            assert_eq!((admitted, denied, failed + overloaded), (0, 0, 1_000));
            assert!(failed >= 32 && overloaded > 0, "{asked:?}");
            watching.join().expect("it ends")
        });
        // Those of the pool, the one for everything else, the one that requests this number, and
        // the one that requested it before, whose end the primary may see only after this.
        assert!((8..=35).contains(&most), "{most} connections");
        assert_eq!(server.tally().opened, 0);
        replica.signal(Signal::CONT);
    });
}

/// Sends requests for one key after the other until `over`, on every server; returns the totals by
/// key.
async fn load(servers: &[Engine], keys: usize, over: Arc<AtomicBool>) -> Vec<Arc<Sum>> {
    let sums: Vec<Arc<Sum>> = (0..keys).map(|_| Arc::default()).collect();
    let request = request(LIMIT);
    let mut tasks = Vec::new();
    for client in 0..16 {
        let server = servers[client % servers.len()].clone();
        let (sums, over, request) = (sums.clone(), over.clone(), request.clone());
        tasks.push(tokio::spawn(async move {
            let mut i = client;
            while !over.load(Ordering::Relaxed) {
                i += 1;
                let name = server.name(format!("key {}", i % keys).as_bytes());
                let answer = server.ask(name, KeyRequest::Check(request.clone())).await;
                sums[i % keys].count(&answer);
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        }));
    }
    for task in tasks {
        task.await.expect("no client fails");
    }
    sums
}

/// The number of admissions that are lost in a failover. The replica is cut off from its primary,
/// which continues for a while under load and then gets `kill -9`. The loss is the number that the
/// servers allowed, less the number that one limiter allows.
fn lost(count: Option<u32>) -> u64 {
    const KEYS: usize = 4;
    let mut primary = Redis::start(Kind::Plain);
    let replica = replica_of(&primary);
    runtime().block_on(async {
        let replicas = count.map(|count| Replicas { count, timeout: Duration::from_millis(300) });
        let servers = |redis: &Redis| -> Vec<Engine> {
            let of = |_| server(&redis.address(), |options| options.replicas = replicas);
            (0..2).map(of).collect()
        };
        let (before, over) = (servers(&primary), Arc::new(AtomicBool::new(false)));
        let asking = {
            let (before, over) = (before.clone(), over.clone());
            tokio::spawn(async move { load(&before, KEYS, over).await })
        };
        let admitted = |servers: &[Engine]| tally(servers).acknowledged;
        let deadline = tokio::time::Instant::now() + READY_WITHIN;
        while admitted(&before) < 200 {
            assert!(tokio::time::Instant::now() < deadline, "nothing is admitted");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(replica.command(&["REPLICAOF", "NO", "ONE"]), "+OK");
        tokio::time::sleep(Duration::from_millis(400)).await;
        primary.kill();
        over.store(true, Ordering::Relaxed);
        let told = asking.await.expect("it ends");
        // From now on the other one is the primary, and has a replica itself.
        let _next = replica_of(&replica);
        let after = servers(&replica);
        let (mut lost, mut all) = (0, 0);
        for (i, told) in told.iter().enumerate() {
            let name = move |server: &Engine, _, _| server.name(format!("key {i}").as_bytes());
            let mut more = 0;
            loop {
                let [admitted, denied, ..] = ask_all(&after, 16, 20, name).await.get();
                more += admitted;
                if denied > 0 {
                    break;
                }
                assert!(tokio::time::Instant::now() < deadline + READY_WITHIN, "never used up");
            }
            let [admitted, ..] = told.get();
            lost += (admitted + more).saturating_sub(LIMIT);
            all += admitted;
        }
        println!("{count:?} replicas: {all} admitted before, {lost} of them lost");
        lost
    })
}

#[test]
fn a_replica_that_takes_over_has_all_that_was_acknowledged() {
    assert_eq!(lost(Some(1)), 0);
    assert!(lost(None) > 0, "the test would not see a loss");
}

#[test]
fn sentinels_name_another_primary_and_no_key_gets_more() {
    const KEYS: usize = 4;
    let mut primary = Redis::start(Kind::Plain);
    let _replicas = [replica_of(&primary), replica_of(&primary)];
    let sentinel = Redis::sentinel("main", primary.port);
    wait_until("the sentinel knows both", READY_WITHIN, || {
        let told = sentinel.command(&["SENTINEL", "MASTER", "main"]);
        told.contains("num-slaves 2").then_some(())
    });
    runtime().block_on(async {
        let address = format!("redis+sentinel://127.0.0.1:{}/main", sentinel.port);
        let servers = [replicated(&address, 300), replicated(&address, 300)];
        for server in &servers {
            server.greet().await.expect("it is there");
        }
        let over = Arc::new(AtomicBool::new(false));
        let asking = {
            let (servers, over) = (servers.clone(), over.clone());
            tokio::spawn(async move { load(&servers, KEYS, over).await })
        };
        let deadline = tokio::time::Instant::now() + READY_WITHIN;
        while tally(&servers).acknowledged < 200 {
            assert!(tokio::time::Instant::now() < deadline, "nothing is admitted");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        primary.kill();
        let key =
            |i: usize| move |server: &Engine, _, _| server.name(format!("key {i}").as_bytes());
        let other = |server: &Engine, _, i: usize| server.name(format!("other {i}").as_bytes());
        while ask_all(&servers, 1, 5, other).await.get()[2..] != [0, 0] {
            assert!(tokio::time::Instant::now() < deadline + READY_WITHIN, "it fails for ever");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        over.store(true, Ordering::Relaxed);
        for (i, told) in asking.await.expect("it ends").iter().enumerate() {
            let [admitted, ..] = told.get();
            let mut more = 0;
            loop {
                let [admitted, denied, ..] = ask_all(&servers, 16, 20, key(i)).await.get();
                more += admitted;
                if denied > 0 {
                    break;
                }
                let is_soon = tokio::time::Instant::now() < deadline + 2 * READY_WITHIN;
                assert!(is_soon, "never used up");
            }
            println!("key {i}: {admitted} and {more}, {:?}", told.get());
            assert!(admitted + more <= LIMIT, "{admitted} and {more}");
        }
    });
}
