//! Requests that were refused for their token: what is counted of them, and their lines in the log.
//!
//! Invariant: nothing of a request is in a line: no token, path or address; a flood is a bounded
//! number of lines and a number (`log`). Who sends many that are wrong tries tokens; one that may
//! not do what it is for belongs to somebody. Deliberately absent: whom a token is of.

use alloc::string::String;

use serde::Serialize;

use crate::answer::Answer;
use crate::metrics::Event;

/// What a token was wanted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Api {
    /// The admin API, and metrics.
    Admin,
    /// `POST /check` and its kin.
    Check,
}

/// What was wrong with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Reason {
    /// There was none.
    Missing,
    /// It is none of ours.
    Wrong,
    /// It may not do this.
    Forbidden,
}

/// A request that was refused for its token.
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
    /// What `answer` refused, if that was because of the token; `has_token` when the request had a
    /// field `authorization`.
    #[must_use]
    pub fn of(api: Api, answer: &Answer, has_token: bool) -> Option<Self> {
        let reason = match (answer.status, has_token) {
            (401, false) => Reason::Missing,
            (401, true) => Reason::Wrong,
            (403, _) => Reason::Forbidden,
            _ => return None,
        };
        Some(Self { api, reason, status: answer.status })
    }

    /// What it is counted as.
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

    /// Its line of the log, as JSON; `dropped` came since the last one and have none.
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
        let answer = |status| Answer::problem(status, "x", "a detail");
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
