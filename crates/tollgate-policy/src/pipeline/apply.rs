//! The rules that apply to a request, and the key, quotas and cost of each.
//!
//! Invariant: a rule that applies counts only by unambiguous parts of the request, else it is
//! malformed and charges nothing. A missing part of a key is handled by the rule's `on_missing`,
//! never guessed. Nothing is loaded or decided here.

use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::facts::Facts;
use crate::pipeline::applied::{AppliedRule, AppliedSet, Basis, CountedIn, Effect};
use crate::pipeline::deny::find;
use crate::pipeline::partitions::Partitions;
use crate::pipeline::plan::Plan;
use crate::pipeline::tenant::Choice;
use crate::policy::compiled::Policy;
use crate::policy::group::Group;
use crate::policy::index::IndexedBy;
use crate::policy::rule::{Rule, Tier};
use crate::policy::tenant::Tenant;
use crate::request::key::{parts, write_key, write_shared_key};
use crate::request::lazy::Request;
use crate::request::matching::Reading;
use crate::spec::conditions::Conditions;
use crate::spec::cost::Cost;
use crate::spec::mode::{Mode, Share};
use crate::spec::on_missing::OnMissing;
use tollgate_http_syntax::malformed::Malformed;
use tollgate_http_syntax::repeated::Repeated;
use tollgate_http_syntax::values::{elements, the_one};

impl Policy {
    /// Fills `plan` with the rules that apply to a request and the partitions they count in. Never
    /// fails; without rules the plan is empty.
    ///
    /// For a policy that [has tenants](Policy::tenants), then look up the entry of
    /// [`Plan::tenant`], and if there is one, plan again with it.
    pub fn plan(&self, facts: &impl Facts, plan: &mut Plan) {
        self.plan_with(facts, None, plan);
    }

    /// The same for a request whose tenant has an entry that is [in force](Tenant::is_in_force). An
    /// entry of another tenant, or of another policy, is ignored.
    pub fn plan_for(&self, facts: &impl Facts, tenant: &Arc<Tenant>, plan: &mut Plan) {
        debug_assert_eq!(tenant.policy, self.fingerprint, "an entry goes with its policy");
        self.plan_with(facts, Some(tenant).filter(|it| it.policy == self.fingerprint), plan);
    }

    fn plan_with(&self, facts: &impl Facts, tenant: Option<&Arc<Tenant>>, plan: &mut Plan) {
        plan.clear();
        let Plan { applied, partitions, candidates, buffers, tenant: id, denied, .. } = plan;
        let request = Request::new(facts, &self.settings, buffers);
        if !self.exempt.is_empty() && self.is_exempt(&request) {
            return;
        }
        if !self.deny.rules.is_empty() && self.is_denied(&request, candidates, denied) {
            return;
        }
        find(&self.index, &request, candidates);
        let of_tenant = self.write_tenant(&request, candidates, id);
        let tenant = tenant.filter(|tenant| of_tenant.is_ok() && *tenant.id == **id);
        for index in candidates {
            self.apply(*index, &request, tenant, applied, partitions);
        }
        if self.is_special || tenant.is_some() {
            self.limit(applied, &request);
        }
        if facts.is_to_be_settled() {
            partitions.endure();
        }
        if applied.is_empty() {
            id.clear();
        }
        if let Err(malformed) = of_tenant {
            plan.make_malformed(malformed);
        }
        plan.keep_unreadable();
        plan.reserve_decisions(self);
    }

    /// True when the request certainly matches an exemption.
    #[inline(never)] // many policies have none
    pub(super) fn is_exempt<F: Facts>(&self, request: &Request<'_, F>) -> bool {
        let mut is_exempt = false;
        let mut ask = |entries: &[u16]| {
            let mut asked = entries.iter().filter_map(|entry| self.exempt.get(usize::from(*entry)));
            is_exempt = is_exempt || asked.any(|exempt| exempt.surely_hold(request));
        };
        ask(&self.exempt_by_value.always);
        request.look_up(&self.exempt_by_value, &[], &mut ask);
        is_exempt
    }

