//! The problems of a deployment, for each audience.
//!
//! Invariant: every caller can read whether the deployment works and which places are wrong. The
//! values at those places, which may be a misplaced secret, are only for the log and the bearer of
//! `CHECK_TOKEN`. The policy in force is named by its public fingerprint, which reveals no key of
//! tokens. Nothing is logged twice in one isolate.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use serde::Serialize;
use tollgate_policy::{Policy, Problem, Problems};

use crate::api_response::{ApiResponse, HEALTH_PATH};
use crate::store::policy::Source;

/// Problems that are logged one by one; an operator with more runs `tollgate check`.
const MAX_LINES: usize = 20;

/// The known state of the policy in force, where it is changed at run time.
pub struct Followed<'a> {
    /// Its number; 0 while it is unknown.
    pub version: u64,
    /// Its source.
    pub source: Source,
    /// When it was last known to be in force, in milliseconds since 1970.
    pub checked_at_ms: Option<u64>,
    /// When a check last failed, in milliseconds since 1970, and the reason; `None` if the last one
    /// succeeded.
    pub failure: Option<(u64, &'a str)>,
}

/// The enforced policy, with its state.
pub struct Enforced<'a> {
    /// The policy.
    pub policy: &'a Policy,
    /// Its known state, where it is changed at run time.
    pub followed: Option<Followed<'a>>,
    /// Whether requests can be counted.
    pub status: Status,
}

/// Whether requests can be counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Yes, as far as is known.
    Ok,
    /// The store that servers share does not respond: `on_failure` of each rule decides.
    StoreUnreachable,
}

#[derive(Serialize)]
struct Report<'a> {
    status: Status,
    rules: usize,
    policy: String,
    #[serde(flatten)]
    followed: Option<FollowedReport<'a>>,
}

#[derive(Serialize)]
struct FollowedReport<'a> {
    version: u64,
    source: Source,
    checked_at_ms: Option<u64>,
    failed_at_ms: Option<u64>,
    /// Words of the platform: only for trusted callers.
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<&'a str>,
}

/// The report of a deployment with these problems: of its settings, and of the policy in force or
/// the reason that it is not enforced.
#[must_use]
pub fn report(
    problems: &Problems,
    enforced: Option<&Enforced<'_>>,
    is_trusted: bool,
) -> ApiResponse {
    if let (Some(enforced), true) = (enforced, problems.0.is_empty()) {
        let Enforced { policy, status, .. } = *enforced;
        let followed = enforced.followed.as_ref().map(|it| FollowedReport {
            version: it.version,
            source: it.source,
            checked_at_ms: it.checked_at_ms,
            failed_at_ms: it.failure.map(|(at, _)| at),
            failure: it.failure.map(|(_, why)| why).filter(|_| is_trusted),
        });
        let (rules, fingerprint) = (policy.rule_names().count(), policy.public_fingerprint());
        let report = Report { status, rules, policy: format!("{fingerprint:016x}"), followed };
        return ApiResponse::json(serde_json::to_string(&report).unwrap_or_default());
    }
    let detail = match enforced {
        None => "every request is refused until this is corrected; see errors",
        Some(_) => "an earlier policy is enforced until this is corrected; see errors",
    };
    let places = places(problems);
    let shown = if is_trusted { problems } else { &places };
    ApiResponse::problems(500, "Misconfigured", detail, shown)
}

/// The response to every request while there are problems.
#[must_use]
pub fn misconfigured() -> ApiResponse {
    let detail = format!("the policy or a setting is wrong; see {HEALTH_PATH}");
    ApiResponse::problem(500, "Misconfigured", &detail)
}

/// Logs every problem that causes all requests to be denied, one line each.
pub fn log(problems: &Problems, mut line: impl FnMut(&str)) {
    let prefix = "misconfigured, every request is answered with 500: ";
    log_each(problems, prefix, &mut line);
}

/// Logs at most `MAX_LINES` of `problems`, one line each, and the number of the others.
pub fn log_each(problems: &Problems, prefix: &str, line: &mut dyn FnMut(&str)) {
    for problem in problems.0.iter().take(MAX_LINES) {
        line(&format!("{prefix}{problem}"));
    }
    if let Some(more) = problems.0.len().checked_sub(MAX_LINES).filter(|more| *more > 0) {
        line(&format!("{prefix}and {more} more; run `tollgate check`"));
    }
}

