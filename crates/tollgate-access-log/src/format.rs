//! Formats by name: the values of `--format`.
//!
//! Invariant: the fields of a format are known before the first record, so a user does not learn
//! only from an empty report that the log lacks a column.

use std::fmt;

use crate::columns::{ColumnKind, ColumnProgram, Columns};
use crate::counts::Cause;
use crate::draft::Draft;
use crate::escape::Escape;
use crate::field::{Field, Wanted};
use crate::json::{Json, JsonProgram};
use crate::names::Map;
use crate::strftime::Strftime;
use crate::template::{Program, Template, envoy, nginx};

/// Lines at the beginning of a log in which names are searched.
const HEAD_LINES: usize = 100;

/// The form of the lines of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Format {
    /// As [`Format::parse`] reads it.
    spec: String,
    kind: Kind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    Template(Template),
    Columns(Columns),
    Json(Json),
}

/// Why there is no such format: a sentence in lower case, without a full stop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormatError(String);

impl FormatError {
    /// Text of a log or of a format may be shown, but must not control a terminal.
    fn new(why: &str) -> Self {
        let shown = |c: char| match c.is_control() {
            true => c.escape_default().to_string(),
            false => c.to_string(),
        };
        Self(why.chars().map(shown).collect())
    }
}

impl fmt::Display for FormatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for FormatError {}

/// The names of formats, for help and messages.
pub const FORMAT_NAMES: [&str; 10] = [
    "combined",
    "common",
    "vhost",
    "nginx:FORMAT",
    "nginx-json:FORMAT",
    "nginx-none:FORMAT",
    "envoy[:FORMAT]",
    "envoy-json[:OBJECT]",
    "json[:MAP]",
    "csv[:MAP], tsv[:MAP]",
];

impl Format {
    /// Reads a value of `--format`: a name, or a name, a colon and the format's own words.
    ///
    /// # Errors
    /// The name is unknown, or its words describe no line.
    pub fn parse(spec: &str) -> Result<Self, FormatError> {
        let (name, words) = match spec.split_once(':') {
            Some((name, words)) => (name, Some(words)),
            None => (spec, None),
        };
        let kind = match (name, words) {
            ("combined", None) => template(nginx::parse(nginx::COMBINED, Escape::Backslash)),
            ("common", None) => template(nginx::parse(nginx::COMMON, Escape::Backslash)),
            ("vhost", None) => template(nginx::parse(nginx::VHOST, Escape::Backslash)),
            ("nginx", Some(words)) => template(nginx::parse(words, Escape::Backslash)),
            ("nginx-json", Some(words)) => template(nginx::parse(words, Escape::Json)),
            ("nginx-none", Some(words)) => template(nginx::parse(words, Escape::None)),
            ("envoy", words) => template(envoy::parse(words.unwrap_or(envoy::DEFAULT))),
            ("envoy-json", words) => Json::envoy(words).map(Kind::Json),
            ("json", words) => Json::parse(words.unwrap_or_default()).map(Kind::Json),
            ("csv", words) => columns(ColumnKind::Commas, words),
            ("tsv", words) => columns(ColumnKind::Tabs, words),
            _ => Err(format!("is not a format; use {}", FORMAT_NAMES.join(", "))),
        };
        let kind = kind.map_err(|why| FormatError::new(&format!("{spec:?} {why}")))?;
        Ok(Self { spec: spec.to_owned(), kind })
    }

    /// The same format with another meaning for some of its variables, columns or keys:
    /// `client=remote_ip,header.x-api-key=key`.
    ///
    /// # Errors
    /// The map cannot be read, names no field, or names something that the format does not have.
    pub fn with_map(&self, map: &str) -> Result<Self, FormatError> {
        let mut kind = self.kind.clone();
        let mapped = match &mut kind {
            Kind::Template(template) => {
                let mut pairs = Map::default();
                pairs.add(map).and_then(|()| template.map(&pairs))
            }
            Kind::Columns(columns) => columns.map.add(map).and_then(|()| columns.check()),
            Kind::Json(json) => json.add(map),
        };
        mapped.map_err(|why| FormatError::new(&format!("{:?} {why}", self.spec)))?;
        Ok(Self { spec: self.spec.clone(), kind })
    }

