//! Limits that requests bring with them: where they are read, what they change, and that requests
//! with different limits share one count, in a plan and in an object alike.

use std::collections::BTreeMap;
use std::sync::Arc;

use tollgate_core::{Span, Timestamp};
use tollgate_policy::{
    Denials, Directory, Disposition, Plan, Policy, RequestedLimit, Surface, Tenant,
};
use tollgate_storage::Counts;

use crate::support::{Random, Request, Surfaced, get, seen};

const DENIED: Disposition = Disposition::Deny { status: 429 };
const ALGORITHMS: [&str; 6] = [
    r#""algorithm": "fixed-window""#,
    r#""algorithm": "sliding-window""#,
    r#""algorithm": "sliding-buckets", "buckets": 6"#,
    r#""algorithm": "sliding-buckets", "buckets": 3, "weighted": true"#,
    r#""algorithm": "sliding-log""#,
    r#""algorithm": "fixed-window", "align": "calendar""#,
];

fn quota(algorithm: &str, source: &str, limit: u64, max: u64) -> String {
    format!(
        r#"{{"limit": {limit}, "window": "1h", {algorithm}, "limit_from": {{{source}, "max": {max}}}}}"#
    )
}

fn policy(quotas: &str) -> String {
    format!(
        r#"{{"version": 1, "jwt": {{"metadata": "payload"}},
            "rules": [{{"name": "each", "key": ["client_ip"], "quotas": [{quotas}]}}]}}"#
    )
}

