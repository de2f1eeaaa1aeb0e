//! Secrets at the wrong place of a document: public texts of a problem never repeat them.
//!
//! A document with every field is spoiled at every place in every way: the secret as value, as
//! item, as name, next to the right one, at the end of a text, given twice.

use serde_json::{Map, Value, json};
use tollgate_language::DescribedRequest;
use tollgate_policy::{Problems, Surface};

/// Without a character that would end a name or a text.
const SECRET: &str = "sk_live_4eC39HqLyjWDarjtT1zdp7dc";

/// Every field of the document.
fn full() -> Value {
    json!({
        "$schema": "x", "version": 1, "on_failure": "deny",
        "client_ip": {"source": "x-forwarded-for", "trusted_proxies": ["10.0.0.0/8"], "ipv4_prefix": 32, "ipv6_prefix": 64},
        "geo": {"country_header": "x-country", "asn_header": "x-asn"},
        "jwt": {"header": "authorization", "issuer": "i", "audiences": ["a"], "keys": [
            {"kty": "oct", "alg": "HS256", "kid": "1", "k": "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8"},
            {"kty": "EC", "alg": "ES256", "crv": "P-256", "x": "x", "y": "y"},
            {"kty": "RSA", "alg": "RS256", "n": "n", "e": "AQAB"}]},
        "response": {"headers": "draft-7", "policy": false, "jitter": "2s", "on_allow": true, "partition_key": true, "body": "text"},
        "exempt": [{"client_cidrs": ["192.0.2.0/24"]}],
        "rules": [{
            "name": "login",
            "when": {"methods": ["POST"], "hosts": ["*.a.b"], "paths": ["/u/{id}/**"], "headers": {"x-a": ["1", {"prefix": "2"}]},
                "query": {"q": "*"}, "client_cidrs": ["10.0.0.0/8"], "routes": ["r"], "countries": ["DE"], "asns": [1]},
            "unless": {"methods": ["OPTIONS"]},
            "key": ["client_ip", {"header": "x-api-key"}, {"cookie": "s"}, {"query": "q"}, {"path_param": "id"}, {"jwt_claim": "sub"}],
            "on_missing": "shared", "on_failure": "allow", "cost": {"header": "x-cost", "default": 1, "max": 1000},
            "charge": {"response_status": ["401", "5xx"]}, "mode": {"enforce_percent": 10},
            "action": {"mark": {"header": "x-over", "value": "yes"}}, "capacity": 65536, "durability": "relaxed",
            "quotas": [{"name": "q", "limit": 100, "window": "1m", "burst": 20, "strict": false, "algorithm": "gcra"},
                {"name": "s", "limit": 100, "window": "1m", "algorithm": "sliding-buckets", "buckets": 6}],
            "tiers": [{"name": "gold", "priority": 10, "key_values": ["k"], "when": {"paths": ["/u/{id}/**"]},
                "quotas": [{"limit": 1000, "window": "1m"}]}]
        }, {
            "name": "two", "key": [], "action": {"delay": {"max": "2s"}}, "cost": 2, "charge": "request", "mode": "shadow",
            "quotas": [{"limit": 1, "window": "1s"}]
        }, {
            "name": "three", "key": ["path"], "scope": {"share": 1}, "action": {"respond": {"status": 201, "body": "b"}}, "quotas": [{"limit": 1, "window": "1s"}]
        }, {
            "name": "four", "key": ["host"], "action": {"deny": {"status": 403}}, "quotas": [{"limit": 1, "window": "1s"}]
        }],
    })
}

/// Every way to spoil `value` with the secret.
fn spoiled(value: &Value) -> Vec<Value> {
    let mut all = vec![json!(SECRET), json!([SECRET]), json!({SECRET: SECRET}), json!([[SECRET]])];
    match value {
        Value::String(text) => all.push(json!(format!("{text}{SECRET}"))),
        Value::Array(items) => {
            all.push(items.iter().cloned().chain([json!(SECRET)]).collect());
            for (i, item) in items.iter().enumerate() {
                all.extend(spoiled(item).into_iter().map(|bad| {
                    let (before, after) = items.split_at(i);
                    before
                        .iter()
                        .cloned()
                        .chain([bad])
                        .chain(after.iter().skip(1).cloned())
                        .collect()
                }));
            }
        }
        Value::Object(fields) => {
            let with = |name: &str, value: Value, without: &str| {
                let mut fields = fields.clone();
                fields.remove(without);
                fields.insert(name.to_owned(), value);
                Value::Object(fields)
            };
            for name in [SECRET.to_owned(), format!("{SECRET} {SECRET}"), format!("é{SECRET}")] {
                all.push(with(&name, json!(1), ""));
                all.push(with(&name, json!({SECRET: [SECRET]}), ""));
            }
            for (name, value) in fields {
                all.push(with(SECRET, value.clone(), name));
                all.push(with(&format!("{name}.{SECRET}"), value.clone(), name));
                all.extend(spoiled(value).into_iter().map(|bad| with(name, bad, name)));
            }
        }
        _ => {}
    }
    all
}

/// The same text with each of its fields given twice, first with the secret.
fn with_twins(document: &Value) -> Vec<String> {
    let text = document.to_string();
    let ends = text.match_indices("\":").map(|(end, quote)| end.saturating_add(quote.len()));
    ends.map(|end| {
        let named = text.split_at(end).0.trim_end_matches(':');
        let start = named.trim_end_matches('"').rfind('"').unwrap_or(0);
        let ((before, after), (_, name)) = (text.split_at(start), named.split_at(start));
        format!("{before}{name}:\"{SECRET}\",{after}")
    })
    .collect()
}

fn check(problems: &Problems, document: &str) {
    for problem in &problems.0 {
        assert!(!problem.place.contains("sk_live"), "{problem:?} of {document}");
        let is_own = problem.path != problem.place;
        assert!(!is_own || problem.place.contains('*'), "{problem:?}");
    }
}

#[test]
fn no_place_repeats_a_misplaced_secret() {
    let mut documents: Vec<String> = spoiled(&full()).iter().map(Value::to_string).collect();
    documents.extend(with_twins(&full()));
    documents.push(format!("{{\"version\": 1, {SECRET}}}"));
    documents.push(SECRET.to_owned());
    let (mut repeated, mut places) = (0, Map::new());
    for document in &documents {
        for surface in [Surface::Worker, Surface::Envoy] {
            let Err(problems) = tollgate_language::compile(document, surface) else { continue };
            check(&problems, document);
            repeated += usize::from(problems.to_string().contains("sk_live"));
            let seen = problems.0.into_iter().map(|problem| (problem.place, Value::Null));
            places.extend(seen);
        }
    }
    // The private texts do repeat it, at many places; otherwise this test would prove nothing.
    assert!(documents.len() > 800 && repeated > 800, "{} {repeated}", documents.len());
    assert!(places.len() > 100, "{:?}", places.keys());
    assert!(places.contains_key("rules[0].when.headers.*"), "{:?}", places.keys());
}

#[test]
fn no_place_of_a_described_request_repeats_a_secret() {
    let request = json!({"method": "GET", "host": "a.b", "path": "/", "headers": {"x-a": "1"}, "client_ip": "192.0.2.1",
        "country": "DE", "asn": 1, "response_status": 200});
    let mut refused = 0;
    for document in spoiled(&request) {
        if let Err(problems) = DescribedRequest::parse(document.to_string().as_bytes()) {
            check(&problems, &document.to_string());
            refused += 1;
        }
    }
    assert!(refused > 30, "{refused}");
}
