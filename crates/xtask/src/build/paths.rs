//! Paths of this machine, kept out of what is compiled: a panic says where it stands in a source.
//!
//! Invariant: who builds a module with the same compiler gets the same bytes, wherever the sources
//! of its packages lie. Our own are named from the root of the workspace by cargo itself.

use crate::{linked, problem::Result, versions::WASM_TARGET, workspace::Workspace};
use std::{collections::BTreeSet, path::PathBuf, process::Command};

/// Instead of the folder where cargo keeps the sources of a registry.
const INSTEAD: &str = "/crates";

/// Tells the compiler of modules what to write instead, and `more` of its options: all of them
/// stand in one variable.
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
