//! Look-ups compared with evaluating each entry in turn, over random policies and requests.
//!
//! Invariant: a look-up changes no decision. A condition holds, or is malformed, exactly when a
//! comparison with each of its alternatives gives that result. No rule or exemption that may hold
//! is left out. The first matching tier is found, or the same error.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "tests"
)]

use alloc::borrow::Cow;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::IpAddr;

use crate::compiled_for_tests::compile;
use crate::facts::Facts;
use crate::pipeline::deny::find;
use crate::pipeline::plan::Plan;
use crate::policy::compiled::Policy;
use crate::policy::group::Group;
use crate::policy::index::IndexedBy;
use crate::policy::rule::Tier;
use crate::request::key::write_key;
use crate::request::lazy::{Buffers, Request};
use crate::request::matching::Reading;
use crate::spec::conditions::{Condition, Conditions};
use crate::spec::surface::Surface;
use tollgate_http_syntax::malformed::Malformed;
use tollgate_http_syntax::repeated::Repeated;
use tollgate_test_support::Random;

/// Documents and requests of one sequence of random numbers.
struct Seeded(Random);

impl Seeded {
    fn below(&mut self, n: usize) -> usize {
        self.0.index(n)
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        *self.0.pick(all)
    }

    /// Up to `most` results of `one`, with commas between them.
    fn list(&mut self, most: usize, mut one: impl FnMut(&mut Self) -> String) -> String {
        let count = 1 + self.below(most);
        (0..count).map(|_| one(self)).collect::<Vec<_>>().join(", ")
    }

    /// Few enough that many are the same, or a prefix of another.
    fn value(&mut self) -> String {
        match self.below(3) {
            0 => self.one_of(&VALUES).into(),
            _ => (0..1 + self.below(3)).map(|_| self.one_of(&['a', 'b', 'c'])).collect(),
        }
    }

