//! Entries that may hold for a request, by the values that it has.
//!
//! Invariant: a fact is only fetched when an entry is looked up by it.

use crate::facts::Facts;
use crate::policy::by_value::{By, ByValue};
use crate::request::key::parts;
use crate::request::lazy::Request;
use tollgate_http_syntax::address::Prefixes;

impl<F: Facts> Request<'_, F> {
    /// Calls `each` with lists of entries, each in order. Together they contain every entry that
    /// may hold or is unclear, except those that are always evaluated. `key` is that of the rule
    /// whose tiers they are; for rules and exemptions it is empty.
    #[inline(never)] // few policies have enough entries of a kind to be looked up
    pub(crate) fn look_up(&self, by: &ByValue, key: &[u8], each: &mut dyn FnMut(&[u16])) {
        for kind in &by.kinds {
            match &kind.by {
                By::Header(name) => {
                    if let Some(value) = self.facts.header(&name.0) {
                        kind.each_of_header(&value, each);
                    }
                }
                By::Network(bits) => {
                    if let Some(client) = self.client() {
                        let prefixes = Prefixes { ipv4: *bits, ipv6: *bits };
                        prefixes.group(client, |value| each(kind.get(value)));
                    }
                }
                By::Key => parts(key).flatten().for_each(|value| each(kind.get(value))),
            }
        }
    }
}
