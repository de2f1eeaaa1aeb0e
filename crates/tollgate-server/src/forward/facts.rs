//! The request that a proxy asks about.
//!
//! Invariant: a fact comes from the proxy or is absent. Each of the proxy's fields has one value,
//! or the request is denied: with two, one may be the client's, and they cannot be distinguished.
//! Our own names (x-tollgate-...) are never facts, so that no token becomes a key.

use std::borrow::Cow;
use std::net::IpAddr;

use hyper::Method;
use hyper::header::{HeaderMap, HeaderValue};
use hyper::http::request::Parts;
use tollgate_http_syntax::forwarded::zoned;
use tollgate_policy::Facts;

use super::shape::Shape;

/// The fields that nginx is configured to set.
const METHOD: &str = "x-original-method";
const TARGET: &str = "x-original-uri";
/// The fields that Traefik and Caddy set.
const FORWARDED_METHOD: &str = "x-forwarded-method";
const FORWARDED_TARGET: &str = "x-forwarded-uri";
const FORWARDED_HOST: &str = "x-forwarded-host";
const FORWARDED_FOR: &str = "x-forwarded-for";
/// The address of the other end of the proxy's connection, for a proxy without its own field for
/// that.
const CLIENT: &str = "x-tollgate-client";
/// The length of its body, since the auth request has no body.
const CONTENT_LENGTH: &str = "x-tollgate-content-length";
/// The prefix of our names.
const OURS: &str = "x-tollgate-";

/// The request that a proxy holds.
#[derive(Debug)]
pub(super) struct Original<'h> {
    headers: &'h HeaderMap,
    method: &'h [u8],
    target: &'h [u8],
    host: Option<&'h [u8]>,
    peer: Option<IpAddr>,
    content_length: Option<&'h [u8]>,
    /// The list of addresses that came to the proxy, if the proxy appends to that list.
    forwarded_for: Option<Vec<u8>>,
    appends: bool,
}

impl<'h> Original<'h> {
    /// Reads the described request; `behind` is the rest of the path after ours.
    ///
    /// # Errors
    /// The mistake, in words that contain nothing that a client sent.
    pub(super) fn read(shape: Shape, head: &'h Parts, behind: &'h str) -> Result<Self, String> {
        let headers = &head.headers;
        let host = || {
            let authority = head.uri.authority().map(|it| it.as_str().as_bytes());
            Ok::<_, String>(one(headers, "host")?.or(authority))
        };
        let read = match shape {
            Shape::Envoy => Self {
                headers,
                method: head.method.as_str().as_bytes(),
                target: behind.as_bytes(),
                host: host()?,
                peer: address(given(headers, CLIENT)?, CLIENT)?,
                content_length: one(headers, CONTENT_LENGTH)?,
                forwarded_for: None,
                appends: false,
            },
            Shape::Nginx => Self {
                headers,
                method: given(headers, METHOD)?,
                target: given(headers, TARGET)?,
                host: host()?,
                peer: address(given(headers, CLIENT)?, CLIENT)?,
                content_length: one(headers, CONTENT_LENGTH)?,
                forwarded_for: None,
                appends: false,
            },
            Shape::Forwarded => {
                let (before, last) = appended(headers)?;
                Self {
                    headers,
                    method: given(headers, FORWARDED_METHOD)?,
                    target: given(headers, FORWARDED_TARGET)?,
                    host: one(headers, FORWARDED_HOST)?,
                    peer: address(&last, FORWARDED_FOR)?,
                    content_length: None,
                    forwarded_for: before,
                    appends: true,
                }
            }
        };
        if Method::from_bytes(read.method).is_err() {
            return Err(format!("{} is not a method", named(shape)[0]));
        }
        // Envoy also asks about CONNECT, which has no path.
        let is_path = matches!(read.target.first(), Some(b'/'))
            || read.target == b"*"
            || (shape == Shape::Envoy && read.target.is_empty());
        if !is_path {
            return Err(format!("{} is not a path that begins with /", named(shape)[1]));
        }
        Ok(read)
    }
}

/// The names of the method and the target in an error message.
const fn named(shape: Shape) -> [&'static str; 2] {
    match shape {
        Shape::Envoy => ["the method", "the path behind the prefix"],
        Shape::Nginx => [METHOD, TARGET],
        Shape::Forwarded => [FORWARDED_METHOD, FORWARDED_TARGET],
    }
}

/// The value of a field that may occur once; an empty value counts as absent.
fn one<'h>(headers: &'h HeaderMap, name: &str) -> Result<Option<&'h [u8]>, String> {
    let mut lines = headers.get_all(name).iter().map(HeaderValue::as_bytes);
    let first = lines.next().map(<[u8]>::trim_ascii).filter(|value| !value.is_empty());
    match lines.next() {
        None => Ok(first),
        Some(_) => Err(format!(
            "{name} came twice: the proxy is to replace what its client sends under this name"
        )),
    }
}