    /// The same format, with its columns or keys named by the first bytes of a log where the format
    /// leaves that open: `csv` and `tsv` by the header line, `json` by the keys of the first lines.
    /// Other formats do not change. Some kilobytes are enough; the last line may be cut.
    ///
    /// # Errors
    /// The first lines lack a column that is mapped, or a key that every request has.
    pub fn fit(&self, head: &[u8]) -> Result<Self, FormatError> {
        let head = head.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(head);
        let mut lines = head.split(|byte| *byte == b'\n').take(HEAD_LINES);
        let kind = match &self.kind {
            Kind::Columns(columns) if columns.has_header => {
                let fitted = columns.with_header(lines.next().unwrap_or_default());
                let failed = |why| FormatError::new(&format!("the first line {why}"));
                Kind::Columns(fitted.map_err(failed)?)
            }
            Kind::Json(json) if json.explicit.is_empty() => {
                let fitted = json.with_lines(lines);
                let failed = |why| FormatError::new(&format!("the first lines {why}"));
                Kind::Json(fitted.map_err(failed)?)
            }
            other => other.clone(),
        };
        Ok(Self { spec: self.spec.clone(), kind })
    }

    /// Whether lines of this format contain `field`.
    #[must_use]
    pub fn contains(&self, field: &Field) -> bool {
        match &self.kind {
            Kind::Template(template) => template.contains(field),
            Kind::Columns(columns) => columns.contains(field),
            Kind::Json(json) => json.contains(field),
        }
    }

    /// Whether the first line of a file contains the names of its columns instead of a record.
    pub(crate) fn has_header(&self) -> bool {
        matches!(&self.kind, Kind::Columns(columns) if columns.has_header)
    }

    /// Whether a line end between quotes does not end a line.
    pub(crate) fn has_quotes(&self) -> bool {
        matches!(&self.kind, Kind::Columns(columns) if columns.kind == ColumnKind::Commas)
    }

    pub(crate) fn program(&self, wanted: &Wanted) -> LineProgram {
        match &self.kind {
            Kind::Template(template) => LineProgram::Template(template.program(wanted)),
            Kind::Columns(columns) => LineProgram::Columns(columns.program(wanted)),
            Kind::Json(json) => LineProgram::Json(json.program(wanted)),
        }
    }

    /// The format's own forms of times.
    pub(crate) fn times(&self) -> Vec<Strftime> {
        match &self.kind {
            Kind::Template(template) => template.times.clone(),
            Kind::Json(json) => json.times.clone(),
            Kind::Columns(_) => Vec::new(),
        }
    }
}

/// A format, prepared to read the wanted fields.
#[derive(Clone, Debug)]
pub(crate) enum LineProgram {
    Template(Program),
    Columns(ColumnProgram),
    Json(JsonProgram),
}

impl LineProgram {
    /// Reads the wanted fields of `line`.
    pub(crate) fn read(&self, line: &[u8], draft: &mut Draft) -> Result<(), Cause> {
        match self {
            Self::Template(program) => program.read(line, draft),
            Self::Columns(program) => program.read(line, draft),
            Self::Json(program) => program.read(line, draft),
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.spec)
    }
}

fn template(parsed: Result<Template, String>) -> Result<Kind, String> {
    parsed.map(Kind::Template)
}

fn columns(kind: ColumnKind, words: Option<&str>) -> Result<Kind, String> {
    Columns::parse(kind, words.unwrap_or_default()).map(Kind::Columns)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A path without its query does not contain the query.
    #[test]
    fn a_target_tells_its_query_and_a_path_does_not() {
        let query = Field::Query("q".to_owned());
        for (spec, tells) in [
            ("combined", true),
            ("nginx:$remote_addr [$time_local] $request_uri", true),
            ("nginx:$remote_addr [$time_local] $uri", false),
            ("nginx:$remote_addr [$time_local] $uri $args", true),
            ("nginx:$remote_addr [$time_local] $uri $arg_q", true),
            ("nginx:$remote_addr [$time_local] $uri $arg_p", false),
            ("nginx:$remote_addr [$time_local] $status", false),
        ] {
            assert_eq!(Format::parse(spec).unwrap().contains(&query), tells, "{spec}");
        }
    }
}
