//! A denial as the host sends it: for HTTP a status with fields and a body, for gRPC a bare 200.
//!
//! Invariant: nothing but the policy's outcome is sent; names of quotas, never keys. Deliberately
//! absent: host calls, and the fields of a gRPC response, which are added to it when it comes.

use std::borrow::Cow;

use tollgate_policy::{Disposition, Outcome};

use crate::observability::labels::Labels;
use crate::wire::header_map::HeaderMapWriter;

/// The response to a request in the origin's place.
pub struct Reply {
    /// The HTTP status.
    pub status: u16,
    /// The gRPC status; -1, which is not a status, for HTTP.
    pub grpc_status: i32,
    /// For the access log: `%RESPONSE_CODE_DETAILS%`.
    pub details: Cow<'static, str>,
    /// In the host's serialisation of a map.
    pub headers: Vec<u8>,
    /// The body.
    pub body: Vec<u8>,
}

impl Reply {
    /// The response to a request about which nothing can be decided, because there is no memory for
    /// it.
    #[must_use]
    pub fn overloaded() -> Self {
        let mut headers = HeaderMapWriter::default();
        headers.push("retry-after", b"1");
        Self { headers: headers.finish(), ..Self::bare(503, "tollgate_overloaded") }
    }

    /// The response to a request whose route names a policy that does not exist: a mistake of the
    /// operator, which no later try corrects.
    #[must_use]
    pub fn unknown_policy() -> Self {
        Self::bare(500, "tollgate_unknown_policy")
    }

    fn bare(status: u16, details: &'static str) -> Self {
        let (headers, body) = (HeaderMapWriter::default().finish(), Vec::new());
        Self { status, grpc_status: -1, details: details.into(), headers, body }
    }

    /// The response to a request that `outcome` denies, or to one of `grpc`'s content type.
    pub fn new(outcome: &Outcome<'_>, labels: &Labels, grpc: Option<&'static str>) -> Self {
        let mut headers = HeaderMapWriter::default();
        let status = match outcome.final_disposition() {
            Disposition::Deny { status } => status,
            answer @ (Disposition::Allow | Disposition::Delay(_) | Disposition::Retry(_)) => {
                debug_assert!(false, "not a denial: {answer:?}");
                503
            }
        };
        if grpc.is_none() {
            outcome.headers(&mut |name, value| headers.push(name, value.as_bytes()));
        }
        Self {
            status: if grpc.is_some() { 200 } else { status },
            grpc_status: grpc.map_or(-1, |_| outcome.grpc().code.into()),
            details: details(outcome, labels),
            headers: headers.finish(),
            body: if grpc.is_some() { Vec::new() } else { outcome.body().into_bytes() },
        }
    }
}

/// `tollgate_denied{login}`: the rule that denies, by its name in the metrics.
fn details(outcome: &Outcome<'_>, labels: &Labels) -> Cow<'static, str> {
    let word = if outcome.is_failure() { "tollgate_failure{" } else { "tollgate_denied{" };
    let rule = match (outcome.denied_by(), outcome.refused_by()) {
        (Some(matched), _) => labels.deny_rule(matched.index),
        (None, Some(rule)) => labels.rule(rule),
        (None, None) => "",
    };
    [word, rule, "}"].concat().into()
}
