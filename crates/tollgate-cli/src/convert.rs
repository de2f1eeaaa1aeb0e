//! `tollgate convert`: converts a configuration of `envoyproxy/ratelimit` to a policy, and lists
//! the differences.
//!
//! Invariant: the policy goes to the standard output and the findings to the standard error; with a
//! problem there is no policy.

use serde::Serialize;
use serde_json::value::RawValue;

use crate::args::ConvertArgs;
use crate::error::CommandError;
use crate::input::{self, Input, MAX_INPUT};
use crate::output::{self, Page};
use crate::ratelimit::{Converted, File, Finding, Kind, Place, convert};

/// The output of `--json`. Documented in docs/migrate.md.
#[derive(Serialize)]
struct Report<'r> {
    ok: bool,
    policy: Option<&'r RawValue>,
    findings: &'r [Finding],
}

/// Converts the files and prints the policy.
pub(crate) fn run(args: &ConvertArgs) -> Result<(), CommandError> {
    let mut files = Vec::new();
    for path in &args.files {
        let Input { name, text, .. } = input::read(path)?;
        files.push(File { name, text });
    }
    let Converted { policy, findings } = convert(files, &args.reported, MAX_INPUT);
    print(args, policy.as_deref(), &findings)?;
    if policy.is_some() { Ok(()) } else { Err(CommandError::Problems) }
}

fn print(
    args: &ConvertArgs,
    policy: Option<&str>,
    findings: &[Finding],
) -> Result<(), CommandError> {
    if args.json {
        let policy = policy.and_then(|policy| serde_json::from_str(policy).ok());
        return output::json(&Report { ok: policy.is_some(), policy, findings });
    }
    let mut page = Page::default();
    for Finding { kind, file, place, message } in findings {
        if let Some(file) = file {
            page.push_str(&format!("{file}:"));
        }
        if let Some(Place { line, column }) = place {
            page.push_str(&format!("{line}:{column}: "));
        }
        let style = if *kind == Kind::Problem { output::BAD } else { output::WARNING };
        page.push_styled(style, &format!("{}:", kind.words()));
        page.push_str(&format!(" {message}\n"));
    }
    if let Some(policy) = policy {
        output::raw(&output::visible_json(policy))?;
    }
    page.err();
    Ok(())
}
