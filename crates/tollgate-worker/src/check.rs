//! `POST /check`: the request of a caller that stands in front of something else, and its answer.
//!
//! Invariant: whatever bytes come, the caller gets an answer or every mistake by the name of its field. It
//! believes what the caller says about the client, so only trusted callers may reach it.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};
use tollgate_policy::{Answer, Facts, Outcome, Policy, Problem, Problems, RuleResult};

use crate::limit::Decided;

/// The longest request: 64 KiB.
pub(crate) const MAX_BODY: u32 = 64 * 1024;

/// The longest method: the longest registered one, UPDATEREDIRECTREF, has 17 letters.
const MAX_METHOD: usize = 32;

const FIELDS: &str =
    "use \"method\", \"host\", \"path\", \"headers\", \"client_ip\" or \"response_status\"";

/// A request to be checked, as the caller described it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct CheckRequest {
    method: String,
    path: String,
    /// By lower-case name; `host` is among them.
    headers: BTreeMap<String, String>,
    client_ip: Option<IpAddr>,
    /// The status of the response to a request that was allowed before: this reports it.
    pub(crate) response_status: Option<u16>,
}

impl Facts for CheckRequest {
    fn method(&self) -> Cow<'_, [u8]> {
        self.method.as_bytes().into()
    }

    fn target(&self) -> Cow<'_, [u8]> {
        self.path.as_bytes().into()
    }

    fn header(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        self.headers.get(name).map(|value| value.as_bytes().into())
    }

    fn peer(&self) -> Option<IpAddr> {
        self.client_ip
    }
}

impl CheckRequest {
    /// Reads `{"method","host","path","headers":{},"client_ip"}`; `method` and `path` must be there.
    ///
    /// # Errors
    /// Every mistake, with the name of its field and what is allowed.
    pub(crate) fn parse(body: &[u8]) -> Result<Self, Problems> {
        let mut reader = Reader::default();
        match serde_json::from_slice(body) {
            Ok(Value::Object(fields)) => reader.read(fields),
            Ok(other) => reader.problem("", format!("{other} is not an object; {FIELDS}")),
            Err(error) => reader.problem("", format!("not JSON: {error}")),
        }
        if reader.problems.0.is_empty() { Ok(reader.request) } else { Err(reader.problems) }
    }
}

#[derive(Default)]
struct Reader {
    request: CheckRequest,
    problems: Problems,
}

impl Reader {
    fn problem(&mut self, path: &str, message: String) {
        self.problems.0.push(Problem { path: path.to_owned(), message });
    }

    fn read(&mut self, fields: Vec<(String, Value)>) {
        let mut seen: Vec<String> = Vec::new();
        for (name, value) in fields {
            if seen.contains(&name) {
                self.problem(&name, "is given twice; give it once".to_owned());
                continue;
            }
            match name.as_str() {
                "method" => self.method(value),
                "path" => self.path(value),
                "host" => self.host(value),
                "headers" => self.headers(value),
                "client_ip" => self.client_ip(value),
                "response_status" => self.response_status(&value),
                _ => self
                    .problem("", format!("unknown field {}; {FIELDS}", Value::Text(name.clone()))),
            }
            seen.push(name);
        }
        for (name, wanted) in [("method", "such as \"GET\""), ("path", "such as \"/search?q=a\"")] {
            if !seen.iter().any(|field| field == name) {
                self.problem(name, format!("is missing; give one {wanted}"));
            }
        }
    }

    fn method(&mut self, value: Value) {
        match value {
            Value::Text(text) if text.len() <= MAX_METHOD && is_token(&text) => {
                self.request.method = text
            }
            other => self.problem(
                "method",
                format!("{other} is not a request method; use a token such as \"GET\""),
            ),
        }
    }

    fn path(&mut self, value: Value) {
        match value {
            Value::Text(text) if text.starts_with('/') && is_field_value(&text) => {
                self.request.path = text
            }
            other => self
                .problem("path", format!("{other} is not a path; use one that begins with \"/\"")),
        }
    }

    fn host(&mut self, value: Value) {
        match value {
            Value::Text(text) if !text.is_empty() && is_field_value(&text) => {
                self.add_header("host", text)
            }
            other => self
                .problem("host", format!("{other} is not a host; use one such as \"example.com\"")),
        }
    }

    fn client_ip(&mut self, value: Value) {
        match (&value, value.text().and_then(|text| text.parse().ok())) {
            (_, Some(address)) => self.request.client_ip = Some(address),
            _ => self.problem(
                "client_ip",
                format!("{value} is not an address; use IPv4 or IPv6 without a port"),
            ),
        }
    }

