//! A tool's place in the cache: whether it is installed, and how it is installed as a whole.
//!
//! Invariant: an interrupted installation is never taken for a finished one, because a folder gets
//! its final name last. Knows no tool.

use crate::problem::{OrProblem, Result};
use std::{fs, path::Path};

/// The path as text, when there is such a file or folder.
pub fn present(path: &Path) -> Option<String> {
    path.exists().then(|| path.display().to_string())
}

/// The folder as text, when its file `kept` equals `wanted`, from which the folder was made.
pub fn made_from(folder: &Path, kept: &str, wanted: &Path) -> Option<String> {
    let is_same = fs::read(folder.join(kept)).ok()? == fs::read(wanted).ok()?;
    is_same.then(|| folder.display().to_string())
}

/// Fills a fresh folder next to `target` and renames it to `target` when that succeeded.
pub fn atomically(target: &Path, fill: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let fix = "free disk space or set TOLLGATE_CACHE to a folder that can be written";
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    let partial = target.with_file_name(format!(".partial-{name}"));
    remove_all(&partial)?;
    fs::create_dir_all(&partial).or_problem("cannot create a folder in the cache", fix)?;
    fill(&partial)?;
    remove_all(target)?;
    fs::rename(&partial, target).or_problem(format!("cannot move {name} into place"), fix)
}

/// Removes a folder; it need not be there.
pub fn remove_all(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).or_problem(format!("cannot remove {}", folder.display()), "remove it")
        }
        _ => Ok(()),
    }
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
