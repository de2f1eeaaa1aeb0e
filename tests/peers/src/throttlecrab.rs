//! throttlecrab: GCRA in a map, with the time as a parameter.

use crate::{Limiter, Rate};
use std::time::{Duration, UNIX_EPOCH};
use throttlecrab::{AdaptiveStore, RateLimiter};

pub struct Throttlecrab {
    limiter: RateLimiter<AdaptiveStore>,
    rate: Rate,
}

impl Throttlecrab {
    pub fn new(rate: Rate) -> Self {
        Self { limiter: RateLimiter::new(AdaptiveStore::new()), rate }
    }
}

impl Limiter for Throttlecrab {
    fn admits(&mut self, key: &str, nanos: u64) -> bool {
        let (limit, window) = (self.rate.limit.into(), self.rate.window.as_secs());
        let window = window.try_into().expect("a short window");
        let now = UNIX_EPOCH + Duration::from_nanos(nanos);
        self.limiter.rate_limit(key, limit, limit, window, 1, now).expect("parameters").0
    }
}
