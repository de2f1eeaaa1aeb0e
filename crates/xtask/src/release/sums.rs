//! `SHA256SUMS`: a line for each file of a release, as `sha256sum -c` reads it.

use super::names::SUMS;
use crate::{build::sha256, files, problem::Result};
use std::path::{Path, PathBuf};

/// The lines for `folder`, in the order of names.
pub fn of(folder: &Path) -> Result<String> {
    let mut names = names(folder)?;
    names.retain(|name| name != SUMS);
    let mut text = String::new();
    for name in names {
        let bytes = files::bytes(folder.join(&name))?;
        text.push_str(&format!("{}  {name}\n", sha256::hex(&bytes)));
    }
    Ok(text)
}

/// The lines in the file of `folder`.
pub fn read(folder: &Path) -> Result<String> {
    files::text(folder.join(SUMS))
}

/// All files of `folder`, sorted.
pub fn names(folder: &Path) -> Result<Vec<String>> {
    let name = |path: PathBuf| Some(path.file_name()?.to_string_lossy().into_owned());
    Ok(files::sorted(folder)?.into_iter().filter_map(name).collect())
}
