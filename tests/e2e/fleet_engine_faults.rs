//! An engine that fails: killed, stopped, flushed, full, far away, with another clock, or not an
//! engine at all.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tollgate_e2e::process::free_port;
use tollgate_redis::{Engine, Failed, Fault, KeyRequest, Settings, Warning};

use crate::fleet_engine_redis::{Kind, Redis};
use crate::{LIMIT, Sum, ask_all, is_charged, request, runtime, server, tally};

const HOUR_NS: i64 = 3_600_000_000_000;

/// Sends requests for one hot key to all servers until `over` is set; returns the totals.
async fn ask_until(servers: &[Engine], over: Arc<AtomicBool>) -> Arc<Sum> {
    let sum = Arc::new(Sum::default());
    let request = request(LIMIT);
    let mut tasks = Vec::new();
    for client in 0..16 {
        let server = servers[client % servers.len()].clone();
        let (sum, over, request) = (sum.clone(), over.clone(), request.clone());
        tasks.push(tokio::spawn(async move {
            let name = server.name(b"hot");
            while !over.load(Ordering::Relaxed) {
                let answer = server.ask(name, KeyRequest::Check(request.clone())).await;
                sum.count(&answer);
                if answer.is_err() {
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
                // Slow enough that the limit is not used up before anything happens.
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }));
    }
    for task in tasks {
        task.await.expect("no client fails");
    }
    sum
}

/// The same while `happens` runs in a thread of its own and acts on the engine.
fn while_asked(servers: Vec<Engine>, happens: impl FnOnce() + Send) -> [u64; 4] {
    let over = Arc::new(AtomicBool::new(false));
    let runtime = runtime();
    thread::scope(|scope| {
        let asking = {
            let (over, runtime) = (over.clone(), &runtime);
            scope.spawn(move || runtime.block_on(ask_until(&servers, over)).get())
        };
        happens();
        over.store(true, Ordering::Relaxed);
        asking.join().expect("no client fails")
    })
}

fn pause(ms: u64) {
    thread::sleep(Duration::from_millis(ms));
}

fn impatient(redis: &Redis) -> Vec<Engine> {
    let change = |options: &mut tollgate_redis::Options| {
        options.timeout = Duration::from_millis(300);
        options.settings.tolerance_ms = 50;
    };
    (0..3).map(|_| server(&redis.address(), change)).collect()
}

#[test]
fn a_killed_engine_that_keeps_what_it_acknowledged_admits_the_limit_at_most() {
    let mut redis = Redis::start(Kind::Durable);
    let servers = impatient(&redis);
    let sum = while_asked(servers.clone(), || {
        for _ in 0..3 {
            pause(300);
            redis.kill();
            pause(300);
            redis.restart();
        }
        pause(3_000);
    });
    let tally = tally(&servers);
    println!("killed three times: {sum:?} {tally:?}");
    let [admitted, denied, failed, overloaded] = sum;
    assert!(admitted <= LIMIT, "{admitted}");
    assert!(admitted > LIMIT / 2 && denied > 0, "it goes on after each");
    assert!(failed > 0 && tally.opened > 0 && overloaded == 0);
}

#[test]
fn a_killed_engine_that_forgets_everything_admits_one_limit_more_each_time() {
    let mut redis = Redis::start(Kind::Plain);
    let servers = impatient(&redis);
    let [admitted, ..] = while_asked(servers, || {
        pause(1_500);
        redis.restart();
        pause(2_500);
    });
    println!("admitted {admitted} with one loss of everything");
    assert!((LIMIT..=2 * LIMIT).contains(&admitted), "{admitted}");
}

#[test]
fn an_engine_that_stands_still_costs_failures_and_no_admissions() {
    let redis = Redis::start(Kind::Plain);
    let servers = impatient(&redis);
    let sum = while_asked(servers.clone(), || {
        for _ in 0..3 {
            pause(300);
            redis.signal(Signal::STOP);
            pause(1_500);
            redis.signal(Signal::CONT);
        }
        pause(3_000);
    });
    let tally = tally(&servers);
    println!("stopped three times: {sum:?} {tally:?}");
    let [admitted, denied, failed, overloaded] = sum;
    assert!(admitted <= LIMIT && denied > 0, "{admitted}");
    assert!(failed > 0 && tally.unknown > 0 && overloaded == 0);
    // After a stop it does not execute the commands sent during the stop: its clock shows that they
    // are late.
    assert!(tally.other_times > 0 || tally.found_done > 0);
}

#[test]
fn a_flushed_script_and_a_busy_engine_fail_nobody() {
    let redis = Redis::start(Kind::Plain);
    let servers: Vec<_> = (0..3).map(|_| server(&redis.address(), |_| {})).collect();
    let [admitted, denied, failed, overloaded] = while_asked(servers.clone(), || {
        for _ in 0..10 {
            redis.command(&["SCRIPT", "FLUSH"]);
            redis.command(&["DEBUG", "SLEEP", "0.1"]);
            pause(100);
        }
        pause(2_000);
    });
    assert_eq!((admitted, failed, overloaded), (LIMIT, 0, 0));
    assert!(denied > 0 && tally(&servers).scripts_missing > 0);
}

#[test]
fn an_engine_whose_clock_is_an_hour_off_decides_alike() {
    for wall in [HOUR_NS, -HOUR_NS] {
        let redis = Redis::start_with(Kind::Plain, &["--enable-debug-command", "yes"], Some(wall));
        let servers: Vec<_> = (0..3).map(|_| server(&redis.address(), |_| {})).collect();
        let name = |server: &Engine, _, _| server.name(b"hot");
        let sum = runtime().block_on(ask_all(&servers, 16, 200, name)).get();
        assert_eq!(sum, [LIMIT, 3_200 - LIMIT, 0, 0], "{wall}");
    }
}

#[test]
fn an_engine_whose_clock_is_set_is_followed() {
    let redis = Redis::start_with(Kind::Plain, &[], Some(0));
    let servers: Vec<_> = (0..2).map(|_| server(&redis.address(), |_| {})).collect();
    let [admitted, _, failed, _] = while_asked(servers.clone(), || {
        // Forward by ten minutes, then back: states written in between are further in the future
        // than the core allows, so at most one more burst is allowed.
        pause(500);
        redis.set_wall(HOUR_NS / 6);
        pause(1_000);
        redis.set_wall(0);
        pause(3_000);
    });
    let tally = tally(&servers);
    println!("clock set twice: {admitted} admitted, {tally:?}");
    assert!((LIMIT..=2 * LIMIT).contains(&admitted), "{admitted}");
    assert!(failed == 0 && tally.clocks_set >= 4, "{tally:?}");
}

#[test]
fn an_engine_without_memory_says_so_and_forgets_nobody() {
    let redis = Redis::start(Kind::Plain);
    runtime().block_on(async {
        let server = server(&redis.address(), |_| {});
        assert_eq!(server.greet().await, Ok(vec![]));
        let hot = server.name(b"hot");
        for _ in 0..2 {
            server.ask(hot, KeyRequest::Check(request(1))).await.expect("an answer");
        }
        redis.command(&["CONFIG", "SET", "maxmemory", "1"]);
        let fresh = server.name(b"fresh");
        let full = server.ask(fresh, KeyRequest::Check(request(1))).await;
        assert_eq!(full, Err(Failed::Engine(Fault::OutOfMemory)));
        let reply = server.ask(hot, KeyRequest::Check(request(1))).await.expect("a denial");
        assert!(!is_charged(&reply), "it is still used up");
        let count = |fault| server.faults().find(|(other, _)| *other == fault).map(|(_, n)| n);
        assert_eq!(count(Fault::OutOfMemory), Some(1));
        redis.command(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
        assert_eq!(server.greet().await, Ok(vec![Warning::Evicts("allkeys-lru".to_owned())]));
    });
}

#[test]
fn values_of_others_are_not_misread() {
    let redis = Redis::start(Kind::Plain);
    runtime().block_on(async {
        let server = server(&redis.address(), |_| {});
        let name = server.name(b"key");
        let key = server.key_of(&name);
        let ask = || server.ask(name, KeyRequest::Check(request(1)));
        let foreign = || server.faults().find(|(fault, _)| *fault == Fault::Foreign);
        redis.command(&["SET", &key, "\u{1}damaged"]);
        assert_eq!(ask().await, Err(Failed::Corrupt));
        assert!(is_charged(&ask().await.expect("it begins again")));
        redis.command(&["SET", &key, "\u{2}of another version"]);
        for _ in 0..2 {
            assert_eq!(ask().await, Err(Failed::Engine(Fault::Foreign)), "and it stays");
        }
        assert_eq!(foreign(), Some((Fault::Foreign, 2)));
        redis.command(&["DEL", &key]);
        redis.command(&["LPUSH", &key, "no text"]);
        assert_eq!(ask().await, Err(Failed::Engine(Fault::Foreign)));
        assert_eq!(foreign(), Some((Fault::Foreign, 3)));
    });
}

/// Forwards connections to `port`, each direction with `delay`; cuts them when the proxy is
/// stopped.
fn proxy(port: u16, delay: Duration) -> (u16, tokio::runtime::Runtime) {
    let runtime = runtime();
    let listens = free_port();
    let listener = runtime.block_on(tokio::net::TcpListener::bind(("127.0.0.1", listens)));
    let listener = listener.expect("a port");
    runtime.spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let server = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.expect("there");
            let (from_client, to_client) = client.into_split();
            let (from_server, to_server) = server.into_split();
            tokio::spawn(forward(from_client, to_server, delay));
            tokio::spawn(forward(from_server, to_client, delay));
        }
    });
    (listens, runtime)
}

