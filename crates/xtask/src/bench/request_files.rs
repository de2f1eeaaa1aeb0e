//! The files whose code runs for one request: how much a reader must read to follow it.
//!
//! Invariant: a file counts when one of its lines is executed in a debug build; callgrind names the
//! file of an inlined line, too. Only the product's own files count.

use super::figures::Table;
use crate::{
    files,
    problem::{Problem, Result},
    run,
    workspace::Workspace,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    process::Command,
};

/// The test of the filter with the request.
const TEST: &str = "one_request::one_request_of_the_simplest_policy_is_admitted";

/// The files by crate, for a request of a policy with one gcra quota and the key `[]`, in Envoy's
/// filter.
pub fn measure(workspace: &Workspace) -> Result<String> {
    files::make_folder(&workspace.out)?;
    let counts = workspace.out.join("files.callgrind");
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--collect-atstart=no"]);
    command.arg("--toggle-collect=*one_request::counted*");
    command.arg(format!("--callgrind-out-file={}", counts.display()));
    command.arg(program(workspace)?).args(["--exact", TEST, "--test-threads=1"]);
    let (status, said, wrong) = run::captured(&mut command)?;
    if !status.success() || !said.contains("1 passed") {
        let why = format!("{} said:\n{said}{wrong}", run::line_of(&command));
        return Err(Problem::new("the request was not counted", why, "see above"));
    }
    let text = files::text(&counts)?;
    let files = product_files(&text);
    let mut by_crate: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for file in &files {
        let (package, file) = file.split_once("/src/").unwrap_or((file, ""));
        by_crate.entry(package).or_default().push(file);
    }
    let mut table = Table::new("Files that run for one request", &["crate", "files", "which"]);
    for (package, files) in &by_crate {
        table.row([(*package).to_owned(), files.len().to_string(), files.join(", ")]);
    }
    table.row(["all".to_owned(), files.len().to_string(), String::new()]);
    Ok(table.markdown())
}

/// The filter's tests, which contain the lines of their source.
fn program(workspace: &Workspace) -> Result<PathBuf> {
    let mut build = workspace.cargo();
    build.args(["test", "--quiet", "--no-run", "--message-format=json", "-p", "tollgate-filter"]);
    build.args(["--test", "all"]);
    let said = run::output(&mut build, "correct tollgate-filter")?;
    let executable = |line: &str| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        message["executable"].as_str().map(PathBuf::from)
    };
    said.lines().filter_map(executable).next_back().ok_or_else(|| {
        Problem::new("cargo names no program", "its messages have none", "see cargo's messages")
    })
}

/// The product's files among those that callgrind names, each at its first line of any kind:
/// `fl=(12) path`.
fn product_files(counts: &str) -> BTreeSet<String> {
    let file = |line: &str| {
        let (kind, rest) = line.split_once('=')?;
        let path =
            matches!(kind, "fl" | "fi" | "fe" | "cfi" | "cfl").then(|| rest.split_once(") "))??.1;
        let inside = path.split_once("crates/").map_or(path, |(_, inside)| inside);
        let inside = inside.strip_prefix("tollgate-")?;
        (inside.contains("/src/") && Path::new(inside).is_relative()).then(|| inside.to_owned())
    };
    counts.lines().filter_map(file).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_of_the_product_count() {
        let counts = "fl=(1) /x/crates/tollgate-policy/src/lib.rs\nfn=(1) a\n1 2\nfi=(2) \
                      crates/tollgate-core/src/gcra.rs\nfl=(1)\nfe=(3) /rustc/library/vec.rs\n\
                      fl=(4) crates/tollgate-filter/tests/herd.rs\n";
        let files: Vec<_> = product_files(counts).into_iter().collect();
        assert_eq!(files, ["core/src/gcra.rs", "policy/src/lib.rs"]);
    }
}
