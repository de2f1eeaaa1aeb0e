//! The npm package: the Worker as it is deployed, with types, helpers and a template, for users
//! without Rust.
//!
//! Invariant: the modules in it are those of `target/tollgate/worker`, except for the policy: a
//! deployment without one responds with 500. Its version and the bindings of its template are those
//! of this repository. Nothing is downloaded and nothing published.

use super::worker::{self, COMPILED, MODULES, NAMES, POLICY};
use crate::{
    files,
    problem::{OrProblem, Problem, Result},
    run,
    versions::TOLLGATE as VERSION,
    workspace::Workspace,
};
use std::{fs, path::Path, process::Command};

/// The files of the package that are written by hand.
const SOURCES: &str = "crates/tollgate-worker/npm";
const TEMPLATE: &str = "crates/tollgate-worker/npm/template/wrangler.toml";
const FIX: &str = "see crates/tollgate-worker/npm";

/// Builds the Worker and packs it.
pub fn build(workspace: &Workspace) -> Result<()> {
    worker::compile(workspace, &run::shown)?;
    worker::package(workspace)?;
    pack(workspace)?;
    let file = workspace.npm_package();
    let bytes = fs::metadata(&file).or_problem("the package is missing", FIX)?.len();
    println!("  {} {bytes} bytes", file.display());
    Ok(())
}

/// Packs the built files.
pub fn pack(workspace: &Workspace) -> Result<()> {
    check(workspace)?;
    files::atomically(&workspace.out.join("npm"), |folder| {
        let package = folder.join("package");
        copy_all(&workspace.root.join(SOURCES), &package)?;
        let is_code = |module: &&str| ![POLICY, COMPILED].contains(module);
        for module in MODULES.into_iter().filter(is_code).chain([NAMES]) {
            files::copy(workspace.worker_dir().join(module), package.join(module))?;
        }
        files::write(package.join(COMPILED), worker::compiled(""))?;
        for text in ["LICENSE", "NOTICE"] {
            files::copy(workspace.root.join(text), package.join(text))?;
        }
        let mut npm = Command::new("npm");
        npm.current_dir(&package).args(["pack", "--ignore-scripts", "--pack-destination", ".."]);
        run::output(&mut npm, "read the output of npm").map(drop)
    })
}

/// The version, and the lines of the template that must be those of the shipped wrangler.toml.
fn check(workspace: &Workspace) -> Result<()> {
    let read = |file: &str| files::text(workspace.root.join(file));
    let package = read(&format!("{SOURCES}/package.json"))?;
    if !package.contains(&format!("\"version\": \"{VERSION}\"")) {
        let why = format!("its version is not the workspace's, {VERSION}");
        return Err(Problem::new("package.json is another version", why, FIX));
    }
    let (shipped, template) = (read("wrangler.toml")?, read(TEMPLATE)?);
    if bound(&shipped) != bound(&template) {
        let why = "classes, migrations or the compatibility date differ";
        return Err(Problem::new("the template differs from wrangler.toml", why, FIX));
    }
    Ok(())
}

/// The lines that define a deployment, without those that users may choose.
fn bound(toml: &str) -> Vec<&str> {
    let names =
        ["compatibility_date", "class_name", "new_sqlite_classes", "tag ", "type ", "globs"];
    let is_bound =
        |line: &&str| line.starts_with("[[") || names.iter().any(|name| line.starts_with(name));
    toml.lines().filter(is_bound).collect()
}

fn copy_all(from: &Path, to: &Path) -> Result<()> {
    files::sorted(from)?.iter().try_for_each(|path| {
        let target = to.join(path.file_name().unwrap_or_default());
        if path.is_dir() { copy_all(path, &target) } else { files::copy(path, &target) }
    })
}
