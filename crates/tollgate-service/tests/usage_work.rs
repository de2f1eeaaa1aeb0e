//! The report of a calendar's periods over a store of rows: against an exact log of random charges,
//! settlements and refunds over months in virtual time; and its names, bounds and formats.

use std::collections::BTreeMap;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use serde_json::{Value, json};
use tollgate_core::{ALLOWED_SKEW, Calendar, CalendarTime, CalendarUnit, Timestamp, Weekday};
use tollgate_language::DescribedRequest;
use tollgate_policy::{Plan, Policy, Surface, Tenant};
use tollgate_service::key_work::OperatorRequest;
use tollgate_service::{StoreReply, UsageCall, UsageFormat, UsageReply, usage_work};
use tollgate_storage::{Counts, Settlement};
use tollgate_test_support::Random;

const MINUTE: u64 = 60_000;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;
/// 2026-11-30 22:00 UTC, when December begins at +02:00.
const DECEMBER: u64 = 1_796_076_000_000;

fn compile(document: &str) -> Policy {
    tollgate_language::compile(document, Surface::Worker).unwrap_or_else(|e| panic!("{e}"))
}

const QUOTAS: &str = r#"[
    {"name": "month", "limit": 900, "window": "1mo", "algorithm": "fixed-window", "align": "calendar", "anchor_day": 15, "utc_offset": "+02:00"},
    {"name": "week", "limit": 400, "window": "1w", "algorithm": "fixed-window", "align": "calendar", "week_start": "sunday"},
    {"name": "minute", "limit": 300, "window": "1m"}]"#;

fn policy(quotas: &str) -> Policy {
    compile(&format!(
        r#"{{"version": 1, "rules": [{{"name": "plan", "key": [{{"header": "x-user"}}],
        "cost": {{"header": "x-cost", "max": 1000}}, "quotas": {quotas}}}]}}"#
    ))
}

/// The rows of a store that forgets each as soon as it may.
#[derive(Default)]
struct Rows(BTreeMap<Vec<u8>, (Vec<u8>, Timestamp)>);

impl Rows {
    /// The counts of a key.
    fn get(&self, key: &[u8], now: Timestamp) -> Counts {
        let row = self.0.get(key).filter(|(_, forgotten_at)| *forgotten_at > now);
        row.map_or_else(Counts::default, |(row, _)| Counts::decode(row).unwrap())
    }

    fn put(&mut self, key: &[u8], counts: &Counts, now: Timestamp) {
        let mut row = Vec::new();
        counts.encode(now, &mut row);
        let forgotten_at = counts.idle_at().saturating_add(ALLOWED_SKEW);
        self.0.insert(key.to_vec(), (row, forgotten_at));
    }
}

/// The report of these rows; it must not change them.
fn reported(
    policy: &Policy,
    rows: &Rows,
    call: &UsageCall,
    entry: &dyn Fn(&str) -> Option<String>,
    now: Timestamp,
) -> StoreReply {
    let count = |asked: OperatorRequest| {
        let mut counts = rows.get(asked.key.bytes(), now);
        let answered = counts.operate(&asked.request, now).unwrap();
        assert!(!answered.is_changed, "a report reads");
        core::future::ready(Ok(answered.reply))
    };
    let entry = |name: String| core::future::ready(Ok(entry(&name)));
    let done = pin!(usage_work::carry_out(policy, call, entry, count));
    let Poll::Ready(reply) = done.poll(&mut Context::from_waker(Waker::noop())) else {
        panic!("nothing is waited for")
    };
    reply
}

fn call(keys: &[&str], format: UsageFormat) -> UsageCall {
    let keys = keys.iter().map(ToString::to_string).collect();
    UsageCall { rule: "plan".into(), keys, tenant: None, format }
}

fn text(reply: StoreReply) -> String {
    let StoreReply::Usage(UsageReply::Report(text)) = reply else { panic!("{reply:?}") };
    text
}

fn report(policy: &Policy, rows: &Rows, keys: &[&str], now: u64) -> Value {
    let call = call(keys, UsageFormat::Json);
    let text = text(reported(policy, rows, &call, &|_| None, Timestamp::from_millis(now)));
    serde_json::from_str(&text).unwrap()
}

/// One allowed charge.
struct Charge {
    user: String,
    at: u64,
    cost: u64,
    key: Vec<u8>,
    request: Vec<u8>,
    reply: Vec<u8>,
    receipt: Vec<u8>,
}

