//! A compiled policy: its rules, their groups, and look-up.
//!
//! Invariant: a `Policy` exists only if its whole document was valid. Every index in it is in range
//! of its own lists. Only its secret and its version change after compilation.

use alloc::vec::Vec;
use core::hash::Hasher;

use siphasher::sip::SipHasher13;

use crate::policy::by_value::ByValue;
use crate::policy::deny::DenyRules;
use crate::policy::group::{Group, QuotaSet};
use crate::policy::index::Index;
use crate::policy::records::RECORD_HEADER;
use crate::policy::rule::Rule;
use crate::policy::settings::{Response, Settings};
use crate::policy::tenant::TenantKey;
use crate::spec::client_ip::ClientAddress;
use crate::spec::conditions::Conditions;
use crate::spec::deny::DenyRule;
use crate::spec::jwt::Jwt;
use crate::spec::key::KeySource;
use crate::spec::key_item::KeyPart;
use crate::spec::limits::Limits;
use crate::spec::policy::ResponseSpec;
use crate::spec::problem::Problems;
use crate::spec::surface::Surface;
use tollgate_http_syntax::address::Prefixes;
use tollgate_http_syntax::path::Pattern;
use tollgate_http_syntax::path::all;

/// A compiled policy: immutable, and the basis of every request's plan.
#[derive(Clone, Debug)]
pub struct Policy {
    pub(crate) rules: Vec<Rule>,
    pub(crate) groups: Vec<Group>,
    pub(crate) sets: Vec<QuotaSet>,
    pub(crate) exempt: Vec<Conditions>,
    pub(crate) exempt_by_value: ByValue,
    pub(crate) deny: DenyRules,
    pub(crate) index: Index,
    pub(crate) settings: Settings,
    pub(crate) response: Response,
    pub(crate) waiting: Limits,
    pub(crate) jwt: Option<Jwt>,
    /// The tenant key, if the policy has tenants.
    pub(crate) tenant: Option<TenantKey>,
    /// A quota of it denies everything, or has the limits of requests.
    pub(crate) is_special: bool,
    pub(crate) warnings: Problems,
    /// The surface it was compiled for. No decision depends on it.
    pub(crate) surface: Surface,
    pub(crate) fingerprint: u64,
    /// Fingerprint of the document's content without the keys of tokens.
    pub(crate) public_fingerprint: u64,
    /// Replaces `public_fingerprint` when the surface has a secret.
    pub(crate) keyed_fingerprint: Option<u64>,
    pub(crate) version: u64,
}

impl Policy {
    /// The rules that count, in the order of the document.
    #[must_use]
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// The rules that deny, in the order of the document.
    #[must_use]
    pub fn deny_rules(&self) -> &[DenyRule] {
        &self.deny.rules
    }

    /// The names of all rules: of those that count, then of those that deny.
    pub fn rule_names(&self) -> impl Iterator<Item = &str> {
        let of_deny = self.deny.rules.iter().map(DenyRule::name);
        self.rules.iter().map(Rule::name).chain(of_deny)
    }

    /// The groups: one stored value per key of each.
    #[must_use]
    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// The quotas of every rule and tier.
    #[must_use]
    pub fn quota_sets(&self) -> &[QuotaSet] {
        &self.sets
    }

    /// Warnings about settings that are valid in the document but probably not intended.
    #[must_use]
    pub const fn warnings(&self) -> &Problems {
        &self.warnings
    }

    /// How the client's address is found.
    #[must_use]
    pub const fn client_address(&self) -> &ClientAddress {
        &self.settings.spec.client
    }

    /// The identity of the document, byte for byte. Do not publish it: a party that knows the rest
    /// of the document can use it to find the document's secrets by trial.
    #[must_use]
    pub const fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// The identity of the document that may be published. With a secret of the surface it covers
    /// every byte of the document, else its content without the keys of tokens.
    #[must_use]
    pub const fn public_fingerprint(&self) -> u64 {
        match self.keyed_fingerprint {
            Some(keyed) => keyed,
            None => self.public_fingerprint,
        }
    }

    /// Makes the [public fingerprint](Policy::public_fingerprint) cover every byte and depend on
    /// `key`, so that only a holder of `key` can compute it. Derive `key` from a secret.
    pub fn key_public_fingerprint(&mut self, key: [u8; 16]) {
        let mut hasher = SipHasher13::new_with_key(&key);
        hasher.write(b"fingerprint");
        hasher.write_u64(self.fingerprint);
        self.keyed_fingerprint = Some(hasher.finish());
    }

    /// The version that the surface assigned to this policy; 0 when the surface assigns none.
    /// Versions only grow: a roll-back is a new version with an earlier document.
    #[must_use]
    pub const fn version(&self) -> u64 {
        self.version
    }

    /// Sets the version that the surface assigned to this policy.
    pub const fn set_version(&mut self, version: u64) {
        self.version = version;
    }

    /// The fields and bodies that are sent to clients.
    #[must_use]
    pub const fn response(&self) -> &ResponseSpec {
        &self.response.spec
    }

