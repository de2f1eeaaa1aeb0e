//! governor: GCRA in a map, with the crate's clock for tests.

use crate::{Limiter, Rate};
use governor::{
    Quota, RateLimiter, clock::FakeRelativeClock, middleware::NoOpMiddleware,
    state::keyed::HashMapStateStore,
};
use std::{num::NonZeroU32, time::Duration};

pub struct Governor {
    limiter: RateLimiter<
        String,
        HashMapStateStore<String>,
        FakeRelativeClock,
        NoOpMiddleware<<FakeRelativeClock as governor::clock::Clock>::Instant>,
    >,
    clock: FakeRelativeClock,
    now: u64,
}

impl Governor {
    pub fn new(Rate { limit, window }: Rate) -> Self {
        let burst = NonZeroU32::new(limit).expect("a limit");
        let quota = Quota::with_period(window / limit).expect("a period").allow_burst(burst);
        let clock = FakeRelativeClock::default();
        let limiter = RateLimiter::new(quota, HashMapStateStore::default(), clock.clone());
        Self { limiter, clock, now: 0 }
    }
}

impl Limiter for Governor {
    fn admits(&mut self, key: &str, nanos: u64) -> bool {
        self.clock.advance(Duration::from_nanos(nanos - self.now));
        self.now = nanos;
        self.limiter.check_key(&key.to_owned()).is_ok()
    }
}
