//! `cargo xtask doctor`: which tools are installed, which are missing, and how to install them.
//!
//! Invariant: changes nothing and needs no network. Fails only when a tool is missing that xtask
//! cannot install.

use crate::{
    problem::{Problem, Result},
    run,
    tools::{self, apt},
    workspace::Workspace,
};
use std::process::Command;

/// The programs that xtask needs before it can install anything: program, least version, needed
/// for, advice.
const GIVEN: [(&str, &str, &str, &str); 4] = [
    ("cargo", "1.95", "everything", "install Rust through rustup"),
    ("rustup", "any", "the wasm target", "install Rust through rustup"),
    ("npm", "10", "the node packages", "install Node 20 or newer with npm"),
    ("python3", "3", "Envoy", "install Python 3"),
];

pub fn doctor(workspace: &Workspace) -> Result<()> {
    let mut rows = vec![["tool", "wanted", "found", "needed for", "to do"].map(str::to_owned)];
    let mut hopeless = Vec::new();
    for (program, wanted, needed_for, advice) in GIVEN {
        let found = version_of(program);
        if found.is_none() {
            hopeless.push(format!("{program}: {advice}"));
        }
        rows.push(row([program, wanted, needed_for, advice], found));
    }
    for tool in tools::ALL {
        let (found, by_hand) = (tool.check(workspace), tool.by_hand());
        let advice = match can_install(&by_hand) {
            true => "cargo xtask installs it when it is needed".to_owned(),
            false => format!("as root: {by_hand}"),
        };
        if found.is_none() && !can_install(&by_hand) {
            hopeless.push(format!("{}: {by_hand}", tool.name));
        }
        rows.push(row([tool.name, tool.version(), tool.needed_for, &advice], found));
    }
    print_table(&rows);
    if hopeless.is_empty() {
        return Ok(());
    }
    let fix = hopeless.join("; ");
    Err(Problem::new("this machine is not ready", "xtask cannot install everything itself", fix))
}

fn row([tool, wanted, needed_for, advice]: [&str; 4], found: Option<String>) -> [String; 5] {
    let advice = if found.is_some() { "nothing" } else { advice };
    let found = found.as_deref().unwrap_or("MISSING");
    [tool, wanted, found, needed_for, advice].map(str::to_owned)
}

/// Packages of the distribution need root and apt-get; the rest goes into the cache.
fn can_install(by_hand: &str) -> bool {
    let through_apt = by_hand.starts_with("apt-get");
    let apt_works = apt::find_program("apt-get").is_some();
    !through_apt || (apt_works && rustix::process::geteuid().is_root())
}

fn version_of(program: &str) -> Option<String> {
    let (status, text, _) = run::captured(Command::new(program).arg("--version")).ok()?;
    let line = text.lines().next()?.to_owned();
    status.success().then_some(line)
}

fn print_table(rows: &[[String; 5]]) {
    let width = [0, 1, 2, 3, 4]
        .map(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0));
    for row in rows {
        let padded: Vec<String> =
            row.iter().zip(width).map(|(cell, width)| format!("{cell:<width$}")).collect();
        println!("{}", padded.join("  ").trim_end());
    }
}
