//! Shards of a hot key in a real workerd, where requests do not cost one unit of one quota: costs,
//! tenants, tiers, settlements, changes of shards and quotas, and requests that stop.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tollgate_e2e::http::{Client, Request};
use tollgate_e2e::process::wait_until;
use tollgate_e2e::workerd::{Setup, Workerd, answer};

use crate::worker_admin::{ADMIN, READER, asks, body, operated};

/// After this time a lease of a shard and the clock's error are over.
const ALL_LEASES: Duration = Duration::from_millis(3_500);
/// An isolate remembers no denial for longer.
const REMEMBERED: Duration = Duration::from_millis(1_100);
/// Only ends a race whose normal end has failed.
const PATIENCE: Duration = Duration::from_secs(180);
const TENANT: &str = "/.well-known/tollgate/admin/tenants/acme";

fn year(limit: u64) -> Value {
    json!({"name": "year", "algorithm": "fixed-window", "limit": limit, "window": "366d"})
}

fn check(fields: &Value) -> Request {
    let facts = json!({"method": "GET", "path": "/", "headers": fields, "client_ip": "192.0.2.1"});
    Request::post("/check", facts.to_string())
}

fn decision(client: &mut Client, request: &Request) -> Value {
    let answer = answer(&client.send(request));
    assert!(answer["failed"].is_null() || answer["failed"] == false, "{answer}");
    answer
}

/// Sends `requests` requests from `clients` clients together, each `request(i)` with its cost;
/// returns the units allowed.
fn race(
    port: u16,
    clients: u64,
    requests: u64,
    request: &(dyn Fn(u64) -> (Request, u64) + Sync),
) -> u64 {
    let next = AtomicU64::new(0);
    let each = || {
        let mut client = Client::connect(port);
        let mut admitted = 0;
        loop {
            let i = next.fetch_add(1, Ordering::Relaxed);
            if i >= requests {
                return admitted;
            }
            let (request, cost) = request(i);
            let is_admitted = decision(&mut client, &request)["decision"] == "allow";
            admitted += if is_admitted { cost } else { 0 };
        }
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..clients).map(|_| scope.spawn(each)).collect();
        threads.into_iter().map(|thread| thread.join().expect("a client failed")).sum()
    })
}

/// The same of one request that costs one.
fn race_of(worker: &Workerd, requests: u64, fields: &Value) -> u64 {
    let request = check(fields);
    race(worker.port, 6, requests, &|_| (request.clone(), 1))
}

/// A cost of each request, the same in every run.
fn cost_of(i: u64, most: u64) -> u64 {
    1 + (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33) % most
}

// Guards: a cost that a shard pays in part, that is charged at two shards, or that cannot be paid
// because shards hold the units that it needs.
#[test]
fn costs_above_what_a_shard_holds_are_paid_once_or_not_at_all() {
    let limit = 600;
    let rule = json!({"name": "site", "key": [{"header": "x-key"}], "shards": 8, "quotas": [year(limit)],
        "cost": {"header": "x-cost", "max": 600}});
    let worker = Setup::new(json!({"version": 1, "rules": [rule]})).start();
    let of = |key: &str, cost: u64| check(&json!({"x-key": key, "x-cost": cost.to_string()}));
    let each = |i| {
        let cost = cost_of(i, 60);
        (of("a", cost), cost)
    };
    let at_once = race(worker.port, 12, 400, &each);
    thread::sleep(ALL_LEASES);
    let in_the_end = at_once + race(worker.port, 4, 300, &|_| (of("a", 1), 1));
    println!("costs: {at_once} at once, {in_the_end} in the end of {limit}");
    assert!((limit / 2..=limit).contains(&in_the_end), "{in_the_end}");
    // Shards hold units when a request comes that needs nearly all there are.
    let small = race(worker.port, 12, 100, &|_| (of("b", 1), 1));
    assert_eq!(small, 100);
    let mut client = worker.client();
    let large = || decision(&mut client, &of("b", 450))["decision"] == "allow";
    let since = Instant::now();
    let tries =
        std::iter::repeat_with(large).inspect(|_| thread::sleep(Duration::from_millis(100)));
    // (The units that a slow machine strands are at most those that shards could hold.)
    let admitted = tries.take(60).position(|is_admitted| is_admitted);
    println!("a cost of 450 beside {small}: after {:?}, try {admitted:?}", since.elapsed());
    let rest = race(worker.port, 4, 700, &|_| (of("b", 1), 1));
    let large = if admitted.is_some() { 450 } else { 0 };
    assert!(small + large + rest <= limit, "{small}, {large} and {rest}");
}

