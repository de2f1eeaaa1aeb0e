//! The queries of `GET admin/keys` and `GET admin/usage`, in every spelling and malformed.
//!
//! Laws: a query names one rule, one tenant and one list of texts, however it is spelt, and the
//! store is asked for these and no others; different lists are different counts; and a query that
//! names nothing is answered in words, from memory that the longest target bounds.

use std::cell::RefCell;
use std::rc::Rc;

use serde_json::Value;
use tollgate_policy::{GivenKey, Surface};
use tollgate_service::{KeyCall, KeyReply, RuleKey, StoreCall, StoreReply, UsageReply};
use tollgate_test_support::Random;

use crate::common::*;

const ROUNDS: usize = if cfg!(debug_assertions) { 2_000 } else { 20_000 };

/// Texts that look alike in a query, in a list, or as bytes.
const TEXTS: [&str; 18] = [
    "a", "b", "ab", "", "a b", "a+b", "a%20b", "%61", "a&key=b", "a=b", "a;b", "a,b", "a\0b", "A",
    "\u{e4}", "a\u{308}", "#a", "../a",
];

/// `text` in one of its spellings: every byte as it is, if it may be, or as `%61`.
fn spelt(text: &str, random: &mut Random) -> String {
    let byte = |byte: u8| match byte {
        b' ' if random.chance(50) => "+".to_owned(),
        _ if byte.is_ascii_alphanumeric() && random.chance(80) => char::from(byte).to_string(),
        _ if random.chance(50) => format!("%{byte:02x}"),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(byte).collect()
}

/// A deployment whose calls of the store are kept.
fn deployment() -> (Deployment, Rc<RefCell<Vec<StoreCall>>>) {
    let calls = Rc::new(RefCell::new(Vec::new()));
    let (kept, mut it) = (Rc::clone(&calls), Deployment::new());
    it.others = Box::new(move |call| {
        kept.borrow_mut().push(call.clone());
        match call {
            StoreCall::Usage(_) => StoreReply::Usage(UsageReply::NoRule),
            _ => StoreReply::Keys(KeyReply::NoRule),
        }
    });
    (it, calls)
}

/// What a call is about.
fn named(call: &StoreCall) -> (&str, Vec<&str>, Option<&str>) {
    match call {
        StoreCall::Usage(it) => {
            (&it.rule, it.keys.iter().map(String::as_str).collect(), it.tenant.as_deref())
        }
        StoreCall::Keys(KeyCall::State(RuleKey { rule, key, tenant, .. })) => {
            (rule, key.iter().map(String::as_str).collect(), tenant.as_deref())
        }
        other => panic!("{other:?}"),
    }
}

// Guards: an operator who looks at one client and sees, or bills, another one.
#[test]
fn a_query_names_these_texts_and_no_others() {
    let mut random = Random::new(0x4e7);
    let (it, calls) = deployment();
    for _ in 0..ROUNDS {
        let path = *random.pick(&["admin/keys", "admin/usage"]);
        let rule = *random.pick(&TEXTS);
        let keys: Vec<&str> = (0..random.index(4)).map(|_| *random.pick(&TEXTS)).collect();
        let tenant = random.chance(30).then(|| *random.pick(&TEXTS));
        let mut parts = vec![format!("rule={}", spelt(rule, &mut random))];
        parts.extend(tenant.map(|it| format!("tenant={}", spelt(it, &mut random))));
        for key in &keys {
            // Anywhere, in their order.
            parts.push(format!("{}={}", spelt("key", &mut random), spelt(key, &mut random)));
        }
        if random.chance(50) {
            parts.rotate_left(1);
        }
        let answer = it.ask(&Ask::new("GET", &format!("{path}?{}", parts.join("&"))));
        let asked = calls.borrow_mut().pop();
        if rule.is_empty() || tenant == Some("") {
            assert_eq!((answer.status, asked), (400, None), "{parts:?}");
            continue;
        }
        let asked = asked.unwrap_or_else(|| panic!("{parts:?}: {answer:?}"));
        assert_eq!(named(&asked), (rule, keys, tenant), "{parts:?}");
    }
}

// Guards: two clients of one rule that share a count, because their parts are joined.
#[test]
fn different_lists_are_different_counts() {
    let document = r#"{"version": 1, "rules": [{"name": "each", "key": [{"header": "a"}, {"header": "b"}],
        "quotas": [{"limit": 1, "window": "1m"}]}]}"#;
    let policy = tollgate_language::compile(document, Surface::Server).unwrap();
    let mut seen = std::collections::BTreeMap::new();
    for one in TEXTS {
        for other in TEXTS {
            let Ok(key) = GivenKey::new(&policy, "each", &[one.to_owned(), other.to_owned()])
            else {
                continue;
            };
            let bytes = key.bytes().to_vec();
            assert_eq!(seen.insert(bytes, (one, other)), None, "{one:?} and {other:?}");
        }
    }
    assert!(seen.len() > 200, "{}", seen.len());
}

// Guards: a panic by a query that an operator's page made wrong, a mistake that is taken for
// another query, and a list that grows with what is sent.
#[test]
fn a_wrong_query_is_answered_in_words() {
    let mut random = Random::new(0xbad);
    let (it, calls) = deployment();
    let pieces = [
        "rule=",
        "rule",
        "key=",
        "key",
        "tenant=",
        "limit=2",
        "&",
        "&&",
        "=",
        "%",
        "%4",
        "%zz",
        "%00",
        "%ff",
        "%c3",
        "%E2%80%AE",
        "+",
        "a",
        "each",
        ";",
        "?",
        "#",
        "\u{e4}",
        "dry_run",
    ];
    let mut refused = 0;
    for _ in 0..ROUNDS {
        let many = *random.pick(&[3, 8, 2_000]);
        let query: String = (0..random.index(many)).map(|_| *random.pick(&pieces)).collect();
        let path = *random.pick(&["admin/keys", "admin/usage"]);
        let answer = it.ask(&Ask::new("GET", &format!("{path}?{query}")));
        let asked = calls.borrow_mut().drain(..).collect::<Vec<_>>();
        let read = asked.iter().map(|call| named(call).1.len()).max();
        assert!(read.unwrap_or(0) <= 1_024 && asked.len() <= 1, "{query}");
        if asked.is_empty() {
            refused += 1;
            assert!(matches!(answer.status, 400 | 404 | 414 | 422), "{query}: {answer:?}");
            let said: Value = serde_json::from_str(&answer.body).expect("JSON");
            assert!(said["detail"].as_str().is_some_and(|it| it.len() > 10), "{query}: {said}");
        }
        let is_shown = |it: char| !it.is_control() && it != '\u{202e}';
        assert!(answer.body.chars().all(is_shown) && answer.body.len() < 4_096, "{query}");
    }
    assert!(refused > ROUNDS / 2 && refused < ROUNDS, "{refused}");
}
