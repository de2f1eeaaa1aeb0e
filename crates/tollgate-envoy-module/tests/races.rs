//! Several threads, each a worker of Envoy, on the same keys.

use std::cell::UnsafeCell;
use std::sync::Barrier;
use std::thread;

use crate::envoy::{self, Configuration, Stream};

#[test]
fn workers_together_allow_exactly_the_limit() {
    const LIMIT: usize = 1_000;
    let document = format!(
        r#"{{"version": 1, "rules": [{{"name": "race", "key": [{{"header": "x-key"}}],
            "quotas": [{{"limit": {LIMIT}, "window": "1d"}}]}}]}}"#
    );
    let configuration = Configuration::new(&document).unwrap();
    for key in ["a", "b", "c"] {
        let (barrier, configuration) = (Barrier::new(4), &configuration);
        let allowed: usize = thread::scope(|scope| {
            let ask = || {
                barrier.wait();
                let streams =
                    (0..LIMIT).map(|_| configuration.open(Stream::get(&[("x-key", key)])));
                streams.filter(|stream| stream.request() == 0).map(|stream| stream.end()).count()
            };
            let workers: Vec<_> = (0..4).map(|_| scope.spawn(ask)).collect();
            workers.into_iter().map(|worker| worker.join().unwrap()).sum()
        });
        assert_eq!(allowed, LIMIT, "{key}");
    }
    assert_eq!(envoy::calls_after_the_end(), 0);
}

// Guards: a sanitizer that sees nothing. `cargo xtask test deep` wants its report.
#[test]
#[ignore = "a data race, for ThreadSanitizer"]
#[allow(unsafe_code, clippy::undocumented_unsafe_blocks, reason = "a race is unsound")]
fn a_planted_race() {
    struct Shared(UnsafeCell<u64>);
    unsafe impl Sync for Shared {}
    let shared = &Shared(UnsafeCell::new(0));
    let write = || unsafe { *{ shared }.0.get() = 1 };
    thread::scope(|scope| [scope.spawn(write), scope.spawn(write)].map(drop));
}
