//! A partition key, part by part: for readers who may see the client's identity.
//!
//! Invariant: the output contains the key's own values, so it is for people who inspect their own
//! requests; a surface stores and logs hashes.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::pipeline::partition::Partition;
use crate::policy::compiled::Policy;
use crate::request::key::parts;
use crate::spec::key::KeyPart;

/// One part of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyPartInWords {
    /// The kind of part: `client address`, `header x-api-key`.
    pub part: String,
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
        let in_words = |(part, value): (&KeyPart, Option<&[u8]>)| KeyPartInWords {
            part: part.to_string(),
            value: value.map(|bytes| value_of(part, bytes, policy)),
        };
        key.iter().zip(parts(self.key())).map(in_words).collect()
    }
}

fn value_of(part: &KeyPart, bytes: &[u8], policy: &Policy) -> KeyValue {
    let prefixes = policy.settings.spec.prefixes;
    if *part == KeyPart::ClientIp {
        if let Ok(v4) = <[u8; 4]>::try_from(bytes) {
            return KeyValue::Network(Ipv4Addr::from(v4).into(), prefixes.ipv4);
        }
        if let Ok(v6) = <[u8; 16]>::try_from(bytes) {
            return KeyValue::Network(Ipv6Addr::from(v6).into(), prefixes.ipv6);
        }
    }
    KeyValue::Text(bytes.into())
}
