//! Many rules that count by one key: a value contains only records with a charge, and decides as if
//! it had all of them.

use std::collections::BTreeMap;

use crate::support::*;
use tollgate_core::Timestamp;
use tollgate_policy::{Decision, Directory, Disposition, Plan, Policy, Surface, is_value};

const START: u64 = 1_780_000_000_000;
const RULES: usize = 100;
/// Bytes of a record with one quota of gcra.
const RECORD: usize = 16;

const QUOTAS: [&str; 6] = [
    r#"{"limit": 3, "window": "2s"}"#,
    r#"{"limit": 4, "window": "3s", "algorithm": "sliding-log"}"#,
    r#"{"name": "short", "limit": 5, "window": "1s", "algorithm": "fixed-window"}, {"name": "long", "limit": 9, "window": "20s"}"#,
    r#"{"limit": 6, "window": "5s", "algorithm": "sliding-window"}"#,
    r#"{"limit": 2, "window": "1m", "algorithm": "token-bucket"}"#,
    r#"{"limit": 7, "window": "4s", "algorithm": "sliding-buckets", "buckets": 4}"#,
];

/// A rule for each path `/0`, `/1` and so on, and all of one key.
fn rule(of: usize, quotas: &str) -> String {
    format!(
        r#"{{"name": "r{of}", "when": {{"paths": ["/{of}/**"]}}, "key": ["client_ip"], "quotas": [{quotas}]}}"#
    )
}

