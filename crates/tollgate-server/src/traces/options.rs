//! The collector of traces, and the share of traced requests.
//!
//! Invariant: a collector is reached over HTTP, without TLS. To reach a remote collector, run one
//! on this machine that forwards to it.

use hyper::Uri;
use hyper::header::{HeaderName, HeaderValue};
use tollgate_http_syntax::percent::decoded;
use tollgate_service::log::Share;

/// The path of OTLP over HTTP (OTLP specification, "OTLP/HTTP Request").
const PATH: &str = "/v1/traces";

/// The configuration of traces.
#[derive(Clone, Debug)]
pub struct Options {
    /// The collector.
    pub collector: Collector,
    /// The share of traced requests whose caller sends no trace information.
    pub share: Share,
    /// The name of this service.
    pub service: String,
    /// Further attributes of this service.
    pub attributes: Vec<(String, String)>,
}

/// A collector.
#[derive(Clone)]
pub struct Collector {
    /// `host:port`.
    pub(super) authority: String,
    pub(super) path: String,
    /// Fields of every request, such as a token.
    pub(crate) fields: Vec<(HeaderName, HeaderValue)>,
}

impl std::fmt::Debug for Collector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The fields may contain secrets.
        f.debug_struct("Collector").field("authority", &self.authority).finish_non_exhaustive()
    }
}

impl Collector {
    /// The error message for a mistake in an address.
    pub(crate) const WANTED: &str = "is not the address of a collector; use one such as \"http://127.0.0.1:4318\": HTTP, in the \
                                     clear, without a name or a query in it";

    /// Reads `http://127.0.0.1:4318`: the path of OTLP is appended, unless `is_whole`.
    pub(crate) fn parse(text: &str, is_whole: bool) -> Option<Self> {
        let uri: Uri = text.parse().ok()?;
        let authority = uri.authority()?;
        let is_plain = uri.scheme_str() == Some("http")
            && uri.query().is_none()
            && !authority.as_str().contains('@');
        let path = uri.path().trim_end_matches('/');
        let path = match (is_whole, path) {
            (true, "") => "/".to_owned(),
            (true, path) => path.to_owned(),
            (false, path) => format!("{path}{PATH}"),
        };
        let port = authority.port_u16().unwrap_or(80);
        let authority = format!("{}:{port}", authority.host());
        is_plain.then_some(Self { authority, path, fields: Vec::new() })
    }
}

/// Reads `name=value,name=value`, values percent-encoded, as the variables of OpenTelemetry have it
/// (W3C Baggage, 3.3); `None` for anything else.
pub(crate) fn pairs(text: &str) -> Option<Vec<(String, String)>> {
    let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
    parts
        .map(|part| {
            let (name, value) = part.split_once('=')?;
            let name = name.trim();
            (!name.is_empty()).then_some((name.to_owned(), decoded(value.trim())?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collector_is_an_address_over_http() {
        let read = |text: &str, is_whole| {
            let collector = Collector::parse(text, is_whole);
            collector.map(|it| format!("{} {}", it.authority, it.path))
        };
        for (text, base, whole) in [
            ("http://127.0.0.1:4318", "127.0.0.1:4318 /v1/traces", "127.0.0.1:4318 /"),
            ("http://a.example/otlp/", "a.example:80 /otlp/v1/traces", "a.example:80 /otlp"),
            ("http://[::1]:1/", "[::1]:1 /v1/traces", "[::1]:1 /"),
        ] {
            assert_eq!(read(text, false).as_deref(), Some(base));
            assert_eq!(read(text, true).as_deref(), Some(whole));
        }
        for wrong in
            ["", "127.0.0.1:4318", "https://a", "http://a?b", "http://u:p@a", "http://", "/a"]
        {
            assert_eq!(read(wrong, false), None, "{wrong}");
        }
    }

    #[test]
    fn pairs_are_decoded() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let read = pairs("authorization=Bearer%20x, a = b=c ,");
        assert_eq!(read, Some(vec![pair("authorization", "Bearer x"), pair("a", "b=c")]));
        assert_eq!(pairs(""), Some(vec![]));
        for wrong in ["a", "=b", "a=%", "a=%zz", "a=%+1", "a=%ff"] {
            assert_eq!(pairs(wrong), None, "{wrong}");
        }
    }
}
