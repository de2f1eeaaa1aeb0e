//! The body of a denial, and its content type.
//!
//! Invariant: there is a content type if and only if there is a body. Names of quotas are reported;
//! keys and other values that a client sent never are.

use alloc::string::String;

use crate::answer::cause::{Cause, status_of};
use crate::answer::fields;
use crate::answer::outcome::Outcome;
use crate::answer::problem_details::{Detail, ProblemDetails, ProblemKind};
use crate::spec::action::Text;
use crate::spec::response::BodyFormat;

impl Outcome<'_> {
    /// The body of a denial: problem details (RFC 9457), unless the policy sets another format;
    /// empty for a status that has none.
    #[must_use]
    pub fn body(&self) -> String {
        let mut body = String::new();
        self.write_body(&mut body);
        body
    }

    /// Appends [`Outcome::body`] to `out`.
    pub fn write_body(&self, out: &mut String) {
        if let Some(cause) = self.cause.filter(|cause| !is_bodiless(status_of(*cause))) {
            self.write_content(cause, out);
        }
    }

    /// Appends the text of a denial, if its status has a body.
    pub(crate) fn write_content(&self, cause: Cause<'_>, out: &mut String) {
        if let Some(body) = own_body(cause) {
            return out.push_str(&body.0);
        }
        if let Cause::Silent(reply) = cause {
            return reply.body.iter().for_each(|body| out.push_str(&body.0));
        }
        match self.policy.response.spec.body {
            BodyFormat::Empty => {}
            BodyFormat::Text => {
                self.detail().push(out);
                out.push('\n');
            }
            BodyFormat::ProblemJson => self.write_problem(cause, out),
        }
    }

    pub(crate) fn detail(&self) -> Detail {
        let text = |text| Detail { before: text, number: None };
        match (self.cause, self.retry_after()) {
            (Some(Cause::Malformed(malformed)), _) => text(malformed.detail()),
            (Some(Cause::Rule(_)), _) => text("a rule of the policy denies this request"),
            (Some(Cause::Failure), _) => text("the rate limiter cannot decide at the moment"),
            (Some(Cause::Busy), Some(wait)) => Detail {
                before: "too many requests are waiting; try again in ",
                number: Some((fields::seconds(wait.saturating_add(self.jitter())), " s")),
            },
            _ if self.is_key_missing() => text("the request lacks what its quota is counted by"),
            (_, Some(wait)) => match fields::seconds(wait.saturating_add(self.jitter())) {
                1 => text("try again in 1 second"),
                seconds => Detail { before: "try again in ", number: Some((seconds, " seconds")) },
            },
            (_, None) if self.is_closed() => text("the quota allows no requests"),
            _ if self.reported().any(|it| it.is_violated() && it.is_in_flight()) => {
                text("too many requests at the same time; try again when one of them has ended")
            }
            (_, None) => text("the request costs more than the quota ever holds"),
        }
    }

    /// True when a quota denies the request whatever was used.
    fn is_closed(&self) -> bool {
        let binding = self.plan.applied.iter().filter(|applied| applied.is_binding());
        binding.flat_map(|applied| self.of_rule(applied)).any(|r| r.decision.limit == 0)
    }

    fn write_problem(&self, cause: Cause<'_>, out: &mut String) {
        let kind = match cause {
            Cause::Failure | Cause::Busy => ProblemKind::REDUCED_CAPACITY,
            Cause::Malformed(_) => ProblemKind::BAD_REQUEST,
            Cause::Rule(_) => ProblemKind::DENIED_BY_RULE,
            Cause::Quota(_) if self.reported().any(|it| it.is_in_penalty()) => {
                ProblemKind::ABNORMAL_USAGE
            }
            Cause::Quota(_) | Cause::Silent(_) | Cause::MissingKey(_) => {
                ProblemKind::QUOTA_EXCEEDED
            }
        };
        kind.write(status_of(cause), self.detail(), self.violated(), out);
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