fn document(rules: impl Iterator<Item = String>) -> String {
    let rules: Vec<String> = rules.collect();
    format!(r#"{{"version": 1, "rules": [{}]}}"#, rules.join(", "))
}

fn thousand() -> Surfaced {
    let quota = r#"{"limit": 3, "window": "1m"}"#;
    Surfaced::new(&document((0..1_000).map(|of| rule(of, quota))))
}

fn at(path: usize) -> Request {
    get(&format!("/{path}/"), "192.0.2.1")
}

// Guards: 16 KB for a client that uses three rules of a thousand, copied at every request.
#[test]
fn a_key_takes_what_the_rules_take_that_it_uses() {
    let mut surface = thousand();
    assert!(surface.policy.groups()[0].is_sparse());
    for used in [7, 999, 7, 0, 999, 7] {
        assert_eq!(surface.check(&at(used), START).answer, Disposition::Allow);
    }
    let stored = surface.store.values().next().unwrap();
    assert!(is_value(stored));
    assert_eq!(stored.len(), 3 * RECORD);
    assert!(matches!(surface.check(&at(7), START).answer, Disposition::Deny { .. }));
    assert_eq!(surface.store.values().next().unwrap().len(), 3 * RECORD);
}

// Guards: a record of every rule in the end, because none is ever removed.
#[test]
fn what_is_idle_leaves_when_a_record_comes() {
    let mut surface = thousand();
    for used in 0..1_000 {
        // Each is used up in full for a minute; so 60 of them are not idle at a time.
        let millis = START + u64::try_from(used).unwrap() * 1_000;
        for _ in 0..3 {
            assert_eq!(surface.check(&at(used), millis).answer, Disposition::Allow);
        }
        assert!(matches!(surface.check(&at(used), millis).answer, Disposition::Deny { .. }));
        let stored = surface.store.values().next().unwrap();
        assert!(stored.len() <= 61 * RECORD, "{} after {used}", stored.len());
    }
    assert!(surface.store.values().next().unwrap().len() >= 59 * RECORD);
}

// Each request applies one rule, so that rule alone, with its own value, gives the right result.
#[test]
fn every_rule_decides_as_if_it_were_alone() {
    let quotas = |of: usize| QUOTAS[of % QUOTAS.len()];
    let mut all = Surfaced::new(&document((0..RULES).map(|of| rule(of, quotas(of)))));
    let mut alone: Vec<Surfaced> =
        (0..RULES).map(|of| Surfaced::new(&document([rule(of, quotas(of))].into_iter()))).collect();
    assert!(all.policy.groups()[0].is_sparse());
    let random = &mut Random::new(3);
    let (mut millis, mut refused, mut shrank, mut longest) = (START, 0, 0, 0);
    for round in 0..30_000 {
        millis += *random.pick(&[0, 0, 1, 20, 90, 400]);
        if random.one_in(2_000) {
            millis += 100_000;
        }
        // Most go to a few.
        let of = *random.pick(&[3, 10, RULES / 2, RULES]);
        let of = usize::try_from(random.below(u64::try_from(of).unwrap())).unwrap();
        let before = all.store.values().next().map_or(0, Vec::len);
        let seen = all.check(&at(of), millis);
        assert_eq!(seen, alone[of].check(&at(of), millis), "{round}: rule {of}");
        refused += usize::from(matches!(seen.answer, Disposition::Deny { .. }));
        let after = all.store.values().next().map_or(0, Vec::len);
        shrank += usize::from(after < before);
        longest = longest.max(after);
        // A store that forgets it looks at all of it.
        let stored = all.store.values().next().unwrap();
        let idle_at = all.policy.groups()[0].idle_at(&all.policy, stored);
        let live = alone.iter().filter_map(|one| {
            Some(one.policy.groups()[0].idle_at(&one.policy, one.store.values().next()?))
        });
        let live = live.max().unwrap();
        assert!(idle_at == live || live <= Timestamp::from_millis(millis), "{round}");
    }
    assert!(refused > 3_000 && shrank > 100 && longest > 1_000, "{refused} {shrank} {longest}");
}

/// The decision of each quota of each rule that applied, by the rule's index.
fn decisions(surface: &Surfaced) -> impl Iterator<Item = (usize, Vec<Decision>)> {
    let outcome = surface.plan.outcome(&surface.policy);
    outcome.decisions().map(|decision| (decision.rule, decision.quotas.to_vec()))
}

// Guards: records looked for all at once, where one rule is given the place of another. Each rule
// is in shadow, so if one denies, the others still charge.
#[test]
fn many_rules_that_apply_at_once_count_as_if_each_were_alone() {
    let quotas = |of: usize| QUOTAS[of % QUOTAS.len()];
    let shadow = |of: usize| {
        format!(
            r#"{{"name": "r{of}", "when": {{"headers": {{"x-rules": "{of}"}}}}, "key": ["client_ip"],
             "mode": "shadow", "quotas": [{}]}}"#,
            quotas(of)
        )
    };
    let mut all = Surfaced::new(&document((0..RULES).map(shadow)));
    let mut alone: Vec<Surfaced> =
        (0..RULES).map(|of| Surfaced::new(&document([shadow(of)].into_iter()))).collect();
    let random = &mut Random::new(4);
    let (mut millis, mut compared, mut shrank, mut longest) = (START, 0, 0, 0);
    for round in 0..1_500 {
        millis += *random.pick(&[0, 1, 90, 400, 4_000, 100_000]);
        let among = *random.pick(&[2, 12, 40, 400]);
        let rules: Vec<usize> = (0..RULES).filter(|_| random.one_in(among)).collect();
        let listed: Vec<String> = rules.iter().map(usize::to_string).collect();
        let request = get("/", "192.0.2.1").header("x-rules", listed.join(","));
        let before = all.store.values().next().map_or(0, Vec::len);
        all.check(&request, millis);
        let decided: Vec<(usize, Vec<Decision>)> = decisions(&all).collect();
        assert!(decided.iter().map(|(rule, _)| *rule).eq(rules.iter().copied()), "{round}");
        for (of, quotas) in decided {
            alone[of].check(&request, millis);
            assert_eq!(decisions(&alone[of]).next(), Some((0, quotas)), "{round}: rule {of}");
            compared += 1;
        }
        let after = all.store.values().next().map_or(0, Vec::len);
        shrank += usize::from(after < before);
        longest = longest.max(after);
    }
    assert!(compared > 10_000 && shrank > 100 && longest > 1_000, "{compared} {shrank} {longest}");
}

