//! One line of a log as a policy sees a request.
//!
//! Invariant: an assumed value takes precedence over the log. A fact that neither has is absent, as
//! for a request that lacks it. Nothing is copied except a cookie or a query that is assumed or has
//! its own column.

use std::borrow::Cow;
use std::net::IpAddr;

use tollgate_access_log::{Field, Record};
use tollgate_http_syntax::query::decoded;
use tollgate_policy::Facts;
use tollgate_policy::spec::{CertificateField, CloudflareField};

use crate::replay::assumed::AssumedValues;

/// A log line, and the assumed values.
pub(crate) struct Request<'r> {
    pub(crate) record: &'r Record<'r>,
    pub(crate) assumed: &'r AssumedValues,
    /// The peer address of the connection, for the policy.
    pub(crate) peer: Option<IpAddr>,
    /// The client header, where the client is known already: the policy sees no such header.
    pub(crate) hidden: Option<&'r str>,
    /// Cookies and query parameters that have their own column.
    pub(crate) columns: &'r [Field],
}

impl Request<'_> {
    /// The assumed value of `field`, or else `logged`.
    fn or_given<'a>(
        &'a self,
        is: impl Fn(&Field) -> bool,
        logged: impl FnOnce() -> Option<&'a [u8]>,
    ) -> Option<Cow<'a, [u8]>> {
        let value = match self.assumed.fields.is_empty() {
            true => logged(),
            false => match self.assumed.get(is) {
                Some(assumed) => assumed,
                None => logged(),
            },
        };
        value.map(Cow::Borrowed)
    }

    /// The value of a cookie or parameter that replaces the one in the header or target: the
    /// assumed one (`Some(None)`: no request has it), else the one in its column. `None` when there
    /// is neither.
    fn instead<'a>(&'a self, field: &Field, logged: Option<&'a [u8]>) -> Option<Option<&'a [u8]>> {
        self.assumed.get(|other| other == field).or_else(|| logged.map(Some))
    }

    /// The header, with the cookies that have a column or are assumed in place of its own.
    fn with_cookies<'a>(&'a self, mut header: Option<Cow<'a, [u8]>>) -> Option<Cow<'a, [u8]>> {
        let is_all_assumed = self.assumed.has(&Field::header("cookie"));
        for field in self.columns {
            let Field::Cookie(name) = field else { continue };
            let logged = self.record.cookie(name).filter(|_| !is_all_assumed);
            let Some(value) = self.instead(field, logged) else { continue };
            let own = header.as_deref().unwrap_or_default();
            let others = own.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
            let others = others.filter(|pair| !pair.is_empty() && name_of(pair) != name.as_bytes());
            let pair = value.map(|value| [name.as_bytes(), b"=", value].concat());
            let pairs: Vec<&[u8]> = others.chain(pair.as_deref()).collect();
            header = (!pairs.is_empty()).then(|| Cow::Owned(pairs.join(&b"; "[..])));
        }
        header
    }

    /// The target, with the parameters that have a column or are assumed in place of its own.
    fn with_query<'a>(&'a self, mut target: Cow<'a, [u8]>) -> Cow<'a, [u8]> {
        let is_assumed = self.assumed.has(&Field::Target) && target.contains(&b'?');
        for field in self.columns {
            let Field::Query(name) = field else { continue };
            let logged = self.record.query(name).filter(|_| !is_assumed);
            let Some(value) = self.instead(field, logged) else { continue };
            let end = target.iter().position(|byte| *byte == b'?').unwrap_or(target.len());
            let (path, query) = target.split_at_checked(end).unwrap_or_default();
            let query = query.get(1..).unwrap_or_default();
            let is_it = |pair: &&[u8]| decoded(name_of(pair)).eq(name.bytes());
            let all = || query.split(|byte| *byte == b'&').filter(|pair| !pair.is_empty());
            if !self.assumed.has(field) && all().filter(is_it).count() > 1 {
                // A column has one of several values; the target has all of them.
                continue;
            }
            let pair = value.map(|value| {
                // As received: escapes in the log's column stay.
                name.bytes().flat_map(encoded).chain([b'=']).chain(value.iter().copied()).collect()
            });
            let pair: Option<Vec<u8>> = pair;
            let pairs: Vec<&[u8]> = all().filter(|p| !is_it(p)).chain(pair.as_deref()).collect();
            let query = pairs.join(&b"&"[..]);
            let mark: &[u8] = if query.is_empty() { b"" } else { b"?" };
            target = Cow::Owned([path, mark, &query].concat());
        }
        target
    }
}

