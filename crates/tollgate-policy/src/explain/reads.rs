//! The facts that a policy reads of requests: for sources that have only some of them, such as a
//! log.
//!
//! Invariant: complete for every request. The list is derived from the tables of key parts and
//! conditions, not from requests, because a rare request may need a fact that no other did.

use alloc::vec::Vec;
use core::net::IpAddr;

use crate::explain::rules::Explain;
use crate::facts::Facts;
use crate::policy::quota::CompiledQuota;
use crate::policy::rule::Rule;
use crate::spec::charging::Charging;
use crate::spec::client_ip::Source;
use crate::spec::client_ip::Trust;
use crate::spec::conditions::Conditions;
use crate::spec::cost::Cost;
use crate::spec::fact::Fact;

/// One fact that a policy reads of requests, and its reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read<'p> {
    /// The part of the policy that reads it.
    pub by: Reader<'p>,
    /// The fact. Country and system number are the headers that the policy's `geo` names.
    pub fact: Fact<'p>,
}

/// The part of a policy that reads a fact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader<'p> {
    /// This item of `exempt`, for every rule.
    Exempt(usize),
    /// The tenant of the request, for every rule.
    Tenant,
    /// The conditions of the rule of this name, which denies: `when` or `unless`.
    Deny(&'p str, &'static str),
    /// The conditions in which the rule (its index in [`Policy::rules`](crate::Policy::rules))
    /// applies, or does not: `when` or `unless`.
    Condition(usize, &'static str),
    /// The key of the rule.
    Key(usize),
    /// Whether a tier of this name is for the request.
    Tier(usize, &'p str),
    /// The request's cost.
    Cost(usize),
    /// Whether the request is charged.
    Charge(usize),
    /// The limit of the request: without it the quota's own applies.
    Limit(usize),
}

impl Reader<'_> {
    /// True when a request without the fact is decided as one that has it, by another number.
    #[must_use]
    pub const fn has_default(&self) -> bool {
        matches!(self, Self::Limit(_))
    }
}

impl Reader<'_> {
    /// The index of the rule that counts; `None` for all rules, and for a rule that denies.
    #[must_use]
    pub const fn rule(&self) -> Option<usize> {
        match self {
            Self::Exempt(_) | Self::Tenant | Self::Deny(..) => None,
            Self::Condition(rule, _) | Self::Key(rule) | Self::Tier(rule, _) => Some(*rule),
            Self::Cost(rule) | Self::Charge(rule) | Self::Limit(rule) => Some(*rule),
        }
    }
}

