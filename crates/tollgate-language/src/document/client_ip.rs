//! The address of the client.
//!
//! Invariant: nothing that a client can write is trusted unless the document names the source that
//! vouches for it.

use crate::document::lists::NonEmpty;
use crate::json::node::Node;
use crate::json::place::At;
use crate::json::reader::{FromNode, record, schema};
use crate::json::suggest::unknown;
use tollgate_http_syntax::address::Cidr;
use tollgate_policy::spec::{Bounded, HeaderName, Source};

record! {
    /// The address of the client.
    ClientIpDoc {
        /// The source of the address.
        source: Option<Source>,
        /// Networks of proxies that may name other clients. The list of addresses is read from the
        /// right, past addresses in these networks.
        trusted_proxies: Option<NonEmpty<Cidr>>,
        /// The position of the client's entry in the list, counted from the right; instead of
        /// trusted_proxies.
        trusted_hops: Option<Bounded<1, 16>>,
        /// The number of leading bits of an IPv4 address that identify one client; 32 by default.
        ipv4_prefix: Option<Bounded<0, 32>>,
        /// The number of leading bits of an IPv6 address that identify one client; 64 by default.
        ipv6_prefix: Option<Bounded<0, 128>>,
    }
}

record! {
    /// The name of a header.
    NamedHeader {
        /// The header's name.
        header: HeaderName,
    }
}

impl FromNode for Source {
    fn read(node: &Node, at: &At<'_>) -> Option<Self> {
        const NAMES: &[&str] = &["connection", "x-forwarded-for", "forwarded", "cf-connecting-ip"];
        match node {
            Node::Text(text) => match text.as_str() {
                "connection" => Some(Self::Connection),
                "x-forwarded-for" => Some(Self::XForwardedFor),
                "forwarded" => Some(Self::Forwarded),
                "cf-connecting-ip" => Some(Self::CfConnectingIp),
                other => {
                    at.problem(unknown("source", other, NAMES));
                    None
                }
            },
            Node::Object(_) => NamedHeader::read(node, at).map(|part| Self::Header(part.header)),
            _ => at.not_text(node, "a source; use a name or {\"header\": name}"),
        }
    }

    schema!({"anyOf": [
        {"enum": ["connection", "x-forwarded-for", "forwarded", "cf-connecting-ip"]}, NamedHeader::schema()
    ]});
}

record! {
    /// Envoy: the headers in which a trusted proxy in front sends the values that Cloudflare itself
    /// provides.
    GeoDoc {
        /// The header with the client's two-letter country code.
        country_header: Option<HeaderName>,
        /// The header with the client's autonomous system number.
        asn_header: Option<HeaderName>,
    }
}