/// Decides a request of this user and cost.
fn check(policy: &Policy, rows: &mut Rows, user: &str, cost: u64, at: u64) -> Option<Charge> {
    let described = json!({"method": "GET", "path": "/", "client_ip": "192.0.2.1",
        "headers": {"x-user": user, "x-cost": cost.to_string()}});
    let facts = DescribedRequest::parse(described.to_string().as_bytes()).unwrap();
    let (mut plan, now) = (Plan::new(), Timestamp::from_millis(at));
    policy.plan(&facts, &mut plan);
    let key = plan.partition(0).unwrap().key().to_vec();
    let (mut request, mut receipt) = (Vec::new(), Vec::new());
    plan.partition(0).unwrap().request(policy, &mut request);
    let mut counts = rows.get(&key, now);
    let answered = counts.answer(&request, now).unwrap();
    if answered.is_changed {
        rows.put(&key, &counts, now);
    }
    plan.partition_mut(0).unwrap().accept(policy, &answered.reply).unwrap();
    let is_charged = plan.partition(0).unwrap().write_receipt(policy, &mut receipt);
    let reply = answered.reply;
    is_charged.then(|| Charge { user: user.into(), at, cost, key, request, reply, receipt })
}

/// An exact log of the two calendars: units by user, quota and start of the period.
struct Log {
    calendars: [(Calendar, u64); 2],
    units: BTreeMap<(String, usize, Timestamp), u64>,
}

impl Log {
    fn new() -> Self {
        let month = Calendar::new(CalendarUnit::Month { anchor_day: 15 }, 120).unwrap();
        let week = Calendar::new(CalendarUnit::Week { start: Weekday::Sunday }, 0).unwrap();
        Self { calendars: [(month, 900), (week, 400)], units: BTreeMap::new() }
    }

    fn add(&mut self, user: &str, at: u64, units: u64) {
        for (i, (calendar, limit)) in self.calendars.iter().enumerate() {
            let start = calendar.span_of(Timestamp::from_millis(at)).start_at;
            let count = self.units.entry((user.into(), i, start)).or_default();
            *count = (*count + units).min((2 * limit).max(*count));
        }
    }

    fn take(&mut self, user: &str, at: u64, units: u64) {
        for (i, (calendar, _)) in self.calendars.iter().enumerate() {
            let start = calendar.span_of(Timestamp::from_millis(at)).start_at;
            let count = self.units.get_mut(&(user.into(), i, start)).expect("it was charged");
            *count = count.saturating_sub(units);
        }
    }

    /// The periods as a report shows them at `now`.
    fn quota(&self, user: &str, i: usize, now: u64) -> [Value; 2] {
        let (calendar, limit) = self.calendars[i];
        let current = calendar.span_of(Timestamp::from_millis(now));
        let before = current.start_at.saturating_sub(tollgate_core::Span::from_nanos(1));
        [current, calendar.span_of(before)].map(|span| {
            let used = self.units.get(&(user.to_owned(), i, span.start_at)).copied().unwrap_or(0);
            let [start, end] = [span.start_at, span.end_at].map(|at| calendar.time_of(at));
            let utc = [span.start_at, span.end_at].map(CalendarTime::utc);
            json!({"start": start.to_string(), "end": end.to_string(),
                "start_utc": utc[0].to_string(), "end_utc": utc[1].to_string(), "used": used,
                "remaining": limit.saturating_sub(used), "over_limit": used.saturating_sub(limit)})
        })
    }
}

