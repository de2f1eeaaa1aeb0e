//! One limiter, driven by a trace or by a loop: what `cargo xtask bench peers` measures.
//!
//! `trace NAME LIMIT WINDOW_S` reads lines `NANOSECONDS KEY` and writes `1` for each admitted
//! request and `0` for each denied one. `cost NAME N` decides N requests of 1,000 keys, none of
//! which is denied, and writes the nanoseconds of CPU. `memory NAME KEYS` decides one request of
//! each key and writes the resident bytes.

mod governor;
mod limitador;
mod throttlecrab;
mod tollgate;

use std::{env, fs, io::Read, time::Duration};

/// At most `limit` requests of one key in `window`, in the way of the limiter.
#[derive(Clone, Copy)]
pub struct Rate {
    pub limit: u32,
    pub window: Duration,
}

pub trait Limiter {
    /// Decides a request of `key`, `nanos` after the start; time never goes back.
    fn admits(&mut self, key: &str, nanos: u64) -> bool;
}

fn limiter(name: &str, rate: Rate) -> Box<dyn Limiter> {
    match name {
        "governor" => Box::new(governor::Governor::new(rate)),
        "limitador" => Box::new(limitador::Limitador::new(rate)),
        "throttlecrab" => Box::new(throttlecrab::Throttlecrab::new(rate)),
        "tollgate" => Box::new(tollgate::Whole::new(rate)),
        name => Box::new(tollgate::Core::new(name, rate)),
    }
}

fn main() {
    let words: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["trace", name, limit, window] => trace(name, number(limit), number(window)),
        ["cost", name, count] => cost(name, number(count)),
        ["memory", name, keys] => memory(name, number(keys)),
        _ => panic!("trace NAME LIMIT WINDOW_S, cost NAME N or memory NAME KEYS"),
    }
}

fn number<T: std::str::FromStr<Err: std::fmt::Debug>>(text: &str) -> T {
    text.parse().expect("a number")
}

fn trace(name: &str, limit: u32, window: u64) {
    let mut limiter = limiter(name, Rate { limit, window: Duration::from_secs(window) });
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).expect("a trace");
    let decided: String = text
        .lines()
        .map(|line| {
            let (nanos, key) = line.split_once(' ').expect("NANOSECONDS KEY");
            if limiter.admits(key, number(nanos)) { '1' } else { '0' }
        })
        .collect();
    println!("{decided}");
}

/// A limit that 1,000 keys in turn never reach.
const AMPLE: Rate = Rate { limit: 1000, window: Duration::from_secs(60) };

/// Nanoseconds from one request to the next: a key has one each 0.1 s.
const STEP: u64 = 100_000;

fn cost(name: &str, count: u64) {
    let mut limiter = limiter(name, AMPLE);
    let keys: Vec<String> = (0..1000).map(|i| format!("client-{i}")).collect();
    for (i, key) in (0..count).zip(keys.iter().cycle()) {
        assert!(limiter.admits(key, i * STEP), "no request is denied");
    }
    let times = fs::read_to_string("/proc/self/schedstat").expect("Linux");
    println!("{}", times.split(' ').next().expect("nanoseconds on a processor"));
}

fn memory(name: &str, keys: u64) {
    let mut limiter = limiter(name, AMPLE);
    for i in 0..keys {
        limiter.admits(&format!("client-{i}"), i * STEP);
    }
    let pages = fs::read_to_string("/proc/self/statm").expect("Linux");
    let resident: u64 = number(pages.split(' ').nth(1).expect("resident pages"));
    println!("{}", resident * 4096);
}
