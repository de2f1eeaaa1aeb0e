//! The tenant of a request, and the effect of its entry on a rule.
//!
//! Invariant: an entry changes the quotas in which a rule counts, and where it counts in the
//! tenant's own quotas, never whether the rule applies. Only requests of a tenant count in its own
//! quotas: the partition's key identifies the tenant, by an additional part if the rule's key does
//! not.

use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::facts::Facts;
use crate::pipeline::applied::AppliedSet;
use crate::pipeline::partitions::Partitions;
use crate::pipeline::plan::Plan;
use crate::policy::compiled::Policy;
use crate::policy::rule::Rule;
use crate::policy::tenant::{Tenant, TenantSet};
use crate::request::key::{parts, write_part, write_text};
use crate::request::lazy::Request;
use crate::spec::key::KeySource;
use crate::spec::key_item::items;
use crate::spec::on_failure::OnFailure;
use crate::spec::tenant::MAX_TENANT_ID;
use tollgate_http_syntax::malformed::Malformed;

/// The tenant of a plan's request: [`Plan::tenant`].
#[derive(Clone, Copy, Debug)]
pub struct RequestTenant<'p>(&'p Plan);

impl Plan {
    /// The tenant of the request, when a rule applies to it. Request its entry from the store, and
    /// if there is one, plan again with [`Policy::plan_for`].
    #[must_use]
    pub fn tenant(&self) -> Option<RequestTenant<'_>> {
        (!self.tenant.is_empty()).then_some(RequestTenant(self))
    }
}

impl<'p> RequestTenant<'p> {
    /// Its canonical bytes. They contain data from the client: hash them, never log them.
    #[must_use]
    pub fn id(&self) -> &'p [u8] {
        &self.0.tenant
    }

    /// True when a count has decided under the entry given to
    /// [`Tenants::ask_under`](crate::Tenants::ask_under): the tenant has that entry. False while
    /// there is no reply, and for every other reply.
    #[must_use]
    pub fn has_confirmed_entry(&self) -> bool {
        let mut asked = self.0.partitions.live().iter().filter(|stored| stored.under.is_some());
        asked.any(|stored| stored.status.is_decided())
    }

    /// True when a rule that applies denies on failure to read its state. It also denies when the
    /// tenant's quotas are unknown.
    #[must_use]
    pub fn fails_closed(&self, policy: &Policy) -> bool {
        self.0.applied.iter().filter(|applied| applied.is_binding()).any(|applied| {
            let rule = policy.rules.get(usize::from(applied.rule));
            rule.is_some_and(|rule| rule.terms.on_failure == OnFailure::Deny)
        })
    }
}

/// The quotas in a tenant's entry for a rule, and their priority relative to the rule's tiers.
pub(crate) struct Choice {
    pub(crate) set: AppliedSet,
    pub(crate) priority: u32,
}

impl Choice {
    /// The quotas of `tenant` for the rule `index`.
    pub(crate) fn of(tenant: &Arc<Tenant>, index: u16) -> Option<Self> {
        let set = match tenant.in_rule(index)? {
            TenantSet::Tier(set) => AppliedSet::OfPolicy(set),
            TenantSet::Own(set) => AppliedSet::OfTenant(Arc::clone(tenant), set),
        };
        Some(Self { set, priority: tenant.priority })
    }
}

impl Policy {
    /// Writes the tenant of a request to `out`; leaves it empty when there is none, and when no
    /// rule of `candidates` may apply. No tenant is longer than [`MAX_TENANT_ID`].
    ///
    /// # Errors
    /// It has several values, and none of them is valid.
    pub(crate) fn write_tenant<F: Facts>(
        &self,
        request: &Request<'_, F>,
        candidates: &[u16],
        out: &mut Vec<u8>,
    ) -> Result<(), Malformed> {
        let Some(key) = &self.tenant else { return Ok(()) };
        let mut rules = candidates.iter().filter_map(|rule| self.rules.get(usize::from(*rule)));
        let rule = if let KeySource::PathParam(name) = &key.part.source {
            // If several rules' paths contain a tenant, the first one counts.
            rules.find(|rule| rule.capture(name, request.paths()).is_some())
        } else {
            rules.next()
        };
        let Some(rule) = rule else { return Ok(()) };
        if rule.reads_in_dispute(&key.part, request.paths()) {
            return Err(Malformed::Path);
        }
        write_part(&key.part, rule, request, out)?;
        if out.len() > MAX_TENANT_ID {
            out.clear();
        }
        Ok(())
    }

    /// The partition of the key that was just written from `start`.
    pub(crate) fn partition_of(
        &self,
        rule: &Rule,
        set: &AppliedSet,
        tenant: Option<&Arc<Tenant>>,
        start: usize,
        partitions: &mut Partitions,
    ) -> usize {
        let Some(tenant) = tenant.filter(|tenant| self.has_own(tenant, rule.terms.group)) else {
            return partitions.of_key(rule.terms.group, start);
        };
        let key = partitions.keys.get(start..).unwrap_or_default();
        let mut is_the_tenants = self.names(tenant, rule, key);
        if matches!(set, AppliedSet::OfTenant(..)) && !is_the_tenants {
            write_text(&tenant.id, &mut partitions.keys);
            is_the_tenants = true;
        }
        let partition = partitions.of_key(rule.terms.group, start);
        if let Some((stored, _)) = partitions.get_mut(partition).filter(|_| is_the_tenants) {
            stored.tenant = Some(Arc::clone(tenant));
        }
        partition
    }

    /// True when the tenant has its own quotas that count in values of this group.
    fn has_own(&self, tenant: &Tenant, group: u16) -> bool {
        tenant
            .sets
            .iter()
            .any(|set| self.rules.get(set.rule()).is_some_and(|rule| rule.terms.group == group))
    }

    /// True when a part of `key`, by which `rule` counts, identifies this tenant.
    fn names(&self, tenant: &Tenant, rule: &Rule, key: &[u8]) -> bool {
        let Some(wanted) = &self.tenant else { return false };
        let group = self.groups.get(usize::from(rule.terms.group));
        group.is_some_and(|group| {
            let mut values = items(&group.spec.key).zip(parts(key));
            values.any(|(item, value)| item.is(&wanted.part) && value == Some(&*tenant.id))
        })
    }
}
