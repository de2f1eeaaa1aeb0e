//! Lines that are JSON objects.
//!
//! Invariant: a wanted key that occurs twice can be read in more than one way, and its line is
//! rejected: programs differ in which of the two they take. Nesting has a limit, and unwanted
//! values are skipped without recursion. Numbers and strings that are not wanted are not checked.

mod scan;

use crate::counts::Cause;
use crate::draft::{Action, Draft};
use crate::escape::{Escape, unescape};
use crate::field::{Field, Wanted};
use crate::json::scan::{Inside, MOST_PARTS, Scanner, Value, plain};
use crate::names::{Map, all_known};
use crate::source::{Ranked, Source, actions, contains};
use crate::strftime::Strftime;
use crate::template::envoy;

/// Keys of a line that are searched for known names.
const MOST_KEYS: usize = 500;
/// The keys, and the fields that they mean.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Json {
    /// Paths that are in the log, and are known by name; `None` until a log was searched.
    pub(crate) names: Option<Vec<String>>,
    pub(crate) map: Map,
    /// Paths whose meaning the format itself defines.
    pub(crate) explicit: Vec<(String, Ranked)>,
    /// The format's own forms of times.
    pub(crate) times: Vec<Strftime>,
}

/// Keys of Istio's access log, and of most formats derived from it.
const ENVOY_KEYS: [(&str, &str); 10] = [
    ("start_time", "START_TIME"),
    ("method", "REQ(:METHOD)"),
    ("path", "REQ(X-ENVOY-ORIGINAL-PATH?:PATH)"),
    ("response_code", "RESPONSE_CODE"),
    ("x_forwarded_for", "REQ(X-FORWARDED-FOR)"),
    ("user_agent", "REQ(USER-AGENT)"),
    ("request_id", "REQ(X-REQUEST-ID)"),
    ("authority", "REQ(:AUTHORITY)"),
    ("downstream_remote_address", "DOWNSTREAM_REMOTE_ADDRESS"),
    ("route_name", "ROUTE_NAME"),
];

impl Json {
    /// Reads `client=request.ip`.
    pub(crate) fn parse(words: &str) -> Result<Self, String> {
        let mut json =
            Self { names: None, map: Map::default(), explicit: Vec::new(), times: Vec::new() };
        json.add(words)?;
        Ok(json)
    }

    /// Envoy's `json_format`: an object with one operator per key. Without one, the keys of
    /// Istio's.
    pub(crate) fn envoy(object: Option<&str>) -> Result<Self, String> {
        let mut json = Self::parse("")?;
        let Some(object) = object else {
            for (key, operator) in ENVOY_KEYS {
                let source = envoy::known(operator, &mut json.times)?;
                json.explicit.push((key.to_owned(), source));
            }
            return Ok(json);
        };
        let mut pairs = Vec::new();
        let read = strings(object.as_bytes(), &mut pairs);
        read.map_err(|_| "is not a JSON object of format strings".to_owned())?;
        for (path, format) in pairs {
            let inside = format.strip_prefix('%').and_then(|rest| rest.strip_suffix('%'));
            let source =
                match inside.filter(|operator| !operator.contains('%') || operator.contains('(')) {
                    Some(operator) => envoy::known(operator, &mut json.times)?,
                    None => (Source::Other, 0),
                };
            json.explicit.push((path, source));
        }
        if json.explicit.is_empty() {
            return Err("has no key with a format string".to_owned());
        }
        Ok(json)
    }

    pub(crate) fn add(&mut self, words: &str) -> Result<(), String> {
        self.map.add(words)?;
        let is_long = |name: &&String| name.split('.').count() > MOST_PARTS;
        match self.map.pairs.iter().map(|(_, name)| name).find(is_long) {
            Some(name) => Err(format!("has the path {name:?}; use at most {MOST_PARTS} parts")),
            None => Ok(()),
        }
    }

