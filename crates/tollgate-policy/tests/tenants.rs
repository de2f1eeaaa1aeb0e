//! Tenants' entries: how they are read, which tenant they belong to, and that they decide as a tier
//! would.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::support::{Random, Request, Seen, get, seen};
use tollgate_core::{Span, Timestamp};
use tollgate_policy::{
    Disposition, GivenKey, MAX_TENANT_ENTRY, MAX_TENANT_ID, NoKey, Partition, Plan, Policy,
    Surface, Tenant, TenantEntry,
};

const GOLD: &str = r#"{"version": 1, "tenant": {"header": "x-org"}, "rules": [
    {"name": "each", "key": [{"header": "x-org"}], "quotas": [{"limit": 2, "window": "1m"}],
     "tiers": [
        {"name": "gold", "when": {"headers": {"x-plan": "gold"}}, "quotas": [{"limit": 4, "window": "1m"}]},
        {"name": "vip", "priority": 7, "when": {"headers": {"x-plan": "vip"}}, "quotas": [{"limit": 9, "window": "1m"}]}]},
    {"name": "site", "key": [], "quotas": [{"limit": 100, "window": "1m"}]}]}"#;

fn compile(document: &str) -> Policy {
    tollgate_language::compile(document, Surface::Worker).unwrap_or_else(|e| panic!("{e}"))
}

fn entry(json: &str) -> TenantEntry {
    tollgate_language::tenant_entry(json.as_bytes()).unwrap_or_else(|e| panic!("{json}: {e}"))
}

/// A surface with a map for counts and one for entries.
struct Operated {
    policy: Policy,
    entries: BTreeMap<Vec<u8>, Arc<Tenant>>,
    counts: BTreeMap<Vec<u8>, Vec<u8>>,
    plan: Plan,
}

impl Operated {
    fn new(document: &str) -> Self {
        let policy = compile(document);
        let (entries, counts) = (BTreeMap::new(), BTreeMap::new());
        Self { policy, entries, counts, plan: Plan::new() }
    }

    fn put(&mut self, id: &str, json: &str) {
        let read = tollgate_language::tenant_entry_for(&self.policy, json.as_bytes());
        let read = read.unwrap_or_else(|e| panic!("{json}: {e}"));
        let id = self.policy.tenants().unwrap().id(id).unwrap();
        self.entries.insert(id.clone(), Arc::new(Tenant::new(&self.policy, &id, &read)));
    }

    fn check(&mut self, request: &Request, millis: u64) -> Seen {
        let Self { policy, entries, counts, plan } = self;
        let now = Timestamp::from_millis(millis);
        policy.plan(request, plan);
        let tenant = plan.tenant().and_then(|tenant| entries.get(tenant.id()));
        if let Some(tenant) = tenant.filter(|tenant| tenant.is_in_force(now)) {
            policy.plan_for(request, tenant, plan);
        }
        plan.each_partition(|partition| {
            let stored = counts.get(partition.key());
            partition.load(policy, stored.map(Vec::as_slice));
        });
        plan.decide(policy, now);
        for partition in plan.partitions().filter(Partition::changed) {
            if partition.idle_at(policy) <= now {
                counts.remove(partition.key());
            } else {
                counts.insert(partition.key().to_vec(), partition.value().to_vec());
            }
        }
        seen(policy, plan, Span::ZERO)
    }

    /// How many of `n` requests at once are allowed.
    fn admitted(&mut self, request: &Request, n: usize, millis: u64) -> usize {
        (0..n).filter(|_| self.check(request, millis).answer == Disposition::Allow).count()
    }
}

fn org(name: &str) -> Request {
    get("/", "192.0.2.1").header("x-org", name)
}