/// Guards: an invoice that does not agree with what was counted, or that loses the last month of a
/// client that has not come back.
#[test]
fn a_report_equals_an_exact_log_over_months() {
    const USERS: [&str; 3] = ["ann", "bob", "=1+1"];
    for seed in 0..if cfg!(debug_assertions) { 6 } else { 60 } {
        let (policy, mut random) = (policy(QUOTAS), Random::new(seed));
        let (mut rows, mut log, mut now) = (Rows::default(), Log::new(), DECEMBER);
        let (mut settled, mut higher, mut refunded) = (0, 0, 0);
        while now < DECEMBER + 300 * DAY {
            now += match random.below(10) {
                0..4 => random.below(6 * HOUR),
                4..8 => random.below(3 * DAY),
                8 => random.below(45 * DAY),
                // Some minutes before a period ends.
                _ => {
                    let (calendar, _) = log.calendars[random.index(2)];
                    let end = calendar.span_of(Timestamp::from_millis(now)).end_at;
                    let end = end.since(Timestamp::ZERO).as_millis_ceil();
                    end.saturating_sub(now + random.below(9 * MINUTE))
                }
            };
            let user = *random.pick(&USERS);
            let cost = random.between(1, 120);
            if let Some(charge) = check(&policy, &mut rows, user, cost, now) {
                log.add(user, now, cost);
                now += random.below(9 * MINUTE);
                let (at, mut counts) = (
                    Timestamp::from_millis(now),
                    rows.get(&charge.key, Timestamp::from_millis(now)),
                );
                match random.below(3) {
                    0 => {
                        counts.refund(&charge.request, &charge.reply, at).unwrap();
                        log.take(&charge.user, charge.at, charge.cost);
                        refunded += 1;
                    }
                    1 => {
                        let used = random.below(300);
                        let id = random.below(u64::MAX);
                        let request = Settlement::request(id, used, &charge.receipt);
                        for _ in 0..2 {
                            counts.answer(&request, at).unwrap();
                        }
                        log.take(&charge.user, charge.at, charge.cost.saturating_sub(used));
                        log.add(&charge.user, now, used.saturating_sub(charge.cost));
                        settled += 1;
                        higher += u64::from(used > charge.cost);
                    }
                    _ => {}
                }
                rows.put(&charge.key, &counts, at);
            }
            let report = report(&policy, &rows, &USERS, now);
            assert_eq!((&report["rule"], &report["unit"]), (&json!("plan"), &json!(null)));
            for (user, reported) in USERS.iter().zip(report["keys"].as_array().unwrap()) {
                assert_eq!(reported["key"], json!([user]));
                let quotas = reported["quotas"].as_array().unwrap();
                assert_eq!(quotas.len(), 2, "the quota per minute has no periods");
                for (i, quota) in quotas.iter().enumerate() {
                    let found = [quota["current"].clone(), quota["previous"].clone()];
                    assert_eq!(found, log.quota(user, i, now), "seed {seed}, {user} at {now}");
                }
            }
        }
        assert!(settled > 5 && higher > 1 && refunded > 5, "{settled} {higher} {refunded}");
    }
}

#[test]
fn a_key_without_a_state_has_used_nothing_and_a_changed_limit_keeps_both_periods() {
    let mut rows = Rows::default();
    let before = policy(QUOTAS);
    let none = report(&before, &rows, &["ann"], DECEMBER);
    let month = &none["keys"][0]["quotas"][0];
    let expected = json!({"start": "2026-11-15T00:00:00+02:00", "end": "2026-12-15T00:00:00+02:00",
        "start_utc": "2026-11-14T22:00:00Z", "end_utc": "2026-12-14T22:00:00Z",
        "used": 0, "remaining": 900, "over_limit": 0});
    assert_eq!(month["current"], expected);
    assert_eq!(month["previous"]["start"], "2026-10-15T00:00:00+02:00");
    assert_eq!(none["keys"][0]["at"], "2026-11-30T22:00:00Z");
    let named = compile(&format!(
        r#"{{"version": 1, "rules": [{{"name": "plan", "key": [{{"header": "x-user"}}], "quotas": {},
        "cost": {{"estimate": 10, "max": 100, "unit": "tokens", "actual": {{"header": "x-used"}}}}}}]}}"#,
        QUOTAS
    ));
    assert_eq!(report(&named, &rows, &["ann"], DECEMBER)["unit"], "tokens");
    check(&before, &mut rows, "ann", 100, DECEMBER - 30 * DAY).unwrap();
    check(&before, &mut rows, "ann", 40, DECEMBER).unwrap();
    let after = policy(&QUOTAS.replace("900", "30"));
    let quota = report(&after, &rows, &["ann"], DECEMBER)["keys"][0]["quotas"][0].clone();
    let used = |period: &str| (quota[period]["used"].clone(), quota[period]["over_limit"].clone());
    assert_eq!((&quota["limit"], used("current")), (&json!(30), (json!(40), json!(10))));
    assert_eq!(used("previous"), (json!(100), json!(70)));
    // Under another calendar the units stay used now, and the earlier period is not known.
    let other = policy(&QUOTAS.replace("\"anchor_day\": 15", "\"anchor_day\": 1"));
    let quota = report(&other, &rows, &["ann"], DECEMBER)["keys"][0]["quotas"][0].clone();
    assert_eq!((&quota["current"]["used"], &quota["previous"]["used"]), (&json!(40), &json!(0)));
}

