//! Random policy documents: every algorithm, action and mode, layers by the same key and by others.
//!
//! Invariant: a document is valid on both surfaces and reads only facts that both see in the same
//! way (the crate's documentation lists the others).

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use tollgate_core::{Algorithm, Calendar, CalendarUnit, Weekday};
use tollgate_test_support::Random;

use crate::requests::LIMIT;

/// The header in which an origin shows the cost of a request.
pub const ACTUAL: &str = "x-actual";

/// A document and the facts that its trace needs.
pub(crate) struct GeneratedPolicy {
    pub(crate) document: Value,
    /// The window that most quotas have.
    pub(crate) window_ms: u64,
    /// The clock may go back: see [`crate::Case`].
    pub(crate) wavers: bool,
}

const WINDOWS: [(u64, &str); 7] = [
    (500, "500ms"),
    (1_000, "1s"),
    (2_500, "2500ms"),
    (7_000, "7s"),
    (10_000, "10s"),
    (60_000, "1m"),
    (3_600_000, "1h"),
];

/// A random document.
pub(crate) fn policy(random: &mut Random) -> GeneratedPolicy {
    let base = usize::try_from(random.below(6)).expect("an index");
    let (rules, wavers) = if random.chance(20) {
        (vec![plain(random, base)], random.chance(50))
    } else {
        rules(random, base)
    };
    let mut document = json!({"version": 1, "rules": rules, "response": response(random)});
    if random.chance(50) {
        document["client_ip"] = client_ip(random);
    }
    if random.chance(25) {
        let exempt = [
            json!({"headers": {"x-health-check": "*"}}),
            json!({"client_cidrs": ["203.0.113.0/28"]}),
            json!({"methods": ["OPTIONS"]}),
            json!({"paths": ["/api/items/**", "/login"]}),
        ];
        document["exempt"] = json!([random.pick(&exempt)]);
    }
    if random.chance(20) {
        document["escaped_slashes"] = json!(random.pick(&["literal", "literal", "separator"]));
    }
    GeneratedPolicy { document, window_ms: WINDOWS[base].0, wavers }
}

const REPEATED: [&str; 4] = ["refuse", "first", "last", "join"];

/// True when the core alone can reproduce the decisions of `document`.
pub(crate) fn is_plain(document: &Value) -> bool {
    document["rules"][0]["name"] == "plain"
}

/// One rule that counts by one header and denies, which the core alone can reproduce.
fn plain(random: &mut Random, base: usize) -> Value {
    let count = random.between(1, 2);
    let quotas = quotas(random, base, count);
    let mut rule = json!({"name": "plain", "key": [{"header": "x-key"}], "quotas": quotas});
    if random.chance(60) {
        rule["cost"] = json!({"header": "x-cost", "max": random.between(2, 9)});
    }
    rule
}

/// One to four rules by one or two keys, sometimes many.
fn rules(random: &mut Random, base: usize) -> (Vec<Value>, bool) {
    let count = if random.chance(10) { random.between(5, 16) } else { random.between(1, 4) };
    let is_layered = count > 1 && random.chance(80);
    let keys = [key(random), key(random)];
    let mut rules: Vec<Value> = vec![];
    for number in 0..count {
        let key = if is_layered { random.pick(&keys) } else { &keys[0] };
        rules.push(rule(random, base, number, key));
    }
    let first = &rules[0]["key"];
    let is_refused_unasked = rules.iter().any(|rule| rule["on_missing"] == "deny");
    let captures = first.to_string().contains("path_param"); // such rules share no key
    let is_alone = rules.len() == 1
        || rules.iter().all(|rule| rule["key"] == *first) && !is_refused_unasked && !captures;
    (rules, is_alone && random.chance(50))
}

