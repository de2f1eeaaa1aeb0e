//! A count without a policy decides as a plan does on its own value, byte for byte, also while the
//! policy changes, its row is written and read again, and charges are taken back.

use std::collections::BTreeMap;

use crate::support::*;
use tollgate_core::{Span, Timestamp};
use tollgate_policy::{Disposition, Ending, Failure, Outdated, Plan, Policy, Surface};
use tollgate_storage::{Counts, StoredSet, WireError, carry_set};
use tollgate_test_support::hex;

/// Decisions in one run of the law: 10^6 when it is optimised.
const DECISIONS: usize = if cfg!(debug_assertions) { 40_000 } else { 1_000_000 };
const START: u64 = 1_780_000_000_000;
const RECORD_HEADER: usize = 8;
const ROW_HEAD: usize = 26;

fn quota(random: &mut Random, name: &str) -> String {
    let (limit, window) = (1 + random.below(12), *random.pick(&["1s", "7s", "1m", "1h"]));
    let more = match random.below(9) {
        0 => r#""algorithm": "token-bucket""#.to_owned(),
        1 => r#""algorithm": "leaky-bucket""#.to_owned(),
        2 => r#""algorithm": "leaky-queue""#.to_owned(),
        3 => r#""algorithm": "fixed-window""#.to_owned(),
        4 => r#""algorithm": "sliding-window""#.to_owned(),
        5 => format!(r#""algorithm": "sliding-buckets", "buckets": {}"#, 2 + random.below(6)),
        6 => r#""algorithm": "sliding-log""#.to_owned(),
        7 => format!(r#""burst": {}"#, 1 + random.below(limit)),
        _ => r#""algorithm": "gcra""#.to_owned(),
    };
    format!(r#"{{"name": "{name}", "limit": {limit}, "window": "{window}", {more}}}"#)
}

/// The same, sometimes with a penalty, where the algorithm can have one.
fn penalised(random: &mut Random, name: &str) -> String {
    let quota = quota(random, name);
    let penalty = *random.pick(&[r#""2s""#, r#"["1s", "5s"]"#, r#"["3s", "1m", "1h"]"#]);
    if random.one_in(2) || quota.contains("leaky-queue") {
        return quota;
    }
    quota.replace('}', &format!(r#", "penalty": {penalty}}}"#))
}

/// A document whose records have fixed places in a value: the reference puts them there.
fn document(random: &mut Random) -> String {
    loop {
        let document = any_document(random);
        let policy = tollgate_language::compile(&document, Surface::Worker).unwrap();
        if !policy.groups()[0].is_sparse() {
            return document;
        }
    }
}

/// Rules by one key, of which each request meets some. The names of rules and quotas are the same,
/// whatever the random numbers.
fn any_document(random: &mut Random) -> String {
    let mut list = |names: &[&str], quota: fn(&mut Random, &str) -> String| {
        let each: Vec<String> = names.iter().map(|name| quota(random, name)).collect();
        format!("[{}]", each.join(", "))
    };
    let (one, two, gold, later) = (
        list(&["a"], penalised),
        list(&["a", "b"], penalised),
        list(&["a", "c"], penalised),
        list(&["l"], penalised),
    );
    let mut quotas = |names: &[&str]| list(names, quota);
    let (queued, held, settled) = (
        quotas(&["q"]),
        // A queue holds no units until the response.
        quotas(&["h"]).replace("leaky-queue", "leaky-bucket"),
        quotas(&["s"])
            .replace("leaky-queue", "token-bucket")
            .replace("sliding-log", "fixed-window"),
    );
    let action = *random.pick(&["", r#""action": {"delay": {"max": "2s"}},"#]);
    let mode = *random.pick(&["", r#""mode": "shadow","#]);
    format!(
        r#"{{"version": 1, "rules": [
        {{"name": "one", "key": ["client_ip"], "quotas": {one}, "cost": {{"header": "x-cost", "max": 20}}}},
        {{"name": "two", "when": {{"headers": {{"x-two": "*"}}}}, "key": ["client_ip"], {mode} "quotas": {two},
          "tiers": [{{"name": "gold", "when": {{"headers": {{"x-two": "gold"}}}}, "quotas": {gold}}}]}},
        {{"name": "queued", "when": {{"headers": {{"x-queued": "*"}}}}, "key": ["client_ip"], {action} "quotas": {queued}}},
        {{"name": "held", "when": {{"headers": {{"x-held": "*"}}}}, "key": ["client_ip"], "quotas": {held},
          "charge": {{"response_status": ["5xx"], "reserve": true, "on_abort": "skip"}}}},
        {{"name": "settled", "when": {{"headers": {{"x-settled": "*"}}}}, "key": ["client_ip"], "quotas": {settled},
          "cost": {{"estimate": 2, "max": 20, "actual": {{"header": "x-tokens"}}, "on_status": {{"5xx": 0}}, "forgive_excess": true}}}},
        {{"name": "later", "when": {{"headers": {{"x-later": "*"}}}}, "key": ["client_ip"], "quotas": {later},
          "charge": {{"response_status": ["401"]}}}}]}}"#
    )
}

fn any_request(random: &mut Random) -> Request {
    let mut request = get("/", "192.0.2.1");
    for name in ["x-two", "x-queued", "x-held", "x-settled", "x-later"] {
        if random.one_in(3) {
            request = request.header(name, *random.pick(&["gold", "other"]));
        }
    }
    let cost = if random.one_in(4) { random.below(16) } else { 1 };
    request.header("x-cost", cost.to_string())
}

/// One value of a store, and the quotas that each of its records is of.
#[derive(Default)]
struct Reference(BTreeMap<u64, (StoredSet, Vec<u8>)>);

impl Reference {
    /// Decides the partitions of `plan` on the value. States that belonged to an earlier quota are
    /// carried to the new one when it is first used.
    fn decide(&mut self, policy: &Policy, plan: &mut Plan, now: Timestamp, is_look: bool) {
        let applied = applied(policy, plan);
        for index in &applied {
            let to = policy.quota_sets()[*index].to_stored();
            let empty = || (to.clone(), vec![0; to.states_len()]);
            let (from, states) = self.0.entry(to.stable_id()).or_insert_with(empty);
            if *from != to {
                let mut carried = vec![0; to.states_len()];
                carry_set(from, states, to.limiters(), now, &mut carried);
                (*from, *states) = (to, carried);
            }
        }
        let mut partition = plan.partition_mut(0).unwrap();
        partition.load(policy, None);
        let mut value = partition.view().value().to_vec();
        self.each(policy, |at, states| value[at].copy_from_slice(states));
        partition.load(policy, Some(&value));
        if is_look {
            plan.waiting_mut(policy).look(now);
        } else {
            plan.decide(policy, now);
        }
        let value = plan.partition(0).unwrap().value();
        self.each(policy, |at, states| states.copy_from_slice(&value[at]));
    }

    /// The location of the states of each set of the policy in its value, and these.
    fn each(&mut self, policy: &Policy, mut each: impl FnMut(std::ops::Range<usize>, &mut [u8])) {
        let mut end = 0;
        for set in policy.quota_sets() {
            let at = end + RECORD_HEADER..end + set.record_len();
            end = at.end;
            let known = self.0.get_mut(&set.stable_id());
            if let Some((_, states)) = known.filter(|(of, _)| *of == set.to_stored()) {
                each(at, states);
            }
        }
    }

    /// The row contains everything that is not idle; states that are not in it are forgotten when
    /// it is read again.
    fn assert_is(&mut self, row: &[u8], now: Timestamp, is_read_again: bool) {
        let mut rest = &row[ROW_HEAD..];
        let mut found = BTreeMap::new();
        while !rest.is_empty() {
            let set = StoredSet::read(&mut rest).expect("a set");
            let len = u32::from_le_bytes(rest[..4].try_into().unwrap());
            let (states, others) = rest[4..].split_at(usize::try_from(len).unwrap());
            rest = others;
            // A second one is the record of the earlier quotas.
            found.entry(set.stable_id()).or_insert((set, states));
        }
        for (id, (set, states)) in &self.0 {
            match found.get(id) {
                Some((of, kept)) => assert_eq!((set, &states[..]), (of, *kept)),
                None => assert!(set.idle_at(states) <= now, "forgotten: {states:?} of {set:?}"),
            }
        }
        self.0.retain(|id, _| !is_read_again || found.contains_key(id));
    }
}

/// The sets that the rules of `plan` count in.
fn applied(policy: &Policy, plan: &Plan) -> Vec<usize> {
    plan.outcome(policy).verdicts().iter().map(|verdict| verdict.quota_set).collect()
}

fn row_of(counts: &Counts, now: Timestamp) -> Vec<u8> {
    let mut row = Vec::new();
    counts.encode(now, &mut row);
    row
}

fn ask(
    counts: &mut Counts,
    plan: &mut Plan,
    policy: &Policy,
    now: Timestamp,
    kind: Kind,
) -> (Vec<u8>, Vec<u8>) {
    let mut asked = Vec::new();
    let partition = plan.partition(0).unwrap();
    match kind {
        Kind::Check => partition.request(policy, &mut asked),
        Kind::Look => partition.peek_request(policy, &mut asked),
        Kind::Settle => partition.settle_request(policy, &mut asked),
    }
    let reply = counts.answer(&asked, now).unwrap().reply;
    plan.partition_mut(0).unwrap().accept(policy, &reply).unwrap();
    (asked, reply)
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Check,
    Look,
    Settle,
}

#[test]
fn decisions_are_those_of_a_plan_while_the_policy_changes() {
    let random = &mut Random::new(7);
    let (mut counts, mut reference) = (Counts::default(), Reference::default());
    let compile = |text: &str| {
        tollgate_language::compile(text, Surface::Worker).unwrap_or_else(|e| panic!("{e}"))
    };
    let mut policy = compile(&document(random));
    let (mut ms, mut version, mut admitted, mut changes) = (START, 1, 0_usize, 0_usize);
    for round in 0..DECISIONS {
        ms += *random.pick(&[0, 0, 1, 7, 130, 900, 2_500]);
        if random.one_in(5_000) {
            ms += 7_300_000;
        }
        let now = Timestamp::from_millis(ms);
        if random.one_in(50) {
            version += 1;
            changes += 1;
            policy = compile(&document(random));
            policy.set_version(version);
        }
        let request = any_request(random);
        let (mut here, mut elsewhere) = (Plan::new(), Plan::new());
        policy.plan(&request, &mut here);
        policy.plan(&request, &mut elsewhere);
        let kind = if random.one_in(6) { Kind::Look } else { Kind::Check };
        reference.decide(&policy, &mut here, now, kind == Kind::Look);
        let (asked, reply) = ask(&mut counts, &mut elsewhere, &policy, now, kind);
        let seen_here = seen(&policy, &here, Span::ZERO);
        assert_eq!(seen(&policy, &elsewhere, Span::ZERO), seen_here, "{round}");
        let verdicts = here.outcome(&policy).verdicts();
        assert_eq!(elsewhere.outcome(&policy).verdicts(), verdicts, "{round}");
        let has_passed = matches!(seen_here.answer, Disposition::Allow | Disposition::Delay(_));
        admitted += usize::from(has_passed && kind == Kind::Check);
        if kind == Kind::Check && random.one_in(8) {
            // Another key then denied it.
            let later = Timestamp::from_millis(ms + random.below(3));
            let refunded = counts.refund(&asked, &reply, later).unwrap();
            elsewhere.partition_mut(0).unwrap().accept(&policy, &refunded.reply).unwrap();
            if here.partition(0).unwrap().changed() {
                here.partition_mut(0).unwrap().refund(&policy, later);
                here.partition_mut(0).unwrap().refunded(&policy, later);
                let value = here.partition(0).unwrap().value();
                reference.each(&policy, |at, states| states.copy_from_slice(&value[at]));
            }
            assert_eq!(seen(&policy, &elsewhere, Span::ZERO), seen(&policy, &here, Span::ZERO));
        } else if has_passed && kind == Kind::Check && random.one_in(3) {
            let [ok, denied, failed] = [200, 401, 503].map(Ending::Response);
            let ending = *random.pick(&[ok, denied, failed, Ending::Disconnect, Ending::NotSent]);
            let tokens = *random.pick(&["0", "1", "2", "7", "x"]);
            let shown = Tokens(tokens);
            let is_due = here.settle(&policy, ending, &shown);
            assert_eq!(elsewhere.settle(&policy, ending, &shown), is_due);
            let costs = |plan: &Plan| plan.settlement(&policy).costs().to_vec();
            assert_eq!(costs(&elsewhere), costs(&here));
            let later = Timestamp::from_millis(ms + random.below(2_000));
            if is_due {
                reference.decide(&policy, &mut here, later, false);
                ask(&mut counts, &mut elsewhere, &policy, later, Kind::Settle);
                let charged = |plan: &Plan| plan.partition(0).unwrap().changed();
                // A refund is not a charge in a reply.
                let gives_back = here.partition(0).unwrap().gives_back();
                assert!(gives_back || charged(&here) == charged(&elsewhere), "{round}");
            }
        }
        if random.one_in(16) {
            let row = row_of(&counts, now);
            let is_evicted = random.one_in(4);
            reference.assert_is(&row, now, is_evicted);
            if is_evicted {
                counts = Counts::decode(&row).expect("a row");
            }
        }
    }
    assert!(admitted > DECISIONS / 20 && admitted < DECISIONS * 9 / 10, "{admitted}");
    assert!(changes > DECISIONS / 100, "{changes}");
}

fn one_rule(name: &str, quota: &str, version: u64) -> Policy {
    charged_rule(name, quota, r#""request""#, version)
}

/// The same, and its units are held until the response.
fn one_held_rule(quota: &str, version: u64) -> Policy {
    let charge = r#"{"response_status": ["401"], "reserve": true, "on_abort": "skip"}"#;
    charged_rule("r", quota, charge, version)
}

fn charged_rule(name: &str, quota: &str, charge: &str, version: u64) -> Policy {
    let document = format!(
        r#"{{"version": 1, "rules": [{{"name": "{name}", "key": ["client_ip"], "quotas": [{{"name": "q", {quota}}}],
            "charge": {charge}}}]}}"#
    );
    let mut policy =
        tollgate_language::compile(&document, Surface::Worker).unwrap_or_else(|e| panic!("{e}"));
    policy.set_version(version);
    policy
}

/// The result of another request of the client.
fn decided(counts: &mut Counts, policy: &Policy, millis: u64) -> (Disposition, Plan) {
    let mut plan = Plan::new();
    policy.plan(&get("/", "192.0.2.1"), &mut plan);
    let _ = ask(counts, &mut plan, policy, Timestamp::from_millis(millis), Kind::Check);
    (plan.outcome(policy).disposition(), plan)
}

/// The used units are computed from the old quota once. Otherwise a client that is denied under the
/// new one, and comes back at the reported time, would be denied again until the old quota is over.
#[test]
fn a_changed_quota_keeps_its_word_to_who_is_refused() {
    let before = one_rule("r", r#""limit": 10, "window": "1d""#, 1);
    let after = one_rule("r", r#""limit": 10, "window": "1m""#, 2);
    let mut counts = Counts::default();
    for _ in 0..10 {
        assert_eq!(decided(&mut counts, &before, START).0, Disposition::Allow);
    }
    let (mut plan, mut asked) = (Plan::new(), Vec::new());
    after.plan(&get("/", "192.0.2.1"), &mut plan);
    plan.partition(0).unwrap().request(&after, &mut asked);
    let refused = counts.answer(&asked, Timestamp::from_millis(START)).unwrap();
    assert!(refused.is_changed, "what was carried is written, though nothing was charged");
    plan.partition_mut(0).unwrap().accept(&after, &refused.reply).unwrap();
    let wait = plan.outcome(&after).verdicts()[0].quotas[0].1.retry_after.expect("a wait");
    assert_eq!(wait, Span::from_secs(6));
    // Evicted in between, asked too early, and then at its time.
    let mut counts = Counts::decode(&row_of(&counts, Timestamp::from_millis(START))).unwrap();
    assert!(matches!(decided(&mut counts, &after, START + 5_999).0, Disposition::Deny { .. }));
    let again = counts.answer(&asked, Timestamp::from_millis(START + 5_999)).unwrap();
    assert!(!again.is_changed, "carried once");
    assert_eq!(decided(&mut counts, &after, START + 6_000).0, Disposition::Allow);
}

/// Two files are deployed in parallel, or one is rolled back and deployed again: a client whose
/// requests meet now one and now the other quota gets no more of either than from that quota alone.
#[test]
fn who_meets_two_quotas_in_turn_gets_no_more_than_both_have() {
    for algorithm in [
        "gcra",
        "token-bucket",
        "leaky-bucket",
        "fixed-window",
        "sliding-window",
        "sliding-buckets",
        "sliding-log",
    ] {
        let quota =
            |limit| format!(r#""limit": {limit}, "window": "1d", "algorithm": "{algorithm}""#);
        for version in [0, 1] {
            let [low, high] = [10, 100].map(|limit| one_rule("r", &quota(limit), version));
            let mut counts = Counts::default();
            let mut admitted = [0, 0];
            for i in 0..1_000_u64 {
                for (of, policy) in [&low, &high].into_iter().enumerate() {
                    let (answer, _) = decided(&mut counts, policy, START + i);
                    admitted[of] += u32::from(answer == Disposition::Allow);
                    // Evicted in between.
                    let row = row_of(&counts, Timestamp::from_millis(START + i));
                    counts = Counts::decode(&row).expect("a row");
                    assert_eq!(row_of(&counts, Timestamp::from_millis(START + i)), row);
                }
            }
            assert!(admitted[0] <= 10 && admitted[1] <= 100, "{algorithm} {version}: {admitted:?}");
        }
    }
}

#[test]
fn an_older_version_is_told_the_newer_one_and_charges_nothing() {
    let [old, new] = [3, 7].map(|version| one_held_rule(r#""limit": 5, "window": "1h""#, version));
    let mut counts = Counts::default();
    let (_, mut under_way) = decided(&mut counts, &old, START);
    assert_eq!(decided(&mut counts, &new, START).0, Disposition::Allow);
    let kept = counts.clone();

    let (mut plan, mut asked) = (Plan::new(), Vec::new());
    old.plan(&get("/", "192.0.2.1"), &mut plan);
    plan.partition(0).unwrap().request(&old, &mut asked);
    let answered = counts.answer(&asked, Timestamp::from_millis(START)).unwrap();
    assert_eq!(answered.reply, [&[1][..], &7_u64.to_le_bytes()].concat());
    assert!(!answered.is_changed && counts == kept);
    let mut partition = plan.partition_mut(0).unwrap();
    assert_eq!(partition.accept(&old, &answered.reply), Err(WireError::Newer(7)));
    partition.fail(Failure::Newer(7));
    assert_eq!((plan.outdated(), plan.has_failed()), (Some(Outdated::Policy(7)), true));
    assert_eq!(under_way.outdated(), None);

    // The effects of a response are applied under any version.
    assert!(
        under_way.settle(&old, Ending::Response(200), &())
            && under_way.partition(0).unwrap().gives_back()
    );
    ask(&mut counts, &mut under_way, &old, Timestamp::from_millis(START), Kind::Settle);
    let (_, plan) = decided(&mut counts, &new, START);
    assert_eq!(plan.outcome(&new).verdicts()[0].quotas[0].1.remaining, 3, "two of three are held");
    // And no request of a front that counts no versions is denied.
    let unversioned = one_held_rule(r#""limit": 5, "window": "1h""#, 0);
    assert_eq!(decided(&mut counts, &unversioned, START).0, Disposition::Allow);
    assert_eq!(counts.version(), 7);
}

/// A response to a request under a quota that has been changed since: it is charged by the present
/// quota, as far as it fits; units that it would give back stay used.
#[test]
fn what_responses_bring_about_meets_the_quota_of_now() {
    let later = |limit: u32, version| {
        let document = format!(
            r#"{{"version": 1, "rules": [{{"name": "r", "key": ["client_ip"], "charge": {{"response_status": ["401"]}},
                "quotas": [{{"name": "q", "limit": {limit}, "window": "1h", "algorithm": "sliding-log"}}]}}]}}"#
        );
        let mut policy = tollgate_language::compile(&document, Surface::Worker).unwrap();
        policy.set_version(version);
        policy
    };
    let (old, new) = (later(5, 1), later(2, 2));
    let mut counts = Counts::default();
    let mut under_way: Vec<Plan> = (0..4).map(|_| decided(&mut counts, &old, START).1).collect();
    decided(&mut counts, &new, START);
    let mut charged = 0;
    for plan in &mut under_way {
        assert!(plan.settle(&old, Ending::Response(401), &()));
        ask(&mut counts, plan, &old, Timestamp::from_millis(START), Kind::Settle);
        charged += usize::from(plan.partition(0).unwrap().changed());
    }
    assert_eq!(charged, 2);
    assert!(matches!(decided(&mut counts, &new, START).0, Disposition::Deny { .. }));

    let [old, new] = [(5, 1), (6, 2)].map(|(limit, version)| {
        one_held_rule(&format!(r#""limit": {limit}, "window": "1h""#), version)
    });
    let mut counts = Counts::default();
    let (_, mut held) = decided(&mut counts, &old, START);
    decided(&mut counts, &new, START);
    assert!(
        held.settle(&old, Ending::Response(200), &()) && held.partition(0).unwrap().gives_back()
    );
    let mut asked = Vec::new();
    held.partition(0).unwrap().settle_request(&old, &mut asked);
    assert!(!counts.answer(&asked, Timestamp::from_millis(START)).unwrap().is_changed);
}

/// Guards: a row that grows with every rule that ever existed. Names come and go.
#[test]
fn a_row_is_bounded_whatever_rules_were() {
    let mut counts = Counts::default();
    let mut longest = 0;
    for n in 0..2_000_u64 {
        let policy = one_rule(&format!("rule {n}"), r#""limit": 5, "window": "1s""#, n);
        decided(&mut counts, &policy, START + n * 100);
        longest = longest.max(row_of(&counts, Timestamp::from_millis(START + n * 100)).len());
    }
    // 30 s of clocks that differ, one rule each 100 ms, 62 bytes each.
    assert!(longest < 21_000, "{longest}");

    // None of them is over before a year has passed, and the most used are kept.
    let mut counts = Counts::default();
    let used_up = one_rule("used up", r#""limit": 1, "window": "366d""#, 0);
    decided(&mut counts, &used_up, START);
    for n in 0..1_200 {
        let policy = one_rule(&format!("rule {n}"), r#""limit": 5, "window": "366d""#, 0);
        decided(&mut counts, &policy, START + n);
    }
    let row = row_of(&counts, Timestamp::from_millis(START + 1_200));
    // Ten bytes record that some were forgotten, so that none of their units are given back.
    assert_eq!(row.len(), ROW_HEAD + 10 + 1_024 * 62);
    assert!(matches!(decided(&mut counts, &used_up, START + 1_200).0, Disposition::Deny { .. }));
}

/// Stored and sent permanently: these bytes are read by later and earlier code.
#[test]
fn bytes_of_a_request_a_reply_and_a_row() {
    let policy = one_rule("r", r#""limit": 5, "window": "1s""#, 2);
    let mut plan = Plan::new();
    policy.plan(&get("/", "192.0.2.1"), &mut plan);
    let mut counts = Counts::default();
    let (asked, reply) =
        ask(&mut counts, &mut plan, &policy, Timestamp::from_millis(START), Kind::Check);
    counts.set_alarm_at(Timestamp::from_millis(START + 10_000));
    let golden = [
        // magic, version, group, strict; binding, the rule, a cost of 1, the quotas
        "746f6c6c67740002 0200000000000000 20783918d88585b7 01",
        "01 05914774317f04d0 0100000000000000 05914774317f04d0 cdcc1d36 01 01",
        "b18de1ab746adc72 01 00 0000 0500000000000000 00ca9a3b00000000 0500000000000000",
        // decided, at; charged: allowed, no delay, limit, remaining, no wait, reset
        "00 000032b491d4b318 01",
        "00 0000000000000000 0500000000000000 0400000000000000 ffffffffffffffff 0008af2f00000000",
        // format, group, alarm, version, no blocks; the quotas, 8 bytes of states
        "02 20783918d88585b7 00e43d0894d4b318 0200000000000000 00",
        "05914774317f04d0 cdcc1d36 01 01",
        "b18de1ab746adc72 01 00 0000 0500000000000000 00ca9a3b00000000 0500000000000000",
        "08000000 00c21dc091d4b318",
    ];
    let golden = golden.concat().replace(' ', "");
    let row = row_of(&counts, Timestamp::from_millis(START));
    assert_eq!([hex(&asked), hex(&reply), hex(&row)].concat(), golden);
}

/// A quota that holds units is marked by a flag (4), and its state is 32 bytes longer.
#[test]
fn bytes_of_a_row_with_holds() {
    let policy = one_held_rule(r#""limit": 5, "window": "1s""#, 2);
    let mut counts = Counts::default();
    let now = Timestamp::from_millis(START);
    let _ = decided(&mut counts, &policy, START);
    let row = row_of(&counts, now);
    let hex = hex(&row);
    let golden = [
        "b18de1ab746adc72 01 04 0000 0500000000000000 00ca9a3b00000000 0500000000000000",
        // the length; paid off at, used, the latest time, older and newer units
        "28000000 00c21dc091d4b318 0000000000000000 000032b491d4b318 0000000000000000 0100000000000000",
    ];
    assert!(hex.ends_with(&golden.concat().replace(' ', "")), "{hex}");
    assert_eq!(Counts::decode(&row).map(|counts| row_of(&counts, now)), Some(row));
}
