//! A key that is named by its values is the one that requests with these values are counted by.

use serde_json::{Value, json};
use tollgate_policy::{GivenKey, NoKey, Plan, Policy, Problem, Surface};

use crate::support::{Request, get};

const POLICY: &str = r#"{"version": 1,
    "jwt": {"keys": [{"kty": "oct", "alg": "HS256", "k": "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"}]},
    "rules": [
    {"name": "site", "key": [{"client_ip": {"ipv6_prefix": 48}}], "quotas": [{"limit": 1, "window": "1h"}]},
    {"name": "either", "key": [{"any_of": [{"header": "x-either", "lower": true}, "client_ip"]}], "quotas": [{"limit": 1, "window": "1h"}]},
    {"name": "address", "key": ["client_ip"], "quotas": [{"limit": 1, "window": "1h"}]},
    {"name": "parts", "key": ["client_ip", {"header": "X-Key"}], "quotas": [{"limit": 1, "window": "1h"}]},
    {"name": "host", "key": ["host"], "quotas": [{"limit": 1, "window": "1h"}]},
    {"name": "path", "key": ["path", "method"], "quotas": [{"limit": 1, "window": "1h"}]},
    {"name": "cookie", "key": [{"cookie": "sid"}], "quotas": [{"limit": 1, "window": "1h"}]},
    {"name": "query", "key": [{"query": "a b"}], "quotas": [{"limit": 1, "window": "1h"}]},
    {"name": "item", "key": [{"path_param": "id"}], "when": {"paths": ["/items/{id}"]}, "quotas": [{"limit": 1, "window": "1h"}]},
    {"name": "claim", "key": [{"jwt_claim": "sub"}], "quotas": [{"limit": 1, "window": "1h"}]},
    {"name": "edge", "key": ["country", "asn"], "quotas": [{"limit": 1, "window": "1h"}]},
    {"name": "all", "key": [], "quotas": [{"limit": 1, "window": "1h"}]},
    {"name": "token", "key": [{"header": "x-token"}], "on_missing": "shared", "quotas": [{"limit": 1, "window": "1h"}]}
    ]}"#;

fn policy() -> Policy {
    tollgate_language::compile(POLICY, Surface::Worker).unwrap_or_else(|e| panic!("{e}"))
}

fn key_of(rule: &str, values: &[&str]) -> Result<Vec<u8>, NoKey> {
    let values: Vec<String> = values.iter().map(ToString::to_string).collect();
    GivenKey::new(&policy(), rule, &values).map(|key| key.bytes().to_vec())
}

/// The keys that a request is counted by.
fn keys(request: &Request) -> Vec<Vec<u8>> {
    let mut plan = Plan::new();
    policy().plan(request, &mut plan);
    plan.partitions().map(|partition| partition.key().to_vec()).collect()
}

#[test]
fn a_named_key_is_that_of_its_requests() {
    let items = || get("/items/a%2Fb", "192.0.2.1");
    let rows: Vec<(&str, Vec<&str>, Request)> = vec![
        ("address", vec!["192.0.2.1"], get("/", "192.0.2.1")),
        ("address", vec!["::ffff:192.0.2.1"], get("/", "192.0.2.1")),
        ("address", vec!["2001:DB8::9:9:9:9"], get("/", "2001:db8::1")),
        ("either", vec!["0=Alice=1"], get("/", "192.0.2.1").header("x-either", "aLICE=1")),
        ("either", vec!["1=2001:DB8::9:9"], get("/", "2001:db8::1")),
        ("site", vec!["2001:DB8:0:9::"], get("/", "2001:db8:0:1::1")),
        ("parts", vec!["2001:db8::9", "k, k"], get("/", "2001:db8::1").header("x-key", "k, k")),
        ("host", vec!["EXAMPLE.com:443"], Request { host: "example.com", ..get("/", "192.0.2.1") }),
        ("path", vec!["/a/./b//c%41", "get"], get("/a/b/cA?x", "192.0.2.1")),
        ("path", vec!["/a/b/cA", "GET"], get("/a/./b//c%41", "192.0.2.1")),
        ("cookie", vec!["s 1"], get("/", "192.0.2.1").header("cookie", "a=b; sid=s 1; sid2=x")),
        ("query", vec!["ö&=%41 +"], get("/?a%20b=%C3%B6%26%3D%2541%20%2B", "192.0.2.1")),
        ("claim", vec!["user 1"], Request { claims: vec![("sub", "user 1")], ..items() }),
        (
            "edge",
            vec!["de", "64500"],
            Request { country: Some("DE"), asn: Some("64500"), ..items() },
        ),
        ("all", vec![], items()),
        ("token", vec!["t"], items().header("x-token", "t")),
        ("token", vec![], items()),
    ];
    for (rule, values, request) in rows {
        let key = key_of(rule, &values).unwrap();
        assert!(keys(&request).contains(&key), "{rule} {values:?}");
    }
    // The captured text of a path segment, as it is counted.
    let captured = key_of("item", &["a"]).unwrap();
    assert!(keys(&get("/items/a", "192.0.2.1")).contains(&captured));
}

