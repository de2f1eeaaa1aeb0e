//! A refusal as the host sends it: for HTTP a status with fields and a body, for gRPC trailers only.
//!
//! Invariant: nothing but what the policy's outcome says goes out; names of quotas, never keys.
//! Deliberately absent: host calls.

use tollgate_policy::Outcome;

use crate::pairs::PairsWriter;

/// The gRPC status of a refusal that a failure brings about.
const UNAVAILABLE: u8 = 14;

/// What answers the request instead of the origin.
pub struct Reply {
    /// The HTTP status.
    pub status: u16,
    /// The gRPC status, should the request be gRPC.
    pub grpc_status: i32,
    /// For the access log: `%RESPONSE_CODE_DETAILS%`.
    pub details: &'static str,
    /// In the host's serialisation of a map.
    pub headers: Vec<u8>,
    /// The body; the `grpc-message` of a gRPC request.
    pub body: Vec<u8>,
}

impl Reply {
    /// The answer to a request with this `content-type` that `outcome` refuses with `status`.
    pub fn new(outcome: &Outcome<'_>, status: u16, content_type: &[u8]) -> Self {
        let is_grpc = is_grpc(content_type);
        let mut headers = PairsWriter::default();
        outcome.headers(&mut |name, value| {
            // A gRPC answer has the content type of gRPC, which the host sets, and no body.
            if !(is_grpc && name == "content-type") {
                headers.push(name, value.as_bytes());
            }
        });
        let (grpc_status, message) = outcome.grpc();
        let is_failure = grpc_status == UNAVAILABLE;
        Self {
            status,
            grpc_status: grpc_status.into(),
            details: if is_failure { "tollgate_failure" } else { "tollgate_denied" },
            headers: headers.finish(),
            body: if is_grpc { message } else { outcome.body() }.into_bytes(),
        }
    }
}

/// `application/grpc`, alone or with a suffix: `application/grpc+proto` (gRPC over HTTP/2, "Requests").
fn is_grpc(content_type: &[u8]) -> bool {
    let rest = content_type.strip_prefix(b"application/grpc".as_slice());
    rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';')))
}

#[cfg(test)]
mod tests {
    use super::is_grpc;

    #[test]
    fn grpc_is_known_by_its_content_type() {
        let rows: [(&[u8], bool); 6] = [
            (b"application/grpc", true),
            (b"application/grpc+proto", true),
            (b"application/grpc;x=y", true),
            (b"application/grpc-web", false),
            (b"application/json", false),
            (b"", false),
        ];
        for (content_type, expected) in rows {
            assert_eq!(is_grpc(content_type), expected);
        }
    }
}
