//! `cargo xtask release`: everything that a release consists of, in one folder, with its sums.
//!
//! Invariant: it contains the tested files: the modules, packages and programs that the steps of
//! `cargo xtask test` build and run. Archives, lists and sums are the same in every run on the same
//! files. Deliberately absent: publishing.

pub mod command_line;
pub mod inside;
pub mod names;
mod parts;
mod sbom;
pub mod sums;

use crate::{
    build::{self, Product, npm, server},
    files,
    problem::{Problem, Result},
    run,
    workspace::Workspace,
};
use names::{CRATES, SUMS};
use std::path::Path;

/// How much is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// Make everything, publish nothing.
    DryRun,
    Whole,
}

pub fn release(workspace: &Workspace, extent: Extent) -> Result<()> {
    if extent == Extent::Whole {
        let why = "publishing is a decision of a person with accounts. It would take:\n\
                   - a clean work tree at a tag of the version, and `publish = false` taken out of Cargo.toml\n\
                   - a token of crates.io: cargo publish -p tollgate-core, -p tollgate-http-syntax, -p tollgate-storage, -p tollgate-policy, -p tollgate-language, then -p tollgate\n\
                   - a token of npm: npm publish tollgate-worker-*.tgz --provenance\n\
                   - an account of an OCI registry: push the *.oci.tar, tagged with the version\n\
                   - a key that signs SHA256SUMS, and a page where the files are downloaded";
        let fix = "run `cargo xtask release --dry-run`, look at target/release-artifacts, then publish by hand";
        return Err(Problem::new("nothing is published from here", why, fix));
    }
    build(workspace)?;
    let folder = workspace.release_dir();
    assemble(workspace, &folder)?;
    let text = sums::read(&folder)?;
    print!("{text}");
    println!("{} files in {}", text.lines().count(), folder.display());
    Ok(())
}

/// Builds the files to release; files that the tests have built are not built again.
pub fn build(workspace: &Workspace) -> Result<()> {
    build::build(workspace, Product::Envoy)?;
    build::build(workspace, Product::Module)?;
    build::build(workspace, Product::ModuleForAarch64)?;
    build::build(workspace, Product::Worker)?;
    npm::pack(workspace)?;
    server::build(workspace, "tollgate-server")?;
    server::build(workspace, "tollgate-cli")?;
    // A folder of its own: the step that checks packages packs at the same time.
    pack(workspace, &workspace.out.join("crates"))
}

/// Packs the crates below `target`, without building them.
pub fn pack(workspace: &Workspace, target: &Path) -> Result<()> {
    let mut pack = workspace.cargo();
    pack.args(["package", "--quiet", "--offline", "--allow-dirty", "--no-verify"]);
    pack.arg("--target-dir").arg(target);
    pack.args(CRATES.iter().flat_map(|package| ["-p", package]));
    run::shown(&mut pack, "see `include` in the Cargo.toml of the package")
}

/// Fills `folder` with the built files.
pub fn assemble(workspace: &Workspace, folder: &Path) -> Result<()> {
    files::atomically(folder, |partial| {
        let write = |name: &str, bytes: &[u8]| files::write(partial.join(name), bytes);
        for part in parts::all(workspace)? {
            for file in &part.files {
                write(&file.name, &file.bytes)?;
                let mode = if file.is_program { 0o755 } else { 0o644 };
                files::set_mode(partial.join(&file.name), mode)?;
            }
            if let Some(linked) = &part.linked {
                let text = sbom::document(workspace, linked, &part.files)?;
                write(&format!("{}.cdx.json", part.name), text.as_bytes())?;
            }
        }
        write(SUMS, sums::of(partial)?.as_bytes())
    })
}
