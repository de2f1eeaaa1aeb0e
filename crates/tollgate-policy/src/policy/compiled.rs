//! A policy as compiled: its rules, their groups, and look-up.
//!
//! Invariant: a `Policy` exists only if its whole document was valid; every index in it is in range
//! of its own lists. Nothing but its secret and its version changes afterwards.

use alloc::vec::Vec;
use core::hash::Hasher;

use siphasher::sip::SipHasher13;

use crate::document::client_ip::Source;
use crate::document::conditions::Conditions;
use crate::document::key::KeyPart;
use crate::document::root::HeaderGeneration;
use crate::http::path::all;
use crate::json::problem::Problems;
use crate::policy::by_value::ByValue;
use crate::policy::client_address::Trust;
use crate::policy::group::{Group, QuotaSet};
use crate::policy::index::Index;
use crate::policy::jwt::Jwt;
use crate::policy::limits::Limits;
use crate::policy::records::RECORD_HEADER;
use crate::policy::rule::Rule;
use crate::policy::settings::{Response, Settings};
use crate::policy::surface::Surface;
use crate::policy::tenant::TenantKey;

/// A compiled policy: immutable, and what every request is planned with.
#[derive(Clone, Debug)]
pub struct Policy {
    pub(crate) rules: Vec<Rule>,
    pub(crate) groups: Vec<Group>,
    pub(crate) sets: Vec<QuotaSet>,
    pub(crate) exempt: Vec<Conditions>,
    pub(crate) exempt_by_value: ByValue,
    pub(crate) index: Index,
    pub(crate) settings: Settings,
    pub(crate) response: Response,
    pub(crate) waiting: Limits,
    pub(crate) jwt: Option<Jwt>,
    /// Who a tenant is, if there are any.
    pub(crate) tenant: Option<TenantKey>,
    pub(crate) warnings: Problems,
    /// What it was compiled for. Nothing that decides asks for it.
    pub(crate) surface: Surface,
    pub(crate) fingerprint: u64,
    /// Of what the document says but for the keys of tokens.
    pub(crate) public_fingerprint: u64,
    /// In place of that, with a secret of the surface.
    pub(crate) keyed_fingerprint: Option<u64>,
    pub(crate) version: u64,
}

