//! One compiled quota: a limiter, its name, and the position of its state.
//!
//! Invariant: a state is read only by a quota of the same name and parameters
//! ([`QuotaSpec::identity`]).

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use tollgate_core::{Limiter, Span};

use crate::policy::field_template::FieldTemplate;
use crate::spec::limit_from::LimitFrom;
use crate::spec::quota::QuotaSpec;
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
    /// Where a request has its limit, if it brings one with it.
    pub(crate) limit_from: Option<Box<LimitFrom>>,
    /// What its header fields always begin with; `None` for the quotas of a record.
    pub(crate) template: Option<Arc<FieldTemplate>>,
}

impl CompiledQuota {
    /// The quota whose state begins at `offset` in its record.
    pub(crate) fn new(name: String, limiter: Limiter, offset: usize) -> Self {
        let (name_hash, window) = (stable_hash(&[name.as_bytes()]), limiter.window());
        Self { name, name_hash, limiter, window, offset, limit_from: None, template: None }
    }

    /// The quotas with their states one after the other.
    pub(crate) fn placed(quotas: impl IntoIterator<Item = QuotaSpec>) -> Vec<Self> {
        let mut offset = 0_usize;
        let place = |QuotaSpec { name, limiter, limit_from }| {
            let template = FieldTemplate::new(&name, &limiter).map(Arc::new);
            let quota = Self::new(name, limiter, offset);
            let quota = Self { limit_from: limit_from.map(Box::new), template, ..quota };
            offset = offset.saturating_add(limiter.state_len());
            quota
        };
        quotas.into_iter().map(place).collect()
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

    /// Where a request has its limit, if it brings one with it: the limiter then counts up to the
    /// highest one.
    #[must_use]
    pub fn limit_from(&self) -> Option<&LimitFrom> {
        self.limit_from.as_deref()
    }

    /// The quota's window.
    #[must_use]
    pub const fn window(&self) -> Span {
        self.window
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
