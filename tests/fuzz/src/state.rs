//! Any bytes that a store or a peer might return: stored states, stored values, the input of
//! `counts`, and the input of `succession`.
//!
//! The first byte of a corpus file selects one of these for the rest. Invariant checked, for any
//! bytes: no key gets more than a full quota at one instant; a look returns the same result as a
//! check; a denial changes no byte, and is over within two bursts or windows and the skew, and
//! exactly at its stated time unless the state is a ring that contradicts itself; an idle state
//! decides like an empty one; a changed quota refunds nothing.

use arbitrary::{Result, Unstructured};
use tollgate_core::{
    ALLOWED_SKEW, Algorithm, Charge, Decision, LATEST, Limiter, Quota, Span, Timestamp,
};
use tollgate_policy::{Disposition, Plan, Policy, Surface};

use super::counts;
use super::policy::shown;
use super::request::Request;
use super::succession;

/// Every algorithm twice: as a rule of its own and as a tier, all counted by one key. None allows
/// more than 10 units at once.
const POLICY: &str = r#"{"version": 1, "rules": [
    {"name": "layers", "key": [], "quotas": [
        {"name": "gcra", "limit": 10, "window": "1m"},
        {"name": "tokens", "limit": 20, "window": "1m", "burst": 12, "algorithm": "token-bucket"},
        {"name": "leak", "limit": 20, "window": "1m", "burst": 12, "algorithm": "leaky-bucket", "strict": true},
        {"name": "fixed", "limit": 30, "window": "7s", "algorithm": "fixed-window"},
        {"name": "sliding", "limit": 11, "window": "1h", "algorithm": "sliding-window"},
        {"name": "parts", "limit": 15, "window": "1m", "algorithm": "sliding-buckets", "buckets": 6},
        {"name": "log", "limit": 14, "window": "1m", "algorithm": "sliding-log"}]},
    {"name": "queue", "when": {"methods": ["PUT"]}, "key": [], "action": {"delay": {"max": "5m"}},
     "quotas": [{"limit": 60, "window": "1m", "burst": 10, "algorithm": "leaky-queue"}]},
    {"name": "tiers", "when": {"headers": {"x-gold": "*"}}, "key": [], "charge": {"response_status": ["5xx"], "reserve": true, "on_abort": "skip"},
     "quotas": [{"limit": 5, "window": "1s"}],
     "tiers": [{"name": "gold", "when": {"headers": {"x-gold": "1"}}, "quotas": [{"limit": 50, "window": "1s", "algorithm": "sliding-window"}]}]}]}"#;
/// The other budgets, counted by one key: penalties, calendars, requests in flight, limits from
/// requests, and costs that the response settles. None allows more than 10 units at once.
const BUDGETS: &str = r#"{"version": 1, "rules": [
    {"name": "penalties", "key": [], "quotas": [
        {"name": "gcra", "limit": 10, "window": "1m", "penalty": ["1m", "10m", "1h"]},
        {"name": "month", "limit": 10, "window": "1mo", "algorithm": "fixed-window", "align": "calendar", "anchor_day": 31, "utc_offset": "-03:30", "penalty": "1d"},
        {"name": "log", "limit": 14, "window": "1m", "algorithm": "sliding-log", "penalty": "5s"}],
     "concurrency": {"limit": 10, "max_age": "60s"}},
    {"name": "limits", "key": [], "quotas": [
        {"name": "week", "limit": 5, "window": "1w", "algorithm": "fixed-window", "align": "calendar", "limit_from": {"header": "x-gold", "max": 10}},
        {"name": "parts", "limit": 0, "window": "1m", "algorithm": "sliding-buckets", "limit_from": {"header": "x-gold", "max": 10}}],
     "when": {"headers": {"x-gold": "*"}}},
    {"name": "settled", "key": [], "cost": {"estimate": 2, "max": 9, "actual": {"header": "x-tokens"}, "forgive_excess": true},
     "quotas": [{"name": "tokens", "limit": 20, "window": "1m", "algorithm": "token-bucket", "penalty": "1s"},
        {"name": "day", "limit": 20, "window": "1d", "algorithm": "fixed-window", "align": "calendar"}],
     "concurrency": {"limit": 20, "max_age": "5s"}}]}"#;