/// The value of a required field.
fn given<'h>(headers: &'h HeaderMap, name: &str) -> Result<&'h [u8], String> {
    one(headers, name)?.ok_or_else(|| format!("{name} is missing: the proxy is to set it"))
}

/// An address as proxies write it, perhaps with a zone; `None` for a socket without an address.
fn address(text: &[u8], name: &str) -> Result<Option<IpAddr>, String> {
    let text = text.trim_ascii();
    if text == b"unix:" {
        return Ok(None);
    }
    let text = std::str::from_utf8(text).unwrap_or_default();
    zoned(text).map(Some).ok_or_else(|| format!("{name} is not an address"))
}

/// X-Forwarded-For as it came to the proxy, if present, and the entry that the proxy appended.
fn appended(headers: &HeaderMap) -> Result<(Option<Vec<u8>>, Vec<u8>), String> {
    let list = joined(headers, FORWARDED_FOR)
        .ok_or_else(|| format!("{FORWARDED_FOR} is missing: the proxy is to set it"))?;
    let mut entries = list.rsplitn(2, |byte| *byte == b',');
    let last = entries.next().unwrap_or_default().to_vec();
    Ok((entries.next().map(<[u8]>::to_vec), last))
}

/// The lines of a field, joined as lists are (RFC 9110, 5.3).
fn joined<'h>(headers: &'h HeaderMap, name: &str) -> Option<Cow<'h, [u8]>> {
    let mut lines = headers.get_all(name).iter().map(HeaderValue::as_bytes);
    let mut value = Cow::Borrowed(lines.next()?);
    for line in lines {
        let value = value.to_mut();
        value.extend_from_slice(b", ");
        value.extend_from_slice(line);
    }
    Some(value)
}

impl Facts for Original<'_> {
    fn method(&self) -> Cow<'_, [u8]> {
        self.method.into()
    }

    fn target(&self) -> Cow<'_, [u8]> {
        self.target.into()
    }

    fn header(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        match name {
            "host" => self.host.map(Cow::Borrowed),
            // The length of the auth request does not apply to the client's request.
            "content-length" => self.content_length.map(Cow::Borrowed),
            FORWARDED_FOR if self.appends => self.forwarded_for.as_deref().map(Cow::Borrowed),
            _ if name.starts_with(OURS) => None,
            _ => joined(self.headers, name),
        }
    }

    fn peer(&self) -> Option<IpAddr> {
        self.peer
    }
}

#[cfg(test)]
mod tests {
    use hyper::Request;

    use super::*;

    /// The head of a request: its lines, the first with method and target.
    fn head(lines: &[&str]) -> Parts {
        let (method, target) = lines[0].split_once(' ').expect("a first line");
        let mut request = Request::builder().method(method).uri(target);
        for line in &lines[1..] {
            let (name, value) = line.split_once(": ").expect("a field");
            request = request.header(name, value);
        }
        request.body(()).expect("a request").into_parts().0
    }

    fn said(shape: Shape, head: &Parts, behind: &str) -> Result<String, String> {
        let facts = Original::read(shape, head, behind)?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let field = |name| facts.header(name).map_or("-".to_owned(), |value| text(&value));
        let peer = facts.peer().map_or("-".to_owned(), |peer| peer.to_string());
        let (method, target) = (text(&facts.method()), text(&facts.target()));
        let host = text(&facts.host());
        let rest = ["x-forwarded-for", "content-length", "x-key", "x-tollgate-token"].map(field);
        Ok(format!("{method} {target} {host} {peer} | {}", rest.join(" | ")))
    }

    const NGINX: [&str; 9] = [
        "GET /forward-auth/nginx",
        "host: a.example",
        "x-original-method: POST",
        "x-original-uri: //a/%2e%2e/b?c=d",
        "x-tollgate-client: 192.0.2.1",
        "x-tollgate-token: secret",
        "x-forwarded-for: 6.6.6.6",
        "x-forwarded-for: 7.7.7.7",
        "x-key: k",
    ];

