//! Messages between a front and the object or server that counts for it, and its stored rows:
//! requests, replies and rows of any bytes.
//!
//! Invariant checked: bytes that cannot be read change nothing; a row that was written is read
//! unchanged; for any requests, by any version of a policy, no quota allows more than its capacity
//! at one instant, and a look charges nothing.

use std::collections::BTreeMap;

use arbitrary::{Result, Unstructured};
use tollgate_core::Timestamp;
use tollgate_policy::{Failure, Plan, Policy};
use tollgate_storage::{Counts, KeyState, MAX_BLOCK, StoredSet, WireError};

use super::policy::shown;
use super::request::Request;

/// The first bytes of a request.
const MAGIC: &[u8] = b"tollgt\x00\x02";
const NOW: Timestamp = Timestamp::from_millis(1_780_000_000_000);
const LATER: u8 = 2;
const USED: u8 = 4;
const WAITS: u8 = 8;
/// The flags of a rule in a reply: it was charged; its states follow; or the time until which it is
/// blocked follows.
const CHARGED: u8 = 1;
const TOLD: u8 = 2;
const BLOCKED: u8 = 4;
/// Bytes of a decision in a reply.
const DECISION: usize = 41;

/// Any bytes as a request, and as a stored row.
pub fn asked(policy: &Policy, bytes: &[u8]) {
    let mut counts = Counts::default();
    let settles = [b"tollgt\x00S", &[0; 16][..], MAGIC, bytes].concat();
    for request in [bytes.to_vec(), [MAGIC, bytes].concat(), settles] {
        let before = counts.clone();
        if counts.answer(&request, NOW).is_err() {
            assert_eq!(counts, before, "changed by what is no request");
        }
    }
    if let Ok(answered) = counts.operate(&[b"tollgt\x00K", bytes].concat(), NOW) {
        let state = KeyState::read(&answered.reply).expect("what was answered");
        assert!(state.blocked_until.is_none_or(|until| until > NOW));
        assert!(counts.idle_at() <= NOW.saturating_add(MAX_BLOCK));
    }
    let _ = KeyState::read(bytes);
    kept(&counts);
    let rows = [bytes.to_vec(), [&[2][..], bytes].concat(), [&[3][..], bytes].concat()];
    for row in rows {
        let read = [Counts::decode(&row), policy.groups()[0].counts_of(policy, &row)];
        read.iter().flatten().for_each(kept);
    }
    steps(policy, Unstructured::new(bytes)).unwrap_or_default();
}

/// Written counts are read as the same, and written as the same again.
fn kept(counts: &Counts) {
    let row_of = |counts: &Counts| {
        let mut row = Vec::new();
        counts.encode(NOW, &mut row);
        row
    };
    let row = row_of(counts);
    let read = Counts::decode(&row).expect("a row that was written");
    assert_eq!(row_of(&read), row);
    assert!(read.idle_at() <= counts.idle_at());
}

/// The parameters of every set of the policy, and of the same sets with a limit changed.
fn sets(policy: &Policy) -> Vec<Vec<u8>> {
    let mut sets = Vec::new();
    for set in policy.quota_sets() {
        let mut parameters = Vec::new();
        set.write_parameters(&mut parameters);
        let mut changed = parameters.clone();
        changed[8] ^= 1; // another record
        changed[14 + 12] ^= 2; // another limit
        if StoredSet::read(&mut changed.as_slice()).is_some() {
            sets.push(changed);
        }
        sets.push(parameters);
    }
    sets
}

