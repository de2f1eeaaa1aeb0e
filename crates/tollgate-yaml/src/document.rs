//! A policy document as it was written: its JSON, and the position of each part in the source.
//!
//! Invariant: the JSON is what the surface would get. Lines and hints are added to the problems
//! that the policy layer reports; they do not change those problems. Every program of this project
//! chooses between JSON and YAML in the same way ([`Language`]).

use std::collections::BTreeMap;
use std::path::Path;

use serde::de::IgnoredAny;
use tollgate_language::BOOLEAN_HINT;
use tollgate_policy::{Problem, Problems, Surface};

use crate::list_files::{ListFile, Taker};
use crate::node::{AsJson, AsWritten};
use crate::{Fault, Form, Kind, Node, Reading, Scalar, Value};

/// A policy as text, and the tree that it came from.
#[derive(Debug)]
pub struct Document {
    /// As the policy layer reads it.
    pub json: String,
    /// `None` for a JSON file: its problems name their positions by path, as on every surface.
    pub tree: Option<Tree>,
    /// The line where the document begins, when it is a part of a file.
    pub begins: Option<usize>,
    /// The values that its lists have from files.
    pub list_files: Vec<ListFile>,
}

/// The source tree of a document.
#[derive(Debug)]
pub struct Tree {
    /// The root of the tree.
    pub root: Node,
    /// How its scalars are read.
    pub reading: Reading,
    /// Lines of the file before the first line of the tree.
    pub lines_before: usize,
}

/// The target of a path.
struct Place<'n> {
    line: usize,
    /// The value, if the whole path exists.
    value: Option<&'n Node>,
}

impl Document {
    /// Reads `text`, a policy in a file or a request of its own.
    ///
    /// # Errors
    /// The text is not YAML; the fault names the line. Invalid JSON is left for the policy layer to
    /// report.
    pub fn read(text: String, language: Language) -> Result<Self, Problems> {
        match language {
            Language::Json => Ok(Self::from_json(text)),
            Language::Yaml => match Node::parse(text.trim_start_matches('\u{feff}')) {
                Ok(root) => Ok(Self::from_tree(root, Reading::Policy)),
                Err(fault) => Err(fault.into()),
            },
        }
    }

    /// The problems of the document, with the hints and the lines of YAML.
    #[must_use]
    pub fn located(&self, problems: Problems, surface: Surface) -> Problems {
        let mut problems = self.hinted(problems, surface);
        if self.tree.is_some() {
            for problem in &mut problems.0 {
                if self.place_in_file(&problem.path).is_some() {
                    continue;
                }
                if let Some(line) = self.line(&problem.path) {
                    problem.message.push_str(&format!(" (line {line})"));
                }
            }
        }
        problems
    }

    /// The problems of the document, with the hints of YAML.
    #[must_use]
    pub fn hinted(&self, problems: Problems, surface: Surface) -> Problems {
        let hints = self.hints(&problems.0, surface);
        let mut problems = self.with_files(problems);
        for Problem { path, message, .. } in &mut problems.0 {
            if let Some(hint) = hints.get(path) {
                // A hint for this value replaces the general hint.
                let said = message.strip_suffix(BOOLEAN_HINT).unwrap_or(message);
                *message = format!("{said}; {hint}");
            }
        }
        problems
    }

    /// The problems of the document; those of a value that is in a file name the file and the line.
    #[must_use]
    pub fn with_files(&self, mut problems: Problems) -> Problems {
        for Problem { path, message, .. } in &mut problems.0 {
            if let Some(place) = self.place_in_file(path) {
                *message = format!("{place}: {message}");
            }
        }
        problems
    }

    fn place_in_file(&self, path: &str) -> Option<String> {
        self.list_files.iter().find_map(|file| file.place(path))
    }

    /// The document with the tree `root`.
    pub fn from_tree(root: Node, reading: Reading) -> Self {
        let json = json(&root, reading);
        let begins = Some(root.line);
        let tree = Some(Tree { root, reading, lines_before: 0 });
        Self { json, tree, begins, list_files: Vec::new() }
    }

    /// A document in a file of its own.
    pub const fn from_json(json: String) -> Self {
        Self { json, tree: None, begins: None, list_files: Vec::new() }
    }

    /// The names of the files that its lists take values from: `{"file": "blocked.txt"}`.
    #[must_use]
    pub fn files_to_take(&self) -> Vec<String> {
        let names = |root: &Node| root.list_files().into_iter().map(ToOwned::to_owned).collect();
        self.tree.as_ref().map_or_else(
            || self.parsed().and_then(Result::ok).as_ref().map_or_else(Vec::new, names),
            |tree| names(&tree.root),
        )
    }

    /// The document with the values of these files in their place; `read` returns the text of a
    /// file, or what is wrong with it, as the rest of a sentence.
    ///
    /// # Errors
    /// The first file that cannot be read or is not in the folder of the policy, and JSON with
    /// files that is not YAML, because it has a surrogate pair.
    pub fn take_files(
        self,
        mut read: impl FnMut(&str) -> Result<String, String>,
    ) -> Result<Self, Fault> {
        let (root, reading) = match &self.tree {
            Some(tree) => (tree.root.clone(), tree.reading),
            None => match self.parsed() {
                Some(root) => (root?, Reading::Json),
                None => return Ok(self),
            },
        };
        if root.list_files().is_empty() {
            return Ok(self);
        }
        let (mut root, mut taker) = (root, Taker::new(&mut read));
        taker.take(&mut root, "")?;
        let document = match reading {
            Reading::Json => {
                Self::from_json(serde_json::to_string_pretty(&AsWritten(&root)).unwrap_or_default())
            }
            Reading::Policy | Reading::Envoy => Self::from_tree(root, reading),
        };
        Ok(Self { list_files: taker.taken, ..document })
    }

