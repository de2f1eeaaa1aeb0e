//! Generated requests against real origins: spellings that an origin treats as one thing have one
//! count.
//!
//! Each request is counted by five rules, by path, host, header, query parameter and cookie, and
//! the response shows the key of each (`pk`). Requests that an origin reads as the same must have
//! the same key, or be rejected before. The other direction, one count for things that the origin
//! distinguishes, is listed and does not fail: it allows nothing more.
//!
//! Invariant: the same seed gives the same requests. Deliberately absent: bodies, methods, HTTP/2.

use std::collections::{BTreeMap, BTreeSet};
use std::thread;

use serde_json::{Value, json};
use tollgate_test_support::Random;

use crate::http::{Client, Request, Response};
use crate::origins::Read;

/// The number of requests for all pairs of a surface and an origin together.
pub const REQUESTS: usize = 100_000;
/// Clients at once.
const CLIENTS: usize = 6;
/// The number of differences that are shown.
const SHOWN: usize = 20;

/// Every way of counting that the requests vary, each with a limit that nothing reaches.
pub fn policy() -> Value {
    let rule = |name: &str, key: Value| {
        let quota = json!({"limit": 1_000_000_000_u64, "window": "1h"});
        json!({"name": name, "key": [key], "quotas": [quota], "durability": "relaxed", "capacity": 262_144})
    };
    json!({"version": 1, "response": {"partition_key": true}, "rules": [
        rule("path", json!("path")),
        rule("host", json!("host")),
        rule("header", json!({"header": "x-api-key"})),
        rule("query", json!({"query": "k"})),
        rule("cookie", json!({"cookie": "sid"})),
    ]})
}

const NAMES: [&str; 8] = ["login", "a", "%6cogin", "l%4Fgin", "b", "a%20", "%61", "c;v=1"];
const SLASHES: [&str; 14] = [
    "/", "/", "/", "/", "//", "/./", "%2f", "%2F", "\\", "%5c", "/x/../", "/..%2f", "/x/..%2F",
    "/%2e%2e/",
];
const ENDS: [&str; 10] = ["", "", "", "", "/", "/.", "%2f", "/x/..", "\\", "//"];
const VALUES: [&str; 12] =
    ["s", "s", "s ", " s", "\ts", "s\t", "S", "s, s", "t", "\"s\"", "s,t", "  s  \t"];
const HOSTS: [&str; 10] = [
    "api.test",
    "API.test",
    "api.test:80",
    "api.test.",
    "www.test",
    "api.test:8080",
    "Api.Test.:80",
    "[::1]",
    "[::1]:80",
    "127.0.0.1",
];
const NAME_OF_KEY: [&str; 4] = ["x-api-key", "X-Api-Key", "X-API-KEY", "x-aPi-keY"];
const QUERIES: [&str; 10] =
    ["", "", "?k=s", "?k=%73", "?k=s&k=s", "?k=s&k=t", "?%6b=s", "?a=1&k=s", "?k=", "?k=s+"];
const COOKIES: [&str; 8] =
    ["sid=s", "sid=s; a=b", "a=b; sid=s", "sid=s; sid=s", "sid=s; sid=t", "sid=", "sid=s;", "a=b"];
const ADDRESSES: [&str; 4] = ["192.0.2.1", "192.0.2.1, 10.0.0.1", "junk", "::1"];

fn request(random: &mut Random) -> Request {
    let mut target = String::new();
    for _ in 0..random.below(4) {
        target.push_str(random.pick::<&str>(&SLASHES));
        target.push_str(random.pick::<&str>(&NAMES));
    }
    target.push_str(random.pick::<&str>(&ENDS));
    if !target.starts_with('/') {
        target.insert(0, '/');
    }
    target.push_str(random.pick::<&str>(&QUERIES));
    let mut request = Request::get(&target).header("host", *random.pick(&HOSTS));
    for _ in 0..[0, 1, 1, 1, 2][random.index(5)] {
        request = request.header(*random.pick(&NAME_OF_KEY), *random.pick(&VALUES));
    }
    for _ in 0..[0, 1, 1, 2][random.index(4)] {
        request = request.header("cookie", *random.pick(&COOKIES));
    }
    for name in ["x-forwarded-for", "forwarded", "x-real-ip"] {
        if random.below(4) == 0 {
            request = request.header(name, *random.pick(&ADDRESSES));
        }
    }
    // The header of Cloudflare's edge; other surfaces ignore it.
    request.header("cf-connecting-ip", "192.0.2.9")
}

/// Sends `count` requests of `seed` to `port`, and returns each with its response, in order.
fn send(port: u16, seed: u64, count: usize) -> Vec<(Request, Response)> {
    let mut random = Random::new(seed);
    let requests: Vec<Request> = (0..count).map(|_| request(&mut random)).collect();
    let parts = requests.chunks(count.div_ceil(CLIENTS));
    thread::scope(|scope| {
        let clients = parts.map(|part| {
            scope.spawn(move || {
                let mut client = Client::connect(port);
                let answer = |request: &Request| {
                    // A server may close a connection together with a rejection.
                    let answer = client.try_send(request).or_else(|_| {
                        client = Client::connect(port);
                        client.try_send(request)
                    });
                    (request.clone(), answer.expect("an answer"))
                };
                part.iter().map(answer).collect::<Vec<_>>()
            })
        });
        let clients: Vec<_> = clients.collect();
        clients.into_iter().flat_map(|client| client.join().expect("no panic")).collect()
    })
}