/// Requests in the forms of fronts of several versions, all at one instant.
fn steps(policy: &Policy, mut input: Unstructured<'_>) -> Result<()> {
    let (mut counts, sets) = (Counts::default(), sets(policy));
    let mut admitted: BTreeMap<u64, (u64, u64)> = BTreeMap::new(); // units and greatest capacity
    for _ in 0..input.int_in_range(1..=32)? {
        let version = input.int_in_range(0..=3_u64)?;
        let mut request = [MAGIC, &version.to_le_bytes(), &[7; 8]].concat();
        request.push(input.int_in_range(0..=3)?);
        let mut rules = Vec::new();
        for _ in 0..input.int_in_range(0..=3)? {
            let flags = input.int_in_range(0..=31_u8)?;
            let cost: u64 =
                if input.ratio(1, 8)? { input.arbitrary()? } else { input.int_in_range(0..=4)? };
            let parameters = &sets[input.choose_index(sets.len())?];
            let set = StoredSet::read(&mut parameters.as_slice()).expect("a set");
            request.push(flags);
            request.extend(set.stable_id().to_le_bytes());
            request.extend(cost.to_le_bytes());
            if flags & WAITS != 0 {
                request.extend(input.arbitrary::<u64>()?.to_le_bytes());
            }
            request.extend_from_slice(parameters);
            if flags & USED != 0 {
                // The units that were used, the time of the charge, and the delay of each quota.
                for _ in 0..set.quotas().len() + 2 {
                    request.extend(input.arbitrary::<u64>()?.to_le_bytes());
                }
            }
            rules.push((flags, cost, set));
        }
        if input.ratio(1, 16)? && !request.is_empty() {
            let at = input.choose_index(request.len())?;
            request[at] ^= input.arbitrary::<u8>()?;
            rules.clear(); // such a request is not counted
            counts = Counts::default();
            admitted.clear();
        }
        let before = counts.clone();
        match counts.answer(&request, NOW) {
            Err(_) => assert_eq!(counts, before, "changed by what is no request"),
            Ok(answered) if answered.reply[0] == 1 => {
                assert_eq!((answered.reply.len(), answered.is_changed), (9, false));
                assert_eq!(counts, before, "changed by what is too old");
                assert!(version < counts.version());
            }
            Ok(answered) => {
                note(&rules, &answered.reply, &mut admitted);
                let is_look = |(flags, ..): &(u8, u64, StoredSet)| flags & LATER != 0;
                let was_kept = before.version() == counts.version();
                if rules.iter().all(is_look) && was_kept && before == counts {
                    assert!(!answered.is_changed, "a look changed something");
                }
                if input.ratio(1, 8)? {
                    counts.refund(&request, &answered.reply, NOW).expect("what was replied");
                    admitted.clear(); // refunded units may be allowed again
                    counts = Counts::default();
                }
            }
        }
        kept(&counts);
    }
    Ok(())
}

/// Adds up the charges, and checks that they are at most the capacity of each quota of that name.
fn note(rules: &[(u8, u64, StoredSet)], reply: &[u8], admitted: &mut BTreeMap<u64, (u64, u64)>) {
    let mut at = 9;
    for (flags, cost, set) in rules {
        if flags & USED != 0 {
            admitted.remove(&set.stable_id()); // places were returned
        } else {
            let capacity = set.quotas().iter().map(|quota| quota.limiter().capacity()).max();
            let (units, most) = admitted.entry(set.stable_id()).or_default();
            *most = (*most).max(capacity.unwrap_or(0));
            if reply[at] & CHARGED != 0 {
                *units = units.saturating_add(*cost);
            }
            assert!(units <= most, "{units} of {most} at one instant");
        }
        let blocked_until = if reply[at] & BLOCKED != 0 { 8 } else { 0 };
        let told = if reply[at] & TOLD != 0 { set.states_len() } else { 0 };
        at += 1 + blocked_until + set.quotas().len() * DECISION + told;
    }
    assert!(rules.is_empty() || at == reply.len(), "a reply of another length");
}

/// Any bytes as an object's reply.
pub fn replied(policy: &Policy, request: &Request, reply: &[u8]) {
    let mut plan = Plan::new();
    policy.plan(request, &mut plan);
    let mut asked = Vec::new();
    plan.partition(0).unwrap().request(policy, &mut asked);
    let _ = Counts::default().refund(&asked, reply, NOW);
    match plan.partition_mut(0).unwrap().accept(policy, reply) {
        Ok(()) => {}
        Err(why) => {
            let failure = match why {
                WireError::Newer(version) => Failure::Newer(version),
                WireError::OtherEntry => panic!("it did not ask for an entry"),
                WireError::Malformed | WireError::OtherPolicy => Failure::Corrupt,
            };
            plan.partition_mut(0).unwrap().fail(failure);
            assert_eq!(plan.outdated().is_some(), matches!(failure, Failure::Newer(_)));
        }
    }
    shown(policy, &plan);
    let longer = [reply, &[0]].concat();
    if !plan.has_failed() {
        let taken = plan.partition_mut(0).unwrap().accept(policy, &longer);
        assert!(taken.is_err(), "taken with a byte too many");
    }
}
