//! The policy over HTTP: putting it in force, its reports, and its history.

use crate::common::*;
use serde_json::{Value, json};
use tollgate_service::{ApiResponse, MemoryLimits};

fn read(answer: &ApiResponse) -> Value {
    serde_json::from_str(&answer.body).unwrap_or_else(|_| panic!("JSON: {answer:?}"))
}

fn roll_back(it: &Deployment, to: u64, query: &str) -> ApiResponse {
    let ask =
        Ask::new("POST", &format!("admin/policy/rollback{query}")).with("if-match", &it.tag());
    it.ask(&ask.json(format!("{{\"to\":{to}}}")))
}

fn in_force(it: &Deployment) -> (String, String, String) {
    let answer = it.ask(&Ask::new("GET", "admin/policy"));
    assert_eq!(answer.status, 200);
    let field = |name| answer.fields.get(name).unwrap_or_default().to_owned();
    let about = (field("tollgate-policy-version"), field("tollgate-policy-source"));
    (about.0, about.1, answer.body.into_owned())
}

fn is(it: &Deployment, version: &str, source: &str, text: &str) {
    assert_eq!(in_force(it), (version.into(), source.into(), text.into()));
}

#[test]
fn a_policy_is_put_rolled_back_and_given_back() {
    let mut it = Deployment::new();
    is(&it, "1", "deployed", DEPLOYED);
    let put = it.put(&policy(20));
    let expected = json!({"version": 2, "dry_run": false, "changes": {
        "rules": {"added": [], "removed": [], "changed": [{"name": "each", "members": ["quotas"]}]},
        "settings": [], "jwt_keys": {"added": [], "removed": [], "changed": []},
        "quotas": [{"rule": "each", "tier": null, "quota": "q",
            "before": {"algorithm": "gcra", "limit": 10, "window_ms": 60000, "burst": 10, "strict": false, "weighted": false},
            "after": {"algorithm": "gcra", "limit": 20, "window_ms": 60000, "burst": 20, "strict": false, "weighted": false},
            "counts": "kept"}],
        "more": 0}, "warnings": []});
    assert_eq!((put.status, read(&put)), (200, expected));
    assert_eq!(put.fields.get("etag"), Some(it.tag().as_str()));
    is(&it, "2", "written", &policy(20));
    // The same document again is not a change.
    assert_eq!(read(&it.put(&policy(20)))["version"], 2);
    is(&it, "2", "written", &policy(20));
    // Another file is deployed: the written policy stays in force.
    (it.file, it.fingerprint) = (policy(7), 2);
    is(&it, "2", "written", &policy(20));
    it.now_ms += 1;
    assert_eq!(read(&roll_back(&it, 1, ""))["version"], 3);
    is(&it, "3", "written", DEPLOYED);
    let delete = Ask::new("DELETE", "admin/policy").with("if-match", &it.tag());
    let deleted = it.ask(&delete);
    assert_eq!((deleted.status, &read(&deleted)["version"]), (200, &json!(4)));
    is(&it, "4", "deployed", &policy(7));
    let again = it.ask(&delete.with("if-match", "*"));
    assert_eq!(again.status, 409, "{again:?}");
    // Now a deployment counts again.
    (it.file, it.fingerprint) = (policy(8), 3);
    is(&it, "5", "deployed", &policy(8));
    let kinds: Vec<Value> = read(&it.ask(&Ask::new("GET", "admin/policy/history")))["versions"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|v| {
            json!([
                v["version"],
                v["previous"],
                v["kind"],
                v["to"],
                v["source"],
                v["at_ms"],
                v["token"]
            ])
        })
        .collect();
    let t = 1_700_000_000_000_u64;
    assert_eq!(
        json!(kinds),
        json!([
            [5, 4, "deploy", null, "deployed", t + 1, null],
            [4, 3, "delete", null, "deployed", t + 1, "admin"],
            [3, 2, "rollback", 1, "written", t + 1, "admin"],
            [2, 1, "put", null, "written", t, "admin"],
            [1, 0, "deploy", null, "deployed", t, null],
        ])
    );
}

