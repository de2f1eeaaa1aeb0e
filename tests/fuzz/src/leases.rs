//! Messages about leases of any bytes, and nodes that share a key by them, in any order.
//!
//! Invariant checked: a message that can be read is written as the same bytes; a message about a
//! key is executed or rejected, never half done; whatever is lost, repeated and late, nodes and
//! direct costs spend at most what one limiter allows, and no row is unreadable.

use std::sync::LazyLock;

use arbitrary::{Result, Unstructured};
use tollgate_core::{Span, Timestamp};
use tollgate_policy::{Policy, QuotaSet, Surface};
use tollgate_storage::{
    Counts, Holding, LeaseKey, LeaseQuestion, LeaseReply, LeaseRule, Taken, read_leased,
};

const NOW: Timestamp = Timestamp::from_millis(1_780_000_000_000);
const MILLI: u64 = 1_000_000;
const TIMES: (Span, Span) = (Span::from_secs(2), Span::from_millis(250));

/// A rule for each algorithm that can be leased, and one that cannot.
static POLICY: LazyLock<Policy> = LazyLock::new(|| {
    let rules: Vec<String> = [
        r#""algorithm": "gcra""#,
        r#""algorithm": "token-bucket", "burst": 3"#,
        r#""algorithm": "leaky-bucket", "burst": 5, "strict": true"#,
        r#""algorithm": "fixed-window""#,
        r#""algorithm": "sliding-window", "strict": true"#,
        r#""algorithm": "sliding-buckets", "buckets": 4"#,
        r#""algorithm": "sliding-log""#,
        r#""algorithm": "leaky-queue""#,
    ]
    .iter()
    .enumerate()
    .map(|(i, quota)| {
        format!(
            r#"{{"name": "r{i}", "key": ["client_ip"], "scope": "fleet", "quotas": [{{"limit": 12, "window": "3s", {quota}}}]}}"#
        )
    })
    .collect();
    let document = format!(r#"{{"version": 1, "rules": [{}]}}"#, rules.join(", "));
    tollgate_language::compile(&document, Surface::Server).expect("a policy")
});

/// The first byte selects the kind of the others.
pub fn check(bytes: &[u8]) {
    let Some((kind, bytes)) = bytes.split_first() else { return };
    match kind % 4 {
        0 => question(bytes),
        1 => answer(bytes),
        2 => asked(bytes),
        _ => nodes(Unstructured::new(bytes)).unwrap_or_default(),
    }
}

fn question(bytes: &[u8]) {
    let Ok(question) = LeaseQuestion::read(bytes) else { return };
    let mut again = Vec::new();
    question.write(&mut again);
    assert_eq!(again, bytes);
    for key in &question.keys {
        for is_look in [false, true] {
            let Ok(request) = POLICY.fleet().lease_request(key, question.table, is_look) else {
                continue;
            };
            let mut counts = Counts::default();
            let reply = counts.answer(&request, NOW).expect("a request").reply;
            let (leased, _) = read_leased(&reply).expect("a reply");
            assert_eq!(leased.len(), if is_look { 0 } else { key.rules.len() });
            kept(&counts);
        }
    }
}

fn answer(bytes: &[u8]) {
    let Ok(replies) = LeaseReply::read(bytes) else { return };
    let mut again = Vec::new();
    LeaseReply::write(&replies, &mut again);
    assert_eq!(again, bytes);
    for reply in &replies {
        if let LeaseReply::Decided(reply) = reply {
            let _ = read_leased(reply);
        }
    }
}

/// A lease message before an ordinary request, a reply, and a row with leases, of any bytes.
fn asked(bytes: &[u8]) {
    let mut counts = Counts::default();
    let request = [b"tollgt\x00L", bytes].concat();
    assert!(Counts::is_strict(&request));
    if counts.answer(&request, NOW).is_err() {
        assert_eq!(counts, Counts::default(), "changed by what is no request");
    }
    let _ = read_leased(&[&[3], bytes].concat());
    let Some(mut counts) = Counts::decode(&[&[4], bytes].concat()) else { return };
    kept(&counts);
    let _ = counts.answer(&request, NOW);
    kept(&counts);
    let later = NOW.saturating_add(Span::from_secs(60));
    let _ = counts.answer(&[b"tollgt\x00\x02", &[0; 17][..]].concat(), later);
    kept(&counts);
}

/// Written counts are read, and written as the same again.
fn kept(counts: &Counts) {
    let mut row = Vec::new();
    counts.encode(NOW, &mut row);
    let read = Counts::decode(&row).expect("a row that was written");
    let mut again = Vec::new();
    read.encode(NOW, &mut again);
    assert_eq!(again, row);
}

struct Node {
    table: u128,
    next: u64,
    holding: Holding,
}

/// Three nodes and direct costs under one rule. The input advances the time.
fn nodes(mut input: Unstructured<'_>) -> Result<()> {
    let set = &POLICY.quota_sets()[input.choose_index(POLICY.quota_sets().len())?];
    let limiter = *set.quotas()[0].limiter();
    let mut single = vec![0; limiter.state_len()];
    let mut spend = |cost: u64, now: Timestamp| {
        let admitted = limiter.check(&mut single, now, cost).is_admitted();
        assert!(admitted, "{cost} more than {limiter:?} admits at {now:?}");
    };
    let (mut counts, mut now) = (Counts::default(), NOW);
    let node = |table| Node { table, next: 1, holding: Holding::default() };
    let mut nodes: Vec<Node> = (1..=3).map(node).collect();
    let mut questions: Vec<(usize, u64, Vec<u8>)> = Vec::new();
    let mut answers: Vec<(usize, u128, u64, Vec<u8>)> = Vec::new();
    for _ in 0..input.int_in_range(1..=200)? {
        let i = input.choose_index(nodes.len())?;
        match input.int_in_range(0..=9)? {
            0 => {
                let most = if input.ratio(1, 4)? { 4_000 } else { 200 };
                let millis = input.int_in_range(0..=most)?;
                now = now.saturating_add(Span::from_nanos(millis * MILLI));
            }
            1..=4 => {
                let cost = input.int_in_range(1..=3)?;
                if let Taken::Spent { number, .. } = nodes[i].holding.take(now, cost) {
                    let is_put_back = input.ratio(1, 8)?;
                    if !(is_put_back && nodes[i].holding.put_back(now, number, cost)) {
                        spend(cost, now);
                    }
                }
            }
            5 | 6 => {
                let node = &mut nodes[i];
                let (number, cost) = (node.next, input.int_in_range(0..=3)?);
                node.next += 1;
                let ask = node.holding.ask(set.stable_id(), number, cost, now, TIMES);
                let rule = LeaseRule { is_binding: true, cost, ask };
                let group = group_of(set);
                let key = LeaseKey { group, hash: [0; 16], rules: vec![rule] };
                let (policy, table) = (POLICY.fleet().fingerprint(), node.table);
                let mut message = Vec::new();
                LeaseQuestion { policy, table, keys: vec![key] }.write(&mut message);
                questions.push((i, number, message));
            }
            7 if !questions.is_empty() => {
                let (node, number, message) =
                    questions[input.choose_index(questions.len())?].clone();
                let question = LeaseQuestion::read(&message).expect("a question");
                assert_eq!(question.policy, POLICY.fleet().fingerprint());
                let key = &question.keys[0];
                let request = POLICY
                    .fleet()
                    .lease_request(key, question.table, false)
                    .expect("of the policy");
                let reply = counts.answer(&request, now).expect("a request").reply;
                let (_, rest) = read_leased(&reply).expect("a reply");
                // The head is a byte and the time; the first flag means that it is charged.
                if rest[9] & 1 != 0 && key.rules[0].cost > 0 {
                    spend(key.rules[0].cost, now);
                }
                let mut message = Vec::new();
                LeaseReply::write(&[LeaseReply::Decided(reply)], &mut message);
                answers.push((node, question.table, number, message));
            }
            8 if !answers.is_empty() => {
                let (i, table, number, message) =
                    answers[input.choose_index(answers.len())?].clone();
                let replies = LeaseReply::read(&message).expect("an answer");
                let Some(LeaseReply::Decided(reply)) = replies.first() else { continue };
                let (leased, _) = read_leased(reply).expect("a reply");
                if nodes[i].table == table {
                    nodes[i].holding.answer(number, leased[0], now);
                }
            }
            9 if input.ratio(1, 8)? => {
                nodes[i] = node(nodes[i].table + 1_000);
                kept(&counts);
            }
            _ => {
                let mut row = Vec::new();
                counts.encode(now, &mut row);
                counts = Counts::decode(&row).expect("a row that was written");
            }
        }
    }
    Ok(())
}

fn group_of(set: &QuotaSet) -> u64 {
    let is_of = |group: &&tollgate_policy::Group| {
        let key = LeaseKey {
            group: group.identity(),
            hash: [0; 16],
            rules: vec![LeaseRule {
                ask: tollgate_storage::LeaseAsk { set: set.stable_id(), ..Default::default() },
                ..LeaseRule::default()
            }],
        };
        POLICY.fleet().lease_request(&key, 0, true).is_ok()
    };
    POLICY.groups().iter().find(is_of).expect("of a group").identity()
}
