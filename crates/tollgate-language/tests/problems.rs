//! The exact messages about a wrong policy.

use tollgate_policy::Surface;

fn check(document: &str, expected: &[&str]) {
    let problems =
        tollgate_language::compile(document, Surface::Envoy).err().map(|e| e.to_string());
    assert_eq!(problems.unwrap_or_default().lines().collect::<Vec<_>>(), expected, "{document}");
}

#[test]
fn every_mistake_is_reported_at_once() {
    check(
        r#"{"version": 2, "on_failure": "alow", "rulez": [], "rules": [
            {"name": "", "key": ["client_ip", {"header": "a b"}], "quotas": []},
            {"name": "a", "when": {"paths": ["login"], "methods": []}, "key": [], "quotas": [
                {"limit": 1000000000000000, "window": "1m"},
                {"name": "q", "limit": 10, "window": "0s", "algorithm": "gcr"},
                {"name": "q", "limit": -1, "window": "60"}]},
            {"name": "a", "key": [], "quotas": [{"limit": 1, "limit": 2, "window": "1m"}]}]}"#,
        &[
            r#"unknown field "rulez"; did you mean "rules"?"#,
            "version: 2 is not a known version; use 1",
            r#"on_failure: unknown failure mode "alow"; did you mean "allow"?"#,
            r#"rules[0].name: "" must have 1 to 64 characters"#,
            r#"rules[0].key[1].header: "a b" is not a header name"#,
            r#"rules[1].when.paths[0]: "login" must start with "/""#,
            "rules[1].when.methods: is empty; give at least one, or leave it out",
            "rules[1].quotas[0].limit: 1000000000000000 is not valid: limit must be 0 to 999999999999999",
            "rules[1].quotas[0].name: is missing; every one of several quotas needs a name",
            r#"rules[1].quotas[1].window: "0s" is too short; use 1ms to 366d"#,
            r#"rules[1].quotas[1].algorithm: unknown algorithm "gcr"; did you mean "gcra"?"#,
            "rules[1].quotas[2].name: is the name of an earlier one; names are unique",
            "rules[1].quotas[2].limit: -1 is not a whole number of at least 0",
            r#"rules[1].quotas[2].window: "60" is not a window; use 1ms to 366d, such as "500ms", "10s", "1m", "1h" or "1d""#,
            "rules[2].name: is the name of an earlier one; names are unique",
            "rules[2].quotas[0].limit: is given twice; give it once",
        ],
    );
}

#[test]
fn what_depends_on_several_values_is_reported_too() {
    check(
        r#"{"version": 1, "rules": [
            {"name": "a", "when": {"methods": [], "paths": []}, "key": [], "quotas": []},
            {"name": "a", "key": [], "quotas": [
                {"limit": 1000000000000000, "window": "1m"},
                {"name": "b", "limit": 10, "window": "1m", "algorithm": "sliding-log", "burst": 3},
                {"name": "c", "limit": 2000, "window": "1m", "algorithm": "sliding-log"},
                {"name": "d", "limit": 10, "window": "1m", "buckets": 6},
                {"name": "e", "limit": 10, "window": "1m", "algorithm": "sliding-buckets", "buckets": 1},
                {"name": "f", "limit": 10, "window": "1m", "burst": 11, "strict": true},
                {"name": "g", "limit": 10, "window": "1m", "algorithm": "sliding-log", "weighted": false}]}]}"#,
        &[
            "rules[0].when.methods: is empty; give at least one, or leave it out",
            "rules[0].when.paths: is empty; give at least one, or leave it out",
            "rules[0].quotas: has 0 quotas; use 1 to 16",
            "rules[1].name: is the name of an earlier one; names are unique",
            "rules[1].quotas[0].limit: 1000000000000000 is not valid: limit must be 0 to 999999999999999",
            "rules[1].quotas[0].name: is missing; every one of several quotas needs a name",
            "rules[1].quotas[1].burst: 3 is not valid: this algorithm allows up to its limit at once; leave burst out",
            "rules[1].quotas[2].limit: 2000 is not valid: limit must be at most 1024 with this algorithm",
            r#"rules[1].quotas[3].buckets: is for the algorithm "sliding-buckets" only; leave it out"#,
            "rules[1].quotas[4].buckets: 1 is not valid: buckets must be 2 to 360",
            "rules[1].quotas[5].burst: 11 is not valid: burst of a strict quota must be at most its limit, 10",
            r#"rules[1].quotas[6].weighted: is for the algorithm "sliding-buckets" only; leave it out"#,
        ],
    );
}