    /// The same with the names of these lines. A mapped field that every request has must be there;
    /// other keys may come later.
    pub(crate) fn with_lines<'l>(
        &self,
        lines: impl Iterator<Item = &'l [u8]>,
    ) -> Result<Self, String> {
        let mut names = Vec::new();
        for line in lines {
            // A line that is not JSON is counted when it is read.
            let _ = self::names(line, &mut names);
        }
        let is_always = |source: &Source| match source {
            Source::Time(_) | Source::Request | Source::Path => true,
            Source::Text(field) => {
                matches!(field, Field::Client | Field::Method | Field::Target)
            }
            Source::Other | Source::Status | Source::Query => false,
        };
        let pairs = self.map.pairs.iter();
        let missing = pairs.filter(|(source, name)| is_always(source) && !names.contains(name));
        match missing.map(|(_, name)| name).next() {
            Some(name) if !names.is_empty() => {
                let shown: Vec<String> =
                    names.iter().take(20).map(|name| name.escape_debug().to_string()).collect();
                Err(format!("have no key {name:?}, but {}", shown.join(", ")))
            }
            _ => Ok(Self { names: Some(names), ..self.clone() }),
        }
    }

    /// The paths, each with its meaning. A mapped path need not be in the first lines.
    fn sources(&self) -> (Vec<&str>, Vec<Ranked>) {
        let names = self.names.iter().flatten().map(String::as_str);
        let is_known = |name: &&str| {
            self.map.get(name).is_none() && !self.explicit.iter().any(|(path, _)| path == name)
        };
        let mut paths: Vec<&str> = names.filter(is_known).collect();
        let mut sources = all_known(paths.iter().copied());
        for (path, source) in &self.explicit {
            if self.map.get(path).is_none() {
                paths.push(path);
                sources.push(source.clone());
            }
        }
        for (_, name) in &self.map.pairs {
            paths.push(name);
            sources.push(self.map.get(name).unwrap_or((Source::Other, 0)));
        }
        (paths, sources)
    }

    pub(crate) fn contains(&self, field: &Field) -> bool {
        contains(&self.sources().1, field)
    }

    pub(crate) fn program(&self, wanted: &Wanted) -> JsonProgram {
        let (paths, sources) = self.sources();
        let mut program = JsonProgram { root: Node::default(), seen: 0 };
        for (path, action) in paths.into_iter().zip(actions(&sources, wanted)) {
            if action != Action::Skip {
                let slot = program.seen;
                program.seen = slot.wrapping_add(1);
                program.root.add(path, Leaf { slot, action }, &mut program.seen);
            }
        }
        program
    }
}

/// Keys, prepared to read the wanted fields.
#[derive(Clone, Debug)]
pub(crate) struct JsonProgram {
    root: Node,
    /// How many keys may occur at most once.
    seen: usize,
}

/// The wanted keys of one object.
#[derive(Clone, Debug, Default)]
struct Node {
    leaves: Vec<(Vec<u8>, Leaf)>,
    /// Each with the number of its key in `seen`.
    branches: Vec<(Vec<u8>, usize, Node)>,
}

#[derive(Clone, Copy, Debug)]
struct Leaf {
    slot: usize,
    action: Action,
}

impl Node {
    /// A point in a path is part of a key, or leads into an object: `a.b` finds `{"a.b": 1}` and
    /// `{"a": {"b": 1}}`.
    fn add(&mut self, path: &str, leaf: Leaf, seen: &mut usize) {
        self.leaves.push((path.as_bytes().to_vec(), leaf));
        for (at, _) in path.match_indices('.') {
            let (key, rest) = (path.get(..at), path.get(at.wrapping_add(1)..));
            let (Some(key), Some(rest)) = (key.map(str::as_bytes), rest) else { continue };
            let known = self.branches.iter().position(|(name, _, _)| name == key);
            let index = known.unwrap_or_else(|| {
                self.branches.push((key.to_vec(), *seen, Self::default()));
                *seen = seen.wrapping_add(1);
                self.branches.len().wrapping_sub(1)
            });
            if let Some((_, _, node)) = self.branches.get_mut(index) {
                node.add(rest, leaf, seen);
            }
        }
    }
}

