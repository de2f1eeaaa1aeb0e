//! Requests that were denied for their token: their counters, and their lines in the log.
//!
//! Invariant: no data of a request is in a line: no token, path or address; a flood causes a
//! bounded number of lines and a number (`log`). A client that sends many wrong tokens is guessing;
//! a token without the permission belongs to a known user. Deliberately absent: the owner of a
//! token.

use alloc::string::String;

use serde::Serialize;

use crate::api_response::ApiResponse;
use crate::metrics::Event;

/// The API that needs a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Api {
    /// The admin API, and metrics.
    Admin,
    /// `POST /check` and related paths.
    Check,
}

/// The mistake in the token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Reason {
    /// There was none.
    Missing,
    /// It is not one of ours.
    Wrong,
    /// It may not do this.
    Forbidden,
}

/// A request that was denied for its token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unauthorized {
    api: Api,
    reason: Reason,
    status: u16,
}

#[derive(Serialize)]
struct Line {
    event: &'static str,
    api: Api,
    reason: Reason,
    status: u16,
    dropped: u64,
}

impl Unauthorized {
    /// The request that `answer` denied, if that was because of the token; `has_token` when the
    /// request had a field `authorization`.
    #[must_use]
    pub fn of(api: Api, answer: &ApiResponse, has_token: bool) -> Option<Self> {
        let reason = match (answer.status, has_token) {
            (401, false) => Reason::Missing,
            (401, true) => Reason::Wrong,
            (403, _) => Reason::Forbidden,
            _ => return None,
        };
        Some(Self { api, reason, status: answer.status })
    }

    /// The event that it is counted as.
    #[must_use]
    pub const fn event(self) -> Event {
        match (self.api, self.reason) {
            (Api::Admin, Reason::Missing) => Event::AdminTokenMissing,
            (Api::Admin, Reason::Wrong) => Event::AdminTokenWrong,
            (Api::Admin, Reason::Forbidden) => Event::AdminTokenForbidden,
            (Api::Check, Reason::Missing) => Event::CheckTokenMissing,
            // There is one token, and it may do everything there.
            (Api::Check, Reason::Wrong | Reason::Forbidden) => Event::CheckTokenWrong,
        }
    }

    /// Its line of the log, as JSON; `dropped` is the number of requests since the last line that
    /// have none.
    #[must_use]
    pub fn line(self, dropped: u64) -> String {
        let Self { api, reason, status } = self;
        let line = Line { event: "unauthorized", api, reason, status, dropped };
        serde_json::to_string(&line).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeSet;
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn each_refusal_is_one_event_and_a_line_without_the_request() {
        let answer = |status| ApiResponse::problem(status, "x", "a detail");
        let mut seen = BTreeSet::new();
        for (api, status, has_token, words, expected) in [
            (Api::Admin, 401, false, ("admin", "missing"), Event::AdminTokenMissing),
            (Api::Admin, 401, true, ("admin", "wrong"), Event::AdminTokenWrong),
            (Api::Admin, 403, true, ("admin", "forbidden"), Event::AdminTokenForbidden),
            (Api::Check, 401, false, ("check", "missing"), Event::CheckTokenMissing),
            (Api::Check, 401, true, ("check", "wrong"), Event::CheckTokenWrong),
        ] {
            let it = Unauthorized::of(api, &answer(status), has_token).unwrap();
            assert_eq!(it.event(), expected);
            let (_, labels) = expected.series();
            assert_eq!(labels, [words.0, words.1], "the line and the metric have the same words");
            let line = it.line(7);
            let expected = alloc::format!(
                r#"{{"event":"unauthorized","api":"{}","reason":"{}","status":{status},"dropped":7}}"#,
                words.0,
                words.1
            );
            assert_eq!(line, expected);
            seen.insert(line.to_string());
        }
        assert_eq!(seen.len(), 5);
        for status in [200, 204, 304, 400, 404, 405, 429, 503] {
            assert_eq!(Unauthorized::of(Api::Admin, &answer(status), true), None);
        }
    }
}