fn key(random: &mut Random) -> Value {
    let parts = [
        json!({"header": "x-key"}),
        json!("client_ip"),
        json!({"header": "x-tenant"}),
        json!({"header": "x-key", "repeated": random.pick(&REPEATED)}),
        json!({"cookie": "sid"}),
        json!({"cookie": "sid", "repeated": random.pick(&REPEATED)}),
        json!({"query": "user"}),
        json!({"query": "user", "repeated": random.pick(&REPEATED)}),
        json!({"path_param": "id"}),
        json!("method"),
        json!("host"),
        json!("path"),
    ];
    let count = *random.pick(&[0, 1, 1, 1, 1, 2, 2, 3]);
    let mut key: Vec<Value> = vec![];
    while key.len() < count {
        let part = random.pick(&parts);
        if !key.contains(part) {
            key.push(part.clone());
        }
    }
    json!(key)
}

fn rule(random: &mut Random, base: usize, number: u64, key: &Value) -> Value {
    let name = *random.pick(&["rule", "a \"quoted\" \\ name", "a, b; c=1"]);
    let mut rule = Map::new();
    rule.insert("name".into(), json!(format!("{name} {number}")));
    rule.insert("key".into(), key.clone());
    let count = random.between(1, 3);
    rule.insert("quotas".into(), json!(quotas(random, base, count)));
    if let Some(when) = when(random, key) {
        rule.insert("when".into(), when);
    }
    if random.chance(20) {
        let unless = [json!({"headers": {"x-skip": "*"}}), json!({"query": {"free": "1"}})];
        rule.insert("unless".into(), random.pick(&unless).clone());
    }
    if random.chance(50) {
        rule.insert("on_missing".into(), json!(random.pick(&["skip", "deny", "shared"])));
    }
    if random.chance(40) {
        rule.insert("cost".into(), cost(random));
    }
    if random.chance(25) {
        let statuses = [json!(["401"]), json!(["4xx", "500"]), json!(["200"])];
        let mut charge = json!({"response_status": random.pick(&statuses)});
        if random.chance(50) {
            charge["reserve"] = json!(true);
        }
        rule.insert("charge".into(), charge);
    }
    if random.chance(30) {
        rule.insert("tiers".into(), tiers(random, base));
    }
    if random.chance(30) {
        let percent = random.between(20, 80);
        let share = json!({"enforce_percent": percent, "salt": "the same on all surfaces"});
        let modes = [json!("shadow"), share];
        rule.insert("mode".into(), random.pick(&modes).clone());
    }
    if random.chance(65) {
        rule.insert("action".into(), action(random, base));
    }
    if random.chance(30) {
        rule.insert("durability".into(), json!(random.pick(&["strict", "relaxed"])));
    }
    let mut rule = Value::Object(rule);
    // A queue holds no units until the response.
    if rule.to_string().contains(Algorithm::LeakyQueue.name())
        && let Some(charge) = rule.get_mut("charge").and_then(Value::as_object_mut)
    {
        charge.remove("reserve");
    }
    rule
}

fn quotas(random: &mut Random, base: usize, count: u64) -> Vec<Value> {
    let quota = |number| {
        let mut quota = quota(random, base);
        if count > 1 || random.chance(30) {
            quota["name"] = json!(format!("quota {number}"));
        }
        quota
    };
    (0..count).map(quota).collect()
}

fn quota(random: &mut Random, base: usize) -> Value {
    let algorithm = *random.pick(&Algorithm::ALL);
    let limit = if random.chance(80) { random.between(1, 6) } else { random.between(7, 40) };
    let (_, window) = WINDOWS[base + usize::from(random.chance(25))];
    let mut quota = json!({"limit": limit, "window": window, "algorithm": algorithm.name()});
    let strict = algorithm != Algorithm::FixedWindow && random.chance(15);
    if strict {
        quota["strict"] = json!(true);
    }
    if algorithm.has_burst() && random.chance(35) {
        quota["burst"] = json!(random.between(1, if strict { limit } else { 2 * limit }));
    }
    if algorithm.buckets().is_some() && random.chance(70) {
        quota["buckets"] = json!(random.pick(&[2, 6, 10, 90]));
    }
    quota
}