/// Bytes before the states of a rule or tier in a stored value.
const RECORD_HEADER: usize = 8;
const MOST_AT_ONCE: usize = 10;
const REQUESTS: [&[u8]; 4] =
    [b"GET / 192.0.2.1", b"PUT / 192.0.2.1", b"GET /\nx-gold: 1", b"PUT /\nx-gold: 2"];

/// A directory, and a value with it.
const SUCCESSION: u8 = 0xff;
/// A value that has few of many records.
const SPARSE: u8 = 0xfe;
/// A value of the other budgets.
const BUDGET: u8 = 0xfd;

/// Reads the bytes as the kind that the first of them selects.
pub fn check(bytes: &[u8]) {
    let Some((kind, bytes)) = bytes.split_first() else { return };
    match kind % 4 {
        _ if *kind == SUCCESSION => succession::check(policy(), bytes, MOST_AT_ONCE),
        _ if *kind == SPARSE => {
            stored_value(sparse_policy(), Unstructured::new(bytes)).unwrap_or_default();
        }
        _ if *kind == BUDGET => {
            stored_value(budgets(), Unstructured::new(bytes)).unwrap_or_default();
        }
        // Missing bytes are read as zeros, so that this always ends normally.
        0 => limiter(Unstructured::new(bytes)).unwrap_or_default(),
        1 => stored_value(policy(), Unstructured::new(bytes)).unwrap_or_default(),
        2 => counts::asked(policy(), bytes),
        _ => {
            let (kind, reply) = bytes.split_first().unwrap_or((&0, bytes));
            let request = Request::read(REQUESTS[usize::from(*kind) % REQUESTS.len()]);
            counts::replied(policy(), &request, reply);
        }
    }
}

/// From this value on an operation changes the quota; the meaning of all lower values is the same
/// as before there were changes.
const CHANGE: u8 = 0xe0;

/// Any limiter on any bytes, at any times, and others that replace it.
fn limiter(mut input: Unstructured<'_>) -> Result<()> {
    let Some(mut limiter) = any_limiter(&mut input)? else { return Ok(()) };
    let mut now = any_time(&mut input)?;
    let steps = input.int_in_range(1..=24)?;
    let mut ops = Vec::new();
    for _ in 0..steps {
        let op = input.arbitrary::<u8>()?;
        let (cost, other) = (any_cost(&mut input, &limiter)?, any_time(&mut input)?);
        let next = if op >= CHANGE { any_limiter(&mut input)? } else { None };
        ops.push((op, cost, other, next));
    }
    let mut state = vec![0; limiter.state_len()];
    let kind: u8 = input.arbitrary()?;
    let is_own = kind & 1 == 1;
    let given = if is_own { &[] } else { input.take_rest() };
    let mut is_exact = fill(&limiter, given, kind & 2 == 2, &mut state) || is_own;
    let mut at_once = 0_u64;
    for (op, cost, other, next) in ops {
        match (op % 8, next) {
            (_, Some(next)) => {
                // A forged ring may be kept.
                is_exact |= !is_ring(&next);
                state = changed(&limiter, &state, &next, now, is_exact);
                (limiter, at_once) = (next, 0);
            }
            (0, _) => (now, at_once) = (other, 0),
            (1, _) => {
                (now, at_once) = (now.saturating_add(limiter.window().as_nanos() / 7), 0);
            }
            (2, _) => {
                let charge = Charge { at: at(other), cost, delay: Span::from_nanos(other / 3) };
                limiter.refund(&mut state, charge, at(now));
                at_once = 0;
            }
            _ => {
                let units = step(&limiter, &mut state, now, cost, is_exact);
                at_once = at_once.saturating_add(units);
            }
        }
        assert!(at_once <= limiter.capacity(), "{at_once} at once by {limiter:?}");
    }
    forgotten(&limiter, &state, now);
    Ok(())
}

