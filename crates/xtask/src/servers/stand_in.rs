//! Images for the compose test that stand in for those which only a registry has: a program of
//! this machine with the libraries it is linked to, a shell and `grep` for the health checks.
//!
//! Invariant: only the files that `ldd` names are included, so an image is small and is made again
//! for each test. Deliberately absent: the work of an official entry point.

use crate::{
    files,
    problem::{Problem, Result},
    run,
};
use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    process::Command,
};

const FIX: &str = "free disk space, or see whether ldd and tar are there";

/// A tar file at `folder` with each program of this machine at its place in the image.
pub fn rootfs(folder: &Path, programs: &[(PathBuf, &str)]) -> Result<PathBuf> {
    let root = folder.join("root");
    files::remove_all(folder)?;
    let shells = [("/bin/bash", "/bin/bash"), ("/bin/grep", "/bin/grep")];
    let shells = shells.map(|(from, to)| (PathBuf::from(from), to));
    let mut libraries = BTreeSet::new();
    for (from, to) in programs.iter().chain(&shells) {
        files::copy(from, &inside(&root, Path::new(to)))?;
        libraries.extend(linked(from)?);
    }
    for library in &libraries {
        files::copy(library, &inside(&root, library))?;
    }
    ["tmp", "data", "etc"].into_iter().try_for_each(|name| files::make_folder(root.join(name)))?;
    let tar = folder.join("rootfs.tar");
    let mut pack = Command::new("tar");
    pack.arg("--create").arg("--file").arg(&tar).arg("--directory").arg(&root).arg(".");
    run::output(&mut pack, FIX)?;
    Ok(tar)
}

/// The libraries of a program, and what loads them.
fn linked(program: &Path) -> Result<Vec<PathBuf>> {
    let said = run::output(Command::new("ldd").arg(program), FIX)?;
    let paths: Vec<_> = said
        .lines()
        .filter_map(|line| line.split_whitespace().find(|word| word.starts_with('/')))
        .map(PathBuf::from)
        .collect();
    if paths.is_empty() {
        return Err(Problem::new(format!("{} has no libraries", program.display()), said, FIX));
    }
    Ok(paths)
}

fn inside(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}