// Guards: quotas of a tenant, or of a tier, that share units which another's leases hold; an entry
// that is changed while shards hold units of the one before.
#[test]
fn tenants_and_tiers_have_budgets_of_their_own_over_the_same_shards() {
    let gold =
        json!({"name": "gold", "when": {"headers": {"x-plan": "gold"}}, "quotas": [year(200)]});
    let rule = json!({"name": "org", "key": [{"header": "x-org"}], "on_missing": "shared", "shards": 4,
        "quotas": [year(60)], "tiers": [gold]});
    let site = json!({"name": "site", "key": [], "shards": 4, "quotas": [year(100_000)]});
    let policy = json!({"version": 1, "tenant": {"header": "x-org"}, "rules": [rule, site]});
    let worker = operated(policy).start();
    let mut client = worker.client();
    let own = |limit: u64| json!({"quotas": {"org": [year(limit)]}}).to_string();
    let put = asks(ADMIN, "PUT", TENANT, &own(150)).header("if-none-match", "*");
    assert_eq!(client.send(&put).status, 201);
    let kinds = [
        (json!({"x-org": "plain"}), 60),
        (json!({"x-org": "rich", "x-plan": "gold"}), 200),
        // An entry's own quotas have precedence over the tiers.
        (json!({"x-org": "acme"}), 150),
        // The same key as "rich", by the rule's own quotas: a budget of its own.
        (json!({"x-org": "rich"}), 60),
    ];
    let all = |requests| {
        thread::scope(|scope| {
            let worker = &worker;
            let race = |(fields, _): &(Value, u64)| {
                let fields = fields.clone();
                scope.spawn(move || race_of(worker, requests, &fields))
            };
            let threads: Vec<_> = kinds.iter().map(race).collect();
            threads.into_iter().map(|thread| thread.join().expect("a race")).collect::<Vec<_>>()
        })
    };
    let at_once = all(250);
    thread::sleep(ALL_LEASES);
    let later = all(100);
    println!("tenants: {at_once:?} at once, {later:?} later");
    for ((fields, limit), admitted) in kinds.iter().zip(at_once.iter().zip(&later)) {
        let admitted = admitted.0 + admitted.1;
        assert!((limit / 2..=*limit).contains(&admitted), "{fields}: {admitted} of {limit}");
    }
    let (used, mut more) = (at_once[2] + later[2], 0);
    for limit in [used + 60, used + 10] {
        let tag = client.send(&asks(READER, "GET", TENANT, "")).header("etag").expect("an etag");
        let put = asks(ADMIN, "PUT", TENANT, &own(limit)).header("if-match", tag);
        more += thread::scope(|scope| {
            let racing = scope.spawn(|| {
                let pause = || thread::sleep(Duration::from_millis(100));
                let each = |_| race_of(&worker, 12, &json!({"x-org": "acme"}));
                (0..30).map(each).inspect(|_| pause()).sum::<u64>()
            });
            assert_eq!(client.send(&put).status, 200);
            racing.join().expect("a race")
        });
        println!("an entry of {limit}: {more} more meanwhile");
    }
    assert!(more <= 60, "{more}");
    // Every isolate has the last entry, and the leases of the one before are over.
    thread::sleep(Duration::from_secs(6));
    let last = race_of(&worker, 200, &json!({"x-org": "acme"}));
    assert!(last <= 10_u64.saturating_sub(more), "{last} beside {more}");
}

// Guards: settlements lower or higher than their charge while shards hold units.
#[test]
fn what_is_settled_beside_shards_stays_within_the_limit() {
    let limit = 400;
    let rule = json!({"name": "site", "key": [], "shards": 4, "quotas": [year(limit)],
        "cost": {"header": "x-cost", "max": 50}});
    let policy = json!({"version": 1, "rules": [rule]});
    let worker = Setup::new(policy).binding("HASH_KEY", "the secret that names objects").start();
    let settling = |number: u64| {
        let mut client = worker.client();
        let mut standing = 0;
        for i in 0..30 {
            let facts =
                json!({"method": "GET", "path": "/", "headers": {"x-cost": "10"}, "settle": true});
            let answer = decision(&mut client, &Request::post("/check", facts.to_string()));
            let Some(id) = answer["id"].as_str() else { continue };
            let cost = cost_of(number * 100 + i, 21) - 1;
            let settle = json!({"id": id, "cost": cost}).to_string();
            let settle = Request::post("/check/settle", settle);
            let settled = tollgate_e2e::workerd::answer(&client.send(&settle));
            let charged = settled["charged"].as_u64().unwrap_or_else(|| panic!("{settled}"));
            // Use beyond the charge is debited, whether or not it fits.
            standing += charged.min(10);
        }
        standing
    };
    let plain = check(&json!({"x-cost": "1"}));
    let (settled, admitted) = thread::scope(|scope| {
        let settling: Vec<_> = (0..4).map(|i| scope.spawn(move || settling(i))).collect();
        let admitted = race(worker.port, 8, 600, &|_| (plain.clone(), 1));
        (settling.into_iter().map(|it| it.join().expect("it settles")).sum::<u64>(), admitted)
    });
    thread::sleep(ALL_LEASES);
    let later = race(worker.port, 4, limit + 100, &|_| (plain.clone(), 1));
    println!("settled {settled}, admitted {admitted} and {later} of {limit}");
    assert!(settled + admitted + later <= limit, "{settled}, {admitted} and {later}");
    assert!(settled + admitted + later >= limit / 2, "{settled}, {admitted} and {later}");
}