impl JsonProgram {
    /// Reads the wanted fields of `line`.
    pub(crate) fn read(&self, line: &[u8], draft: &mut Draft) -> Result<(), Cause> {
        draft.seen.clear();
        draft.seen.resize(self.seen, false);
        let mut scanner = Scanner::new(line);
        scanner.space();
        if !scanner.eat(b'{') {
            return Err(Cause::Json);
        }
        object(&mut scanner, &self.root, draft)?;
        scanner.space();
        if scanner.rest.is_empty() { Ok(()) } else { Err(Cause::Json) }
    }
}

/// Reads an object, along the wanted paths only: these have few parts.
fn object(scanner: &mut Scanner<'_>, node: &Node, draft: &mut Draft) -> Result<(), Cause> {
    let (mut is_first, mut plain) = (true, Vec::new());
    while let Some(key) = scanner.key(is_first)? {
        is_first = false;
        plain.clear();
        let key: &[u8] =
            if unescape(key.text, Escape::Json, &mut plain) { &plain } else { key.text };
        let leaf = node.leaves.iter().find(|(name, _)| name == key).map(|(_, leaf)| *leaf);
        let branch = node.branches.iter().find(|(name, _, _)| name == key);
        if let Some(leaf) = leaf {
            see(draft, leaf.slot)?;
        }
        if let Some((_, seen, _)) = branch {
            see(draft, *seen)?;
        }
        let action = leaf.map_or(Action::Skip, |leaf| leaf.action);
        match scanner.value()? {
            Value::String(piece) => draft.take(action, piece, Escape::Json)?,
            Value::Bare(piece) => draft.take(action, piece, Escape::None)?,
            Value::Null => {}
            Value::List if action != Action::Skip => list(scanner, action, draft)?,
            Value::List => scanner.skip(Inside::List)?,
            Value::Object => match branch {
                Some((_, _, node)) => object(scanner, node, draft)?,
                None => scanner.skip(Inside::Object)?,
            },
        }
    }
    Ok(())
}

/// A list whose elements are one text, joined as header lines are.
fn list(scanner: &mut Scanner<'_>, action: Action, draft: &mut Draft) -> Result<(), Cause> {
    scanner.space();
    let mut is_first = true;
    while !scanner.eat(b']') {
        if !is_first && !scanner.eat(b',') {
            return Err(Cause::Json);
        }
        is_first = false;
        scanner.space();
        match scanner.value()? {
            Value::String(piece) => draft.join(action, piece.text, Escape::Json),
            Value::Bare(piece) => draft.join(action, piece.text, Escape::None),
            Value::Null => {}
            Value::Object => scanner.skip(Inside::Object)?,
            Value::List => scanner.skip(Inside::List)?,
        }
        scanner.space();
    }
    Ok(())
}

/// Notes that a wanted key was seen.
fn see(draft: &mut Draft, slot: usize) -> Result<(), Cause> {
    match draft.seen.get_mut(slot) {
        Some(seen) if !*seen => {
            *seen = true;
            Ok(())
        }
        _ => Err(Cause::Ambiguous),
    }
}

/// Adds the paths of all values of a line to `names`.
fn names(line: &[u8], names: &mut Vec<String>) -> Result<(), Cause> {
    Scanner::new(line).walk(&mut |path, _| {
        let is_usable = path.split('.').count() <= MOST_PARTS && names.len() < MOST_KEYS;
        if is_usable && !names.contains(&path) {
            names.push(path);
        }
    })
}

/// Adds all paths with their strings to `pairs`.
fn strings(object: &[u8], pairs: &mut Vec<(String, String)>) -> Result<(), Cause> {
    Scanner::new(object).walk(&mut |path, value| {
        if let Value::String(piece) = value {
            pairs.push((path, plain(piece.text)));
        }
    })
}