/// The state under the limiter that replaces the old one: it then allows at most its capacity less
/// the used amount, and no key waits longer than the new limiter's longest wait.
fn changed(old: &Limiter, state: &[u8], new: &Limiter, now: u64, is_exact: bool) -> Vec<u8> {
    let mut next = vec![0xff; new.state_len()];
    new.carry(old, state, at(now), &mut next);
    let remaining = |limiter: &Limiter, state| limiter.peek(state, at(now), 0).remaining;
    let used = old.capacity() - remaining(old, state);
    let room = new.capacity().saturating_sub(used);
    let left = remaining(new, &next);
    assert!(
        left <= room || !is_exact,
        "{left} left of {room} by {new:?} after {old:?} on {state:?}"
    );
    assert!(old != new || next == state, "{old:?} changed {state:?}");
    forgotten(new, &next, now);
    next
}

fn is_ring(limiter: &Limiter) -> bool {
    matches!(limiter.algorithm(), Algorithm::SlidingBuckets { .. } | Algorithm::SlidingLog)
}

/// Any bytes as a state; true when its times and numbers are exact. A forged log is in no order,
/// and forged buckets have a sum and an oldest part that disagree with their counters: both respect
/// the quota, but detecting this would cost every decision a walk around the ring. `as_counters`
/// gives the buckets any counters, with the correct sum.
fn fill(limiter: &Limiter, given: &[u8], as_counters: bool, state: &mut [u8]) -> bool {
    let repeat = |bytes: &mut [u8]| {
        bytes.iter_mut().zip(given.iter().cycle()).for_each(|(byte, any)| *byte = *any);
    };
    match limiter.algorithm() {
        Algorithm::SlidingBuckets { .. } if as_counters => {
            let mut counters = vec![0; limiter.state_len_in(1).expect("the first layout")];
            repeat(&mut counters);
            limiter.convert(1, &counters, state)
        }
        _ => {
            repeat(state);
            !is_ring(limiter)
        }
    }
}

/// One check, and every law about its result; returns the allowed units.
fn step(limiter: &Limiter, state: &mut [u8], now: u64, cost: u64, is_exact: bool) -> u64 {
    let before = state.to_vec();
    let looked = limiter.peek(state, at(now), cost);
    assert_eq!(state, before, "a look changed {limiter:?}");
    let decision = limiter.check(state, at(now), cost);
    assert_eq!(looked, decision, "{limiter:?}");
    assert!(decision.remaining <= limiter.capacity(), "{decision:?} by {limiter:?}");
    if cost == 0 || !decision.is_admitted() {
        assert_eq!(state, before, "charged for nothing by {limiter:?}");
    }
    if is_exact {
        exact(limiter, state, now, cost, &decision);
    }
    if decision.is_admitted() { cost } else { 0 }
}

/// The remaining units are allowed and not one more; a denied cost is allowed after the wait and
/// not earlier.
fn exact(limiter: &Limiter, state: &[u8], now: u64, cost: u64, decision: &Decision) {
    let admits = |at_ns, cost| limiter.peek(state, at(at_ns), cost).is_admitted();
    assert!(admits(now, decision.remaining), "{decision:?} at {now} by {limiter:?} on {state:?}");
    assert!(
        !admits(now, decision.remaining + 1),
        "{decision:?} at {now} by {limiter:?} on {state:?}"
    );
    let fits = cost <= limiter.capacity();
    assert_eq!(decision.retry_after.is_some(), fits && !decision.is_admitted(), "{limiter:?}");
    if let Some(wait) = decision.retry_after {
        let then = now.saturating_add(wait.as_nanos());
        if then < LATEST.as_nanos() {
            assert!(!admits(then - 1, cost), "early at {now} by {limiter:?} on {state:?}");
            assert!(admits(then, cost), "late at {now} by {limiter:?} on {state:?}");
        }
    }
}

