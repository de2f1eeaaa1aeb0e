//! One compiled quota: a limiter, its name, and the position of its state.
//!
//! Invariant: a state is read only by a quota of the same name and parameters (`identity`).

use alloc::format;
use alloc::string::String;
use tollgate_core::{Limiter, Span};

use crate::stable_hash::stable_hash;
use tollgate_storage::Counter;

/// One compiled quota.
#[derive(Clone, Debug)]
pub struct CompiledQuota {
    pub(crate) name: String,
    /// The identity of a stored state while its quota's parameters change.
    pub(crate) name_hash: u64,
    pub(crate) limiter: Limiter,
    pub(crate) window: Span,
    /// The offset of the state in the record.
    pub(crate) offset: usize,
}

impl CompiledQuota {
    /// The quota whose state begins at `offset` in its record.
    pub(crate) fn new(name: String, limiter: Limiter, offset: usize) -> Self {
        let (name_hash, window) = (stable_hash(&[name.as_bytes()]), limiter.window());
        Self { name, name_hash, limiter, window, offset }
    }

    /// The name that is reported to clients.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The limiter that decides.
    #[must_use]
    pub const fn limiter(&self) -> &Limiter {
        &self.limiter
    }

    /// The quota's window.
    #[must_use]
    pub const fn window(&self) -> Span {
        self.window
    }

    /// The identity of this quota's stored state: its name and every parameter, written in full so
    /// that renaming a field in the core loses no state.
    pub(crate) fn identity(&self) -> String {
        let quota = self.limiter.quota();
        let algorithm = self.limiter.algorithm();
        // Weights and holds were added later: without them the text is unchanged.
        let weighted = if algorithm.is_weighted() { " weighted" } else { "" };
        let holds = if self.limiter.keeps_holds() { " holds" } else { "" };
        let (algorithm, parts) = (algorithm.name(), algorithm.buckets().unwrap_or(0));
        format!(
            "{}:{} {algorithm} {parts} {} {} {} {}{weighted}{holds}\n",
            self.name.len(),
            self.name,
            quota.limit(),
            quota.window().as_nanos(),
            quota.burst(),
            quota.is_strict()
        )
    }

    /// This quota's state among the states of its record.
    pub(crate) fn state<'v>(&self, states: &'v [u8]) -> Option<&'v [u8]> {
        states.get(self.offset..self.end()?)
    }

    pub(crate) fn state_mut<'v>(&self, states: &'v mut [u8]) -> Option<&'v mut [u8]> {
        states.get_mut(self.offset..self.end()?)
    }

    /// The offset of the end of its state in the record.
    pub(crate) const fn end(&self) -> Option<usize> {
        self.offset.checked_add(self.limiter.state_len())
    }
}

impl Counter for CompiledQuota {
    fn limiter(&self) -> &Limiter {
        &self.limiter
    }

    fn state_in<'v>(&self, states: &'v mut [u8]) -> Option<&'v mut [u8]> {
        self.state_mut(states)
    }
}