async fn forward(
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    delay: Duration,
) {
    let (late, mut parts) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some((at, bytes)) = parts.recv().await {
            let bytes: Vec<u8> = bytes;
            tokio::time::sleep_until(at).await;
            if to.write_all(&bytes).await.is_err() {
                return;
            }
        }
    });
    let mut buffer = vec![0; 65_536];
    while let Ok(len) = from.read(&mut buffer).await {
        let at = tokio::time::Instant::now() + delay;
        if len == 0 || late.send((at, buffer[..len].to_vec())).is_err() {
            return;
        }
    }
}

#[test]
fn latency_costs_time_and_nothing_else() {
    let redis = Redis::start(Kind::Plain);
    let (near, _runs) = proxy(redis.port, Duration::from_millis(1));
    let (far, _runs_too) = proxy(redis.port, Duration::from_millis(20));
    let at = |port| server(&format!("redis://127.0.0.1:{port}"), |_| {});
    let servers = [at(redis.port), at(near), at(far)];
    let name = |server: &Engine, _, _| server.name(b"hot");
    let sum = runtime().block_on(ask_all(&servers, 48, 60, name)).get();
    println!("near and far: {:?}", servers.each_ref().map(Engine::tally));
    assert_eq!(sum, [LIMIT, 2_880 - LIMIT, 0, 0]);
}

