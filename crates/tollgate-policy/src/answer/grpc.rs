//! Denials for gRPC clients: which requests are gRPC, and the response that these clients read.
//!
//! Invariant: a gRPC client gets a trailers-only response: HTTP status 200, everything in the
//! header fields, no body. It would map any other HTTP status to a gRPC status and never see the
//! fields. Deliberately absent: messages; Tollgate cannot construct one.
//!
//! Sources: gRPC over HTTP/2 (PROTOCOL-HTTP2.md, "Requests" and "Responses"), gRPC-Web
//! (PROTOCOL-WEB.md), and "HTTP to gRPC Status Code Mapping" (http-grpc-status-mapping.md), all of
//! the gRPC project.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::answer::body::own_body;
use crate::answer::cause::{Cause, status_of};
use crate::answer::fields;
use crate::answer::outcome::Outcome;

const OK: u8 = 0;
const UNKNOWN: u8 = 2;
const INVALID_ARGUMENT: u8 = 3;
const PERMISSION_DENIED: u8 = 7;
const RESOURCE_EXHAUSTED: u8 = 8;
const UNIMPLEMENTED: u8 = 12;
const INTERNAL: u8 = 13;
const UNAVAILABLE: u8 = 14;
const UNAUTHENTICATED: u8 = 16;

/// The content type of a gRPC response to a request of this content type; `None` when the request
/// is not gRPC.
///
/// gRPC is `application/grpc`, alone, with a suffix (`+proto`) or a parameter. gRPC-Web is a
/// separate type (`application/grpc-web`, or `-text` in base64). Its clients, too, read the status
/// from the header fields when there is no message ("trailers may be sent together with response
/// headers"). Some clients map an HTTP status to "unavailable", others to "unknown". Media types
/// are case-insensitive (RFC 9110, 8.3.1).
///
/// ```
/// use tollgate_policy::grpc_content_type;
/// assert_eq!(grpc_content_type(b"application/grpc+proto"), Some("application/grpc"));
/// assert_eq!(grpc_content_type(b"application/json"), None);
/// ```
#[must_use]
pub fn grpc_content_type(content_type: &[u8]) -> Option<&'static str> {
    let end = content_type.iter().position(|b| matches!(b, b'+' | b';'));
    let kind = content_type.get(..end.unwrap_or(content_type.len()))?.trim_ascii();
    [
        ("application/grpc", "application/grpc"),
        ("application/grpc-web", "application/grpc-web+proto"),
        ("application/grpc-web-text", "application/grpc-web-text+proto"),
    ]
    .into_iter()
    .find_map(|(asked, answered)| kind.eq_ignore_ascii_case(asked.as_bytes()).then_some(answered))
}

/// The status that a gRPC client reads in a denial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrpcStatus {
    /// The status code, 0 to 16.
    pub code: u8,
    /// One line for a person, %x20-7E and not yet percent-encoded; empty when there is no message.
    pub message: String,
}

