//! `POST /lease`: requests of a fleet's nodes about the keys of rules with `"scope": "fleet"`.
//!
//! A body is one [`LeaseQuestion`], the response one [`LeaseReply`] for each of its keys, both
//! binary (`tollgate-storage` has the format). [`Lease::read`] returns the request to the count of
//! each key, [`Course`](crate::Course) the rounds.
//!
//! Invariant: a count is found by a hash under the fleet's secret, the same for a node's request
//! and for a request to `/check`. No count is asked under a policy other than the current one, or
//! the previous one for [`KEPT`]. No response contains a key. Deliberately absent: the allowed
//! callers.

use alloc::borrow::Cow;
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;

use tollgate_core::{Span, Timestamp};
use tollgate_policy::{Group, Policy};
use tollgate_storage::{Counts, LeaseQuestion, LeaseReply, MAX_LEASE_MESSAGE, WireError, key_hash};

use crate::api_response::ApiResponse;
use crate::media_type::is_media_type;

/// The longest body, and the longest response: 64 KiB.
pub const MAX_BODY: usize = MAX_LEASE_MESSAGE;
/// The content type of bodies and responses.
pub const CONTENT_TYPE: &str = "application/octet-stream";

/// Keeps names of these counts apart from keys that a policy makes.
const NAMES: &[u8; 15] = b"tollgate fleet\0";

/// The number of policies under which nodes get responses: the current and the previous one, so
/// that a change of rules reaches all of them.
const KNOWN: usize = 2;
/// How long nodes get responses under the previous policy. They learn of a change within 5 s, and
/// units that were leased before live for at most 10 s and are reported then. Withdrawn rules allow
/// no request after that.
pub const KEPT: Span = Span::from_secs(20);

/// The name of the count of a key of the fleet, by its [`key_hash`].
#[must_use]
pub fn name(hash: [u8; 16]) -> Vec<u8> {
    [&NAMES[..], &hash].concat()
}

/// Bytes of a key that name its group.
const GROUP_LEN: usize = 8;

/// The name of the count of `key` under `policy`, where `secret` names those of the fleet: its
/// [`name`] if it is the fleet's, else the key itself.
#[must_use]
pub fn key_name<'k>(policy: &Policy, secret: Option<[u8; 16]>, key: &'k [u8]) -> Cow<'k, [u8]> {
    let identity = key.first_chunk::<GROUP_LEN>().map(|bytes| u64::from_le_bytes(*bytes));
    let is_it = |group: &&Group| group.is_fleet() && Some(group.identity()) == identity;
    match (secret, identity) {
        (Some(secret), Some(group)) if policy.groups().iter().any(|it| is_it(&it)) => {
            Cow::Owned(name(key_hash(secret, group, key)))
        }
        _ => Cow::Borrowed(key),
    }
}

/// The policies under which nodes get responses, the newest first.
#[derive(Clone, Debug, Default)]
pub struct FleetPolicies(Vec<Known>);

/// One of these policies.
#[derive(Clone, Debug)]
struct Known {
    fingerprint: u64,
    policy: Arc<Policy>,
    /// The end of responses under it; never, for the current one.
    end: Timestamp,
}

impl FleetPolicies {
    /// Sets `policy` as in force from `now` on, or from earlier on if the notification is late.
    /// Counts of the previous policy continue under its version, for [`KEPT`]: no count is ahead of
    /// it.
    pub fn follow(&mut self, policy: &Arc<Policy>, now: Timestamp) {
        let fingerprint = policy.fleet().fingerprint();
        self.0.retain(|known| known.fingerprint != fingerprint && now < known.end);
        // A repeated notification of the same policy does not prolong the previous one.
        for before in &mut self.0 {
            before.end = before.end.min(now.saturating_add(KEPT));
        }
        self.0.insert(0, Known { fingerprint, policy: Arc::clone(policy), end: Timestamp::MAX });
        self.0.truncate(KNOWN);
        for Known { policy: before, .. } in self.0.iter_mut().skip(1) {
            if before.version() != policy.version() {
                let mut same = Policy::clone(before);
                same.set_version(policy.version());
                *before = Arc::new(same);
            }
        }
    }

