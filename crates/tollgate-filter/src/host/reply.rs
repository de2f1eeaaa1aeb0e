//! A denial as the host sends it: for HTTP a status with fields and a body, for gRPC a bare 200.
//!
//! Invariant: nothing but the policy's outcome is sent; names of quotas, never keys. Deliberately
//! absent: host calls, and the fields of a gRPC response, which are added to it when it comes.

use std::borrow::Cow;

use tollgate_policy::{Disposition, Outcome};

use crate::observability::labels::Labels;

/// The response to a request in the origin's place.
pub struct Reply<'a> {
    /// The HTTP status.
    pub status: u16,
    /// The gRPC status; -1, which is not a status, for HTTP.
    pub grpc_status: i32,
    /// For the access log: `%RESPONSE_CODE_DETAILS%`.
    pub details: Cow<'static, str>,
    fields: Fields<'a>,
    /// The body.
    pub body: Vec<u8>,
}

/// The fields of a response in the origin's place.
enum Fields<'a> {
    None,
    /// The host is to be tried again soon.
    Soon,
    Denial(Outcome<'a>),
}

impl<'a> Reply<'a> {
    /// The response to a request about which nothing can be decided, because there is no memory for
    /// it.
    #[must_use]
    pub fn overloaded() -> Self {
        Self { fields: Fields::Soon, ..Self::bare(503, "tollgate_overloaded") }
    }

    /// The response to a request whose route names a policy that does not exist: a mistake of the
    /// operator, which no later try corrects.
    #[must_use]
    pub fn unknown_policy() -> Self {
        Self::bare(500, "tollgate_unknown_policy")
    }

    fn bare(status: u16, details: &'static str) -> Self {
        let (fields, body) = (Fields::None, Vec::new());
        Self { status, grpc_status: -1, details: details.into(), fields, body }
    }

    /// The response to a request that `outcome` denies, or to one of `grpc`'s content type.
    pub fn new(outcome: Outcome<'a>, labels: &Labels, grpc: Option<&'static str>) -> Self {
        let status = match outcome.final_disposition() {
            Disposition::Deny { status } => status,
            answer @ (Disposition::Allow | Disposition::Delay(_) | Disposition::Retry(_)) => {
                debug_assert!(false, "not a denial: {answer:?}");
                503
            }
        };
        let details = details(&outcome, labels);
        if grpc.is_some() {
            let grpc_status = outcome.grpc().code.into();
            let (fields, body) = (Fields::None, Vec::new());
            return Self { status: 200, grpc_status, details, fields, body };
        }
        let body = outcome.body().into_bytes();
        Self { status, grpc_status: -1, details, fields: Fields::Denial(outcome), body }
    }

    /// Calls `each` with the name (lower case) and the value of every field.
    pub fn fields(&self, each: &mut dyn FnMut(&'static str, &str)) {
        match &self.fields {
            Fields::None => {}
            Fields::Soon => each("retry-after", "1"),
            Fields::Denial(outcome) => outcome.headers(each),
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