impl<'p> Explain<'p> {
    /// Everything that the policy may read of a request, in the order of the document. The same
    /// fact may occur twice. Never fails.
    #[must_use]
    pub fn reads(&self) -> Vec<Read<'p>> {
        let mut reads = Vec::new();
        if let Some(tenant) = &self.0.tenant {
            let fact = self.resolved(tenant.part.source.about().reads);
            reads.push(Read { by: Reader::Tenant, fact });
        }
        for (i, conditions) in self.0.exempt.iter().enumerate() {
            self.conditions(Reader::Exempt(i), conditions, &mut reads);
        }
        for rule in &self.0.deny.rules {
            for (name, conditions) in [("when", &rule.when), ("unless", &rule.unless)] {
                if let Some(conditions) = conditions {
                    self.conditions(Reader::Deny(&rule.name, name), conditions, &mut reads);
                }
            }
        }
        for (i, rule) in self.0.rules.iter().enumerate() {
            self.of_rule(i, rule, &mut reads);
        }
        reads
    }

    /// The header with the client's address, in lower case. `None` when the address is the
    /// peer address, and when no proxy is trusted to write such a header.
    #[must_use]
    pub fn client_header(&self) -> Option<&'p str> {
        let client = &self.0.settings.spec.client;
        if client.trust == Trust::NoProxy {
            return None;
        }
        match &client.source {
            Source::Connection | Source::CfConnectingIp => None,
            Source::XForwardedFor => Some("x-forwarded-for"),
            Source::Forwarded => Some("forwarded"),
            Source::Header(name) => Some(&name.0),
        }
    }

    /// The first address of the network that is one client to this policy: the client's address,
    /// with zeros beyond the prefix. `None` when the client's address is unknown.
    #[must_use]
    pub fn client_network(&self, facts: &impl Facts) -> Option<IpAddr> {
        let address = self.0.settings.spec.client.find(facts)?;
        Some(self.0.settings.spec.prefixes.network(address))
    }

    fn of_rule(self, i: usize, rule: &'p Rule, reads: &mut Vec<Read<'p>>) {
        if let Some(when) = &rule.terms.when {
            self.conditions(Reader::Condition(i, "when"), when, reads);
        }
        if let Some(unless) = &rule.terms.unless {
            self.conditions(Reader::Condition(i, "unless"), unless, reads);
        }
        let key = self
            .0
            .groups
            .get(usize::from(rule.terms.group))
            .map_or(&[][..], |group| &group.spec.key);
        for part in key {
            reads.push(Read { by: Reader::Key(i), fact: self.resolved(part.source.about().reads) });
        }
        for tier in &rule.tiers {
            // Values of the key read nothing in addition to the key.
            if let (Some(when), Some(name)) = (&tier.when, self.tier_name(tier.set)) {
                self.conditions(Reader::Tier(i, name), when, reads);
            }
        }
        for conditions in rule.priorities() {
            self.conditions(Reader::Condition(i, "priority"), conditions, reads);
        }
        let by = Reader::Cost(i);
        match &rule.terms.cost {
            Cost::Fixed(_) | Cost::Reported => {}
            Cost::Header { name, .. } => reads.push(Read { by, fact: Fact::Header(&name.0) }),
            Cost::ContentLengthPer(_) => {
                reads.push(Read { by, fact: Fact::Header("content-length") });
            }
        }
        let sets = rule.tiers.iter().map(|tier| tier.set).chain([rule.set]);
        let sets = sets.filter_map(|set| self.0.sets.get(usize::from(set)));
        for from in sets.flat_map(|set| &set.quotas).filter_map(CompiledQuota::limit_from) {
            let fact = self.resolved(from.source.reads());
            reads.push(Read { by: Reader::Limit(i), fact });
        }
        match &rule.terms.charging {
            Charging::Request => {}
            Charging::InFlight => {
                reads.push(Read { by: Reader::Charge(i), fact: Fact::Duration });
            }
            Charging::Response(_) => {
                reads.push(Read { by: Reader::Charge(i), fact: Fact::Status });
            }
            Charging::Settled(settled) => {
                reads.push(Read { by, fact: Fact::Actual });
                if !settled.on_status.is_empty() {
                    reads.push(Read { by, fact: Fact::Status });
                }
            }
        }
    }

    fn tier_name(self, set: u16) -> Option<&'p str> {
        let name = self.0.sets.get(usize::from(set)).and_then(|set| set.tier.as_deref());
        debug_assert!(name.is_some(), "every tier has a name");
        name
    }

    fn conditions(self, by: Reader<'p>, conditions: &'p Conditions, reads: &mut Vec<Read<'p>>) {
        let read = |fact| Read { by, fact: self.resolved(fact) };
        reads.extend(conditions.0.iter().map(|condition| read(condition.reads())));
    }

    /// The header that contains the fact, where the policy names one.
    fn resolved(self, fact: Fact<'p>) -> Fact<'p> {
        let header = match fact {
            Fact::Country => self.0.settings.spec.country_header.as_ref(),
            Fact::Asn => self.0.settings.spec.asn_header.as_ref(),
            Fact::Client | Fact::Method | Fact::Host | Fact::Path | Fact::Query(_) => None,
            Fact::Header(_) | Fact::Cookie(_) | Fact::Route | Fact::Claim(_) => None,
            Fact::Metadata(_) | Fact::Certificate(_) | Fact::Cloudflare(_) => None,
            Fact::Domain | Fact::Descriptor(_) | Fact::Entries | Fact::Beside => None,
            Fact::Status | Fact::Actual | Fact::Duration => None,
        };
        header.map_or(fact, |name| Fact::Header(&name.0))
    }
}