fn of_header() -> String {
    policy(&quota(ALGORITHMS[0], r#""header": "x-limit""#, 3, 10))
}

fn with(limit: &str) -> Request {
    get("/", "192.0.2.1").header("x-limit", limit)
}

#[test]
fn requests_with_different_limits_share_one_count() {
    for algorithm in ALGORITHMS {
        let document = policy(&quota(algorithm, r#""header": "X-Limit""#, 3, 10));
        let mut surface = Surfaced::new(&document);
        let mut check = |limit: &str| {
            let seen = surface.check(&with(limit), 1);
            let fields = ["ratelimit-policy", "ratelimit"].map(|name| {
                let field = seen.header(name).unwrap().to_owned();
                field.split(';').nth(1).unwrap().to_owned()
            });
            (seen.answer, fields)
        };
        let pair = |one: &str, two: &str| [one.to_owned(), two.to_owned()];
        assert_eq!(check("2"), (Disposition::Allow, pair("q=2", "r=1")), "{algorithm}");
        assert_eq!(check("2"), (Disposition::Allow, pair("q=2", "r=0")), "{algorithm}");
        assert_eq!(check("2"), (DENIED, pair("q=2", "r=0")), "{algorithm}");
        assert_eq!(check("none"), (Disposition::Allow, pair("q=3", "r=0")), "{algorithm}");
        assert_eq!(check("99"), (Disposition::Allow, pair("q=10", "r=6")), "{algorithm}");
        assert_eq!(check("3"), (DENIED, pair("q=3", "r=0")), "{algorithm}");
        assert_eq!(check("9999999999999999"), (Disposition::Allow, pair("q=10", "r=5")));
    }
}

#[test]
fn of_several_values_of_a_header_the_lowest_number_counts() {
    for (lines, limit) in [
        (vec!["7"], 7),
        (vec![" 7 "], 7),
        (vec!["007"], 7),
        (vec!["7", "7"], 7),
        (vec!["7, 7"], 7),
        (vec!["8", "7"], 7),
        (vec!["7, 8"], 7),
        (vec!["9", "1"], 1),
        (vec!["none", "2"], 2),
        (vec!["2, -1"], 2),
        (vec!["", "2"], 2),
        (vec!["none", "-1"], 3),
        (vec!["8;q=1"], 3),
        (vec![""], 3),
        (vec![], 3),
        (vec!["-1"], 3),
        (vec!["+7"], 3),
        (vec!["7.5"], 3),
        (vec!["\"7\""], 3),
        (vec!["11"], 10),
        (vec!["18446744073709551616"], 10),
    ] {
        let mut surface = Surfaced::new(&of_header());
        let request =
            lines.iter().fold(get("/", "192.0.2.1"), |it, line| it.header("x-limit", line));
        let seen = surface.check(&request, 1);
        let expected = format!(r#""each";r={};t="#, limit - 1);
        assert!(seen.header("ratelimit").unwrap().starts_with(&expected), "{lines:?}: {seen:?}");
    }
}

#[test]
fn claims_metadata_and_descriptors_are_sources() {
    let claim = policy(&quota(ALGORITHMS[0], r#""claim": "rate_limit""#, 3, 10));
    let metadata = policy(&quota(ALGORITHMS[0], r#""metadata": ["f", "limit"]"#, 3, 10));
    let base = get("/", "192.0.2.1");
    for (document, request, left) in [
        (&claim, Request { claims: vec![("rate_limit", "8")], ..base.clone() }, 7),
        (&claim, Request { claims: vec![("rate_limit", "8.5")], ..base.clone() }, 2),
        (&claim, Request { claims: vec![("other", "8")], ..base.clone() }, 2),
        (&metadata, Request { metadata: vec![("f/limit", "8")], ..base.clone() }, 7),
        (&metadata, Request { metadata: vec![("f/limit", "true")], ..base }, 2),
    ] {
        let seen = Surfaced::new(document).check(&request, 1);
        let expected = format!(r#""each";r={left};"#);
        assert!(seen.header("ratelimit").unwrap().starts_with(&expected), "{document}: {seen:?}");
    }
    let descriptor = r#"{"version": 1, "rules": [{"name": "each", "key": [{"descriptor": "k"}],
        "quotas": [{"limit": 3, "window": "1m", "algorithm": "fixed-window", "limit_from": {"descriptor": true, "max": 10}}]}]}"#;
    for (limit, left) in [
        (Some((8, 60)), 7),
        (Some((8, 3_600)), 2),
        (Some((99, 60)), 9),
        (Some((u64::MAX, 60)), 9),
        (None, 2),
    ] {
        let limit =
            limit.map(|(units, secs)| RequestedLimit { units, window: Span::from_secs(secs) });
        let request = Request { entries: vec![("k", "v")], limit, ..Request::default() };
        let seen = Surfaced::on(descriptor, Surface::Server).check(&request, 1);
        let expected = format!(r#""each";r={left};"#);
        assert!(seen.header("ratelimit").unwrap().starts_with(&expected), "{limit:?}: {seen:?}");
    }
}

#[test]
fn zero_denies_this_request_writes_nothing_and_other_rules_decide_as_ever() {
    let document = format!(
        r#"{{"version": 1, "rules": [
            {{"name": "each", "key": ["client_ip"], "quotas": [{}]}},
            {{"name": "all", "key": [], "quotas": [{{"limit": 5, "window": "1m"}}]}}]}}"#,
        quota(ALGORITHMS[1], r#""header": "x-limit""#, 0, 10)
    );
    let mut surface = Surfaced::new(&document);
    for limit in ["0", "000", "none"] {
        let seen = surface.check(&with(limit), 1);
        assert_eq!((seen.answer, surface.store.len()), (DENIED, 0), "{limit}");
        assert_eq!(seen.header("retry-after"), None);
        assert_eq!(seen.header("ratelimit"), Some(r#""each";r=0, "all";r=5;t=60"#));
        assert!(seen.body.unwrap().contains(r#""detail":"the quota allows no requests""#));
    }
    assert_eq!(surface.check(&with("1"), 1).answer, Disposition::Allow);
}

/// A count without a policy decides and writes as a plan does, whatever limits the requests have.
#[test]
fn an_object_decides_as_a_plan() {
    let mut random = Random::new(11);
    for algorithm in ALGORITHMS {
        let quotas = format!(
            r#"{{"name": "b", "limit": 30, "window": "1h"}}, {}"#,
            quota(algorithm, r#""header": "x-limit""#, 4, 12).replacen('{', r#"{"name": "a", "#, 1)
        );
        let document = format!(
            r#"{{"version": 1, "rules": [{{"name": "each", "key": ["client_ip"], "quotas": [{quotas}]}}]}}"#
        );
        let policy = tollgate_language::compile(&document, Surface::Worker).unwrap();
        let (mut counts, mut stored) = (Counts::default(), Vec::new());
        let mut ms = 1_780_000_000_000;
        for _ in 0..400 {
            ms += *random.pick(&[0, 1, 1_000, 60_000, 900_000]);
            let now = Timestamp::from_millis(ms);
            let request = with(random.pick::<&str>(&["0", "1", "3", "6", "12", "99", "x"]));
            let (mut here, mut elsewhere) = (Plan::new(), Plan::new());
            policy.plan(&request, &mut here);
            policy.plan(&request, &mut elsewhere);
            here.each_partition(|partition| partition.load(&policy, Some(&stored)));
            here.decide(&policy, now);
            if let Some(partition) = here.partition(0).filter(|it| it.changed()) {
                stored = partition.value().to_vec();
            }
            for is_look in [true, false] {
                let mut asked = Vec::new();
                let partition = elsewhere.partition(0).unwrap();
                if is_look {
                    partition.look_request(&policy, &mut asked);
                } else {
                    partition.request(&policy, &mut asked);
                }
                let reply = counts.answer(&asked, now).unwrap().reply;
                elsewhere.partition_mut(0).unwrap().accept(&policy, &reply).unwrap();
            }
            let [one, other] = [&here, &elsewhere].map(|plan| seen(&policy, plan, Span::ZERO));
            assert_eq!(one, other, "{algorithm}");
        }
    }
}

/// A remembered denial denies a request only if the object would, and never one with a higher
/// limit that still fits.
#[test]
fn a_remembered_denial_is_of_its_limit() {
    for algorithm in &ALGORITHMS[..5] {
        let document = policy(&quota(algorithm, r#""header": "x-limit""#, 4, 12))
            .replace(r#""jwt": {"metadata": "payload"},"#, "");
        let policy = tollgate_language::compile(&document, Surface::Worker).unwrap();
        let (mut counts, mut denials) = (Counts::default(), Denials::new([7; 16]));
        let mut random = Random::new(5);
        let (mut ms, mut remembered) = (1_780_000_000_000, 0);
        for _ in 0..2_000 {
            ms += *random.pick(&[0, 0, 0, 100, 400, 300_000]);
            let now = Timestamp::from_millis(ms);
            let request = with(random.pick::<&str>(&["0", "1", "3", "6", "12", "12"]));
            let mut plan = Plan::new();
            policy.plan(&request, &mut plan);
            let mut asked = Vec::new();
            plan.partition(0).unwrap().request(&policy, &mut asked);
            if denials.refuses(&policy, &mut plan, now) {
                remembered += 1;
                // Whatever is remembered is denied by the object too, with the same fields.
                let of_memory = seen(&policy, &plan, Span::ZERO);
                let reply = counts.clone().answer(&asked, now).unwrap().reply;
                policy.plan(&request, &mut plan);
                plan.partition_mut(0).unwrap().accept(&policy, &reply).unwrap();
                assert_eq!(of_memory, seen(&policy, &plan, Span::ZERO), "{algorithm}");
                continue;
            }
            let reply = counts.answer(&asked, now).unwrap().reply;
            plan.partition_mut(0).unwrap().accept(&policy, &reply).unwrap();
            denials.record_reply(&policy, &plan, 0, now);
            denials.close(&policy, &plan);
        }
        assert!(remembered > 100, "{algorithm}: {remembered}");
    }
}

/// While connections are drained, an older policy decides by the newer record's quota with the
/// limit of the request; and a changed source, default or highest limit keeps the counts.
#[test]
fn counts_continue_under_another_policy() {
    let old = policy(&quota(ALGORITHMS[0], r#""header": "x-limit""#, 3, 10));
    let new = policy(&quota(ALGORITHMS[0], r#""header": "x-limit""#, 2, 20));
    let compile = |text: &str| tollgate_language::compile(text, Surface::Envoy).unwrap();
    let (old, new) = (compile(&old), compile(&new));
    let mut known = Directory::read(&[]).unwrap_or_default();
    let mut store: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    for policy in [&old, &new] {
        let _ = known.register(policy, &policy.groups()[0]);
    }
    let mut check = |policy: &Policy, limit: &str| {
        let mut plan = Plan::new();
        policy.plan(&with(limit), &mut plan);
        let now = Timestamp::from_millis(1);
        plan.each_partition(|partition| {
            let stored = store.get(partition.key()).map(Vec::as_slice);
            if !partition.load_own(policy, stored) {
                partition.load_with(policy, &known, stored.unwrap(), now);
            }
        });
        plan.decide(policy, now);
        if let Some(partition) = plan.partition(0).filter(|it| it.changed() || it.is_carried()) {
            store.insert(partition.key().to_vec(), partition.value().to_vec());
        }
        let seen = seen(policy, &plan, Span::ZERO);
        (seen.answer, seen.header("ratelimit").unwrap().to_owned())
    };
    let allowed = |left: u64| {
        (
            Disposition::Allow,
            format!(r#""each";r={left};t={}"#, if left == 0 { 3_600 } else { 3_599 }),
        )
    };
    let denied = (DENIED, r#""each";r=0;t=3600"#.to_owned());
    assert_eq!(check(&old, "2"), allowed(1));
    assert_eq!(check(&new, "2"), allowed(0));
    assert_eq!(check(&old, "2"), denied, "by the newer record, with the request's limit");
    assert_eq!(check(&old, "x"), allowed(0), "the older policy's own limit, 3");
    assert_eq!(check(&new, "x"), denied, "2");
    assert_eq!(check(&new, "99"), allowed(16));
}

/// A policy whose quota takes no limits of requests decides by a newer record with the limit of a
/// request that brings none, not with the highest one.
#[test]
fn an_older_policy_without_limits_of_requests_decides_by_the_default() {
    let plain = policy(&format!(r#"{{"limit": 3, "window": "1h", {}}}"#, ALGORITHMS[0]));
    let newer = policy(&quota(ALGORITHMS[0], r#""header": "x-limit""#, 4, 10));
    let compile = |text: &str| tollgate_language::compile(text, Surface::Envoy).unwrap();
    let (plain, newer) = (compile(&plain), compile(&newer));
    let mut known = Directory::default();
    for policy in [&plain, &newer] {
        let _ = known.register(policy, &policy.groups()[0]);
    }
    let mut bytes = Vec::new();
    known.write(&mut bytes);
    let known = Directory::read(&bytes).unwrap();
    let (mut stored, now) = (Vec::new(), Timestamp::from_millis(1));
    let mut check = |policy: &Policy, limit: &str| {
        let mut plan = Plan::new();
        policy.plan(&with(limit), &mut plan);
        plan.each_partition(|partition| {
            let stored = Some(&*stored).filter(|it: &&[u8]| !it.is_empty());
            if !partition.load_own(policy, stored) {
                partition.load_with(policy, &known, stored.unwrap(), now);
            }
        });
        plan.decide(policy, now);
        if let Some(partition) = plan.partition(0).filter(|it| it.changed() || it.is_carried()) {
            stored = partition.value().to_vec();
        }
        seen(policy, &plan, Span::ZERO).answer
    };
    assert_eq!(check(&newer, "2"), Disposition::Allow);
    for _ in 0..3 {
        assert_eq!(check(&plain, "9"), Disposition::Allow);
    }
    assert_eq!(check(&plain, "9"), DENIED, "4 units, by the newer record");
    assert_eq!(check(&newer, "5"), Disposition::Allow);
}

#[test]
fn a_tenants_own_quotas_take_limits_from_sources_that_the_policy_reads() {
    let document = |source: &str| {
        format!(
            r#"{{"version": 1, "tenant": {{"header": "x-org"}}, "rules": [
                {{"name": "each", "key": [{{"header": "x-org"}}], "quotas": [{}]}}]}}"#,
            quota(ALGORITHMS[0], source, 3, 10)
        )
    };
    let entry = |source: &str| {
        format!(r#"{{"quotas": {{"each": [{}]}}}}"#, quota(ALGORITHMS[4], source, 1, 6))
    };
    let header = r#""header": "x-limit""#;
    let mut surface = Surfaced::on(&document(header), Surface::Library);
    let claim = tollgate_language::tenant_entry_for(
        &surface.policy,
        entry(r#""claim": "limit""#).as_bytes(),
    );
    assert_eq!(
        claim.unwrap_err().to_string(),
        "quotas.each[0].limit_from: has a source from which no quota of the policy takes a limit; add it there, too"
    );
    let own =
        tollgate_language::tenant_entry_for(&surface.policy, entry(header).as_bytes()).unwrap();
    let request = with("9").header("x-org", "acme");
    surface.check(&request, 1);
    let id = surface.plan.tenant().unwrap().id().to_vec();
    let tenant = Arc::new(Tenant::new(&surface.policy, &id, &own));
    surface.policy.plan_for(&request, &tenant, &mut surface.plan);
    surface.plan.each_partition(|partition| partition.load(&surface.policy, None));
    surface.plan.decide(&surface.policy, Timestamp::from_millis(1));
    let seen = seen(&surface.policy, &surface.plan, Span::ZERO);
    assert_eq!(seen.header("ratelimit-policy"), Some(r#""each";q=6;w=3600"#));
}

#[test]
fn a_compiled_policy_has_its_sources() {
    for source in [r#""claim": "a""#, r#""header": "x-limit""#, r#""metadata": ["a", "b"]"#] {
        let policy = Surfaced::new(&policy(&quota(ALGORITHMS[2], source, 0, 10))).policy;
        let (mut bytes, mut again) = (Vec::new(), Vec::new());
        policy.write_compiled(&mut bytes);
        Policy::read_compiled(&bytes, Surface::Envoy).unwrap().write_compiled(&mut again);
        assert_eq!(bytes, again);
    }
}
