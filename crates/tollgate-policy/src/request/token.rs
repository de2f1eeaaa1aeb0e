//! The token of a request, for the surface that verifies it.
//!
//! Invariant: nothing here trusts the token.

use alloc::vec::Vec;

use crate::facts::Facts;
use crate::policy::compiled::Policy;
use tollgate_http_syntax::header::token;

impl Policy {
    /// Worker: the token of a request, when a rule counts by its claims. `None` when there are
    /// several that differ; every such rule denies their request.
    #[must_use]
    pub fn token(&self, facts: &impl Facts) -> Option<Vec<u8>> {
        let (header, repeated) =
            self.settings.spec.token.as_ref().filter(|_| self.jwt().is_some())?;
        let value = facts.header(&header.0)?;
        let token = token(&header.0, &value, *repeated).ok().flatten();
        token.map(<[u8]>::to_vec)
    }
}
