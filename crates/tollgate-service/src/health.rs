//! What is wrong with a deployment, for whom it concerns.
//!
//! Invariant: everybody learns whether the deployment works and at which places it is wrong; what
//! stands there, which may be a secret at the wrong place, only the log and the bearer of
//! `CHECK_TOKEN`. Nothing is said twice in one isolate.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::vec::Vec;

use tollgate_policy::{Policy, Problem, Problems};

use crate::answer::{Answer, HEALTH_PATH};

/// Problems that are logged one by one; who has more runs `tollgate check`.
const MAX_LINES: usize = 20;

/// The report of a deployment with these problems.
#[must_use]
pub fn report(settings: &Problems, policy: &Result<Policy, Problems>, is_trusted: bool) -> Answer {
    let problems = all(settings, policy);
    if let (Ok(policy), true) = (policy, problems.0.is_empty()) {
        return Answer::json(format!(
            "{{\"status\":\"ok\",\"rules\":{},\"policy\":\"{:016x}\"}}",
            policy.rules().len(),
            policy.fingerprint(),
        ));
    }
    let detail = "every request is refused until this is corrected; see errors";
    let shown = if is_trusted { problems } else { places(&problems) };
    Answer::problems(500, "Misconfigured", detail, &shown)
}

/// What every request is answered with while there are problems.
#[must_use]
pub fn misconfigured() -> Answer {
    let detail = format!("the policy or a setting is wrong; see {HEALTH_PATH}");
    Answer::problem(500, "Misconfigured", &detail)
}

/// Logs every problem, one line each.
pub fn log(settings: &Problems, policy: &Result<Policy, Problems>, mut line: impl FnMut(&str)) {
    let prefix = "misconfigured, every request is answered with 500: ";
    log_each(&all(settings, policy), prefix, &mut line);
}

/// Logs so many of `problems`, one line each, and how many more there are.
pub fn log_each(problems: &Problems, prefix: &str, line: &mut dyn FnMut(&str)) {
    for problem in problems.0.iter().take(MAX_LINES) {
        line(&format!("{prefix}{problem}"));
    }
    if let Some(more) = problems.0.len().checked_sub(MAX_LINES).filter(|more| *more > 0) {
        line(&format!("{prefix}and {more} more; run `tollgate check`"));
    }
}

fn all(settings: &Problems, policy: &Result<Policy, Problems>) -> Problems {
    let nothing = Problems::default();
    let rules = policy.as_ref().err().unwrap_or(&nothing);
    Problems(settings.0.iter().chain(&rules.0).cloned().collect())
}

/// Where the problems are, each place once.
fn places(problems: &Problems) -> Problems {
    let detail = "is wrong; the log says why, and this report to the bearer of CHECK_TOKEN";
    let mut places: Vec<&str> = problems.0.iter().map(|problem| problem.place.as_str()).collect();
    places.dedup();
    Problems(places.into_iter().map(|place| Problem::new(place, detail.to_owned())).collect())
}

#[cfg(test)]
mod tests {
    use alloc::string::String;
    use alloc::{format, vec};

    use super::*;
    use tollgate_policy::Surface;

    const SECRET: &str = "sk_live_4eC39HqLyjWDarjtT1zdp7dc";

    #[test]
    fn only_who_is_trusted_reads_what_stands_at_a_wrong_place() {
        let settings = Problems(vec![Problem::new("ORIGIN", format!("{SECRET} is no origin"))]);
        let document =
            format!(r#"{{"version":1,"{SECRET}":1,"jwt":{{"keys":["{SECRET}"]}},"rules":[]}}"#);
        let policy = Policy::compile(&document, Surface::Worker);
        let public = report(&settings, &policy, false);
        let whole = report(&settings, &policy, true);
        assert_eq!((public.status, whole.status), (500, 500));
        assert!(!public.body.contains(SECRET) && whole.body.contains(SECRET), "{}", public.body);
        for place in ["\"ORIGIN\"", "\"\"", "\"jwt.keys[0]\""] {
            assert!(public.body.contains(&format!("\"path\":{place}")), "{}", public.body);
        }
        let mut lines = vec![];
        log(&settings, &policy, |line| lines.push(line.to_owned()));
        assert_eq!(lines.len(), 3, "{lines:#?}");
        assert!(lines.iter().all(|line| line.contains("sk_live")), "{lines:#?}");
    }

    #[test]
    fn a_thousand_problems_are_a_few_lines() {
        let problem = |i: usize| Problem::new("rules", format!("{i}"));
        let settings = Problems((0..1000).map(problem).collect());
        let policy = Policy::compile(r#"{"version":1,"rules":[]}"#, Surface::Worker);
        let mut lines = vec![];
        log(&settings, &policy, |line| lines.push(line.to_owned()));
        assert_eq!(lines.len(), MAX_LINES + 1);
        let last =
            "misconfigured, every request is answered with 500: and 980 more; run `tollgate check`";
        assert_eq!(lines.last().map(String::as_str), Some(last));
        log(&Problems::default(), &policy, |line| panic!("{line}"));
    }
}