    /// Sets the secret of the surface. Partition keys are hashed with it before they are reported
    /// to clients (`pk`; a zero key until then). It selects the keys that a rule with
    /// `enforce_percent` and no salt is enforced for (all keys until then).
    pub const fn set_hash_key(&mut self, key: [u8; 16]) {
        self.response.hash_key = Some(key);
    }

    /// The secret of the surface, if it has one.
    #[must_use]
    pub const fn hash_key(&self) -> Option<[u8; 16]> {
        self.response.hash_key
    }

    /// The bounds on waiting requests in one worker or isolate.
    #[must_use]
    pub const fn waiting(&self) -> Limits {
        self.waiting
    }

    /// The identity of a rule that stays the same while everything except its name changes.
    pub(crate) fn stable_id_of(&self, rule: u16) -> u64 {
        let rule = self.rules.get(usize::from(rule));
        let own = rule.and_then(|rule| self.sets.get(usize::from(rule.set)));
        own.map_or(0, |set| set.stable_id)
    }

    /// Fills in the derived fields: the offset of every record in its group's value, and whether
    /// the path and the host of requests are read.
    pub(crate) fn complete(&mut self) {
        for group in &mut self.groups {
            group.lay_out(&mut self.sets);
        }
        let of_path =
            |part: &KeyPart| matches!(part.source, KeySource::Path | KeySource::PathParam(_));
        self.settings.reads_path = self.whens().filter_map(Conditions::paths).any(|it| !all(it))
            || self.other_conditions().any(|c| c.paths().is_some())
            || self.all_key_parts().any(of_path);
        self.settings.reads_host = self.all_conditions().any(|c| c.hosts().is_some())
            || self.all_key_parts().any(|part| part.source == KeySource::Host);
        self.settings.asks_identity = self.rules.iter().any(Rule::asks_identity);
        self.index_values();
    }

    #[inline(never)]
    fn index_values(&mut self) {
        for (exempt, entry) in self.exempt.iter().zip(0..) {
            self.exempt_by_value.insert(Some(exempt), entry, &|_| false);
        }
        self.exempt_by_value.complete();
        self.index.others.complete();
        self.rules.iter_mut().for_each(|rule| rule.index_tiers(self.settings.spec.repeated));
    }

    /// All conditions that can be evaluated for a request.
    fn all_conditions(&self) -> impl Iterator<Item = &Conditions> {
        self.whens().chain(self.other_conditions())
    }

    /// True unless a pattern has capitals and paths have none.
    pub(crate) fn patterns_can_match(&self) -> bool {
        let mut patterns = self.all_conditions().filter_map(Conditions::paths).flatten();
        !self.settings.spec.case_insensitive_paths || patterns.all(Pattern::is_lower)
    }

    /// The `when` of every rule.
    fn whens(&self) -> impl Iterator<Item = &Conditions> {
        let of_rules = self.rules.iter().filter_map(|rule| rule.terms.when.as_ref());
        of_rules.chain(self.deny.rules.iter().filter_map(|rule| rule.when.as_ref()))
    }

    /// The conditions other than the `when` of a rule.
    fn other_conditions(&self) -> impl Iterator<Item = &Conditions> {
        let of_rules = self.rules.iter().flat_map(|rule| {
            let tiers = rule.tiers.iter().filter_map(|tier| tier.when.as_ref());
            rule.terms.unless.iter().chain(tiers).chain(rule.priorities())
        });
        let of_deny = self.deny.rules.iter().filter_map(|rule| rule.unless.as_ref());
        self.exempt.iter().chain(of_rules).chain(of_deny)
    }

    /// The prefixes by which the keys of a group group addresses; at most one part of a key is an
    /// address.
    pub(crate) fn prefixes_of(&self, group: u16) -> Prefixes {
        let of_document = self.settings.spec.prefixes;
        let key = self.groups.get(usize::from(group)).map_or(&[][..], |group| &group.spec.key);
        key.iter().find_map(|part| part.prefixes(of_document)).unwrap_or(of_document)
    }

    /// All parts of keys, and the tenant key.
    pub(crate) fn all_key_parts(&self) -> impl Iterator<Item = &KeyPart> {
        let of_groups = self.groups.iter().flat_map(|group| &group.spec.key);
        of_groups.chain(self.tenant.iter().map(|tenant| &tenant.part))
    }

    /// True when every index is in range of its own list, and every state within its record and
    /// value.
    pub(crate) fn is_whole(&self) -> bool {
        let is_group = |i: u16| usize::from(i) < self.groups.len();
        let set = |i: u16| self.sets.get(usize::from(i));
        let fits = |set: &QuotaSet, len: usize| {
            let offset = set.offset.unwrap_or(RECORD_HEADER); // any valid offset
            let is_record = offset.checked_add(set.len).is_some_and(|end| end <= len);
            is_record && set.quotas.iter().all(|m| m.end().is_some_and(|end| end <= set.len))
        };
        self.rules.iter().all(|rule| {
            let mut sets = rule.tiers.iter().map(|tier| tier.set).chain([rule.set]);
            is_group(rule.terms.group) && sets.all(|i| set(i).is_some())
        }) && self.groups.iter().all(|group| {
            group.sets.iter().all(|i| set(*i).is_some_and(|set| fits(set, group.value_len)))
        }) && self.sets.iter().all(|set| set.rule() < self.rules.len())
    }
}
