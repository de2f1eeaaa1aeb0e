//! The common part of `check` and `explain`: load every policy of a file, report on each, and end
//! with the exit code that the findings call for.
//!
//! Invariant: good results go to the standard output, problems to the standard error, and all of
//! `--json` to the standard output. One policy gives one report; an Envoy configuration gives a
//! list of reports, each with its position.

use std::path::Path;

use serde::Serialize;
use tollgate_policy::Surface;

use crate::envoy::{Filter, FilterPlace, Filters};
use crate::error::CommandError;
use crate::manager::FilterContext;
use crate::output::{self, Page};
use crate::source;
use crate::source::{Compiled, Finding, Source};

/// A command's report on one policy.
pub(crate) trait PolicyReport: Serialize {
    /// The problems of the policy; empty when it is good.
    fn problems(&self) -> &[Finding];
    /// The warnings: legal, but probably not intended; empty where the command does not report
    /// them.
    fn warnings(&self) -> &[Finding];
    /// Writes the text for people, when the policy is good.
    fn write(&self, file: &str, page: &mut Page);
}

/// The input common to these commands.
pub(crate) struct CommandInput<'a> {
    pub(crate) path: &'a Path,
    /// As given on the command line.
    pub(crate) surfaces: Option<&'a [Surface]>,
    pub(crate) default: &'a [Surface],
    pub(crate) json: bool,
    pub(crate) fails_by: FailureLevel,
}

/// The findings that make a command fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailureLevel {
    Problems,
    /// Also warnings: `--deny-warnings`.
    Warnings,
}

impl FailureLevel {
    fn judge(self, of_policy: &impl PolicyReport) -> Result<(), CommandError> {
        let has_warnings = self == Self::Warnings && !of_policy.warnings().is_empty();
        if of_policy.problems().is_empty() && !has_warnings {
            Ok(())
        } else {
            Err(CommandError::Problems)
        }
    }
}

/// The report on an Envoy configuration. Documented in docs/policy/command-line.md.
#[derive(Serialize)]
struct EnvoyFileReport<S> {
    ok: bool,
    file: String,
    filters: Vec<FilterReport<S>>,
    /// Problems that belong to no filter.
    problems: Vec<Finding>,
}

#[derive(Serialize)]
struct FilterReport<S> {
    #[serde(flatten)]
    place: FilterPlace,
    #[serde(flatten)]
    report: S,
}

/// Runs a command: `report` makes the report on each policy and its surroundings in an Envoy
/// configuration.
pub(crate) fn run<S: PolicyReport>(
    question: &CommandInput<'_>,
    report: impl Fn(Compiled, Option<&FilterContext>) -> S,
) -> Result<(), CommandError> {
    let (file, source) = source::load(question.path)?;
    let wanted = question.surfaces.unwrap_or(question.default);
    match source {
        Source::Policy(document) => {
            one(&report(source::compile(&document, wanted), None), &file, question)
        }
        Source::Fault(fault) => {
            one(&report(Compiled::failed(fault, wanted), None), &file, question)
        }
        Source::Envoy(_) if !wanted.contains(&Surface::Envoy) => Err(CommandError::Misuse(
            format!("{file} is a configuration of Envoy, for which the only surface is envoy"),
        )),
        Source::Envoy(filters) => all(filters, file, question, report),
    }
}

fn one(
    of_policy: &impl PolicyReport,
    file: &str,
    question: &CommandInput<'_>,
) -> Result<(), CommandError> {
    if question.json {
        output::json(of_policy)?;
    } else if of_policy.problems().is_empty() {
        let mut page = Page::default();
        of_policy.write(file, &mut page);
        page.out()?;
    } else {
        problem_lines(of_policy.problems(), file, "").err();
    }
    question.fails_by.judge(of_policy)
}

fn all<S: PolicyReport>(
    found: Filters,
    file: String,
    question: &CommandInput<'_>,
    report: impl Fn(Compiled, Option<&FilterContext>) -> S,
) -> Result<(), CommandError> {
    let none = found.none().map(|message| Finding {
        file: None,
        surface: None,
        line: None,
        path: String::new(),
        message,
    });
    let problems: Vec<Finding> = found.twice.into_iter().map(Finding::from).chain(none).collect();
    let filters =
        found.filters.into_iter().map(|Filter { place, host, document, around, .. }| {
            let compiled = match document {
                Ok(document) => source::compile_for(host, &document, &around.named),
                Err(fault) => Compiled::failed(fault, &[Surface::Envoy]),
            };
            FilterReport { place, report: report(compiled, Some(&around)) }
        });
    let filters: Vec<_> = filters.collect();
    let ok =
        problems.is_empty() && filters.iter().all(|filter| filter.report.problems().is_empty());
    let report = EnvoyFileReport { ok, file, filters, problems };
    if question.json {
        output::json(&report)?;
    } else {
        text(&report)?;
    }
    report.filters.iter().try_for_each(|filter| question.fails_by.judge(&filter.report))?;
    if ok { Ok(()) } else { Err(CommandError::Problems) }
}

fn text<S: PolicyReport>(report: &EnvoyFileReport<S>) -> Result<(), CommandError> {
    let file = &report.file;
    for (number, FilterReport { place, report: of_policy }) in report.filters.iter().enumerate() {
        if !of_policy.problems().is_empty() {
            problem_lines(of_policy.problems(), file, &format!("{}: ", place.words())).err();
            continue;
        }
        let mut page = Page::default();
        page.push_str(if number > 0 { "\n" } else { "" });
        let mark = format!("{file}:{}: {}\n", place.line, place.words());
        page.push_styled(output::HEADING, &mark);
        of_policy.write(file, &mut page);
        page.out()?;
    }
    for problem in &report.problems {
        let file = if problem.line.is_none() { format!("{file}: ") } else { String::new() };
        problem_lines(std::slice::from_ref(problem), &report.file, &file).err();
    }
    Ok(())
}

/// Reports the problems of a policy that a command cannot use.
pub(crate) fn refuse(problems: &[Finding], file: &str) -> CommandError {
    problem_lines(problems, file, "").err();
    CommandError::Problems
}

/// Reports the warnings.
pub(crate) fn warn(warnings: &[Finding], file: &str) {
    let mut page = Page::default();
    for warning in warnings {
        page.push_str(&warning.mark(file));
        page.push_styled(output::WARNING, "warning:");
        page.push_str(&format!(" {}\n", warning.words()));
    }
    page.err();
}

fn problem_lines(problems: &[Finding], file: &str, place: &str) -> Page {
    let mut page = Page::default();
    for problem in problems {
        page.push_styled(output::BAD, &problem.mark(file));
        page.push_str(&format!("{place}{}\n", problem.words()));
    }
    page
}
