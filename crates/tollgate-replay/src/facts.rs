//! One line of a log as a policy sees a request.
//!
//! Invariant: what is assumed goes before what the log says, and a fact that neither has is absent,
//! as it is for a request that lacks it. Nothing is copied but a cookie or a query that stands in a
//! column of its own.

use std::borrow::Cow;
use std::net::IpAddr;

use tollgate_access_log::{Field, Record};
use tollgate_policy::Facts;

use crate::given::Given;

/// A line, and what is given beside it.
pub(crate) struct Request<'r> {
    pub(crate) record: &'r Record<'r>,
    pub(crate) given: &'r Given,
    /// What the policy is told of the connection's other end.
    pub(crate) peer: Option<IpAddr>,
    /// The header that says who the client is, where that is known already: it is not there.
    pub(crate) hidden: Option<&'r str>,
    /// Cookies and query parameters that have a column of their own.
    pub(crate) columns: &'r [Field],
}

impl Request<'_> {
    /// What is assumed of `field`, or else `told`.
    fn or_given<'a>(
        &'a self,
        is: impl Fn(&Field) -> bool,
        told: impl FnOnce() -> Option<&'a [u8]>,
    ) -> Option<Cow<'a, [u8]>> {
        let value = match self.given.fields.is_empty() {
            true => told(),
            false => match self.given.get(is) {
                Some(given) => given,
                None => told(),
            },
        };
        value.map(Cow::Borrowed)
    }

    /// The value of a cookie or parameter that has a column of its own, or is assumed.
    fn own<'a>(&'a self, field: &Field, told: Option<&'a [u8]>) -> Option<&'a [u8]> {
        self.given.get(|other| other == field).unwrap_or(told)
    }

    /// `name=value` of every cookie that has a column, as a header; `None` when none is there.
    fn cookies(&self) -> Option<Vec<u8>> {
        let mut header: Vec<u8> = Vec::new();
        for field in self.columns {
            let Field::Cookie(name) = field else { continue };
            let Some(value) = self.own(field, self.record.cookie(name)) else { continue };
            if !header.is_empty() {
                header.extend_from_slice(b"; ");
            }
            header.extend_from_slice(name.as_bytes());
            header.push(b'=');
            header.extend_from_slice(value);
        }
        (!header.is_empty()).then_some(header)
    }

    /// The target with the parameters that have a column; `None` when it has a query of its own,
    /// or none of these is there.
    fn with_query(&self, target: &[u8]) -> Option<Vec<u8>> {
        if target.contains(&b'?') {
            return None;
        }
        let mut whole = Vec::new();
        for field in self.columns {
            let Field::Query(name) = field else { continue };
            let Some(value) = self.own(field, self.record.query(name)) else { continue };
            if whole.is_empty() {
                whole.extend_from_slice(target);
                whole.push(b'?');
            } else {
                whole.push(b'&');
            }
            whole.extend(name.bytes().flat_map(encoded));
            whole.push(b'=');
            // As received: what is escaped in the log's column is escaped still.
            whole.extend_from_slice(value);
        }
        (!whole.is_empty()).then_some(whole)
    }
}

impl Facts for Request<'_> {
    fn method(&self) -> Cow<'_, [u8]> {
        self.or_given(|field| *field == Field::Method, || self.record.method()).unwrap_or_default()
    }

    fn target(&self) -> Cow<'_, [u8]> {
        let is = |field: &Field| *field == Field::Target;
        let target = self.or_given(is, || self.record.target()).unwrap_or_default();
        if self.columns.is_empty() {
            return target;
        }
        self.with_query(&target).map_or(target, Cow::Owned)
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
        match name {
            "cookie" if value.is_none() => self.cookies().map(Cow::Owned),
            _ => value,
        }
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
}

/// A byte of a parameter's name as it stands in a query.
fn encoded(byte: u8) -> impl Iterator<Item = u8> {
    let is_plain = byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let digit = |nibble: u8| *b"0123456789ABCDEF".get(usize::from(nibble)).unwrap_or(&b'0');
    let escaped = [b'%', digit(byte >> 4), digit(byte & 15)];
    let (plain, escaped) = if is_plain { (Some(byte), None) } else { (None, Some(escaped)) };
    plain.into_iter().chain(escaped.into_iter().flatten())
}
