//! `cargo xtask doctor`: which tools are installed, which are missing, and how to install them.
//!
//! Invariant: changes nothing and needs no network. Fails only when a tool is missing that xtask
//! cannot install.

use crate::{
    problem::{Problem, Result},
    run,
    tools::{self, apt, place::ToolState},
    workspace::Workspace,
};
use std::process::Command;

/// What xtask needs before it can install anything: program, least version, needed for, advice.
const GIVEN: [(&str, &str, &str, &str); 4] = [
    ("cargo", "1.95", "everything", "install Rust through rustup"),
    ("rustup", "any", "the wasm target", "install Rust through rustup"),
    ("npm", "10", "the node packages", "install Node 20 or newer with npm"),
    ("python3", "3", "Envoy", "install Python 3"),
];

struct Row {
    tool: String,
    wanted: String,
    found: String,
    needed_for: String,
    advice: String,
}

pub fn doctor(workspace: &Workspace) -> Result<()> {
    let mut rows = Vec::new();
    let mut hopeless = Vec::new();
    for (program, wanted, needed_for, advice) in GIVEN {
        let found = version_of(program);
        if found.is_none() {
            hopeless.push(format!("{program}: {advice}"));
        }
        rows.push(row(program, wanted, found, needed_for, advice));
    }
    for tool in tools::ALL {
        let found = match (tool.check)(workspace) {
            ToolState::Present(found) => Some(found),
            ToolState::Missing | ToolState::Wrong(_) => None,
        };
        let advice = match can_install(tool) {
            true => "cargo xtask installs it when it is needed".to_owned(),
            false => {
                if found.is_none() {
                    hopeless.push(format!("{}: {}", tool.name, tool.by_hand));
                }
                format!("as root: {}", tool.by_hand)
            }
        };
        rows.push(row(tool.name, tool.version, found, tool.needed_for, &advice));
    }
    print_table(&rows);
    if hopeless.is_empty() {
        return Ok(());
    }
    let fix = hopeless.join("; ");
    Err(Problem::new("this machine is not ready", "xtask cannot install everything itself", fix))
}

fn row(tool: &str, wanted: &str, found: Option<String>, needed_for: &str, advice: &str) -> Row {
    let advice = if found.is_some() { "nothing" } else { advice };
    Row {
        tool: tool.to_owned(),
        wanted: wanted.to_owned(),
        found: found.unwrap_or_else(|| "MISSING".to_owned()),
        needed_for: needed_for.to_owned(),
        advice: advice.to_owned(),
    }
}

/// Packages of the distribution need root and apt-get; the rest goes into the cache.
fn can_install(tool: &tools::Tool) -> bool {
    let through_apt = tool.by_hand.starts_with("apt-get");
    let apt_works = apt::find_program("apt-get").is_some();
    !through_apt || (apt_works && rustix::process::geteuid().is_root())
}

fn version_of(program: &str) -> Option<String> {
    let (status, text, _) = run::captured(Command::new(program).arg("--version")).ok()?;
    let line = text.lines().next()?.to_owned();
    status.success().then_some(line)
}

fn print_table(rows: &[Row]) {
    let cells = |row: &Row| {
        [&row.tool, &row.wanted, &row.found, &row.needed_for, &row.advice].map(String::clone)
    };
    let heading = ["tool", "wanted", "found", "needed for", "to do"].map(str::to_owned);
    let table: Vec<[String; 5]> = std::iter::once(heading).chain(rows.iter().map(cells)).collect();
    let mut width = [0; 5];
    for row in &table {
        (0..5).for_each(|column| width[column] = width[column].max(row[column].chars().count()));
    }
    for row in &table {
        let padded: Vec<String> =
            (0..5).map(|column| format!("{:<w$}", row[column], w = width[column])).collect();
        println!("{}", padded.join("  ").trim_end());
    }
}
