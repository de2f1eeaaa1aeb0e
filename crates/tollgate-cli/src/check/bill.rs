//! The cost in the Worker of a million requests under one policy, from the best case to the worst.
//!
//! Invariant: everything is counted from the compiled policy, for a request that every rule applies
//! to; prices are those of `tollgate_report`. `tests/e2e/worker_cost.rs` counts the calls and
//! writes of the real Worker for such requests; both must be equal.

use std::collections::BTreeSet;

use serde::Serialize;
use tollgate_policy::{Group, Policy, Rule};
use tollgate_report::bill::{
    ACTIVE_US_PER_CALL, CPU_US_PER_CALL, CPU_US_PER_REQUEST, PRICES_READ_ON, ROWS_OF_A_NEW_KEY,
    Usage,
};

const MILLION: u64 = 1_000_000;

/// How long relaxed counts wait before they are written, while the object stays awake.
const SAVE_AFTER_MS: u64 = 50;

/// For a key with a thousand requests per second: requests per write of relaxed counts.
const BUSY_IN_ONE_WRITE: u64 = 50;

/// For a key with a thousand requests per second over eight shards: requests of a shard per request
/// to the key's own object, which writes a row for it
/// (`worker_shards::a_busy_key_is_spared_by_its_shards` prints the number: 308 and 329 of 12,000).
const BUSY_IN_ONE_QUESTION: u64 = 36;

/// The bill for a million requests. Documented in docs/policy/command-line.md.
#[derive(Debug, Serialize)]
pub(super) struct Bill {
    pub(super) prices_read_on: &'static str,
    pub(super) cases: Vec<Case>,
}

/// One kind of traffic: counts and money are per million requests.
#[derive(Debug, Serialize)]
pub(super) struct Case {
    pub(super) what: &'static str,
    pub(super) object_calls: u64,
    pub(super) rows_written: u64,
    pub(super) alarms: u64,
    pub(super) micro_dollars: u64,
}

impl Case {
    /// `1 object call and 1 row written each`.
    pub(super) fn words(&self) -> String {
        let each = |count: u64, one: &str, several: &str| match count {
            0 => format!("no {one}"),
            MILLION => format!("1 {one}"),
            _ => format!("{} {several}", per_request(count)),
        };
        let calls = each(self.object_calls, "object call", "object calls");
        let rows = each(self.rows_written, "row written", "rows written");
        match self.alarms {
            0 => format!("{calls}, {rows} each"),
            alarms => format!("{calls}, {rows}, {} each", each(alarms, "alarm", "alarms")),
        }
    }
}

