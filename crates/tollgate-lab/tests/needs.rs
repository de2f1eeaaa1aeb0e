//! Facts missing from a log are named, all of them and no others, and assumed values are used.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]
#![allow(clippy::arithmetic_side_effects)]

use crate::support;
use std::sync::Arc;

use tollgate_access_log::{Bounds, Field, Format};
use tollgate_lab::replay::{
    AssumedValues, LogCounts, Options, Replay, Source, Summary, defaults, field, needs, wanted,
};
use tollgate_lab::simulator::unknown_facts;
use tollgate_policy::{Policy, Surface};

use support::policy;

/// A policy for a library, with one rule of these fields, 1 per minute.
fn rule(fields: &str) -> Arc<Policy> {
    document(&format!(
        r#"{{"version": 1, "rules": [{{"name": "r", "quotas": [{{"limit": 1, "window": "1m"}}], {fields}}}]}}"#
    ))
}

fn document(text: &str) -> Arc<Policy> {
    let compiled = tollgate_language::compile(text, Surface::Library);
    Arc::new(compiled.unwrap_or_else(|problems| panic!("{problems}")))
}

fn assumed(assumptions: &[&str]) -> AssumedValues {
    let mut assumed = AssumedValues::default();
    assumptions.iter().for_each(|text| assumed.assume(text).unwrap());
    assumed
}

/// The needs of a policy under a format, as `part: field`.
fn missing(policy: &Policy, format: &str, assumed: &AssumedValues) -> Vec<String> {
    let format = Format::parse(format).unwrap();
    let found = needs(policy, assumed, |field| format.contains(field));
    found.iter().map(|need| format!("{}: {}", need.part, need.field)).collect()
}

/// The effect of a policy on a log of this format.
fn replayed(policy: &Arc<Policy>, format: &str, assumed: &AssumedValues, log: &str) -> Summary {
    let format = Format::parse(format).unwrap();
    let contains = |field: &Field| format.contains(field);
    assert!(needs(policy, assumed, contains).is_empty());
    let mut source =
        Source::new(&format, wanted(policy, assumed, contains), Bounds::default()).unwrap();
    let mut replay = Replay::new(Arc::clone(policy), assumed.clone(), Options::default());
    source.feed(log.as_bytes(), &mut |record| replay.push(record)).unwrap();
    source.finish(&mut |record| replay.push(record)).unwrap();
    replay.finish(&LogCounts::default()).0
}

