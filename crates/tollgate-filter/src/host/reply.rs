//! A denial as the host sends it: for HTTP a status with fields and a body, for gRPC a bare 200.
//!
//! Invariant: nothing but the policy's outcome is sent; names of quotas, never keys. Deliberately
//! absent: host calls, and the fields of a gRPC response, which are added to it when it comes.

use tollgate_policy::{Disposition, Outcome};

use crate::observability::labels::Labels;

/// The response to a request in the origin's place.
pub struct Reply<'a> {
    /// The HTTP status.
    pub status: u16,
    /// The gRPC status; -1, which is not a status, for HTTP.
    pub grpc_status: i32,
    content: Content<'a>,
}

/// The content of a response in the origin's place.
enum Content<'a> {
    /// Nothing, with these details for the access log.
    Nothing(&'static str),
    /// The same, and the host is to be tried again soon.
    Soon(&'static str),
    /// A denial by the rule with this name in the metrics.
    Denial(Outcome<'a>, &'a str),
}

impl<'a> Reply<'a> {
    /// The response to a request about which nothing can be decided, because there is no memory for
    /// it.
    #[must_use]
    pub const fn overloaded() -> Self {
        Self { status: 503, grpc_status: -1, content: Content::Soon("tollgate_overloaded") }
    }

    /// The response to a request whose route names a policy that does not exist: a mistake of the
    /// operator, which no later try corrects.
    #[must_use]
    pub const fn unknown_policy() -> Self {
        Self { status: 500, grpc_status: -1, content: Content::Nothing("tollgate_unknown_policy") }
    }

    /// The response to a request that `outcome` denies, which is a gRPC request or not.
    pub fn new(outcome: Outcome<'a>, labels: &'a Labels, grpc: Option<&'static str>) -> Self {
        let status = match outcome.final_disposition() {
            Disposition::Deny { status } => status,
            answer @ (Disposition::Allow | Disposition::Delay(_) | Disposition::Retry(_)) => {
                debug_assert!(false, "not a denial: {answer:?}");
                503
            }
        };
        let rule = match (outcome.denied_by(), outcome.refused_by()) {
            (Some(matched), _) => labels.deny_rule(matched.index),
            (None, Some(rule)) => labels.rule(rule),
            (None, None) => "",
        };
        let content = Content::Denial(outcome, rule);
        if grpc.is_some() {
            return Self { status: 200, grpc_status: outcome.grpc().code.into(), content };
        }
        Self { status, grpc_status: -1, content }
    }

    /// True when the content type of the request was read, and is not one of gRPC.
    #[must_use]
    pub const fn is_for_http(&self) -> bool {
        self.http().is_some()
    }

    /// The denial of a request that is not gRPC.
    const fn http(&self) -> Option<&Outcome<'a>> {
        match &self.content {
            Content::Denial(outcome, _) if self.grpc_status < 0 => Some(outcome),
            Content::Denial(..) | Content::Nothing(_) | Content::Soon(_) => None,
        }
    }

    /// Calls `each` with the name (lower case) and the value of every field.
    pub fn fields(&self, each: &mut dyn FnMut(&'static str, &str)) {
        if let Content::Soon(_) = self.content {
            each("retry-after", "1");
        } else if let Some(outcome) = self.http() {
            outcome.headers(each);
        }
    }

    /// Appends the body.
    pub fn write_body(&self, out: &mut String) {
        if let Some(outcome) = self.http() {
            outcome.write_body(out);
        }
    }

    /// Appends the details for the access log, `%RESPONSE_CODE_DETAILS%`. Of a denial they are the
    /// rule by its name in the metrics: `tollgate_denied{login}`.
    pub fn write_details(&self, out: &mut String) {
        match &self.content {
            Content::Nothing(details) | Content::Soon(details) => out.push_str(details),
            Content::Denial(outcome, rule) => {
                let is_failure = outcome.is_failure();
                out.push_str(if is_failure { "tollgate_failure{" } else { "tollgate_denied{" });
                out.push_str(rule);
                out.push('}');
            }
        }
    }
}
