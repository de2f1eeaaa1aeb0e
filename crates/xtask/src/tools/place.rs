//! Whether a tool is in its place in the cache. Knows no tool.

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