fn when(random: &mut Random, key: &Value) -> Option<Value> {
    let mut when = Map::new();
    if key.to_string().contains("path_param") {
        let capturing = ["/users/{id}/**", "/users/{id}", "/*/{id}"];
        when.insert("paths".into(), json!([random.lean(&capturing)]));
    } else if random.chance(35) {
        let paths = ["/**", "/api/**", "/api/*", "/users/*/**", "/a%2Fb", "/caf%C3%A9/*", "/login"];
        when.insert("paths".into(), json!([random.lean(&paths), random.pick(&paths)]));
    }
    if random.chance(15) {
        let methods = [json!(["GET"]), json!(["GET", "POST", "PUT"]), json!(["POST", "HEAD"])];
        when.insert("methods".into(), random.pick(&methods).clone());
    }
    if random.chance(15) {
        let hosts = ["*.example.com", "api.example.com", "example.com", "[2001:db8::5]"];
        when.insert("hosts".into(), json!([random.lean(&hosts)]));
    }
    if random.chance(15) {
        let headers = [
            json!({"x-plan": {"prefix": "go"}}),
            json!({"x-tenant": "*"}),
            json!({"X-Key": ["k1", "k2", {"prefix": "k1, "}, "k\u{fc}"]}),
        ];
        when.insert("headers".into(), random.pick(&headers).clone());
    }
    if random.chance(10) {
        let query = [json!({"user": "*"}), json!({"q": {"prefix": "a b"}}), json!({"user": "u1"})];
        when.insert("query".into(), random.pick(&query).clone());
    }
    if random.chance(10) {
        let cidrs =
            [json!(["192.0.2.0/24", "2001:db8::/32"]), json!(["::/0"]), json!(["0.0.0.0/0"])];
        when.insert("client_cidrs".into(), random.pick(&cidrs).clone());
    }
    (!when.is_empty()).then_some(Value::Object(when))
}

fn cost(random: &mut Random) -> Value {
    match random.below(3) {
        0 => json!(random.between(1, 3)),
        1 => {
            json!({"header": "x-cost", "default": random.between(1, 2), "max": random.between(2, 9)})
        }
        2 if random.chance(30) => {
            json!({"header": "x-cost", "max": 9, "repeated": random.pick(&REPEATED[..3])})
        }
        _ => json!({"content_length_per": random.pick(&[1, 100, 1000])}),
    }
}

/// Lets the responses settle the costs of this share of the rules of `document` that can have such
/// a cost, from numbers of its own: the cases without them stay what they were.
pub(crate) fn settle_costs(document: &mut Value, percent: u64, random: &mut Random) {
    for rule in document["rules"].as_array_mut().into_iter().flatten() {
        let cannot = [Algorithm::LeakyQueue, Algorithm::SlidingLog].map(Algorithm::name);
        let can_hold = !cannot.iter().any(|name| rule.to_string().contains(name));
        // The core alone reproduces the plain one.
        let is_free = rule["charge"].is_null() && rule["name"] != "plain";
        if can_hold && is_free && random.chance(percent) {
            rule["cost"] = settled_cost(random);
        }
    }
}

/// Lets quotas of `document` count by one calendar, from numbers of their own: the cases without
/// them stay what they were. Returns the calendar, if any does.
pub(crate) fn add_calendar(document: &mut Value, random: &mut Random) -> Option<Calendar> {
    let offset = i16::try_from(random.below(1_681)).expect("minutes") - 840;
    let offset = *random.pick(&[0, 0, 120, -330, offset]);
    let anchor_day = *random.pick(&[1, 1, 15, 29, 30, 31]);
    let start = *random.pick(&Weekday::ALL);
    let (window, unit) = *random.pick(&[
        ("1h", CalendarUnit::Hour),
        ("1d", CalendarUnit::Day),
        ("1w", CalendarUnit::Week { start }),
        ("1mo", CalendarUnit::Month { anchor_day }),
        ("1mo", CalendarUnit::Month { anchor_day }),
    ]);
    let mut fields = json!({"algorithm": "fixed-window", "align": "calendar", "window": window,
        "utc_offset": utc_offset(offset)});
    match unit {
        CalendarUnit::Week { start } => fields["week_start"] = json!(start.name()),
        CalendarUnit::Month { anchor_day } => fields["anchor_day"] = json!(anchor_day),
        CalendarUnit::Hour | CalendarUnit::Day => {}
    }
    let mut is_any = false;
    for rule in document["rules"].as_array_mut().into_iter().flatten() {
        // The core alone reproduces the plain one.
        if rule["name"] == "plain" {
            continue;
        }
        let (own, tiers) = (rule["quotas"].take(), rule["tiers"].take());
        let mut change = |quotas: &mut Value| {
            for quota in quotas.as_array_mut().into_iter().flatten() {
                if random.chance(50) {
                    let name = quota["name"].take();
                    let mut changed = fields.clone();
                    changed["limit"] = quota["limit"].take();
                    if !name.is_null() {
                        changed["name"] = name;
                    }
                    *quota = changed;
                    is_any = true;
                }
            }
        };
        let (mut own, mut tiers) = (own, tiers);
        change(&mut own);
        for tier in tiers.as_array_mut().into_iter().flatten() {
            change(&mut tier["quotas"]);
        }
        rule["quotas"] = own;
        if !tiers.is_null() {
            rule["tiers"] = tiers;
        } else if let Some(rule) = rule.as_object_mut() {
            rule.remove("tiers");
        }
    }
    Calendar::new(unit, offset).ok().filter(|_| is_any)
}

