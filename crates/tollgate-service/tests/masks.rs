//! The keys of tokens: nothing of them leaves, however they are written, and none is lost.

use crate::common::*;
use proptest::prelude::*;
use serde_json::{Value, json};
use tollgate_service::{ApiResponse, MemoryLimits};

const SECRET: &str = "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LXNlY3JldA";
const OTHER: &str = "b3RoZXItb3RoZXItb3RoZXItb3RoZXItb3RoZXItb3RoZXI";

fn key(kid: &str, k: &str) -> String {
    format!(r#"{{"kty": "oct", "alg": "HS256", "kid": "{kid}", "k": "{k}"}}"#)
}

fn document(keys: &str) -> String {
    format!(
        r#"{{"version": 1, "jwt": {{"keys": [{keys}]}},
  "rules": [{{"name": "org", "key": [{{"jwt_claim": "org"}}], "quotas": [{{"limit": 10, "window": "1m"}}]}}]}}"#
    )
}

fn start(keys: &str) -> Deployment {
    let it = Deployment::new();
    let put = it.put(&document(keys));
    assert_eq!(put.status, 200, "{put:?}");
    discreet(&put);
    it
}

/// Nothing of a key is in `answer`.
fn discreet(answer: &ApiResponse) {
    let all = format!("{} {}", answer.fields.lines(), answer.body);
    for part in [SECRET, OTHER, &SECRET[..12], &OTHER[..12], "HS256", "oct"] {
        assert!(!all.contains(part), "{part}: {all}");
    }
}

/// All readable data.
fn read_all(it: &Deployment) -> String {
    let mut all = String::new();
    for path in [
        "admin/policy",
        "admin/policy/history",
        "admin/policy/versions/1",
        "admin/policy/versions/2",
        "admin/policy/versions/3",
    ] {
        let answer = it.ask(&Ask::new("GET", path));
        discreet(&answer);
        all += &answer.body;
    }
    all
}

