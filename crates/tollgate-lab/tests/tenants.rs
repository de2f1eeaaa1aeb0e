//! Tenant entries: a node decides with them like a surface with separate counts, request by
//! request.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use rand_core::Rng;
use rand_pcg::Pcg64Mcg;
use tollgate_core::Timestamp;
use tollgate_lab::simulator::{Node, Run, Store, Tenants, Traffic};
use tollgate_policy::{Disposition, Facts, Plan, Policy, Surface, Tenant, TenantEntry};
use tollgate_storage::Counts;

const START: u64 = 1_780_000_000_000;

/// A rule by tenant, one by client, one by both; a tier that competes with entries.
const POLICY: &str = r#"{"version": 1, "tenant": {"header": "x-org"}, "rules": [
    {"name": "org", "when": {"paths": ["/org"]}, "key": [{"header": "x-org"}],
     "quotas": [{"limit": 4, "window": "1m"}],
     "tiers": [{"name": "gold", "when": {"headers": {"x-plan": "gold"}}, "priority": 5,
        "quotas": [{"limit": 9, "window": "1m", "algorithm": "fixed-window"}]}]},
    {"name": "client", "when": {"paths": ["/client"]}, "key": ["client_ip"],
     "quotas": [{"limit": 5, "window": "1m", "algorithm": "sliding-log"}]},
    {"name": "both", "when": {"paths": ["/both"]}, "key": ["client_ip", {"header": "x-org"}],
     "quotas": [{"limit": 3, "window": "1m"}]}]}"#;

