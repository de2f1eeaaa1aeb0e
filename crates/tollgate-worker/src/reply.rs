//! Replies that Tollgate gives itself: refusals, problems and answers, as plain data.
//!
//! Invariant: a reply names quotas, fields and limits, never keys or tokens, and is never cached.
//! Which reply a request gets is decided elsewhere, and nothing here knows the runtime.

use tollgate_policy::{Outcome, PROBLEM_JSON, ProblemDetails, Problems, grpc_content_type};

/// Where the health report is, in both uses.
pub(crate) const HEALTH_PATH: &str = "/.well-known/tollgate/health";

const JSON: &str = "application/json";

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

impl Reply {
    /// 200 with a JSON document that nobody caches.
    pub(crate) fn json(body: String) -> Self {
        Self::new(200, JSON, body)
    }

    /// A problem; `title` and `detail` are sentences of ours.
    pub(crate) fn problem(status: u16, title: &str, detail: &str) -> Self {
        Self::problems(status, title, detail, &Problems::default())
    }

    /// 405, with the methods that there are.
    pub(crate) fn not_allowed(methods: &str) -> Self {
        let detail = format!("use {methods}");
        Self::problem(405, "Method Not Allowed", &detail).with("allow", methods)
    }

    /// A problem with its list of errors.
    pub(crate) fn problems(status: u16, title: &str, detail: &str, errors: &Problems) -> Self {
        let details = ProblemDetails { kind: "about:blank", title, status, detail };
        Self::new(status, PROBLEM_JSON, details.with_errors(errors))
    }

    /// The refusal with `status` of a request with this content type.
    pub(crate) fn refusal(outcome: &Outcome<'_>, status: u16, content_type: &str) -> Self {
        let Some(kind) = grpc_content_type(content_type.as_bytes()) else {
            return Self { status, fields: Fields::of(outcome), body: outcome.body() };
        };
        let mut fields = Fields::default();
        outcome.grpc_headers(kind, &mut |name, value| fields.add(name, value));
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

#[cfg(test)]
mod tests {
    use tollgate_policy::Problem;

    use super::*;

    #[test]
    fn a_problem_is_a_document_with_its_errors() {
        let errors = Problems(vec![Problem::new("a[0]", "\"x\" is not y".into())]);
        let reply = Reply::problems(400, "Bad Request", "the check request is wrong", &errors);
        let body = r#"{"type":"about:blank","title":"Bad Request","status":400,"detail":"the check request is wrong","errors":[{"path":"a[0]","detail":"\"x\" is not y"}]}"#;
        assert_eq!((reply.status, reply.body.as_str()), (400, body));
        let fields = "content-type: application/problem+json\ncache-control: no-store\n";
        assert_eq!(reply.fields.0, fields);
        assert!(!Reply::problem(404, "Not Found", "x").body.contains("errors"));
    }
}
