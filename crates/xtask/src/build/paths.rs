//! Keeps the paths of this machine out of compiled modules: a panic contains its source file.
//!
//! Invariant: a build with the same compiler gives the same bytes, wherever the sources of the
//! packages are. cargo itself names our own sources from the root of the workspace.

use crate::{linked, problem::Result, versions::WASM_TARGET, workspace::Workspace};
use std::{collections::BTreeSet, path::PathBuf, process::Command};

/// Replaces the folder where cargo keeps the sources of a registry.
const INSTEAD: &str = "/crates";

/// Passes the replacements to the compiler of modules, and `more` options: one variable contains
/// all of them.
pub fn hide(workspace: &Workspace, cargo: &mut Command, more: &[&str]) -> Result<()> {
    let packages = linked::packages(workspace, WASM_TARGET)?;
    let theirs = packages.into_values().map(|package| package.folder);
    let theirs = theirs.filter(|folder| !folder.starts_with(&workspace.root));
    let folders: BTreeSet<PathBuf> =
        theirs.filter_map(|folder| folder.parent().map(PathBuf::from)).collect();
    let flags =
        folders.iter().map(|folder| format!("--remap-path-prefix={}={INSTEAD}", folder.display()));
    let flags: Vec<String> = flags.chain(more.iter().map(|flag| (*flag).to_owned())).collect();
    // The separator of this variable: a path may have spaces.
    cargo.env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"));
    Ok(())
}
