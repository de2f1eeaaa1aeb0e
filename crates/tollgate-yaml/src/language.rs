//! Whether a text is JSON or YAML.
//!
//! Invariant: every program of this project decides the same way: by the file name, or else by the
//! first character of the text.

use std::path::Path;

/// The language of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// RFC 8259.
    Json,
    /// YAML, which includes JSON. JSON is read separately because surrogate pairs (`\ud83d\ude00`)
    /// are not valid YAML.
    Yaml,
}

impl Language {
    /// The language of the file `path` with this text. JSON in a file of any name begins with a
    /// brace.
    #[must_use]
    pub fn of_file(path: &Path, text: &str) -> Self {
        let extension = path.extension().map(|extension| extension.to_ascii_lowercase());
        match extension.as_ref().and_then(|extension| extension.to_str()) {
            Some("json") => Self::Json,
            Some("yaml" | "yml") => Self::Yaml,
            _ => Self::of_text(text),
        }
    }

    /// The language of a text without a name: JSON begins with a brace or a bracket, or is empty.
    #[must_use]
    pub fn of_text(text: &str) -> Self {
        let first = text.trim_start_matches('\u{feff}').trim_ascii_start().chars().next();
        if matches!(first, Some('{' | '[') | None) { Self::Json } else { Self::Yaml }
    }
}
