//! A partition key, part by part: for readers who may see the client's identity.
//!
//! Invariant: the output contains the key's own values, so it is for people who inspect their own
//! requests; a surface stores and logs hashes.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::pipeline::partition::Partition;
use crate::policy::compiled::Policy;
use crate::request::key::{counted, parts};
use crate::spec::key_item::{KeyItem, KeyPart, items};

/// One part of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyPartInWords {
    /// The kind of part: `client address`, `header x-api-key`. Where the key has the first of
    /// several parts, the one that is counted.
    pub part: String,
    /// It is one of several parts that the value could be of.
    pub is_choice: bool,
    /// Its value; `None` when the request does not have it.
    pub value: Option<KeyValue>,
}

/// The value of one part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyValue {
    /// A client: the first address of its network, and the number of leading bits that are one
    /// client.
    Network(IpAddr, u32),
    /// Any other value, as it is compared.
    Text(Vec<u8>),
}

impl Partition<'_> {
    /// Its key in parts, in the order of the document; empty when all requests share one count.
    #[must_use]
    pub fn key_in_words(&self, policy: &Policy) -> Vec<KeyPartInWords> {
        let group = policy.groups().get(self.group());
        let key = group.map_or(&[][..], |group| &group.spec.key);
        let in_words = |(item, value): (KeyItem<'_>, Option<&[u8]>)| {
            let counted = value.and_then(|value| counted(item, value));
            KeyPartInWords {
                part: counted.map_or_else(|| item.to_string(), |(part, _)| part.to_string()),
                is_choice: item.is_choice(),
                value: counted.map(|(part, bytes)| value_of(part, bytes, policy)),
            }
        };
        items(key).zip(parts(self.key())).map(in_words).collect()
    }
}

fn value_of(part: &KeyPart, bytes: &[u8], policy: &Policy) -> KeyValue {
    if let Some(prefixes) = part.prefixes(policy.settings.spec.prefixes) {
        if let Ok(v4) = <[u8; 4]>::try_from(bytes) {
            return KeyValue::Network(Ipv4Addr::from(v4).into(), prefixes.ipv4);
        }
        if let Ok(v6) = <[u8; 16]>::try_from(bytes) {
            return KeyValue::Network(Ipv6Addr::from(v6).into(), prefixes.ipv6);
        }
    }
    KeyValue::Text(bytes.into())
}
