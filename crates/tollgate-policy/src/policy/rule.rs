//! One compiled rule, and its tiers.
//!
//! Invariant: its indexes refer to the policy that contains it.

use alloc::string::String;
use alloc::vec::Vec;

use tollgate_core::Span;

use crate::metrics::metric_label;
use crate::policy::by_value::ByValue;
use crate::policy::index::IndexedBy;
use crate::spec::action::{Action, Delay};
use crate::spec::charging::Charging;
use crate::spec::conditions::Conditions;
use crate::spec::cost::Cost;
use crate::spec::mode::{Mode, Share};
use crate::spec::rule::RuleTerms;
use crate::spec::scope::Scope;
use crate::spec::settled_cost::{ResponseFacts, SettledCost};
use crate::spec::status::Ending;
use tollgate_http_syntax::address::Prefixes;
use tollgate_http_syntax::repeated::Repeated;
use tollgate_http_syntax::sort::sort_by;
use tollgate_storage::Due;

/// One compiled rule.
#[derive(Clone, Debug)]
pub struct Rule {
    pub(crate) terms: RuleTerms,
    /// The condition that the look-up has checked.
    pub(crate) indexed_by: IndexedBy,
    /// The rule's own quotas.
    pub(crate) set: u16,
    /// Highest priority first.
    pub(crate) tiers: Vec<Tier>,
    pub(crate) tiers_by_value: ByValue,
    /// A quota of it or of a tier counts in the windows of a calendar.
    pub(crate) is_by_calendar: bool,
    /// When a request is charged, which its terms say.
    pub(crate) due: Due,
}

/// When a request is charged by a rule of these terms.
pub(crate) const fn due(terms: &RuleTerms) -> Due {
    match &terms.charging {
        Charging::Request if matches!(terms.cost, Cost::Reported) => Due::Reported,
        Charging::Request => Due::Now,
        Charging::InFlight => Due::InFlight,
        charging if charging.holds() => Due::Held,
        Charging::Response(_) | Charging::Settled(_) => Due::Later,
    }
}

/// Other quotas for some keys.
#[derive(Clone, Debug)]
pub(crate) struct Tier {
    pub(crate) priority: u32,
    pub(crate) when: Option<Conditions>,
    /// How several values are interpreted in the field that `when` tests.
    pub(crate) repeated: Option<Repeated>,
    /// Sorted, and each once. Empty: any value.
    pub(crate) key_values: Vec<Vec<u8>>,
    /// The `key_values` that are addresses, grouped by prefix, in the form used in keys; sorted.
    pub(crate) addresses: Vec<Vec<u8>>,
    pub(crate) set: u16,
}

impl Tier {
    /// Sorts the tiers of a rule into the order in which they are tried: the highest priority
    /// first; of two equal ones the earlier first.
    pub(crate) fn sort(tiers: &mut [Self]) {
        sort_by(tiers, |one, other| other.priority.cmp(&one.priority));
    }

    /// The `key_values` that are addresses, in the form used in keys; sorted, and each once.
    pub(crate) fn addresses_of(key_values: &[Vec<u8>], prefixes: Prefixes) -> Vec<Vec<u8>> {
        let mut addresses = Vec::new();
        for value in key_values {
            let address = core::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
            if let Some(address) = address {
                prefixes.group(address, |bytes| addresses.push(bytes.into()));
            }
        }
        sort_by(&mut addresses, Ord::cmp);
        addresses.dedup();
        addresses
    }
}

impl Rule {
    /// Fills the look-up of its tiers; `default` is the interpretation of several values of a
    /// header.
    pub(crate) fn index_tiers(&mut self, default: Repeated) {
        let mut by_value = ByValue::default();
        for (tier, entry) in self.tiers.iter().zip(0..) {
            if tier.key_values.is_empty() {
                let repeated = |name: &str| Repeated::of_header(name, tier.repeated, default);
                let refuses = |name: &str| repeated(name) == Repeated::Refuse;
                by_value.insert(tier.when.as_ref(), entry, &refuses);
            } else {
                let values = tier.key_values.iter().chain(&tier.addresses);
                values.for_each(|value| by_value.insert_key(value, entry));
            }
        }
        by_value.complete();
        self.tiers_by_value = by_value;
    }

    /// True when a quota of it or of a tier counts in the windows of a calendar.
    #[must_use]
    pub const fn is_by_calendar(&self) -> bool {
        self.is_by_calendar
    }

