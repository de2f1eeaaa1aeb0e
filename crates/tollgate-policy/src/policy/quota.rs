//! One quota as compiled: a limiter, its name, and where its state lies.
//!
//! Invariant: a state is read only by a quota of the same name and parameters (`identity`).

use alloc::format;
use alloc::string::String;
use tollgate_core::{Limiter, Span};

use crate::stable_hash::stable_hash;

/// One quota as compiled.
#[derive(Clone, Debug)]
pub struct CompiledQuota {
    pub(crate) name: String,
    /// What a stored state is known by while its quota's parameters change.
    pub(crate) name_hash: u64,
    pub(crate) limiter: Limiter,
    pub(crate) window: Span,
    /// Where the state begins in the record.
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

    /// What decides.
    #[must_use]
    pub const fn limiter(&self) -> &Limiter {
        &self.limiter
    }

    /// The quota's window.
    #[must_use]
    pub const fn window(&self) -> Span {
        self.window
    }

    /// What makes a stored state this quota's: its name and every parameter, spelled out so that
    /// renaming a field in the core forgets nothing.
    pub(crate) fn identity(&self) -> String {
        let quota = self.limiter.quota();
        let algorithm = self.limiter.algorithm();
        // Weights and holds came later: without them the text is what it always was.
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

    /// Where its state ends in the record.
    pub(crate) const fn end(&self) -> Option<usize> {
        self.offset.checked_add(self.limiter.state_len())
    }
}
