//! Formats by name: what `--format` says, and what a log's first lines look like.
//!
//! Invariant: what a format tells is known before the first record, so that nobody learns from an
//! empty report that his log lacks a column.

use std::fmt;

use crate::escape::Escape;
use crate::field::{Field, Wanted};
use crate::template::{Program, Template, nginx};

/// How the lines of a log are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Format {
    /// As [`Format::parse`] reads it.
    spec: String,
    kind: Kind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    Template(Template),
}

/// Why there is no such format: a sentence in lower case, without a full stop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormatError(String);

impl fmt::Display for FormatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for FormatError {}

impl Format {
    /// Reads what `--format` says: a name, or a name, a colon and the format's own words.
    ///
    /// # Errors
    /// The name is unknown, or its words describe no line.
    pub fn parse(spec: &str) -> Result<Self, FormatError> {
        let (name, words) = match spec.split_once(':') {
            Some((name, words)) => (name, Some(words)),
            None => (spec, None),
        };
        let kind = match (name, words) {
            ("combined", None) => Kind::Template(template(nginx::COMBINED, Escape::Backslash)?),
            ("common", None) => Kind::Template(template(nginx::COMMON, Escape::Backslash)?),
            ("nginx", Some(words)) => Kind::Template(template(words, Escape::Backslash)?),
            _ => {
                let message =
                    format!("{spec:?} is no format; use combined, common or nginx:FORMAT");
                return Err(FormatError(message));
            }
        };
        Ok(Self { spec: spec.to_owned(), kind })
    }

    /// Whether lines of this format tell `field`.
    #[must_use]
    pub fn tells(&self, field: &Field) -> bool {
        match &self.kind {
            Kind::Template(template) => template.tells(field),
        }
    }

    pub(crate) fn program(&self, wanted: &Wanted) -> Program {
        match &self.kind {
            Kind::Template(template) => template.program(wanted),
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.spec)
    }
}

fn template(words: &str, escape: Escape) -> Result<Template, FormatError> {
    nginx::parse(words, escape).map_err(|why| FormatError(format!("{words:?} {why}")))
}