fn utc_offset(minutes: i16) -> String {
    let sign = if minutes < 0 { '-' } else { '+' };
    format!("{sign}{:02}:{:02}", minutes.abs() / 60, minutes.abs() % 60)
}

/// Gives this share of the quotas of `document` that can have one a penalty, from numbers of their
/// own.
pub(crate) fn add_penalties(document: &mut Value, percent: u64, random: &mut Random) {
    let penalties = [
        json!("1s"),
        json!("5s"),
        json!(["1s", "3s"]),
        json!(["2s", "10s", "1m"]),
        json!(["1s", "1d"]),
    ];
    for rule in document["rules"].as_array_mut().into_iter().flatten() {
        let passes = !rule["action"]["delay"].is_null() || !rule["action"]["mark"].is_null();
        // The core alone reproduces the plain one.
        let counts = rule["deny"].is_null() && rule["name"] != "plain";
        if passes || !counts || rule["cost"] == "reported" {
            continue;
        }
        let holds = rule["charge"]["reserve"] == true || is_settled(rule);
        let mut change = |quotas: &mut Value| {
            for quota in quotas.as_array_mut().into_iter().flatten() {
                let can = match quota["algorithm"].as_str().unwrap_or("gcra") {
                    "leaky-queue" => false,
                    "gcra" | "token-bucket" | "leaky-bucket" => true,
                    _ => !holds,
                };
                if can && random.chance(percent) {
                    quota["penalty"] = random.pick(&penalties).clone();
                }
            }
        };
        if let Some(quotas) = rule.get_mut("quotas") {
            change(quotas);
        }
        if let Some(tiers) = rule.get_mut("tiers") {
            let tiers = tiers.as_array_mut().into_iter().flatten();
            tiers.filter_map(|tier| tier.get_mut("quotas")).for_each(change);
        }
    }
}

/// True when the response settles the cost of a rule.
fn is_settled(rule: &Value) -> bool {
    !rule["cost"]["estimate"].is_null()
}

/// Lets quotas of `document` take the limits of requests, and some deny everything, from numbers of
/// their own.
pub(crate) fn add_limits(document: &mut Value, random: &mut Random) {
    for rule in document["rules"].as_array_mut().into_iter().flatten() {
        // The core alone reproduces the plain one.
        if !rule["deny"].is_null() || rule["name"] == "plain" {
            continue;
        }
        let decides_at_once =
            rule["action"]["delay"].is_null() && rule["charge"].is_null() && !is_settled(rule);
        let mut limited = |quotas: &mut Value| {
            for quota in quotas.as_array_mut().into_iter().flatten() {
                if decides_at_once && can_be_limited(quota) && random.chance(60) {
                    let limit = quota["limit"].as_u64().expect("a limit");
                    let max = limit + random.below(2 * limit + 1);
                    quota["limit_from"] = json!({"header": LIMIT, "max": max});
                    if random.chance(10) {
                        quota["limit"] = json!(0);
                    }
                }
            }
        };
        let Some(quotas) = rule.get_mut("quotas") else { continue };
        limited(quotas);
        let tiers = rule.get_mut("tiers").and_then(Value::as_array_mut);
        let mut tiers: Vec<&mut Value> = tiers.into_iter().flatten().collect();
        tiers.iter_mut().for_each(|tier| limited(&mut tier["quotas"]));
        if random.chance(40)
            && let Some(tier) = tiers.first_mut()
        {
            tier["quotas"] = closed(random);
        } else if random.chance(25) && !tiers.is_empty() {
            rule["quotas"] = closed(random);
        }
    }
}