#[test]
fn what_only_a_rate_limit_service_is_asked_with_is_in_no_log() {
    for (fields, need) in [
        (r#""key": [{"descriptor": "user"}]"#, "key: descriptor.user"),
        (r#""key": [], "when": {"domain": "d"}"#, "when: domain"),
        (r#""key": [], "when": {"descriptor": {"a": "b"}}"#, "when: descriptor.a"),
        (r#""key": [], "unless": {"entries": [[{"a": "b"}]]}"#, "unless: entries"),
        (r#""key": [], "unless": {"beside": [[{"a": "b"}]]}"#, "unless: beside"),
    ] {
        assert_eq!(missing(&rule(fields), "combined", &AssumedValues::default()), [need]);
    }
    let format = Format::parse("combined").unwrap();
    let policy = rule(r#""key": [{"descriptor": "user"}]"#);
    let said = needs(&policy, &AssumedValues::default(), |field| format.contains(field));
    assert_eq!(
        said[0].to_string(),
        "rule \"r\": its key reads descriptor.user, which is not in the log; no access log has it; only calls to a rate limit service carry it"
    );
}

/// Every key part and condition, cost and charge under a format that contains only the time, and
/// how `--assume` supplies it.
#[test]
fn every_fact_is_a_need_until_it_is_given() {
    let tiers = r#""key": [], "tiers": [{"name": "gold", "when": {"headers": {"x-plan": "gold"}},
        "quotas": [{"limit": 9, "window": "1m"}]}]"#;
    for (fields, need, assumption) in [
        (r#""key": ["client_ip"]"#, "key: client", "client=192.0.2.1"),
        (r#""key": ["method"]"#, "key: method", "method=GET"),
        (r#""key": ["host"]"#, "key: host", "host=a.example"),
        (r#""key": ["path"]"#, "key: target", "path=/a"),
        (r#""key": ["country"]"#, "key: country", "country=DE"),
        (r#""key": ["asn"]"#, "key: asn", "asn=64500"),
        (r#""key": ["route"]"#, "key: route", "route=main"),
        (r#""key": [{"header": "X-Key"}]"#, "key: header.x-key", "header.X-Key=k"),
        (r#""key": [{"cookie": "sid"}]"#, "key: cookie.sid", "cookie.sid=s"),
        (r#""key": [{"query": "q"}]"#, "key: query.q", "query.q=1"),
        (r#""key": [{"jwt_claim": "sub"}]"#, "key: claim.sub", "claim.sub=me"),
        (
            r#""key": [{"client_certificate": "subject"}]"#,
            "key: certificate.subject",
            "certificate.subject=CN=a",
        ),
        (
            r#""key": [{"metadata": ["f", "a", "id"]}]"#,
            "key: metadata.f/a/id",
            "metadata.f/a/id=acme",
        ),
        (r#""key": [], "when": {"methods": ["GET"]}"#, "when: method", "method=GET"),
        (r#""key": [], "when": {"hosts": ["a.example"]}"#, "when: host", "host=a.example"),
        (
            r#""key": [], "unless": {"headers": {"x-me": "*"}}"#,
            "unless: header.x-me",
            "header.x-me=",
        ),
        (
            r#""key": [], "when": {"client_cidrs": ["192.0.2.0/24"]}"#,
            "when: client",
            "client=192.0.2.1",
        ),
        (tiers, "tier \"gold\": header.x-plan", "header.x-plan="),
        (
            r#""key": [], "cost": {"header": "x-cost", "max": 9}"#,
            "cost: header.x-cost",
            "header.x-cost=1",
        ),
        (
            r#""key": [], "cost": {"content_length_per": 9}"#,
            "cost: header.content-length",
            "header.content-length=9",
        ),
        (r#""key": [], "charge": {"response_status": ["200"]}"#, "charge: status", "status=200"),
    ] {
        let policy = rule(fields);
        let format = "nginx:[$time_local]";
        assert_eq!(missing(&policy, format, &AssumedValues::default()), [need], "{fields}");
        let assumed = assumed(&[assumption]);
        assert!(missing(&policy, format, &assumed).is_empty(), "{fields}");
        // Once assumed, the policy uses it: the second request within a minute is over the limit.
        let log = "[31/Jan/2026:09:00:00 +0000]\n[31/Jan/2026:09:00:01 +0000]\n";
        assert_eq!(replayed(&policy, format, &assumed, log).requests.denied, 1, "{fields}");
    }
}

#[test]
fn exemptions_and_every_rule_are_looked_at_and_each_need_named_once() {
    let policy = document(
        r#"{"version": 1, "exempt": [{"headers": {"x-internal": "*"}}],
        "rules": [
        {"name": "a", "when": {"hosts": ["a.example", "b.example"]}, "key": ["host", "client_ip"],
         "quotas": [{"limit": 1, "window": "1m"}]},
        {"name": "b", "key": [{"header": "user-agent"}], "quotas": [{"limit": 1, "window": "1m"}]}]}"#,
    );
    let found = missing(&policy, "combined", &AssumedValues::default());
    assert_eq!(found, ["exempt[0]: header.x-internal", "when: host", "key: host"]);
    let format = Format::parse("combined").unwrap();
    let said = needs(&policy, &AssumedValues::default(), |field| format.contains(field));
    let message = "exempt[0] reads header.x-internal, which is not in the log; use --map \
                   header.x-internal=COLUMN or --assume header.x-internal=VALUE";
    assert_eq!(said[0].to_string(), message);
    assert!(said[1].to_string().starts_with("rule \"a\": its when reads host, "));
}

#[test]
fn a_client_behind_proxies_is_read_from_the_log_or_said_to_be_known() {
    let text = |source: &str| {
        format!(
            r#"{{"version": 1, "client_ip": {source}, "rules": [{{"name": "r", "key": ["client_ip"],
            "quotas": [{{"limit": 1, "window": "1m"}}]}}]}}"#
        )
    };
    let behind = policy(&text(r#"{"source": "x-forwarded-for", "trusted_hops": 1}"#));
    let need = ["key: header.x-forwarded-for"];
    assert_eq!(missing(&behind, "combined", &AssumedValues::default()), need);
    assert!(missing(&behind, "combined", &assumed(&["client=log"])).is_empty());
    let mut mapped = AssumedValues::default();
    mapped.mapped(&Field::Client);
    assert!(missing(&behind, "combined", &mapped).is_empty());
    // No proxy is trusted to write the header, so the connection's address counts.
    let alone = policy(&text(r#"{"source": "x-forwarded-for"}"#));
    assert!(missing(&alone, "combined", &AssumedValues::default()).is_empty());
    // With the header its last address counts, without it the client in the log.
    let format = "nginx:$remote_addr [$time_local] \"$http_x_forwarded_for\"";
    let line = |second: u64, peer: &str, list: &str| {
        format!("{peer} [31/Jan/2026:09:00:{second:02} +0000] \"{list}\"\n")
    };
    let log = line(1, "10.0.0.1", "198.51.100.1, 203.0.113.1")
        + &line(2, "10.0.0.1", "198.51.100.1, 203.0.113.2")
        + &line(3, "10.0.0.2", "198.51.100.2, 203.0.113.2");
    let found = replayed(&behind, format, &AssumedValues::default(), &log);
    assert_eq!((found.requests.denied, found.clients.total), (1, 2));
    assert_eq!(found.keys.top[0].key, "203.0.113.2");
    let found = replayed(&behind, format, &assumed(&["client=log"]), &log);
    assert_eq!((found.requests.denied, &*found.keys.top[0].key), (1, "10.0.0.1"));
}

#[test]
fn a_parameter_or_cookie_may_have_a_column_of_its_own() {
    let query = rule(r#""key": [{"query": "q r"}]"#);
    let cookie = rule(r#""key": [{"cookie": "sid"}]"#);
    let line = |second: u64, target: &str, own: &str| {
        format!("a [31/Jan/2026:09:00:{second:02} +0000] {target} \"{own}\"\n")
    };
    let log =
        line(1, "/", "one") + &line(2, "/", "two") + &line(3, "/", "one") + &line(4, "/", "-");
    for (policy, variable, name) in
        [(&query, "own", "query.q r"), (&cookie, "own", "cookie.sid"), (&cookie, "cookie_sid", "")]
    {
        let spec = format!("nginx:$remote_addr [$time_local] $request_uri \"${variable}\"");
        let format = Format::parse(&spec).unwrap();
        let format = match name {
            "" => format,
            name => format.with_map(&format!("{name}={variable}")).unwrap(),
        };
        let contains = |field: &Field| format.contains(field);
        let fields = wanted(policy, &AssumedValues::default(), contains);
        let mut source = Source::new(&format, fields, Bounds::default()).unwrap();
        let mut replay =
            Replay::new(Arc::clone(policy), AssumedValues::default(), Options::default());
        source.feed(log.as_bytes(), &mut |record| replay.push(record)).unwrap();
        source.finish(&mut |record| replay.push(record)).unwrap();
        let found = replay.finish(&LogCounts::default()).0;
        assert_eq!((found.rules[0].allowed, found.rules[0].denied), (2, 1), "{variable} {name}");
        assert_eq!(found.keys.top[0].key, "one");
    }
    // A path without its query does not contain it.
    let format = "nginx:$remote_addr [$time_local] $uri";
    assert_eq!(missing(&query, format, &AssumedValues::default()), ["key: query.q r"]);
}

/// A rule that read the log's own values in their place would limit no client.
#[test]
fn what_is_assumed_or_mapped_goes_before_what_the_log_has() {
    let rules = |key: &str| {
        let text = format!(
            r#"{{"version": 1, "rules": [
            {{"name": "r", "key": [{key}], "quotas": [{{"limit": 1, "window": "1m"}}]}},
            {{"name": "other", "key": [{{"cookie": "other"}}, {{"query": "z"}}],
             "quotas": [{{"limit": 99, "window": "1m"}}]}}]}}"#
        );
        policy(&text)
    };
    let (query, cookie) = (rules(r#"{"query": "k y"}"#), rules(r#"{"cookie": "sid"}"#));
    let log: String = (0..4)
        .map(|i| {
            let target = format!("/a?z=1&k%20y={i}&k+{i}=2");
            format!("a [31/Jan/2026:09:00:0{i} +0000] {target} \"sid={i}; other=1\" \"same\"\n")
        })
        .collect();
    let spec = "nginx:$remote_addr [$time_local] $request_uri \"$http_cookie\" \"$own\"";
    for (policy, assumption, map, decided) in [
        (&query, "", "", (4, 0)),
        (&query, "query.k y=1", "", (1, 3)),
        (&query, "query.k y=", "", (0, 0)),
        (&query, "", "query.k y=own", (1, 3)),
        (&cookie, "", "", (4, 0)),
        (&cookie, "cookie.sid=1", "", (1, 3)),
        (&cookie, "cookie.sid=", "", (0, 0)),
        (&cookie, "", "cookie.sid=own", (1, 3)),
    ] {
        let assumed =
            if assumption.is_empty() { AssumedValues::default() } else { assumed(&[assumption]) };
        let format = Format::parse(spec).unwrap();
        let format = if map.is_empty() { format } else { format.with_map(map).unwrap() };
        let fields = wanted(policy, &assumed, |field| format.contains(field));
        let mut source = Source::new(&format, fields, Bounds::default()).unwrap();
        let mut replay = Replay::new(Arc::clone(policy), assumed, Options::default());
        source.feed(log.as_bytes(), &mut |record| replay.push(record)).unwrap();
        source.finish(&mut |record| replay.push(record)).unwrap();
        let found = replay.finish(&LogCounts::default()).0;
        let [rule, other] = [&found.rules[0], &found.rules[1]];
        assert_eq!((rule.allowed, rule.denied), decided, "{assumption} {map}");
        assert_eq!(other.allowed, 4, "the others stay: {assumption} {map}");
    }
}

#[test]
fn fields_have_the_names_of_the_policy_and_of_the_log() {
    assert_eq!(field("client_ip"), Ok(Field::Client));
    assert_eq!(field("path"), Ok(Field::Target));
    assert_eq!(field("header.X-Key"), Ok(Field::Header("x-key".to_owned())));
    assert!(field("ip").unwrap_err().starts_with("\"ip\" is not a field; use client,"));
}

/// Guards: a limit of requests that a log lacks, and of which the report says nothing.
#[test]
fn a_limit_that_the_log_lacks_is_noted_and_does_not_end_the_replay() {
    let limited = |from: &str| {
        document(&format!(
            r#"{{"version": 1, "rules": [{{"name": "r", "key": ["client_ip"], "quotas": [{{"limit": 1, "window": "1m",
                "algorithm": "fixed-window", "limit_from": {{{from}, "max": 9}}}}]}}]}}"#
        ))
    };
    let format = Format::parse("combined").unwrap();
    let noted = |policy: &Policy, assumed: &AssumedValues| {
        assert_eq!(needs(policy, assumed, |field| format.contains(field)), []);
        defaults(policy, assumed, |field| format.contains(field))
    };
    let (none, header) = (AssumedValues::default(), limited(r#""header": "x-limit""#));
    let words = |field: &str| {
        format!(
            "rule \"r\": its limit_from reads {field}, which is not in the log; use --map {field}=COLUMN or --assume {field}=VALUE; without it the quota's own limit applies"
        )
    };
    assert_eq!(noted(&header, &none), [words("header.x-limit")]);
    assert_eq!(noted(&header, &assumed(&["header.x-limit=5"])), [""; 0]);
    assert_eq!(noted(&limited(r#""claim": "rate""#), &none), [words("claim.rate")]);
    assert_eq!(noted(&limited(r#""header": "referer""#), &none), [""; 0], "the log has it");
    assert_eq!(noted(&rule(r#""key": ["client_ip"]"#), &none), [""; 0]);
}

/// Guards: a simulation in which a rule limits no client, because no request has its key.
#[test]
fn facts_that_simulated_traffic_does_not_contain_are_named() {
    let own =
        "which simulated traffic does not contain, so every request is decided as one without it";
    for (fields, expected) in [
        (r#""key": [{"jwt_claim": "sub"}]"#, format!("rule \"r\": its key reads claim.sub, {own}")),
        (
            r#""key": [{"metadata": ["a.b", "c"]}]"#,
            format!("rule \"r\": its key reads metadata.a.b/c, {own}"),
        ),
        (
            r#""key": [], "when": {"routes": ["a"]}"#,
            format!("rule \"r\": its when reads route, {own}"),
        ),
    ] {
        assert_eq!(unknown_facts(&rule(fields)), [expected], "{fields}");
    }
    let limited = document(
        r#"{"version": 1, "rules": [{"name": "r", "key": ["client_ip"], "quotas": [{"limit": 1, "window": "1m",
            "algorithm": "fixed-window", "limit_from": {"claim": "rate", "max": 9}}]}]}"#,
    );
    assert_eq!(
        unknown_facts(&limited),
        [
            "rule \"r\": its limit_from reads claim.rate, which simulated traffic does not contain, so the quota's own limit applies"
        ]
    );
    assert_eq!(unknown_facts(&rule(r#""key": ["client_ip", {"header": "x"}, "path"]"#)), [""; 0]);
}
