//! Entries of tenants that are stored with counts: whatever a front guesses, the request is decided
//! with the stored entry.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::support::{Random, Request, Seen, get, seen};
use tollgate_core::{Span, Timestamp};
use tollgate_policy::{Disposition, Failure, Outdated, Plan, Policy, Surface, Tenant};
use tollgate_storage::{Counts, WireError};

const ALONE: &str = r#"{"version": 1, "tenant": {"header": "x-org"}, "rules": [
    {"name": "each", "key": [{"header": "x-org"}], "quotas": [{"limit": 2, "window": "1m"}],
     "tiers": [{"name": "gold", "when": {"headers": {"x-plan": "gold"}}, "quotas": [{"limit": 4, "window": "1m"}]}]},
    {"name": "site", "key": [], "quotas": [{"limit": 40, "window": "1m"}]}]}"#;

fn compile(document: &str) -> Policy {
    tollgate_language::compile(document, Surface::Worker).unwrap_or_else(|e| panic!("{e}"))
}

fn org(name: &str) -> Request {
    get("/", "192.0.2.1").header("x-org", name)
}

/// A front that guesses, and stores that have the entries.
struct Front {
    policy: Policy,
    plan: Plan,
    counts: BTreeMap<Vec<u8>, Counts>,
    /// By the key that is the tenant alone: the revision, and the entry.
    entries: BTreeMap<Vec<u8>, (u64, &'static str)>,
    asked: usize,
}

impl Front {
    fn new() -> Self {
        let (counts, entries) = (BTreeMap::new(), BTreeMap::new());
        Self { policy: compile(ALONE), plan: Plan::new(), counts, entries, asked: 0 }
    }

    fn tenant(&self, json: &str) -> Arc<Tenant> {
        let entry = tollgate_language::tenant_entry(json.as_bytes()).unwrap();
        Arc::new(Tenant::new(&self.policy, b"acme", &entry))
    }

    /// Asks every store; true when one has another entry, and nothing was charged then.
    fn ask(&mut self, peeks: bool, now: Timestamp) -> bool {
        let Self { policy, plan, counts, entries, asked } = self;
        for i in 0..plan.len() {
            let partition = plan.partition(i).unwrap();
            let (key, mut request) = (partition.key().to_vec(), Vec::new());
            if peeks {
                partition.peek_request(policy, &mut request);
            } else {
                partition.request(policy, &mut request);
            }
            *asked += 1;
            let revision = entries.get(&key).map_or(0, |(revision, _)| *revision);
            let other = Counts::entry_of(&request).filter(|planned| *planned != revision);
            let answered = match other {
                Some(_) => Counts::other_entry(&revision.to_le_bytes()),
                None => counts.entry(key).or_default().answer(&request, now).unwrap(),
            };
            let accepted = plan.partition_mut(i).unwrap().accept(policy, &answered.reply);
            assert_eq!(accepted, if other.is_some() { Err(WireError::OtherEntry) } else { Ok(()) });
        }
        plan.outdated().is_some()
    }

    /// Decides a request with this guess: the revision, and the entry.
    fn check(&mut self, guess: (u64, Option<&str>), request: &Request, millis: u64) -> Seen {
        let now = Timestamp::from_millis(millis);
        let (mut revision, mut entry) = (guess.0, guess.1);
        for _ in 0..2 {
            self.policy.plan(request, &mut self.plan);
            if let Some(entry) = entry {
                let tenant = self.tenant(entry);
                self.policy.plan_for(request, &tenant, &mut self.plan);
            }
            assert!(self.policy.tenants().unwrap().ask_under(&mut self.plan, revision));
            let is_outdated = self.ask(true, now);
            if !is_outdated
                && matches!(self.plan.outcome(&self.policy).disposition(), Disposition::Allow)
            {
                assert!(!self.ask(false, now));
            }
            assert_eq!(self.plan.tenant().unwrap().has_confirmed_entry(), !is_outdated);
            if let Some(Outdated::Entry(kept)) = self.plan.outdated() {
                assert_eq!(kept, revision_of(self, "acme").to_le_bytes());
                revision = revision_of(self, "acme");
                entry = entry_of(self, "acme");
                continue;
            }
            return seen(&self.policy, &self.plan, Span::ZERO);
        }
        panic!("it was told what the entry is");
    }
}

fn key(front: &Front, name: &str) -> Vec<u8> {
    front.policy.tenants().unwrap().keys_of(name.as_bytes()).pop().unwrap()
}

fn revision_of(front: &Front, name: &str) -> u64 {
    front.entries.get(&key(front, name)).map_or(0, |(revision, _)| *revision)
}

fn entry_of(front: &Front, name: &str) -> Option<&'static str> {
    front.entries.get(&key(front, name)).map(|(_, entry)| *entry)
}