#[test]
fn too_far_for_the_tolerance_is_a_failure_that_says_so() {
    let redis = Redis::start(Kind::Plain);
    let (far, _runs) = proxy(redis.port, Duration::from_millis(60));
    runtime().block_on(async {
        let address = format!("redis://127.0.0.1:{far}");
        let strict = server(&address, |options| options.settings.tolerance_ms = 50);
        // Before the clock is known well the difference may be smaller.
        let mut last = Ok(Vec::new());
        for i in 0..10 {
            let name = strict.name(format!("{i}").as_bytes());
            last = strict.ask(name, KeyRequest::Check(request(1))).await;
            if last.is_err() {
                break;
            }
        }
        assert_eq!(last, Err(Failed::Engine(Fault::Clock)));
        let server = server(&address, |_| {});
        let answer = server.ask(server.name(b"key"), KeyRequest::Check(request(1))).await;
        assert!(is_charged(&answer.expect("within a second")));
    });
}

#[test]
fn what_is_no_engine_fails_everybody() {
    let endless = b"*65536\r\n".repeat(70_000);
    let answers: [&'static [u8]; 8] = [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"$536870912\r\n",
        b"*2147483647\r\n",
        b"*4\r\n:0\r\n:1\r\n:2\r\n:3\r\n",
        b"+OK\r\n+OK\r\n+OK\r\n",
        b"\0\0\0\0",
        b"",
        endless.leak(),
    ];
    for answer in answers {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("bound").port();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.expect("a connection");
                let mut asked = [0; 4_096];
                // The greeting is correct.
                let _ = stream.read(&mut asked);
                let hash = format!("$40\r\n{}\r\n", "a".repeat(40));
                let _ = stream.write_all(hash.as_bytes());
                while stream.read(&mut asked).is_ok_and(|len| len > 0) {
                    if stream.write_all(answer).is_err() {
                        break;
                    }
                }
            }
        });
        runtime().block_on(async {
            let server = server(&format!("redis://127.0.0.1:{port}"), |options| {
                options.timeout = Duration::from_millis(200);
                options.settings = Settings { failures_to_open: 3, ..options.settings };
            });
            for i in 0..20 {
                let name = server.name(format!("{i}").as_bytes());
                let answer = server.ask(name, KeyRequest::Check(request(1))).await;
                assert!(answer.is_err(), "{answer:?}");
            }
            assert_eq!(server.under_way(), 0);
        });
    }
}
