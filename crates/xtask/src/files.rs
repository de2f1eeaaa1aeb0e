//! Files and folders, with errors that name them.
//!
//! Invariant: a folder that is filled at once is never taken for a whole one after an interruption,
//! because it gets its final name last. Knows no tool and no product.

use crate::problem::{OrProblem, Result};
use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

const RESTORE: &str = "restore it with git, or build it again";
const FREE: &str = "free disk space, and see who may write there";

fn what(verb: &str, path: &Path) -> String {
    format!("cannot {verb} {}", path.display())
}

pub fn text(path: impl AsRef<Path>) -> Result<String> {
    fs::read_to_string(&path).or_problem(what("read", path.as_ref()), RESTORE)
}

pub fn bytes(path: impl AsRef<Path>) -> Result<Vec<u8>> {
    fs::read(&path).or_problem(what("read", path.as_ref()), RESTORE)
}

/// Writes a file, whose folder need not be there.
pub fn write(path: impl AsRef<Path>, content: impl AsRef<[u8]>) -> Result<()> {
    let path = path.as_ref();
    make_folder(path.parent().unwrap_or(path))?;
    fs::write(path, content).or_problem(what("write", path), FREE)
}

/// Copies a file to a place whose folder need not be there.
pub fn copy(from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
    let to = to.as_ref();
    make_folder(to.parent().unwrap_or(to))?;
    fs::copy(&from, to).map(drop).or_problem(what("copy", from.as_ref()), RESTORE)
}

pub fn rename(from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
    fs::rename(&from, to).or_problem(what("move", from.as_ref()), FREE)
}

/// Sets the permissions of a file, such as 0o755.
pub fn set_mode(path: impl AsRef<Path>, mode: u32) -> Result<()> {
    let set = fs::set_permissions(&path, fs::Permissions::from_mode(mode));
    set.or_problem(what("set the permissions of", path.as_ref()), FREE)
}

pub fn make_folder(path: impl AsRef<Path>) -> Result<()> {
    fs::create_dir_all(&path).or_problem(what("make", path.as_ref()), FREE)
}

/// The content of a folder, in the order of names.
pub fn sorted(folder: impl AsRef<Path>) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(&folder).or_problem(what("read", folder.as_ref()), RESTORE)?;
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    Ok(paths)
}

/// Removes a folder; it need not be there.
pub fn remove_all(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).or_problem(what("remove", folder), "remove it")
        }
        _ => Ok(()),
    }
}

/// An empty folder, whatever was there.
pub fn make_empty(folder: &Path) -> Result<()> {
    remove_all(folder)?;
    make_folder(folder)
}

/// Fills a fresh folder next to `target` and renames it to `target` when that succeeded.
pub fn atomically(target: &Path, fill: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    let partial = target.with_file_name(format!(".partial-{name}"));
    make_empty(&partial)?;
    fill(&partial)?;
    remove_all(target)?;
    rename(&partial, target)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::Problem;

    #[test]
    fn an_interrupted_installation_is_not_taken_for_a_finished_one() {
        let scratch = std::env::temp_dir().join(format!("xtask-{}", std::process::id()));
        let target = scratch.join("tool");
        let broken = atomically(&target, |folder| {
            fs::write(folder.join("half"), "x").unwrap();
            Err(Problem::new("a", "b", "c"))
        });
        assert!(broken.is_err() && !target.exists());
        atomically(&target, |folder| {
            fs::write(folder.join("whole"), "x").unwrap();
            Ok(())
        })
        .unwrap();
        assert!(target.join("whole").exists() && !target.join("half").exists());
        remove_all(&scratch).unwrap();
    }
}
