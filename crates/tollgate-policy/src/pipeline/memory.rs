//! The memory of a plan that is kept: for another request, until the response, or while its request
//! waits.
//!
//! Invariant: a plan that is kept for a response or a turn can still be decided, settled and
//! reported, as if it had all of its buffers.

use alloc::vec::Vec;

use tollgate_core::Decision;

use crate::pipeline::applied::AppliedRule;
use crate::pipeline::key_hashes::KeyHashes;
use crate::pipeline::matched_deny::MatchedDeny;
use crate::pipeline::plan::Plan;
use crate::policy::compiled::Policy;
use crate::request::lazy::Buffers;

/// Bytes of a buffer that a plan may keep: usual requests fit, and many such plans use little
/// memory.
const MAX_KEPT: usize = 4096;

/// The buffers of a [`Plan`]: [`Plan::memory`].
#[derive(Debug)]
pub struct PlanMemory<'p>(&'p mut Plan);

impl Plan {
    /// Its buffers, for a plan that is kept.
    pub const fn memory(&mut self) -> PlanMemory<'_> {
        PlanMemory(self)
    }
}

impl PlanMemory<'_> {
    /// The number of bytes that the plan uses, including itself.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let Plan { applied, awaited, partitions, decisions, candidates, buffers, denied, .. } =
            &*self.0;
        let of = |capacity: usize, size: usize| capacity.saturating_mul(size);
        [
            size_of::<Plan>(),
            of(applied.capacity(), size_of::<AppliedRule>()),
            of(awaited.rules.capacity(), size_of::<AppliedRule>()),
            of(decisions.capacity(), size_of::<Decision>()),
            of(awaited.decisions.capacity(), size_of::<Decision>()),
            of(candidates.capacity(), size_of::<u16>()),
            of(denied.capacity(), size_of::<MatchedDeny>()),
            partitions.capacity(),
            buffers.capacity(),
        ]
        .into_iter()
        .fold(0, usize::saturating_add)
    }

    /// Clears the plan and frees the buffers that a long request made grow: for a plan that is kept
    /// for another request.
    pub fn forget_long(&mut self) {
        let Self(plan) = self;
        plan.clear();
        for buffer in plan.buffers.all().chain([&mut plan.partitions.keys, &mut plan.tenant]) {
            if buffer.capacity() > MAX_KEPT {
                *buffer = Vec::new();
            }
        }
    }

    /// Frees the buffers that a long request made grow, for a plan that is kept until the response.
    /// A key longer than `longest` is replaced by its digest, here and in the store; the hash
    /// reported to clients is unchanged. `digest` also receives the index of the key's group: for a
    /// group of the fleet the digest is the [`key_hash`](tollgate_storage::key_hash), the same for
    /// all nodes.
    pub fn trim(
        &mut self,
        policy: &Policy,
        longest: usize,
        digest: impl Fn(usize, &[u8]) -> [u8; 16],
    ) {
        let Self(plan) = self;
        for buffer in plan.buffers.all() {
            if buffer.capacity() > longest {
                *buffer = Vec::new();
            }
        }
        let shorten = |group: u16, key: &[u8]| {
            (KeyHashes::new(key, &policy.response), digest(group.into(), key))
        };
        plan.partitions.shorten_keys(longest, shorten);
    }

    /// Makes the plan small, to keep it while its request waits or its response lasts, and returns
    /// the number of bytes that it uses then. The stored values are freed, never the keys, and
    /// nothing of the request is kept: load and decide the plan again afterwards.
    pub fn shrink(&mut self) -> usize {
        let Plan { applied, awaited, partitions, decisions, candidates, buffers, denied, .. } =
            &mut *self.0;
        partitions.shrink();
        applied.shrink_to_fit();
        denied.shrink_to_fit();
        decisions.shrink_to_fit();
        awaited.rules.shrink_to_fit();
        awaited.decisions.shrink_to_fit();
        *candidates = Vec::new();
        *buffers = Buffers::default();
        self.bytes()
    }
}