#[test]
fn what_is_no_document_is_said_so() {
    check("", &["not JSON: EOF while parsing a value at line 1 column 0"]);
    check("[]", &["a list is not an object"]);
    check("{}", &["version: is missing", "rules: is missing"]);
    check(
        &format!("{{\"version\": {}}}", "[".repeat(10_000)),
        &["not JSON: recursion limit exceeded at line 1 column 139"],
    );
    check(&" ".repeat((1 << 20) + 1), &["the policy is longer than 1 MiB"]);
    let rule =
        |i| format!(r#"{{"name": "{i}", "key": [], "quotas": [{{"limit": 1, "window": "1s"}}]}}"#);
    let rules = |n| (0..n).map(rule).collect::<Vec<_>>().join(",");
    let document = |n| format!(r#"{{"version": 1, "rules": [{}]}}"#, rules(n));
    let many = format!(r#"{{"version": 1, "rules": [{}0]}}"#, "0,".repeat(2000));
    let said = tollgate_language::compile(&many, Surface::Envoy).unwrap_err();
    assert_eq!(
        (said.0.len(), said.0[1000].to_string().as_str()),
        (1001, "there are more mistakes than are listed")
    );
    check(&document(1001), &["rules: has 1001 rules; use at most 1000"]);
    check(&document(1000), &[]);
}

#[test]
fn rules_and_tiers_are_counted_together() {
    const QUOTAS: &str = r#""quotas":[{"limit":1,"window":"1s"}]"#;
    let tiers = |n: usize| {
        let tier = |i: usize| format!(r#"{{"name":"{i}","when":{{}},{QUOTAS}}}"#);
        (0..n).map(tier).collect::<Vec<_>>().join(",")
    };
    let of = |rule: usize, n: usize| {
        format!(r#"{{"name":"{rule}","key":[],{QUOTAS},"tiers":[{}]}}"#, tiers(n))
    };
    let document = |last: usize| {
        let mut rules: Vec<_> = (0..16).map(|rule| of(rule, 1000)).collect();
        rules.push(of(16, last));
        format!(r#"{{"version":1,"rules":[{}]}}"#, rules.join(","))
    };
    check(&document(367), &[]);
    check(&document(368), &["rules: has 16385 rules and tiers in all; use at most 16384"]);
}

#[test]
fn lists_have_an_end() {
    let of = |n: usize, item: &str| vec![item; n].join(",");
    let quotas = r#""quotas": [{"limit": 1, "window": "1m"}]"#;
    let rule = |more: &str| format!(r#"{{"name": "a", "key": [], {quotas}{more}}}"#);
    let document =
        |top: &str, more: &str| format!(r#"{{"version": 1{top}, "rules": [{}]}}"#, rule(more));
    let exempt = |n| document(&format!(r#", "exempt": [{}]"#, of(n, r#"{"paths": ["/a"]}"#)), "");
    check(&exempt(1000), &[]);
    check(&exempt(1001), &["exempt: has 1001 items; use at most 1000"]);
    let tiers = |n| {
        let tier = |i| format!(r#"{{"name": "{i}", "when": {{}}, {quotas}}}"#);
        let tiers: Vec<_> = (0..n).map(tier).collect();
        document("", &format!(r#", "tiers": [{}]"#, tiers.join(",")))
    };
    check(&tiers(1000), &[]);
    check(&tiers(1001), &["rules[0].tiers: has 1001 items; use at most 1000"]);
    let when = |name: &str, n, item: &str| {
        document("", &format!(r#", "when": {{"{name}": [{}]}}"#, of(n, item)))
    };
    check(&when("client_cidrs", 10_000, r#""::""#), &[]);
    check(
        &when("client_cidrs", 10_001, r#""::""#),
        &["rules[0].when.client_cidrs: has 10001 items; use at most 10000"],
    );
    let names: Vec<_> = (0..10_001).map(|i| format!(r#""x{i}": "*""#)).collect();
    check(
        &document("", &format!(r#", "when": {{"headers": {{{}}}}}"#, names.join(","))),
        &["rules[0].when.headers: has 10001 items; use at most 10000"],
    );
    let fifty = format!(r#""{}""#, "/a".repeat(50));
    check(&when("paths", 2000, &fifty), &[]);
    check(
        &when("paths", 2001, &fifty),
        &["rules: has 100050 path segments in all; use at most 100000"],
    );
}

#[test]
fn a_key_takes_no_more_than_its_surface_can_store() {
    let logs = |n| {
        let quota = |i| {
            format!(
                r#"{{"name": "{i}", "algorithm": "sliding-log", "limit": 1024, "window": "1h"}}"#
            )
        };
        let quotas: Vec<_> = (0..n).map(quota).collect();
        format!(r#"{{"name": "r{n}", "key": [], "quotas": [{}]}}"#, quotas.join(","))
    };
    let of = |sizes: &[usize]| {
        let rules: Vec<_> = sizes.iter().map(|n| logs(*n)).collect();
        format!(r#"{{"version": 1, "rules": [{}]}}"#, rules.join(","))
    };
    check(&of(&[16, 15, 14, 13]), &[]);
    let most = of(&[16, 15, 14, 13, 12]);
    let taken = tollgate_language::compile(&most, Surface::Worker).unwrap().groups()[0].value_len();
    let message = format!(
        "rules: the quotas of one key take {taken} bytes together, more than 524280; use another algorithm than sliding-log or fewer quotas"
    );
    check(&most, &[&message]);
    for surface in [Surface::Worker, Surface::Library, Surface::Server] {
        assert!(tollgate_language::compile(&most, surface).is_ok(), "{surface:?}");
    }
}

#[test]
fn numbers_are_digits() {
    check(
        r#"{"version": 1, "exempt": [{"client_cidrs": ["10.0.0.0/+8"]}], "rules": [{"name": "a", "key": [],
            "charge": {"response_status": ["+401", "0401", "+5xx", "6xx", "099", "600", "5xx", "100", "599"]},
            "quotas": [{"limit": 1, "window": "1m"}]}]}"#,
        &[
            r#"exempt[0].client_cidrs[0]: "10.0.0.0/+8" is not a network: use an address, "/" and the number of its leading bits"#,
            r#"rules[0].charge.response_status[0]: "+401" is not a status; use "401" or a class such as "5xx""#,
            r#"rules[0].charge.response_status[1]: "0401" is not a status; use "401" or a class such as "5xx""#,
            r#"rules[0].charge.response_status[2]: "+5xx" is not a status; use "401" or a class such as "5xx""#,
            r#"rules[0].charge.response_status[3]: "6xx" is not a status; use "401" or a class such as "5xx""#,
            r#"rules[0].charge.response_status[4]: "099" is not a status; use "401" or a class such as "5xx""#,
            r#"rules[0].charge.response_status[5]: "600" is not a status; use "401" or a class such as "5xx""#,
        ],
    );
}

#[test]
fn a_default_cost_is_within_its_bound() {
    let document = |default: u32| {
        format!(
            r#"{{"version": 1, "rules": [{{"name": "a", "key": [], "cost": {{"header": "x", "default": {default}, "max": 10}},
            "quotas": [{{"limit": 100, "window": "1m"}}]}}]}}"#
        )
    };
    check(&document(11), &["rules[0].cost.default: 11 is more than max, 10"]);
    check(&document(10), &[]);
}

#[test]
fn a_key_that_cannot_verify_is_refused() {
    check(
        r#"{"version": 1, "jwt": {"keys": [
            {"kty": "oct", "alg": "none", "k": "x"},
            {"kty": "oct", "alg": "HS256"},
            {"kty": "oct", "alg": "RS256", "n": "x"},
            {"kty": "EC", "alg": "ES256", "crv": "P-384", "x": "x", "y": "x"},
            {"kty": "oct", "alg": "HS256", "k": "bm90IGEgc2VjcmV0LCBqdXN0IGFuIGV4YW1wbGUhISE"},
            {"kty": "RSA", "alg": "RS256", "n": "x", "e": "x"},
            {"kty": "EC", "alg": "ES256", "crv": "P-256", "x": "x", "y": "x"}]}, "rules": []}"#,
        &[
            r#"jwt.keys[0].alg: "none" is not verified; use HS256, RS256 or ES256"#,
            "jwt.keys[1].k: is missing; HS256 needs it",
            r#"jwt.keys[2].kty: "oct" does not sign with RS256; use "RSA""#,
            "jwt.keys[2].e: is missing; RS256 needs it",
            r#"jwt.keys[3].crv: "P-384" is not verified; use "P-256""#,
        ],
    );
}
