//! Names and identities: unique names in a document, indices within a policy, and identities in
//! stored values.
//!
//! Invariant: when a name occurs twice, the problem is at the later one. An identity in a stored
//! value is the same in every version of this code: a different one would restart every count.

use alloc::format;
use alloc::string::String;

use tollgate_http_syntax::address::Prefixes;
use tollgate_policy::SlabMap;
use tollgate_policy::spec::{
    About, KeyForm, KeyPart, KeySource, Name, Of, Scope, items, stable_hash,
};
use tollgate_storage::marked;

use crate::json::place::At;

/// The identities of a policy's records.
#[derive(Default)]
pub(super) struct RecordIds {
    taken: SlabMap<u32, ()>,
    /// How many identities after the first one are taken, by the hash that the first one is made of
    /// and the version: many rules with one name do not search all earlier ones each.
    skipped: SlabMap<u64, u16>,
}

impl RecordIds {
    /// An identity derived from `hash` that no other record has, in any layout up to `version`.
    pub(super) fn free(&mut self, hash: u64, version: u8) -> u32 {
        let first = u32::try_from(hash & u64::from(u32::MAX)).unwrap_or(0).max(1);
        let search = u64::from(first).wrapping_shl(8) | u64::from(version);
        let mut skipped = self.skipped.get(&search).copied().unwrap_or(0);
        let after = |skipped: u16| match first.checked_add(skipped.into()) {
            Some(id) => id,
            None => u32::from(skipped).saturating_sub(u32::MAX.saturating_sub(first)),
        };
        let is_taken = |id: u32| (1..=version).any(|v| self.taken.get(&marked(id, v)).is_some());
        while is_taken(after(skipped)) && skipped < u16::MAX {
            skipped = skipped.saturating_add(1);
        }
        self.skipped.insert(search, skipped);
        let record_id = after(skipped);
        for version in 1..=version {
            self.taken.insert_new(marked(record_id, version), ());
        }
        record_id
    }
}

/// The identity of a key definition: a change of the key that clients are counted by starts a new
/// table.
pub(super) fn key_identity(key: &[KeyPart], rule: &str, prefixes: Prefixes, scope: Scope) -> u64 {
    let mut text = String::new();
    for item in items(key) {
        if item.is_choice() {
            text.push_str(&format!("any_of {}\n", item.parts.len()));
        }
        item.parts.iter().for_each(|part| push_part(part, prefixes, &mut text));
    }
    // A node's own count and that of the fleet are never the same, whatever their key is.
    text.push_str(match scope {
        Scope::Local => "",
        Scope::Fleet => "scope fleet\n",
        Scope::Share(_) => "scope share\n",
    });
    // The captures of a path belong to the rule, so such a rule never shares its table.
    let is_private = key.iter().any(|it| matches!(it.source, KeySource::PathParam(_)));
    let owner = if is_private { rule } else { "" };
    stable_hash(&[text.as_bytes(), owner.as_bytes()])
}

/// Appends the identity of one part.
fn push_part(part: &KeyPart, prefixes: Prefixes, text: &mut String) {
    let About { name: kind, of, .. } = part.source.about();
    let mut push = |name: &str| text.push_str(&format!("{kind} {}:{name}\n", name.len()));
    match of {
        Of::Only => push(""),
        Of::Name(name) => push(name),
        Of::Path(path) => path.0.iter().for_each(|name| push(name)),
    }
    if let Some(repeated) = part.source.unusual() {
        text.push_str(&format!("{repeated:?}\n"));
    }
    if let Some(regex) = &part.regex {
        text.push_str(&format!("match {}:{}\n", regex.text().len(), regex.text()));
    }
    if part.form == KeyForm::Lower {
        text.push_str("lower\n");
    }
    if let Some(prefixes) = part.prefixes(prefixes) {
        text.push_str(&format!("/{}/{}\n", prefixes.ipv4, prefixes.ipv6));
    }
}

/// An index of a rule, a group or a set: `MAX_RULES` and `MAX_SETS` keep it far below 65,536.
pub(super) fn small(i: usize) -> u16 {
    let index = u16::try_from(i);
    debug_assert!(index.is_ok(), "the limits on rules and tiers keep below 65,536: {i}");
    index.unwrap_or(u16::MAX)
}

/// The problem with a name that an earlier rule, tier or quota has.
pub(super) const TWICE: &str = "is the name of an earlier one; names are unique";

/// Notes every name that occurred before.
pub(super) fn unique<'a>(names: impl Iterator<Item = (usize, &'a Name)>, at: &At<'_>) {
    let mut seen = SlabMap::new();
    for (i, name) in names {
        if !seen.insert_new(&name.0, ()) {
            at.item(i).field("name").problem(TWICE.into());
        }
    }
}