const CHOICE: &str =
    "any_of: begin with the number of the part and \"=\", such as 0= for the first";

#[test]
fn other_values_are_other_keys_and_what_is_none_is_refused() {
    assert_ne!(key_of("address", &["192.0.2.1"]), key_of("address", &["192.0.2.2"]));
    assert_ne!(key_of("parts", &["192.0.2.1", "a"]), key_of("parts", &["192.0.2.1", "b"]));
    assert_ne!(key_of("token", &["t"]), key_of("token", &[]));
    assert_ne!(key_of("either", &["0=192.0.2.1"]), key_of("either", &["1=192.0.2.1"]));
    assert_eq!(key_of("none", &[]), Err(NoKey::NoRule));
    for (rule, values, path, why) in [
        ("address", vec!["secret"], "key[0]", "client_ip: is not an address"),
        ("either", vec!["alice"], "key[0]", CHOICE),
        ("either", vec!["2=alice"], "key[0]", CHOICE),
        ("either", vec!["01=192.0.2.1"], "key[0]", CHOICE),
        ("either", vec!["1=alice"], "key[0]", "any_of: is not an address"),
        ("either", vec![], "key", "has 1 part (any_of), and 0 values are given"),
        ("address", vec![""], "key[0]", "client_ip: is not an address"),
        ("address", vec![], "key", "has 1 part (client_ip), and 0 values are given"),
        ("parts", vec!["::1"], "key", "has 2 parts (client_ip, header), and 1 values are given"),
        ("host", vec!["a b"], "key[0]", "host: a request with it cannot be read"),
        ("host", vec![""], "key[0]", "host: no request has this value"),
        ("path", vec!["/a%2fb/../x", "GET"], "key[0]", "path: a request with it cannot be read"),
        ("item", vec![".."], "key[0]", "path_param: no request has this value"),
    ] {
        let wrong = NoKey::Wrong(Problem::new(path, why.into()));
        assert_eq!(key_of(rule, &values), Err(wrong), "{rule} {values:?}");
    }
}

/// The fields of a key part that do not name its kind.
const SETTINGS: [&str; 3] = ["repeated", "lower", "match"];

/// The key parts that the schema knows, as a document has them, each called `c` where it has a
/// name.
fn parts_of_the_schema() -> Vec<Value> {
    let schema: Value = serde_json::from_str(&tollgate_language::schema()).unwrap();
    let kinds =
        &schema["properties"]["rules"]["items"]["anyOf"][0]["properties"]["key"]["items"]["anyOf"];
    let plain = kinds[0]["enum"].as_array().unwrap().clone();
    let named = kinds[1]["properties"].as_object().unwrap().keys();
    let form = |name: &String| match name.as_str() {
        name if SETTINGS.contains(&name) => None,
        "host" | "path" | "route" => None, // among the plain ones; here they are searched
        "client_ip" => Some(json!({"client_ip": {"ipv4_prefix": 24, "ipv6_prefix": 48}})),
        "cf" => Some(json!({"cf": "ja4"})),
        "client_certificate" => Some(json!({"client_certificate": "subject"})),
        "metadata" => Some(json!({"metadata": ["f", "c"]})),
        name => Some(json!({ name: "c" })),
    };
    plain.into_iter().chain(named.filter_map(form)).collect()
}

/// `value` with every character escaped that a path or a query may not have; an escape stays one.
fn in_url(value: &str) -> String {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~%".contains(byte);
    value.bytes().fold(String::new(), |text, byte| match byte {
        byte if is_plain(&byte) => text + str::from_utf8(&[byte]).unwrap(),
        byte => format!("{text}%{byte:02X}"),
    })
}

