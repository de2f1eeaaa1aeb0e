//! How a surface verifies tokens, as defined in the policy.
//!
//! Invariant: nothing here trusts a token. Envoy takes claims that its jwt_authn filter verified.
//! The Worker verifies the token that is found here with these keys before it plans.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::document::jwt::{JwkDoc, JwtDoc};

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

impl Jwt {
    pub(crate) fn new(doc: &JwtDoc) -> Self {
        Self {
            metadata: doc.metadata.clone(),
            header: doc
                .header
                .as_ref()
                .map_or_else(|| "authorization".to_string(), |name| name.0.clone()),
            issuer: doc.issuer.clone(),
            audiences: doc.audiences.iter().flat_map(|list| list.0.clone()).collect(),
            keys: doc.keys.iter().flat_map(|keys| keys.0.iter().map(Jwk::new)).collect(),
        }
    }
}

impl Jwk {
    fn new(doc: &JwkDoc) -> Self {
        let fields = [
            ("kty", Some(&doc.kty)),
            ("alg", Some(&doc.alg)),
            ("k", doc.k.as_ref()),
            ("n", doc.n.as_ref()),
            ("e", doc.e.as_ref()),
            ("crv", doc.crv.as_ref()),
            ("x", doc.x.as_ref()),
            ("y", doc.y.as_ref()),
        ];
        let pairs: Vec<String> = fields
            .into_iter()
            .filter_map(|(name, value)| {
                value.map(|value| format!("\"{name}\":{}", json_string(value)))
            })
            .collect();
        Self {
            alg: doc.alg.clone(),
            kid: doc.kid.clone(),
            json: format!("{{{}}}", pairs.join(",")),
        }
    }
}

fn json_string(text: &str) -> String {
    serde_json::to_string(text).unwrap_or_default()
}
