//! Keys and clients as text.
//!
//! Invariant: with `--private` these are keyed hashes only. Otherwise a text of the log is
//! shortened and its bytes that are not UTF-8 are replaced. The renderer makes it safe for a
//! terminal or a page.

use std::hash::Hasher as _;
use std::net::IpAddr;

use siphasher::sip::SipHasher13;
use tollgate_policy::explain::{KeyPartInWords, KeyValue};
use tollgate_policy::{Partition, Policy};

use crate::replay::names::Names;

/// Characters of one value that are shown.
const SHOWN: usize = 80;

/// How keys and clients are shown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Label {
    pub(crate) is_private: bool,
}

impl Label {
    /// The key; `name` is the client's host name if the address represents one.
    pub(crate) fn key(
        self,
        policy: &Policy,
        partition: Option<Partition<'_>>,
        hash: u64,
        name: Option<&[u8]>,
    ) -> String {
        if self.is_private {
            return hidden(hash);
        }
        let parts = partition.map(|partition| partition.key_in_words(policy)).unwrap_or_default();
        match parts.as_slice() {
            [] => "all requests".to_owned(),
            [KeyPartInWords { value: Some(value), is_choice: false, .. }] => shown(value, name),
            parts => {
                let in_words = |part: &KeyPartInWords| match &part.value {
                    Some(value) => format!("{} {}", part.part, shown(value, name)),
                    None => format!("no {}", part.part),
                };
                parts.iter().map(in_words).collect::<Vec<_>>().join(", ")
            }
        }
    }

    /// The client.
    pub(crate) fn client(self, client: IpAddr, hash: u64, name: Option<&[u8]>) -> String {
        match name {
            _ if self.is_private => hidden(hash),
            Some(name) if Names::is_stand_in(client) => text(name),
            _ => client.to_string(),
        }
    }

    /// The method and target of a request; empty with `--private`, as a target may identify the
    /// client.
    pub(crate) fn request(self, method: &[u8], target: &[u8]) -> String {
        if self.is_private {
            return String::new();
        }
        format!("{} {}", text(method), text(target))
    }
}

/// A line that could not be parsed, hidden because any part of it may be a key.
pub(crate) fn hidden_line(secret: &[u8; 16], line: &str) -> String {
    let mut hasher = SipHasher13::new_with_key(secret);
    hasher.write(line.as_bytes());
    format!("line {:016x}", hasher.finish())
}

/// The text in place of a hidden key.
pub(crate) fn hidden(hash: u64) -> String {
    format!("key {hash:016x}")
}

fn shown(value: &KeyValue, name: Option<&[u8]>) -> String {
    match value {
        KeyValue::Network(address, _) if Names::is_stand_in(*address) => {
            name.map_or_else(|| address.to_string(), text)
        }
        KeyValue::Network(address, bits) => {
            let all = if address.is_ipv4() { 32 } else { 128 };
            if *bits == all { address.to_string() } else { format!("{address}/{bits}") }
        }
        KeyValue::Text(bytes) => text(bytes),
    }
}

fn text(bytes: &[u8]) -> String {
    // A character has at most four bytes: nothing that is shown is cut off here.
    let near = bytes.get(..SHOWN.saturating_mul(4).saturating_add(4)).unwrap_or(bytes);
    let text = String::from_utf8_lossy(near);
    let mut shown: String = text.chars().take(SHOWN).collect();
    if shown.len() < text.len() {
        shown.push_str("...");
    }
    shown
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects)]
mod tests {
    use super::*;

    #[test]
    fn long_and_broken_texts_are_shortened_and_replaced() {
        assert_eq!(text(b"a\xff"), "a\u{fffd}");
        assert_eq!(text(&[b'a'; 80]), "a".repeat(80));
        assert_eq!(text(&[b'a'; 100_000]), format!("{}...", "a".repeat(80)));
        assert_eq!(text("é".repeat(81).as_bytes()), format!("{}...", "é".repeat(80)));
    }

    #[test]
    fn what_is_private_is_a_hash() {
        let label = Label { is_private: true };
        let client = "192.0.2.1".parse().unwrap();
        assert_eq!(label.client(client, 0xab, Some(b"host")), "key 00000000000000ab");
        assert_eq!(label.request(b"GET", b"/?token=secret"), "");
        let open = Label { is_private: false };
        assert_eq!(open.client(client, 0xab, Some(b"host")), "192.0.2.1");
        assert_eq!(open.client("e000::".parse().unwrap(), 1, Some(b"host")), "host");
    }
}