impl Policy {
    /// The rules, in the order of the document.
    #[must_use]
    pub fn rules(&self) -> &[Rule] {
        &self.rules
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

    /// What is legal in the document but hardly meant.
    #[must_use]
    pub const fn warnings(&self) -> &Problems {
        &self.warnings
    }

    /// True when the client's address is the connection's other end, whatever a header says.
    #[must_use]
    pub fn takes_the_connection(&self) -> bool {
        self.settings.client.source == Source::Connection
    }

    /// True unless the policy counts the entries of a list of addresses by itself (`trusted_hops`):
    /// who the client is depends on whose the connection is.
    #[must_use]
    pub const fn trusts_the_connection(&self) -> bool {
        !matches!(self.settings.client.trust, Trust::Hops(_))
    }

    /// True when the document says who a tenant is, so that requests have tenants.
    #[must_use]
    pub const fn has_tenants(&self) -> bool {
        self.tenant.is_some()
    }

    /// Where verified claims come from; `None` when no rule counts by one and no tenant is one.
    #[must_use]
    pub fn jwt(&self) -> Option<&Jwt> {
        let is_read = self.all_key_parts().any(|part| matches!(part, KeyPart::JwtClaim(_)));
        self.jwt.as_ref().filter(|_| is_read)
    }

    /// The identity of the document, byte for byte. Not for everybody: whoever knows the rest of
    /// the document finds out by it, trying, what secrets stand in it.
    #[must_use]
    pub const fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// The identity of the document for everybody: with a secret of the surface that of its every
    /// byte, else that of what it says but for the keys of tokens.
    #[must_use]
    pub const fn public_fingerprint(&self) -> u64 {
        match self.keyed_fingerprint {
            Some(keyed) => keyed,
            None => self.public_fingerprint,
        }
    }

    /// Makes the [public fingerprint](Policy::public_fingerprint) one of every byte that nobody
    /// computes who does not have `key`: derive it from a secret.
    pub fn key_public_fingerprint(&mut self, key: [u8; 16]) {
        let mut hasher = SipHasher13::new_with_key(&key);
        hasher.write(b"fingerprint");
        hasher.write_u64(self.fingerprint);
        self.keyed_fingerprint = Some(hasher.finish());
    }

    /// What it was compiled for.
    #[must_use]
    pub const fn surface(&self) -> Surface {
        self.surface
    }

    /// The version that the surface counts this policy as; 0 unless it counts them. Versions only
    /// grow: a roll-back is a new version with an earlier document.
    #[must_use]
    pub const fn version(&self) -> u64 {
        self.version
    }

    /// Sets the version that the surface counts this policy as.
    pub const fn set_version(&mut self, version: u64) {
        self.version = version;
    }

    /// True when the hash of their partition key (`pk`) is reported to clients, so that it needs a
    /// secret.
    #[must_use]
    pub const fn reports_partition_keys(&self) -> bool {
        self.response.partition_key
    }

    /// True when the rate limit fields are lists with a member for each quota, so that those of
    /// several requests may stand in one response.
    #[must_use]
    pub const fn lists_quotas(&self) -> bool {
        matches!(self.response.headers, HeaderGeneration::Draft11)
    }

    /// True when a secret of the surface chooses the keys that a rule is enforced for.
    #[must_use]
    pub fn chooses_keys(&self) -> bool {
        self.rules.iter().any(Rule::chooses_keys)
    }

    /// Sets the secret of the surface. Partition keys are hashed with it before they are reported
    /// to clients (`pk`, by zeros until then), and it chooses the keys that a rule with
    /// `enforce_percent` and no salt is enforced for (all until then).
    pub const fn set_hash_key(&mut self, key: [u8; 16]) {
        self.response.hash_key = Some(key);
    }

    /// The secret of the surface, if it has one.
    #[must_use]
    pub const fn hash_key(&self) -> Option<[u8; 16]> {
        self.response.hash_key
    }

    /// How much may wait in one worker or isolate.
    #[must_use]
    pub const fn waiting(&self) -> Limits {
        self.waiting
    }

    /// What a rule is known by while everything in it but its name changes.
    pub(crate) fn stable_id_of(&self, rule: u16) -> u64 {
        let rule = self.rules.get(usize::from(rule));
        let own = rule.and_then(|rule| self.sets.get(usize::from(rule.set)));
        own.map_or(0, |set| set.stable_id)
    }

    /// Fills in what follows from the rest: where every record lies in its group's value, and
    /// whether requests are asked for a path and a host.
    pub(crate) fn complete(&mut self) {
        for group in &mut self.groups {
            group.lay_out(&mut self.sets);
        }
        let of_path = |part: &KeyPart| matches!(part, KeyPart::Path | KeyPart::PathParam(_));
        let of_rules = self.rules.iter().filter_map(|rule| rule.when.as_ref());
        self.settings.reads_path = of_rules.filter_map(Conditions::paths).any(|it| !all(it))
            || self.other_conditions().any(|c| c.paths().is_some())
            || self.all_key_parts().any(of_path);
        self.settings.reads_host = self.all_conditions().any(|c| c.hosts().is_some())
            || self.all_key_parts().any(|part| *part == KeyPart::Host);
        self.index_values();
    }

    #[inline(never)]
    fn index_values(&mut self) {
        for (exempt, entry) in self.exempt.iter().zip(0..) {
            self.exempt_by_value.insert(Some(exempt), entry, &|_| false);
        }
        self.exempt_by_value.complete();
        self.index.others.complete();
        self.rules.iter_mut().for_each(|rule| rule.index_tiers(self.settings.repeated));
    }

    /// All conditions that a request may be asked.
    fn all_conditions(&self) -> impl Iterator<Item = &Conditions> {
        let of_rules = self.rules.iter().filter_map(|rule| rule.when.as_ref());
        of_rules.chain(self.other_conditions())
    }

    /// Those that are no rule's `when`.
    fn other_conditions(&self) -> impl Iterator<Item = &Conditions> {
        let of_rules = self.rules.iter().flat_map(|rule| {
            let tiers = rule.tiers.iter().filter_map(|tier| tier.when.as_ref());
            rule.unless.iter().chain(tiers).chain(rule.priorities())
        });
        self.exempt.iter().chain(of_rules)
    }

    /// All parts of keys, and who a tenant is.
    fn all_key_parts(&self) -> impl Iterator<Item = &KeyPart> {
        let of_groups = self.groups.iter().flat_map(|group| &group.key);
        of_groups.chain(self.tenant.iter().map(|tenant| &tenant.part))
    }

    /// True when every index is in range of its own list, and every state within its record and
    /// value.
    pub(crate) fn is_whole(&self) -> bool {
        let is_group = |i: u16| usize::from(i) < self.groups.len();
        let set = |i: u16| self.sets.get(usize::from(i));
        let fits = |set: &QuotaSet, len: usize| {
            let offset = set.offset.unwrap_or(RECORD_HEADER); // somewhere
            let is_record = offset.checked_add(set.len).is_some_and(|end| end <= len);
            is_record && set.quotas.iter().all(|m| m.end().is_some_and(|end| end <= set.len))
        };
        self.rules.iter().all(|rule| {
            let mut sets = rule.tiers.iter().map(|tier| tier.set).chain([rule.set]);
            is_group(rule.group) && sets.all(|i| set(i).is_some())
        }) && self.groups.iter().all(|group| {
            group.sets.iter().all(|i| set(*i).is_some_and(|set| fits(set, group.value_len)))
        }) && self.sets.iter().all(|set| set.rule() < self.rules.len())
    }
}
