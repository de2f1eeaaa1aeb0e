//! The declared reads of a policy are its actual reads, and all of them.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::net::IpAddr;

use serde_json::Value;
use tollgate_language::schema;
use tollgate_policy::explain::{KeyValue, Reader};
use tollgate_policy::spec::{CertificateField, CloudflareField};
use tollgate_policy::{Ending, Entry, Facts, Plan, Policy, Surface};

use crate::support::{Request, get};

/// Each key part of the document, and the fact that it reads.
const KEY_PARTS: &[(&str, &str)] = &[
    (r#""client_ip""#, "client_ip"),
    (r#""method""#, "method"),
    (r#""host""#, "host"),
    (r#""path""#, "path"),
    (r#""country""#, "country"),
    (r#""asn""#, "asn"),
    (r#""route""#, "route"),
    (r#"{"header": "X-Key"}"#, "header.x-key"),
    (r#"{"cookie": "sid"}"#, "cookie.sid"),
    (r#"{"query": "q"}"#, "query.q"),
    (r#"{"path_param": "id"}"#, "path"),
    (r#"{"jwt_claim": "sub"}"#, "claim.sub"),
    (r#"{"descriptor": "user"}"#, "descriptor.user"),
    (r#"{"cf": "ja4"}"#, "cf.ja4"),
    (r#"{"client_certificate": "uri_san"}"#, "certificate.uri_san"),
    (r#"{"metadata": ["f", "a", "id"]}"#, "metadata.f/a/id"),
];

/// Each condition of the document, and the fact that it reads.
const CONDITIONS: &[(&str, &str, &str)] = &[
    ("methods", r#"["GET"]"#, "method"),
    ("hosts", r#"["a.example"]"#, "host"),
    ("paths", r#"["/{id}"]"#, "path"),
    ("headers", r#"{"X-Plan": "gold"}"#, "header.x-plan"),
    ("query", r#"{"q": "1"}"#, "query.q"),
    ("client_cidrs", r#"["192.0.2.0/24"]"#, "client_ip"),
    ("routes", r#"["r"]"#, "route"),
    ("countries", r#"["DE"]"#, "country"),
    ("asns", "[64500]", "asn"),
    ("domain", r#""d""#, "domain"),
    ("descriptor", r#"{"user": "7"}"#, "descriptor.user"),
    ("entries", r#"[[{"user": "7"}]]"#, "entries"),
    ("beside", r#"[[{"user": "7"}]]"#, "beside"),
];

fn compile(document: &str, surface: Surface) -> Policy {
    tollgate_language::compile(document, surface).unwrap_or_else(|problems| panic!("{problems}"))
}

/// A policy of one rule with these fields.
fn rule(fields: &str) -> Policy {
    let document = format!(
        r#"{{"version": 1, "rules": [{{"name": "r", "quotas": [{{"limit": 1, "window": "1m"}}], {fields}}}]}}"#
    );
    // Only the Worker has facts of Cloudflare's; a library has all others.
    let surface = if fields.contains(r#""cf""#) { Surface::Worker } else { Surface::Library };
    compile(&document, surface)
}

/// The declared reads and their readers, as text.
fn reads(policy: &Policy) -> Vec<String> {
    let by = |by: &Reader<'_>| match by {
        Reader::Exempt(i) => format!("exempt[{i}]"),
        Reader::Tenant => "tenant".to_owned(),
        Reader::Condition(rule, name) => format!("{rule} {name}"),
        Reader::Key(rule) => format!("{rule} key"),
        Reader::Tier(rule, name) => format!("{rule} tier {name}"),
        Reader::Cost(rule) => format!("{rule} cost"),
        Reader::Charge(rule) => format!("{rule} charge"),
        Reader::Limit(rule) => format!("{rule} limit_from"),
        Reader::Deny(rule, name) => format!("{rule} {name}"),
    };
    policy.explain().reads().iter().map(|read| format!("{}: {}", by(&read.by), read.fact)).collect()
}

/// The parts that the schema permits, so that a new one without a row here is found.
fn of_schema(pointer: &str) -> Value {
    let schema: Value = serde_json::from_str(&schema()).unwrap();
    schema.pointer(&format!("/properties/rules/items/anyOf/0/properties{pointer}")).unwrap().clone()
}

#[test]
fn every_key_part_names_what_it_reads() {
    for (part, fact) in KEY_PARTS {
        let when =
            if part.contains("path_param") { r#""when": {"paths": ["/{id}"]}, "# } else { "" };
        let policy = rule(&format!(r#"{when}"key": [{part}]"#));
        assert_eq!(reads(&policy).last().unwrap(), &format!("0 key: {fact}"));
    }
    let plain = of_schema("/key/items/anyOf/0/enum");
    let plain = plain.as_array().unwrap().iter().map(|name| name.as_str().unwrap().to_owned());
    let named = of_schema("/key/items/anyOf/1/properties");
    let is_part = |name: &&String| !["repeated", "lower", "match"].contains(&name.as_str());
    let named = named.as_object().unwrap().keys().filter(is_part).cloned();
    let rows = KEY_PARTS.iter().map(|(part, _)| part.split('"').nth(1).unwrap().to_owned());
    assert_eq!(rows.collect::<BTreeSet<_>>(), plain.chain(named).collect());
    // A request may be counted by any of several parts.
    let policy = rule(r#""key": [{"any_of": [{"header": "x-user"}, "country", "client_ip"]}]"#);
    let wanted = ["0 key: header.x-user", "0 key: country", "0 key: client_ip"];
    assert_eq!(reads(&policy), wanted);
}

#[test]
fn every_condition_names_what_it_reads_wherever_it_stands() {
    for (name, value, fact) in CONDITIONS {
        let condition = format!(r#"{{"{name}": {value}}}"#);
        let quotas = r#""quotas": [{"limit": 1, "window": "1m"}]"#;
        for (by, fields) in [
            ("when", format!(r#""when": {condition}"#)),
            ("unless", format!(r#""unless": {condition}"#)),
            (
                "priority",
                format!(r#""action": {{"delay": {{"max": "1s", "priority": [{condition}]}}}}"#),
            ),
            ("tier t", format!(r#""tiers": [{{"name": "t", "when": {condition}, {quotas}}}]"#)),
        ] {
            let policy = rule(&format!(r#"{fields}, "key": []"#));
            assert_eq!(reads(&policy), [format!("0 {by}: {fact}")]);
        }
        let exempt = format!(
            r#"{{"version": 1, "exempt": [{condition}], "rules": [{{"name": "r", "key": [], {quotas}}}]}}"#
        );
        let found = reads(&compile(&exempt, Surface::Library));
        assert_eq!(found, [format!("exempt[0]: {fact}")]);
    }
    let known = of_schema("/when/properties");
    let rows = CONDITIONS.iter().map(|(name, ..)| (*name).to_owned());
    assert_eq!(rows.collect::<BTreeSet<_>>(), known.as_object().unwrap().keys().cloned().collect());
}

#[test]
fn costs_and_charges_name_what_they_read() {
    let cost = rule(r#""key": [], "cost": {"header": "X-Cost", "max": 9}"#);
    assert_eq!(reads(&cost), ["0 cost: header.x-cost"]);
    let length = rule(r#""key": [], "cost": {"content_length_per": 9}"#);
    assert_eq!(reads(&length), ["0 cost: header.content-length"]);
    let charge = rule(r#""key": [], "charge": {"response_status": ["5xx"]}"#);
    assert_eq!(reads(&charge), ["0 charge: status"]);
    assert_eq!(
        [499, 500, 599].map(|status| charge.rules()[0].used(3, Ending::Response(status), &())),
        [0, 3, 3]
    );
    assert_eq!(cost.rules()[0].used(3, Ending::Response(404), &()), 3, "by the request");
    let settled = |more: &str| {
        let header = r#""actual": {"header": "X-Tokens"}"#;
        rule(&format!(r#""key": [], "cost": {{"estimate": 1, "max": 2, {header}{more}}}"#))
    };
    assert_eq!(reads(&settled("")), ["0 cost: actual"]);
    assert_eq!(
        reads(&settled(r#", "on_status": {"5xx": 0}"#)),
        ["0 cost: actual", "0 cost: status"]
    );
    assert!(reads(&rule(r#""key": [], "cost": 3"#)).is_empty());
    let values =
        r#"[{"name": "t", "key_values": ["k"], "quotas": [{"limit": 1, "window": "1m"}]}]"#;
    let tier = rule(&format!(r#""key": [{{"header": "a"}}], "tiers": {values}"#));
    assert_eq!(reads(&tier), ["0 key: header.a"], "values of a key read the key");
}

#[test]
fn where_the_document_names_a_header_the_header_is_read() {
    let document = |client: &str| {
        format!(
            r#"{{"version": 1, "client_ip": {client}, "geo": {{"country_header": "X-C", "asn_header": "X-A"}},
            "rules": [{{"name": "r", "key": ["country", "asn"], "quotas": [{{"limit": 1, "window": "1m"}}]}}]}}"#
        )
    };
    let client = r#"{"source": "x-forwarded-for", "trusted_hops": 1}"#;
    let envoy = compile(&document(client), Surface::Envoy);
    assert_eq!(reads(&envoy), ["0 key: header.x-c", "0 key: header.x-a"]);
    let library = compile(&document(client), Surface::Library);
    assert_eq!(reads(&library), ["0 key: country", "0 key: asn"]);
    for (client, header) in [
        (client, Some("x-forwarded-for")),
        (r#"{"source": "forwarded", "trusted_proxies": ["192.0.2.0/24"]}"#, Some("forwarded")),
        (r#"{"source": {"header": "X-Real-IP"}, "trusted_hops": 1}"#, Some("x-real-ip")),
        (r#"{"source": "x-forwarded-for"}"#, None),
        (r#"{"source": "connection"}"#, None),
    ] {
        assert_eq!(
            compile(&document(client), Surface::Envoy).explain().client_header(),
            header,
            "{client}"
        );
    }
}

#[test]
fn one_client_is_one_network() {
    let policy = compile(
        r#"{"version": 1, "client_ip": {"source": "x-forwarded-for", "trusted_hops": 1, "ipv4_prefix": 24},
        "rules": [{"name": "r", "key": ["client_ip"], "quotas": [{"limit": 1, "window": "1m"}]}]}"#,
        Surface::Envoy,
    );
    let network = |request: &Request| policy.explain().client_network(request).unwrap().to_string();
    assert_eq!(network(&get("/", "192.0.2.77")), "192.0.2.0");
    assert_eq!(network(&get("/", "::ffff:192.0.2.77")), "192.0.2.0");
    assert_eq!(network(&get("/", "2001:db8:1:2:3:4:5:6")), "2001:db8:1:2::");
    let behind = get("/", "192.0.2.77").header("x-forwarded-for", "203.0.113.9");
    assert_eq!(network(&behind), "203.0.113.0");
    assert_eq!(policy.explain().client_network(&Request { peer: None, ..get("/", "::1") }), None);
}

/// Records the facts that are read.
struct Noting<'r> {
    request: &'r Request,
    asked: RefCell<BTreeSet<String>>,
}

impl Noting<'_> {
    fn note(&self, fact: impl Into<String>) {
        self.asked.borrow_mut().insert(fact.into());
    }
}

impl Facts for Noting<'_> {
    fn method(&self) -> Cow<'_, [u8]> {
        self.note("method");
        self.request.method()
    }
    fn target(&self) -> Cow<'_, [u8]> {
        self.note("target");
        self.request.target()
    }
    fn host(&self) -> Cow<'_, [u8]> {
        self.note("host");
        self.request.host()
    }
    fn header(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        self.note(format!("header.{name}"));
        self.request.header(name)
    }
    fn peer(&self) -> Option<IpAddr> {
        self.note("client_ip");
        self.request.peer()
    }
    fn route(&self) -> Option<Cow<'_, [u8]>> {
        self.note("route");
        self.request.route()
    }
    fn country(&self) -> Option<Cow<'_, [u8]>> {
        self.note("country");
        self.request.country()
    }
    fn asn(&self) -> Option<Cow<'_, [u8]>> {
        self.note("asn");
        self.request.asn()
    }
    fn claim(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        self.note(format!("claim.{name}"));
        self.request.claim(name)
    }
    fn cloudflare(&self, field: CloudflareField) -> Option<Cow<'_, [u8]>> {
        self.note(format!("cf.{}", field.name()));
        self.request.cloudflare(field)
    }
    fn client_certificate(&self, field: CertificateField) -> Option<Cow<'_, [u8]>> {
        self.note(format!("certificate.{}", field.name()));
        self.request.client_certificate(field)
    }
    fn metadata(&self, path: &[String]) -> Option<Cow<'_, [u8]>> {
        self.note(format!("metadata.{}", path.join("/")));
        self.request.metadata(path)
    }
    fn domain(&self) -> Option<Cow<'_, [u8]>> {
        self.note("domain");
        self.request.domain()
    }
    fn entry(&self, index: usize) -> Option<Entry<'_>> {
        self.note("entries");
        self.request.entry(index)
    }
    fn beside(&self, other: usize, index: usize) -> Option<Entry<'_>> {
        self.note("beside");
        self.request.beside(other, index)
    }
}

/// The facts that are read on account of `fact`.
fn asked_for(fact: &str) -> Vec<String> {
    let asked = match fact.split_once('.') {
        Some(("cookie", _)) => "header.cookie",
        Some(("query", _)) => "target",
        Some(("descriptor", _)) => "entries",
        _ if fact == "path" => "target",
        _ => fact,
    };
    vec![asked.to_owned()]
}

/// One policy for each part alone, and requests that reach it: the actual reads are the declared
/// ones.
#[test]
fn nothing_is_asked_that_was_not_said() {
    let mut policies = Vec::new();
    for (part, _) in KEY_PARTS {
        let when =
            if part.contains("path_param") { r#""when": {"paths": ["/{id}"]}, "# } else { "" };
        policies.push(rule(&format!(r#"{when}"key": [{part}]"#)));
    }
    for (name, value, _) in CONDITIONS {
        policies.push(rule(&format!(r#""when": {{"{name}": {value}}}, "key": []"#)));
    }
    policies.push(rule(r#""key": [], "cost": {"header": "x-cost", "max": 9}"#));
    policies.push(rule(r#""key": [], "cost": {"content_length_per": 9}"#));
    let request = Request { host: "a.example", ..get("/x?q=1", "192.0.2.1") };
    for policy in &policies {
        let noting = Noting { request: &request, asked: RefCell::default() };
        policy.plan(&noting, &mut Plan::new());
        let said = policy
            .explain()
            .reads()
            .iter()
            .flat_map(|read| asked_for(&read.fact.to_string()))
            .collect();
        assert_eq!(*noting.asked.borrow(), said, "{:?}", reads(policy));
    }
}

// Guards: a path that is fetched although no request can fail by it, and a target without a path,
// or with several readings, that such a rule then does not apply to.
#[test]
fn a_rule_for_all_paths_asks_for_none() {
    let policy = rule(r#""when": {"paths": ["/x", "/**"]}, "key": ["client_ip"]"#);
    for target in ["/", "/x", "/a/b?c", "*", "", "//h/a%2f..", "/a\\..", "http://h"] {
        let request = get(target, "192.0.2.1");
        let noting = Noting { request: &request, asked: RefCell::default() };
        let mut plan = Plan::new();
        policy.plan(&noting, &mut plan);
        assert_eq!(*noting.asked.borrow(), ["client_ip".to_owned()].into(), "{target}");
        assert!(!plan.is_empty(), "{target}");
    }
}

#[test]
fn a_key_is_shown_part_by_part() {
    let policy = compile(
        r#"{"version": 1, "client_ip": {"ipv4_prefix": 24}, "rules": [
        {"name": "r", "key": ["client_ip", {"header": "X-Key"}, "method"], "on_missing": "shared",
         "quotas": [{"limit": 1, "window": "1m"}]},
        {"name": "all", "key": [], "quotas": [{"limit": 1, "window": "1m"}]}]}"#,
        Surface::Library,
    );
    let shown = |request: &Request| {
        let mut plan = Plan::new();
        policy.plan(request, &mut plan);
        let key = plan.partition(0).unwrap().key_in_words(&policy);
        assert!(plan.partition(1).unwrap().key_in_words(&policy).is_empty());
        key.into_iter().map(|part| (part.part, part.value)).collect::<Vec<_>>()
    };
    let network = |address: &str, bits| Some(KeyValue::Network(address.parse().unwrap(), bits));
    let text = |text: &str| Some(KeyValue::Text(text.as_bytes().to_vec()));
    let names = ["client address", "header x-key", "method"].map(str::to_owned);
    let row =
        |values: [Option<KeyValue>; 3]| names.clone().into_iter().zip(values).collect::<Vec<_>>();
    let v4 = get("/", "192.0.2.7").header("x-key", "a b");
    assert_eq!(shown(&v4), row([network("192.0.2.0", 24), text("a b"), text("GET")]));
    let v6 = get("/", "2001:db8::7").header("x-key", "abcd");
    assert_eq!(shown(&v6), row([network("2001:db8::", 64), text("abcd"), text("GET")]));
    assert_eq!(shown(&get("/", "192.0.2.7")), row([None, None, None]), "one count for all such");
}
