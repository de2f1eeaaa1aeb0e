//! From the document to the facts that the policy reads of requests, and their sources.
//!
//! Invariant: a fact that the surface itself knows is never read from a header, which any client
//! can send.

use crate::document::fact::Need;
use crate::document::jwt::JwtDoc;
use crate::document::root::Document;
use crate::document::scalar::HeaderName;
use crate::policy::client_address::ClientAddress;
use crate::policy::settings::Settings;
use crate::policy::surface::{Supply, Traits};
use tollgate_http_syntax::address::Prefixes;
use tollgate_http_syntax::readings::EscapedSlashes;
use tollgate_http_syntax::repeated::Repeated;

/// The facts that the policy reads of requests.
pub(super) fn settings(document: &Document, surface: &Traits) -> Settings {
    let client = document.client_ip.as_ref();
    let geo = document.geo.as_ref();
    // Where the surface itself knows the fact, any client could send the header.
    let named = |need| geo.filter(|_| matches!(surface.supply(need), Supply::Named(_)));
    let repeated = document.repeated.unwrap_or(Repeated::Refuse);
    Settings {
        client: ClientAddress::new(client, surface.source.clone()),
        prefixes: Prefixes {
            ipv4: client.and_then(|c| c.ipv4_prefix).map_or(32, |p| p.0),
            ipv6: client.and_then(|c| c.ipv6_prefix).map_or(64, |p| p.0),
        },
        country_header: named(Need::Country).and_then(|geo| geo.country_header.clone()),
        asn_header: named(Need::Asn).and_then(|geo| geo.asn_header.clone()),
        repeated,
        token: document
            .jwt
            .as_ref()
            .filter(|_| surface.verifies_tokens)
            .map(|jwt| token(jwt, repeated)),
        escaped_slashes: document.escaped_slashes.unwrap_or(EscapedSlashes::Separator),
        reads_path: false, // as `Policy::complete` finds it
        reads_host: false,
    }
}

/// The header with the token, and the meaning of several tokens.
fn token(jwt: &JwtDoc, default: Repeated) -> (HeaderName, Repeated) {
    let header = jwt.header.clone().unwrap_or_else(|| HeaderName("authorization".into()));
    (header, Repeated::of_one(jwt.repeated, default))
}
