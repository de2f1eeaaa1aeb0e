//! The response to a proxy: success and the fields for both sides, or a denial in a form that its
//! protocol can carry.
//!
//! Invariant: a denial never has a status from 200 to 299.

use std::borrow::Cow;

use tollgate_policy::{Facts, Outcome, grpc_content_type};
use tollgate_service::{ApiResponse, Fields};

use super::shape::Shape;

/// The status that replaces one that would allow the request. No policy that is enforced here has
/// such a status.
const REFUSED: u16 = 403;

/// The longest body that is carried in a field: with the others it stays far below the 4 KiB that
/// nginx has for all fields.
const MAX_BODY_FIELD: usize = 1024;

/// The request is allowed: the fields for the client's response, and the marks for the request.
pub(super) fn allowed(outcome: &Outcome<'_>) -> ApiResponse {
    let mut fields = Fields::of(outcome);
    fields.append(&Fields::marks(outcome));
    ApiResponse { status: 200, fields, body: Cow::Borrowed("") }
}

/// The request is denied. A gRPC client maps the HTTP status to its own (429 becomes UNAVAILABLE)
/// and the text to its message, which Envoy makes from it.
pub(super) fn refused(outcome: &Outcome<'_>, status: u16, facts: &impl Facts) -> ApiResponse {
    let status = if matches!(status, 200..=299) { REFUSED } else { status };
    let is_grpc = grpc_content_type(&facts.header("content-type").unwrap_or_default()).is_some();
    if !is_grpc {
        return ApiResponse { status, fields: Fields::of(outcome), body: outcome.body().into() };
    }
    let mut fields = Fields::default();
    outcome.headers(&mut |name, value| {
        if name != "content-type" {
            fields.add(name, value);
        }
    });
    fields.add("content-type", "text/plain");
    ApiResponse { status, fields, body: outcome.grpc().message.into() }
}

impl Shape {
    /// A denial as the protocol can carry it.
    pub(crate) fn says(self, refusal: ApiResponse) -> ApiResponse {
        match self {
            Self::Envoy => no_failure(refusal),
            Self::Forwarded => refusal,
            Self::Nginx => in_fields(refusal),
        }
    }
}

/// A denial for Envoy. Envoy takes statuses from 500 on for a failure of the server and then
/// decides by its own setting, which may allow the request.
fn no_failure(refusal: ApiResponse) -> ApiResponse {
    let status = if refusal.status >= 500 { 429 } else { refusal.status };
    ApiResponse { status, ..refusal }
}

/// A denial for nginx. nginx takes 403 for a denial and passes nothing of it to its client. Status
/// and body are in fields, from which nginx's configuration makes the response.
fn in_fields(refusal: ApiResponse) -> ApiResponse {
    let ApiResponse { status, mut fields, body } = refusal;
    fields.add("x-tollgate-status", &status.to_string());
    let line = body.trim_ascii_end();
    let is_field = |byte: u8| byte == b' ' || byte.is_ascii_graphic();
    if line.len() <= MAX_BODY_FIELD && line.bytes().all(is_field) {
        fields.add("x-tollgate-body", line);
    }
    ApiResponse { status: REFUSED, fields, body: Cow::Borrowed("") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn envoy_gets_no_refusal_that_it_takes_for_a_failure() {
        for (status, expected) in
            [(304, 304), (403, 403), (429, 429), (499, 499), (500, 429), (503, 429)]
        {
            let said = no_failure(ApiResponse::problem(status, "x", "y").with("retry-after", "1"));
            assert_eq!((said.status, said.fields.get("retry-after")), (expected, Some("1")));
        }
    }

    #[test]
    fn nginx_is_told_in_fields() {
        let refusal = |body: &str| {
            let answer = ApiResponse::problem(429, "x", "y");
            in_fields(ApiResponse { body: body.to_owned().into(), ..answer })
        };
        let said = refusal("{\"a\": 1}\n");
        assert_eq!((said.status, said.body.as_ref()), (403, ""));
        assert_eq!(said.fields.get("x-tollgate-status"), Some("429"));
        assert_eq!(said.fields.get("x-tollgate-body"), Some("{\"a\": 1}"));
        assert_eq!(said.fields.get("content-type"), Some("application/problem+json"));
        for odd in ["a\nb", "a\r\nx-evil: 1", "caf\u{e9}", &"a".repeat(1025), "a\u{0}"] {
            assert_eq!(refusal(odd).fields.get("x-tollgate-body"), None, "{odd:?}");
        }
        assert!(refusal(&"a".repeat(1024)).fields.get("x-tollgate-body").is_some());
    }
}