    #[test]
    fn each_shape_says_the_same_request() {
        let nginx = head(&NGINX);
        let expected = "POST //a/%2e%2e/b?c=d a.example 192.0.2.1 | 6.6.6.6, 7.7.7.7 | - | k | -";
        assert_eq!(said(Shape::Nginx, &nginx, "").as_deref(), Ok(expected));
        let forwarded = head(&[
            "GET /forward-auth/forwarded?c=d",
            "host: tollgate.internal",
            "content-length: 0",
            "x-forwarded-method: POST",
            "x-forwarded-uri: //a/%2e%2e/b?c=d",
            "x-forwarded-host: a.example",
            "x-forwarded-for: 6.6.6.6, 7.7.7.7,192.0.2.1",
            "x-tollgate-token: secret",
            "x-tollgate-client: 9.9.9.9",
            "x-tollgate-content-length: 1",
            "x-original-uri: /spoof",
            "x-key: k",
        ]);
        assert_eq!(said(Shape::Forwarded, &forwarded, "?c=d").as_deref(), Ok(expected));
        let envoy = head(&[
            "POST /forward-auth/envoy//a/%2e%2e/b?c=d",
            "host: a.example",
            "content-length: 0",
            "x-forwarded-for: 6.6.6.6, 7.7.7.7",
            "x-forwarded-uri: /spoof",
            "x-tollgate-client: ::ffff:192.0.2.1",
            "x-tollgate-token: secret",
            "x-key: k",
        ]);
        assert_eq!(said(Shape::Envoy, &envoy, "//a/%2e%2e/b?c=d").as_deref(), Ok(expected));
    }

    #[test]
    fn a_fact_that_is_missing_twice_or_odd_is_an_error() {
        let with = |name: &str, lines: &[&'static str]| {
            let others = NGINX.into_iter().filter(|line| !line.starts_with(name));
            let all: Vec<&str> = others.chain(lines.iter().copied()).collect();
            said(Shape::Nginx, &head(&all), "")
        };
        for name in ["x-original-method", "x-original-uri", "x-tollgate-client"] {
            assert_eq!(with(name, &[]), Err(format!("{name} is missing: the proxy is to set it")));
        }
        let twice = with("nothing", &["x-original-uri: /"]);
        assert!(twice.is_err_and(|why| why.starts_with("x-original-uri came twice")));
        let rows: [(&str, &[&str], &str); 8] = [
            (
                "x-original-uri",
                &["x-original-uri: "],
                "x-original-uri is missing: the proxy is to set it",
            ),
            (
                "x-original-uri",
                &["x-original-uri: http://a/"],
                "x-original-uri is not a path that begins with /",
            ),
            (
                "x-original-uri",
                &["x-original-uri: a"],
                "x-original-uri is not a path that begins with /",
            ),
            (
                "x-original-method",
                &["x-original-method: GET, POST"],
                "x-original-method is not a method",
            ),
            ("x-original-method", &["x-original-method: G T"], "x-original-method is not a method"),
            (
                "x-tollgate-client",
                &["x-tollgate-client: 1.2.3.4, 5.6.7.8"],
                "x-tollgate-client is not an address",
            ),
            (
                "x-tollgate-client",
                &["x-tollgate-client: 1.2.3.4:80"],
                "x-tollgate-client is not an address",
            ),
            (
                "x-tollgate-client",
                &["x-tollgate-client: 1.2.3.4%eth0"],
                "x-tollgate-client is not an address",
            ),
        ];
        for (name, lines, expected) in rows {
            assert_eq!(with(name, lines), Err(expected.to_owned()), "{lines:?}");
        }
        let peer = |line| with("x-tollgate-client", line).map(|said| said.contains(" - | 6.6"));
        assert_eq!(peer(&["x-tollgate-client: unix:"]), Ok(true));
        assert!(
            with("x-tollgate-client", &["x-tollgate-client: fe80::1%eth0"])
                .is_ok_and(|it| it.contains(" fe80::1 |"))
        );
    }

    #[test]
    fn the_entry_that_the_proxy_appended_is_the_other_end() {
        let list = |lines: &[&str]| {
            let first =
                ["GET /forward-auth/forwarded", "x-forwarded-method: GET", "x-forwarded-uri: /"];
            let all: Vec<&str> = first.into_iter().chain(lines.iter().copied()).collect();
            said(Shape::Forwarded, &head(&all), "")
        };
        let rows: [(&[&str], &str); 4] = [
            (&["x-forwarded-for: 192.0.2.1"], "GET /  192.0.2.1 | - | - | - | -"),
            (&["x-forwarded-for: spoof,, 192.0.2.1"], "GET /  192.0.2.1 | spoof, | - | - | -"),
            (
                &["x-forwarded-for: 6.6.6.6", "x-forwarded-for: 192.0.2.1"],
                "GET /  192.0.2.1 | 6.6.6.6 | - | - | -",
            ),
            (
                &["x-forwarded-for: \"6.6.6.6, 2001:db8::1"],
                "GET /  2001:db8::1 | \"6.6.6.6 | - | - | -",
            ),
        ];
        for (lines, expected) in rows {
            assert_eq!(list(lines).as_deref(), Ok(expected), "{lines:?}");
        }
        for wrong in [
            &[][..],
            &["x-forwarded-for: "],
            &["x-forwarded-for: 192.0.2.1,"],
            &["x-forwarded-for: 192.0.2.1, me"],
        ] {
            assert!(list(wrong).is_err(), "{wrong:?}");
        }
    }
}
