//! Reads a tenant's entry.
//!
//! Invariant: an entry is read the same way under every policy; under a policy that does not have
//! one of its rules or tiers, that part has no effect, and is reported as such.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::RefCell;

use crate::compile::quotas::quotas;
use crate::document::tenant::EntryDoc;
use crate::json::node::{Node, whole};
use crate::json::place::{At, ProblemList, read_document};
use crate::json::reader::FromNode;
use crate::json::suggest::nearest;
use tollgate_policy::spec::{MAX_TENANT_ENTRY, Problems, TenantEntry, quoted_text};
use tollgate_policy::{Policy, QuotaSet, Rule, Tenant};

/// Reads an entry on its own, as it is kept in a store (the policy may have changed since it was
/// written): `{"tier": "gold"}`, or `{"quotas": {"rule": [...]}}`, perhaps with `priority`,
/// `expires` and `note`.
///
/// # Errors
/// Every mistake at once, each with its place.
///
/// ```
/// let entry = tollgate_language::tenant_entry(br#"{"tier": 1, "expires": "soon"}"#);
/// assert_eq!(entry.unwrap_err().to_string(), "\
/// tier: 1 is not a string
/// expires: \"soon\" is not a time; use UTC to the second, such as \"2027-01-31T00:00:00Z\"");
/// ```
pub fn tenant_entry(json: &[u8]) -> Result<TenantEntry, Problems> {
    read_for(json, None)
}

/// Reads an entry that is about to be stored under `policy`; rules and tiers that the policy does
/// not have are mistakes, too.
///
/// # Errors
/// Every mistake at once, each with its place.
pub fn tenant_entry_for(policy: &Policy, json: &[u8]) -> Result<TenantEntry, Problems> {
    read_for(json, Some(policy))
}

/// The parts of `entry` without effect under `policy`: rules and tiers that it does not have.
#[must_use]
pub fn without_effect(policy: &Policy, entry: &TenantEntry) -> Problems {
    let noted = RefCell::new(ProblemList::default());
    note_unknown(entry, policy, &At::root(&noted));
    noted.into_inner().in_order(&Node::Null)
}

fn read_for(json: &[u8], policy: Option<&Policy>) -> Result<TenantEntry, Problems> {
    if json.len() > MAX_TENANT_ENTRY {
        return Err(whole("the entry is longer than 16 KiB".into()));
    }
    let node = Node::parse_bytes(json)?;
    read_document(&node, |root| {
        let doc = EntryDoc::read(&node, root)?;
        if doc.tier.is_none() && doc.quotas.is_none() && root.problem_count() == 0 {
            root.problem("has no effect; give it \"tier\" or \"quotas\"".into());
        }
        let entry = entry(&doc, root);
        if let Some(policy) = policy {
            note_unknown(&entry, policy, root);
        }
        Some(entry)
    })
}

fn entry(doc: &EntryDoc, root: &At<'_>) -> TenantEntry {
    let at = root.field("quotas");
    let docs = doc.quotas.iter().flat_map(|quotas| &quotas.0);
    let of_rules =
        docs.map(|(rule, docs)| (rule.clone(), quotas(docs, rule, 1, &at.user_field(rule))));
    TenantEntry {
        tier: doc.tier.as_ref().map(|tier| tier.0.clone()),
        quotas: of_rules.collect(),
        priority: doc.priority.map_or(0, |priority| priority.0),
        expires_at: doc.expires.map(|expires| expires.0),
        note: doc.note.as_ref().map(|note| note.0.clone()),
    }
}

fn note_unknown(entry: &TenantEntry, policy: &Policy, root: &At<'_>) {
    if policy.tenants().is_none() {
        root.problem(
            "has no effect: the policy does not identify tenants; give the policy \"tenant\""
                .into(),
        );
    }
    let tiers: Vec<&str> = policy.quota_sets().iter().filter_map(QuotaSet::tier).collect();
    if let Some(tier) = &entry.tier
        && !tiers.contains(&tier.as_str())
    {
        root.field("tier").problem(unknown("tier", tier, &tiers));
    }
    let at = root.field("quotas");
    for (name, quotas) in &entry.quotas {
        let at = at.user_field(name);
        if let Some(rule) = policy.rules().iter().find(|rule| rule.name() == name) {
            Tenant::quotas_for(policy, rule, quotas, |(i, field, words)| {
                at.item(i).field(field).problem(words);
            });
        } else {
            let names: Vec<&str> = policy.rules().iter().map(Rule::name).collect();
            at.problem(unknown("rule", name, &names));
        }
    }
}

/// The problem with a name that the policy does not have. A policy may have a thousand names, so
/// they are not listed.
fn unknown(what: &str, name: &str, known: &[&str]) -> String {
    let near = nearest(name, known).map(|near| format!("; did you mean {}?", quoted_text(near)));
    format!("the policy has no {what} {}{}", quoted_text(name), near.unwrap_or_default())
}
