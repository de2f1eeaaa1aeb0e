//! Images for the compose test that stand in for those which only a registry has: a program of
//! this machine with the libraries it is linked to, a shell and `grep` for the health checks.
//!
//! Invariant: only the files that `ldd` names are included, so an image is small and is made again
//! for each test. Deliberately absent: the work of an official entry point.

use crate::{
    problem::{OrProblem, Problem, Result},
    run,
    tools::place::remove_all,
};
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

const FIX: &str = "free disk space, or see whether ldd and tar are there";

/// A tar file at `folder` with each program of this machine at its place in the image.
pub fn rootfs(folder: &Path, programs: &[(PathBuf, &str)]) -> Result<PathBuf> {
    let root = folder.join("root");
    remove_all(folder)?;
    fs::create_dir_all(&root).or_problem("cannot create a folder", FIX)?;
    let shells = [("/bin/bash", "/bin/bash"), ("/bin/grep", "/bin/grep")];
    let shells = shells.map(|(from, to)| (PathBuf::from(from), to));
    let mut libraries = BTreeSet::new();
    for (from, to) in programs.iter().chain(&shells) {
        copy(from, &inside(&root, Path::new(to)))?;
        libraries.extend(linked(from)?);
    }
    for library in &libraries {
        copy(library, &inside(&root, library))?;
    }
    ["tmp", "data", "etc"].into_iter().try_for_each(|name| {
        fs::create_dir_all(root.join(name)).or_problem("cannot create a folder", FIX)
    })?;
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

fn copy(from: &Path, to: &Path) -> Result<()> {
    let parent = to.parent().unwrap_or(to);
    fs::create_dir_all(parent).or_problem("cannot create a folder", FIX)?;
    fs::copy(from, to).or_problem(format!("cannot copy {}", from.display()), FIX).map(drop)
}