fn can_be_limited(quota: &Value) -> bool {
    let algorithm = quota["algorithm"].as_str().and_then(Algorithm::parse).expect("an algorithm");
    !algorithm.has_burst() && quota["strict"].is_null() && quota["penalty"].is_null()
}

/// A quota that denies everything.
fn closed(random: &mut Random) -> Value {
    let quotas =
        [json!([{"limit": 0}]), json!([{"limit": 0, "window": "1h", "name": "a \"quoted\" none"}])];
    random.pick(&quotas).clone()
}

/// Adds rules that deny to `document`, anywhere among its rules, from numbers of their own: the
/// cases without them stay what they were.
pub(crate) fn add_deny_rules(document: &mut Value, random: &mut Random) {
    let Some(rules) = document["rules"].as_array_mut() else { return };
    // The core alone reproduces the plain one.
    if rules.iter().any(|rule| rule["name"] == "plain") {
        return;
    }
    for number in 0..random.between(1, 2) {
        let place = usize::try_from(random.below(rules.len() as u64 + 1)).expect("a place");
        rules.insert(place, deny_rule(random, number));
    }
}

fn deny_rule(random: &mut Random, number: u64) -> Value {
    let conditions = [
        json!({"client_cidrs": ["192.0.2.1", "203.0.113.0/24", "2001:db8::/48"]}),
        json!({"headers": {"x-key": ["k2", {"prefix": "k3"}]}}),
        json!({"headers": {"x-plan": "gold"}}),
        json!({"paths": ["/login", "/users/*/**"]}),
        json!({"paths": ["/a%2Fb", "/caf%C3%A9/*"]}),
        json!({"hosts": ["example.com", "[2001:db8::5]"]}),
        json!({"methods": ["PUT", "HEAD"]}),
        json!({"query": {"user": "u1"}}),
        json!({"methods": ["GET"], "headers": {"x-tenant": "*"}}),
    ];
    let replies = [
        json!(true),
        json!(true),
        json!({"status": 451, "body": "not \"here\""}),
        json!({"status": 404}),
        json!({"body": ""}),
    ];
    let mut rule = json!({"name": format!("deny; \"{number}\""), "deny": random.pick(&replies),
        "when": random.pick(&conditions)});
    if random.chance(25) {
        rule["unless"] = json!({"headers": {"x-skip": "*"}});
    }
    if random.chance(30) {
        rule["mode"] = json!(random.lean(&["shadow", "enforce"]));
    }
    rule
}

/// Lets the keys of `document` count in lower case, by other networks, and by the first part that
/// is there, and its paths in any case, from numbers of their own. Rules that had one key still
/// have one.
pub(crate) fn vary_keys(document: &mut Value, random: &mut Random) {
    // Values of a key are for a key without a choice.
    let may_choose = !document.to_string().contains("key_values");
    if random.chance(50) {
        document["case_insensitive_paths"] = json!(true);
    }
    let mut varied: BTreeMap<String, Value> = BTreeMap::new();
    let rules = document["rules"].as_array_mut().into_iter().flatten();
    for rule in rules.filter(|rule| rule["name"] != "plain") {
        for part in rule["key"].as_array_mut().into_iter().flatten() {
            let other = varied.entry(part.to_string());
            *part = other.or_insert_with(|| vary_part(part, may_choose, random)).clone();
        }
    }
}

