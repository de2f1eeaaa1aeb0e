//! The playground in a real Chromium, beside the command line that it must equal.
//!
//! Invariant: what is tested is what `cargo xtask playground` makes, served below two paths as any
//! server of static files would. The tests themselves are `tests/browser/playground.mjs`.

use crate::{
    build::playground,
    env,
    problem::{Problem, Result},
    run,
    servers::{files, free_port},
    tools::{apt, node, page},
    workspace::Workspace,
};
use std::process::Command;

/// Where it is served the second time: no file of the page may know its path.
const BELOW: &str = "/some/where/";

const SCRIPTS: &str = "crates/tollgate-playground/web";

/// What needs no browser: links, drawings, numbers, the reading of files.
pub fn scripts(workspace: &Workspace) -> Result<()> {
    let mut node = Command::new(node::node(workspace));
    node.current_dir(workspace.root.join(SCRIPTS)).arg("--test");
    run::shown(env::with_tools(workspace, &mut node), "read the failed test")
}

pub fn build(workspace: &Workspace) -> Result<()> {
    playground::build(workspace)
}

pub fn test(workspace: &Workspace) -> Result<()> {
    let mut cargo = Command::new("cargo");
    cargo.current_dir(&workspace.root);
    cargo.args(["build", "--profile", "release-test", "-p", "tollgate-cli"]);
    run::shown(&mut cargo, "fix what the compiler says")?;
    let chromium = apt::find_program("chromium").ok_or_else(|| {
        Problem::new("cannot test the page", "there is no chromium", "apt-get install chromium")
    })?;
    let mut node = Command::new(node::node(workspace));
    node.current_dir(&workspace.root).arg("tests/browser/playground.mjs");
    for (name, prefix) in [("TOLLGATE_PLAYGROUND", "/"), ("TOLLGATE_PLAYGROUND_BELOW", BELOW)] {
        let port = free_port()?;
        files::serve(workspace, port, prefix)?;
        node.env(name, format!("http://127.0.0.1:{port}{prefix}"));
    }
    node.env("TOLLGATE_CLI", workspace.target.join("release-test/tollgate"));
    node.env("TOLLGATE_PAGE_MODULES", page::modules(workspace));
    node.env("TOLLGATE_CHROMIUM", chromium);
    node.env("TOLLGATE_PICTURES", workspace.out.join("pictures"));
    run::shown(env::with_tools(workspace, &mut node), "read the failed test")
}
