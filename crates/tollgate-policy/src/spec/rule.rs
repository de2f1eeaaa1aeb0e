//! The parts of a rule, a tier and a quota that do not follow from the rest.

use alloc::string::String;
use alloc::vec::Vec;

use tollgate_core::{Limiter, Span};

use crate::spec::action::Action;
use crate::spec::bounds::{MAX_QUOTAS, MAX_TIERS};
use crate::spec::charging::Charging;
use crate::spec::coded::fields;
use crate::spec::conditions::Conditions;
use crate::spec::cost::Cost;
use crate::spec::key::KeySource;
use crate::spec::key_item::KeyPart;
use crate::spec::limit_from::LimitFrom;
use crate::spec::mode::Mode;
use crate::spec::on_failure::OnFailure;
use crate::spec::on_missing::OnMissing;
use crate::spec::quota::QuotaSpec;
use crate::spec::scalar::Name;
use crate::spec::scope::{MAX_NODES, Scope, is_lease};
use tollgate_http_syntax::path::Pattern;
use tollgate_http_syntax::repeated::Repeated;
use tollgate_http_syntax::sort::sort_by;

/// Makes the identity of a node's local count differ from that of the fleet.
pub const FALLBACK: &[u8] = b"fallback";

fields! {
    /// The terms of a rule, apart from its quotas.
    #[derive(Clone, Debug)]
    pub struct RuleTerms {
        /// Its name, unique in the policy.
        name: String,
        /// Conditions that must all hold.
        when: Option<Conditions>,
        /// Conditions that exclude a request when all of them hold.
        unless: Option<Conditions>,
        /// The behaviour when the request lacks a key part.
        on_missing: OnMissing,
        /// The decision when the state cannot be read or written.
        on_failure: OnFailure,
        /// The requests that share the count.
        scope: Scope,
        /// The longest time for which units are leased; zero when nothing is leased.
        lease: Span,
        /// A node that reaches no authority counts locally, with this share of the limits.
        fallback: Option<u32>,
        /// The cost of one request.
        cost: Cost,
        /// True when the document states the cost, so that the final cost can differ; else every
        /// request costs one.
        names_cost: bool,
        /// The event that charges a request.
        charging: Charging,
        /// The keys for which the rule is enforced.
        mode: Mode,
        /// The action for a request over the limit.
        action: Action,
        /// The index of its key in [`PolicySpec::groups`](super::PolicySpec).
        group: u16,
        /// The index of the rule in the document. A rule with quotas and a limit on requests in
        /// flight is two here.
        place: u16,
    } if |it| {
        Name::is_one(&it.name)
            && (it.names_cost || it.cost == Cost::Fixed(1))
            && it.charging.settled_cost().is_none_or(|cost| {
                it.names_cost && it.cost.as_estimate().is_some_and(|estimate| cost.is_one(estimate))
            })
            && (it.charging != Charging::InFlight || it.can_be_in_flight())
            && (it.lease == Span::ZERO || it.scope == Scope::Fleet && is_lease(it.lease))
            && it.fallback.is_none_or(|nodes| (1..=MAX_NODES).contains(&nodes))
    }
}

fields! {
    /// One rule.
    #[derive(Clone, Debug)]
    pub struct RuleSpec {
        /// Its terms, apart from its quotas.
        terms: RuleTerms,
        /// Its own quotas.
        set: SetSpec,
        /// In the order of the document.
        tiers: Vec<TierSpec>,
    } if |it| {
        it.tiers.len() <= MAX_TIERS
            && are_unique(it.tiers.iter().map(|tier| &*tier.name))
            && it.counts_as_charged()
    }
}