/// The key of each rule in the response, by the rule's name.
fn keys(response: &Response) -> BTreeMap<String, String> {
    let fields = response.all("ratelimit-policy").join(", ");
    let items = fields.split(", \"").filter_map(|item| {
        let (name, rest) = item.trim_start_matches('"').split_once('"')?;
        let key = rest.split(";pk=").nth(1)?;
        Some((name.to_owned(), key.split(';').next()?.to_owned()))
    });
    items.collect()
}

/// Sends `count` requests through a surface on `port` to its origin, and prints the number of
/// comparisons. Fails where one thing of the origin has two keys.
pub fn check(surface: &str, port: u16, seed: u64, count: usize) {
    let doubled = doubled(surface, port, seed, count);
    assert_eq!(doubled, 0, "{surface}: so many things have two counts");
}

/// The same; returns how many things have two keys.
pub fn doubled(surface: &str, port: u16, seed: u64, count: usize) -> usize {
    let mut seen: BTreeMap<(&str, String), BTreeMap<String, String>> = BTreeMap::new();
    let mut things: BTreeMap<(&str, String), BTreeSet<String>> = BTreeMap::new();
    let (mut compared, mut reached) = (0, 0);
    for (request, response) in send(port, seed, count) {
        let Some(read) = Read::from(&response) else { continue };
        reached += 1;
        let told = keys(&response);
        let resources = read
            .resources
            .iter()
            .enumerate()
            .map(|(way, resource)| (["path", "path, as it came"][way], "path", Some(resource)));
        let others = [
            ("host", "host", read.host.as_ref()),
            ("header", "header", read.credential.as_ref()),
            ("query", "query", read.query.as_ref()),
            ("cookie", "cookie", read.cookie.as_ref()),
        ];
        for (what, rule, thing) in resources.chain(others) {
            let Some(thing) = thing.filter(|thing| !thing.is_empty()) else { continue };
            compared += 1;
            let key = told.get(rule).cloned().unwrap_or_else(|| "none".to_owned());
            let line = || String::from_utf8_lossy(&request.to_bytes()).escape_debug().to_string();
            let ways = seen.entry((what, thing.clone())).or_default();
            ways.entry(key.clone()).or_insert_with(line);
            things.entry((what, key)).or_default().insert(thing.clone());
        }
    }
    let several = things.iter().filter(|(_, things)| things.len() > 1);
    println!(
        "{surface}: {reached} of {count} reached it, {compared} comparisons, {} things, {} keys; \
         {} keys count several things, such as:",
        seen.len(),
        things.len(),
        several.clone().count()
    );
    for ((what, _), things) in several.take(SHOWN) {
        println!("  {what}: {:?}", things.iter().take(4).collect::<Vec<_>>());
    }
    let doubled: Vec<_> = seen.iter().filter(|(_, keys)| keys.len() > 1).collect();
    for ((what, thing), keys) in doubled.iter().take(SHOWN) {
        println!("  TWO COUNTS for the {what} {thing:?}:");
        keys.iter().take(4).for_each(|(key, line)| println!("    {key} {line}"));
    }
    assert!(reached > count / 4, "{surface}: only {reached} of {count} reached the origin");
    doubled.len()
}

/// Spellings, and the location where nginx serves each.
const SPELLINGS: [(&str, &str); 16] = [
    ("/login", "login"),
    ("/x/..%2flogin", "login"),
    ("/%2Flogin", "login"),
    ("/x%2F%2e%2e%2Flogin", "login"),
    ("/%2e%2e%2flogin", "login"),
    ("/a\\b/..%2flogin", "login"),
    ("/a\\b/../login", "login"),
    ("/a%5cb/..%2flogin", "login"),
    ("/a%2fb/../x/..%2flogin/../../login", "login"),
    ("//login", "login"),
    ("/health/..%2flogin", "login"),
    ("/health/..%2fadmin/x", "admin"),
    ("/health%2f..%2fadmin%2fx", "admin"),
    ("/%2fadmin/", "admin"),
    ("/admin//../admin/x", "admin"),
    ("/admin%2F%2e./admin/x", "admin"),
];

/// A policy of one request per hour to /login and to /admin for each `x-case`, with /health exempt:
/// the policy that [`check_spellings`] tries to bypass.
pub fn guarded() -> Value {
    let rule = |name: &str, path: &str| {
        json!({"name": name, "when": {"paths": [path]}, "key": [{"header": "x-case"}],
            "quotas": [{"limit": 1, "window": "1h"}]})
    };
    json!({"version": 1, "exempt": [{"paths": ["/health/**"]}],
        "rules": [rule("login", "/login"), rule("admin", "/admin/**")]})
}

/// Under a policy that counts `/login` and `/admin/**` by `x-case`, 1 per hour: every spelling that
/// nginx serves as one of them is counted, so the second request is denied.
pub fn check_spellings(client: &mut Client, request: impl Fn(&str) -> Request) {
    let mut served = 0;
    for (number, (target, place)) in SPELLINGS.into_iter().enumerate() {
        let spelled = request(target).header("x-case", format!("case-{number}"));
        let first = client.send(&spelled);
        let is_there = first.header("x-location").as_deref() == Some(place);
        assert!(first.status == 200 || first.status == 404 || first.status == 400, "{target}");
        if is_there {
            served += 1;
            assert_eq!(
                client.send(&spelled).status,
                429,
                "{target} is {place} to nginx, uncounted"
            );
        }
    }
    assert!(served >= 10, "nginx served only {served}");
}
