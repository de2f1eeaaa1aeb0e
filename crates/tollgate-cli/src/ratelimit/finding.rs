//! Findings about a configuration: its mistakes, and the differences of the policy.
//!
//! Invariant: a limit that cannot be expressed is a problem, never a remark, so no policy silently
//! has fewer limits than its configuration.

use serde::Serialize;

use tollgate_yaml::Node;

/// A place in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) struct Place {
    /// Counted from 1.
    pub(crate) line: usize,
    /// In characters, counted from 1.
    pub(crate) column: usize,
}

impl From<&Node> for Place {
    fn from(node: &Node) -> Self {
        Self { line: node.line, column: node.column }
    }
}

/// The kind of a remark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    /// It cannot be converted; there is no policy.
    Problem,
    /// A policy has no equivalent.
    NoEquivalent,
    /// The policy decides differently.
    Differs,
    /// It has no effect in that service, and none here.
    Ignored,
    /// How a policy expresses it without a field for it.
    Written,
}

impl Kind {
    /// The words that a line begins with.
    pub(crate) const fn words(self) -> &'static str {
        match self {
            Self::Problem => "error",
            Self::NoEquivalent => "no equivalent",
            Self::Differs => "differs",
            Self::Ignored => "ignored",
            Self::Written => "written",
        }
    }
}

/// One remark.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    pub(crate) kind: Kind,
    /// The file; `None` for a remark on every configuration.
    pub(crate) file: Option<String>,
    #[serde(flatten)]
    pub(crate) place: Option<Place>,
    pub(crate) message: String,
}

/// The findings of one file.
pub(super) struct Findings {
    file: String,
    pub(super) all: Vec<Finding>,
}

impl Findings {
    /// The most findings per file: a person reads no more, and a file may have a million.
    const MOST: usize = 100;

    pub(super) const fn of(file: String) -> Self {
        Self { file, all: Vec::new() }
    }

    pub(super) fn note(&mut self, kind: Kind, place: Place, message: impl Into<String>) {
        let full = self.all.len() >= Self::MOST;
        if full && (kind != Kind::Problem || self.has_problems()) {
            return;
        }
        let (file, message) = (Some(self.file.clone()), message.into());
        self.all.push(Finding { kind, file, place: Some(place), message });
    }

    pub(super) fn problem(&mut self, place: Place, message: impl Into<String>) {
        self.note(Kind::Problem, place, message);
    }

    /// All findings, in the order of the file.
    pub(super) fn sorted(mut self) -> Vec<Finding> {
        self.all.sort_by_key(|finding| finding.place);
        self.all
    }

    fn has_problems(&self) -> bool {
        self.all.iter().any(|finding| finding.kind == Kind::Problem)
    }
}

/// A text of the file for a message, in quotes; of a long text only the beginning.
pub(super) fn shown(text: &str) -> String {
    const MOST: usize = 60;
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{:?}", format!("{}...", text.get(..end).unwrap_or_default())),
        None => format!("{text:?}"),
    }
}

/// True when one of them is a problem.
pub(super) fn has_problems(findings: &[Finding]) -> bool {
    findings.iter().any(|finding| finding.kind == Kind::Problem)
}