fields! {
    /// Other quotas for some keys.
    #[derive(Clone, Debug)]
    pub struct TierSpec {
        /// Its name, unique in the rule.
        name: String,
        /// Of the tiers that apply, the one with the highest decides.
        priority: u32,
        /// Conditions that must all hold.
        when: Option<Conditions>,
        /// The meaning of several values of the field that `when` tests.
        repeated: Option<Repeated>,
        /// Sorted and unique; empty: any value.
        key_values: Vec<Vec<u8>>,
        /// Its quotas.
        set: SetSpec,
    } if |it| {
        Name::is_one(&it.name)
            && it.priority <= 1_000_000
            && it.key_values.is_sorted_by(|one, next| one < next)
    }
}

fields! {
    /// The quotas of a rule or of a tier.
    #[derive(Clone, Debug)]
    pub struct SetSpec {
        /// The quotas.
        own: RecordSpec,
        /// The local count of a node while no authority answers.
        fallback: Option<RecordSpec>,
    }
}

fields! {
    /// Quotas whose states are stored together.
    #[derive(Clone, Debug)]
    pub struct RecordSpec {
        /// The identity of the stored states, unique in the policy and never 0.
        record_id: u32,
        /// The quotas, at least one; one that denies everything is the only one.
        quotas: Vec<QuotaSpec>,
    } if |it| {
        it.record_id > 0
            && (1..=MAX_QUOTAS).contains(&it.quotas.len())
            && are_unique(it.quotas.iter().map(|quota| &*quota.name))
            && (it.quotas.len() == 1 || !it.is_closed())
    }
}

fields!(QuotaSpec { name: String, limiter: Limiter, limit_from: Option<LimitFrom>, } if |it| {
    Name::is_one(&it.name) && it.limit_from.as_ref().is_none_or(|from| from.fits(&it.limiter))
});

/// True when every name is unique.
pub(crate) fn are_unique<'n>(names: impl Iterator<Item = &'n str>) -> bool {
    let mut names: Vec<&str> = names.collect();
    sort_by(&mut names, Ord::cmp);
    names.is_sorted_by(|one, next| one < next)
}

impl RuleTerms {
    /// True when requests can be counted while they are in flight: each is one, here and now.
    fn can_be_in_flight(&self) -> bool {
        let orders = matches!(&self.action, Action::Delay(delay) if !delay.priority.is_empty());
        !self.names_cost && self.scope != Scope::Fleet && !orders
    }
}

impl RecordSpec {
    /// True when a quota of it denies everything, so that nothing is ever stored.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.quotas.iter().any(|quota| quota.limiter.is_closed())
    }
}

impl RuleSpec {
    /// True when its quotas limit requests in flight, exactly one in each set, if they are charged
    /// as such.
    fn counts_as_charged(&self) -> bool {
        let sets = core::iter::once(&self.set).chain(self.tiers.iter().map(|tier| &tier.set));
        let is_in_flight = self.terms.charging == Charging::InFlight;
        sets.flat_map(|set| core::iter::once(&set.own).chain(&set.fallback)).all(|record| {
            let mut quotas = record.quotas.iter();
            quotas.all(|quota| quota.limiter.max_age().is_some() == is_in_flight)
                && !(is_in_flight && record.quotas.len() > 1)
        })
    }

    /// Its own quota set and those of its tiers.
    pub(crate) fn sets(&self) -> usize {
        self.tiers.len().saturating_add(1)
    }

    /// The paths by which it is looked up.
    pub(crate) fn paths(&self) -> &[Pattern] {
        self.terms.when.as_ref().and_then(Conditions::paths).unwrap_or_default()
    }

    /// True when every path of the rule captures the parameters that its key uses.
    pub(crate) fn captures_for(&self, key: &[KeyPart]) -> bool {
        let paths = self.terms.when.as_ref().and_then(Conditions::paths);
        let is_captured = |name: &str| {
            paths.is_some_and(|paths| paths.iter().all(|path| path.captures().any(|n| n == name)))
        };
        let mut captures = key.iter().filter_map(|part| {
            let KeySource::PathParam(name) = &part.source else { return None };
            Some(name)
        });
        captures.all(|name| is_captured(name))
    }
}
