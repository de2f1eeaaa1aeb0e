//! From a tenant's entry to its quotas under one policy.
//!
//! Invariant: an entry is read the same way under every policy; under a policy that does not have
//! one of its rules or tiers, that part has no effect, and is reported as such.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::cell::RefCell;
use core::net::{Ipv4Addr, Ipv6Addr};

use tollgate_core::Timestamp;

use crate::compile::parts::{Holds, parts_of, with_holds};
use crate::compile::quotas::compiled_quotas;
use crate::document::key::KeyPart;
use crate::document::tenant::EntryDoc;
use crate::json::node::{Node, whole};
use crate::json::place::{At, Noted};
use crate::json::problem::Problems;
use crate::json::quote::quoted_text;
use crate::json::reader::FromNode;
use crate::json::suggest::nearest;
use crate::policy::compiled::Policy;
use crate::policy::group::{Group, QuotaSet};
use crate::policy::quota::CompiledQuota;
use crate::policy::records::RECORD_HEADER;
use crate::policy::tenant::{Tenant, TenantSet};
use crate::stable_hash::stable_hash;
use tollgate_http_syntax::authority::write_host;
use tollgate_http_syntax::readings::Paths;
use tollgate_http_syntax::sort::sort_by;
use tollgate_storage::marked;

/// The longest entry, in bytes: 16 KiB, so that a page of a hundred is small and an isolate may
/// keep thousands.
pub const MAX_TENANT_ENTRY: usize = 16 << 10;
/// The longest name of a tenant, in bytes of its identifier: as long as the longest header value
/// that most servers accept, and far above any name.
pub const MAX_TENANT_ID: usize = 1024;

/// A tenant's entry as written: `{"tier": "gold"}`, or `{"quotas": {"rule": [...]}}`, perhaps with
/// `priority`, `expires` and `note`.
#[derive(Clone, Debug)]
pub struct TenantEntry {
    tier: Option<String>,
    quotas: Vec<(String, Vec<CompiledQuota>)>,
    priority: u32,
    expires_at: Option<Timestamp>,
    note: Option<String>,
}

impl TenantEntry {
    /// Reads an entry on its own, as it is kept in a store: the policy may have changed since it
    /// was written.
    ///
    /// # Errors
    /// Every mistake at once, each with its place.
    ///
    /// ```
    /// let entry = tollgate_policy::TenantEntry::read(br#"{"tier": 1, "expires": "soon"}"#);
    /// assert_eq!(entry.unwrap_err().to_string(), "\
    /// tier: 1 is not a string
    /// expires: \"soon\" is not a time; use UTC to the second, such as \"2027-01-31T00:00:00Z\"");
    /// ```
    pub fn read(json: &[u8]) -> Result<Self, Problems> {
        Self::read_for(json, None)
    }

    fn read_for(json: &[u8], policy: Option<&Policy>) -> Result<Self, Problems> {
        if json.len() > MAX_TENANT_ENTRY {
            return Err(whole("the entry is longer than 16 KiB".into()));
        }
        let text = core::str::from_utf8(json);
        let node = Node::parse(text.map_err(|error| whole(format!("not JSON: {error}")))?)?;
        let noted = RefCell::new(Noted::default());
        let root = At::root(&noted);
        let entry = EntryDoc::read(&node, &root).map(|doc| {
            if doc.tier.is_none() && doc.quotas.is_none() && root.noted() == 0 {
                root.problem("says nothing; give it \"tier\" or \"quotas\"".into());
            }
            let entry = Self::new(&doc, &root);
            if let Some(policy) = policy {
                policy.note_unknown(&entry, &root);
            }
            entry
        });
        let problems = noted.into_inner().in_order(&node);
        match entry {
            Some(entry) if problems.0.is_empty() => Ok(entry),
            _ => Err(problems),
        }
    }

    fn new(doc: &EntryDoc, root: &At<'_>) -> Self {
        let at = root.field("quotas");
        let quotas = doc.quotas.iter().flat_map(|quotas| &quotas.0);
        let compiled = quotas
            .map(|(rule, docs)| (rule.clone(), compiled_quotas(docs, rule, 1, &at.own(rule))));
        Self {
            tier: doc.tier.as_ref().map(|tier| tier.0.clone()),
            quotas: compiled.collect(),
            priority: doc.priority.map_or(0, |priority| priority.0),
            expires_at: doc.expires.map(|expires| expires.0),
            note: doc.note.as_ref().map(|note| note.0.clone()),
        }
    }

    /// The note for people: one line, without controls, at most 256 characters. It is text,
    /// whatever it looks like.
    #[must_use]
    pub fn note(&self) -> Option<&str> {
        self.note.as_deref()
    }

    /// The tier whose quotas the tenant has in rules where it has no quotas of its own.
    #[must_use]
    pub fn tier(&self) -> Option<&str> {
        self.tier.as_deref()
    }