    fn matcher(&mut self) -> String {
        match self.below(60) {
            0 => r#""*""#.into(),
            1..=4 => format!(r#"{{"prefix": "{}"}}"#, self.value()),
            _ => format!(r#""{}""#, self.value()),
        }
    }

    fn network(&mut self) -> String {
        let low = self.below(16);
        match self.below(3) {
            0 => format!(r#""{}""#, self.one_of(&NETWORKS)),
            1 => format!(r#""192.0.2.{low}""#),
            _ => format!(r#""2001:db8::{low:x}""#),
        }
    }

    fn conditions(&mut self) -> String {
        // Shorter and longer than the lists that are compared in turn.
        let most = self.one_of(&[2, 30]);
        let mut all = Vec::new();
        if self.below(2) == 0 {
            let name = self.one_of(&NAMES);
            let values = self.list(most, Self::matcher);
            all.push(format!(r#""headers": {{"{name}": [{values}]}}"#));
        }
        if self.below(4) == 0 {
            let values = self.list(most, Self::matcher);
            all.push(format!(r#""query": {{"q": [{values}]}}"#));
        }
        if self.below(3) == 0 {
            let networks = self.list(most, Self::network);
            all.push(format!(r#""client_cidrs": [{networks}]"#));
        }
        if self.below(6) == 0 || all.is_empty() {
            all.push(self.one_of(&[r#""methods": ["POST"]"#, r#""paths": ["/**"]"#]).into());
        }
        if self.below(6) == 0 {
            all.push(r#""hosts": ["a.example"]"#.into());
        }
        format!("{{{}}}", all.join(", "))
    }

    fn tier(&mut self, i: usize) -> String {
        let mut tier = format!(
            r#"{{"name": "t{i}", "priority": {}, "quotas": [{{"limit": {}, "window": "1s"}}]"#,
            self.below(3),
            i + 1,
        );
        let with = self.below(3);
        if with != 1 {
            tier += &format!(r#", "when": {}"#, self.conditions());
        }
        if with != 0 {
            let values = self.list(3, |it| match it.below(3) {
                0 => format!(r#""192.0.2.{}""#, it.below(16)),
                1 => format!(r#""::ffff:192.0.2.{}""#, it.below(16)),
                _ => format!(r#""{}""#, it.value()),
            });
            tier += &format!(r#", "key_values": [{values}]"#);
        }
        if self.below(4) == 0 {
            tier += &format!(r#", "repeated": "{}""#, self.one_of(&REPEATED));
        }
        tier + "}"
    }

    fn policy(&mut self) -> Policy {
        let (mut rule, mut tier) = (0, 0);
        let exempt = self.list(60, Self::conditions);
        let rules = self.list(60, |it| {
            let most = it.one_of(&[1, 60]);
            let tiers = it.list(most, |it| {
                tier += 1;
                it.tier(tier)
            });
            rule += 1;
            format!(
                r#"{{"name": "r{rule}", "when": {}, "key": ["client_ip", {{"header": "x-a"}}],
                 "on_missing": "shared", "quotas": [{{"limit": 1, "window": "1s"}}], "tiers": [{tiers}]}}"#,
                it.conditions(),
            )
        });
        let repeated = self.one_of(&REPEATED);
        let mut number = 0;
        let deny = self.list(60, |it| {
            number += 1;
            let mode = it.one_of(&["enforce", "shadow", "shadow"]);
            format!(
                r#"{{"name": "d{number}", "deny": true, "mode": "{mode}", "when": {}}}"#,
                it.conditions()
            )
        });
        let document = format!(
            r#"{{"version": 1, "repeated": "{repeated}", "exempt": [{exempt}], "rules": [{deny}, {rules}]}}"#
        );
        compile(&document, Surface::Library)
    }

    fn request(&mut self) -> Given {
        let mut headers = Vec::new();
        for name in NAMES {
            let values = self.list(3, Self::value);
            // A list without elements is read as no value.
            let values = if self.below(8) == 0 { ", ,".into() } else { values };
            headers.extend((self.below(4) > 0).then_some((name, values)));
        }
        let low = self.below(16);
        let peer = match self.below(4) {
            0 => self.one_of(&["::ffff:192.0.2.1", "198.51.100.1", "none"]).into(),
            1 => format!("2001:db8::{low:x}"),
            _ => format!("192.0.2.{low}"),
        };
        let query = self.list(2, |it| format!("q={}", it.value().replace(' ', "%20")));
        Given {
            target: format!("/x?{}", query.replace(", ", "&")),
            headers,
            peer: peer.parse().ok(),
            host: self.one_of(&["a.example", "b.example", "a b"]),
        }
    }
}

const NAMES: [&str; 4] = ["x-a", "x-b", "user-agent", "authorization"];
const VALUES: [&str; 6] = ["A", "a, b", "a,b", "Key a", "key  a", ""];
const REPEATED: [&str; 4] = ["refuse", "first", "last", "join"];
const NETWORKS: [&str; 9] = [
    "192.0.2.0/24",
    "192.0.2.0/31",
    "192.0.2.8/29",
    "::ffff:192.0.2.0/125",
    "0.0.0.0/0",
    "::/0",
    "2001:db8::/32",
    "2001:db8::8/125",
    "198.51.100.0/25",
];

struct Given {
    target: String,
    headers: Vec<(&'static str, String)>,
    peer: Option<IpAddr>,
    host: &'static str,
}

impl Facts for Given {
    fn method(&self) -> Cow<'_, [u8]> {
        b"GET"[..].into()
    }
    fn target(&self) -> Cow<'_, [u8]> {
        self.target.as_bytes().into()
    }
    fn host(&self) -> Cow<'_, [u8]> {
        self.host.as_bytes().into()
    }
    fn header(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        let header = self.headers.iter().find(|(known, _)| *known == name);
        header.map(|(_, value)| value.as_bytes().into())
    }
    fn peer(&self) -> Option<IpAddr> {
        self.peer
    }
}

/// The same conditions, whose alternatives are compared in turn.
fn in_turn(conditions: &Conditions) -> Conditions {
    let each = conditions.0.iter().map(|condition| match condition {
        Condition::Header(name, wanted) => Condition::Header(name.clone(), wanted.in_turn()),
        Condition::Query(name, wanted) => Condition::Query(name.clone(), wanted.in_turn()),
        Condition::ClientCidrs(list) => Condition::ClientCidrs(list.in_turn()),
        other => other.clone(),
    });
    Conditions(each.collect())
}

/// Whether `conditions` hold, for each way to read a request.
fn held(conditions: &Conditions, request: &Request<'_, Given>) -> [Result<bool, Malformed>; 4] {
    let default = request.settings.spec.repeated;
    [
        Reading::Any,
        Reading::Every,
        Reading::Main(default, None),
        Reading::Main(default, Some(Repeated::Refuse)),
    ]
    .map(|reading| conditions.hold(request, IndexedBy::Nothing, reading))
}

/// The first of `tiers` that matches the request, evaluated in turn.
fn first_in_turn(
    tiers: &[Tier],
    request: &Request<'_, Given>,
    group: &Group,
    key: &[u8],
) -> Result<Option<u16>, Malformed> {
    for tier in tiers {
        if tier.is_for(request, group, key)? {
            return Ok(Some(tier.set));
        }
    }
    Ok(None)
}

/// The comparisons made, so that no comparison is empty.
#[derive(Debug, Default)]
struct Compared {
    held: [usize; 4],
    failed: usize,
    unclear: usize,
    exempt: usize,
    /// Rules that no look-up found.
    left_out: usize,
    tiers: usize,
    unclear_tiers: usize,
    denied: usize,
    /// Deny rules that matched.
    matched: usize,
}

impl Compared {
    fn conditions(&mut self, request: &Request<'_, Given>, when: &Conditions, each: &Conditions) {
        let (found, expected) = (held(when, request), held(each, request));
        assert_eq!(found, expected, "{when:?}, {:?}", request.facts.headers);
        for (count, found) in self.held.iter_mut().zip(found) {
            *count += usize::from(found == Ok(true));
            self.failed += usize::from(found == Ok(false));
            self.unclear += usize::from(found.is_err());
        }
    }

    fn rules(&mut self, request: &Request<'_, Given>, policy: &Policy) {
        let is_exempt = policy.exempt.iter().any(|exempt| exempt.surely_hold(request));
        assert_eq!(policy.is_exempt(request), is_exempt);
        self.exempt += usize::from(is_exempt);
        let mut candidates = Vec::new();
        find(&policy.index, request, &mut candidates);
        assert!(candidates.is_sorted_by(|one, next| one < next), "{candidates:?}");
        for (rule, i) in policy.rules.iter().zip(0_u16..) {
            let when =
                rule.terms.when.as_ref().unwrap_or_else(|| panic!("each rule has conditions"));
            let may_hold = when.hold(request, IndexedBy::Nothing, Reading::Any) != Ok(false);
            assert!(!may_hold || candidates.contains(&i), "rules[{i}]");
            self.left_out += usize::from(!candidates.contains(&i));
        }
    }

    /// The deny rules that match, up to the first that denies.
    fn deny(&mut self, request: &Request<'_, Given>, policy: &Policy) {
        let (mut candidates, mut found) = (Vec::new(), Vec::new());
        let is_denied = policy.is_denied(request, &mut candidates, &mut found);
        let all = policy.deny.rules.iter().zip(0_u16..);
        let matching = all.filter(|(rule, _)| rule.matches(request) != Ok(false));
        let mut expected = Vec::new();
        for (rule, i) in matching {
            expected.push((i, rule.matches(request).err()));
            if rule.is_enforced {
                break;
            }
        }
        let found: Vec<_> = found.iter().map(|it| (it.rule, it.malformed)).collect();
        assert_eq!(found, expected);
        let last = expected.last().and_then(|(i, _)| policy.deny.rules.get(usize::from(*i)));
        assert_eq!(is_denied, last.is_some_and(|rule| rule.is_enforced));
        self.denied += usize::from(is_denied);
        self.matched += found.len();
    }

    fn tiers(&mut self, request: &Request<'_, Given>, policy: &Policy, seeded: &mut Seeded) {
        for rule in &policy.rules {
            let group = &policy.groups[usize::from(rule.terms.group)];
            let mut key = Vec::new();
            if write_key(group, rule, request, &mut key) != Ok(true) {
                continue;
            }
            let tiers = &rule.tiers[..seeded.below(rule.tiers.len() + 1)];
            let expected = first_in_turn(tiers, request, group, &key);
            let found = rule.first_tier(tiers, request, group, &key);
            assert_eq!(found.map(|tier| tier.map(|tier| tier.set)), expected);
            self.tiers += usize::from(matches!(expected, Ok(Some(_))));
            self.unclear_tiers += usize::from(expected.is_err());
        }
    }
}

#[test]
fn what_is_looked_up_is_what_asking_each_in_turn_finds() {
    let (mut seeded, mut compared) = (Seeded(Random::new(26)), Compared::default());
    for _ in 0..100 {
        let policy = seeded.policy();
        let whens: Vec<_> =
            policy.rules.iter().filter_map(|rule| rule.terms.when.as_ref()).collect();
        let each_in_turn: Vec<_> = whens.iter().map(|when| in_turn(when)).collect();
        for _ in 0..30 {
            let given = seeded.request();
            let mut buffers = Buffers::default();
            let request = Request::new(&given, &policy.settings, &mut buffers);
            for (when, each_in_turn) in whens.iter().zip(&each_in_turn) {
                compared.conditions(&request, when, each_in_turn);
            }
            compared.rules(&request, &policy);
            compared.deny(&request, &policy);
            compared.tiers(&request, &policy, &mut seeded);
        }
    }
    let Compared { held, failed, unclear, exempt, left_out, tiers, unclear_tiers, .. } = compared;
    assert!(held.iter().all(|count| *count > 5_000), "{held:?}");
    let all = [
        failed,
        unclear,
        exempt,
        left_out,
        tiers,
        unclear_tiers,
        compared.denied,
        compared.matched,
    ];
    assert!(all.iter().all(|count| *count > 500), "{all:?}");
}

// Guards: a client that chooses its tenant by an unrelated header, and rules that change the tenant
// of other rules by their number.
#[test]
fn the_tenant_of_a_path_does_not_depend_on_how_many_rules_are_looked_up() {
    let tenants = [1, 2, 3, 40].map(|count| {
        let rules: String = (0..count)
            .map(|i| {
                format!(
                    r#"{{"name": "r{i}", "when": {{"paths": ["/{{t}}/**", "/**"],
                     "headers": {{"x-a": "v{i}"}}}}, "key": [],
                     "quotas": [{{"limit": 1, "window": "1s"}}]}},"#
                )
            })
            .collect();
        let document = format!(
            r#"{{"version": 1, "tenant": {{"path_param": "t"}}, "rules": [{rules}
             {{"name": "last", "when": {{"paths": ["/v1/{{t}}/**"]}}, "key": [],
             "quotas": [{{"limit": 1, "window": "1s"}}]}}]}}"#
        );
        let policy = compile(&document, Surface::Library);
        let target = "/v1/acme/x".into();
        let given = Given { target, headers: Vec::new(), peer: None, host: "a.example" };
        let mut plan = Plan::new();
        policy.plan(&given, &mut plan);
        plan.tenant.clone()
    });
    assert!(tenants.iter().all(|tenant| tenant[..] == *b"v1"), "{tenants:?}");
}
