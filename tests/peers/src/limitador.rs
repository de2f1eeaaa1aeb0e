//! limitador: fixed windows in a map. It reads the clock of the machine, so only its cost and its
//! memory are comparable.

use crate::{Limiter, Rate};
use limitador::{
    RateLimiter,
    limit::{Context, Limit},
};
use std::collections::HashMap;

pub struct Limitador(RateLimiter);

impl Limitador {
    pub fn new(Rate { limit, window }: Rate) -> Self {
        let limiter = RateLimiter::new(1_000_000);
        let by_client = vec!["client".try_into().expect("a variable")];
        let none: Vec<limitador::limit::Predicate> = Vec::new();
        limiter.add_limit(Limit::new("all", limit.into(), window.as_secs(), none, by_client));
        Self(limiter)
    }
}

impl Limiter for Limitador {
    fn admits(&mut self, key: &str, _: u64) -> bool {
        let context = Context::from(HashMap::from([("client".to_owned(), key.to_owned())]));
        let checked = self.0.check_rate_limited_and_update(&"all".into(), &context, 1);
        !checked.expect("its map").limited
    }
}