    /// Sets `policy` as the one in force before the newest, which nodes have until `end`: its nodes
    /// get responses until then, too. Nodes of the policy that was thought to be the previous one
    /// get none any more.
    pub fn follow_before(&mut self, mut policy: Policy, end: Timestamp) {
        let Some(newest) = self.0.first() else { return };
        let (today, version) = (newest.fingerprint, newest.policy.version());
        let fingerprint = policy.fleet().fingerprint();
        if fingerprint != today {
            policy.set_version(version);
            self.0.truncate(1);
            self.0.push(Known { fingerprint, policy: Arc::new(policy), end });
        }
    }

    fn find(&self, fingerprint: u64, now: Timestamp) -> Option<&Policy> {
        let is_it = |known: &&Known| known.fingerprint == fingerprint && now < known.end;
        self.0.iter().find(is_it).map(|known| &*known.policy)
    }
}

/// A node's request, as it is sent to counts.
#[derive(Debug)]
pub struct Lease {
    keys: Vec<Key>,
    looks_first: bool,
}

/// The request about one key.
#[derive(Debug)]
pub struct Key {
    /// The name of its count: [`name`].
    pub name: Vec<u8>,
    /// For [`Counts::answer`].
    pub request: Vec<u8>,
    /// The same without charge, report or lease.
    pub look: Vec<u8>,
}

/// The reason that there is nothing to ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The response.
    pub answer: ApiResponse,
    /// The node has other fleet rules than the current ones, or has them for longer than [`KEPT`].
    pub is_of_another_policy: bool,
}

impl Lease {
    /// Reads a body.
    ///
    /// # Errors
    /// The response: 415 for another content type, 413 for a body that is too long, 400 for one
    /// that is not a valid request, 409 for one of another policy.
    pub fn read(
        known: &FleetPolicies,
        now: Timestamp,
        content_type: Option<&str>,
        body: &[u8],
    ) -> Result<Self, Refused> {
        let refused = |answer| Refused { answer, is_of_another_policy: false };
        if !is_media_type(content_type.unwrap_or_default(), CONTENT_TYPE) {
            let detail = "send application/octet-stream";
            return Err(refused(ApiResponse::problem(415, "Unsupported Media Type", detail)));
        }
        if body.len() > MAX_BODY {
            return Err(refused(too_long()));
        }
        let wrong =
            |_| refused(ApiResponse::problem(400, "Bad Request", "this is not a lease request"));
        let question = LeaseQuestion::read(body).map_err(wrong)?;
        let policy = known.find(question.policy, now).ok_or_else(another_policy)?;
        let is_direct = |rules: &[tollgate_storage::LeaseRule]| rules.iter().any(|it| it.cost > 0);
        let direct = question.keys.iter().filter(|key| is_direct(&key.rules)).count();
        let mut keys: Vec<Key> = Vec::with_capacity(question.keys.len());
        for key in &question.keys {
            let name = name(key.hash);
            let request = |is_look| match policy.fleet().lease_request(key, question.table, is_look)
            {
                Ok(request) => Ok(request),
                Err(WireError::OtherPolicy) => Err(another_policy()),
                Err(error) => Err(wrong(error)),
            };
            // Of one key at a time: else one would be decided without the other.
            if keys.iter().any(|other| other.name == name) {
                return Err(wrong(WireError::Malformed));
            }
            keys.push(Key { name, request: request(false)?, look: request(true)? });
        }
        Ok(Self { keys, looks_first: direct > 1 })
    }

    /// The request about each key, in the order of the node's request.
    #[must_use]
    pub fn keys(&self) -> &[Key] {
        &self.keys
    }

    /// True when a waiting request costs something in several keys, so that each is peeked first: a
    /// request that one key denies costs nothing in the others.
    #[must_use]
    pub const fn looks_first(&self) -> bool {
        self.looks_first
    }
}

/// True when `reply` to `request` denies, or contains nothing that a request could continue with.
#[must_use]
pub fn refuses(request: &[u8], reply: &[u8]) -> bool {
    Counts::refuses(request, reply).unwrap_or(true)
}

/// The version of the policy that the count of `key` has and that is newer than the one of the
/// request, if `reply` contains it: nothing was charged, reported or leased.
#[must_use]
pub fn newer(key: &Key, reply: &[u8]) -> Option<u64> {
    match Counts::refuses(&key.request, reply) {
        Err(WireError::Newer(version)) => Some(version),
        Ok(_) | Err(_) => None,
    }
}