/// From `idle_at` on, the state decides like an empty one; and no key is locked out: for any bytes,
/// a full quota is available again after two bursts or two windows and the allowed skew.
fn forgotten(limiter: &Limiter, state: &[u8], now: u64) {
    let quota = limiter.quota();
    let own_time = u128::from(quota.window().as_nanos()) * 2 * u128::from(quota.burst());
    let wait = limiter.peek(state, at(now), quota.burst()).retry_after.unwrap_or_default();
    let longest = own_time + u128::from(ALLOWED_SKEW.as_nanos());
    assert!(u128::from(wait.as_nanos()) <= longest, "{wait:?} by {limiter:?} on {state:?}");
    let fresh = vec![0; limiter.state_len()];
    let idle_at = limiter.idle_at(state).as_nanos();
    for now in [idle_at, idle_at.saturating_add(limiter.window().as_nanos() / 3)] {
        if now < LATEST.as_nanos() {
            for cost in [0, 1, limiter.capacity(), limiter.capacity() + 1] {
                let [kept, lost] = [state, &fresh].map(|s| limiter.peek(s, at(now), cost));
                assert_eq!(kept, lost, "at {now} by {limiter:?} on {state:?}");
            }
        }
    }
}

fn any_limiter(input: &mut Unstructured<'_>) -> Result<Option<Limiter>> {
    let algorithm = match input.int_in_range(0..=7)? {
        0 => Algorithm::Gcra,
        1 => Algorithm::TokenBucket,
        2 => Algorithm::LeakyBucket,
        3 => Algorithm::LeakyQueue,
        4 => Algorithm::FixedWindow,
        5 => Algorithm::SlidingWindow,
        6 => Algorithm::SlidingBuckets {
            buckets: input.int_in_range(0..=400)?,
            weighted: input.arbitrary()?,
        },
        _ => Algorithm::SlidingLog,
    };
    let is_small: bool = input.arbitrary()?;
    let limit = if is_small { input.int_in_range(1..=20)? } else { input.arbitrary()? };
    let window = if is_small {
        input.int_in_range(1_000_000..=60_000_000_000)?
    } else {
        input.arbitrary()?
    };
    let burst = if is_small { input.int_in_range(0..=24)? } else { input.arbitrary::<u64>()? };
    let quota = Quota::new(limit, Span::from_nanos(window));
    let quota = quota.and_then(|q| if burst == 0 { Ok(q) } else { q.with_burst(burst) });
    let strict: bool = input.arbitrary()?;
    let quota = quota.map(|quota| if strict { quota.strict() } else { quota });
    Ok(quota.and_then(|quota| Limiter::new(algorithm, quota)).ok())
}

fn any_time(input: &mut Unstructured<'_>) -> Result<u64> {
    Ok(match input.int_in_range(0..=4)? {
        0 => input.int_in_range(0..=120_000_000_000)?,
        1 => 1_780_000_000_000_000_000 + input.int_in_range(0..=120_000_000_000)?,
        2 => LATEST.as_nanos() - 3 + input.int_in_range(0..=6)?,
        _ => input.arbitrary()?,
    })
}

fn any_cost(input: &mut Unstructured<'_>, limiter: &Limiter) -> Result<u64> {
    Ok(match input.int_in_range(0..=5)? {
        0 => input.arbitrary()?,
        1 => limiter.capacity(),
        2 => input.int_in_range(0..=20)?,
        _ => 1,
    })
}

const fn at(nanos: u64) -> Timestamp {
    Timestamp::from_nanos(nanos)
}

fn policy() -> &'static Policy {
    thread_local! {
        static COMPILED: &'static Policy = {
            let policy = tollgate_language::compile(POLICY, Surface::Worker).expect("a policy");
            Box::leak(Box::new(policy)) // once per thread
        };
    }
    COMPILED.with(|policy| *policy)
}

fn budgets() -> &'static Policy {
    thread_local! {
        static COMPILED: &'static Policy = {
            let policy = tollgate_language::compile(BUDGETS, Surface::Worker).expect("a policy");
            Box::leak(Box::new(policy)) // once per thread
        };
    }
    COMPILED.with(|policy| *policy)
}