impl Outcome<'_> {
    /// The status that a gRPC client reads: RESOURCE_EXHAUSTED for a quota and PERMISSION_DENIED
    /// for a deny rule, whatever HTTP status the rule sets, UNAVAILABLE for a failure, and
    /// INVALID_ARGUMENT for a request that cannot be read. A `respond` action gets the code to
    /// which the client would map its HTTP status: OK for a success, without a message.
    #[must_use]
    pub fn grpc(&self) -> GrpcStatus {
        match self.cause {
            Some(cause @ Cause::Silent(_)) => {
                let code = code_of(status_of(cause));
                let mut message = String::new();
                if code != OK {
                    self.write_content(cause, &mut message);
                }
                GrpcStatus { code, message }
            }
            Some(cause @ Cause::Rule(_)) => {
                let own = own_body(cause).map(|body| body.0.clone());
                let message = own.unwrap_or_else(|| self.detail().text());
                GrpcStatus { code: PERMISSION_DENIED, message }
            }
            Some(Cause::Failure | Cause::Busy) => {
                GrpcStatus { code: UNAVAILABLE, message: self.detail().text() }
            }
            Some(Cause::Malformed(_)) => {
                GrpcStatus { code: INVALID_ARGUMENT, message: self.detail().text() }
            }
            Some(Cause::Quota(_) | Cause::MissingKey(_)) | None => {
                GrpcStatus { code: RESOURCE_EXHAUSTED, message: self.exhausted() }
            }
        }
    }

    /// Calls `sink` with the name and value of every field of the trailers-only response to a
    /// denied request. [`grpc_content_type`] returned `content_type` for the request's own.
    pub fn grpc_headers(
        &self,
        content_type: &'static str,
        sink: &mut dyn FnMut(&'static str, &str),
    ) {
        self.headers(&mut |name, value| {
            if name != "content-type" {
                sink(name, value); // of the body, which this response does not have
            }
        });
        let GrpcStatus { code, message } = self.grpc();
        sink("content-type", content_type);
        sink("grpc-status", &code.to_string());
        if !message.is_empty() {
            sink("grpc-message", &percent_encoded(&message));
        }
    }

    fn exhausted(&self) -> String {
        let Some(wait) = self.retry_after() else { return self.detail().text() };
        let names = self.violated().collect::<Vec<_>>().join(", ");
        let seconds = fields::seconds(wait.saturating_add(self.jitter()));
        format!("quota exceeded: {names}; retry in {seconds} s")
    }
}

/// The code for an HTTP status by the gRPC project's mapping; 0 for a success.
const fn code_of(status: u16) -> u8 {
    match status {
        200..=299 => OK,
        400 => INTERNAL,
        401 => UNAUTHENTICATED,
        403 => PERMISSION_DENIED,
        404 => UNIMPLEMENTED,
        429 | 502 | 503 | 504 => UNAVAILABLE,
        _ => UNKNOWN,
    }
}

/// `text` as a `grpc-message`: all but %x20-24 and %x26-7E percent-encoded ("Responses").
fn percent_encoded(text: &str) -> String {
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
    fn grpc_is_known_by_its_content_type() {
        let web = Some("application/grpc-web+proto");
        let text = Some("application/grpc-web-text+proto");
        for (content_type, expected) in [
            ("application/grpc", Some("application/grpc")),
            ("application/grpc+proto", Some("application/grpc")),
            ("application/grpc+json", Some("application/grpc")),
            ("application/grpc;charset=utf-8", Some("application/grpc")),
            ("application/grpc ; charset=utf-8", Some("application/grpc")),
            ("application/grpc+proto; charset=utf-8", Some("application/grpc")),
            ("Application/gRPC", Some("application/grpc")),
            ("application/grpc-web", web),
            ("application/grpc-web+proto", web),
            ("APPLICATION/GRPC-WEB; x=y", web),
            ("application/grpc-web-text", text),
            ("application/grpc-web-text+proto", text),
            ("application/grpcx", None),
            ("application/grpc-web-texts", None),
            ("application/grp", None),
            ("text/application/grpc", None),
            ("application/json; a=application/grpc", None),
            ("application/json, application/grpc", None),
            ("", None),
        ] {
            assert_eq!(grpc_content_type(content_type.as_bytes()), expected, "{content_type}");
        }
    }

    #[test]
    fn messages_are_percent_encoded() {
        assert_eq!(percent_encoded("50 % of \"ä\"\n"), "50 %25 of \"%C3%A4\"%0A");
    }

    #[test]
    fn http_statuses_have_the_codes_of_the_grpc_project() {
        let rows = [
            (200, 0),
            (204, 0),
            (302, 2),
            (400, 13),
            (401, 16),
            (403, 7),
            (404, 12),
            (418, 2),
            (429, 14),
            (500, 2),
            (502, 14),
            (503, 14),
            (504, 14),
        ];
        for (status, code) in rows {
            assert_eq!(code_of(status), code, "{status}");
        }
    }
}
