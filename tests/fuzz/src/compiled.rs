//! Any bytes as a compiled policy, or as a compiled plugin with a fleet or several policies: they
//! are rejected, or are a policy that decides any request.
//!
//! A corpus file contains the part between the shape and the checksum of a compiled policy, the
//! surface first. The body adds the rest, so that the fuzzer gets past the checksum. Invariant
//! checked: a policy that can be read is written again as the same bytes, and decides every request
//! by the laws of `policy.rs`.

use std::hash::Hasher;

use siphasher::sip::SipHasher13;
use tollgate_policy::{Plugin, Policy, Surface};

use super::policy::decided;
use super::request::Request;
use super::response::Response;

/// The bytes before the surface: the kind, the version, and the shape.
const BEFORE: usize = 18;

const REQUESTS: [&[u8]; 3] = [
    b"GET / 192.0.2.1",
    b"POST /a/b/c?q=1 2001:db8::1\nhost: a.example.com\nx-key: k\nx-cost: 3\ncookie: c=1",
    b"get /login/%2F/.. 192.0.2.1\nhost: a.example.com\nhost: b\nx-key: a\nx-key: b",
];

/// Plugins that are compiled differently from a policy alone.
const PLUGINS: [&str; 2] = [
    r#"{"fleet": {"cluster": "c", "secret": "0123456789abcdef"}, "policy": {"version": 1, "rules": []}}"#,
    r#"{"policies": {"a": {"version": 1, "rules": []}}, "policy": {"version": 1, "rules": []}}"#,
];

/// The response to each of them.
const RESPONSE: &[u8] =
    b"content-type: application/json\nx-tokens: 7\n:bytes: 4096\n:duration: 250\n\n\
    {\"usage\": {\"in\": 5, \"out\": 3}}";

/// Reads the bytes unchanged, and as the body of a compiled policy and of compiled plugins.
pub fn check(bytes: &[u8]) {
    for plugin in PLUGINS {
        check_plugin(&sealed(compiled(plugin, Surface::Envoy), bytes));
    }
    let none = compiled(r#"{"version": 1, "rules": []}"#, Surface::Worker);
    for bytes in [bytes, &sealed(none, bytes)] {
        check_plugin(bytes);
        for surface in Surface::ALL {
            if let Ok(policy) = Policy::read_compiled(bytes, surface) {
                let mut again = Vec::new();
                policy.write_compiled(&mut again);
                assert!(again == bytes, "it is written otherwise");
                answered(&policy);
            }
        }
    }
}

fn check_plugin(bytes: &[u8]) {
    let Ok(plugin) = Plugin::read_compiled(bytes, Surface::Envoy) else { return };
    let mut again = Vec::new();
    plugin.write_compiled(&mut again);
    // The text form is also accepted.
    assert!(again == bytes || !bytes.starts_with(b"\0"), "it is written otherwise");
    let named = plugin.named.iter().map(|named| &named.policy);
    for policy in named.chain([&plugin.policy]) {
        answered(policy);
    }
}

fn answered(policy: &Policy) {
    let response = Response::read(RESPONSE);
    REQUESTS.iter().for_each(|request| decided(policy, &Request::read(request), &response));
}

/// The part of a policy for a corpus file.
#[allow(dead_code)] // used only by the replay
pub fn body(policy: &Policy) -> Vec<u8> {
    let mut bytes = Vec::new();
    policy.write_compiled(&mut bytes);
    bytes[BEFORE..bytes.len() - 8].to_vec()
}

fn compiled(document: &str, surface: Surface) -> Vec<u8> {
    let mut bytes = Vec::new();
    tollgate_language::compile_plugin(document, surface)
        .expect("a plugin")
        .write_compiled(&mut bytes);
    bytes
}

/// `like` with its body replaced by `body`.
fn sealed(like: Vec<u8>, body: &[u8]) -> Vec<u8> {
    let mut bytes = like;
    bytes.truncate(BEFORE);
    bytes.extend_from_slice(body);
    let mut hasher = SipHasher13::new_with_keys(0, 2);
    hasher.write(&bytes);
    bytes.extend(hasher.finish().to_le_bytes());
    bytes
}