/// The body of the response: one reply for each key. Replies that do not fit are replaced by a
/// failure of their counts; their charges stay.
#[must_use]
pub fn answer(mut replies: Vec<LeaseReply>) -> Vec<u8> {
    let mut body = Vec::new();
    LeaseReply::write(&replies, &mut body);
    while body.len() > MAX_BODY {
        let len = |reply: &LeaseReply| match reply {
            LeaseReply::Decided(reply) => reply.len(),
            LeaseReply::Failed | LeaseReply::Overloaded => 0,
        };
        let Some(longest) = replies.iter_mut().max_by_key(|reply| len(reply)) else { break };
        *longest = LeaseReply::Failed;
        body.clear();
        LeaseReply::write(&replies, &mut body);
    }
    body
}

/// The response to a body that is longer than [`MAX_BODY`].
#[must_use]
pub fn too_long() -> ApiResponse {
    ApiResponse::problem(413, "Content Too Large", "send at most 65536 bytes")
}

/// The response where there is no secret by which counts are named.
#[must_use]
pub fn off(setting: &str) -> ApiResponse {
    let detail = format!(
        "{setting} is not set: it names the counts of the fleet, the same secret in every node"
    );
    ApiResponse::problem(404, "Not Found", &detail)
}

fn another_policy() -> Refused {
    let detail = "the rules of the fleet are others here than in the policy that this was asked \
                  under; take the policy of this authority";
    Refused { answer: ApiResponse::problem(409, "Conflict", detail), is_of_another_policy: true }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use tollgate_language::DescribedRequest;
    use tollgate_policy::{Plan, Surface};
    use tollgate_storage::{LeaseKey, key_hash, read_leased};

    use super::*;

    fn policy(limit: u32, version: u64) -> Arc<Policy> {
        let document = format!(
            r#"{{"version": 1, "rules": [
                {{"name": "a", "key": ["client_ip"], "scope": "fleet", "quotas": [{{"limit": {limit}, "window": "1h"}}]}},
                {{"name": "b", "key": ["method"], "scope": "fleet", "lease": 0, "quotas": [{{"limit": 3, "window": "1h"}}]}}]}}"#
        );
        let mut policy = tollgate_language::compile(&document, Surface::Server).unwrap();
        policy.set_version(version);
        Arc::new(policy)
    }

    /// The keys of one request, each with its direct cost.
    fn keys(policy: &Policy) -> Vec<LeaseKey> {
        let facts = br#"{"method": "GET", "path": "/", "client_ip": "192.0.2.1"}"#;
        let mut plan = Plan::new();
        policy.plan(&DescribedRequest::parse(facts).unwrap(), &mut plan);
        plan.partitions().map(|partition| partition.lease_key(policy, [7; 16])).collect()
    }

    fn body(policy: &Policy, keys: Vec<LeaseKey>) -> Vec<u8> {
        let mut body = Vec::new();
        LeaseQuestion { policy: policy.fleet().fingerprint(), table: 9, keys }.write(&mut body);
        body
    }

    fn status(known: &FleetPolicies, content_type: Option<&str>, body: &[u8]) -> u16 {
        Lease::read(known, AT, content_type, body).map_or_else(|it| it.answer.status, |_| 200)
    }

    const AT: Timestamp = Timestamp::from_millis(1_700_000_000_000);
    const BINARY: Option<&str> = Some(CONTENT_TYPE);

    #[test]
    fn the_last_two_policies_are_answered_and_no_others() {
        let all = [policy(1, 1), policy(2, 2), policy(3, 3)];
        let mut known = FleetPolicies::default();
        let answered = |known: &FleetPolicies| {
            [0, 1, 2].map(|i| status(known, BINARY, &body(&all[i], keys(&all[i]))))
        };
        assert_eq!(answered(&known), [409, 409, 409]);
        known.follow(&all[0], AT);
        known.follow(&all[0], AT);
        assert_eq!(answered(&known), [200, 409, 409]);
        known.follow(&all[1], AT);
        assert_eq!(answered(&known), [200, 200, 409]);
        known.follow(&all[2], AT);
        assert_eq!(answered(&known), [409, 200, 200]);
        known.follow(&all[1], AT);
        assert_eq!(answered(&known), [409, 200, 200], "a roll-back");
    }

    // Guards: rules that an operator withdrew, and that nodes follow until the next change.
    #[test]
    fn the_policy_before_is_answered_for_a_while() {
        let (one, two) = (policy(1, 1), policy(2, 2));
        let mut known = FleetPolicies::default();
        known.follow(&one, AT);
        known.follow(&two, AT);
        let at = |millis: u64| AT.saturating_add(Span::from_millis(millis));
        // The same policy, followed again and again.
        known.follow(&two, at(10_000));
        let is_known = |known: &FleetPolicies, policy: &Policy, now| {
            known.find(policy.fleet().fingerprint(), now).is_some()
        };
        for (now, expected) in [(0, true), (19_999, true), (20_000, false), (1 << 40, false)] {
            assert_eq!(is_known(&known, &one, at(now)), expected, "{now}");
            assert!(is_known(&known, &two, at(now)), "today's has no end");
        }
        // A roll-back has none either, and the policy that it replaces has its own.
        known.follow(&one, at(30_000));
        assert!(is_known(&known, &one, at(1 << 40)));
        assert!(is_known(&known, &two, at(49_999)) && !is_known(&known, &two, at(50_000)));
    }

    #[test]
    fn the_policy_before_is_answered_where_it_is_found_later() {
        const END: Timestamp = AT.saturating_add(Span::from_secs(7));
        let all = [policy(1, 1), policy(2, 2), policy(3, 3)];
        let mut known = FleetPolicies::default();
        known.follow_before(Policy::clone(&all[0]), END);
        let answered = |known: &FleetPolicies| {
            [0, 1, 2].map(|i| status(known, BINARY, &body(&all[i], keys(&all[i]))))
        };
        assert_eq!(answered(&known), [409, 409, 409], "nothing is in force");
        known.follow(&all[2], AT);
        known.follow_before(Policy::clone(&all[2]), END);
        assert_eq!(answered(&known), [409, 409, 200]);
        known.follow_before(Policy::clone(&all[1]), END);
        assert_eq!(answered(&known), [409, 200, 200]);
        let lease = Lease::read(&known, AT, BINARY, &body(&all[1], keys(&all[1]))).unwrap();
        let mut counts = Counts::default();
        let newest = Lease::read(&known, AT, BINARY, &body(&all[2], keys(&all[2]))).unwrap();
        for key in [&newest.keys()[0], &lease.keys()[0]] {
            let reply = counts.answer(&key.request, Timestamp::from_millis(5)).unwrap().reply;
            assert_eq!(newer(key, &reply), None, "as of today's version");
        }
        known.follow_before(Policy::clone(&all[0]), END);
        assert_eq!(answered(&known), [200, 409, 200]);
        let is_known = |now| known.find(all[0].fleet().fingerprint(), now).is_some();
        assert!(!is_known(END) && is_known(END.saturating_sub(Span::from_millis(1))));
    }

    /// Guards: nodes that lease by a rule's quotas units that a tenant's own, lower quotas would
    /// deny.
    #[test]
    fn where_tenants_may_have_quotas_of_their_own_nothing_is_leased() {
        let document = |tenant: &str| {
            format!(
                r#"{{"version": 1, {tenant} "rules": [
                {{"name": "a", "key": ["client_ip"], "scope": "fleet", "quotas": [{{"limit": 5, "window": "1h"}}]}}]}}"#
            )
        };
        let compile =
            |text: &str| Arc::new(tollgate_language::compile(text, Surface::Server).unwrap());
        let plain = compile(&document(""));
        let question = body(&plain, keys(&plain));
        for (policy, expected) in
            [(plain, 200), (compile(&document(r#""tenant": {"header": "x-org"},"#)), 409)]
        {
            let mut known = FleetPolicies::default();
            known.follow(&policy, AT);
            assert_eq!(status(&known, BINARY, &question), expected);
        }
    }

    /// Guards: a request to `/check` that counts separately from the leases of nodes.
    #[test]
    fn a_key_of_the_fleet_has_the_name_that_nodes_ask_by() {
        let policy = policy(5, 0);
        let facts = br#"{"method": "GET", "path": "/", "client_ip": "192.0.2.1"}"#;
        let mut plan = Plan::new();
        policy.plan(&DescribedRequest::parse(facts).unwrap(), &mut plan);
        for partition in plan.partitions() {
            let asked = partition.lease_key(&policy, [7; 16]);
            let of_key = |secret| key_name(&policy, secret, partition.key());
            assert_eq!(of_key(Some([7; 16])), name(asked.hash));
            assert_ne!(of_key(Some([8; 16])), name(asked.hash));
            assert_eq!(of_key(None), partition.key());
        }
        assert_eq!(key_name(&policy, Some([7; 16]), b"short"), &b"short"[..]);
        assert_eq!(key_name(&policy, Some([7; 16]), b"another group"), &b"another group"[..]);
    }

    /// Guards: nodes that have not learned of a change yet, and that every count that has would
    /// reject as too old.
    #[test]
    fn a_node_of_the_policy_before_is_answered_by_counts_that_know_of_the_next() {
        let (one, two) = (policy(5, 1), policy(7, 2));
        let mut known = FleetPolicies::default();
        known.follow(&one, AT);
        known.follow(&two, AT);
        let mut counts = Counts::default();
        for policy in [&two, &one, &two, &one] {
            let mut keys = keys(policy);
            keys.truncate(1);
            let lease = Lease::read(&known, AT, BINARY, &body(policy, keys)).unwrap();
            let request = &lease.keys()[0].request;
            let reply = counts.answer(request, Timestamp::from_millis(5)).unwrap().reply;
            assert!(!refuses(request, &reply), "it is decided");
        }
        let mut keys = keys(&one);
        keys.truncate(1);
        let lease = Lease::read(&known, AT, BINARY, &body(&one, keys)).unwrap();
        let request = &lease.keys()[0].request;
        let mut refused = 0;
        for _ in 0..4 {
            let reply = counts.answer(request, Timestamp::from_millis(6)).unwrap().reply;
            refused += u32::from(refuses(request, &reply));
        }
        assert!(refused >= 3, "what was used under either counts in both: {refused}");
    }

    #[test]
    fn what_is_no_question_is_answered_by_what_is_wrong() {
        let policy = policy(5, 0);
        let mut known = FleetPolicies::default();
        known.follow(&policy, AT);
        let good = body(&policy, keys(&policy));
        assert_eq!(status(&known, BINARY, &good), 200);
        assert_eq!(status(&known, Some("Application/Octet-Stream ; x=1"), &good), 200);
        for kind in [None, Some("application/json"), Some("")] {
            assert_eq!(status(&known, kind, &good), 415);
        }
        assert_eq!(status(&known, BINARY, &vec![0; MAX_BODY + 1]), 413);
        for len in 0..good.len() {
            assert_eq!(status(&known, BINARY, &good[..len]), 400, "{len}");
        }
        let one = keys(&policy).remove(0);
        let twice = vec![one.clone(), one.clone()];
        assert_eq!(status(&known, BINARY, &body(&policy, twice)), 400);
        let mut same_rule = one.clone();
        same_rule.rules.push(one.rules[0].clone());
        assert_eq!(status(&known, BINARY, &body(&policy, vec![same_rule])), 400);
        let unknown = LeaseKey { group: 1, ..one };
        assert_eq!(status(&known, BINARY, &body(&policy, vec![unknown])), 409);
    }

    #[test]
    fn several_keys_with_costs_are_looked_at_first_and_a_look_changes_nothing() {
        let policy = policy(5, 0);
        let mut known = FleetPolicies::default();
        known.follow(&policy, AT);
        let mut keys = keys(&policy);
        let lease = Lease::read(&known, AT, BINARY, &body(&policy, keys.clone())).unwrap();
        assert!(lease.looks_first());
        for key in lease.keys() {
            let mut counts = Counts::default();
            let answered = counts.answer(&key.look, Timestamp::from_millis(5)).unwrap();
            assert!(!answered.is_changed && !refuses(&key.look, &answered.reply));
            assert_eq!(read_leased(&answered.reply).unwrap().0, []);
        }
        for key in &mut keys[1..] {
            key.rules.iter_mut().for_each(|rule| rule.cost = 0);
        }
        let lease = Lease::read(&known, AT, BINARY, &body(&policy, keys)).unwrap();
        assert!(!lease.looks_first(), "a tick, or one key");
    }

    #[test]
    fn a_count_has_one_name_and_an_answer_its_bound() {
        let hash = key_hash([1; 16], 2, b"key");
        assert_eq!(name(hash).len(), 31);
        let replies = vec![
            LeaseReply::Decided(vec![1; 40_000]),
            LeaseReply::Decided(vec![2; 30_000]),
            LeaseReply::Overloaded,
        ];
        let body = answer(replies);
        assert!(body.len() <= MAX_BODY);
        let read = LeaseReply::read(&body).unwrap();
        assert_eq!(read[0], LeaseReply::Failed);
        assert_eq!(read[1..], [LeaseReply::Decided(vec![2; 30_000]), LeaseReply::Overloaded]);
    }
}