// Guards: a tier that is removed in the belief that a dry run had checked which entries name it.
#[test]
fn a_dry_run_says_that_it_looks_at_no_entries_of_tenants() {
    let it = Deployment::new();
    let with = |tenant: &str| {
        let rule = r#"{"name": "each", "key": ["client_ip"], "quotas": [{"name": "q", "limit": 20, "window": "1m"}]}"#;
        format!(r#"{{"version": 1, {tenant} "rules": [{rule}]}}"#)
    };
    let warned = |target: &str, body: &str| {
        let answer = it.ask(&Ask::new("PUT", target).with("if-match", "*").json(body));
        assert_eq!(answer.status, 200, "{}", answer.body);
        let answer = read(&answer);
        let warnings = answer["warnings"].as_array().expect("a list").clone();
        let of_tenants = warnings.into_iter().filter(|it| it["path"] == "tenant");
        of_tenants.map(|it| it["detail"].as_str().expect("a text").to_owned()).collect::<Vec<_>>()
    };
    let (dry, plain, tenants) = ("admin/policy?dry_run", with(""), with(r#""tenant": "host","#));
    let is_of = |found: &[String], what: &str| {
        found.len() == 1
            && found[0].starts_with("entries of tenants are not checked")
            && found[0].contains(what)
    };
    assert_eq!(warned(dry, &plain), [""; 0]);
    assert!(is_of(&warned(dry, &tenants), "without_effect"));
    assert_eq!(warned("admin/policy", &tenants), [""; 0], "what is done is done");
    assert!(is_of(&warned(dry, &tenants), "without_effect"));
    assert!(is_of(&warned(dry, &plain), "all of them stay"));
}

#[test]
fn a_dry_run_says_what_would_change_and_changes_nothing() {
    let it = Deployment::new();
    it.put(&policy(20));
    let after = r#"{"version": 1, "on_failure": "deny", "rules": [
        {"name": "new", "key": [], "quotas": [{"limit": 5, "window": "1s"}]},
        {"name": "each", "key": ["client_ip", "method"], "quotas": [{"name": "q", "limit": 20, "window": "1m"}]}]}"#;
    let tag = it.tag();
    let ask = Ask::new("PUT", "admin/policy?dry_run").with("if-match", &tag).json(after);
    let answer = it.ask(&ask);
    let document = read(&answer);
    assert_eq!((&document["version"], &document["dry_run"]), (&json!(2), &json!(true)));
    assert_eq!(answer.fields.get("etag"), Some(tag.as_str()));
    let changes = &document["changes"];
    assert_eq!(changes["rules"]["added"], json!(["new"]));
    assert_eq!(changes["rules"]["changed"], json!([{"name": "each", "members": ["key"]}]));
    assert_eq!(changes["settings"], json!(["on_failure"]));
    // The quota is the same, but counted by another key: every client starts again from zero.
    let counts: Vec<Value> = changes["quotas"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|q| json!([q["rule"], q["counts"], q["before"]["limit"], q["after"]["limit"]]))
        .collect();
    assert_eq!(json!(counts), json!([["each", "fresh", 20, 20], ["new", "fresh", null, 5]]));
    let back = roll_back(&it, 1, "?dry_run=true");
    assert_eq!((back.status, &read(&back)["dry_run"]), (200, &json!(true)));
    let delete = Ask::new("DELETE", "admin/policy?dry_run=1").with("if-match", "*");
    assert_eq!(it.ask(&delete).status, 200);
    let same = Ask::new("PUT", "admin/policy?dry_run").with("if-match", &tag).json(policy(20));
    assert_eq!(read(&it.ask(&same))["dry_run"], true);
    // Without the precondition it would not happen, and with a bad policy neither.
    assert_eq!(it.ask(&ask.clone().with("if-match", "\"x\"")).status, 412);
    assert_eq!(it.ask(&ask.json("{}")).status, 422);
    assert_eq!(it.tag(), tag);
    // White space changes only the text.
    let spaced = policy(20).replace(": ", " :\n");
    let changes = read(&it.put(&spaced))["changes"].clone();
    assert_eq!(changes["rules"]["changed"], json!([]));
    is(&it, "3", "written", &spaced);
}

#[test]
fn who_did_it_is_bounded_and_on_one_line() {
    let it = Deployment::new();
    for (name, expected) in [
        ("ada@example.com", json!("ada@example.com")),
        ("  ada  ", json!("ada")),
        ("a\u{202e}b\u{0}c\td", json!("a\u{fffd}b\u{fffd}c\u{fffd}d")),
        ("<img src=x onerror=alert(1)>", json!("<img src=x onerror=alert(1)>")), // plain text
        ("", Value::Null),
        ("   ", Value::Null),
    ] {
        let ask = Ask::new("PUT", "admin/policy").with("if-match", "*");
        let limit = 20 + u32::try_from(*it.calls.borrow()).unwrap();
        let ask = ask.with("cf-access-authenticated-user-email", name).json(policy(limit));
        assert_eq!(it.ask(&ask).status, 200);
        let history = read(&it.ask(&Ask::new("GET", "admin/policy/history?limit=1")));
        assert_eq!(history["versions"][0]["who"], expected);
        assert_eq!(history["versions"][0]["token"], "admin");
        assert_eq!(history["versions"][0]["summary"]["changed"], json!(["each"]));
    }
    let ask = Ask::new("PUT", "admin/policy").with("if-match", "*").json(policy(9));
    assert_eq!(
        it.ask(&ask.with("cf-access-authenticated-user-email", &"ä".repeat(9999))).status,
        200
    );
    let history = read(&it.ask(&Ask::new("GET", "admin/policy/history?limit=1")));
    assert_eq!(history["versions"][0]["who"], "ä".repeat(128));
}

#[test]
fn the_history_is_bounded_and_comes_in_pages() {
    let limits = MemoryLimits { versions: 12, text_bytes: 5 * DEPLOYED.len(), tenants: 1 };
    let it = Deployment::with(DEPLOYED, limits);
    for limit in 10..40 {
        assert_eq!(it.put(&policy(limit)).status, 200);
    }
    let (mut before, mut seen) = (String::new(), Vec::new());
    loop {
        let page =
            read(&it.ask(&Ask::new("GET", &format!("admin/policy/history?limit=5{before}"))));
        let versions = page["versions"].as_array().expect("a list").clone();
        seen.extend(
            versions.iter().map(|v| (v["version"].as_u64().unwrap(), v["is_kept"] == true)),
        );
        let Some(next) = page["next_before"].as_u64() else { break };
        assert_eq!(versions.len(), 5);
        before = format!("&before={next}");
    }
    let numbers: Vec<u64> = seen.iter().map(|(n, _)| *n).collect();
    assert_eq!(numbers, (20..=31).rev().collect::<Vec<_>>());
    assert_eq!(seen.iter().take_while(|(_, kept)| *kept).count(), 5);
    assert_eq!(seen.iter().filter(|(_, kept)| *kept).count(), 5, "the newest");
    assert_eq!(it.ask(&Ask::new("GET", "admin/policy/versions/27")).status, 200);
    for gone in [26, 19, 1] {
        assert_eq!(it.ask(&Ask::new("GET", &format!("admin/policy/versions/{gone}"))).status, 404);
        assert_eq!(roll_back(&it, gone, "").status, 404);
    }
    // The policy in force is kept even if it alone is too much.
    let limits = MemoryLimits { versions: 1, text_bytes: 1, tenants: 1 };
    let it = Deployment::with(DEPLOYED, limits);
    it.put(&policy(20));
    is(&it, "2", "written", &policy(20));
}

#[test]
fn a_file_that_is_no_policy_is_replaced_and_not_shown() {
    for file in ["", "no JSON", "{\"version\": 1, \"rules\": [], \"jwks\": \"s3cret\"}", "[]"] {
        let it = Deployment::with(file, MemoryLimits::default());
        let answer = it.ask(&Ask::new("GET", "admin/policy"));
        assert_eq!(answer.status, 500, "{file}");
        assert!(!answer.body.contains("s3cret"), "{answer:?}");
        let version = it.ask(&Ask::new("GET", "admin/policy/versions/1"));
        assert_eq!(version.status, 500, "{file}");
        assert!(!version.body.contains("s3cret"), "{version:?}");
        let tag = answer.fields.get("etag").expect("a tag").to_owned();
        let put = Ask::new("PUT", "admin/policy").with("if-match", &tag).json(policy(20));
        assert_eq!(it.ask(&put).status, 200);
        is(&it, "2", "written", &policy(20));
        // And no client goes back to it.
        let delete = Ask::new("DELETE", "admin/policy").with("if-match", "*");
        assert!(matches!(it.ask(&delete).status, 422), "{file}");
        is(&it, "2", "written", &policy(20));
    }
}

#[test]
fn a_store_that_was_set_back_numbers_above_what_counts_have_seen() {
    use tollgate_service::{
        Current, Deployed, MemoryStore, PolicyCall, PolicyReply, StoreCall, StoreReply,
    };
    let mut store = MemoryStore::default();
    let mut current = |text: Option<&str>, seen| {
        let deployed = Deployed { fingerprint: 9, text: text.map(str::to_owned) };
        let call = PolicyCall::Read { deployed, known: None, seen, now_ms: 0 };
        match store.answer(&StoreCall::Policy(call)) {
            Some(StoreReply::Policy(PolicyReply::Current(Current {
                version, generation, ..
            }))) => Some((version, generation)),
            Some(StoreReply::Policy(PolicyReply::SendText)) => None,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(current(None, None), None);
    assert_eq!(current(Some(DEPLOYED), None), Some((1, 1)));
    assert_eq!(current(None, Some(1)), Some((1, 1)));
    assert_eq!(current(None, Some(40)), None);
    assert_eq!(current(Some(DEPLOYED), Some(40)), Some((41, 41)));
    assert_eq!(current(None, Some(40)), Some((41, 41)));
    // A number that was never a version does not use up the numbers.
    assert_eq!(current(None, Some(u64::MAX)), Some((41, 41)));
    assert_eq!(current(None, Some(41 + 1_000_001)), Some((41, 41)));
}

// Guards: a policy in YAML that is rejected without a hint how to convert it.
#[test]
fn yaml_is_refused_by_name_where_it_is_not_read() {
    let it = Deployment::new();
    let hint = "; YAML is not read here; `tollgate compile --json` converts it to JSON";
    for (body, is_yaml) in
        [("version: 1\nrules: []\n", true), ("\u{feff} # a\n", true), ("{", false)]
    {
        let refused = it.put(body);
        let detail = read(&refused)["detail"].as_str().expect("a text").to_owned();
        assert!(refused.status == 400 && detail.starts_with("the body is not JSON: "), "{detail}");
        assert_eq!(detail.ends_with(hint), is_yaml, "{detail}");
    }
}