/// A request of a client that sends `value` for a key part.
fn with(part: &Value, value: &'static str) -> Request {
    let name = part
        .as_str()
        .or_else(|| part.as_object()?.keys().map(String::as_str).find(|n| !SETTINGS.contains(n)));
    let request = get("/", "192.0.2.1");
    match name.unwrap() {
        "client_ip" => Request { peer: value.parse().ok(), ..request },
        "method" => request.method(value),
        "host" => Request { host: value, ..request },
        "path" => Request { target: value.into(), ..request },
        "country" => Request { country: Some(value), ..request },
        "asn" => Request { asn: Some(value), ..request },
        "route" => Request { route: Some(value), ..request },
        "header" => request.header("c", value),
        "cookie" => {
            let value = value.replace(';', "%3B").replace(',', "%2C");
            request.header("cookie", format!("b=1; c={value}; d=2"))
        }
        "query" => get(&format!("/?b&c={}&d", in_url(&value.replace('%', "%25"))), "192.0.2.1"),
        "path_param" => get(&format!("/items/{}", in_url(value)), "192.0.2.1"),
        "jwt_claim" => Request { claims: vec![("c", value)], ..request },
        "cf" => Request { cf: vec![("ja3", "1"), ("ja4", value)], ..request },
        "client_certificate" => {
            Request { certificate: vec![("sha256", "1"), ("subject", value)], ..request }
        }
        "metadata" => Request { metadata: vec![("f/b", "1"), ("f/c", value)], ..request },
        "descriptor" => Request { entries: vec![("b", "1"), ("c", value)], ..request },
        other => panic!("how does a request have {other}? Say so here and in given_key.rs"),
    }
}

/// A policy with one rule that counts by `part`, on a surface that knows it.
fn by(part: &Value) -> Policy {
    let rule = json!({
        "name": "r", "key": [part], "quotas": [{"limit": 1, "window": "1h"}],
        "when": part.get("path_param").map(|_| json!({"paths": ["/items/{c}"]})),
    });
    let jwt = json!({"keys": [{"kty": "oct", "alg": "HS256",
        "k": "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"}]});
    let mut document = json!({"version": 1, "rules": [rule]});
    document["rules"][0].as_object_mut().unwrap().retain(|_, value| !value.is_null());
    if part.get("jwt_claim").is_some() {
        document["jwt"] = jwt;
    }
    let document = document.to_string();
    let mut surfaces = Surface::ALL.iter().rev();
    surfaces.find_map(|surface| tollgate_language::compile(&document, *surface).ok()).unwrap()
}

/// Whatever a client may send for any part of a key, an operator can name it as the client sent it;
/// and a value that no client can send is not a key.
#[test]
fn every_key_part_of_the_schema_can_be_named() {
    const VALUES: [&str; 22] = [
        "a",
        "A",
        "",
        " ",
        "a b",
        " a",
        "a,b",
        "a, b",
        "a; c=b",
        "\"a\"",
        "ü",
        "a/b",
        "/a/b",
        "/a%2Fb",
        "a%2fb",
        "%41",
        "/a/%2e%2e/b",
        "..",
        "192.0.2.9",
        "2001:db8::9",
        "a=b&c",
        "a.example:443",
    ];
    let mut named = 0;
    for part in parts_of_the_schema() {
        let mut forms = vec![part.clone()];
        if ["header", "cookie", "query"].iter().any(|name| part.get(name).is_some()) {
            for word in ["refuse", "first", "last", "join"] {
                let mut form = part.clone();
                form["repeated"] = word.into();
                forms.push(form);
            }
        }
        if part.as_object().is_some_and(|fields| !fields.contains_key("client_ip")) {
            let lowered = |form: &Value| {
                let mut form = form.clone();
                form["lower"] = true.into();
                form
            };
            forms.extend(forms.iter().map(lowered).collect::<Vec<_>>());
        }
        for form in forms {
            let policy = by(&form);
            for value in VALUES {
                let mut plan = Plan::new();
                policy.plan(&with(&form, value), &mut plan);
                let of_request = plan.partitions().next().map(|one| one.key().to_vec());
                let given = GivenKey::new(&policy, "r", &[value.to_owned()]);
                let given = given.ok().map(|key| key.bytes().to_vec());
                assert_eq!(given, of_request, "{form} {value:?}");
                named += usize::from(given.is_some());
            }
        }
    }
    assert!(named > 300, "{named}");
}