    fn response_status(&mut self, value: &Value) {
        match value {
            Value::Number(status) if (100..=599).contains(status) => {
                self.request.response_status = u16::try_from(*status).ok();
            }
            other => {
                self.problem("response_status", format!("{other} is not a status; use 100 to 599"))
            }
        }
    }

    fn headers(&mut self, value: Value) {
        let Value::Object(fields) = value else {
            return self
                .problem("headers", format!("{value} is not an object; use names and values"));
        };
        for (name, value) in fields {
            match value {
                _ if !is_token(&name) => {
                    self.problem("headers", format!("{} is not a header name", Value::Text(name)));
                }
                Value::Text(text) if is_field_value(&text) => self.add_header(&name, text),
                other => {
                    let path = format!("headers.{}", shortened(&name));
                    self.problem(
                        &path,
                        format!("{other} is not a header value; use one line of text"),
                    );
                }
            }
        }
    }

    /// Names are case-insensitive; several lines of one name are one list (RFC 9110, 5.3).
    fn add_header(&mut self, name: &str, value: String) {
        let lines = self.request.headers.entry(name.to_ascii_lowercase()).or_default();
        if !lines.is_empty() {
            lines.push_str(", ");
        }
        lines.push_str(&value);
    }
}

/// A token of RFC 9110, 5.6.2: methods and field names.
fn is_token(text: &str) -> bool {
    let is_token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    !text.is_empty() && text.bytes().all(is_token)
}

/// What a field value may hold (RFC 9110, 5.5): anything on one line.
fn is_field_value(text: &str) -> bool {
    !text.bytes().any(|b| matches!(b, b'\r' | b'\n' | 0))
}

/// One JSON value, as far as a check request can hold it.
#[derive(Debug)]
enum Value {
    Text(String),
    Object(Vec<(String, Value)>),
    Number(u64),
    /// A kind that is wrong everywhere, by name.
    Other(&'static str),
}

/// The longest piece of a request that a message repeats, in characters.
const MAX_QUOTED: usize = 60;

fn shortened(text: &str) -> String {
    text.chars().take(MAX_QUOTED).collect()
}

impl Value {
    fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => {
                let more = if text.chars().count() > MAX_QUOTED { "..." } else { "" };
                write!(f, "\"{}{more}\"", shortened(text).escape_debug())
            }
            Self::Object(_) => f.write_str("an object"),
            Self::Number(_) => f.write_str("a number"),
            Self::Other(kind) => f.write_str(kind),
        }
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Other("null"))
    }

    fn visit_bool<E>(self, _: bool) -> Result<Value, E> {
        Ok(Value::Other("a boolean"))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
        Ok(Value::Number(number))
    }

    fn visit_i64<E>(self, _: i64) -> Result<Value, E> {
        Ok(Value::Other("a number"))
    }

    fn visit_f64<E>(self, _: f64) -> Result<Value, E> {
        Ok(Value::Other("a number"))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(Value::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Value::Other("a list"))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut fields = Vec::new();
        while let Some(field) = map.next_entry()? {
            fields.push(field);
        }
        Ok(Value::Object(fields))
    }
}

/// The answer, as JSON: `{"decision","rules","violated","retry_after_ms","headers"}`, `delay_ms` when the decision
/// is to wait, `request_headers` when the request is to be marked, `report` when its response's status is wanted.
pub(crate) fn answer(outcome: &Outcome<'_>, policy: &Policy, decided: &Decided) -> String {
    serde_json::to_string(&CheckAnswer { outcome, policy, decided }).unwrap_or_default()
}

struct CheckAnswer<'a> {
    outcome: &'a Outcome<'a>,
    policy: &'a Policy,
    decided: &'a Decided,
}

impl Serialize for CheckAnswer<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { outcome, policy, decided } = self;
        let mut map = serializer.serialize_map(None)?;
        let (decision, delay) = match outcome.answer_after(decided.waited) {
            Answer::Pass => ("allow", None),
            Answer::Delay(delay) => ("delay", Some(delay)),
            Answer::Refuse { .. } | Answer::Retry(_) => ("deny", None),
        };
        map.serialize_entry("decision", decision)?;
        let rules: Vec<_> = outcome
            .rules_after(decided.waited)
            .filter_map(|(i, result)| RuleAnswer::new(policy, i, result))
            .collect();
        map.serialize_entry("rules", &rules)?;
        map.serialize_entry("violated", &outcome.violated().collect::<Vec<_>>())?;
        map.serialize_entry(
            "retry_after_ms",
            &outcome.retry_after().map(|wait| wait.as_millis_ceil()),
        )?;
        if let Some(delay) = delay {
            map.serialize_entry("delay_ms", &delay.as_millis_ceil())?;
        }
        map.serialize_entry("headers", &HeaderFields(outcome))?;
        let mut marks = Vec::new();
        outcome.marks(&mut |name, value| marks.push((name, value)));
        if !marks.is_empty() {
            map.serialize_entry("request_headers", &Pairs(marks))?;
        }
        if decision != "deny" && decided.plan.is_deferred() {
            map.serialize_entry("report", "response_status")?;
        }
        map.end()
    }
}

