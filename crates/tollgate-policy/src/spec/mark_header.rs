//! Headers that a mark may set.
//!
//! Invariant: none of them describes a request, its destination or its client, so a policy never
//! changes what the origin knows about a client.

use alloc::string::String;

use crate::spec::scalar::HeaderName;

/// A header that a mark may set, in lower case: none that describes a request, its destination or
/// its client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MarkHeader(pub String);

/// Headers that frame a message, route it, or identify a client, to one hop or to an origin. A `-`
/// at the end matches every name with this prefix.
const NOT_FOR_MARKS: [&str; 43] = [
    // The message and its connection (RFC 9110, 7.6.1; RFC 9112, 6; RFC 9113, 8.2.2).
    "connection",
    "content-",
    "expect",
    "host",
    "http2-settings",
    "keep-alive",
    "proxy-",
    "te",
    "trailer",
    "trailers",
    "transfer-encoding",
    "upgrade",
    // Credentials.
    "authorization",
    "cookie",
    "cookie2",
    "set-cookie",
    // The client's address, as proxies send it.
    "cf-",
    "client-ip",
    "cluster-client-ip",
    "fastly-client-ip",
    "forwarded",
    "forwarded-for",
    "incap-client-ip",
    "remote-addr",
    "remote-user",
    "true-client-ip",
    "via",
    "x-appengine-",
    "x-azure-clientip",
    "x-azure-socketip",
    "x-client-ip",
    "x-cluster-client-ip",
    "x-forwarded",
    "x-forwarded-",
    "x-originating-ip",
    "x-real-ip",
    "x-remote-addr",
    "x-remote-ip",
    // Another target or method than the one that was decided on, and Envoy's own.
    "x-envoy-",
    "x-http-method",
    "x-http-method-override",
    "x-method-override",
    "x-original-",
];

impl MarkHeader {
    /// True for the name of a header that a mark may set.
    pub fn is_one(name: &str) -> bool {
        let means = |not: &str| name == not || not.ends_with('-') && name.starts_with(not);
        HeaderName::is_one(name) && !NOT_FOR_MARKS.iter().any(|not| means(not))
    }
}
