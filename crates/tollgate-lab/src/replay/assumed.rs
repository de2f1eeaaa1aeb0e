//! Values assumed for every request because the log does not contain them: `--assume`.
//!
//! Invariant: an assumed value applies to every request, even where the log has another one. It is
//! parsed as the surface would parse it, and values that no request can have are rejected here.

use std::net::IpAddr;

use tollgate_access_log::Field;
use tollgate_core::Span;
use tollgate_policy::spec::MAX_COST;

/// The client of the requests, as far as it is given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum AssumedClient {
    /// Determined by the policy from the facts.
    #[default]
    ByPolicy,
    /// The client in the log, whatever header the policy reads.
    OfLog,
    /// Always this one.
    Address(IpAddr),
}

/// The values assumed in addition to the log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AssumedValues {
    pub(crate) client: AssumedClient,
    pub(crate) status: Option<u16>,
    /// The cost that each response shows, in quota units; within, `None` for none.
    pub(crate) actual: Option<Option<u64>>,
    /// How long each request runs.
    pub(crate) duration: Option<Span>,
    /// The others; `None` is a field that no request has.
    pub(crate) fields: Vec<(Field, Option<Vec<u8>>)>,
}

impl AssumedValues {
    /// Parses one `--assume`: `field=value`. An empty value means that no request has the field.
    /// With `client=log` the log's client already is the client, whatever header the policy reads
    /// for it.
    ///
    /// # Errors
    /// In words: the field does not exist, or does not have this value.
    pub fn assume(&mut self, text: &str) -> Result<(), String> {
        let (name, value) = text.split_once('=').ok_or("use FIELD=VALUE")?;
        let field = field(name)?;
        match field {
            Field::Time => return Err("the time of each request is the log's".to_owned()),
            Field::Client => self.client = client(value)?,
            Field::Peer | Field::User => {
                return Err(format!("no policy reads {field}; use client or a header"));
            }
            Field::Status => self.status = Some(status(value)?),
            Field::Actual => self.actual = Some(actual(value)?),
            Field::Duration => {
                let read = duration(value.as_bytes()).ok_or(NO_DURATION)?;
                self.duration = Some(read);
            }
            _ => {
                let value = (!value.is_empty()).then(|| value.as_bytes().to_vec());
                if let Some(value) = &value {
                    check(&field, value)?;
                }
                self.fields.retain(|(other, _)| *other != field);
                self.fields.push((field, value));
            }
        }
        Ok(())
    }

    /// Records a column that a `--map` names: a mapped client is the client.
    pub fn mapped(&mut self, field: &Field) {
        if *field == Field::Client && self.client == AssumedClient::ByPolicy {
            self.client = AssumedClient::OfLog;
        }
    }

    /// True when the client of the requests is given.
    pub(crate) fn sets_client(&self) -> bool {
        self.client != AssumedClient::ByPolicy
    }

    /// True when the client is the one in the log.
    pub(crate) fn uses_log_client(&self) -> bool {
        !matches!(self.client, AssumedClient::Address(_))
    }

    /// The assumed value of a field; `Some(None)` when no request has it.
    pub(crate) fn get(&self, is: impl Fn(&Field) -> bool) -> Option<Option<&[u8]>> {
        let found = self.fields.iter().find(|(field, _)| is(field))?;
        Some(found.1.as_deref())
    }

    /// True when a value of the field is assumed.
    pub(crate) fn has(&self, field: &Field) -> bool {
        self.get(|other| other == field).is_some()
            || *field == Field::Status && self.status.is_some()
            || *field == Field::Actual && self.actual.is_some()
            || *field == Field::Duration && self.duration.is_some()
    }
}

/// The field of this name; policies and logs have different names for two of them.
///
/// # Errors
/// In words: there is no such field.
pub fn field(name: &str) -> Result<Field, String> {
    let name = match name {
        "client_ip" => "client",
        "path" => "target",
        name => name,
    };
    Field::parse(name).ok_or_else(|| {
        format!(
            "\"{}\" is not a field; use client, method, target, host, status, actual, duration, route, country, asn, \
             header.NAME, cookie.NAME, query.NAME, claim.NAME, metadata.FILTER/NAME, certificate.NAME or cf.NAME",
            name.escape_default()
        )
    })
}

fn client(value: &str) -> Result<AssumedClient, String> {
    if value == "log" {
        return Ok(AssumedClient::OfLog);
    }
    match value.parse() {
        Ok(address) => Ok(AssumedClient::Address(address)),
        Err(_) => Err("use an address, or \"log\" for the client in the log".to_owned()),
    }
}

/// The cost in a log, in quota units; `None` for anything but digits.
pub(crate) fn units(value: &[u8]) -> Option<u64> {
    let digits = std::str::from_utf8(value.trim_ascii()).ok()?;
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| digits.parse().unwrap_or(u64::MAX))
}

const NO_DURATION: &str = "use milliseconds, such as 250, or seconds with a point, such as 0.25";

