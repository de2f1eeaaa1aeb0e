//! Replies that Tollgate gives itself: refusals, problems and answers, as plain data.
//!
//! Invariant: a reply names quotas, fields and limits, never keys or tokens, and is never cached. Which
//! reply a request gets is decided elsewhere, and nothing here knows the runtime.

use serde::Serialize;
use tollgate_policy::{Outcome, Problem, Problems};

/// Where the health report is, in both uses.
pub(crate) const HEALTH_PATH: &str = "/.well-known/tollgate/health";

const JSON: &str = "application/json";
const PROBLEM: &str = "application/problem+json";

/// Header fields as lines of `name: value`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Fields(pub(crate) String);

impl Fields {
    /// Adds one line.
    pub(crate) fn add(&mut self, name: &str, value: &str) {
        for part in [name, ": ", value, "\n"] {
            self.0.push_str(part);
        }
    }

    /// What `outcome` sets on the request that passes.
    pub(crate) fn marks(outcome: &Outcome<'_>) -> Self {
        let mut fields = Self::default();
        outcome.marks(&mut |name, value| fields.add(name, value));
        fields
    }

    /// What `outcome` adds to any response.
    pub(crate) fn of(outcome: &Outcome<'_>) -> Self {
        let mut fields = Self::default();
        outcome.headers(&mut |name, value| fields.add(name, value));
        fields
    }
}

/// A whole response.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) fields: Fields,
    pub(crate) body: String,
}

/// A problem document (RFC 9457), `errors` as in its section 3.
#[derive(Serialize)]
struct Document<'a> {
    r#type: &'a str,
    title: &'a str,
    status: u16,
    detail: &'a str,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    errors: &'a [Entry<'a>],
}

#[derive(Serialize)]
struct Entry<'a> {
    path: &'a str,
    detail: &'a str,
}

impl Reply {
    /// 200 with a JSON document that nobody caches.
    pub(crate) fn json(body: String) -> Self {
        Self::new(200, JSON, body)
    }

    /// A problem; `title` and `detail` are sentences of ours.
    pub(crate) fn problem(status: u16, title: &str, detail: &str) -> Self {
        Self::problems(status, title, detail, &Problems::default())
    }

    /// A problem with its list of errors.
    pub(crate) fn problems(status: u16, title: &str, detail: &str, errors: &Problems) -> Self {
        let entry = |problem: &'_ Problem| -> (String, String) {
            (problem.path.clone(), problem.message.clone())
        };
        let owned: Vec<_> = errors.0.iter().map(entry).collect();
        let errors: Vec<_> = owned.iter().map(|(path, detail)| Entry { path, detail }).collect();
        let document = Document { r#type: "about:blank", title, status, detail, errors: &errors };
        Self::new(status, PROBLEM, serde_json::to_string(&document).unwrap_or_default())
    }

    /// The refusal of a request, as `caller` can read it.
    pub(crate) fn refusal(outcome: &Outcome<'_>, status: u16, caller: Caller) -> Self {
        if caller == Caller::Http {
            return Self { status, fields: Fields::of(outcome), body: outcome.body() };
        }
        // A trailers-only response: everything in the header fields, no body.
        let mut fields = Fields::default();
        outcome.headers(&mut |name, value| {
            if name != "content-type" {
                fields.add(name, value);
            }
        });
        fields.add("content-type", "application/grpc");
        let (code, message) = outcome.grpc();
        fields.add("grpc-status", &code.to_string());
        fields.add("grpc-message", &grpc_message(&message));
        Self { status: 200, fields, body: String::new() }
    }

    /// Adds a field.
    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.fields.add(name, value);
        self
    }

    fn new(status: u16, kind: &str, body: String) -> Self {
        let reply = Self { status, fields: Fields::default(), body };
        reply.with("content-type", kind).with("cache-control", "no-store")
    }
}

/// What a client can read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Caller {
    Http,
    Grpc,
}

impl Caller {
    /// By its content type: gRPC is `application/grpc`, alone or with a suffix or a parameter. gRPC-Web
    /// is not gRPC: its clients read the HTTP status.
    pub(crate) fn of(content_type: Option<&str>) -> Self {
        match content_type.and_then(|value| value.strip_prefix("application/grpc")) {
            Some(rest) if rest.is_empty() || rest.starts_with(['+', ';']) => Self::Grpc,
            _ => Self::Http,
        }
    }
}

/// `text` as a `grpc-message`: all but %x20-24 and %x26-7E percent-encoded (gRPC over HTTP/2, Responses).
fn grpc_message(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b' '..=b'$' | b'&'..=b'~' => out.push(char::from(byte)),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_is_a_document_with_its_errors() {
        let errors =
            Problems(vec![Problem { path: "a[0]".into(), message: "\"x\" is not y".into() }]);
        let reply = Reply::problems(400, "Bad Request", "the check request is wrong", &errors);
        let body = r#"{"type":"about:blank","title":"Bad Request","status":400,"detail":"the check request is wrong","errors":[{"path":"a[0]","detail":"\"x\" is not y"}]}"#;
        assert_eq!((reply.status, reply.body.as_str()), (400, body));
        let fields = "content-type: application/problem+json\ncache-control: no-store\n";
        assert_eq!(reply.fields.0, fields);
        assert!(!Reply::problem(404, "Not Found", "x").body.contains("errors"));
    }

    #[test]
    fn grpc_is_known_by_its_content_type() {
        let grpc = ["application/grpc", "application/grpc+proto", "application/grpc;x=y"];
        for value in grpc {
            assert_eq!(Caller::of(Some(value)), Caller::Grpc, "{value}");
        }
        for value in [
            None,
            Some("application/json"),
            Some("application/grpcx"),
            Some("application/grpc-web"),
            Some("text/application/grpc"),
        ] {
            assert_eq!(Caller::of(value), Caller::Http, "{value:?}");
        }
    }

    #[test]
    fn grpc_messages_are_percent_encoded() {
        assert_eq!(grpc_message("50 % of \"ä\"\n"), "50 %25 of \"%C3%A4\"%0A");
    }
}