    /// The names of the rules in which the tenant has quotas of its own.
    pub fn rules(&self) -> impl Iterator<Item = &str> {
        self.quotas.iter().map(|(rule, _)| rule.as_str())
    }

    /// The time from which the entry has no effect.
    #[must_use]
    pub const fn expires_at(&self) -> Option<Timestamp> {
        self.expires_at
    }
}

impl Policy {
    /// Reads an entry that is about to be stored under this policy; rules and tiers that the policy
    /// does not have are mistakes, too.
    ///
    /// # Errors
    /// Every mistake at once, each with its place.
    pub fn read_tenant_entry(&self, json: &[u8]) -> Result<TenantEntry, Problems> {
        TenantEntry::read_for(json, Some(self))
    }

    /// The parts of `entry` without effect under this policy: rules and tiers that it does not
    /// have.
    #[must_use]
    pub fn without_effect(&self, entry: &TenantEntry) -> Problems {
        let noted = RefCell::new(Noted::default());
        self.note_unknown(entry, &At::root(&noted));
        noted.into_inner().in_order(&Node::Null)
    }

    fn note_unknown(&self, entry: &TenantEntry, root: &At<'_>) {
        if self.tenant.is_none() {
            root.problem(
                "has no effect: the policy does not say who a tenant is; give it \"tenant\"".into(),
            );
        }
        if let Some(tier) = &entry.tier
            && !self.sets.iter().any(|set| set.tier() == Some(tier))
        {
            let tiers: Vec<&str> = self.sets.iter().filter_map(QuotaSet::tier).collect();
            root.field("tier").problem(unknown("tier", tier, &tiers));
        }
        let at = root.field("quotas");
        for (rule, quotas) in &entry.quotas {
            let compiled = self.rule_named(rule).and_then(|i| self.rules.get(usize::from(i)));
            if let Some(compiled) = compiled {
                let at = at.own(rule);
                let problem = |i: usize, field: &'static str, words: String| {
                    at.item(i).field(field).problem(words);
                };
                let quotas = parts_of(quotas, compiled.nodes(), problem);
                with_holds(quotas, Holds::of(Some(&compiled.charging)), problem);
            } else {
                let rules: Vec<&str> = self.rules.iter().map(|rule| rule.name.as_str()).collect();
                at.own(rule).problem(unknown("rule", rule, &rules));
            }
        }
    }

    fn rule_named(&self, name: &str) -> Option<u16> {
        (0..).zip(&self.rules).find(|(_, rule)| rule.name == name).map(|(i, _)| i)
    }

    /// The entry of the tenant `id` ([`Policy::tenant_id`], [`Plan::tenant`](crate::Plan::tenant))
    /// under this policy. Parts that the policy does not know have no effect.
    #[must_use]
    pub fn tenant(&self, id: &[u8], entry: &TenantEntry) -> Tenant {
        let mut sets: Vec<QuotaSet> = Vec::new();
        let mut rules: Vec<(u16, TenantSet)> = Vec::new();
        for (rule, quotas) in &entry.quotas {
            if let Some(rule) = self.rule_named(rule)
                && let Some(set) = self.own_set(rule, quotas, &sets)
            {
                let index = u16::try_from(sets.len()).unwrap_or(u16::MAX);
                rules.push((rule, TenantSet::Own(index)));
                sets.push(set);
            }
        }
        let of_tier =
            (0..).zip(&self.sets).filter(|(_, set)| set.tier.is_some() && set.tier == entry.tier);
        for (index, set) in of_tier {
            if !rules.iter().any(|(rule, _)| *rule == set.rule) {
                rules.push((set.rule, TenantSet::Tier(index)));
            }
        }
        sort_by(&mut rules, |(one, _), (other, _)| one.cmp(other));
        Tenant {
            id: id.into(),
            policy: self.fingerprint,
            priority: entry.priority,
            expires_at: entry.expires_at,
            rules,
            sets,
        }
    }

    /// The tenant's own quotas for `rule`. Their record comes after those of the policy and of
    /// `earlier` sets of the same group.
    fn own_set(
        &self,
        rule: u16,
        quotas: &[CompiledQuota],
        earlier: &[QuotaSet],
    ) -> Option<QuotaSet> {
        let compiled = self.rules.get(usize::from(rule))?;
        let group = self.groups.get(usize::from(compiled.group))?;
        let mut is_good = true;
        let quotas = parts_of(quotas, compiled.nodes(), |_, _, _| is_good = false);
        let holds = Holds::of(Some(&compiled.charging));
        let quotas = with_holds(quotas, holds, |_, _, _| is_good = false);
        if !is_good {
            return None;
        }
        let identities: String = quotas.iter().map(CompiledQuota::identity).collect();
        let parts = [compiled.name.as_bytes(), b"", identities.as_bytes(), b"tenant"];
        let version = quotas.iter().map(|quota| quota.limiter.state_version()).max().unwrap_or(1);
        let beside = || self.sets_of(group).chain(earlier);
        let is_taken = |id: u32| {
            let is_of = |set: &QuotaSet, id: u32| (1..=set.version).any(|v| set.id_in(v) == id);
            beside().any(|set| (1..=version).any(|version| is_of(set, marked(id, version))))
        };
        let mut record_id =
            u32::try_from(stable_hash(&parts) & u64::from(u32::MAX)).unwrap_or(0).max(1);
        while is_taken(record_id) {
            record_id = record_id.checked_add(1).unwrap_or(1);
        }
        let in_group = |set: &&QuotaSet| {
            self.rules.get(set.rule()).is_some_and(|rule| rule.group == compiled.group)
        };
        let before: usize = earlier.iter().filter(in_group).map(QuotaSet::record_len).sum();
        let offset = group.value_len.checked_add(before)?.checked_add(RECORD_HEADER)?;
        let offset = (!group.is_sparse()).then_some(offset);
        let len = quotas.last().and_then(CompiledQuota::end)?;
        // Three names: neither a rule's own quotas nor a tier, whatever its name, can have these.
        let stable_id = stable_hash(&[compiled.name.as_bytes(), b"", b"tenant"]);
        Some(QuotaSet {
            rule,
            tier: None,
            of_tenant: true,
            stable_id,
            record_id,
            version,
            offset,
            len,
            quotas,
            fallback: None,
        })
    }

    fn sets_of<'a>(&'a self, group: &'a Group) -> impl Iterator<Item = &'a QuotaSet> {
        group.sets.iter().filter_map(|set| self.sets.get(usize::from(*set)))
    }

    /// The bytes that identify the tenant called `text`, as [`Plan::tenant`](crate::Plan::tenant)
    /// returns them for a request. `None` for a tenant that no request can have, and when the
    /// policy does not have tenants.
    #[must_use]
    pub fn tenant_id(&self, text: &str) -> Option<Vec<u8>> {
        let id = match self.tenant.as_ref()?.part {
            KeyPart::ClientIp => {
                let mut id = Vec::new();
                let address = text.parse().ok()?;
                self.settings.prefixes.group(address, |bytes| id.extend_from_slice(bytes));
                id
            }
            KeyPart::Method | KeyPart::Country | KeyPart::Asn => text.to_ascii_uppercase().into(),
            KeyPart::Host => {
                let mut id = Vec::new();
                write_host(text.as_bytes(), &mut id).ok()?;
                id
            }
            KeyPart::Path => self.normal_path(text)?,
            KeyPart::PathParam(_) => {
                let path = self.normal_path(&format!("/{text}"))?;
                path.strip_prefix(b"/")?.into()
            }
            KeyPart::Route | KeyPart::Header(..) | KeyPart::Cookie(..) => text.into(),
            KeyPart::Query(..) | KeyPart::JwtClaim(_) | KeyPart::Descriptor(_) => text.into(),
        };
        (!id.is_empty() && id.len() <= MAX_TENANT_ID).then_some(id)
    }

    /// The one spelling of the tenant called `text`, under which its entry is kept and listed:
    /// `SHOP.example` is `shop.example`, and an address is the first one of its network. `None` as
    /// for [`Policy::tenant_id`].
    #[must_use]
    pub fn tenant_name(&self, text: &str) -> Option<String> {
        let id = self.tenant_id(text)?;
        match self.tenant.as_ref()?.part {
            KeyPart::ClientIp => {
                let address = text.parse().ok()?;
                Some(self.settings.prefixes.network(address).to_string())
            }
            _ => String::from_utf8(id).ok(),
        }
    }

    /// The name ([`Policy::tenant_name`]) of the tenant of a request, from its
    /// [`Plan::tenant`](crate::Plan::tenant); `None` for a tenant that is not text: it cannot be
    /// named and so has no entry.
    #[must_use]
    pub fn name_of_tenant(&self, id: &[u8]) -> Option<String> {
        match self.tenant.as_ref()?.part {
            KeyPart::ClientIp => match id.len() {
                4 => Some(Ipv4Addr::from(<[u8; 4]>::try_from(id).ok()?).to_string()),
                _ => Some(Ipv6Addr::from(<[u8; 16]>::try_from(id).ok()?).to_string()),
            },
            _ => str::from_utf8(id).ok().map(ToString::to_string),
        }
    }

    /// The path `text` as a key contains it; `None` when a query begins in it.
    fn normal_path(&self, text: &str) -> Option<Vec<u8>> {
        let mut paths = Paths::default();
        let len = paths.read(text.as_bytes(), self.settings.escaped_slashes);
        (len == text.len()).then(|| paths.main().into())
    }
}

/// The problem with a name that the policy does not have. A policy may have a thousand names, so
/// they are not listed.
fn unknown(what: &str, name: &str, known: &[&str]) -> String {
    let near = nearest(name, known).map(|near| format!("; did you mean {}?", quoted_text(near)));
    format!("the policy has no {what} {}{}", quoted_text(name), near.unwrap_or_default())
}