/// The places of the problems, each once.
fn places(problems: &Problems) -> Problems {
    let detail = "is wrong; the log shows the reason, and so does this report with CHECK_TOKEN";
    let mut places: Vec<&str> = problems.0.iter().map(|problem| problem.place.as_str()).collect();
    places.dedup();
    Problems(places.into_iter().map(|place| Problem::new(place, detail.to_owned())).collect())
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;
    use tollgate_policy::Surface;

    const SECRET: &str = "sk_live_4eC39HqLyjWDarjtT1zdp7dc";

    #[test]
    fn only_who_is_trusted_reads_what_stands_at_a_wrong_place() {
        let document =
            format!(r#"{{"version":1,"{SECRET}":1,"jwt":{{"keys":["{SECRET}"]}},"rules":[]}}"#);
        let mut problems =
            Problems(vec![Problem::new("ORIGIN", format!("{SECRET} is not an origin"))]);
        problems.0.extend(tollgate_language::compile(&document, Surface::Worker).unwrap_err().0);
        let public = report(&problems, None, false);
        let whole = report(&problems, None, true);
        assert_eq!((public.status, whole.status), (500, 500));
        assert!(!public.body.contains(SECRET) && whole.body.contains(SECRET), "{}", public.body);
        for place in ["\"ORIGIN\"", "\"\"", "\"jwt.keys[0]\""] {
            assert!(public.body.contains(&format!("\"path\":{place}")), "{}", public.body);
        }
        let mut lines = vec![];
        log(&problems, |line| lines.push(line.to_owned()));
        assert_eq!(lines.len(), 3, "{lines:#?}");
        assert!(lines.iter().all(|line| line.contains("sk_live")), "{lines:#?}");
    }

    #[test]
    fn a_thousand_problems_are_a_few_lines() {
        let problem = |i: usize| Problem::new("rules", format!("{i}"));
        let problems = Problems((0..1000).map(problem).collect());
        let mut lines = vec![];
        log(&problems, |line| lines.push(line.to_owned()));
        assert_eq!(lines.len(), MAX_LINES + 1);
        let last =
            "misconfigured, every request is answered with 500: and 980 more; run `tollgate check`";
        assert_eq!(lines.last().map(String::as_str), Some(last));
        log(&Problems::default(), |line| panic!("{line}"));
    }

    #[test]
    fn the_report_says_what_is_in_force() {
        let policy =
            tollgate_language::compile(r#"{"version":1,"rules":[]}"#, Surface::Worker).unwrap();
        let body = |followed: Option<Followed<'_>>, status, is_trusted| {
            let enforced = Enforced { policy: &policy, followed, status };
            let answer = report(&Problems::default(), Some(&enforced), is_trusted);
            let body = String::from(answer.body);
            (answer.status, body.replace(&format!("{:016x}", policy.public_fingerprint()), "F"))
        };
        let plain = r#"{"status":"ok","rules":0,"policy":"F"}"#;
        assert_eq!(body(None, Status::Ok, true), (200, plain.into()));
        let unreachable = r#"{"status":"store_unreachable","rules":0,"policy":"F"}"#;
        assert_eq!(body(None, Status::StoreUnreachable, false), (200, unreachable.into()));
        let followed = || Followed {
            version: 7,
            source: Source::Written,
            checked_at_ms: Some(1),
            failure: Some((2, "a word of the platform")),
        };
        let public = r#"{"status":"ok","rules":0,"policy":"F","version":7,"source":"written","checked_at_ms":1,"failed_at_ms":2}"#;
        assert_eq!(body(Some(followed()), Status::Ok, false), (200, public.into()));
        let whole = body(Some(followed()), Status::Ok, true).1;
        assert!(whole.contains(r#""failure":"a word of the platform""#));
        let refused = Problems(vec![Problem::new("rules[0]", "is unknown".into())]);
        let enforced = Enforced { policy: &policy, followed: Some(followed()), status: Status::Ok };
        let answer = report(&refused, Some(&enforced), false);
        assert!(answer.status == 500 && answer.body.contains("an earlier policy is enforced"));
    }
}
