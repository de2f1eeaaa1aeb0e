//! Operations on one key: describe, reset, block until a time.

use proptest::prelude::*;
use tollgate_core::{Span, Timestamp};
use tollgate_policy::{Disposition, GivenKey, Plan, Policy, RuleResult, Surface};
use tollgate_storage::{Counts, KeyOperation, KeyState, MAX_BLOCK};

use crate::support::{get, seen};

const POLICY: &str = r#"{"version": 1, "rules": [
    {"name": "each", "key": ["client_ip"], "quotas": [{"name": "hour", "limit": 5, "window": "1h", "algorithm": "sliding-log"}],
     "tiers": [{"name": "gold", "when": {"headers": {"x-plan": "gold"}}, "quotas": [{"limit": 9, "window": "1h"}]}]},
    {"name": "more", "key": ["client_ip"], "quotas": [{"limit": 50, "window": "1h"}]}]}"#;

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_millis(1_780_000_000_000).saturating_add(Span::from_secs(seconds))
}

fn compiled(document: &str) -> Policy {
    tollgate_language::compile(document, Surface::Worker).unwrap_or_else(|e| panic!("{e}"))
}

/// One key's counts, which go through their row after every step.
#[derive(Default)]
struct Object(Counts);

impl Object {
    fn through_its_row(&mut self, now: Timestamp) {
        let mut row = Vec::new();
        self.0.encode(now, &mut row);
        self.0 = Counts::decode(&row).unwrap();
    }

    /// Decides a request of the client; the plan, with its request and reply.
    fn check(&mut self, policy: &Policy, plan: &str, now: Timestamp) -> (Plan, Vec<u8>, Vec<u8>) {
        let mut planned = Plan::new();
        policy.plan(&get("/", "192.0.2.1").header("x-plan", plan), &mut planned);
        let mut request = Vec::new();
        planned.partition(0).unwrap().request(policy, &mut request);
        let answered = self.0.answer(&request, now).unwrap();
        planned.partition_mut(0).unwrap().accept(policy, &answered.reply).unwrap();
        self.through_its_row(now);
        (planned, request, answered.reply)
    }

    fn passes(&mut self, policy: &Policy, plan: &str, now: Timestamp) -> bool {
        self.check(policy, plan, now).0.outcome(policy).disposition() == Disposition::Allow
    }

    /// Does it twice: the second time nothing changes.
    fn operate(
        &mut self,
        policy: &Policy,
        rule: &str,
        operation: KeyOperation,
        now: Timestamp,
    ) -> KeyState {
        let key = GivenKey::new(policy, rule, &["192.0.2.1".into()]).unwrap();
        let mut request = Vec::new();
        key.request(policy, operation, &mut request);
        self.0.operate(&request, now).unwrap();
        self.through_its_row(now);
        let again = self.0.operate(&request, now).unwrap();
        assert!(!again.is_changed, "{operation:?}");
        KeyState::read(&again.reply).unwrap()
    }
}

