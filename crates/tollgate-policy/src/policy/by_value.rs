//! Entries by a value of a request: of a header, of its client's network, or of its key. Used for
//! rules, exemptions and tiers.
//!
//! Invariant: every entry that may match a request, or is unclear for it, is always evaluated or is
//! found. The entry itself decides whether it matches. An entry is stored under one of its
//! conditions. Requests only look values up, they never add any.

use alloc::vec::Vec;

use hashbrown::HashMap;

use crate::spec::conditions::{Condition, Conditions};
use crate::spec::scalar::HeaderName;
use crate::spec::wanted::Matcher;
use tollgate_http_syntax::address::{Cidr, Prefixes};
use tollgate_http_syntax::header::is_credentials;
use tollgate_http_syntax::sort::sort_numbers;
use tollgate_http_syntax::values::{elements, trimmed};

/// A kind with at most this many entries is always evaluated, which takes less time than a look-up.
const FEW: usize = 2;

/// Indices of entries.
#[derive(Clone, Debug, Default)]
pub(crate) struct ByValue {
    /// The entries that are always evaluated, in order.
    pub(crate) always: Vec<u16>,
    /// The entries that are looked up.
    pub(crate) kinds: Vec<Kind>,
}

/// The value by which entries are looked up.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum By {
    /// Values of this header.
    Header(HeaderName),
    /// This number of leading bits of the client's address.
    Network(u32),
    /// A part of the key: text or the bytes of an address.
    Key,
}

/// The entries that are looked up by the same kind of value.
#[derive(Clone, Debug)]
pub(crate) struct Kind {
    pub(crate) by: By,
    values: HashMap<Vec<u8>, Vec<u16>>,
    /// Bytes of the longest value: a longer one, which a client may send, is not hashed.
    longest: usize,
    /// All of them, in order.
    entries: Vec<u16>,
    /// The entries that are malformed for a header whose values differ, in order.
    refusing: Vec<u16>,
}

impl ByValue {
    /// Adds an entry with these conditions after all earlier entries. `refuses` returns true when
    /// the entry treats this header as malformed if its values differ.
    pub(crate) fn insert(
        &mut self,
        when: Option<&Conditions>,
        entry: u16,
        refuses: &dyn Fn(&str) -> bool,
    ) {
        for condition in when.into_iter().flat_map(|when| &when.0) {
            match condition {
                Condition::Header(name, wanted) if !is_credentials(&name.0) => {
                    // A header with nothing but commas has an empty value.
                    let is_value = |matcher: &Matcher| matches!(matcher, Matcher::Exact(value) if !value.is_empty());
                    if wanted.iter().all(is_value) {
                        return self.add_to(By::Header(name.clone()), &|kind| {
                            wanted.iter().for_each(|matcher| kind.insert(matcher.bytes(), entry));
                            kind.refusing.extend(refuses(&name.0).then_some(entry));
                        });
                    }
                }
                Condition::ClientCidrs(list) => {
                    return list.iter().map(Cidr::parts).for_each(|(address, bits)| {
                        let prefixes = Prefixes { ipv4: bits, ipv6: bits };
                        self.add_to(By::Network(bits), &|kind| {
                            prefixes.group(address, |value| kind.insert(value, entry));
                        });
                    });
                }
                Condition::Methods(..)
                | Condition::Hosts(..)
                | Condition::Paths(..)
                | Condition::Header(..)
                | Condition::Query(..)
                | Condition::Routes(..)
                | Condition::Countries(..)
                | Condition::Asns(..)
                | Condition::Domain(..)
                | Condition::Descriptor(..)
                | Condition::Entries(..)
                | Condition::Beside(..) => {}
            }
        }
        self.always.push(entry);
    }

    /// Adds an entry for keys that have this value in a part.
    pub(crate) fn insert_key(&mut self, value: &[u8], entry: u16) {
        self.add_to(By::Key, &|kind| kind.insert(value, entry));
    }

    /// Completes the look-up: the entries of kinds with few entries become always evaluated.
    pub(crate) fn complete(&mut self) {
        let always = &mut self.always;
        self.kinds.retain(|kind| {
            let has_many = kind.entries.len() > FEW;
            if !has_many {
                always.extend(&kind.entries);
            }
            has_many
        });
        in_order(always);
    }

    fn add_to(&mut self, by: By, add: &dyn Fn(&mut Kind)) {
        if !self.kinds.iter().any(|kind| kind.by == by) {
            let (by, values) = (by.clone(), HashMap::new());
            let (entries, refusing) = (Vec::new(), Vec::new());
            self.kinds.push(Kind { by, values, longest: 0, entries, refusing });
        }
        self.kinds.iter_mut().find(|kind| kind.by == by).into_iter().for_each(add);
    }
}

impl Kind {
    fn insert(&mut self, value: &[u8], entry: u16) {
        self.longest = self.longest.max(value.len());
        let of_value = self.values.entry(value.into()).or_default();
        for list in [of_value, &mut self.entries] {
            if list.last() != Some(&entry) {
                list.push(entry);
            }
        }
    }

    /// The entries for `value`, in order.
    pub(crate) fn get(&self, value: &[u8]) -> &[u16] {
        let found = (value.len() <= self.longest).then(|| self.values.get(value));
        found.flatten().map_or(&[], |entries| entries)
    }

    /// Calls `each` with the entries for a header with this `value`, for every way to read the
    /// header: in a few lists, each in order. A client may send many values; after as many look-ups
    /// as there are entries, `each` gets all entries, which costs less.
    pub(crate) fn each_of_header(&self, value: &[u8], each: &mut dyn FnMut(&[u16])) {
        let whole = trimmed(value);
        let (mut left, mut first, mut differ) = (self.entries.len(), None, false);
        each(self.get(whole));
        for element in elements(value).filter(|element| *element != whole) {
            differ |= *first.get_or_insert(element) != element;
            let entries = self.get(element);
            match left.checked_sub(entries.len().max(1)) {
                Some(fewer) => left = fewer,
                None => return each(&self.entries),
            }
            each(entries);
        }
        if differ {
            each(&self.refusing);
        }
    }
}

/// Sorts entries and removes duplicates.
#[inline]
pub(crate) fn in_order(entries: &mut Vec<u16>) {
    if entries.len() > 1 {
        sort_numbers(entries);
        entries.dedup();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Guards: a header of 16 KiB of commas that costs a look-up for each of its values.
    #[test]
    fn many_values_cost_no_more_than_all_entries() {
        let mut by_value = ByValue::default();
        for entry in 0..10 {
            let name = HeaderName("x-plan".into());
            by_value.add_to(By::Header(name), &|kind| kind.insert(&[b'a', entry], entry.into()));
        }
        let [kind] = &by_value.kinds[..] else { panic!("one kind: {by_value:?}") };
        let (mut lists, mut last) = (0, Vec::new());
        kind.each_of_header("x,y,".repeat(4_000).as_bytes(), &mut |entries| {
            lists += 1;
            last = entries.to_vec();
        });
        assert!(lists <= 12, "{lists}");
        assert_eq!(last, (0..10).collect::<Vec<_>>());
    }
}
