//! The scope of a rule's count: its own, a share, or the fleet's; and which rules continue alone.

use std::collections::BTreeSet;

use crate::support::{Surfaced, get};
use tollgate_core::{Span, Timestamp};
use tollgate_policy::{Disposition, Group, Partition, Plan, Policy, RuleResult, Scope, Surface};
use tollgate_storage::{LeaseAsk, LeaseQuestion, WireError};

/// A policy of these rules, each by the client's address with 12 per minute unless it contains
/// more.
fn document(rules: &[&str]) -> String {
    let rules: Vec<String> = rules
        .iter()
        .enumerate()
        .map(|(i, rule)| {
            let quotas = if rule.contains("quotas") {
                ""
            } else {
                r#", "quotas": [{"limit": 12, "window": "1m"}]"#
            };
            let rule = if rule.is_empty() { String::new() } else { format!(", {rule}") };
            format!(r#"{{"name": "r{i}", "key": ["client_ip"]{rule}{quotas}}}"#)
        })
        .collect();
    format!(r#"{{"version": 1, "rules": [{}]}}"#, rules.join(","))
}

fn compiled(rules: &[&str], surface: Surface) -> Policy {
    tollgate_language::compile(&document(rules), surface).unwrap_or_else(|e| panic!("{e}"))
}

const FLEET: &str = r#""scope": "fleet""#;
const SHARE: &str = r#""scope": {"share": 12}"#;

#[test]
fn a_policy_that_names_no_scope_has_the_identities_that_it_had() {
    let policy = compiled(&["", r#""scope": "local""#], Surface::Envoy);
    // As in every version before there were scopes.
    let groups: Vec<u64> = policy.groups().iter().map(Group::identity).collect();
    let sets: Vec<u64> = policy.quota_sets().iter().map(|set| set.stable_id()).collect();
    let mut parameters = Vec::new();
    policy.quota_sets().iter().for_each(|set| set.write_parameters(&mut parameters));
    assert_eq!(groups, [13_224_123_044_009_179_168]);
    assert_eq!(sets, [10_903_740_446_717_461_196, 11_327_505_222_417_401_136]);
    let records: Vec<&[u8]> = parameters.chunks(50).map(|set| &set[8..12]).collect();
    assert_eq!(records, [[73, 169, 225, 196], [212, 159, 122, 218]]);
    assert!(policy.fleet().is_empty());
}

#[test]
fn no_two_scopes_of_one_key_share_a_stored_value() {
    let rules = ["", FLEET, SHARE, r#""scope": {"share": 3}"#, r#""scope": "local""#];
    for surface in [Surface::Envoy, Surface::Worker, Surface::Server] {
        let policy = compiled(&rules, surface);
        let groups: Vec<usize> = policy.rules().iter().map(|rule| rule.group()).collect();
        // A new number of nodes is not another count: its use continues when one is added.
        assert_eq!(groups, [0, 1, 2, 2, 0]);
        let identities: BTreeSet<u64> = policy.groups().iter().map(Group::identity).collect();
        assert_eq!(identities.len(), 3);
        let fleet: Vec<bool> = policy.groups().iter().map(Group::is_fleet).collect();
        assert_eq!(fleet, [false, true, false]);
        let scopes: Vec<Scope> = policy.rules().iter().map(|rule| rule.scope()).collect();
        use Scope::{Fleet, Local, Share};
        assert_eq!(scopes, [Local, Fleet, Share(12), Share(3), Local]);
    }
}

#[test]
fn a_share_divides_limits_and_bursts_rounded_down_of_rules_and_tiers() {
    let rule = r#""scope": {"share": 7}, "quotas": [{"name": "a", "limit": 100, "window": "1m", "burst": 20, "strict": true},
        {"name": "b", "limit": 100, "window": "1m", "algorithm": "sliding-log"}],
        "tiers": [{"name": "t", "key_values": ["192.0.2.9"], "quotas": [{"limit": 13, "window": "1m"}]}]"#;
    let policy = compiled(&[rule], Surface::Envoy);
    let quotas = policy.quota_sets().iter().flat_map(|set| set.quotas());
    let numbers: Vec<_> = quotas
        .map(|quota| (quota.limiter().limit(), quota.limiter().capacity(), quota.name()))
        .collect();
    assert_eq!(numbers, [(14, 2, "a"), (14, 14, "b"), (1, 1, "r0")]);
    assert!(policy.quota_sets()[0].quotas()[0].limiter().quota().is_strict());
    let mut surface = Surfaced::new(&document(&[SHARE]));
    let request = get("/", "192.0.2.1");
    let answers = [0, 1, 5_000].map(|at| surface.check(&request, at));
    assert_eq!(answers[0].answer, Disposition::Allow);
    assert_eq!(answers[0].header("ratelimit-policy"), Some(r#""r0";q=1;w=60"#));
    assert_eq!(answers[1].answer, Disposition::Deny { status: 429 });
}

#[test]
fn a_lease_is_two_seconds_unless_the_rule_says_it_and_nothing_of_a_queue() {
    let queue = r#""scope": "fleet", "quotas": [{"limit": 12, "window": "1m"}], "tiers": [{"name": "q", "key_values": ["x"],
        "quotas": [{"limit": 2, "window": "1s", "algorithm": "leaky-queue"}]}]"#;
    let asked = r#""scope": "fleet", "lease": 0"#;
    let long = r#""scope": "fleet", "lease": "10s""#;
    let policy = compiled(&[FLEET, asked, long, queue, "", SHARE], Surface::Server);
    let leases: Vec<u64> = policy.rules().iter().map(|r| r.lease().as_millis_ceil()).collect();
    assert_eq!(leases, [2_000, 0, 10_000, 0, 0, 0]);
}

#[test]
fn what_is_counted_for_the_fleet_has_one_identity_everywhere() {
    let rules = [FLEET, "", r#""scope": "fleet", "on_failure": {"share": 2}"#];
    let one = compiled(&rules, Surface::Envoy).fleet().fingerprint();
    for surface in [Surface::Worker, Surface::Server] {
        assert_eq!(compiled(&rules, surface).fleet().fingerprint(), one);
    }
    // Local rules and spelling separate no node from its authority; quotas and keys do.
    let same = document(&rules).replace(": ", ":").replace("r1", "local");
    let same = tollgate_language::compile(&same, Surface::Server).unwrap();
    assert_eq!(same.fleet().fingerprint(), one);
    for (from, to) in [("\"limit\": 12", "\"limit\": 13"), ("client_ip", "host"), ("r0", "r9")] {
        let other =
            tollgate_language::compile(&document(&rules).replace(from, to), Surface::Server)
                .unwrap();
        assert!(other.fleet().fingerprint() != one, "{from}");
    }
    assert!(compiled(&[""], Surface::Server).fleet().fingerprint() != one);
}

fn planned(policy: &Policy) -> Plan {
    let mut plan = Plan::new();
    policy.plan(&get("/", "192.0.2.1"), &mut plan);
    plan
}

#[test]
fn a_node_without_its_authority_goes_on_as_each_rule_says() {
    let rules = [
        r#""scope": "fleet", "on_failure": {"share": 12}"#,
        r#""scope": "fleet", "on_failure": "deny", "mode": "shadow""#,
        r#""scope": "fleet", "on_failure": "local", "mode": "shadow""#,
        "",
    ];
    let policy = compiled(&rules, Surface::Envoy);
    assert_eq!(policy.groups().len(), 3);
    let mut plan = planned(&policy);
    let fleet: Vec<usize> =
        plan.partitions().filter(|p| p.is_fleet(&policy)).map(|p| p.index()).collect();
    assert_eq!(fleet, [0]);
    let own = plan.fall_back(&policy, 0).unwrap();
    assert!(plan.partition(0).unwrap().has_failed());
    let key = plan.partition(0).unwrap().key().to_vec();
    assert_eq!(plan.partition(own).unwrap().key(), key);
    assert_eq!(plan.partition(own).unwrap().group(), 2);
    assert!(!plan.partition(own).unwrap().is_fleet(&policy));
    plan.each_partition(|partition| {
        if !partition.view().has_failed() {
            partition.load(&policy, None);
        }
    });
    plan.decide(&policy, Timestamp::from_millis(1));
    let outcome = plan.outcome(&policy);
    assert_eq!(outcome.disposition(), Disposition::Allow);
    let results: Vec<RuleResult> = outcome.rules().map(|(_, result)| result).collect();
    assert_eq!(results[1], RuleResult::Failed);
    let limits = outcome.decisions().filter(|it| it.rule != 1);
    let limits: Vec<u64> = limits.flat_map(|it| it.quotas).map(|it| it.limit).collect();
    assert_eq!(limits, [1, 12, 12]);
    assert!(plan.partitions().filter(Partition::changed).count() == 2);
}

#[test]
fn a_rule_that_does_not_go_on_alone_fails_as_it_says() {
    for (mode, answer) in
        [("allow", Disposition::Allow), ("deny", Disposition::Deny { status: 503 })]
    {
        let rule = format!(r#""scope": "fleet", "on_failure": "{mode}""#);
        let policy = compiled(&[&rule], Surface::Envoy);
        let mut plan = planned(&policy);
        assert_eq!(plan.fall_back(&policy, 0), None);
        plan.decide(&policy, Timestamp::from_millis(1));
        assert_eq!(plan.outcome(&policy).disposition(), answer);
    }
    assert_eq!(
        planned(&compiled(&[FLEET], Surface::Envoy))
            .fall_back(&compiled(&[FLEET], Surface::Envoy), 7),
        None
    );
}

#[test]
fn an_authority_has_no_counts_of_nodes_alone() {
    let rules = [r#""scope": "fleet", "on_failure": {"share": 12}"#];
    for surface in [Surface::Worker, Surface::Server] {
        let policy = compiled(&rules, surface);
        assert_eq!((policy.groups().len(), policy.quota_sets().len()), (1, 1));
    }
}

#[test]
fn nothing_is_leased_of_a_rule_that_is_no_rule_of_the_fleet_or_asks_each_time() {
    let rules = [FLEET, r#""scope": "fleet", "lease": 0"#, ""];
    let (node, authority) = (compiled(&rules, Surface::Envoy), compiled(&rules, Surface::Server));
    let plan = planned(&node);
    let keys: Vec<_> = plan.partitions().map(|p| p.lease_key(&node, [7; 16])).collect();
    let mut of_fleet = keys[0].clone();
    assert_eq!(of_fleet.rules.len(), 2);
    for rule in &mut of_fleet.rules {
        let ask = &mut rule.ask;
        *ask = LeaseAsk { number: 1, want: 4, least: 1, life: Span::from_secs(9), ..ask.clone() };
    }
    let request = authority.fleet().lease_request(&of_fleet, 1, false).unwrap();
    let answered =
        tollgate_storage::Counts::default().answer(&request, Timestamp::from_millis(1)).unwrap();
    let (leased, _) = tollgate_storage::read_leased(&answered.reply).unwrap();
    assert_eq!(leased[0].unwrap().life, Span::from_secs(2), "no longer than the rule says");
    assert!(leased[1].is_err());
    assert_eq!(authority.fleet().lease_request(&keys[1], 1, false), Err(WireError::OtherPolicy));
    let question = LeaseQuestion { policy: node.fleet().fingerprint(), table: 1, keys };
    assert_eq!(question.policy, authority.fleet().fingerprint());
}