// Guards: a request that is decided by an entry which the tenant no longer has, or charged twice
// because the guess was wrong.
#[test]
fn whatever_is_guessed_the_entry_that_lies_there_decides() {
    const ENTRIES: [&str; 3] = [
        r#"{"tier": "gold"}"#,
        r#"{"quotas": {"each": [{"limit": 7, "window": "1m"}]}}"#,
        r#"{"quotas": {"each": [{"name": "one", "limit": 1, "window": "1m"}, {"name": "two", "limit": 5, "window": "1h"}]}}"#,
    ];
    let mut random = Random::new(11);
    let (mut guessing, mut knowing) = (Front::new(), Front::new());
    let mut known: Vec<(u64, Option<&'static str>)> = vec![(0, None)];
    let mut now = 1_000_000;
    for step in 1..4_000_u64 {
        now += random.below(9_000);
        let place = key(&guessing, "acme");
        match random.below(6) {
            0 => {
                let entry = *random.pick(&ENTRIES);
                known.push((step, Some(entry)));
                guessing.entries.insert(place.clone(), (step, entry));
                knowing.entries.insert(place, (step, entry));
            }
            1 => {
                guessing.entries.remove(&place);
                knowing.entries.remove(&place);
            }
            _ => {}
        }
        let guess = *random.pick(&known);
        let truth = (revision_of(&knowing, "acme"), entry_of(&knowing, "acme"));
        let expected = knowing.check(truth, &org("acme"), now);
        assert_eq!(guessing.check(guess, &org("acme"), now), expected, "{step}: {guess:?}");
        assert_eq!(guessing.counts, knowing.counts, "{step}");
    }
    assert!(guessing.asked > knowing.asked);
}

#[test]
fn an_entry_is_asked_for_together_only_where_the_key_is_the_tenant_alone() {
    for (key, on_it, is_alone) in [
        (r#"[{"header": "x-org"}]"#, "", true),
        (r#"[{"header": "x-org"}, "client_ip"]"#, "", false),
        (r#"["client_ip"]"#, "", false),
        ("[]", "", false),
        // A request that waits joins a line by its quotas.
        (r#"[{"header": "x-org"}]"#, r#""action": {"delay": {"max": "1s"}},"#, false),
    ] {
        let policy = compile(&format!(
            r#"{{"version": 1, "tenant": {{"header": "x-org"}}, "rules": [
               {{"name": "each", {on_it} "key": {key}, "quotas": [{{"limit": 2, "window": "1m"}}]}}]}}"#
        ));
        let tenants = policy.tenants().unwrap();
        let mut plan = Plan::new();
        policy.plan(&org("acme"), &mut plan);
        assert_eq!(tenants.ask_under(&mut plan, 0), is_alone, "{key} {on_it}");
        assert_eq!(tenants.identity() != 0, tenants.keys_of(b"acme").len() == 1, "{key}");
    }
    // A request without a tenant, and one that cannot be read, ask nothing of an entry.
    let policy = compile(ALONE);
    let tenants = policy.tenants().unwrap();
    let mut plan = Plan::new();
    policy.plan(&get("/", "192.0.2.1"), &mut plan);
    assert!(!tenants.ask_under(&mut plan, 0));
    policy.plan(&org("acme").header("x-org", "other"), &mut plan);
    assert!(!tenants.ask_under(&mut plan, 0));
}

#[test]
fn a_request_is_planned_again_with_the_entry_first_and_then_under_the_newest_policy() {
    let rule = |name: &str, key: &str| {
        format!(r#"{{"name": "{name}", "key": {key}, "quotas": [{{"limit": 2, "window": "1m"}}]}}"#)
    };
    let rules =
        [rule("a", r#"["client_ip"]"#), rule("b", "[]"), rule("c", r#"[{"header": "x-org"}]"#)];
    let policy = compile(&format!(
        r#"{{"version": 1, "tenant": {{"header": "x-org"}}, "rules": [{}]}}"#,
        rules.join(",")
    ));
    let mut plan = Plan::new();
    policy.plan(&org("acme"), &mut plan);
    assert!(policy.tenants().unwrap().ask_under(&mut plan, 3));
    for (i, version, newest) in [(0, 7, 7), (1, 9, 9), (0, 8, 9)] {
        plan.partition_mut(i).unwrap().fail(Failure::Newer(version));
        assert_eq!(plan.outdated(), Some(Outdated::Policy(newest)), "{i}");
    }
    let reply = Counts::other_entry(b"x").reply;
    let accepted = plan.partition_mut(2).unwrap().accept(&policy, &reply);
    assert_eq!(accepted, Err(WireError::OtherEntry));
    assert_eq!(plan.outdated(), Some(Outdated::Entry(b"x")));
    assert!(!plan.tenant().unwrap().has_confirmed_entry());
}

#[test]
fn a_tenancy_is_what_tenants_are_counted_alone_by() {
    let of = |tenant: &str, rules: &str| {
        let document = format!(r#"{{"version": 1, "tenant": {tenant}, "rules": [{rules}]}}"#);
        compile(&document).tenants().unwrap().identity()
    };
    let rule = |name: &str, key: &str| {
        format!(
            r#"{{"name": "{name}", "key": [{key}], "quotas": [{{"limit": 2, "window": "1m"}}]}}"#
        )
    };
    let (org, host) = (r#"{"header": "x-org"}"#, r#""host""#);
    let tenancy = of(org, &rule("a", org));
    assert_ne!(tenancy, 0);
    assert_eq!(of(org, &format!("{},{}", rule("b", org), rule("c", host))), tenancy);
    assert_ne!(of(host, &rule("a", host)), tenancy);
    assert_eq!(of(org, &rule("a", host)), 0);
    // The captured text of a path belongs to each rule.
    let shop = |name: &str| {
        format!(
            r#"{{"name": "{name}", "when": {{"paths": ["/{name}/{{shop}}"]}}, "key": [{{"path_param": "shop"}}],
                "quotas": [{{"limit": 2, "window": "1m"}}]}}"#
        )
    };
    let tenant = r#"{"path_param": "shop"}"#;
    let (a, b) = (shop("a"), shop("b"));
    let both = of(tenant, &format!("{a},{b}"));
    assert_eq!(both, of(tenant, &format!("{b},{a}")));
    assert_ne!(both, of(tenant, &a));
}

#[test]
fn what_a_response_brings_about_asks_for_no_entry_and_a_cut_request_says_none() {
    let policy = compile(ALONE);
    let mut plan = Plan::new();
    policy.plan(&org("acme"), &mut plan);
    assert!(policy.tenants().unwrap().ask_under(&mut plan, 9));
    let mut request = Vec::new();
    plan.partition(0).unwrap().request(&policy, &mut request);
    assert_eq!(Counts::entry_of(&request), Some(9));
    for len in 0..request.len() {
        let mut counts = Counts::default();
        let said = Counts::entry_of(&request[..len]);
        assert!(said.is_none() || said == Some(9));
        // The whole of the first rule is a request; any other part of it is not.
        assert!(counts.answer(&request[..len], Timestamp::from_millis(1)).is_err() || len == 33);
    }
    let mut settled = Vec::new();
    plan.partition(0).unwrap().settle_request(&policy, &mut settled);
    assert_eq!(Counts::entry_of(&settled), None);
    // A plan that did not ask accepts no other entry.
    policy.plan(&org("acme"), &mut plan);
    let told = Counts::other_entry(b"x").reply;
    let accepted = plan.partition_mut(0).unwrap().accept(&policy, &told);
    assert_eq!(accepted, Err(WireError::Malformed));
    assert!(plan.outdated().is_none() && !plan.tenant().unwrap().has_confirmed_entry());
}
