//! A policy that replaces another: clients' counts continue, in one store that both count in while
//! connections are drained.

use std::collections::BTreeMap;

use crate::support::*;
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;
use tollgate_core::{FULLY_USED, Span, Timestamp};
use tollgate_policy::{
    Directory, Disposition, Ending, Plan, Policy, Registered, ResponseFacts, Surface, is_value,
};
use tollgate_test_support::hex;

const NOW: u64 = 1_780_000_000_000;

/// The store that all listeners count in: one group's values, and the directory.
#[derive(Default)]
struct Shared {
    store: BTreeMap<Vec<u8>, Vec<u8>>,
    directory: Vec<u8>,
}

/// One listener with its policy, and the directory as it read it last.
struct Listener {
    policy: Policy,
    plan: Plan,
    known: Directory,
}

impl Listener {
    fn new(document: &str, shared: &mut Shared) -> Self {
        let policy =
            tollgate_language::compile(document, Surface::Envoy).unwrap_or_else(|e| panic!("{e}"));
        let mut known = Directory::read(&shared.directory).unwrap_or_default();
        if known.register(&policy, &policy.groups()[0]) != Registered::AsItIs {
            shared.directory.clear();
            known.write(&mut shared.directory);
        }
        Self { policy, plan: Plan::new(), known }
    }

