//! The fingerprints of a document: of every byte, and the public one of its content.
//!
//! Invariant: the public one does not depend on the keys of tokens (`jwt.keys`): a reader who has
//! all the rest of a document cannot find them by trying. Two documents with the same content have
//! the same public fingerprint, however they are written.

use core::hash::Hasher;

use siphasher::sip::SipHasher13;

use crate::json::node::Node;
use tollgate_policy::spec::stable_hash;

/// The [fingerprint](tollgate_policy::Policy::fingerprint) of a policy that is compiled from this
/// exact `document`, byte for byte: a policy with another one was compiled from another text.
#[must_use]
pub fn fingerprint(document: &str) -> u64 {
    stable_hash(&[document.as_bytes()])
}

/// The public fingerprint of `document`. It never changes between versions.
pub(crate) fn public_fingerprint(document: &Node) -> u64 {
    let mut hasher = SipHasher13::new_with_keys(0, 1);
    write(document, Some(&["jwt", "keys"]), &mut hasher);
    hasher.finish()
}

/// Writes `node` without the value at the `secret` path in it.
fn write(node: &Node, secret: Option<&[&str]>, hasher: &mut SipHasher13) {
    if secret.is_some_and(<[_]>::is_empty) {
        return hasher.write_u8(0);
    }
    match node {
        Node::Null => hasher.write_u8(1),
        Node::Bool(value) => hasher.write(&[2, u8::from(*value)]),
        Node::Integer(number) => {
            hasher.write_u8(3);
            hasher.write_u64(*number);
        }
        Node::OtherNumber(digits) => write_text(4, digits, hasher),
        Node::Text(text) => write_text(5, text, hasher),
        Node::List(items) => {
            write_len(6, items.len(), hasher);
            items.iter().for_each(|item| write(item, None, hasher));
        }
        Node::Object(members) => {
            write_len(7, members.len(), hasher);
            for (name, value) in members {
                write_text(5, name, hasher);
                let split = secret.and_then(<[_]>::split_first);
                let within = split.filter(|(first, _)| *first == name).map(|(_, rest)| rest);
                write(value, within, hasher);
            }
        }
    }
}

fn write_text(kind: u8, text: &str, hasher: &mut SipHasher13) {
    write_len(kind, text.len(), hasher);
    hasher.write(text.as_bytes());
}

fn write_len(kind: u8, len: usize, hasher: &mut SipHasher13) {
    hasher.write_u8(kind);
    hasher.write_u64(u64::try_from(len).unwrap_or(u64::MAX));
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeSet;
    use alloc::format;

    use super::*;
    use crate::compile::compile;
    use tollgate_policy::Surface;

    #[test]
    fn keys_of_tokens_are_no_part_of_it_and_all_else_is() {
        let of = |document: &str| public_fingerprint(&Node::parse(document).unwrap());
        let document = r#"{"version": 1, "jwt": {"keys": [{"k": "c2VjcmV0"}], "issuer": "i"}, "rules": [{"name": "a", "keys": ["x"]}, null, true, 1.5, 7]}"#;
        let other = document.replace("c2VjcmV0", "b3RoZXI");
        assert_eq!(of(document), of(&other));
        assert_eq!(of(document), of(&document.replace(r#"[{"k": "c2VjcmV0"}]"#, "7")));
        assert_eq!(of(document), of(&document.replace(' ', "")));
        assert_eq!(of(document), 16_177_523_085_948_179_907, "as in every version");
        for (from, to) in [
            ("\"i\"", "\"j\""),
            ("\"x\"", "\"y\""),
            ("\"a\"", "\"b\""),
            ("true", "false"),
            ("7]", "8]"),
            ("null, ", ""),
            ("issuer", "issued"),
            ("\"jwt\"", "\"jwu\""),
        ] {
            let changed = document.replacen(from, to, 1);
            assert!(changed != document && of(&changed) != of(document), "{from}");
        }
    }

    #[test]
    fn a_policy_has_the_fingerprint_of_its_document_and_of_no_other() {
        let document = r#"{"version": 1, "rules": [{"name": "r", "key": [], "quotas": [{"limit": 10, "window": "1s"}]}]}"#;
        let policy = compile(document, Surface::Worker).unwrap();
        assert_eq!(policy.fingerprint(), fingerprint(document));
        for other in [&document.replace("10", "11"), &document.replace(' ', ""), ""] {
            assert_ne!(policy.fingerprint(), fingerprint(other), "{other}");
        }
    }

    // Guards: a public report that lets a reader who knows the policy try keys of tokens.
    #[test]
    fn with_a_secret_it_is_of_every_byte_and_nobody_else_computes_it() {
        let policy = |key: &str| {
            let document = format!(
                r#"{{"version": 1, "jwt": {{"keys": [{{"kty": "oct", "alg": "HS256", "k": "{key}"}}]}},
                    "rules": [{{"name": "r", "key": [{{"jwt_claim": "sub"}}], "quotas": [{{"limit": 1, "window": "1s"}}]}}]}}"#
            );
            compile(&document, Surface::Worker).unwrap_or_else(|e| panic!("{e}"))
        };
        let [key, other] = [
            "c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2U",
            "b3RoZXJvdGhlcm90aGVyb3RoZXJvdGhlcm90aGVyb3Q",
        ];
        let public = |key: &str, secret: Option<u8>| {
            let mut policy = policy(key);
            if let Some(secret) = secret {
                policy.key_public_fingerprint([secret; 16]);
            }
            policy.public_fingerprint()
        };
        assert_ne!(policy(key).fingerprint(), policy(other).fingerprint());
        assert_eq!(public(key, None), public(other, None));
        let all = [(key, None), (key, Some(0)), (other, Some(0)), (key, Some(1)), (other, Some(1))];
        let seen: BTreeSet<u64> = all.iter().map(|(key, secret)| public(key, *secret)).collect();
        assert_eq!(seen.len(), all.len());
        assert!(!seen.contains(&policy(key).fingerprint()));
    }
}