/// Another part that needs no more of a rule than `part`.
fn vary_part(part: &Value, may_choose: bool, random: &mut Random) -> Value {
    let mut other = part.clone();
    if *part == "client_ip" {
        let networks = [json!({"ipv4_prefix": 24, "ipv6_prefix": 48}), json!({"ipv6_prefix": 128})];
        other = json!({"client_ip": random.pick(&networks)});
    } else if ["header", "query", "path_param"].iter().any(|name| !part[*name].is_null()) {
        other["lower"] = json!(true);
    }
    let is_optional = !part["header"].is_null() || !part["cookie"].is_null();
    if may_choose && is_optional && random.chance(50) {
        let last = [json!("host"), json!("path"), json!({"query": "user", "lower": true})];
        return json!({"any_of": [other, random.pick(&last)]});
    }
    other
}

/// A cost that the response shows.
pub(crate) fn settled_cost(random: &mut Random) -> Value {
    let estimates = [json!(1), json!(2), json!({"header": "x-cost", "default": 2, "max": 4})];
    let mut cost = json!({"estimate": random.pick(&estimates), "max": random.between(4, 50),
        "actual": {"header": ACTUAL}, "forgive_excess": true});
    if random.chance(50) {
        let costs = [json!({"4xx": 0, "404": 3}), json!({"5xx": 0}), json!({"200": 1, "401": 4})];
        cost["on_status"] = random.pick(&costs).clone();
    }
    if random.chance(30) {
        cost["unit"] = json!("a \"quoted\" unit");
    }
    cost
}

fn tiers(random: &mut Random, base: usize) -> Value {
    let count = random.between(1, 2);
    let tier = |number| {
        let mut tier = json!({"name": format!("tier {number}")});
        tier["quotas"] = json!(quotas(random, base, 1));
        if random.chance(70) {
            tier["priority"] = json!(random.below(3));
        }
        match random.below(3) {
            0 => {
                tier["when"] = json!({"headers": {"x-plan": "gold"}});
                if random.chance(30) {
                    tier["repeated"] = json!(random.pick(&REPEATED));
                }
            }
            1 => tier["when"] = json!({"methods": ["POST", "PUT"]}),
            _ => tier["key_values"] = json!(["k2", "u1", "192.0.2.1", "2001:db8::1", "/api/items"]),
        }
        tier
    };
    (0..count).map(tier).collect()
}

fn action(random: &mut Random, base: usize) -> Value {
    let max = *random.pick(&["100ms", "1s", WINDOWS[base.min(4)].1]);
    match random.below(8) {
        0 => json!("deny"),
        1 => json!({"deny": {"status": 503, "body": "come \"back\" later"}}),
        2 => json!({"deny": {"status": 403}}),
        3 | 4 => json!({"delay": {"max": max}}),
        5 => json!({"mark": {"header": "X-Over-Limit", "value": "yes; by=tollgate"}}),
        6 => json!({"respond": {"status": 200, "body": "ok"}}),
        _ => json!({"respond": {"status": 202}}),
    }
}

fn response(random: &mut Random) -> Value {
    let headers = ["draft-11", "draft-7", "draft-6", "x-ratelimit", "off"];
    json!({
        "headers": random.lean(&headers),
        "on_allow": random.chance(85),
        "body": random.pick(&["problem+json", "text", "none"]),
        "jitter": random.lean(&["0s", "1500ms", "30s"]),
        "partition_key": random.chance(40),
    })
}

fn client_ip(random: &mut Random) -> Value {
    let sources = [
        json!("x-forwarded-for"),
        json!("forwarded"),
        json!({"header": "x-real-ip"}),
        json!("connection"),
    ];
    let mut client_ip = json!({"source": random.lean(&sources)});
    if random.chance(50) {
        client_ip["trusted_hops"] = json!(random.between(1, 3));
    } else {
        client_ip["trusted_proxies"] = json!(["10.0.0.0/8", "192.0.2.0/31", "2001:db8:1::/48"]);
    }
    if random.chance(40) {
        client_ip["ipv4_prefix"] = json!(random.pick(&[8, 24, 31]));
        client_ip["ipv6_prefix"] = json!(random.pick(&[32, 56, 128]));
    }
    client_ip
}
