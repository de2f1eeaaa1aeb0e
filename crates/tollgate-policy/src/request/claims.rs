//! The verified claims by which a policy counts, and the token of a request, for the surface that
//! verifies it.
//!
//! Invariant: nothing here trusts the token.

use alloc::vec::Vec;

use crate::facts::Facts;
use crate::policy::compiled::Policy;
use crate::spec::jwt::Jwt;
use crate::spec::key::KeySource;
use tollgate_http_syntax::header::token;

/// The verified claims by which a policy counts requests: [`Policy::claims`].
#[derive(Clone, Copy, Debug)]
pub struct Claims<'p> {
    policy: &'p Policy,
    jwt: &'p Jwt,
}

impl Policy {
    /// The claims by which it counts requests; `None` when neither a rule's key nor the tenant key
    /// uses a claim.
    #[must_use]
    pub fn claims(&self) -> Option<Claims<'_>> {
        let is_read =
            self.all_key_parts().any(|part| matches!(part.source, KeySource::JwtClaim(_)));
        let jwt = self.jwt.as_ref().filter(|_| is_read)?;
        Some(Claims { policy: self, jwt })
    }
}

impl<'p> Claims<'p> {
    /// Their source, and how a token is verified.
    #[must_use]
    pub const fn jwt(&self) -> &'p Jwt {
        self.jwt
    }

    /// Worker: the token of a request. `None` when there are several that differ; every rule that
    /// counts by claims denies their request.
    #[must_use]
    pub fn token(&self, facts: &impl Facts) -> Option<Vec<u8>> {
        let (header, repeated) = self.policy.settings.spec.token.as_ref()?;
        let value = facts.header(&header.0)?;
        let token = token(&header.0, &value, *repeated).ok().flatten();
        token.map(<[u8]>::to_vec)
    }
}