#[test]
fn every_mistake_of_an_entry_is_said_at_once() {
    let policy = compile(GOLD);
    let said = |json: &str| {
        tollgate_language::tenant_entry_for(&policy, json.as_bytes())
            .err()
            .map(|e| e.to_string())
            .unwrap_or_default()
    };
    let long = format!(r#"{{"tier": "gold", "note": "{}"}}"#, "n".repeat(257));
    for (json, expected) in [
        (r#"{"tier": "gold"}"#, ""),
        (r#"{"quotas": {"each": [{"limit": 1, "window": "1m"}]}}"#, ""),
        (r#"{"tier": "gold", "note": "größer, bis März", "expires": "2027-01-31T00:00:00Z"}"#, ""),
        ("{}", r#"has no effect; give it "tier" or "quotas""#),
        (r#"{"note": "x"}"#, r#"has no effect; give it "tier" or "quotas""#),
        (r#"{"quotas": {}}"#, "quotas: is empty; give at least one, or leave it out"),
        (
            r#"{"quotas": [{"limit": 1, "window": "1m"}]}"#,
            "quotas: a list is not an object of names of rules and their quotas",
        ),
        (
            r#"{"tier": "gold", "expires": "2027-02-30T00:00:00Z"}"#,
            r#"expires: "2027-02-30T00:00:00Z" is not a time; use UTC to the second, such as "2027-01-31T00:00:00Z""#,
        ),
        ("[]", "a list is not an object"),
        ("{", "not JSON: EOF while parsing an object at line 1 column 1"),
        (
            r#"{"tier": "glod", "quotas": {"eahc": [{"limit": 1, "window": "1m"}], "nothing near": [{"limit": 1, "window": "1m"}]}}"#,
            "tier: the policy has no tier \"glod\"; did you mean \"gold\"?\n\
             quotas.eahc: the policy has no rule \"eahc\"; did you mean \"each\"?\n\
             quotas.\"nothing near\": the policy has no rule \"nothing near\"",
        ),
        (
            r#"{"tire": "gold", "priority": 1000001, "expires": 1, "quotas": {"each": [{"limit": 1000000000000000, "window": "0s"}], "site": []}}"#,
            "unknown field \"tire\"; did you mean \"tier\"?\n\
             priority: 1000001 is not a whole number from 0 to 1000000\n\
             expires: 1 is not a time; use UTC to the second, such as \"2027-01-31T00:00:00Z\"\n\
             quotas.each[0].limit: 1000000000000000 is not valid: limit must be 0 to 999999999999999\n\
             quotas.each[0].window: \"0s\" is too short; use 1ms to 366d\n\
             quotas.site: has 0 quotas; use 1 to 16",
        ),
        (
            r#"{"quotas": {"each": [{"limit": 1, "window": "1m"}], "each": [{"limit": 2, "window": "1m"}]}}"#,
            "quotas.each: is given twice; give it once",
        ),
        (&*long, "note: is too long; use at most 256 characters"),
        (
            "{\"tier\": \"gold\", \"note\": \"a\\nb\"}",
            "note: contains an invisible or bidirectional control character; use one line of text",
        ),
        (
            "{\"tier\": \"gold\", \"note\": \"\\u202etxt\"}",
            "note: contains an invisible or bidirectional control character; use one line of text",
        ),
    ] {
        assert_eq!(said(json), expected, "{json}");
    }
    let longest = format!(r#"{{"tier": "gold"{}}}"#, " ".repeat(MAX_TENANT_ENTRY - 16));
    assert_eq!(longest.len(), MAX_TENANT_ENTRY);
    assert_eq!(said(&longest), "");
    assert_eq!(said(&(longest + " ")), "the entry is longer than 16 KiB");
    let rules: Vec<_> =
        (0..65).map(|i| format!(r#""{i}": [{{"limit": 1, "window": "1m"}}]"#)).collect();
    let many = format!(r#"{{"quotas": {{{}}}}}"#, rules.join(","));
    assert_eq!(said(&many), "quotas: has 65 items; use at most 64");
    let not_text = tollgate_language::tenant_entry(b"\xff").unwrap_err().to_string();
    assert_eq!(not_text, "not JSON: invalid utf-8 sequence of 1 bytes from index 0");
}

#[test]
fn what_a_later_policy_does_not_know_has_no_effect_and_is_said() {
    let entry = entry(r#"{"tier": "gold", "quotas": {"site": [{"limit": 1, "window": "1m"}]}}"#);
    let said =
        |document: &str| tollgate_language::without_effect(&compile(document), &entry).to_string();
    assert_eq!(said(GOLD), "");
    let bare = r#"{"version": 1, "tenant": {"header": "x-org"}, "rules": [
        {"name": "each", "key": [], "quotas": [{"limit": 1, "window": "1m"}]}]}"#;
    assert_eq!(
        said(bare),
        "tier: the policy has no tier \"gold\"\nquotas.site: the policy has no rule \"site\""
    );
    assert_eq!(
        said(&bare.replace(r#""tenant": {"header": "x-org"}, "#, "")).lines().next(),
        Some(r#"has no effect: the policy does not identify tenants; give the policy "tenant""#)
    );
    let policy = compile(bare);
    let tenant = Arc::new(Tenant::new(&policy, b"acme", &entry));
    let mut plan = Plan::new();
    policy.plan_for(&org("acme"), &tenant, &mut plan);
    let sets: Vec<_> = plan.outcome(&policy).decisions().map(|rule| rule.quota_set).collect();
    assert_eq!(sets, [0]);
}

#[test]
fn an_entry_competes_with_tiers_by_priority() {
    let plan = |name: &str| org("acme").header("x-plan", name);
    for (json, bare, gold, vip) in [
        (None, 2, 4, 9),
        (Some(r#"{"tier": "gold"}"#), 4, 4, 9),
        (Some(r#"{"tier": "vip"}"#), 9, 9, 9),
        (Some(r#"{"tier": "gold", "priority": 6}"#), 4, 4, 9),
        (Some(r#"{"tier": "gold", "priority": 7}"#), 4, 4, 4),
        (Some(r#"{"quotas": {"each": [{"limit": 3, "window": "1m"}]}}"#), 3, 3, 9),
        (Some(r#"{"quotas": {"each": [{"limit": 3, "window": "1m"}]}, "priority": 7}"#), 3, 3, 3),
        // The tenant's own quotas precede its tier, in the rules that they are for.
        (Some(r#"{"tier": "gold", "quotas": {"each": [{"limit": 3, "window": "1m"}]}}"#), 3, 3, 9),
        (Some(r#"{"tier": "gold", "quotas": {"site": [{"limit": 3, "window": "1m"}]}}"#), 3, 3, 3),
    ] {
        for (request, expected) in
            [(org("acme"), bare), (plan("gold"), gold), (plan("vip"), vip), (org("other"), 2)]
        {
            let mut operated = Operated::new(GOLD);
            if let Some(json) = json {
                operated.put("acme", json);
            }
            assert_eq!(operated.admitted(&request, 12, 1), expected, "{json:?} {request:?}");
        }
    }
}

#[test]
fn an_entry_ends_when_it_expires() {
    let mut operated = Operated::new(GOLD);
    operated.put("acme", r#"{"tier": "gold", "expires": "1970-01-01T00:10:00Z"}"#);
    assert_eq!(operated.admitted(&org("acme"), 12, 599_999), 4);
    assert_eq!(operated.admitted(&org("acme"), 12, 600_000), 2);
}

/// A surface that mixes up two entries must not give one tenant the other's limits.
#[test]
fn an_entry_is_of_its_tenant_only() {
    let policy = compile(GOLD);
    let gold = Arc::new(Tenant::new(&policy, b"acme", &entry(r#"{"tier": "gold"}"#)));
    let mut plan = Plan::new();
    for (request, set) in [(org("acme"), 1), (org("acm"), 0), (get("/", "192.0.2.1"), 3)] {
        policy.plan_for(&request, &gold, &mut plan);
        let first = plan.outcome(&policy).decisions().next().unwrap();
        assert_eq!(first.quota_set, set, "{request:?}");
    }
}

/// An operator's query about an id finds the tenant of the requests with that id.
#[test]
fn a_tenant_is_known_by_what_its_requests_say() {
    let request = Request {
        host: "Shop.Example:443",
        country: Some("de"),
        asn: Some("64500"),
        claims: vec![("org", "acme")],
        ..get("/shops/a%20b/cart?org=a+b", "192.0.2.1")
    };
    let request = request.header("x-org", " acme ").header("cookie", "org=acme");
    let mut plan = Plan::new();
    for (part, id) in [
        (r#"{"header": "x-org"}"#, Some("acme")),
        (r#"{"cookie": "org"}"#, Some("acme")),
        (r#"{"query": "org"}"#, Some("a b")),
        (r#"{"path_param": "shop"}"#, Some("a b")),
        (r#""path""#, Some("/shops/a b/cart")),
        (r#"{"jwt_claim": "org"}"#, Some("acme")),
        (r#"{"jwt_claim": "other"}"#, None),
        (r#""host""#, Some("SHOP.example")),
        (r#""client_ip""#, Some("192.0.2.1")),
        (r#"{"client_ip": {"ipv4_prefix": 24}}"#, Some("192.0.2.0")),
        (r#""country""#, Some("DE")),
        (r#""asn""#, Some("64500")),
        (r#""method""#, Some("GET")),
    ] {
        let document = format!(
            r#"{{"version": 1, "tenant": {part}, "rules": [
                {{"name": "a", "when": {{"paths": ["/nothing/{{shop}}/x"]}}, "key": [], "quotas": [{{"limit": 1, "window": "1m"}}]}},
                {{"name": "b", "when": {{"paths": ["/shops/{{shop}}/**"]}}, "key": [], "quotas": [{{"limit": 1, "window": "1m"}}]}}]}}"#
        );
        let policy = tollgate_language::compile(&document, Surface::Library)
            .unwrap_or_else(|e| panic!("{e}"));
        policy.plan(&request, &mut plan);
        let expected = id.map(|id| policy.tenants().unwrap().id(id).unwrap());
        assert_eq!(plan.tenant().map(|tenant| tenant.id()), expected.as_deref(), "{part}");
        // Where no rule applies no entry is read.
        policy.plan(&Request { target: "/".into(), ..request.clone() }, &mut plan);
        assert!(plan.tenant().is_none(), "{part}");
    }
    let policy = compile(GOLD);
    assert_eq!(policy.tenants().unwrap().id(""), None);
    assert!(policy.tenants().unwrap().id(&"x".repeat(MAX_TENANT_ID)).is_some());
    let long = "x".repeat(MAX_TENANT_ID + 1);
    assert_eq!(policy.tenants().unwrap().id(&long), None);
    policy.plan(&org(&long), &mut plan);
    assert!(plan.tenant().is_none());
}

/// Guards: a block or a reset of a client that misses what its tenant counts apart.
#[test]
fn a_client_of_a_tenant_is_named_where_its_requests_count() {
    let policy = compile(
        r#"{"version": 1, "tenant": {"header": "x-org"}, "rules": [
        {"name": "each", "key": ["client_ip"], "quotas": [{"limit": 2, "window": "1m"}]},
        {"name": "org", "key": [{"header": "x-org"}], "quotas": [{"limit": 9, "window": "1m"}]}]}"#,
    );
    let own = r#"{"quotas": {"each": [{"limit": 5, "window": "1m"}], "org": [{"limit": 5, "window": "1m"}]}}"#;
    let tenant = Arc::new(Tenant::new(&policy, b"acme", &entry(own)));
    let mut plan = Plan::new();
    policy.plan(&org("acme"), &mut plan);
    let address = || GivenKey::new(&policy, "each", &["192.0.2.1".into()]).unwrap();
    assert_eq!(plan.partition(0).unwrap().key(), address().bytes(), "without its entry");
    policy.plan_for(&org("acme"), &tenant, &mut plan);
    let of_tenant = address().of_tenant(&policy, "acme").unwrap();
    assert_eq!(plan.partition(0).unwrap().key(), of_tenant.bytes());
    // Where the key names it, it is not repeated.
    let named = GivenKey::new(&policy, "org", &["acme".into()]).unwrap();
    assert_eq!(plan.partition(1).unwrap().key(), named.bytes());
    assert!(!named.is_apart_of_tenants(&policy) && address().is_apart_of_tenants(&policy));
    for wrong in [named.of_tenant(&policy, "acme"), address().of_tenant(&policy, "")] {
        assert!(matches!(wrong, Err(NoKey::Wrong(problem)) if problem.path == "tenant"));
    }
}

/// An operator's spellings of one tenant are one entry, which is found by its own name.
#[test]
fn a_tenant_has_one_name() {
    for (part, spellings) in [
        (r#""host""#, ["Shop.Example", "shop.example:443", "shop.example"]),
        (r#""client_ip""#, ["2001:db8::7", "2001:db8:0:0:1::", "2001:db8::"]),
        (r#""client_ip""#, ["::ffff:192.0.2.1", "192.0.2.1", "192.0.2.1"]),
        (r#"{"header": "x-org", "lower": true}"#, ["Acme \u{dc}", "aCME \u{dc}", "acme \u{dc}"]),
        (
            r#"{"client_ip": {"ipv6_prefix": 48}}"#,
            ["2001:db8:0:7::7", "2001:db8:0:9::", "2001:db8::"],
        ),
        (r#""country""#, ["de", "De", "DE"]),
        (r#""path""#, ["/a/../b", "/b", "/b"]),
    ] {
        let document = format!(r#"{{"version": 1, "tenant": {part}, "rules": []}}"#);
        let policy = compile(&document);
        let name = policy.tenants().unwrap().name(spellings[2]).unwrap();
        assert_eq!(name, spellings[2]);
        for spelling in spellings {
            assert_eq!(policy.tenants().unwrap().name(spelling).as_ref(), Some(&name), "{part}");
            let id = policy.tenants().unwrap().id(spelling).unwrap();
            assert_eq!(Some(&id), policy.tenants().unwrap().id(&name).as_ref(), "{part}");
            assert_eq!(policy.tenants().unwrap().name_of(&id).as_ref(), Some(&name), "{part}");
        }
    }
}

/// A request that names two tenants is denied: it would get the limits that it prefers.
#[test]
fn a_request_of_two_tenants_is_refused() {
    let mut operated = Operated::new(GOLD);
    operated.put("acme", r#"{"tier": "gold"}"#);
    let both = org("other").header("x-org", "acme");
    assert_eq!(operated.check(&both, 1).answer, Disposition::Deny { status: 400 });
    assert!(operated.counts.is_empty());
    let mut first = Operated::new(
        &GOLD.replace(r#"{"header": "x-org"}"#, r#"{"header": "x-org", "repeated": "first"}"#),
    );
    first.put("acme", r#"{"tier": "gold"}"#);
    assert_eq!(first.admitted(&both, 12, 1), 2);
}

/// Two tenants behind one address, and a count that all share: a tenant's own count is for it
/// alone, and neither denies the other.
#[test]
fn own_quotas_count_one_tenant_whatever_the_key_is() {
    for key in ["[]", r#"["client_ip"]"#, r#"[{"header": "x-org"}]"#] {
        let mut operated = Operated::new(&format!(
            r#"{{"version": 1, "tenant": {{"header": "x-org"}}, "rules": [
                {{"name": "r", "key": {key}, "quotas": [{{"limit": 5, "window": "1m"}}]}}]}}"#
        ));
        operated.put("a", r#"{"quotas": {"r": [{"limit": 3, "window": "1m"}]}}"#);
        operated.put("b", r#"{"quotas": {"r": [{"limit": 2, "window": "1m"}]}}"#);
        assert_eq!(operated.admitted(&org("a"), 9, 1), 3, "{key}");
        assert_eq!(operated.admitted(&org("b"), 9, 1), 2, "{key}");
        assert_eq!(operated.admitted(&org("c"), 9, 1), 5, "{key}");
        assert_eq!(operated.admitted(&org("a"), 9, 2), 0, "{key}");
    }
}

/// The identity of a tenant's own quotas is that of the rule, whatever the numbers are, so that a
/// store can carry the used units; it is not that of any tier, whatever the tier's name.
#[test]
fn own_quotas_have_one_identity_in_a_rule() {
    let policy = compile(&GOLD.replace("\"vip\"", "\"tenant\""));
    let ids = |json: &str| {
        let tenant = Arc::new(Tenant::new(&policy, b"acme", &entry(json)));
        let mut plan = Plan::new();
        policy.plan_for(&org("acme"), &tenant, &mut plan);
        let outcome = plan.outcome(&policy);
        let sets: Vec<_> = outcome
            .decisions()
            .map(|rule| (rule.set.stable_id(), rule.set.to_stored().record_id()))
            .collect();
        sets[0]
    };
    let (few, many) = (
        ids(r#"{"quotas": {"each": [{"limit": 3, "window": "1m"}]}}"#),
        ids(r#"{"quotas": {"each": [{"limit": 30, "window": "1m"}]}}"#),
    );
    assert_eq!(few.0, many.0);
    assert_ne!(few.1, many.1);
    for set in policy.quota_sets() {
        assert_ne!(set.stable_id(), few.0);
        assert_ne!(set.to_stored().record_id(), few.1);
    }
}

const ORGS: [&str; 4] = ["acme", "b", "c", "none"];

fn quotas(random: &mut Random) -> String {
    let algorithms =
        ["gcra", "token-bucket", "leaky-bucket", "fixed-window", "sliding-window", "sliding-log"];
    let count = 1 + random.below(2);
    let of = |i: u64, random: &mut Random| {
        let (algorithm, limit, window) =
            (*random.pick(&algorithms), 1 + random.below(6), 1 + random.below(20));
        let name = if count == 1 { String::new() } else { format!(r#""name": "q{i}", "#) };
        format!(r#"{{{name}"algorithm": "{algorithm}", "limit": {limit}, "window": "{window}s"}}"#)
    };
    let all: Vec<_> = (0..count).map(|i| of(i, random)).collect();
    format!("[{}]", all.join(", "))
}

/// One random policy: with entries, and with the same written as tiers. A tier of the entry's own
/// goes first of those with its priority. Where an entry names a tier of the policy, the policy
/// with tiers has it a second time, for this tenant: the keys name the tenant then, and nothing but
/// the entry gives it, so that neither shares a count.
fn twins(random: &mut Random) -> (Operated, Operated) {
    let by_name = random.below(3) == 0;
    let mut entries: Vec<(&str, u64, BTreeMap<usize, String>)> = Vec::new();
    let rules = usize::try_from(1 + random.below(3)).unwrap();
    for org in &ORGS[..3] {
        let mut own = BTreeMap::new();
        for rule in 0..rules {
            if by_name || random.below(3) > 0 {
                own.insert(rule, quotas(random));
            }
        }
        if !own.is_empty() {
            entries.push((*org, random.below(3), own));
        }
    }
    let (mut with_entries, mut with_tiers) = (Vec::new(), Vec::new());
    for rule in 0..rules {
        let keys = [r#"[]"#, r#"["client_ip"]"#, r#"[{"header": "x-org"}]"#];
        let key = if by_name { keys[2] } else { *random.pick(&keys) };
        let common = format!(
            r#""name": "r{rule}", "key": {key}, "quotas": {}, "mode": "{}""#,
            quotas(random),
            *random.pick(&["enforce", "enforce", "shadow"])
        );
        let plans: Vec<String> = (0..random.below(3))
            .map(|i| {
                format!(
                    r#"{{"name": "p{i}", "priority": {}, "when": {{"headers": {{"x-plan": "p{i}"}}}}, "quotas": {}}}"#,
                    if by_name { 0 } else { random.below(3) },
                    quotas(random)
                )
            })
            .collect();
        let named = |org: &str, own: &str, when: &str, priority: u64| {
            format!(r#"{{"name": "of {org}", "priority": {priority}, {when}, "quotas": {own}}}"#)
        };
        let (mut tiers, mut unused) = (Vec::new(), Vec::new());
        for (org, priority, own) in &entries {
            if let Some(own) = own.get(&rule) {
                let by_value = key.contains("x-org") && random.below(2) == 0;
                let when = if by_value {
                    format!(r#""key_values": ["{org}"]"#)
                } else {
                    format!(r#""when": {{"headers": {{"x-org": "{org}"}}}}"#)
                };
                tiers.push(named(org, own, &when, *priority));
                let nobody = r#""when": {"headers": {"x-nobody": "nobody"}}"#;
                unused.push(named(org, own, nobody, 0));
            }
        }
        tiers.extend(plans.iter().cloned());
        unused.extend(plans.iter().cloned());
        let mine = if by_name { unused } else { plans };
        with_entries.push(format!(r#"{{{common}, "tiers": [{}]}}"#, mine.join(", ")));
        with_tiers.push(format!(r#"{{{common}, "tiers": [{}]}}"#, tiers.join(", ")));
    }
    let document = |tenant: &str, rules: &[String]| {
        format!(r#"{{"version": 1, {tenant}"rules": [{}]}}"#, rules.join(", "))
    };
    let mut operated =
        Operated::new(&document(r#""tenant": {"header": "x-org"}, "#, &with_entries));
    for (org, priority, own) in &entries {
        let own: Vec<_> = own.iter().map(|(rule, own)| format!(r#""r{rule}": {own}"#)).collect();
        let what = match by_name {
            true => format!(r#""tier": "of {org}""#),
            false => format!(r#""quotas": {{{}}}"#, own.join(", ")),
        };
        operated.put(org, &format!(r#"{{{what}, "priority": {priority}}}"#));
    }
    (operated, Operated::new(&document("", &with_tiers)))
}

/// Guards: an entry that decides differently from the tier that it represents. Both respond to
/// every request alike, with all header fields.
#[test]
fn an_entry_decides_as_a_tier_would() {
    let (mut refused, mut by_entry) = (0, 0);
    for seed in 0..400 {
        let mut random = Random::new(seed);
        let (mut entries, mut tiers) = twins(&mut random);
        let mut now = 1_000;
        for i in 0..60 {
            now += random.below(4_000);
            let ip = *random.pick(&["192.0.2.1", "192.0.2.2"]);
            let mut request = get("/", ip);
            if random.below(8) > 0 {
                request = request.header("x-org", *random.pick(&ORGS));
            }
            if random.below(3) == 0 {
                request = request.header("x-plan", *random.pick(&["p0", "p1"]));
            }
            let (one, other) = (entries.check(&request, now), tiers.check(&request, now));
            assert_eq!(one, other, "seed {seed}, request {i} at {now}: {request:?}");
            refused += u32::from(one.answer != Disposition::Allow);
            let outcome = entries.plan.outcome(&entries.policy);
            by_entry += u32::from(outcome.decisions().any(|rule| rule.set.is_of_tenant()));
        }
    }
    // The comparison had a subject.
    assert!(refused > 3_000 && by_entry > 3_000, "{refused} {by_entry}");
}