/// The text in the store.
fn stored(it: &Deployment) -> String {
    use tollgate_service::{Deployed, PolicyCall, PolicyReply, StoreCall, StoreReply};
    let deployed = Deployed { fingerprint: 1, text: None };
    let call = PolicyCall::Read { deployed, known: None, seen: None, now_ms: 0 };
    match it.store.borrow_mut().answer(&StoreCall::Policy(call)) {
        Some(StoreReply::Policy(PolicyReply::Current(current))) => current.text.expect("written"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn keys_are_masked_by_name_and_kept_by_name() {
    let none = format!(r#"{{"kty": "oct", "alg": "HS256", "k": "{OTHER}"}}"#);
    let it = start(&format!("{}, {none}", key("2026", SECRET)));
    let masked = document(r#"{"kid":"2026","masked":true}, {"index":1,"masked":true}"#);
    let read = it.ask(&Ask::new("GET", "admin/policy"));
    assert_eq!(read.body.as_ref(), masked, "all else is byte for byte");
    read_all(&it);
    // In another order, with one written in full again, and one left out.
    let anew = key("2027", OTHER);
    let put = it.put(&document(&format!(r#"{anew}, {{"masked": true, "\u006bid": "2026"}}"#)));
    assert_eq!(put.status, 200, "{put:?}");
    discreet(&put);
    let changes: Value = serde_json::from_str(&put.body).unwrap();
    let keys = json!({"added": [{"kid": "2027"}], "removed": [{"index": 1}], "changed": []});
    assert_eq!(changes["changes"]["jwt_keys"], keys);
    assert_eq!(stored(&it), document(&format!("{anew}, {}", key("2026", SECRET))));
    // Roll-back brings a key back that was removed since.
    let ask = Ask::new("POST", "admin/policy/rollback").with("if-match", "*").json("{\"to\":2}");
    let back = it.ask(&ask);
    discreet(&back);
    assert_eq!(stored(&it), document(&format!("{}, {none}", key("2026", SECRET))));
    read_all(&it);
}

#[test]
fn a_masked_key_is_one_that_is_there() {
    let it = start(&format!("{}, {}", key("a", SECRET), key("b", OTHER)));
    let before = stored(&it);
    for (keys, path) in [
        (r#"{"kid":"c","masked":true}"#, "jwt.keys[0]"),
        (r#"{"index":0,"masked":true}"#, "jwt.keys[0]"), // it has a name
        (r#"{"index":9,"masked":true}"#, "jwt.keys[0]"),
        (r#"{"index":-1,"masked":true}"#, "jwt.keys[0]"),
        (r#"{"masked":true}"#, "jwt.keys[0]"),
        (r#"{"kid":"a","masked":false}"#, "jwt.keys[0]"),
        (r#"{"kid":"a","masked":"true"}"#, "jwt.keys[0]"),
        (r#"{"kid":"a","masked":true,"k":""}"#, "jwt.keys[0]"),
        (r#"{"kid":"a","kid":"b","masked":true}"#, "jwt.keys[0]"),
        (r#"{"kid":"a","masked":true}, {"kid":"a","masked":true}"#, "jwt.keys[1]"),
        (r#"{"kid":"a","masked":true}, {"kid":7,"masked":true}"#, "jwt.keys[1]"),
    ] {
        let answer = it.put(&document(keys));
        assert_eq!(answer.status, 422, "{keys} {answer:?}");
        let problem: Value = serde_json::from_str(&answer.body).unwrap();
        assert_eq!(problem["errors"][0]["path"], path, "{keys}");
        discreet(&answer);
    }
    assert_eq!(stored(&it), before, "nothing was changed");
    // Two of one name are named by their places.
    let it = start(&format!("{}, {}", key("a", SECRET), key("a", OTHER)));
    let read = it.ask(&Ask::new("GET", "admin/policy"));
    assert!(
        read.body.contains(r#"[{"index":0,"masked":true}, {"index":1,"masked":true}]"#),
        "{}",
        read.body
    );
}

#[test]
fn an_answer_to_a_wrong_document_has_nothing_of_its_keys() {
    let it = start(&key("a", SECRET));
    let broken = [
        document(&format!("{{\"kty\": \"{SECRET}\"}}")),
        document(&format!("\"{SECRET}\"")),
        document(&format!("{{\"kty\": \"oct\", \"alg\": \"{SECRET}\", \"k\": \"{OTHER}\"}}")),
        document(&format!("{{\"{SECRET}\": 1, \"kty\": 1}}")),
        document(&format!("[\"{SECRET}\"]")),
        format!(r#"{{"version": 1, "jwt": {{"keys": "{SECRET}"}}, "rules": []}}"#),
        format!(r#"{{"version": 1, "jwt": "{SECRET}", "rules": []}}"#),
        format!(r#"{{"version": 1, "\u006awt": {{"k\u0065ys": ["{SECRET}"]}}, "rules": []}}"#),
        format!(
            r#"{{"version": 1, "jwt": {{"keys": ["{SECRET}"]}}, "jwt": {{"keys": ["{OTHER}"]}}, "rules": []}}"#
        ),
        // Kept by name, and then found to be wrong.
        document(r#"{"kid":"a","masked":true}"#).replace("\"version\": 1", "\"version\": 7"),
        document(r#"{"kid":"a","masked":true}"#).replace("\"keys\"", "\"x\": 1, \"keys\""),
        document(r#"{"kid":"a","masked":true}"#).replacen("\"jwt\"", "\"jwt\": 1, \"jwt\"", 1),
        document(r#"{"kid":"a","masked":true}"#).replacen("\"keys\"", "\"keys\": [], \"keys\"", 1),
    ];
    for document in broken {
        for query in ["", "?dry_run"] {
            let ask = Ask::new("PUT", &format!("admin/policy{query}")).with("if-match", "*");
            let answer = it.ask(&ask.json(document.clone()));
            assert_eq!(answer.status, 422, "{document}\n{answer:?}");
            discreet(&answer);
        }
    }
    // A file with the same mistakes, which was not written at run time.
    let file = format!(r#"{{"version": 1, "jwt": {{"keys": ["{SECRET}"]}}, "rules": []}}"#);
    discreet(
        &Deployment::with(&file, MemoryLimits::default()).ask(&Ask::new("GET", "admin/policy")),
    );
}

/// `text` as a JSON string, some of its characters escaped.
fn spelled(text: &'static str) -> impl Strategy<Value = String> {
    let piece = |c: char| {
        prop_oneof![
            Just(c.to_string()),
            Just(format!("\\u{:04x}", u32::from(c))),
            Just(format!("\\u{:04X}", u32::from(c)))
        ]
    };
    let pieces: Vec<_> = text.chars().map(piece).collect();
    pieces.prop_map(|pieces| format!("\"{}\"", pieces.concat()))
}

fn space() -> impl Strategy<Value = &'static str> {
    prop_oneof![Just(""), Just(" "), Just("\n\t"), Just("\r\n ")]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    // However names and white space are written, the keys are found; the restored document equals
    // the original.
    #[test]
    fn masks_hold_however_it_is_written(
        jwt in spelled("jwt"), keys in spelled("keys"), kid in spelled("kid"), k in spelled(SECRET),
        s in space(), t in space(), mark in any::<bool>(), kids in any::<bool>(),
    ) {
        let name = if kids { format!("{kid}:{s}\"x\\\"y\",") } else { String::new() };
        let item = format!("{{{t}{name}\"kty\"{s}:\"oct\",\"alg\":\"HS256\",\"k\":{k}{t}}}");
        let mark = if mark { "\u{feff}" } else { "" };
        let text = format!(
            "{mark}{s}{{\"version\":1,{t}{jwt}{s}:{t}{{{keys}:{s}[{t}{item}{s}]{t}}}{s},\"rules\":[{{\"name\":\"org\",\
             \"key\":[{{\"jwt_claim\":\"org\"}}],\"quotas\":[{{\"limit\":10,\"window\":\"1m\"}}]}}]}}{t}"
        );
        let it = Deployment::new();
        let put = it.put(&text);
        prop_assert_eq!(put.status, 200, "{} {}", text, put.body);
        discreet(&put);
        let masked = it.ask(&Ask::new("GET", "admin/policy"));
        discreet(&masked);
        prop_assert!(!masked.body.contains("\\u") || !masked.body.contains(&k));
        let again = it.put(&masked.body);
        prop_assert_eq!(again.status, 200);
        prop_assert_eq!(stored(&it), text.trim_start_matches('\u{feff}'));
    }

    // Whatever the document contains, a response to a document with the secret among the keys has
    // none of it.
    #[test]
    fn no_answer_to_any_document_has_a_key(
        around in "[\\[\\]{}:,\" a-z0-9\\\\]{0,12}", behind in "[\\[\\]{}:,\" a-z0-9\\\\]{0,12}", query in any::<bool>(),
    ) {
        let it = start(&key("a", SECRET));
        let text = document(&format!("{around}\"{OTHER}\"{behind}, {{\"kid\":\"a\",\"masked\":true}}"));
        let query = if query { "?dry_run" } else { "" };
        let ask = Ask::new("PUT", &format!("admin/policy{query}")).with("if-match", "*").json(text);
        discreet(&it.ask(&ask));
        discreet(&it.ask(&Ask::new("GET", "admin/policy")));
    }

    // Nothing panics, and no request without a token gets data, whatever is sent.
    #[test]
    fn any_request_has_an_answer(
        method in "GET|HEAD|PUT|DELETE|POST|\\PC{0,4}",
        path in "admin/(policy|tenants|keys|explain)(/[a-z0-9%.]{0,8}){0,3}(\\?[a-z_=&%0-9]{0,12})?|\\PC{0,24}",
        fields in proptest::collection::vec(("if-match|if-none-match|content-type|authorization|accept", "(\\*|W/|\"[a-z0-9-]{0,6}\"|, |\\PC){0,4}|application/json"), 0..5),
        body in prop_oneof![any::<Vec<u8>>(), "\\PC{0,40}".prop_map(String::into_bytes), Just(document("").into_bytes())],
        has_token in any::<bool>(),
    ) {
        let it = start(&key("a", SECRET));
        let before = stored(&it);
        let mut ask = Ask::new(&method, &path).json(body);
        ask.fields.extend(fields);
        if !has_token {
            ask = ask.with("authorization", "");
        }
        let answer = it.ask(&ask);
        prop_assert!((200..=507).contains(&answer.status));
        discreet(&answer);
        if !has_token {
            prop_assert!(answer.status >= 400 || path == "openapi.json", "{:?}", answer);
            prop_assert_eq!(stored(&it), before);
        }
    }
}