/// The name in `name=value`.
fn name_of(pair: &[u8]) -> &[u8] {
    pair.split(|byte| *byte == b'=').next().unwrap_or_default().trim_ascii()
}

impl Facts for Request<'_> {
    fn method(&self) -> Cow<'_, [u8]> {
        self.or_given(|field| *field == Field::Method, || self.record.method()).unwrap_or_default()
    }

    fn target(&self) -> Cow<'_, [u8]> {
        let is = |field: &Field| *field == Field::Target;
        let target = self.or_given(is, || self.record.target()).unwrap_or_default();
        self.with_query(target)
    }

    fn host(&self) -> Cow<'_, [u8]> {
        self.or_given(|field| *field == Field::Host, || self.record.host()).unwrap_or_default()
    }

    fn header(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        match name {
            "host" => return Some(self.host()).filter(|host| !host.is_empty()),
            name if self.hidden == Some(name) => return None,
            _ => {}
        }
        let is = |field: &Field| matches!(field, Field::Header(other) if other == name);
        let value = self.or_given(is, || self.record.header(name));
        if name == "cookie" { self.with_cookies(value) } else { value }
    }

    fn peer(&self) -> Option<IpAddr> {
        self.peer
    }

    fn route(&self) -> Option<Cow<'_, [u8]>> {
        self.or_given(|field| *field == Field::Route, || self.record.route())
    }

    fn country(&self) -> Option<Cow<'_, [u8]>> {
        self.or_given(|field| *field == Field::Country, || self.record.country())
    }

    fn asn(&self) -> Option<Cow<'_, [u8]>> {
        self.or_given(|field| *field == Field::Asn, || self.record.asn())
    }

    fn claim(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        let is = |field: &Field| matches!(field, Field::Claim(other) if other == name);
        self.or_given(is, || self.record.claim(name))
    }

    fn cloudflare(&self, field: CloudflareField) -> Option<Cow<'_, [u8]>> {
        let name = field.name();
        let is = |field: &Field| matches!(field, Field::Cloudflare(other) if other == name);
        self.or_given(is, || self.record.cloudflare(name))
    }

    fn client_certificate(&self, field: CertificateField) -> Option<Cow<'_, [u8]>> {
        let name = field.name();
        let is = |field: &Field| matches!(field, Field::Certificate(other) if other == name);
        self.or_given(is, || self.record.certificate(name))
    }

    fn metadata(&self, path: &[String]) -> Option<Cow<'_, [u8]>> {
        let path = path.join("/");
        let is = |field: &Field| matches!(field, Field::Metadata(other) if *other == path);
        self.or_given(is, || self.record.metadata(&path))
    }
}

/// A byte of a parameter's name as it is written in a query.
fn encoded(byte: u8) -> impl Iterator<Item = u8> {
    let is_plain = byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let digit = |nibble: u8| *b"0123456789ABCDEF".get(usize::from(nibble)).unwrap_or(&b'0');
    let escaped = [b'%', digit(byte >> 4), digit(byte & 15)];
    let (plain, escaped) = if is_plain { (Some(byte), None) } else { (None, Some(escaped)) };
    plain.into_iter().chain(escaped.into_iter().flatten())
}
