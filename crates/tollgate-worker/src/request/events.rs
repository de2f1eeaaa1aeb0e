//! Log lines: one for each rule that denies, would deny or fails, and for each token that is
//! rejected, as `tollgate_service::log` samples them.
//!
//! Invariant: the only data of the client in a line is the hash of its partition key, and that only
//! with the secret `HASH_KEY`: without it the hash could be guessed. Deliberately absent: failures
//! of calls, which `tally` reports.

use tollgate_policy::{Outcome, Policy};
use tollgate_service::log::Kind;
use tollgate_service::metrics::Event;
use tollgate_service::{NotableResult, Unauthorized, notable_results};

use crate::counts::objects::Objects;
use crate::runtime::js;

/// Logs the notable events of one decided request.
pub(crate) fn log(objects: &Objects, policy: &Policy, outcome: &Outcome<'_>) {
    let Ok(mut sampler) = objects.sampler.try_borrow_mut() else { return };
    if !sampler.is_on() {
        return;
    }
    let now_ms = js::now().since(tollgate_core::Timestamp::ZERO).as_millis_ceil();
    for NotableResult { mut line, partition } in notable_results(policy, *outcome) {
        match sampler.take(line.event, now_ms) {
            None => objects.counters.add(Event::LogDropped),
            Some(dropped) => {
                line.dropped = dropped;
                if !objects.hash_key.is_empty() {
                    line.pk = partition.and_then(|i| outcome.partition_key_hash(i));
                }
                js::event(&line.to_json());
            }
        }
    }
}

/// Counts and logs a request that was rejected because of its token.
pub(crate) fn note_token(objects: &Objects, refused: Option<Unauthorized>) {
    let Some(refused) = refused else { return };
    objects.counters.add(refused.event());
    let Ok(mut sampler) = objects.sampler.try_borrow_mut() else { return };
    match sampler.take(Kind::Unauthorized, js::now_ms()) {
        Some(dropped) => js::event(&refused.line(dropped)),
        None if sampler.is_on() => objects.counters.add(Event::LogDropped),
        None => {}
    }
}