#[test]
fn the_example_of_the_document_is_such_a_report() {
    let policy = policy(
        r#"[{"name": "month", "limit": 10000, "window": "1mo", "algorithm": "fixed-window",
            "align": "calendar", "anchor_day": 15, "utc_offset": "+02:00"}]"#,
    );
    let mut rows = Rows::default();
    check(&policy, &mut rows, "ann", 100, DECEMBER - 30 * DAY).unwrap();
    check(&policy, &mut rows, "ann", 40, DECEMBER).unwrap();
    let call = call(&["ann"], UsageFormat::Json);
    let at = Timestamp::from_millis(DECEMBER);
    let text = text(reported(&policy, &rows, &call, &|_| None, at));
    let key = text.strip_prefix(r#"{"rule":"plan","unit":null,"keys":["#);
    let key = key.and_then(|rest| rest.strip_suffix("]}")).expect("a report");
    let page = include_str!("../../../docs/admin.md");
    assert!(page.contains(&format!("\n{key}\n")), "docs/admin.md does not show {key}");
}

/// The reason why there is no report.
fn wrong(policy: &Policy, call: &UsageCall) -> (String, String) {
    let rows = Rows::default();
    match reported(policy, &rows, call, &|_| None, Timestamp::from_millis(DECEMBER)) {
        StoreReply::Usage(UsageReply::Wrong { path, why }) => (path, why),
        StoreReply::Usage(UsageReply::NoRule) => ("no rule".into(), String::new()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_has_no_report_is_named() {
    let by_month = policy(QUOTAS);
    let gone = UsageCall { rule: "gone".into(), ..call(&["a"], UsageFormat::Json) };
    assert_eq!(wrong(&by_month, &gone).0, "no rule");
    let others = policy(r#"[{"limit": 5, "window": "1h", "algorithm": "fixed-window"}]"#);
    let (path, why) = wrong(&others, &call(&["a"], UsageFormat::Json));
    assert!(path == "rule" && why.contains("no quota by a calendar"), "{path}: {why}");
    let many = ["a"; 101];
    let (path, why) = wrong(&by_month, &call(&many, UsageFormat::Json));
    assert!(path == "key" && why.contains("more than 100 clients"), "{path}: {why}");
    assert_eq!(
        report(&by_month, &Rows::default(), &many[..100], DECEMBER)["keys"]
            .as_array()
            .unwrap()
            .len(),
        100
    );
    let (path, why) = wrong(&by_month, &call(&[], UsageFormat::Json));
    assert!(path == "key" && why.contains("has 1 part"), "{path}: {why}");
    let tenant = UsageCall { tenant: Some("acme".into()), ..call(&["a"], UsageFormat::Json) };
    assert_eq!(wrong(&by_month, &tenant).0, "tenant");
    // Two parts: values are taken in pairs, and a wrong one is named by its place in the request.
    let pairs = compile(&format!(
        r#"{{"version": 1, "rules": [{{"name": "plan", "key": ["client_ip", "method"], "quotas": {QUOTAS}}}]}}"#
    ));
    let report =
        report(&pairs, &Rows::default(), &["192.0.2.1", "GET", "192.0.2.2", "PUT"], DECEMBER);
    assert_eq!(report["keys"][1]["key"], json!(["192.0.2.2", "PUT"]));
    let odd = call(&["192.0.2.1", "GET", "192.0.2.2"], UsageFormat::Json);
    assert_eq!(wrong(&pairs, &odd).0, "key");
    let no_address = call(&["192.0.2.1", "GET", "here", "PUT"], UsageFormat::Json);
    assert_eq!(wrong(&pairs, &no_address).0, "key[2]");
}

const TENANTS: &str = r#"{"version": 1, "tenant": {"header": "x-org"}, "rules": [
    {"name": "plan", "key": [KEY], "quotas": [{"name": "month", "limit": 10, "window": "1mo", "algorithm": "fixed-window", "align": "calendar"}],
     "tiers": [{"name": "gold", "when": {"methods": ["PUT"]}, "quotas": [{"name": "day", "limit": 5, "window": "1d", "algorithm": "fixed-window", "align": "calendar"}]}]}]}"#;
const ENTRY: &str = r#"{"quotas": {"plan": [{"name": "contract", "limit": LIMIT, "window": "1mo", "algorithm": "fixed-window", "align": "calendar"}]}}"#;

/// Tier, whether it is a tenant's, name, limit, and used units of both periods.
fn lines(report: &Value) -> Vec<Value> {
    let quotas = report["keys"][0]["quotas"].as_array().unwrap().iter();
    quotas
        .map(|it| {
            json!([
                it["tier"],
                it["is_of_tenant"],
                it["name"],
                it["limit"],
                it["current"]["used"],
                it["previous"]["used"]
            ])
        })
        .collect()
}

#[test]
fn a_tenants_own_quotas_are_those_of_its_entry() {
    for (key, parts, tenant) in [
        (r#"{"header": "x-org"}"#, "acme", None),
        (r#""client_ip""#, "192.0.2.1", Some("acme".to_owned())),
    ] {
        let policy = compile(&TENANTS.replace("KEY", key));
        let at = Timestamp::from_millis(DECEMBER);
        let mut rows = Rows::default();
        let entry = ENTRY.replace("LIMIT", "50");
        let parsed = tollgate_language::tenant_entry(entry.as_bytes()).unwrap();
        let compiled = std::sync::Arc::new(Tenant::new(&policy, b"acme", &parsed));
        let facts = r#"{"method": "GET", "path": "/", "client_ip": "192.0.2.1", "headers": {"x-org": "acme"}}"#;
        let facts = DescribedRequest::parse(facts.as_bytes()).unwrap();
        let mut plan = Plan::new();
        policy.plan_for(&facts, &compiled, &mut plan);
        let (key, mut request) = (plan.partition(0).unwrap().key().to_vec(), Vec::new());
        plan.partition(0).unwrap().request(&policy, &mut request);
        let mut counts = Counts::default();
        counts.answer(&request, at).unwrap();
        rows.put(&key, &counts, at);
        let call = UsageCall { tenant: tenant.clone(), ..call(&[parts], UsageFormat::Json) };
        // By the entry as it is now, also where its limit has changed; and after its removal.
        let (own, gone) = (Some(ENTRY.replace("LIMIT", "70")), None);
        for (entry, expected) in [
            (own, json!([null, true, "contract", 70, 1, 0])),
            (gone, json!([null, true, "the tenant's own", 50, 1, 0])),
        ] {
            let find = |name: &str| {
                assert_eq!(name, "acme");
                entry.clone()
            };
            let report: Value =
                serde_json::from_str(&text(reported(&policy, &rows, &call, &find, at))).unwrap();
            assert_eq!(report["keys"][0]["tenant"], "acme");
            let of_rule =
                [json!([null, false, "month", 10, 0, 0]), json!(["gold", false, "day", 5, 0, 0])];
            let of_rule = of_rule.into_iter().filter(|_| tenant.is_none());
            assert_eq!(lines(&report), of_rule.chain([expected]).collect::<Vec<_>>());
        }
        if let Some(tenant) = tenant {
            let other = UsageCall { tenant: Some(format!("{tenant}2")), ..call };
            assert_eq!(wrong(&policy, &other).0, "tenant");
        }
    }
}

/// Guards: a name that is a formula in the spreadsheet of an invoice, and a line that is torn.
#[test]
fn lines_for_a_spreadsheet_have_one_row_per_quota_and_period() {
    let (policy, mut rows) = (policy(QUOTAS), Rows::default());
    let users = ["=cmd|'/C calc'!A0", "a;\"b\""];
    check(&policy, &mut rows, users[0], 100, DECEMBER - 30 * DAY).unwrap();
    check(&policy, &mut rows, users[0], 40, DECEMBER).unwrap();
    let call = call(&users, UsageFormat::Csv);
    let at = Timestamp::from_millis(DECEMBER);
    let text = text(reported(&policy, &rows, &call, &|_| None, at));
    let lines: Vec<&str> = text.split_terminator("\r\n").collect();
    assert_eq!(
        lines[0],
        "rule,key[0],tenant,pk,tier,is_of_tenant,quota,unit,limit,period,start,end,start_utc,end_utc,used,remaining,over_limit,at"
    );
    assert_eq!(lines.len(), 1 + 2 * 2 * 2);
    let first = lines[1].replace(&lines[1].split(',').nth(3).unwrap().to_string(), "PK");
    assert_eq!(
        first,
        "plan,\"'=cmd|''/C calc'!A0\",,PK,,false,month,,900,current,2026-11-15T00:00:00+02:00,2026-12-15T00:00:00+02:00,2026-11-14T22:00:00Z,2026-12-14T22:00:00Z,40,860,0,2026-11-30T22:00:00Z"
    );
    assert!(lines[2].contains(",month,,900,previous,2026-10-15T00:00:00+02:00,"), "{text}");
    assert!(lines[2].ends_with(",100,800,0,2026-11-30T22:00:00Z"), "{text}");
    assert!(lines[3].contains(",week,,400,current,2026-11-29T00:00:00Z,"), "{text}");
    assert!(lines[5].starts_with("plan,\"a;\"\"b\"\"\",,"), "{text}");
}