    fn of(rules: &str, shared: &mut Shared) -> Self {
        Self::new(&format!(r#"{{"version": 1, "rules": [{rules}]}}"#), shared)
    }

    fn check(&mut self, shared: &mut Shared, millis: u64) -> Seen {
        self.policy.plan(&get("/", "192.0.2.1"), &mut self.plan);
        self.commit(shared, millis);
        seen(&self.policy, &self.plan, Span::ZERO)
    }

    fn settle(&mut self, shared: &mut Shared, status: u16, millis: u64) {
        if self.plan.settle(&self.policy, Ending::Response(status), &()) {
            self.commit(shared, millis);
        }
    }

    fn settle_with(&mut self, shared: &mut Shared, response: &dyn ResponseFacts) {
        if self.plan.settle(&self.policy, Ending::Response(200), response) {
            self.commit(shared, NOW);
        }
    }

    fn load(&mut self, shared: &Shared, millis: u64) {
        let Self { policy, plan, known } = self;
        plan.each_partition(|partition| {
            let stored = shared.store.get(partition.key()).map(Vec::as_slice);
            if !partition.load_own(policy, stored) {
                *known = Directory::read(&shared.directory).unwrap_or_default();
                let now = Timestamp::from_millis(millis);
                partition.load_with(policy, known, stored.unwrap(), now);
            }
        });
    }

    fn commit(&mut self, shared: &mut Shared, millis: u64) {
        self.load(shared, millis);
        self.plan.decide(&self.policy, Timestamp::from_millis(millis));
        for partition in self.plan.partitions().filter(|p| p.changed() || p.is_carried()) {
            assert!(is_value(partition.value()));
            shared.store.insert(partition.key().to_vec(), partition.value().to_vec());
        }
    }

    /// How many of `tries` are allowed at one time.
    fn admitted(&mut self, shared: &mut Shared, tries: usize, millis: u64) -> usize {
        let is_admitted = |answer| matches!(answer, Disposition::Allow | Disposition::Delay(_));
        (0..tries).filter(|_| is_admitted(self.check(shared, millis).answer)).count()
    }
}

fn rule(name: &str, quotas: &str) -> String {
    format!(r#"{{"name": "{name}", "key": ["client_ip"], "quotas": [{quotas}]}}"#)
}

/// A quota without decay within these tests.
fn quota(limit: u32) -> String {
    format!(r#"{{"limit": {limit}, "window": "1d", "algorithm": "sliding-log"}}"#)
}

fn named(name: &str, limit: u32) -> String {
    quota(limit).replace('{', &format!(r#"{{"name": "{name}", "#))
}

/// The requests that a client still gets after a change, after 6 of "api" before it.
fn left_after(before: &str, after: &str) -> usize {
    let mut shared = Shared::default();
    assert_eq!(Listener::of(before, &mut shared).admitted(&mut shared, 6, NOW), 6);
    Listener::of(after, &mut shared).admitted(&mut shared, 200, NOW)
}

#[test]
fn a_raised_limit_gives_the_difference_and_a_lowered_one_nothing() {
    let before = rule("api", &quota(10));
    assert_eq!(left_after(&before, &before), 4);
    assert_eq!(left_after(&before, &rule("api", &quota(100))), 94);
    assert_eq!(left_after(&before, &rule("api", &quota(7))), 1);
    assert_eq!(left_after(&before, &rule("api", &quota(5))), 0);
}

#[test]
fn another_algorithm_goes_on_and_another_name_begins_anew() {
    let before = rule("api", &named("day", 10));
    assert_eq!(left_after(&before, &rule("api", &named("tag", 10))), 10);
    assert_eq!(left_after(&before, &rule("apis", &named("day", 10))), 10);
    for algorithm in ["gcra", "token-bucket", "fixed-window", "sliding-window", "sliding-buckets"] {
        let after = named("day", 10).replace("sliding-log", algorithm);
        assert_eq!(left_after(&before, &rule("api", &after)), 4, "{algorithm}");
    }
}

#[test]
fn a_rule_that_did_not_change_keeps_its_bytes_beside_one_that_did() {
    let steady = rule("steady", r#"{"limit": 50, "window": "1h"}"#);
    let mut shared = Shared::default();
    let mut old = Listener::of(&[steady.clone(), rule("api", &quota(10))].join(", "), &mut shared);
    for step in 0..5 {
        old.check(&mut shared, NOW + 7 * step);
    }
    let before = shared.store.values().next().unwrap().clone();
    let mut new = Listener::of(&[rule("api", &quota(7)), steady].join(", "), &mut shared);
    new.policy.plan(&get("/", "192.0.2.1"), &mut new.plan);
    new.load(&shared, NOW + 100);
    let after = new.plan.partition(0).unwrap().value();
    let record = &before[..8 + 8];
    assert!(after.windows(record.len()).any(|bytes| bytes == record), "header and state");
    let seen = new.check(&mut shared, NOW + 100);
    assert_eq!(seen.header("ratelimit"), Some(r#""api";r=1;t=12342, "steady";r=44;t=3168"#));
}

// A value that another policy wrote costs more to load; the first charge converts it to the own
// layout.
#[test]
fn the_first_charge_makes_a_value_current() {
    let mut shared = Shared::default();
    Listener::of(&rule("api", &quota(10)), &mut shared).admitted(&mut shared, 6, NOW);
    let mut new = Listener::of(&rule("api", &quota(12)), &mut shared);
    new.check(&mut shared, NOW);
    let (group, stored) = (&new.policy.groups()[0], &shared.store.values().next().unwrap().clone());
    assert_eq!(stored.len(), group.value_len());
    assert!(!group.has_unknown(&new.policy, &Directory::default(), stored));
}

#[test]
fn while_connections_drain_a_newer_record_is_decided_by_its_own_quotas() {
    for (limit, left) in [(100, 94), (8, 2), (7, 1)] {
        let mut shared = Shared::default();
        let mut old = Listener::of(&rule("api", &quota(10)), &mut shared);
        assert_eq!(old.admitted(&mut shared, 6, NOW), 6);
        let mut new = Listener::of(&rule("api", &quota(limit)), &mut shared);
        let mut admitted = 0;
        for _ in 0..100 {
            for listener in [&mut new, &mut old] {
                admitted += listener.admitted(&mut shared, 1, NOW);
            }
        }
        assert_eq!(admitted, left, "limit {limit}");
        let field = old.check(&mut shared, NOW);
        let policy = format!(r#""api";q={limit};w=86400"#);
        assert_eq!(field.header("ratelimit-policy"), Some(&*policy), "the quotas that decided");
    }
}

// The listener that drains has no quota "burst", and still has one "day": a request that it allows
// is charged to all quotas that the newer policy has, and to nothing else.
#[test]
fn a_quota_that_only_the_newer_policy_has_counts_what_the_older_one_admits() {
    let mut shared = Shared::default();
    let before = rule("api", &[named("day", 10), named("gone", 3)].join(", "));
    let mut old = Listener::of(&before, &mut shared);
    assert_eq!(old.admitted(&mut shared, 2, NOW), 2);
    let after = rule("api", &[named("burst", 4), named("day", 20)].join(", "));
    let mut new = Listener::of(&after, &mut shared);
    assert_eq!(new.admitted(&mut shared, 1, NOW), 1);
    let seen = old.check(&mut shared, NOW);
    assert_eq!(
        seen.header("ratelimit"),
        Some(r#""burst";r=2;t=43200, "day";r=16;t=69120"#),
        "{seen:?}"
    );
    assert_eq!(old.admitted(&mut shared, 9, NOW), 2);
    assert_eq!(new.admitted(&mut shared, 9, NOW), 0);
    assert_eq!(old.admitted(&mut shared, 9, NOW), 0);
}

// The newer policy has denied a client: so does the older one from then on.
#[test]
fn a_refusal_is_enough_for_the_newer_policy_to_hold() {
    let mut shared = Shared::default();
    let mut old = Listener::of(&rule("api", &quota(10)), &mut shared);
    let mut new = Listener::of(&rule("api", &quota(3)), &mut shared);
    assert_eq!(old.admitted(&mut shared, 6, NOW), 6);
    assert_eq!(new.admitted(&mut shared, 1, NOW), 0);
    assert_eq!(old.admitted(&mut shared, 6, NOW), 0);
}

// 10 per day are used up, and it becomes 10 per minute: a client that gets `Retry-After: 6` is
// allowed then.
#[test]
fn the_time_to_come_back_holds_after_a_change() {
    let of = |window| rule("api", &format!(r#"{{"limit": 10, "window": "{window}"}}"#));
    let mut shared = Shared::default();
    Listener::of(&of("1d"), &mut shared).admitted(&mut shared, 10, NOW);
    let mut new = Listener::of(&of("1m"), &mut shared);
    let refused = new.check(&mut shared, NOW);
    assert_eq!(refused.header("retry-after"), Some("6"));
    assert_eq!(new.check(&mut shared, NOW + 5_999).answer, Disposition::Deny { status: 429 });
    assert_eq!(new.check(&mut shared, NOW + 6_000).answer, Disposition::Allow);
}

#[test]
fn there_and_back_resets_nobody() {
    let mut shared = Shared::default();
    let (one, other) = (rule("api", &quota(10)), rule("api", &quota(20)));
    let mut admitted = 0;
    for rules in [&one, &other, &one, &other, &one, &other] {
        let mut listener = Listener::of(rules, &mut shared);
        admitted += listener.admitted(&mut shared, 3, NOW);
    }
    // 3 and 6 of 10, then 9 and 12 of 20 in turn with 10.
    assert_eq!(admitted, 3 + 3 + 3 + 3 + 3);
    let directory = Directory::read(&shared.directory).unwrap();
    assert_eq!(directory.len(), 2);
}

// After a roll-back the policy in force is the newer one again, and the other one drains.
#[test]
fn after_a_roll_back_the_other_policy_drains() {
    let mut shared = Shared::default();
    let mut first = Listener::of(&rule("api", &quota(10)), &mut shared);
    assert_eq!(first.admitted(&mut shared, 6, NOW), 6);
    let mut second = Listener::of(&rule("api", &quota(20)), &mut shared);
    assert_eq!(second.admitted(&mut shared, 1, NOW), 1);
    let mut back = Listener::of(&rule("api", &quota(10)), &mut shared);
    assert_eq!(back.admitted(&mut shared, 1, NOW), 1);
    assert_eq!(second.admitted(&mut shared, 20, NOW), 2);
    assert_eq!(back.admitted(&mut shared, 20, NOW), 0);
}

// Two listeners whose plugins have one name, with other rules of one key: neither forgets what the
// other counted.
#[test]
fn rules_of_another_listener_are_left_beside() {
    let mut shared = Shared::default();
    let mut one = Listener::of(&rule("one", &quota(10)), &mut shared);
    let mut other = Listener::of(&rule("other", &quota(5)), &mut shared);
    let mut admitted = [0, 0];
    for _ in 0..40 {
        admitted[0] += one.admitted(&mut shared, 1, NOW);
        admitted[1] += other.admitted(&mut shared, 1, NOW);
    }
    assert_eq!(admitted, [10, 5]);
}

#[test]
fn a_rule_that_is_gone_leaves_its_record_until_it_is_idle() {
    let mut shared = Shared::default();
    let both = [rule("api", &quota(10)), rule("gone", &quota(5))].join(", ");
    Listener::of(&both, &mut shared).admitted(&mut shared, 3, NOW);
    let mut new = Listener::of(&rule("api", &quota(10)), &mut shared);
    new.check(&mut shared, NOW);
    let len = |shared: &Shared| shared.store.values().next().unwrap().len();
    assert!(len(&shared) > new.policy.groups()[0].value_len());
    let mut back = Listener::of(&both, &mut shared);
    assert_eq!(back.admitted(&mut shared, 9, NOW), 2, "it comes back as it was");
    new.check(&mut shared, NOW + 86_400_000);
    assert_eq!(len(&shared), new.policy.groups()[0].value_len());
}

#[test]
fn what_no_directory_knows_begins_anew() {
    let mut shared = Shared::default();
    let mut old = Listener::of(&rule("api", &quota(10)), &mut shared);
    assert_eq!(old.admitted(&mut shared, 6, NOW), 6);
    shared.directory.clear();
    let mut new = Listener::of(&rule("api", &quota(12)), &mut shared);
    assert_eq!(new.admitted(&mut shared, 20, NOW), 12);
    // It reads a directory that does not know it, either: the newer quotas hold.
    assert_eq!(old.admitted(&mut shared, 20, NOW), 0);
}

#[test]
fn a_record_of_other_quotas_weighs_as_much_as_they_say() {
    let mut shared = Shared::default();
    let mut old = Listener::of(&rule("api", &quota(4)), &mut shared);
    old.admitted(&mut shared, 4, NOW);
    let new = Listener::of(&rule("api", &quota(1000)), &mut shared);
    let (group, value) = (&new.policy.groups()[0], &shared.store.values().next().unwrap().clone());
    let now = Timestamp::from_millis(NOW);
    let share = group.used_share_with(&new.policy, &new.known, value, now);
    assert_eq!(share.enforced, FULLY_USED);
    assert_eq!(
        group.idle_at_with(&new.policy, &new.known, value),
        Timestamp::from_millis(NOW + 86_400_000)
    );
    assert!(!group.has_unknown(&new.policy, &new.known, value));
    // A listener that does not know the quotas has no count of the client.
    assert_eq!(group.used_share(&new.policy, value, now).enforced, 0);
    assert_eq!(group.idle_at(&new.policy, value), Timestamp::ZERO);
    assert!(group.has_unknown(&new.policy, &Directory::default(), value));
    // A rule in shadow is also one for its earlier records.
    let shadow = rule("api", &quota(1000)).replace("\"key\"", "\"mode\": \"shadow\", \"key\"");
    let shadow = Listener::of(&shadow, &mut shared);
    let share =
        shadow.policy.groups()[0].used_share_with(&shadow.policy, &shadow.known, value, now);
    assert_eq!((share.enforced, share.shadow), (0, FULLY_USED));
}

// Charges to other quotas are not given back to these: after a clamp the refund would exceed the
// charge.
#[test]
fn a_place_that_was_held_under_other_quotas_stays_taken() {
    let held = |limit| {
        let charge = r#""charge": {"response_status": ["2xx"], "reserve": true}, "key""#;
        rule("login", &quota(limit)).replace("\"key\"", charge)
    };
    for (limit, left) in [(10, 8), (12, 9)] {
        let mut shared = Shared::default();
        let mut old = Listener::of(&held(10), &mut shared);
        for _ in 0..2 {
            assert_eq!(old.check(&mut shared, NOW).answer, Disposition::Allow);
        }
        let mut new = Listener::of(&held(limit), &mut shared);
        assert_eq!(new.check(&mut shared, NOW).answer, Disposition::Allow);
        // The older listener's last one ends without a charge.
        old.settle(&mut shared, 500, NOW);
        assert_eq!(new.admitted(&mut shared, 30, NOW), left, "limit {limit}");
    }
}

/// A rule that counts tokens by a header and one that counts bytes, with these limits.
fn settled(tokens: u32, bytes: u32) -> String {
    let rule = |name: &str, limit: u32, actual: &str| {
        format!(
            r#"{{"name": "{name}", "key": ["client_ip"], "cost": {{"estimate": 10, "max": 60, "actual": {actual}}},
            "quotas": [{{"name": "{name}", "limit": {limit}, "window": "366d", "algorithm": "fixed-window"}}]}}"#
        )
    };
    [rule("tokens", tokens, r#"{"header": "x-tokens"}"#), rule("bytes", bytes, r#""bytes""#)]
        .join(", ")
}

// Guards: use that is forgotten because the policy changed while the response came: only what was
// not used does not come back to a changed quota.
#[test]
fn use_above_an_estimate_is_recorded_whatever_policy_is_newest() {
    // The estimates are 10. The tokens are known at the head, the bytes at the end.
    for (changed, shown, before_head, after_head) in [
        (settled(1_000, 1_000), "50", [950, 950], [950, 950]), // unchanged
        (settled(1_200, 1_000), "50", [1_150, 950], [1_150, 950]),
        (settled(1_000, 1_200), "50", [950, 1_150], [950, 1_150]),
        (settled(1_200, 1_200), "50", [1_150, 1_150], [1_150, 1_150]),
        (settled(1_000, 1_200), "2", [998, 1_190], [998, 1_190]),
        (settled(1_200, 1_000), "2", [1_190, 998], [1_198, 998]),
    ] {
        for (changes_after_head, left) in [(false, before_head), (true, after_head)] {
            let mut shared = Shared::default();
            let mut old = Listener::of(&settled(1_000, 1_000), &mut shared);
            assert_eq!(old.check(&mut shared, NOW).answer, Disposition::Allow);
            if changes_after_head {
                old.settle_with(&mut shared, &Head(Tokens(shown)));
            }
            let mut new = Listener::of(&changed, &mut shared);
            new.check(&mut shared, NOW);
            if !changes_after_head {
                old.settle_with(&mut shared, &Head(Tokens(shown)));
            }
            assert!(old.plan.settlement(&old.policy).awaits_end());
            old.settle_with(&mut shared, &Ended(shown.parse().unwrap()));
            new.check(&mut shared, NOW);
            let outcome = new.plan.outcome(&new.policy);
            let remaining = outcome.decisions().map(|decision| decision.quotas[0].remaining);
            let left = left.map(|left| left - 20); // the estimates of both requests to the new one
            assert_eq!(remaining.collect::<Vec<u64>>(), left, "{changed} {changes_after_head}");
        }
    }
}

#[test]
fn the_same_policy_is_registered_once() {
    let mut shared = Shared::default();
    let rules = [rule("api", &quota(10)), rule("all", &quota(50))].join(", ");
    let first = Listener::of(&rules, &mut shared);
    let before = shared.directory.clone();
    let second = Listener::of(&rules, &mut shared);
    assert_eq!(shared.directory, before);
    assert_eq!((first.known.len(), second.known.len()), (2, 2));
    // One rule less is another generation.
    Listener::of(&rule("api", &quota(10)), &mut shared);
    assert_ne!(shared.directory, before);
    let mut again = Directory::read(&shared.directory).unwrap();
    let group = &first.policy.groups()[0];
    assert_eq!(again.register(&first.policy, group), Registered::Newest { forgotten: 0 });
    assert_eq!(again.register(&first.policy, group), Registered::AsItIs);
}

#[test]
fn the_newest_sets_are_kept() {
    let mut directory = Directory::default();
    let mut forgotten = 0;
    for limit in 1..=300 {
        let document = format!(r#"{{"version": 1, "rules": [{}]}}"#, rule("api", &quota(limit)));
        let policy = tollgate_language::compile(&document, Surface::Envoy).unwrap();
        let Registered::Newest { forgotten: n } = directory.register(&policy, &policy.groups()[0])
        else {
            panic!("it is new");
        };
        forgotten += n;
    }
    assert_eq!((directory.len(), forgotten), (257, 43));
    let mut bytes = vec![];
    directory.write(&mut bytes);
    assert_eq!(bytes.len(), 1 + 257 * (8 + 2 + 14 + 36 + 1 + "api".len()));
}

#[test]
fn golden_bytes_of_a_directory() {
    let mut shared = Shared::default();
    Listener::of(&rule("api", &quota(10)), &mut shared);
    let hex = hex(&shared.directory);
    assert_eq!(
        hex,
        "010100000000000000360048fcfbb94d40524f5ee85c34010148fcfbb94d40524f080000000a0000000000\
         000000004f91944e00000a0000000000000003617069"
    );
}

fn config() -> ProptestConfig {
    let persistence = FileFailurePersistence::WithSource("regressions");
    ProptestConfig {
        failure_persistence: Some(Box::new(persistence)),
        ..ProptestConfig::with_cases(1500)
    }
}

proptest! {
    #![proptest_config(config())]

    /// Whatever bytes are in the directory and in the value: no panic, and the written value is
    /// current or known.
    #[test]
    fn any_bytes_are_loaded(
        noise in prop::collection::vec(any::<u8>(), 0..80), cut in 0_usize..200, at in 0_usize..300,
        value: u8, in_directory: bool,
    ) {
        let mut shared = Shared::default();
        let both = [rule("api", &[named("a", 3), named("b", 9)].join(", ")), rule("gone", &quota(5))].join(", ");
        Listener::of(&both, &mut shared).admitted(&mut shared, 2, NOW);
        let mut new = Listener::of(&rule("api", &[named("b", 7), named("c", 9)].join(", ")), &mut shared);
        let key = shared.store.keys().next().unwrap().clone();
        let bytes = if in_directory {
            &mut shared.directory
        } else {
            shared.store.get_mut(&key).unwrap()
        };
        let at = at % bytes.len();
        bytes[at] = value;
        let cut = cut.min(bytes.len());
        bytes.splice(cut.., noise);
        new.known = Directory::read(&shared.directory).unwrap_or_default();
        new.known.register(&new.policy, &new.policy.groups()[0]);
        new.check(&mut shared, NOW);
        let group = &new.policy.groups()[0];
        let stored = shared.store.values().next().unwrap();
        let now = Timestamp::from_millis(NOW);
        let _ = group.used_share_with(&new.policy, &new.known, stored, now);
        let _ = group.idle_at_with(&new.policy, &new.known, stored);
    }

    /// Several policies in parallel, each of which gives more than the one before: in every order
    /// of requests exactly the newest policy's quota is allowed, and nothing more by the others
    /// after it.
    #[test]
    fn every_order_of_requests_admits_what_the_newest_policy_gives(
        mut limits in prop::collection::vec(1_u32..12, 2..5),
        order in prop::collection::vec((0_usize..5, 1_usize..4), 1..30),
    ) {
        limits.sort_unstable();
        limits.dedup();
        let mut shared = Shared::default();
        let mut listeners: Vec<_> = limits
            .iter()
            .map(|limit| Listener::of(&rule("api", &quota(*limit)), &mut shared))
            .collect();
        let mut admitted = 0_usize;
        let most = usize::try_from(*limits.last().unwrap()).unwrap();
        for (who, tries) in order {
            let who = who % listeners.len();
            admitted += listeners[who].admitted(&mut shared, tries, NOW);
        }
        for listener in listeners.iter_mut().rev() {
            admitted += listener.admitted(&mut shared, 20, NOW);
            prop_assert_eq!(admitted, most);
        }
    }
}
