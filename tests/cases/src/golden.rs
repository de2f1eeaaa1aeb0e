//! `golden.txt`: the reference's responses to every case, and the core's decisions in every trace
//! of a limiter.
//!
//! Each has a section: its kind, its number and the digest of everything. Below it are the
//! responses of a case, packed, or a mark for each step of a trace. The digest is compared. If it
//! differs, the rest of the section shows the place and the earlier response.
//!
//! Invariant: only its own test writes the file, and accepts it as complete only if every section
//! exists.

use std::collections::BTreeMap;

use tollgate_policy::Surface;

use crate::case::{CASES, Case, cases, cases_on, numbers};
use crate::limits::{self, TRACES, Trace};
use crate::packed::{pack, unpack};
use crate::reference::{HASH_KEY, Reference};
use crate::seen::Digest;

/// The command that writes `golden.txt` again.
pub const BLESS: &str = "TOLLGATE_BLESS=1 cargo test -p tollgate-cases";

const FILE: &str = include_str!("../golden.txt");
const SECTION: &str = "\n## ";

/// The results of this run, to be compared.
pub struct CaseResult {
    kind: &'static str,
    number: u32,
    digest: Digest,
    body: Body,
}

enum Body {
    Case(Vec<String>),
    Trace(Trace),
}

/// Every case, on each surface that does not refuse it: a document has the same meaning on all.
pub fn policies() -> Vec<CaseResult> {
    let results: Vec<CaseResult> =
        numbers(cases()).map(Case::new).map(|case| policy(&case)).collect();
    for surface in OTHERS {
        for case in cases_on(surface, cases()) {
            let (digest, _) = decide(&case, surface);
            let number = case.number;
            let of_envoy = results.iter().find(|result| result.number == number);
            let is_same = of_envoy.is_some_and(|result| result.digest == digest);
            assert!(is_same, "case {number} means something else on {surface:?}");
        }
    }
    results
}

/// The surfaces that are compared with the filter.
const OTHERS: [Surface; 1] = [Surface::Worker];

/// Every trace of a limiter.
pub fn limiters() -> Vec<CaseResult> {
    let answered = |number| {
        let trace = limits::run(number);
        CaseResult { kind: "limiter", number, digest: trace.digest, body: Body::Trace(trace) }
    };
    (0..TRACES.min(cases())).map(answered).collect()
}

fn policy(case: &Case) -> CaseResult {
    let (digest, answers) = decide(case, Surface::Envoy);
    CaseResult { kind: "policy", number: case.number, digest, body: Body::Case(answers) }
}

/// The responses to a case on `surface`, and their digest.
fn decide(case: &Case, surface: Surface) -> (Digest, Vec<String>) {
    let (mut digest, mut answers) = (Digest::default(), vec![]);
    for expected in Reference::new(case, surface, HASH_KEY) {
        let text = expected.seen.to_string();
        digest.add(expected.at_ms.to_le_bytes());
        digest.add(&text);
        answers.push(text);
    }
    (digest, answers)
}

impl CaseResult {
    fn name(&self) -> String {
        format!("{} {}", self.kind, self.number)
    }

    fn section(&self) -> String {
        let body = match &self.body {
            Body::Case(answers) => pack(answers),
            Body::Trace(trace) => format!("{}\n", trace.steps),
        };
        format!("{SECTION}{} {}\n{body}", self.name(), self.digest)
    }

    /// The first response that differs from `before`, both of them, and the request.
    fn difference(&self, before: &str) -> String {
        match &self.body {
            Body::Case(answers) => first_answer(self.number, &unpack(before), answers),
            Body::Trace(trace) => trace.difference(self.number, before),
        }
    }
}

fn first_answer(number: u32, before: &[String], now: &[String]) -> String {
    let Some(index) = (0..now.len()).find(|i| before.get(*i) != now.get(*i)) else {
        return format!("policy {number}: every response is the same, at another time");
    };
    let case = Case::new(number);
    let none = String::new();
    let (before, now) = (before.get(index).unwrap_or(&none), now.get(index).unwrap_or(&none));
    format!(
        "policy {number}, request {index}: {}\nthe request: {:?}\nthe policy: {}\n\
         --- the whole response before\n{before}--- now\n{now}",
        first_field(before, now),
        case.events[index].request,
        case.policy,
    )
}