// Guards: units that earlier shards hold when their number is changed, or the limit: both policies
// together allow no more than the greater limit.
#[test]
fn shards_and_limits_that_change_admit_no_more_than_the_limit() {
    let policy = |shards: u64, limit: u64| {
        let mut rule = json!({"name": "site", "key": [], "quotas": [year(limit)]});
        if shards > 0 {
            rule["shards"] = json!(shards);
        }
        json!({"version": 1, "rules": [rule]})
    };
    let limit = 3_000;
    let worker = operated(policy(8, limit)).start();
    let (is_over, admitted) = (AtomicBool::new(false), AtomicU64::new(0));
    let since = Instant::now();
    let client = || {
        let (mut client, request) = (worker.client(), check(&json!({})));
        while !is_over.load(Ordering::Relaxed) && since.elapsed() < PATIENCE {
            let is_admitted = decision(&mut client, &request)["decision"] == "allow";
            admitted.fetch_add(u64::from(is_admitted), Ordering::Relaxed);
            thread::sleep(Duration::from_millis(10));
        }
    };
    thread::scope(|scope| {
        (0..8).for_each(|_| drop(scope.spawn(client)));
        let mut operator = worker.client();
        for (shards, limit) in [(2, 3_000), (0, 3_000), (32, 3_000), (8, 2_900), (2, 3_000)] {
            thread::sleep(Duration::from_millis(700));
            let put = policy(shards, limit).to_string();
            let put = asks(ADMIN, "PUT", "/.well-known/tollgate/admin/policy", &put);
            let put = operator.send(&put.header("if-match", "*"));
            assert_eq!(put.status, 200, "{}", put.text());
        }
        thread::sleep(Duration::from_millis(700));
        is_over.store(true, Ordering::Relaxed);
    });
    let meanwhile = admitted.into_inner();
    thread::sleep(ALL_LEASES + REMEMBERED);
    let later = race_of(&worker, limit + 500, &json!({}));
    println!("changed shards: {meanwhile} meanwhile, {later} later of {limit}");
    assert!(meanwhile + later <= limit, "{meanwhile} and {later}");
    // When the limit changes, leases are charged in full, however much they are.
    assert!(meanwhile > 0, "{meanwhile} and {later}");
}

// Guards: a shard that returns its units only when requests come: when they stop, the rest of its
// last lease counts as spent, for the rest of the window.
#[test]
fn what_shards_have_left_goes_back_when_requests_stop() {
    let limit = 100_000;
    let rule = json!({"name": "site", "key": [], "shards": 2, "quotas": [year(limit)]});
    let worker = operated(json!({"version": 1, "rules": [rule]})).start();
    let mut client = worker.client();
    let (mut admitted, mut stranded) = (0, vec![]);
    for round in 0..6 {
        // A lease that lasts, until a crowd uses it up and the next one is in hand.
        for _ in 0..8 + round {
            admitted += race_of(&worker, 12, &json!({}));
            thread::sleep(Duration::from_millis(100));
        }
        admitted += race_of(&worker, 400, &json!({}));
        thread::sleep(ALL_LEASES);
        let told = asks(READER, "GET", "/.well-known/tollgate/admin/keys?rule=site", "");
        let left = body(&client.send(&told))["quotas"][0]["remaining"].as_u64().expect("a number");
        stranded.push(limit - left - admitted);
        admitted = limit - left;
    }
    println!("stranded when requests stopped: {stranded:?}");
    let whole = stranded.iter().filter(|units| **units == 0).count();
    // A machine that stalls for a second strands its leases.
    assert!(whole >= 4, "{stranded:?}");
}

