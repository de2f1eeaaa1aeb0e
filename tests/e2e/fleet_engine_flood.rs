//! More fresh keys than the engine has memory for.
//!
//! Guards: a denied client that is allowed because of a flood of other keys; memory of the server
//! that grows with the number of keys. `TOLLGATE_FLOOD` sets the number of keys, for a measurement
//! (10,000,000); without it the test uses as many as it has time for.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use tollgate_redis::{Failed, Fault, KeyRequest, Warning};

use crate::fleet_engine_redis::{Kind, Redis};
use crate::{is_charged, request, runtime, server};

/// Bytes of the engine above its size when empty.
const ROOM: u64 = 8 << 20;
/// Clients at once.
const CLIENTS: u64 = 128;

fn info(redis: &Redis, section: &str, field: &str) -> u64 {
    let told = redis.command(&["INFO", section]);
    let line = told.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    line.and_then(|value| value.trim().parse().ok()).expect(field)
}

/// Resident memory of this process, in bytes.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/statm").expect("read");
    let pages = status.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages.expect("a number") * 4_096
}

#[test]
fn a_flood_of_fresh_keys_frees_nobody_and_takes_no_memory_here() {
    let keys: u64 =
        std::env::var("TOLLGATE_FLOOD").map_or(100_000, |n| n.parse().expect("a number"));
    let redis = Redis::start(Kind::Plain);
    let most = info(&redis, "memory", "used_memory") + ROOM;
    redis.command(&["CONFIG", "SET", "maxmemory", &most.to_string()]);
    runtime().block_on(async {
        let server = server(&redis.address(), |options| {
            options.settings.max_remembered = 1 << 20;
        });
        // The key that uses its whole limit before the flood.
        let exhausted = server.name(b"exhausted");
        let one = request(1);
        let reply = server.ask(exhausted, KeyRequest::Check(one.clone())).await.expect("an answer");
        assert!(is_charged(&reply));
        let before = resident();
        let next = Arc::new(AtomicU64::new(0));
        let counts = Arc::new([const { AtomicU64::new(0) }; 4]);
        let began = Instant::now();
        let tasks: Vec<_> = (0..CLIENTS)
            .map(|_| {
                let (server, one) = (server.clone(), one.clone());
                let (next, counts) = (next.clone(), counts.clone());
                tokio::spawn(async move {
                    loop {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        if number >= keys {
                            return;
                        }
                        let name = server.name(&number.to_le_bytes());
                        let came = loop {
                            match server.ask(name, KeyRequest::Check(one.clone())).await {
                                Ok(reply) if is_charged(&reply) => break 0,
                                Err(Failed::Engine(Fault::OutOfMemory)) => break 1,
                                // A stalled machine: nothing was charged.
                                Err(Failed::Overloaded) => {
                                    let again = counts[3].fetch_add(1, Ordering::Relaxed);
                                    assert!(again < keys, "overloaded for ever");
                                }
                                other => panic!("neither charged nor full: {other:?}"),
                            }
                        };
                        counts[came].fetch_add(1, Ordering::Relaxed);
                        if number % 1_000 == 0 {
                            let reply = server.ask(exhausted, KeyRequest::Check(one.clone())).await;
                            // A denial needs no memory: the key stays denied.
                            assert!(!is_charged(&reply.expect("a denial")));
                            counts[2].fetch_add(1, Ordering::Relaxed);
                        }
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.expect("no client fails");
        }
        let [admitted, full, denied, again] =
            [0, 1, 2, 3].map(|i| counts[i].load(Ordering::Relaxed));
        let grown = resident().saturating_sub(before);
        println!(
            "{keys} keys in {:?}: {admitted} stored in {} MiB, {full} out of memory, {denied} \
             denials, {again} asked again, {} KiB more here",
            began.elapsed(),
            ROOM >> 20,
            grown >> 10
        );
        println!("{:?}", server.tally());
        assert_eq!(admitted + full, keys);
        assert!(admitted > 1_000 && full > 0, "{admitted} stored, {full} not");
        assert!(grown < 64 << 20, "{grown} bytes for keys that nobody stored");
        let told = server.faults().find(|(fault, _)| *fault == Fault::OutOfMemory);
        assert_eq!(told.map(|(_, count)| count), Some(full));
        assert_eq!(info(&redis, "stats", "evicted_keys"), 0);

        // As soon as there is room again, fresh keys are allowed, and the denied key is not.
        let more = (most * 2).to_string();
        redis.command(&["CONFIG", "SET", "maxmemory", &more]);
        let name = server.name(b"after");
        assert!(is_charged(&server.ask(name, KeyRequest::Check(one.clone())).await.expect("room")));
        let reply = server.ask(exhausted, KeyRequest::Check(one)).await.expect("a denial");
        assert!(!is_charged(&reply));
    });
}

// Guards: memory that stays full when values have expired.
#[test]
fn a_full_engine_takes_fresh_keys_again_when_values_expire() {
    let redis = Redis::start(Kind::Plain);
    let one = request(1);
    runtime().block_on(async {
        let server = server(&redis.address(), |_| {});
        let filled = server.name(b"filled");
        assert!(is_charged(
            &server.ask(filled, KeyRequest::Check(one.clone())).await.expect("room")
        ));
        // Other data, which expires, occupies all the memory.
        redis.command(&["SET", "other", &"x".repeat(100_000), "PX", "1500"]);
        let fill = "for i = 1, 200 do \
                    redis.call('SET', 'o' .. i, string.rep('x', 100000), 'PX', 1500) end";
        redis.command(&["EVAL", fill, "0"]);
        let full = info(&redis, "memory", "used_memory") - 5_000_000;
        redis.command(&["CONFIG", "SET", "maxmemory", &full.to_string()]);
        let fresh = server.name(b"fresh");
        let refused = server.ask(fresh, KeyRequest::Check(one.clone())).await;
        assert_eq!(refused, Err(Failed::Engine(Fault::OutOfMemory)));
        for _ in 0..1_000 {
            if let Ok(reply) = server.ask(fresh, KeyRequest::Check(one.clone())).await {
                assert!(is_charged(&reply));
                let reply = server.ask(filled, KeyRequest::Check(one.clone())).await;
                assert!(!is_charged(&reply.expect("a denial")), "it is still used up");
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        panic!("full for ever");
    });
}

// Guards: an operator without a warning that a flood resets denied clients.
#[test]
fn an_engine_that_evicts_is_warned_of_and_does_what_the_warning_says() {
    let redis = Redis::start(Kind::Plain);
    let one = request(1);
    runtime().block_on(async {
        let server = server(&redis.address(), |_| {});
        for policy in ["allkeys-lru", "volatile-ttl", "allkeys-random"] {
            redis.command(&["CONFIG", "SET", "maxmemory-policy", policy]);
            assert_eq!(server.greet().await, Ok(vec![Warning::Evicts(policy.to_owned())]));
        }
        let exhausted = server.name(b"exhausted");
        assert!(is_charged(
            &server.ask(exhausted, KeyRequest::Check(one.clone())).await.expect("room")
        ));
        // Room for about 1,300 keys: one of them survives 18,700 random evictions with a
        // probability of one in a million. With room for 5,000 it was one in twenty.
        let most = info(&redis, "memory", "used_memory") + (1 << 18);
        redis.command(&["CONFIG", "SET", "maxmemory", &most.to_string()]);
        for number in 0..20_000_u32 {
            let name = server.name(&number.to_le_bytes());
            server
                .ask(name, KeyRequest::Check(one.clone()))
                .await
                .expect("it evicts, and takes it");
            let reply =
                server.ask(exhausted, KeyRequest::Check(one.clone())).await.expect("an answer");
            if is_charged(&reply) {
                return;
            }
        }
        panic!("nobody was forgotten: the warning is wrong");
    });
}