fn entries() -> Vec<(String, TenantEntry)> {
    let entry = |name: &str, entry: &str| {
        (
            name.to_owned(),
            tollgate_language::tenant_entry(entry.as_bytes()).unwrap_or_else(|e| panic!("{e}")),
        )
    };
    vec![
        entry("tier", r#"{"tier": "gold"}"#),
        entry(
            "own",
            r#"{"quotas": {"org": [{"limit": 7, "window": "1m"}], "client": [{"limit": 2, "window": "1m"}]}}"#,
        ),
        entry("before", r#"{"quotas": {"both": [{"limit": 8, "window": "1m"}]}, "priority": 9}"#),
        // 30 s after the start.
        entry(
            "ends",
            r#"{"quotas": {"org": [{"limit": 20, "window": "1m"}]}, "expires": "2026-05-28T20:27:10Z"}"#,
        ),
        entry("unknown", r#"{"tier": "none"}"#),
    ]
}

struct TenantRequest {
    path: &'static str,
    org: &'static str,
    is_gold: bool,
    client: u8,
}

impl Facts for TenantRequest {
    fn method(&self) -> Cow<'_, [u8]> {
        b"GET"[..].into()
    }
    fn target(&self) -> Cow<'_, [u8]> {
        self.path.as_bytes().into()
    }
    fn header(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        match name {
            "x-org" if !self.org.is_empty() => Some(self.org.as_bytes().into()),
            "x-plan" if self.is_gold => Some(b"gold"[..].into()),
            _ => None,
        }
    }
    fn peer(&self) -> Option<IpAddr> {
        Some(Ipv4Addr::new(192, 0, 2, self.client).into())
    }
}

/// A surface: an entry from a store, a plan with it, and a count per key.
struct Surfaced {
    entries: BTreeMap<Vec<u8>, TenantEntry>,
    counts: BTreeMap<Vec<u8>, Counts>,
}

impl Surfaced {
    fn admits(&mut self, policy: &Policy, asked: &TenantRequest, now: Timestamp) -> bool {
        let mut plan = Plan::new();
        policy.plan(asked, &mut plan);
        if let Some(id) = plan.tenant().map(|tenant| tenant.id().to_vec())
            && let Some(entry) = self.entries.get(&id)
        {
            let tenant = Arc::new(Tenant::new(policy, &id, entry));
            if tenant.is_in_force(now) {
                policy.plan_for(asked, &tenant, &mut plan);
            }
        }
        assert!(plan.len() <= 1, "each rule has a path of its own");
        plan.each_partition(|partition| {
            let mut request = Vec::new();
            partition.view().request(policy, &mut request);
            let count = self.counts.entry(partition.key().to_vec()).or_default();
            let reply = count.answer(&request, now).unwrap().reply;
            partition.accept(policy, &reply).unwrap();
        });
        !matches!(plan.outcome(policy).disposition(), Disposition::Deny { .. })
    }
}

// Guards: a copy of the pipeline that decides differently from the server and the Worker.
#[test]
fn a_node_decides_with_entries_as_a_surface_does() {
    let policy = Arc::new(tollgate_language::compile(POLICY, Surface::Worker).unwrap());
    let entries = entries();
    let of = |(name, entry): &(String, TenantEntry)| (name.as_bytes().to_vec(), entry.clone());
    let mut surface =
        Surfaced { entries: entries.iter().map(of).collect(), counts: BTreeMap::new() };
    let mut node = Node::new(Arc::clone(&policy), Store::exact());
    node.set_tenants(Arc::new(Tenants::under(&policy, &entries)));
    let mut without = Node::new(Arc::clone(&policy), Store::exact());
    let mut random = Pcg64Mcg::new(7);
    let (mut ms, mut differ, mut denied) = (START, 0, 0);
    for _ in 0..40_000 {
        let mut of = |most: u64| random.next_u64() % most;
        ms += [0, 0, 1, 200, 2_000][usize::try_from(of(5)).unwrap()];
        let orgs = ["", "tier", "own", "before", "ends", "unknown", "nobody"];
        let asked = TenantRequest {
            path: ["/org", "/client", "/both"][usize::try_from(of(3)).unwrap()],
            org: orgs[usize::try_from(of(7)).unwrap()],
            is_gold: of(4) == 0,
            client: u8::try_from(of(3)).unwrap(),
        };
        let now = Timestamp::from_millis(ms);
        let expected = surface.admits(&policy, &asked, now);
        let said = node.decide(&asked, now, 200).fate().is_admitted();
        assert_eq!(said, expected, "{} {} at {}", asked.path, asked.org, ms - START);
        differ += usize::from(without.decide(&asked, now, 200).fate().is_admitted() != said);
        denied += usize::from(!said);
    }
    assert!(differ > 1_000 && denied > 1_000, "{differ} {denied}");
}

// Guards: a table without a tenant's own quotas, or an exact twin with other limits.
#[test]
fn a_run_counts_the_own_quotas_of_tenants() {
    let policy = Arc::new(tollgate_language::compile(POLICY, Surface::Worker).unwrap());
    let traffic = r#"{"length": "5m", "sources": [
        {"name": "a", "arrivals": {"steady": {"rate": "1/1s"}}, "request": {"path": "/org", "headers": {"x-org": "own"}}},
        {"name": "b", "arrivals": {"steady": {"rate": "1/1s"}}, "request": {"path": "/org", "headers": {"x-org": "nobody"}}}]}"#;
    let traffic = Traffic::parse(traffic).unwrap_or_else(|error| panic!("{error}"));
    let entries = Arc::new(Tenants::under(&policy, &entries()));
    let table = Run::new(Arc::clone(&policy), &traffic, 1).with_tenants(&entries).finish();
    let without = Run::new(policy, &traffic, 1).finish();
    let own: Vec<_> = table.quotas.iter().filter(|row| row.of_tenants).collect();
    assert_eq!(own.len(), 1);
    assert_eq!((&*own[0].rule, own[0].limit, own[0].burst), ("org", 7, 1));
    // 7 at first, and then one each 60/7 s.
    assert!((8..=14).contains(&own[0].most_admitted), "{}", own[0].most_admitted);
    assert!(without.quotas.iter().all(|row| !row.of_tenants));
    assert!(table.admitted > without.admitted, "{} {}", table.admitted, without.admitted);
    let text = serde_json::to_string(&without).unwrap();
    assert!(
        !text.contains("of_tenants")
            && serde_json::to_string(&table).unwrap().contains("of_tenants")
    );
}