    /// Adds the rule `index` to `applied`, with its cost and partition, if it applies to the
    /// request.
    fn apply<F: Facts>(
        &self,
        index: u16,
        request: &Request<'_, F>,
        tenant: Option<&Arc<Tenant>>,
        applied: &mut Vec<AppliedRule>,
        partitions: &mut Partitions,
    ) {
        let Some(rule) = self.rules.get(usize::from(index)) else { return };
        let when = match &rule.terms.when {
            Some(when) => when.hold(request, rule.indexed_by, Reading::Any),
            None => Ok(true),
        };
        let is_let_off =
            || rule.terms.unless.as_ref().is_some_and(|unless| unless.surely_hold(request));
        if when == Ok(false) || is_let_off() {
            return;
        }
        let keys = &mut partitions.keys;
        let start = keys.len();
        let counted = match when.and_then(|_| self.counted(index, tenant, request, keys)) {
            Ok(None) => return keys.truncate(start),
            Ok(Some(counted)) => Ok(counted),
            Err(malformed) => Err(malformed),
        };
        let key = keys.get(start..).unwrap_or_default();
        let enforced = match &counted {
            Ok(_) => rule.is_enforced_for(key, self.response.hash_key),
            Err(_) => rule.is_enforced_for_any(),
        };
        let (counted, malformed) = match counted {
            Ok(counted) => (counted, None),
            Err(malformed) => (Counted::nothing(rule), Some(malformed)),
        };
        let (counted_in, due) = if counted.has_key {
            let place = self.partition_of(rule, &counted.set, tenant, start, partitions);
            (CountedIn::Partition(place), rule.due)
        } else {
            keys.truncate(start);
            self.without_partition(rule, &counted.set, malformed)
        };
        applied.push(AppliedRule {
            rule: index,
            set: counted.set,
            by_entry: counted.by_entry,
            cost: counted.cost,
            counted_in,
            first_decision: 0,
            effect: Effect::new(enforced, &rule.terms.action),
            due,
            rank: rule.rank_of(request),
            located: None,
            charged: None,
            rejected_waiting: false,
            basis: Basis::Count,
        });
    }

    /// Appends the key by which the rule `index` counts a request to `keys`, and returns the other
    /// properties to count. Returns `None` when a part of the key is missing and the rule skips
    /// such requests.
    fn counted<F: Facts>(
        &self,
        index: u16,
        tenant: Option<&Arc<Tenant>>,
        request: &Request<'_, F>,
        keys: &mut Vec<u8>,
    ) -> Result<Option<Counted>, Malformed> {
        let start = keys.len();
        let Some(rule) = self.rules.get(usize::from(index)) else { return Ok(None) };
        let Some(group) = self.groups.get(usize::from(rule.terms.group)) else { return Ok(None) };
        if rule.is_in_dispute(group, request.paths()) {
            return Err(Malformed::Path);
        }
        let complete = write_key(group, rule, request, keys)?;
        if !complete && rule.terms.on_missing != OnMissing::Deny {
            keys.truncate(start);
            if rule.terms.on_missing == OnMissing::Skip {
                return Ok(None);
            }
            write_shared_key(group, keys);
        }
        let key = keys.get(start..).unwrap_or_default();
        let choice = tenant.and_then(|tenant| Choice::of(tenant, index));
        let (set, by_entry) = rule.set_for(request, group, key, choice)?;
        Ok(Some(Counted {
            by_entry,
            cost: rule.terms.cost.of(request)?.saturating_mul(request.facts.hits().unwrap_or(1)),
            has_key: (complete || rule.terms.on_missing == OnMissing::Shared)
                && !((self.is_special || tenant.is_some()) && self.is_closed(&set)),
            set,
        }))
    }
}

/// The properties of a request that a rule counts, except its key.
struct Counted {
    set: AppliedSet,
    /// The priority of the tenant's entry that selected the quotas.
    by_entry: Option<u32>,
    cost: u64,
    /// False when a part is missing and the rule denies such requests, and when its quota denies
    /// every request.
    has_key: bool,
}

impl Counted {
    /// The value for a request that the rule cannot read.
    const fn nothing(rule: &Rule) -> Self {
        Self { set: AppliedSet::OfPolicy(rule.set), by_entry: None, cost: 0, has_key: false }
    }
}

impl Rule {
    /// True when the rule is enforced for any key. An unreadable request might have any of them.
    const fn is_enforced_for_any(&self) -> bool {
        !matches!(self.terms.mode, Mode::Shadow | Mode::EnforcePercent(Share { percent: 0, .. }))
    }

    /// True when the rule is enforced for `key`: the same keys every time, and on every node if the
    /// rule has a salt.
    fn is_enforced_for(&self, key: &[u8], secret: Option<[u8; 16]>) -> bool {
        match self.terms.mode {
            Mode::Enforce => true,
            Mode::Shadow => false,
            Mode::EnforcePercent(share) => share.holds(self.name(), key, secret),
        }
    }

    /// The priority of this request in the queue: 0 goes first.
    fn rank_of<F: Facts>(&self, request: &Request<'_, F>) -> u8 {
        match self.priorities() {
            [] => 0,
            priorities => rank_among(priorities, request),
        }
    }

    /// The quotas for this request: those of the first tier that matches, else the rule's own. The
    /// quotas in a tenant's entry take precedence over every tier of no higher priority; the
    /// priority of the entry is then returned too.
    fn set_for<F: Facts>(
        &self,
        request: &Request<'_, F>,
        group: &Group,
        key: &[u8],
        choice: Option<Choice>,
    ) -> Result<(AppliedSet, Option<u32>), Malformed> {
        if !self.tiers.is_empty() {
            let above = choice.as_ref().map(|choice| choice.priority);
            if let Some(tier) = self.tier_for(request, group, key, above)? {
                return Ok((AppliedSet::OfPolicy(tier.set), None));
            }
        }
        let own = || (AppliedSet::OfPolicy(self.set), None);
        Ok(choice.map_or_else(own, |choice| (choice.set, Some(choice.priority))))
    }

