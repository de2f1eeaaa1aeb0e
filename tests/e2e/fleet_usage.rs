//! The report of a calendar's periods of real servers, over HTTP: of one with its counts in memory,
//! and of two with a real Redis, each with a clock that the test sets.

use std::cell::Cell;

use tollgate_e2e::http::{Request, Response};
use tollgate_e2e::server::{ADMIN_TOKEN, Setup, TollgateServer};
use tollgate_e2e::usage::{Counting, START, ahead_ns, assert_is_an_exact_log, policy};

use crate::fleet_engine_redis::{Kind, Redis};

const SECRET: &str = "only-for-tests-names-of-keys";

/// Servers, asked in turn.
struct Servers {
    servers: Vec<TollgateServer>,
    redis: Option<Redis>,
    asked: Cell<usize>,
}

impl Counting for Servers {
    fn set_time(&mut self, ms: u64) {
        match &self.redis {
            Some(redis) => redis.set_wall(ahead_ns(ms)),
            None => self.servers.iter().for_each(|server| server.set_wall(ahead_ns(ms))),
        }
    }

    fn send(&self, request: Request) -> Response {
        let turn = self.asked.get();
        self.asked.set(turn + 1);
        let request = request.header("authorization", format!("Bearer {ADMIN_TOKEN}"));
        self.servers[turn % self.servers.len()].client().send(&request)
    }
}

fn setup() -> Setup {
    Setup::new(policy()).operated().variable("TOLLGATE_HASH_KEY", SECRET)
}

/// No user's name is in a log.
fn assert_no_key_is_logged(servers: &Servers) {
    for server in &servers.servers {
        let log = server.server.log();
        assert!(!log.contains("1+2") && !log.contains("1%2B2") && !log.contains("ann"), "{log}");
    }
}

// Guards: an invoice that differs from what was counted, or without a client that did not return.
#[test]
fn a_report_of_a_servers_memory_is_an_exact_log() {
    let server = setup().wall(ahead_ns(START)).start();
    let mut servers = Servers { servers: vec![server], redis: None, asked: Cell::new(0) };
    assert_is_an_exact_log(&mut servers, 1);
    assert_no_key_is_logged(&servers);
}

#[test]
fn a_report_of_a_shared_store_is_an_exact_log() {
    let redis = Redis::start_with(Kind::Plain, &[], Some(0));
    redis.set_wall(ahead_ns(START));
    let server = || {
        let server = setup().set("store", redis.address());
        server.set("store_timeout", 5_000).set("store_tolerance", 2_000).start()
    };
    let servers = vec![server(), server()];
    let mut servers = Servers { servers, redis: Some(redis), asked: Cell::new(0) };
    assert_is_an_exact_log(&mut servers, 2);
    assert_no_key_is_logged(&servers);
}