/// The same rules among many others, so that a value has only the records that were charged.
fn sparse_policy() -> &'static Policy {
    thread_local! {
        static COMPILED: &'static Policy = {
            let other = |i: u32| format!(
                r#", {{"name": "other {i}", "when": {{"paths": ["/{i}"]}}, "key": [],
                "quotas": [{{"limit": 10, "window": "1h"}}]}}]}}"#
            );
            let text = (0..40).fold(POLICY.to_owned(), |text, i| text[..text.len() - 2].to_owned() + &other(i));
            let policy = tollgate_language::compile(&text, Surface::Worker).expect("a policy");
            assert!(policy.groups()[0].is_sparse());
            Box::leak(Box::new(policy)) // once per thread
        };
    }
    COMPILED.with(|policy| *policy)
}

/// The value to which all of [`REQUESTS`] are charged.
fn charged(policy: &Policy) -> Vec<u8> {
    let (mut plan, mut stored) = (Plan::new(), Vec::new());
    for request in REQUESTS {
        policy.plan(&Request::read(request), &mut plan);
        plan.partition_mut(0).unwrap().load(policy, Some(&stored));
        plan.decide(policy, at(1_780_000_000_000_000_000));
        stored = plan.partition(0).unwrap().value().to_vec();
    }
    stored
}

/// Any bytes as the stored value of a key.
fn stored_value(policy: &Policy, mut input: Unstructured<'_>) -> Result<()> {
    let request = Request::read(REQUESTS[input.int_in_range(0..=REQUESTS.len() - 1)?]);
    let now = at(any_time(&mut input)?);
    let keeps_headers: bool = input.arbitrary()?;
    let mut plan = Plan::new();
    policy.plan(&request, &mut plan);
    plan.partition_mut(0).unwrap().load(policy, None);
    let fresh = plan.partition(0).unwrap().value().to_vec();
    let given = input.take_rest();
    let mut stored = given.to_vec();
    if keeps_headers {
        // The states are any bytes, the records' headers are correct.
        stored = charged(policy);
        let mut rest = &mut stored[..];
        while let [_, _, _, _, len @ ..] = &*rest {
            let len = u32::from_le_bytes(*len.first_chunk().expect("a whole header"));
            let (record, others) = rest.split_at_mut(RECORD_HEADER + usize::try_from(len).unwrap());
            let states = record[RECORD_HEADER..].iter_mut();
            states.zip(given.iter().cycle()).for_each(|(b, r)| *b = *r);
            rest = others;
        }
    }
    let mut admitted = 0;
    for _ in 0..2 * MOST_AT_ONCE {
        policy.plan(&request, &mut plan);
        plan.partition_mut(0).unwrap().load(policy, Some(&stored));
        let loaded = plan.partition(0).unwrap().value().to_vec();
        let group = &policy.groups()[0];
        assert!(loaded.len() == group.value_len() || group.is_sparse());
        assert!(loaded.len() <= group.value_len());
        plan.decide(policy, now);
        shown(policy, &plan);
        match plan.outcome(policy).disposition() {
            Disposition::Allow | Disposition::Delay(_) => admitted += 1,
            Disposition::Retry(_) | Disposition::Deny { .. } => {
                let partition = plan.partition(0).unwrap();
                // A sparse value may have lost idle records, and a denial may start a penalty.
                let is_same = partition.value() == loaded || partition.is_only_punished();
                assert!(is_same || group.is_sparse());
            }
        }
        stored = plan.partition(0).unwrap().value().to_vec();
    }
    assert!(admitted <= MOST_AT_ONCE, "{admitted} at once");
    let idle_at = policy.groups()[0].idle_at(policy, &stored);
    if idle_at < LATEST {
        let decided = |bytes: &[u8]| {
            let mut plan = Plan::new();
            policy.plan(&request, &mut plan);
            plan.partition_mut(0).unwrap().load(policy, Some(bytes));
            plan.decide(policy, idle_at);
            format!("{:?}", plan.outcome(policy).verdicts())
        };
        assert_eq!(decided(&stored), decided(&fresh), "idle, but not like never seen");
    }
    Ok(())
}
