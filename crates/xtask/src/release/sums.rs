//! `SHA256SUMS`: a line for each file of a release, as `sha256sum -c` reads it.

use super::names::SUMS;
use crate::{
    build::sha256,
    problem::{OrProblem, Result},
};
use std::{fs, path::Path};

const FIX: &str = "run `cargo xtask release --dry-run` again";

/// The lines for `folder`, in the order of names.
pub fn of(folder: &Path) -> Result<String> {
    let mut names = names(folder)?;
    names.retain(|name| name != SUMS);
    let mut text = String::new();
    for name in names {
        let bytes = fs::read(folder.join(&name)).or_problem(format!("cannot read {name}"), FIX)?;
        text.push_str(&format!("{}  {name}\n", sha256::hex(&bytes)));
    }
    Ok(text)
}

/// The lines in the file of `folder`.
pub fn read(folder: &Path) -> Result<String> {
    fs::read_to_string(folder.join(SUMS)).or_problem(format!("cannot read {SUMS}"), FIX)
}

/// All files of `folder`, sorted.
pub fn names(folder: &Path) -> Result<Vec<String>> {
    let entries = fs::read_dir(folder).or_problem("cannot read the release", FIX)?;
    let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = names.collect();
    names.sort();
    Ok(names)
}