/// The first line that differs: the status with its waits, a field, a mark or the body.
fn first_field(before: &str, now: &str) -> String {
    let gone = before.lines().find(|line| !now.lines().any(|other| other == *line));
    let new = now.lines().find(|line| !before.lines().any(|other| other == *line));
    match (gone, new) {
        (Some(gone), Some(new)) => format!("expected `{gone}`, seen `{new}`"),
        (Some(gone), None) => format!("expected `{gone}`, which is missing"),
        (None, Some(new)) => format!("seen `{new}`, which is new"),
        (None, None) => "the same fields in another order".to_owned(),
    }
}

/// Fails with the first difference, field by field, and with the names of all sections that differ.
pub fn compare(answered: &[CaseResult]) {
    let golden = sections(FILE);
    let before = |one: &CaseResult| golden.get(one.name().as_str()).copied().unwrap_or_default();
    let wrong: Vec<&CaseResult> =
        answered.iter().filter(|one| before(one).0 != one.digest.to_string()).collect();
    let Some(first) = wrong.first() else { return };
    let names: Vec<String> = wrong.iter().map(|one| one.name()).collect();
    panic!(
        "{}\n\n{} of {} differ from golden.txt: {}\nAll responses of a case: `cargo run -p tollgate-cases --example show \
         {}`. If the change is meant: `{BLESS}`, and read the difference.",
        first.difference(before(first).1),
        wrong.len(),
        answered.len(),
        names.join(", "),
        first.number,
    );
}

/// Digest and body of each section by its name.
fn sections(file: &str) -> BTreeMap<&str, (&str, &str)> {
    file.split(SECTION)
        .skip(1)
        .filter_map(|text| {
            let (head, body) = text.split_once('\n')?;
            let (name, digest) = head.rsplit_once(' ')?;
            Some((name, (digest, body)))
        })
        .collect()
}

/// The whole file.
pub fn file(answered: &[CaseResult]) -> String {
    let head = format!("# The reference's result of each case; written by {BLESS}\n");
    let sections: String = answered.iter().map(CaseResult::section).collect();
    head + &sections
}

/// Fails unless the file has every promised section, and each has the right digest.
pub fn is_complete() {
    let golden = sections(FILE);
    assert_eq!(golden.len(), CASES as usize + TRACES as usize, "run `{BLESS}`");
    for answered in policies() {
        let Some((_, body)) = golden.get(answered.name().as_str()) else {
            panic!("golden.txt lacks {}: run `{BLESS}`", answered.name());
        };
        let Body::Case(answers) = &answered.body else { continue };
        assert!(unpack(body) == *answers, "{}: run `{BLESS}`", answered.name());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_field_is_told_by_policy_request_and_field() {
        let mut changed = policy(&Case::new(1));
        let Body::Case(answers) = &mut changed.body else { panic!("no case") };
        let before = pack(answers);
        let index = answers.iter().position(|text| text.contains("retry-after: ")).expect("one");
        let line = answers[index].lines().find(|line| line.starts_with("retry-after: "));
        let line = line.expect("the field").to_owned();
        answers[index] = answers[index].replace(&line, "retry-after: 99999");
        let told = changed.difference(&before);
        let head =
            format!("policy 1, request {index}: expected `{line}`, seen `retry-after: 99999`");
        assert!(told.starts_with(&head), "{told}");
    }

    #[test]
    fn a_changed_step_is_told_by_limiter_and_time() {
        let trace = limits::run(3);
        let mut before = trace.steps.clone().into_bytes();
        before[3 * 17] = b'!';
        let told = trace.difference(3, std::str::from_utf8(&before).expect("text"));
        assert!(told.starts_with("limiter 3, step 17: "), "{told}");
        assert!(told.contains("expected `!"), "{told}");
    }
}