    /// The first tier that matches this request and, if `above` is given, has a higher priority
    /// than that.
    ///
    /// # Errors
    /// It is unclear whether an earlier tier matches.
    #[inline(never)] // few rules have tiers
    fn tier_for<F: Facts>(
        &self,
        request: &Request<'_, F>,
        group: &Group,
        key: &[u8],
        above: Option<u32>,
    ) -> Result<Option<&Tier>, Malformed> {
        let is_above = |tier: &Tier| above.is_none_or(|priority| tier.priority > priority);
        let tiers = self.tiers.get(..self.tiers.partition_point(is_above));
        self.first_tier(tiers.unwrap_or_default(), request, group, key)
    }

    /// The first of `tiers`, a prefix of the rule's tiers, that matches this request.
    ///
    /// # Errors
    /// It is unclear whether an earlier tier matches.
    pub(super) fn first_tier<'t, F: Facts>(
        &self,
        tiers: &'t [Tier],
        request: &Request<'_, F>,
        group: &Group,
        key: &[u8],
    ) -> Result<Option<&'t Tier>, Malformed> {
        let (mut first, mut answer) = (tiers.len(), Ok(None));
        let mut ask = |entries: &[u16]| {
            for place in entries.iter().map(|entry| usize::from(*entry)) {
                let Some(tier) = tiers.get(place).filter(|_| place < first) else { return };
                let is_for = tier.is_for(request, group, key);
                if is_for != Ok(false) {
                    (first, answer) = (place, is_for.map(|_| Some(tier)));
                    return;
                }
            }
        };
        ask(&self.tiers_by_value.always);
        request.look_up(&self.tiers_by_value, key, &mut ask);
        answer
    }
}

impl Tier {
    /// True when it matches a request that is counted by `key`.
    ///
    /// # Errors
    /// It is unclear whether it matches.
    pub(super) fn is_for<F: Facts>(
        &self,
        request: &Request<'_, F>,
        group: &Group,
        key: &[u8],
    ) -> Result<bool, Malformed> {
        let reading = Reading::Main(request.settings.spec.repeated, self.repeated);
        let is_for_key = self.key_values.is_empty() || self.names_part_of(group, key);
        let holds = |when: &Conditions| when.hold(request, IndexedBy::Nothing, reading);
        Ok(is_for_key && self.when.as_ref().map_or(Ok(true), holds)?)
    }

    /// True when a part of `key` has one of the values. The bytes of an address are not text:
    /// neither is compared with the other. A rule that counts by the first of several parts has no
    /// such tiers.
    fn names_part_of(&self, group: &Group, key: &[u8]) -> bool {
        group.spec.key.iter().zip(parts(key)).any(|(part, value)| {
            let values = if part.is_address() { &self.addresses } else { &self.key_values };
            value
                .is_some_and(|value| values.binary_search_by(|it| it.as_slice().cmp(value)).is_ok())
        })
    }
}

impl Cost {
    /// The cost of this request, in quota units; at least 1.
    fn of<F: Facts>(&self, request: &Request<'_, F>) -> Result<u64, Malformed> {
        let number = |name: &str, repeated| match request.facts.header(name) {
            Some(value) => Ok(the_one(elements(&value), repeated)?.and_then(whole_number)),
            None => Ok(None),
        };
        Ok(match self {
            Self::Fixed(cost) => *cost,
            Self::Reported => 1, // per hit
            Self::Header { name, default, max, repeated } => {
                let repeated = Repeated::of_one(*repeated, request.settings.spec.repeated);
                number(&name.0, repeated)?.unwrap_or(*default).clamp(1, *max)
            }
            Self::ContentLengthPer(bytes) => {
                // RFC 9110, 8.6: of differing lengths none is valid.
                let length = number("content-length", Repeated::Refuse)?;
                length.map_or(1, |length| length.div_ceil(*bytes).max(1))
            }
        })
    }
}

#[inline(never)] // few rules have priorities
fn rank_among<F: Facts>(priorities: &[Conditions], request: &Request<'_, F>) -> u8 {
    let found = priorities.iter().position(|conditions| conditions.surely_hold(request));
    u8::try_from(found.unwrap_or(priorities.len())).unwrap_or(u8::MAX)
}

/// The number in `digits`; a number that is too large becomes the greatest one.
fn whole_number(digits: &[u8]) -> Option<u64> {
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    let text = core::str::from_utf8(digits).ok().filter(|_| is_number)?;
    Some(text.parse().unwrap_or(u64::MAX))
}
