//! Which counts a node goes on with by itself, as a document says it.
//!
//! Invariant: where the count of the fleet is kept there are none; a part of a limit that is too
//! small is wrong everywhere. What they are is `policy::fallback`'s.

use alloc::string::String;
use alloc::vec::Vec;

use crate::compile::identities::RecordIds;
use crate::compile::parts::parts_of;
use crate::document::on_failure::WithoutState;
use crate::document::rule::RuleDoc;
use crate::document::scope::Scope;
use crate::json::place::At;
use crate::policy::compiled::Policy;
use crate::policy::fallback::FALLBACK;
use crate::policy::group::QuotaSet;
use crate::policy::quota::CompiledQuota;
use crate::stable_hash::stable_hash;

/// What sets are to be counted in while no authority answers.
pub(super) struct Fallbacks {
    /// The surface asks an authority, which may not answer.
    asks_authority: bool,
    of_sets: Vec<(u16, Vec<CompiledQuota>)>,
}

impl Fallbacks {
    pub(super) const fn new(asks_authority: bool) -> Self {
        Self { asks_authority, of_sets: Vec::new() }
    }

    /// Takes note of what a rule says of `set`, whose quotas stand at `at`. A part that is too
    /// small is wrong on every surface.
    pub(super) fn note(&mut self, doc: &RuleDoc, set: u16, policy: &Policy, at: &At<'_>) {
        let Some(WithoutState::Local(nodes)) = doc.on_failure else { return };
        let Some(whole) = policy.sets.get(usize::from(set)) else { return };
        let parts = parts_of(&whole.quotas, nodes, |i, field, words| {
            at.item(i).field(field).problem(words);
        });
        if self.asks_authority && doc.scope() == Scope::Fleet {
            self.of_sets.push((set, parts));
        }
    }

    /// Adds them to the policy.
    pub(super) fn add(&mut self, policy: &mut Policy, ids: &mut RecordIds) {
        for (set, quotas) in core::mem::take(&mut self.of_sets) {
            add_set(set, quotas, policy, ids);
        }
    }
}

/// Adds the set that is in the place of `of`; `None` where there is no such set.
fn add_set(
    of: u16,
    quotas: Vec<CompiledQuota>,
    policy: &mut Policy,
    ids: &mut RecordIds,
) -> Option<()> {
    let whole = policy.sets.get(usize::from(of))?;
    let name = policy.rules.get(whole.rule())?.name.as_bytes();
    let tier = whole.tier().unwrap_or_default().as_bytes();
    let identities: String = quotas.iter().map(CompiledQuota::identity).collect();
    let hash = stable_hash(&[name, tier, identities.as_bytes(), FALLBACK]);
    let record_id = ids.free(hash, QuotaSet::version_of(&quotas));
    policy.add_fallback(of, record_id, quotas)
}