#[test]
fn a_block_refuses_until_its_time_whatever_the_policy_becomes() {
    let policy = compiled(POLICY);
    let mut object = Object::default();
    let state = object.operate(&policy, "each", KeyOperation::Block(at(600)), at(0));
    assert_eq!(state.blocked_until, Some(at(600)));
    assert!(object.0.idle_at() >= at(600), "no alarm may delete it");
    for plan in ["none", "gold"] {
        let (decided, ..) = object.check(&policy, plan, at(60));
        let outcome = decided.outcome(&policy);
        let results: Vec<_> = outcome.rules().collect();
        assert_eq!(results, [(0, RuleResult::Blocked), (1, RuleResult::Allowed)], "{plan}");
        assert_eq!(outcome.retry_after(), Some(Span::from_secs(540)));
        let seen = seen(&policy, &decided, Span::ZERO);
        assert_eq!(seen.header("retry-after"), Some("540"));
        let field = seen.header("ratelimit").unwrap();
        assert!(field.contains("r=0;t=540, \"more\";r=50;"), "{field}");
    }
    // Another quota, and no tier any more.
    let changed = compiled(
        r#"{"version": 1, "rules": [{"name": "each", "key": ["client_ip"], "quotas": [{"limit": 500, "window": "1d"}]}]}"#,
    );
    assert!(!object.passes(&changed, "gold", at(599)));
    assert!(object.passes(&changed, "gold", at(600)), "it is over");
    // Only a shadow rule: the request passes, and would have been denied.
    let shadow =
        compiled(&POLICY.replace(r#""name": "each","#, r#""name": "each", "mode": "shadow","#));
    object.operate(&shadow, "each", KeyOperation::Block(at(9_000)), at(700));
    let (decided, ..) = object.check(&shadow, "none", at(700));
    let outcome = decided.outcome(&shadow);
    assert_eq!(outcome.disposition(), Disposition::Allow);
    assert_eq!(outcome.rules().next(), Some((0, RuleResult::Shadowed)));
    // Ended, and never longer than a year.
    object.operate(&policy, "each", KeyOperation::Unblock, at(701));
    assert!(object.passes(&policy, "none", at(701)));
    let state = object.operate(&policy, "each", KeyOperation::Block(Timestamp::MAX), at(800));
    assert_eq!(state.blocked_until, Some(at(800).saturating_add(MAX_BLOCK)));
    object.operate(&policy, "each", KeyOperation::Reset, at(800));
    assert!(!object.passes(&policy, "none", at(801)), "a reset ends no block");
}

#[test]
fn a_key_is_told_in_numbers() {
    let policy = compiled(POLICY);
    let mut object = Object::default();
    let state = object.operate(&policy, "each", KeyOperation::Describe, at(0));
    let sets: Vec<_> = policy.rules()[0].quota_sets(&policy).collect();
    assert_eq!((sets.len(), state.of(&sets[0].to_stored())), (2, None));
    for n in 0..3 {
        assert!(object.passes(&policy, "none", at(n)));
    }
    let state = object.operate(&policy, "each", KeyOperation::Describe, at(3));
    let decisions = state.of(&sets[0].to_stored()).unwrap();
    assert_eq!((decisions[0].decision.limit, decisions[0].decision.remaining), (5, 2));
    assert_eq!(state.of(&sets[1].to_stored()), None);
    // Under a policy that changed since: the units that it will carry over.
    let changed = compiled(&POLICY.replace(r#""limit": 5"#, r#""limit": 4"#));
    let state = object.operate(&changed, "each", KeyOperation::Describe, at(3));
    let set = changed.rules()[0].quota_sets(&changed).next().unwrap();
    assert_eq!(state.of(&set.to_stored()).unwrap()[0].decision.remaining, 1);
    // A reset clears the rule's own state.
    object.operate(&policy, "each", KeyOperation::Reset, at(4));
    let state = object.operate(&policy, "more", KeyOperation::Describe, at(4));
    assert_eq!(
        state.of(&policy.rules()[1].quota_sets(&policy).next().unwrap().to_stored()).unwrap()[0]
            .decision
            .remaining,
        47
    );
}

proptest! {
    /// A reset in the middle of a flood: from then on no more is allowed than to a fresh key,
    /// though earlier charges are given back afterwards.
    #[test]
    fn after_a_reset_no_more_is_admitted_than_to_a_fresh_key(
        algorithm in 0_usize..8,
        before in 0_usize..8,
        events in prop::collection::vec(0_u8..3, 1..40),
    ) {
        let algorithm = ["gcra", "token-bucket", "leaky-bucket", "leaky-queue", "fixed-window",
            "sliding-window", "sliding-buckets", "sliding-log"][algorithm];
        let policy = compiled(&format!(
            r#"{{"version": 1, "rules": [{{"name": "each", "key": ["client_ip"],
                "quotas": [{{"limit": 5, "window": "1h", "algorithm": "{algorithm}"}}]}}]}}"#
        ));
        let mut object = Object::default();
        let mut earlier = Vec::new();
        for _ in 0..before {
            let (decided, request, reply) = object.check(&policy, "none", at(5));
            if decided.partition(0).unwrap().changed() {
                earlier.push((request, reply));
            }
        }
        object.operate(&policy, "each", KeyOperation::Reset, at(5));
        let mut admitted = 0;
        for event in events {
            match (event, earlier.pop()) {
                (0, Some((request, reply))) => {
                    object.0.refund(&request, &reply, at(5)).unwrap();
                }
                _ => admitted += u32::from(object.check(&policy, "none", at(5)).0.partition(0).unwrap().changed()),
            }
        }
        // A queue allows waiting requests, too.
        let capacity = { let mut fresh = Object::default(); (0..40).filter(|_| fresh.check(&policy, "none", at(5)).0.partition(0).unwrap().changed()).count() };
        prop_assert!(usize::try_from(admitted).unwrap() <= capacity, "{} of {}", admitted, capacity);
    }
}
