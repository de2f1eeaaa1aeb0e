//! The source of verified claims.
//!
//! Invariant: a token that was not verified is never read. A masked key, as in a policy that was
//! read from an operator's API, verifies nothing: only a surface that verifies no tokens accepts a
//! document with one.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use tollgate_http_syntax::repeated::Repeated;
use tollgate_policy::spec::{HeaderName, Jwk, Jwt};

use crate::document::lists::NonEmpty;
use crate::json::node::Node;
use crate::json::reader::record;

record! {
    /// The source of verified claims; a token that was not verified is never read.
    JwtDoc {
        /// Envoy: the `payload_in_metadata` of the jwt_authn filter in front.
        metadata: Option<String>,
        /// Worker: the header with the token, after "Bearer "; authorization by default.
        header: Option<HeaderName>,
        /// Worker: the meaning of several tokens that differ; "join" is not allowed.
        repeated: Option<Repeated>,
        /// Worker: the only accepted issuer.
        issuer: Option<String>,
        /// Worker: the accepted audiences; the token must have one of them.
        audiences: Option<NonEmpty<String>>,
        /// Worker: the keys that verify tokens, as JSON Web Keys (RFC 7517).
        keys: Option<NonEmpty<JwkDoc>>,
    }
}

record! {
    /// A JSON Web Key for HS256 (`kty` "oct"), RS256 ("RSA") or ES256 ("EC").
    #[derive(PartialEq, Eq)]
    JwkDoc {
        /// The key type: oct, RSA or EC.
        kty: String,
        /// The algorithm: HS256, RS256 or ES256.
        alg: String,
        /// The key's name in tokens.
        kid: Option<String>,
        /// The key's purpose; not read.
        r#use: Option<String>,
        /// oct: the key, base64url.
        k: Option<String>,
        /// RSA: the modulus, base64url.
        n: Option<String>,
        /// RSA: the exponent, base64url.
        e: Option<String>,
        /// EC: the curve, P-256.
        crv: Option<String>,
        /// EC: the x coordinate, base64url.
        x: Option<String>,
        /// EC: the y coordinate, base64url.
        y: Option<String>,
    }
}

impl JwtDoc {
    /// The source of verified claims, with the defaults filled in.
    pub(crate) fn jwt(&self) -> Jwt {
        Jwt {
            metadata: self.metadata.clone(),
            header: self
                .header
                .as_ref()
                .map_or_else(|| "authorization".to_string(), |name| name.0.clone()),
            issuer: self.issuer.clone(),
            audiences: self.audiences.iter().flat_map(|list| list.0.clone()).collect(),
            keys: self.keys.iter().flat_map(|keys| keys.0.iter().map(JwkDoc::jwk)).collect(),
        }
    }
}

impl JwkDoc {
    fn jwk(&self) -> Jwk {
        let fields = [
            ("kty", Some(&self.kty)),
            ("alg", Some(&self.alg)),
            ("k", self.k.as_ref()),
            ("n", self.n.as_ref()),
            ("e", self.e.as_ref()),
            ("crv", self.crv.as_ref()),
            ("x", self.x.as_ref()),
            ("y", self.y.as_ref()),
        ];
        let pairs: Vec<String> = fields
            .into_iter()
            .filter_map(|(name, value)| {
                value.map(|value| format!("\"{name}\":{}", json_string(value)))
            })
            .collect();
        Jwk {
            alg: self.alg.clone(),
            kid: self.kid.clone(),
            json: format!("{{{}}}", pairs.join(",")),
        }
    }
}

fn json_string(text: &str) -> String {
    serde_json::to_string(text).unwrap_or_default()
}

/// `document` without masked keys.
pub(crate) fn without_masked_keys(mut document: Node) -> Node {
    let Node::Object(fields) = &mut document else { return document };
    for (_, jwt) in fields.iter_mut().filter(|(name, _)| name == "jwt") {
        let Node::Object(members) = jwt else { continue };
        members.retain_mut(|(name, keys)| {
            let Node::List(keys) = keys else { return true };
            if name != "keys" || !keys.iter().any(is_masked) {
                return true;
            }
            keys.retain(|key| !is_masked(key));
            !keys.is_empty()
        });
    }
    document
}

fn is_masked(key: &Node) -> bool {
    let Node::Object(members) = key else { return false };
    let is_known = |name: &str| matches!(name, "masked" | "kid" | "index");
    members.len() == 2
        && members.iter().all(|(name, _)| is_known(name))
        && members.iter().any(|(name, value)| name == "masked" && *value == Node::Bool(true))
}