/// A duration in a log: a whole number is milliseconds, one with a point is seconds; `None` for
/// anything else.
pub(crate) fn duration(value: &[u8]) -> Option<Span> {
    let text = std::str::from_utf8(value.trim_ascii()).ok()?;
    let Some((seconds, part)) = text.split_once('.') else {
        return Some(Span::from_millis(units(text.as_bytes())?));
    };
    let is_part = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let nanos = format!("{:0<9}", part.get(..part.len().min(9)).filter(|_| is_part)?);
    let nanos = Span::from_nanos(nanos.parse().ok()?);
    Some(Span::from_secs(units(seconds.as_bytes())?).saturating_add(nanos))
}

fn actual(value: &str) -> Result<Option<u64>, String> {
    if value.is_empty() {
        return Ok(None);
    }
    let cost = value.parse().ok().filter(|cost| *cost <= MAX_COST);
    cost.map(Some).ok_or_else(|| format!("use a cost from 0 to {MAX_COST}, or nothing for none"))
}

fn status(value: &str) -> Result<u16, String> {
    let status = value.parse().ok().filter(|status| (100..=599).contains(status));
    status.ok_or_else(|| "use a status from 100 to 599".to_owned())
}

/// Rejects values that no request can have.
fn check(field: &Field, value: &[u8]) -> Result<(), String> {
    let is_line = !value.iter().any(|byte| matches!(byte, b'\r' | b'\n' | b'\0'));
    let (is_good, wanted) = match field {
        Field::Method => {
            let is_token = |b: &u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(b);
            (value.iter().all(is_token), "a method such as GET")
        }
        Field::Target => (is_line && value.starts_with(b"/"), "a path that begins with \"/\""),
        Field::Country => {
            (value.len() == 2 && value.iter().all(u8::is_ascii_alphabetic), "two letters")
        }
        Field::Asn => (value.iter().all(u8::is_ascii_digit), "a number"),
        Field::Host | Field::Route | Field::Header(_) | Field::Cookie(_) => {
            (is_line, "one line of text")
        }
        Field::Query(_) | Field::Claim(_) | Field::Metadata(_) => (is_line, "one line of text"),
        Field::Certificate(_) | Field::Cloudflare(_) => (is_line, "one line of text"),
        Field::Time | Field::Client | Field::Peer | Field::Status | Field::User => (true, ""),
        Field::Actual | Field::Duration => (true, ""),
    };
    if is_good { Ok(()) } else { Err(format!("use {wanted} for {field}")) }
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_milliseconds_or_seconds_with_a_point() {
        let millis = |value: &str| duration(value.as_bytes()).map(Span::as_millis_ceil);
        for (value, expected) in [("0", 0), ("250", 250), ("0.005", 5), ("12.5", 12_500)] {
            assert_eq!(millis(value), Some(expected), "{value}");
        }
        for value in ["", "-", "1.", ".5", "-1", "1.5.2", "1e3", "0.x"] {
            assert_eq!(millis(value), None, "{value}");
        }
    }

    #[test]
    fn what_is_assumed_is_kept() {
        let mut assumed = AssumedValues::default();
        for text in [
            "host=api.example.com",
            "header.X-Plan=gold",
            "header.x-debug=",
            "country=DE",
            "host=b.example",
        ] {
            assumed.assume(text).unwrap();
        }
        assumed.assume("status=201").unwrap();
        assert_eq!(assumed.get(|f| *f == Field::Host), Some(Some(&b"b.example"[..])), "the last");
        assert_eq!(
            assumed.get(|f| *f == Field::header("x-debug")),
            Some(None),
            "no request has it"
        );
        assert_eq!(assumed.get(|f| *f == Field::Route), None);
        assert!(assumed.has(&Field::Status) && assumed.has(&Field::header("X-PLAN")));
        assert!(!assumed.sets_client());
        assumed.mapped(&Field::Host);
        assert!(!assumed.sets_client());
        assumed.mapped(&Field::Client);
        assert_eq!(assumed.client, AssumedClient::OfLog);
        assumed.assume("client_ip=192.0.2.1").unwrap();
        assumed.mapped(&Field::Client);
        assert_eq!(assumed.client, AssumedClient::Address([192, 0, 2, 1].into()));
        assumed.assume("client=log").unwrap();
        assert_eq!(assumed.client, AssumedClient::OfLog);
    }

    #[test]
    fn what_no_request_can_have_is_refused() {
        for (text, message) in [
            ("host", "use FIELD=VALUE"),
            ("hst=a", "\"hst\" is not a field"),
            ("header.=a", "\"header.\" is not a field"),
            ("time=5", "the time of each request is the log's"),
            ("user=me", "no policy reads user"),
            ("client=me", "use an address"),
            ("status=99", "use a status from 100 to 599"),
            ("status=600", "use a status"),
            ("method=GE T", "use a method"),
            ("path=a", "use a path that begins with \"/\" for target"),
            ("country=DEU", "use two letters for country"),
            ("asn=AS1", "use a number for asn"),
            ("header.a=b\nc", "use one line of text for header.a"),
        ] {
            let error = AssumedValues::default().assume(text).unwrap_err();
            assert!(error.starts_with(message), "{text}: {error}");
        }
    }
}