    /// The tree of valid JSON that may name a file.
    fn parsed(&self) -> Option<Result<Node, Fault>> {
        let json = self.json.trim_start_matches('\u{feff}');
        let may_name = json.contains("\"file\"");
        let is_json = may_name && serde_json::from_str::<IgnoredAny>(json).is_ok();
        is_json.then(|| Node::parse(json))
    }

    /// The JSON in a readable layout; for a JSON document, the text as it was written.
    pub fn pretty(&self) -> String {
        let Some(Tree { root, reading, .. }) = &self.tree else {
            return self.json.trim_start_matches('\u{feff}').to_owned();
        };
        serde_json::to_string_pretty(&AsJson(root, *reading)).unwrap_or_default()
    }

    /// The line in the file that the path of a problem leads to, or the line of the node that
    /// should contain it.
    pub fn line(&self, path: &str) -> Option<usize> {
        let Some(tree) = &self.tree else { return self.begins };
        Some(place(&tree.root, path).line.saturating_add(tree.lines_before))
    }

    /// Hints for the problems whose value only lacks quotes or was too large for Envoy's YAML, by
    /// path.
    fn hints(&self, problems: &[Problem], surface: Surface) -> BTreeMap<String, String> {
        let Some(tree) = self.tree.as_ref().filter(|tree| tree.reading != Reading::Json) else {
            return BTreeMap::new();
        };
        let mut hints = BTreeMap::new();
        let mut mended = tree.root.clone();
        for Problem { path, .. } in problems {
            let Some(Node { kind: Kind::Scalar(scalar), .. }) = place(&tree.root, path).value
            else {
                continue;
            };
            if let Some((hint, better)) = mend(scalar, tree.reading) {
                hints.insert(path.clone(), hint);
                replace(&mut mended, path, better);
            }
        }
        if hints.is_empty() {
            return hints;
        }
        // Keep only hints that fix their problem.
        if let Err(still) = tollgate_language::compile(&json(&mended, Reading::Policy), surface) {
            hints.retain(|path, _| still.0.iter().all(|problem| problem.path != *path));
        }
        hints
    }
}

impl From<Fault> for Problems {
    fn from(Fault { line, message, .. }: Fault) -> Self {
        Self([Problem::new("", format!("line {line}: {message}"))].into())
    }
}

/// The JSON text of a tree.
pub fn json(root: &Node, reading: Reading) -> String {
    serde_json::to_string(&AsJson(root, reading)).unwrap_or_default()
}

/// A likely correction of a scalar that is not quoted.
fn mend(scalar: &Scalar, reading: Reading) -> Option<(String, Scalar)> {
    let text = &scalar.text;
    let quoted = || Scalar { text: text.clone(), form: Form::Quoted };
    let kind = match reading.value(scalar) {
        Value::Bool(truth) => format!("the boolean {truth}"),
        Value::Whole(_) | Value::Number(_) => "a number".to_owned(),
        Value::Large(_) => {
            let hint = "Envoy turns a number beyond 32 bits in YAML into a text: use JSON in a StringValue (tollgate embed)";
            return Some((hint.to_owned(), scalar.clone()));
        }
        Value::Null if !text.is_empty() => "nothing".to_owned(),
        Value::Null | Value::Text(_) => return None,
    };
    Some((format!("in YAML {text} without quotes is {kind}: quote it, \"{text}\""), quoted()))
}

/// The value that a path leads to.
fn place<'n>(root: &'n Node, path: &str) -> Place<'n> {
    let (mut here, mut rest, mut line) = (root, path, root.line);
    while !rest.is_empty() {
        let next = step(here, rest).and_then(|(index, left)| Some((here.child(index)?, left)));
        let Some(((at, child), left)) = next else { return Place { line, value: None } };
        (here, line, rest) = (child, at, left);
    }
    Place { line, value: Some(here) }
}

/// Puts a scalar where a path leads.
fn replace(root: &mut Node, path: &str, scalar: Scalar) {
    let (mut here, mut rest) = (root, path);
    while !rest.is_empty() {
        let Some((index, left)) = step(here, rest) else { return };
        let Some(child) = here.child_mut(index) else { return };
        (here, rest) = (child, left);
    }
    here.kind = Kind::Scalar(scalar);
}

/// One step along a path: the item or field it takes, and the rest of the path.
fn step<'p>(here: &Node, path: &'p str) -> Option<(usize, &'p str)> {
    if let Some((index, rest)) = path.strip_prefix('[').and_then(|path| path.split_once(']')) {
        return Some((index.parse().ok()?, rest));
    }
    let path = path.strip_prefix('.').unwrap_or(path);
    let ends = |rest: &&str| rest.is_empty() || rest.starts_with(['.', '[']);
    let steps = here.fields().iter().enumerate().rev().filter_map(|(index, field)| {
        let plain = path.strip_prefix(&field.name).filter(ends);
        let quoted = || {
            let rest = path.strip_prefix('"')?.strip_prefix(&field.name)?;
            rest.strip_prefix('"').filter(ends)
        };
        Some((index, plain.or_else(quoted)?))
    });
    // A name may contain a full stop, so the longest matching name is taken; of duplicate names,
    // the last.
    steps.min_by_key(|(_, rest)| rest.len())
}

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