    /// The rule's name, %x20-7E, at most 64 characters.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.terms.name
    }

    /// The index in the document's `rules`: the rules that deny have their places there, too, and a
    /// rule with quotas and a limit on requests in flight is two in
    /// [`Policy::rules`](crate::Policy::rules), of one place.
    #[must_use]
    pub fn place(&self) -> usize {
        self.terms.place.into()
    }

    /// The rule's name as a part of a metric's name ([`metric_label`]). It is unique among the
    /// rules of a policy for Envoy.
    #[must_use]
    pub fn label(&self) -> String {
        metric_label(&self.terms.name)
    }

    /// The index of the rule's group in [`Policy::groups`](crate::Policy::groups): rules with the
    /// same key share one.
    #[must_use]
    pub fn group(&self) -> usize {
        self.terms.group.into()
    }

    /// The requests that share the count.
    #[must_use]
    pub const fn scope(&self) -> Scope {
        self.terms.scope
    }

    /// With [`Scope::Fleet`]: the longest time for which its units are leased, 100 ms to 10 s; zero
    /// when the authority is asked for every request.
    #[must_use]
    pub const fn lease(&self) -> Span {
        self.terms.lease
    }

    /// The divisor of the limits in the local count of a node that reaches no authority, 1 for
    /// whole limits; `None` when such a node does not count locally.
    #[must_use]
    pub const fn fallback(&self) -> Option<u32> {
        self.terms.fallback
    }

    /// True when a secret of the surface selects the keys that the rule is enforced for, so that
    /// only the surface knows them.
    #[must_use]
    pub const fn chooses_keys(&self) -> bool {
        matches!(self.terms.mode, Mode::EnforcePercent(Share { percent: 1..=99, hash_key: None }))
    }

    /// True when every request costs the same: a quota that denies one request denies the others
    /// too.
    #[must_use]
    pub const fn has_fixed_cost(&self) -> bool {
        matches!(self.terms.cost, Cost::Fixed(_))
    }

    /// True when descriptors report units that were already used (`"cost": "reported"`): their hits
    /// are recorded whatever the decision is.
    #[must_use]
    pub const fn is_reported(&self) -> bool {
        matches!(self.terms.cost, Cost::Reported)
    }

    /// The units that an allowed request of this cost finally uses when it ends like this.
    #[must_use]
    pub fn used(&self, cost: u64, ending: Ending, response: &dyn ResponseFacts) -> u64 {
        self.terms.charging.used(cost, ending, response)
    }

    /// How the response settles the cost of a request, where it does.
    #[must_use]
    pub const fn settled_cost(&self) -> Option<&SettledCost> {
        self.terms.charging.settled_cost()
    }

    /// True when a client over the limit may be denied: false for a rule in shadow mode, and for
    /// one that only marks or delays.
    #[must_use]
    pub const fn refuses(&self) -> bool {
        let is_enforced = !matches!(
            self.terms.mode,
            Mode::Shadow | Mode::EnforcePercent(Share { percent: 0, .. })
        );
        is_enforced && matches!(self.terms.action, Action::Deny(_) | Action::Respond(_))
    }

    /// True when every request of its key counts in the same quotas of the rule, and those may deny
    /// it. For a request that the rule denies, no rule of that key is charged.
    #[must_use]
    pub const fn refuses_for_all(&self) -> bool {
        self.terms.when.is_none()
            && self.terms.unless.is_none()
            && self.tiers.is_empty()
            && self.refuses()
    }

    /// True when a request over the limit is delayed (`"action": {"delay": ...}`).
    #[must_use]
    pub const fn is_waited_for(&self) -> bool {
        self.longest_wait().is_some()
    }

    /// How long a request may wait for this rule; `None` when the rule delays no request.
    #[must_use]
    pub const fn longest_wait(&self) -> Option<Span> {
        match self.terms.action {
            Action::Delay(Delay { max, .. }) => Some(max),
            Action::Deny(_) | Action::Mark(_) | Action::Respond(_) => None,
        }
    }

    /// The priorities among requests that wait for one key: requests that match an earlier
    /// condition go first, requests that match none go last.
    pub(crate) fn priorities(&self) -> &[Conditions] {
        match &self.terms.action {
            Action::Delay(delay) => &delay.priority,
            Action::Deny(_) | Action::Mark(_) | Action::Respond(_) => &[],
        }
    }

    /// True when the charge depends on the response: without a report of the response nothing is
    /// charged.
    #[must_use]
    pub const fn charges_by_response(&self) -> bool {
        matches!(self.terms.charging, Charging::Response(_))
    }

    /// The status of a denial, when the rule names one; it is 429 when the rule does not.
    #[must_use]
    pub fn refusal_status(&self) -> Option<u16> {
        let reply = match &self.terms.action {
            Action::Deny(reply) => reply.as_ref(),
            Action::Respond(reply) => Some(reply),
            Action::Delay(_) | Action::Mark(_) => None,
        };
        reply.and_then(|reply| u16::try_from(reply.status.0).ok())
    }

    /// The name of a unit of its quotas, where the document gives one.
    #[must_use]
    pub fn unit(&self) -> Option<&str> {
        if self.limits_requests_in_flight() {
            return Some("concurrent-requests");
        }
        self.settled_cost()?.unit.as_ref().map(|unit| unit.0.as_str())
    }

    /// True when units are held until the response's status shows whether they are charged
    /// (`reserve`).
    #[must_use]
    pub const fn reserves(&self) -> bool {
        matches!(&self.terms.charging, Charging::Response(charge) if charge.reserves())
    }

    /// True when its cost is in the body of the response.
    #[must_use]
    pub fn reads_body(&self) -> bool {
        self.settled_cost().is_some_and(|cost| cost.actual.json().is_some())
    }

    /// True when it asks the origin for a body that is not compressed.
    pub(crate) fn asks_identity(&self) -> bool {
        let cost = self.settled_cost().and_then(|cost| cost.actual.json());
        cost.is_some_and(|cost| cost.identity)
    }

    /// True when it limits how many requests of a key run at the same time.
    #[must_use]
    pub const fn limits_requests_in_flight(&self) -> bool {
        matches!(self.terms.charging, Charging::InFlight)
    }

    /// True when both are one rule of the document: its quotas, and its limit on requests in
    /// flight.
    pub(crate) const fn is_part_of(&self, other: &Self) -> bool {
        self.terms.place == other.terms.place
            && self.limits_requests_in_flight() != other.limits_requests_in_flight()
    }

    /// True when held units may come back, so that a denial may end before its retry time.
    #[must_use]
    pub const fn gives_back(&self) -> bool {
        self.terms.charging.holds()
    }
}