/// A count per million requests as a count per request: to a hundredth, rounded up.
fn per_request(count: u64) -> String {
    let hundredths = count.div_ceil(MILLION.div_euclid(100));
    let text = format!("{}.{:02}", hundredths.div_euclid(100), hundredths.rem_euclid(100));
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// The number of keys per request, and how their counts are written.
struct Keys {
    strict: u64,
    relaxed: u64,
    /// How many of them are spread over shards. The units that a shard requests are durable at
    /// once.
    sharded: u64,
    /// How many of them the response charges, or settles, in a second call.
    settled: u64,
    /// How many of them count the request while it is in flight, until a second call.
    in_flight: u64,
    /// No request may wait, so the first and the last key are charged without a look before.
    in_order: bool,
}

impl Keys {
    fn of(policy: &Policy) -> Self {
        let used = |(i, group): &(usize, &Group)| {
            group.value_len() > 0 && policy.rules().iter().any(|rule| rule.group() == *i)
        };
        let groups = policy.groups().iter().enumerate().filter(used);
        let writes_at_once = |group: &Group| group.is_strict() || group.shards().is_some();
        let groups: Vec<_> = groups.map(|(_, group)| group).collect();
        let is_settled = |rule: &Rule| rule.charges_by_response() || rule.settled_cost().is_some();
        let groups_of = |is_one: &dyn Fn(&Rule) -> bool| {
            let of_rules = policy.rules().iter().filter(|rule| is_one(rule)).map(Rule::group);
            u64::try_from(of_rules.collect::<BTreeSet<usize>>().len()).unwrap_or(u64::MAX)
        };
        let count = |is_one: &dyn Fn(&Group) -> bool| {
            let count = groups.iter().filter(|group| is_one(group)).count();
            u64::try_from(count).unwrap_or(u64::MAX)
        };
        Self {
            strict: count(&writes_at_once),
            relaxed: count(&|group| !writes_at_once(group)),
            sharded: count(&|group| group.shards().is_some()),
            settled: groups_of(&is_settled),
            in_flight: groups_of(&Rule::limits_requests_in_flight),
            in_order: policy.explain().never_waits(),
        }
    }

    const fn all(&self) -> u64 {
        self.strict.saturating_add(self.relaxed)
    }

    /// Object calls of an allowed request: each of several keys is looked at and charged, except
    /// the first and the last.
    const fn calls_if_admitted(&self) -> u64 {
        match self.all() {
            0 | 1 => self.all(),
            several if self.in_order => several.saturating_mul(2).saturating_sub(2),
            several => several.saturating_mul(2),
        }
    }
}

/// Calculates the bill of `policy`.
pub(super) fn bill(policy: &Policy) -> Bill {
    let keys = Keys::of(policy);
    let mut cases = Vec::new();
    let calls = keys.calls_if_admitted().saturating_mul(MILLION);
    let rows = keys.all().saturating_mul(MILLION);
    let relaxed = keys.relaxed.saturating_mul(MILLION);
    let sharded = keys.sharded.saturating_mul(MILLION);
    if keys.relaxed > 0 || keys.sharded > 0 {
        let written = relaxed.div_ceil(BUSY_IN_ONE_WRITE);
        let asked = sharded.div_ceil(BUSY_IN_ONE_QUESTION);
        let each = keys.strict.saturating_mul(MILLION).saturating_sub(sharded);
        let rows = each.saturating_add(written).saturating_add(asked);
        let calls = calls.saturating_add(asked);
        cases.push(case("allowed, 1,000 per second for each key", calls, rows, 0, written));
    }
    let settled = keys.settled.saturating_mul(MILLION);
    if settled > 0 {
        let (calls, rows) = (calls.saturating_add(settled), rows.saturating_add(settled));
        cases.push(case("allowed, charged or settled by the response", calls, rows, 0, relaxed));
    }
    let ended = keys.in_flight.saturating_mul(MILLION);
    if ended > 0 {
        let (calls, rows) = (calls.saturating_add(ended), rows.saturating_add(ended));
        cases.push(case("allowed, in flight until it ends", calls, rows, 0, relaxed));
    }
    // A shard with few requests sends each of them to the key's own object.
    let calls = calls.saturating_add(sharded);
    cases.push(case("allowed, keys in use", calls, rows, 0, relaxed));
    if keys.all() > 0 {
        // The entry of a tenant costs no call when it is read together with a count of the tenant
        // alone.
        let tenants = policy.tenants();
        let is_beside =
            tenants.is_some_and(|it| it.identity() != 0) && policy.explain().never_waits();
        let tenants = if tenants.is_some() && !is_beside { MILLION } else { 0 };
        let first = rows.saturating_mul(ROWS_OF_A_NEW_KEY);
        let calls = calls.saturating_add(tenants);
        cases.push(case("allowed, all keys new", calls, first, rows, relaxed));
    }
    if policy.deny_rules().iter().any(|rule| rule.is_enforced) {
        cases.push(case("denied by a rule with \"deny\"", 0, 0, 0, 0));
    }
    if policy.rules().iter().any(Rule::refuses) {
        cases.push(case("denied from memory", 0, 0, 0, 0));
        // Denied by the key's own object: a request to one other shard.
        let calls = rows.saturating_add(sharded.saturating_mul(2));
        cases.push(case("denied, not remembered", calls, 0, 0, 0));
    }
    Bill { prices_read_on: PRICES_READ_ON, cases }
}

/// `saves`: how many writes of relaxed counts keep their object awake before they are done.
fn case(what: &'static str, calls: u64, rows: u64, alarms: u64, saves: u64) -> Case {
    let woken = calls.saturating_add(alarms);
    let cpu_us = CPU_US_PER_REQUEST
        .saturating_mul(MILLION)
        .saturating_add(CPU_US_PER_CALL.saturating_mul(woken));
    let active_ms = ACTIVE_US_PER_CALL
        .saturating_mul(woken)
        .div_ceil(1000)
        .saturating_add(SAVE_AFTER_MS.saturating_mul(saves));
    let usage = Usage {
        requests: MILLION,
        cpu_us,
        calls,
        alarms,
        rows_written: rows,
        rows_read: 0,
        active_ms,
    };
    let micro_dollars = usage.micro_dollars();
    Case { what, object_calls: calls, rows_written: rows, alarms, micro_dollars }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_policy::Surface;

    fn counts(document: &str) -> Vec<(&'static str, u64, u64, u64)> {
        let policy = tollgate_language::compile(document, Surface::Worker).expect("a policy");
        let cases = bill(&policy).cases.into_iter();
        cases.map(|c| (c.what, c.object_calls, c.rows_written, c.alarms)).collect()
    }

    #[test]
    fn each_key_is_a_call_and_a_row_and_several_are_looked_at_first() {
        let one = r#"{"version":1,"rules":[
            {"name":"a","key":["client_ip"],"quotas":[{"limit":1,"window":"1m"}]},
            {"name":"b","key":["client_ip"],"quotas":[{"limit":9,"window":"1h"}]}]}"#;
        assert_eq!(
            counts(one),
            [
                ("allowed, keys in use", MILLION, MILLION, 0),
                ("allowed, all keys new", MILLION, ROWS_OF_A_NEW_KEY * MILLION, MILLION),
                ("denied from memory", 0, 0, 0),
                ("denied, not remembered", MILLION, 0, 0),
            ]
        );
        let two = r#"{"version":1,"rules":[
            {"name":"a","key":["client_ip"],"durability":"relaxed","quotas":[{"limit":1,"window":"1m"}]},
            {"name":"b","key":["host"],"mode":"shadow","quotas":[{"limit":9,"window":"1h"}]}]}"#;
        assert_eq!(
            counts(two)[..2],
            [
                ("allowed, 1,000 per second for each key", 2 * MILLION, MILLION + 20_000, 0),
                ("allowed, keys in use", 2 * MILLION, 2 * MILLION, 0),
            ]
        );
        // A place in a queue cannot be given back unchanged, so all keys are looked at first.
        let queue = two.replace(r#""limit":1,"#, r#""algorithm":"leaky-queue","limit":1,"#);
        assert_eq!(counts(&queue)[1].1, 4 * MILLION);
        let third = r#"{"name":"c","key":[],"quotas":[{"limit":9,"window":"1h"}]},{"name":"b""#;
        assert_eq!(counts(&two.replacen(r#"{"name":"b""#, third, 1))[1].1, 4 * MILLION);
        // The entry of a tenant costs a separate call where no count belongs to the tenant alone.
        for (key, calls) in [(r#""host""#, MILLION), (r#""client_ip""#, 2 * MILLION)] {
            let tenants = format!(
                r#"{{"version":1,"tenant":"host","rules":[
                {{"name":"a","key":[{key}],"quotas":[{{"limit":1,"window":"1m"}}]}}]}}"#
            );
            assert_eq!(counts(&tenants)[1].1, calls, "{key}");
        }
    }

    #[test]
    fn each_key_that_a_response_settles_is_another_call_and_row() {
        let settled = r#"{"version":1,"rules":[
            {"name":"a","key":["client_ip"],"quotas":[{"limit":9,"window":"1m"}],
             "cost":{"estimate":1,"max":9,"actual":{"header":"x-cost"}}},
            {"name":"b","key":["client_ip"],"charge":{"response_status":["5xx"]},"quotas":[{"limit":9,"window":"1h"}]}]}"#;
        let name = "allowed, charged or settled by the response";
        assert_eq!(counts(settled)[0], (name, 2 * MILLION, 2 * MILLION, 0));
        let by_host = settled.replacen(
            r#"{"name":"b","key":["client_ip"]"#,
            r#"{"name":"b","key":["host"]"#,
            1,
        );
        let (_, calls, rows, _) = counts(&by_host)[1];
        let (_, calls_before, rows_before, _) = counts(&by_host)[0];
        assert_eq!((calls_before - calls, rows_before - rows), (2 * MILLION, 2 * MILLION));
    }

    #[test]
    fn what_never_refuses_has_no_price_for_refusals_and_no_rules_cost_no_call() {
        let watch = r#"{"version":1,"rules":[{"name":"a","key":["client_ip"],"mode":"shadow",
            "quotas":[{"limit":1,"window":"1m"}]}]}"#;
        assert!(counts(watch).iter().all(|(what, ..)| what.starts_with("allowed")));
        assert_eq!(counts(r#"{"version":1,"rules":[]}"#), [("allowed, keys in use", 0, 0, 0)]);
    }

    #[test]
    fn counts_of_a_request_are_rounded_up() {
        for (count, text) in [(1, "0.01"), (20_000, "0.02"), (1_020_000, "1.02"), (4_000_000, "4")]
        {
            assert_eq!(per_request(count), text);
        }
    }
}
