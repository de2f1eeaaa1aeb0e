//! The body of a denial, and its content type.
//!
//! Invariant: there is a content type if and only if there is a body. Names of quotas are reported;
//! keys and other values that a client sent never are.

use alloc::format;
use alloc::string::String;

use crate::answer::fields;
use crate::answer::outcome::{Cause, Outcome, status_of};
use crate::answer::problem_details::ProblemDetails;
use crate::answer::text::Text as Digits;
use crate::spec::action::Text;
use crate::spec::response::BodyFormat;

/// The problem type of a denial by a rule that denies without counting. No registered type has this
/// meaning; docs/denied.md documents it.
const DENIED_BY_RULE: &str = "urn:tollgate:problem:denied-by-rule";

impl Outcome<'_> {
    /// The body of a denial: problem details (RFC 9457), unless the policy sets another format;
    /// empty for a status that has none.
    #[must_use]
    pub fn body(&self) -> String {
        let Some(cause) = self.cause else { return String::new() };
        if is_bodiless(status_of(cause)) { String::new() } else { self.content(cause) }
    }

    /// The text of a denial, if its status has a body.
    pub(crate) fn content(&self, cause: Cause<'_>) -> String {
        if let Some(body) = own_body(cause) {
            return body.0.clone();
        }
        if let Cause::Silent(reply) = cause {
            return reply.body.as_ref().map(|body| body.0.clone()).unwrap_or_default();
        }
        match self.policy.response.spec.body {
            BodyFormat::Empty => String::new(),
            BodyFormat::Text => format!("{}\n", self.detail()),
            BodyFormat::ProblemJson => self.problem(cause),
        }
    }

    pub(crate) fn detail(&self) -> String {
        match (self.cause, self.retry_after()) {
            (Some(Cause::Malformed(malformed)), _) => malformed.detail().into(),
            (Some(Cause::Rule(_)), _) => "a rule of the policy denies this request".into(),
            (Some(Cause::Failure), _) => "the rate limiter cannot decide at the moment".into(),
            (Some(Cause::Busy), Some(wait)) => {
                let seconds = fields::seconds(wait.saturating_add(self.jitter()));
                numbered("too many requests are waiting; try again in ", seconds, " s")
            }
            _ if self.is_key_missing() => "the request lacks what its quota is counted by".into(),
            (_, Some(wait)) => match fields::seconds(wait.saturating_add(self.jitter())) {
                1 => "try again in 1 second".into(),
                seconds => numbered("try again in ", seconds, " seconds"),
            },
            (_, None) if self.is_closed() => "the quota allows no requests".into(),
            _ if self.reported().any(|it| it.is_violated() && it.is_in_flight()) => {
                "too many requests at the same time; try again when one of them has ended".into()
            }
            (_, None) => "the request costs more than the quota ever holds".into(),
        }
    }

    /// True when a quota denies the request whatever was used.
    fn is_closed(&self) -> bool {
        let binding = self.plan.applied.iter().filter(|applied| applied.is_binding());
        binding.flat_map(|applied| self.of_rule(applied)).any(|r| r.decision.limit == 0)
    }

    fn problem(&self, cause: Cause<'_>) -> String {
        let (kind, title) = match cause {
            Cause::Failure | Cause::Busy => (
                "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",
                "Temporary Reduced Capacity",
            ),
            Cause::Malformed(_) => ("about:blank", "Bad Request"),
            Cause::Rule(_) => (DENIED_BY_RULE, "Denied by Rule"),
            Cause::Quota(_) if self.reported().any(|it| it.is_in_penalty()) => (
                "https://iana.org/assignments/http-problem-types#abnormal-usage-detected",
                "Abnormal Usage Detected",
            ),
            Cause::Quota(_) | Cause::Silent(_) | Cause::MissingKey(_) => {
                ("https://iana.org/assignments/http-problem-types#quota-exceeded", "Quota Exceeded")
            }
        };
        let (status, detail) = (status_of(cause), &self.detail());
        ProblemDetails { kind, title, status, detail }.of_quotas(self.violated())
    }

    /// `None` without a body: Envoy would drop the type, and all surfaces respond alike.
    pub(crate) fn content_type(&self, cause: Cause<'_>) -> Option<&'static str> {
        if is_bodiless(status_of(cause)) {
            return None;
        }
        let own = match cause {
            Cause::Silent(reply) => Some(reply.body.as_ref()),
            Cause::Quota(_)
            | Cause::MissingKey(_)
            | Cause::Rule(_)
            | Cause::Malformed(_)
            | Cause::Failure
            | Cause::Busy => own_body(cause).map(Some),
        };
        match (own, self.policy.response.spec.body) {
            (Some(body), _) => body.filter(|body| !body.0.is_empty()).map(|_| "text/plain"),
            (None, BodyFormat::Text) => Some("text/plain"),
            (None, BodyFormat::ProblemJson) => Some(ProblemDetails::MEDIA_TYPE),
            (None, BodyFormat::Empty) => None,
        }
    }
}

/// Formatting with `core::fmt` would take five times as long.
fn numbered(before: &str, number: u64, after: &str) -> String {
    let mut digits = Digits::new();
    digits.push_number(number);
    [before, digits.as_str(), after].concat()
}

/// The denying rule's own body, unless the rule hides its limits.
pub(crate) const fn own_body<'a>(cause: Cause<'a>) -> Option<&'a Text> {
    match cause {
        Cause::Quota(Some(reply)) | Cause::MissingKey(Some(reply)) | Cause::Rule(reply) => {
            reply.body.as_ref()
        }
        Cause::Quota(None)
        | Cause::MissingKey(None)
        | Cause::Silent(_)
        | Cause::Malformed(_)
        | Cause::Failure
        | Cause::Busy => None,
    }
}

/// True for a status whose response has no body (RFC 9110, 15.3.5, 15.3.6 and 15.4.5): a client
/// would read a body as the next response.
const fn is_bodiless(status: u16) -> bool {
    matches!(status, 204 | 205 | 304)
}
