//! Tollgate's own responses: denials, problems and results, as plain data.
//!
//! Invariant: a response contains quotas, fields and limits, never tokens, and is never cached. It
//! contains keys only in a report of usage, for the operator that named them. The choice of the
//! response is made elsewhere, and nothing here knows the runtime.

use alloc::borrow::Cow;
use alloc::format;
use alloc::string::String;

use tollgate_policy::{Outcome, ProblemDetails, Problems, grpc_content_type};

/// The path of the health report, in both uses.
pub const HEALTH_PATH: &str = "/.well-known/tollgate/health";

pub(crate) const JSON: &str = "application/json";

/// Header fields as lines of `name: value`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fields(pub(crate) Cow<'static, str>);

impl Fields {
    /// The lines, each with its end.
    #[must_use]
    pub fn lines(&self) -> &str {
        &self.0
    }

    /// The value of the field `name`, which is in lower case, if it is among them.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        let mut lines = self.0.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(other, _)| *other == name).map(|(_, value)| value)
    }

    /// Adds one line. Both are one line each: data that a client sent is not written here.
    pub fn add(&mut self, name: &str, value: &str) {
        let lines = self.0.to_mut();
        for part in [name, ": ", value, "\n"] {
            lines.push_str(part);
        }
    }

    /// Adds all lines of `others`.
    pub fn append(&mut self, others: &Self) {
        self.0.to_mut().push_str(&others.0);
    }

    /// The marks of `outcome` on an allowed request.
    #[must_use]
    pub fn marks(outcome: &Outcome<'_>) -> Self {
        let mut fields = Self::default();
        outcome.marks(&mut |name, value| fields.add(name, value));
        fields
    }

    /// The fields of `outcome` for any response.
    #[must_use]
    pub fn of(outcome: &Outcome<'_>) -> Self {
        let mut fields = Self::default();
        outcome.headers(&mut |name, value| fields.add(name, value));
        fields
    }
}

/// A whole response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiResponse {
    /// The status.
    pub status: u16,
    /// The header fields.
    pub fields: Fields,
    /// The body; empty for none.
    pub body: Cow<'static, str>,
}

impl ApiResponse {
    /// 200 with a JSON document that is not cached.
    #[must_use]
    pub fn json(body: String) -> Self {
        // As `new` writes them, for the response to every decision.
        let lines = "content-type: application/json\ncache-control: no-store\n";
        Self { status: 200, fields: Fields(Cow::Borrowed(lines)), body: body.into() }
    }

    /// A problem; `title` and `detail` are sentences of ours.
    #[must_use]
    pub fn problem(status: u16, title: &str, detail: &str) -> Self {
        Self::problems(status, title, detail, &Problems::default())
    }

    /// 405, with the supported methods.
    #[must_use]
    pub fn not_allowed(methods: &str) -> Self {
        let detail = format!("use {methods}");
        Self::problem(405, "Method Not Allowed", &detail).with("allow", methods)
    }

    /// A problem with its list of errors.
    #[must_use]
    pub fn problems(status: u16, title: &str, detail: &str, errors: &Problems) -> Self {
        let details = ProblemDetails { kind: "about:blank", title, status, detail };
        Self::new(status, ProblemDetails::MEDIA_TYPE, details.with_errors(errors))
    }

    /// The denial with `status` of a request with this content type.
    #[must_use]
    pub fn refusal(outcome: &Outcome<'_>, status: u16, content_type: &str) -> Self {
        let Some(kind) = grpc_content_type(content_type.as_bytes()) else {
            return Self { status, fields: Fields::of(outcome), body: outcome.body().into() };
        };
        let mut fields = Fields::default();
        outcome.grpc_headers(kind, &mut |name, value| fields.add(name, value));
        Self { status: 200, fields, body: Cow::Borrowed("") }
    }

    /// Adds a field.
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.fields.add(name, value);
        self
    }

    /// A response without a body.
    pub(crate) fn bodiless(status: u16) -> Self {
        let answer = Self { status, fields: Fields::default(), body: Cow::Borrowed("") };
        answer.with("cache-control", "no-store")
    }

    /// A response that is not cached.
    pub(crate) fn new(status: u16, kind: &str, body: impl Into<Cow<'static, str>>) -> Self {
        let answer = Self { status, fields: Fields::default(), body: body.into() };
        answer.with("content-type", kind).with("cache-control", "no-store")
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use tollgate_policy::Problem;

    use super::*;

    #[test]
    fn a_problem_is_a_document_with_its_errors() {
        let errors = Problems(vec![Problem::new("a[0]", "\"x\" is not y".into())]);
        let answer =
            ApiResponse::problems(400, "Bad Request", "the check request is wrong", &errors);
        let body = r#"{"type":"about:blank","title":"Bad Request","status":400,"detail":"the check request is wrong","errors":[{"path":"a[0]","detail":"\"x\" is not y"}]}"#;
        assert_eq!((answer.status, answer.body.as_ref()), (400, body));
        let fields = "content-type: application/problem+json\ncache-control: no-store\n";
        assert_eq!(answer.fields.0, fields);
        assert!(!ApiResponse::problem(404, "Not Found", "x").body.contains("errors"));
    }
}