// Guards: an operator that cannot see whether shards relieve the key's object, and a key with many
// units left that is shown as nearly used up because a shard holds few of them.
#[test]
fn metrics_say_what_decided_the_requests_of_a_key_with_shards() {
    let limit = 2_000;
    let rule = json!({"name": "site", "key": [], "shards": 4, "quotas": [year(limit)]});
    let token = "t0ken-of-prometheus";
    let setup = operated(json!({"version": 1, "rules": [rule]})).binding("METRICS_TOKEN", token);
    let worker = setup.binding("METRICS_INTERVAL_S", 1).start();
    let scrape = |by: &str| {
        let request = Request::get("/.well-known/tollgate/metrics");
        let request = request.header("authorization", format!("Bearer {token}"));
        let text = worker.client().send(&request).text();
        let line = text.lines().find_map(|line| line.strip_prefix(by)).map(str::trim);
        line.map_or(0, |number| number.parse::<u64>().unwrap_or_else(|_| panic!("{by}{number}")))
    };
    let by = |by: &str| scrape(&format!("tollgate_shard_requests_total{{by=\"{by}\"}}"));
    let all = || ["held", "asked", "second", "refused"].map(by);
    // A later request delivers the earlier counts.
    let wait_for = |count: u64| {
        wait_until("all are counted", Duration::from_secs(60), || {
            thread::sleep(Duration::from_millis(500));
            (all().iter().sum::<u64>() >= count).then(all)
        })
    };
    let admitted = race_of(&worker, 800, &json!({}));
    assert_eq!(admitted, 800);
    let [held, asked, second, refused] = wait_for(800);
    println!("held {held}, asked {asked}, second {second}, refused {refused}");
    assert_eq!((held + asked + second, refused), (800, 0));
    assert!(held > 400, "{held}");
    assert_eq!(scrape("tollgate_near_limit_total{rule=\"site\",quota=\"year\",tier=\"\"}"), 0);
    let mut admitted = 800 + race_of(&worker, 1_400, &json!({}));
    // The isolate denies from its own memory for a while. Only a denial that it asks a shard for is
    // one of the shard. Units that a shard still holds, or gave back, allow some of these requests.
    wait_until("refusals are counted", Duration::from_secs(60), || {
        thread::sleep(Duration::from_millis(500));
        admitted += race_of(&worker, 1, &json!({}));
        let [held, asked, second, refused] = all();
        (held + asked + second >= admitted && refused > 0).then_some(())
    });
    assert!(admitted <= limit, "{admitted}");
    let [held, asked, second, refused] = all();
    println!("held {held}, asked {asked}, second {second}, refused {refused}");
    assert_eq!(held + asked + second, admitted);
}

// Guards: a shard that continues with its units, or with a reply in flight, after the operator's
// block of the key was acknowledged.
#[test]
fn a_block_is_in_force_in_every_shard_when_it_is_answered() {
    let rule = json!({"name": "site", "key": [], "shards": 8, "quotas": [year(1_000_000)]});
    let worker = operated(json!({"version": 1, "rules": [rule]})).start();
    let (is_blocked, is_over) = (AtomicBool::new(false), AtomicBool::new(false));
    let (admitted, late) = (AtomicU64::new(0), AtomicU64::new(0));
    let since = Instant::now();
    let client = || {
        let (mut client, request) = (worker.client(), check(&json!({})));
        while !is_over.load(Ordering::SeqCst) && since.elapsed() < PATIENCE {
            let was_blocked = is_blocked.load(Ordering::SeqCst);
            let is_admitted = decision(&mut client, &request)["decision"] == "allow";
            // A request that was sent before the block was acknowledged, or whose response came
            // after its end, proves nothing.
            let is_late = is_admitted && was_blocked && is_blocked.load(Ordering::SeqCst);
            admitted.fetch_add(u64::from(is_admitted), Ordering::SeqCst);
            late.fetch_add(u64::from(is_late), Ordering::SeqCst);
        }
    };
    let change = |what: &str, until_ms: Option<u64>| {
        let mut body = json!({"rule": "site", "key": []});
        if let Some(until_ms) = until_ms {
            body["until_ms"] = json!(until_ms);
        }
        let path = format!("/.well-known/tollgate/admin/keys/{what}");
        let answer = worker.client().send(&asks(ADMIN, "POST", &path, &body.to_string()));
        assert_eq!(answer.status, 204, "{}", answer.text());
    };
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().expect("a time").as_millis();
    let in_an_hour = u64::try_from(now).expect("a time of this age") + 3_600_000;
    let mut each = vec![];
    thread::scope(|scope| {
        (0..12).for_each(|_| drop(scope.spawn(client)));
        for _ in 0..4 {
            let before = admitted.load(Ordering::SeqCst);
            wait_until("shards hold something", Duration::from_secs(60), || {
                (admitted.load(Ordering::SeqCst) > before + 500).then_some(())
            });
            change("block", Some(in_an_hour));
            is_blocked.store(true, Ordering::SeqCst);
            thread::sleep(Duration::from_millis(700));
            each.push(late.load(Ordering::SeqCst));
            is_blocked.store(false, Ordering::SeqCst);
            change("unblock", None);
        }
        is_over.store(true, Ordering::SeqCst);
    });
    println!("{} admitted, of these after a block: {each:?}", admitted.into_inner());
    assert_eq!(each, [0; 4]);
}
