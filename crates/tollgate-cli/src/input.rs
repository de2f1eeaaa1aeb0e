//! Reads the input that the command line names: a file, or the standard input as `-`.
//!
//! Invariant: an endless input is read only until it is known to be too long.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use tollgate_policy::{NotCompiled, Policy, Surface};
use tollgate_yaml::Language;

use crate::error::CommandError;

/// A longer Envoy configuration is not one that a person reads; a policy has at most 1 MiB of it.
pub(crate) const MAX_INPUT: usize = 8 << 20;

/// A text and its name.
#[derive(Debug)]
pub(crate) struct Input {
    /// The file as it was named; `<stdin>` for the standard input.
    pub(crate) name: String,
    pub(crate) text: String,
    pub(crate) language: Language,
}

/// Reads `path`.
pub(crate) fn read(path: &Path) -> Result<Input, CommandError> {
    let name = name_of(path);
    let bytes = bytes_of(path, MAX_INPUT)?;
    if !matches!(Policy::read_compiled(&bytes, Surface::Library), Err(NotCompiled::Other)) {
        return Err(CommandError::Misuse(format!(
            "{name} is a compiled policy, which cannot be checked; give the document from which it was compiled"
        )));
    }
    if bytes.len() > MAX_INPUT {
        // It may be cut inside a character; the policy layer reports that it is too long.
        let text = String::from_utf8_lossy(&bytes).into_owned();
        return Ok(Input { name, text, language: Language::Json });
    }
    let wrong = |_| CommandError::Misuse(format!("{name} is not UTF-8"));
    let text = String::from_utf8(bytes).map_err(wrong)?;
    Ok(Input { language: Language::of_file(path, &text), name, text })
}

/// The bytes of `path`; of a file longer than `most`, just enough to see that.
pub(crate) fn bytes_of(path: &Path, most: usize) -> Result<Vec<u8>, CommandError> {
    let bytes = if is_standard(path) {
        bounded(std::io::stdin().lock(), most)
    } else {
        File::open(path).and_then(|file| bounded(file, most))
    };
    bytes.map_err(|error| CommandError::Misuse(format!("cannot read {}: {error}", name_of(path))))
}

fn name_of(path: &Path) -> String {
    if is_standard(path) { "<stdin>".to_owned() } else { path.display().to_string() }
}

fn is_standard(path: &Path) -> bool {
    path.as_os_str() == "-"
}

fn bounded(from: impl Read, most: usize) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let most = u64::try_from(most).unwrap_or(u64::MAX).saturating_add(1);
    from.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}
