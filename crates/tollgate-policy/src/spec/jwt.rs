//! How a surface verifies tokens, as defined in the policy.
//!
//! Invariant: nothing here trusts a token. Envoy takes claims that its jwt_authn filter verified.
//! The Worker verifies the token that is found here with these keys before it plans.

use alloc::string::String;
use alloc::vec::Vec;

/// The source of verified claims.
#[derive(Clone, Debug)]
pub struct Jwt {
    /// Envoy: the `payload_in_metadata` of the jwt_authn filter in front.
    pub metadata: Option<String>,
    /// Worker: the header with the token, in lower case.
    pub header: String,
    /// Worker: the only issuer that is accepted.
    pub issuer: Option<String>,
    /// Worker: the token must be for one of these; empty: any audience is accepted.
    pub audiences: Vec<String>,
    /// Worker: the keys that sign.
    pub keys: Vec<Jwk>,
}

/// One key that signs tokens.
#[derive(Clone, Debug)]
pub struct Jwk {
    /// HS256, RS256 or ES256.
    pub alg: String,
    /// The name by which a token refers to it.
    pub kid: Option<String>,
    /// The key as JSON, for `SubtleCrypto.importKey`.
    pub json: String,
}