#[derive(serde::Serialize)]
struct RuleAnswer<'a> {
    name: &'a str,
    result: &'static str,
}

impl<'a> RuleAnswer<'a> {
    fn new(policy: &'a Policy, rule: usize, result: RuleResult) -> Option<Self> {
        let result = result.label();
        Some(Self { name: policy.rules().get(rule)?.name(), result })
    }
}

/// The fields a caller may copy into its own response: all but the content type, which belongs to
/// a body that the caller does not get.
struct HeaderFields<'a>(&'a Outcome<'a>);

impl Serialize for HeaderFields<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = Vec::new();
        self.0.headers(&mut |name, value| fields.push((name, value.to_owned())));
        fields.retain(|(name, _)| *name != "content-type");
        serializer.collect_map(fields)
    }
}

struct Pairs<'a>(Vec<(&'a str, &'a str)>);

impl Serialize for Pairs<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(body: &str) -> String {
        CheckRequest::parse(body.as_bytes()).expect_err(body).to_string()
    }

    #[test]
    fn reads_every_field() {
        let body = r#"{"method":"POST","host":"example.com","path":"/a?b=c","headers":{"X-Key":"k","x-key":"l"},"client_ip":"2001:db8::1"}"#;
        let request = CheckRequest::parse(body.as_bytes()).expect(body);
        assert_eq!(request.method().as_ref(), b"POST");
        assert_eq!(request.target().as_ref(), b"/a?b=c");
        assert_eq!(request.header("x-key").expect("x-key").as_ref(), b"k, l");
        assert_eq!(request.header("host").expect("host").as_ref(), b"example.com");
        assert_eq!(request.header("other"), None);
        assert_eq!(request.peer(), "2001:db8::1".parse().ok());
        let least = CheckRequest::parse(br#"{"method":"GET","path":"/"}"#).expect("least");
        assert_eq!((least.peer(), least.header("host")), (None, None));
    }

    #[test]
    fn every_mistake_names_its_field_and_what_is_allowed() {
        let all = r#"{"method":"A B","host":"","path":"a","headers":{"x y":"1","ok":5,"nl":"a\nb"},"client_ip":"1.2.3.4:80","cost":2}"#;
        assert_eq!(
            problems(all),
            "method: \"A B\" is not a request method; use a token such as \"GET\"\n\
             host: \"\" is not a host; use one such as \"example.com\"\n\
             path: \"a\" is not a path; use one that begins with \"/\"\n\
             headers: \"x y\" is not a header name\n\
             headers.ok: a number is not a header value; use one line of text\n\
             headers.nl: \"a\\nb\" is not a header value; use one line of text\n\
             client_ip: \"1.2.3.4:80\" is not an address; use IPv4 or IPv6 without a port\n\
             unknown field \"cost\"; use \"method\", \"host\", \"path\", \"headers\", \"client_ip\" or \"response_status\""
        );
        assert_eq!(
            problems("{}"),
            "method: is missing; give one such as \"GET\"\npath: is missing; give one such as \"/search?q=a\""
        );
        assert_eq!(
            problems(r#"{"path":"/","path":"/","method":"GET"}"#),
            "path: is given twice; give it once"
        );
        assert_eq!(
            problems(r#"{"method":null,"path":[],"headers":true,"client_ip":{}}"#),
            "method: null is not a request method; use a token such as \"GET\"\n\
             path: a list is not a path; use one that begins with \"/\"\n\
             headers: a boolean is not an object; use names and values\n\
             client_ip: an object is not an address; use IPv4 or IPv6 without a port"
        );
        assert_eq!(
            problems("[1]"),
            "a list is not an object; use \"method\", \"host\", \"path\", \"headers\", \"client_ip\" or \"response_status\""
        );
        assert_eq!(problems(""), "not JSON: EOF while parsing a value at line 1 column 0");
    }

    #[test]
    fn lengths_are_bounded_at_their_edge() {
        let method = |length: usize| format!(r#"{{"method":"{}","path":"/"}}"#, "M".repeat(length));
        assert!(CheckRequest::parse(method(MAX_METHOD).as_bytes()).is_ok());
        assert!(CheckRequest::parse(method(MAX_METHOD + 1).as_bytes()).is_err());
        let long = problems(&format!(r#"{{"method":"GET","path":"{}"}}"#, "a".repeat(1000)));
        assert_eq!(
            long,
            format!(
                "path: \"{}...\" is not a path; use one that begins with \"/\"",
                "a".repeat(60)
            )
        );
    }
}