fn load(plan: &mut Plan, policy: &Policy, known: &Directory, stored: Option<&[u8]>, millis: u64) {
    let mut partition = plan.partition_mut(0).unwrap();
    if !partition.load_own(policy, stored) {
        partition.load_with(policy, known, stored.unwrap(), Timestamp::from_millis(millis));
    }
}

// Guards: a count that begins again because rules were added, or removed, until values have the
// other form.
#[test]
fn counts_go_on_when_values_become_sparse_and_whole_again() {
    let few = |limit: u32| rule(0, &format!(r#"{{"limit": {limit}, "window": "1d"}}"#));
    let other = |of| rule(of, r#"{"limit": 5, "window": "1d"}"#);
    let documents = [
        document([few(10)].into_iter()),
        document((1..50).map(other).chain([few(12)])),
        document([few(11)].into_iter().chain((20..120).map(other))),
        document([few(11)].into_iter()),
        document([few(20)].into_iter().chain((20..21).map(other))),
    ];
    let mut known = Directory::default();
    let (mut stored, mut admitted): (Option<Vec<u8>>, _) = (None, Vec::new());
    for document in documents {
        let policy = tollgate_language::compile(&document, Surface::Envoy).unwrap();
        known.register(&policy, &policy.groups()[0]);
        let mut plan = Plan::new();
        let mut by_path = BTreeMap::new();
        for path in [0, 0, 20, 0, 20] {
            policy.plan(&at(path), &mut plan);
            if plan.is_empty() {
                continue;
            }
            load(&mut plan, &policy, &known, stored.as_deref(), START);
            plan.decide(&policy, Timestamp::from_millis(START));
            let is_admitted = matches!(plan.outcome(&policy).disposition(), Disposition::Allow);
            *by_path.entry(path).or_insert(0) += u32::from(is_admitted);
            let partition = plan.partition(0).unwrap();
            if partition.changed() || partition.is_carried() {
                stored = Some(partition.value().to_vec());
            }
        }
        admitted.push((by_path.get(&0).copied(), by_path.get(&20).copied()));
    }
    let expected = [
        (Some(3), None),
        (Some(3), Some(2)),
        (Some(3), Some(2)),
        (Some(2), None),    // 11 of 11
        (Some(3), Some(1)), // 5 of 5
    ];
    assert_eq!(admitted, expected);
}

// Guards: an update of the filter that begins every count again: before, each value had all
// records.
#[test]
fn a_value_with_all_records_is_read_as_well() {
    let mut surface = thousand();
    let group = &surface.policy.groups()[0];
    let mut all = Vec::new();
    let mut one = thousand();
    one.check(&at(5), START);
    one.check(&at(5), START);
    let used = one.store.values().next().unwrap().clone();
    for of in 0..1_000 {
        let mut other =
            Surfaced::new(&document([rule(of, r#"{"limit": 3, "window": "1m"}"#)].into_iter()));
        other.check(&at(of), START);
        let mut record = other.store.values().next().unwrap().clone();
        record[8..].fill(0);
        all.extend(if of == 5 { used.clone() } else { record });
    }
    assert_eq!(all.len(), group.value_len());
    surface.policy.plan(&at(5), &mut surface.plan);
    let key = surface.plan.partition(0).unwrap().key().to_vec();
    assert!(surface.plan.partition_mut(0).unwrap().load_own(&surface.policy, Some(&all)));
    surface.store.insert(key, all);
    assert_eq!(surface.check(&at(5), START).answer, Disposition::Allow);
    assert!(matches!(surface.check(&at(5), START).answer, Disposition::Deny { .. }));
    assert_eq!(surface.check(&at(6), START).answer, Disposition::Allow);
}
