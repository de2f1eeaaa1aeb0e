//! A limiter as bytes, next to its states and in compiled policies.
//!
//! Invariant: any bytes are accepted: the result is a limiter or `None`, and only the bytes that
//! are written for a limiter are read as it.
//!
//! All numbers are little-endian: algorithm `u8` (its place in [`Algorithm::ALL`], from 1), flags
//! `u8` (1 strict, 2 weighted, 4 holds, 8 by a calendar, 16 with a penalty, 32 for requests in
//! flight, whose window is `max_age` and whose burst is the limit), buckets `u16` (0 where
//! the window is not counted in parts), limit `u64`, window in nanoseconds `u64`, burst `u64`. By a
//! calendar the last eight bytes are [it](Calendar::to_bytes) and four zeros: there is no burst.
//! A [closed](Limiter::closed) one is a fixed window with limit and burst 0.
//! With a penalty its steps follow in seconds, six `u32`, 0 after the last one.

use alloc::vec::Vec;

use tollgate_core::{Algorithm, Calendar, Limiter, MAX_PENALTY_STEPS, Penalty, Quota, Span};

/// Bytes of a limiter without a penalty.
pub(crate) const LIMITER_LEN: usize = 28;
/// Bytes of the steps of a penalty.
pub(crate) const STEPS_LEN: usize = 4 * MAX_PENALTY_STEPS;

const STRICT: u8 = 1;
const WEIGHTED: u8 = 2;
const HOLDS: u8 = 4;
const BY_CALENDAR: u8 = 8;
const PENALTY: u8 = 16;
const IN_FLIGHT: u8 = 32;

/// True when the limiter at the front of `bytes` has a penalty, without reading it.
pub(crate) fn has_penalty(bytes: &[u8]) -> Option<bool> {
    bytes.get(1).map(|flags| flags & PENALTY != 0)
}

/// Appends the 28 bytes, 52 with a penalty, that [`read_limiter`] reads.
pub fn write_limiter(limiter: &Limiter, out: &mut Vec<u8>) {
    let (quota, algorithm) = (limiter.quota(), limiter.algorithm());
    let strict = if quota.is_strict() { STRICT } else { 0 };
    let weighted = if algorithm.is_weighted() { WEIGHTED } else { 0 };
    let holds = if limiter.keeps_holds() { HOLDS } else { 0 };
    let by_calendar = if limiter.calendar().is_some() { BY_CALENDAR } else { 0 };
    let penalty = if limiter.penalty().is_some() { PENALTY } else { 0 };
    let in_flight = if limiter.max_age().is_some() { IN_FLIGHT } else { 0 };
    let flags = strict | weighted | holds | by_calendar | penalty | in_flight;
    out.extend([number(algorithm), flags]);
    out.extend(algorithm.buckets().unwrap_or(0).to_le_bytes());
    out.extend(quota.limit().to_le_bytes());
    out.extend(quota.window().as_nanos().to_le_bytes());
    match limiter.calendar() {
        Some(calendar) => out.extend([calendar.to_bytes(), [0; 4]].as_flattened()),
        // The limit of one request is no parameter.
        None if !algorithm.has_burst() => out.extend(quota.limit().to_le_bytes()),
        None => out.extend(quota.burst().to_le_bytes()),
    }
    if let Some(penalty) = limiter.penalty() {
        let mut seconds = [0_u32; MAX_PENALTY_STEPS];
        for (slot, step) in seconds.iter_mut().zip(penalty.steps()) {
            *slot = u32::try_from(step.as_secs_floor()).unwrap_or(u32::MAX);
        }
        out.extend(seconds.map(u32::to_le_bytes).as_flattened());
    }
}

/// The algorithm's number in these bytes.
const fn number(algorithm: Algorithm) -> u8 {
    match algorithm {
        Algorithm::Gcra => 1,
        Algorithm::TokenBucket => 2,
        Algorithm::LeakyBucket => 3,
        Algorithm::LeakyQueue => 4,
        Algorithm::FixedWindow => 5,
        Algorithm::SlidingWindow => 6,
        Algorithm::SlidingBuckets { .. } => 7,
        Algorithm::SlidingLog => 8,
    }
}

/// The limiter at the front of `bytes`; `None` when they are not a limiter, or contain more than it
/// has.
pub fn read_limiter(bytes: &mut &[u8]) -> Option<Limiter> {
    let [algorithm, flags] = take(bytes)?;
    let limiter = read_method(algorithm, flags & !PENALTY, bytes)?;
    if flags & PENALTY == 0 { Some(limiter) } else { limiter.with_penalty(read_penalty(bytes)?) }
}

fn read_penalty(bytes: &mut &[u8]) -> Option<Penalty> {
    let seconds: [u8; STEPS_LEN] = take(bytes)?;
    let (seconds, _) = seconds.as_chunks::<4>();
    let steps = seconds.iter().map(|secs| Span::from_secs(u32::from_le_bytes(*secs).into()));
    let steps: Vec<Span> = steps.collect();
    let len = steps.iter().rposition(|step| *step > Span::ZERO)?.checked_add(1)?;
    Penalty::new(steps.get(..len)?).ok()
}

/// The limiter without its penalty, after the number of its algorithm and the flags.
fn read_method(algorithm: u8, flags: u8, bytes: &mut &[u8]) -> Option<Limiter> {
    let buckets = u16::from_le_bytes(take(bytes)?);
    let limit = u64::from_le_bytes(take(bytes)?);
    let window = Span::from_nanos(u64::from_le_bytes(take(bytes)?));
    let last: [u8; 8] = take(bytes)?;
    if flags == BY_CALENDAR {
        let is_whole = buckets == 0 && algorithm == number(Algorithm::FixedWindow);
        return read_calendar_window(limit, last).filter(|it| is_whole && it.window() == window);
    }
    let burst = u64::from_le_bytes(last);
    if flags == IN_FLIGHT {
        let is_whole =
            buckets == 0 && algorithm == number(Algorithm::FixedWindow) && burst == limit;
        return Limiter::new_concurrency(limit, window).ok().filter(|_| is_whole);
    }
    let algorithm = Algorithm::ALL.into_iter().find(|known| number(*known) == algorithm)?;
    let algorithm = algorithm.with_buckets(buckets);
    let algorithm = if flags & WEIGHTED == 0 { algorithm } else { algorithm.weighted() };
    let says_more = algorithm.buckets().unwrap_or(0) != buckets
        || algorithm.is_weighted() != (flags & WEIGHTED != 0)
        || flags & !(STRICT | WEIGHTED | HOLDS) != 0;
    if says_more {
        return None;
    }
    if limit == 0 {
        let is_whole = algorithm == Algorithm::FixedWindow && flags == 0 && burst == 0;
        return Limiter::closed(window).ok().filter(|_| is_whole);
    }
    let quota = Quota::new(limit, window).ok()?;
    // A burst equal to the limit is the default, whatever time it takes to refill.
    let quota = if burst == limit { quota } else { quota.with_burst(burst).ok()? };
    let quota = if flags & STRICT == 0 { quota } else { quota.strict() };
    let limiter = Limiter::new(algorithm, quota).ok()?;
    if flags & HOLDS == 0 {
        return Some(limiter);
    }
    limiter.with_holds().filter(Limiter::keeps_holds)
}

fn read_calendar_window(limit: u64, bytes: [u8; 8]) -> Option<Limiter> {
    let [unit, day, low, high, 0, 0, 0, 0] = bytes else { return None };
    let calendar = Calendar::from_bytes([unit, day, low, high])?;
    Limiter::new_calendar_window(limit, calendar).ok()
}

pub(crate) fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*taken)
}
