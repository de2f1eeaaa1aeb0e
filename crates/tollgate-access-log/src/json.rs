//! Lines that are JSON objects.
//!
//! Invariant: a key that is wanted and stands there twice can be read in more than one way, and
//! its line is refused: programs differ in which of the two they take. Nesting has a limit, and
//! what is not wanted is skipped without recursion. Numbers and strings that are not wanted are
//! not checked.

use memchr::memchr2;

use crate::counts::Cause;
use crate::draft::{Action, Draft, Piece};
use crate::escape::{Escape, unescape};
use crate::field::{Field, Wanted};
use crate::names::{Map, all_known};
use crate::source::{Ranked, Source, actions, best};
use crate::strftime::Strftime;
use crate::template::envoy;

/// How deep objects and lists may stand in each other.
const DEEPEST: u32 = 64;
/// Keys of a line that are looked at to find known names.
const MOST_KEYS: usize = 500;
/// Parts of a path: each may be a part of a key or a key.
pub(crate) const MOST_PARTS: usize = 6;

/// Which keys tell what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Json {
    /// Paths that stand in the log, and are known by name; `None` as long as nobody looked.
    pub(crate) names: Option<Vec<String>>,
    pub(crate) map: Map,
    /// Paths whose meaning the format says by itself.
    pub(crate) given: Vec<(String, Ranked)>,
    /// Forms of times that the format has of its own.
    pub(crate) times: Vec<Strftime>,
}

/// Keys of Istio's access log, and of most that are made after it.
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
            Self { names: None, map: Map::default(), given: Vec::new(), times: Vec::new() };
        json.add(words)?;
        Ok(json)
    }

    /// Envoy's `json_format`: an object with an operator for each key. Without one, the keys of
    /// Istio's.
    pub(crate) fn envoy(object: Option<&str>) -> Result<Self, String> {
        let mut json = Self::parse("")?;
        let Some(object) = object else {
            for (key, operator) in ENVOY_KEYS {
                let source = envoy::known(operator, &mut json.times)?;
                json.given.push((key.to_owned(), source));
            }
            return Ok(json);
        };
        let mut pairs = Vec::new();
        let read = Scanner::new(object.as_bytes()).strings(&mut pairs);
        read.map_err(|_| "is no JSON object of format strings".to_owned())?;
        for (path, format) in pairs {
            let inside = format.strip_prefix('%').and_then(|rest| rest.strip_suffix('%'));
            let source =
                match inside.filter(|operator| !operator.contains('%') || operator.contains('(')) {
                    Some(operator) => envoy::known(operator, &mut json.times)?,
                    None => (Source::Other, 0),
                };
            json.given.push((path, source));
        }
        if json.given.is_empty() {
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

    /// With the names that these lines have.
    pub(crate) fn with_lines<'l>(&self, lines: impl Iterator<Item = &'l [u8]>) -> Self {
        let mut names = Vec::new();
        for line in lines {
            // A line that is no JSON is counted when it is read.
            let _ = Scanner::new(line).names(&mut names);
        }
        Self { names: Some(names), ..self.clone() }
    }

    /// The paths, each with what it tells. What is mapped needs not stand in the first lines.
    fn sources(&self) -> (Vec<&str>, Vec<Ranked>) {
        let names = self.names.iter().flatten().map(String::as_str);
        let is_known = |name: &&str| {
            self.map.get(name).is_none() && !self.given.iter().any(|(path, _)| path == name)
        };
        let mut paths: Vec<&str> = names.filter(is_known).collect();
        let mut sources = all_known(paths.iter().copied());
        for (path, source) in &self.given {
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

    pub(crate) fn tells(&self, field: &Field) -> bool {
        best(&self.sources().1, field).is_some()
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

/// Keys that know what is wanted.
#[derive(Clone, Debug)]
pub(crate) struct JsonProgram {
    root: Node,
    /// How many keys may be seen at most once.
    seen: usize,
}

/// The wanted keys of one object.
#[derive(Clone, Debug, Default)]
struct Node {
    leaves: Vec<(Vec<u8>, Leaf)>,
    /// With the number under which the key is seen.
    branches: Vec<(Vec<u8>, usize, Node)>,
}

#[derive(Clone, Copy, Debug)]
struct Leaf {
    slot: usize,
    action: Action,
}

impl Node {
    /// A point in a path is one in a key, or goes down: `a.b` finds `{"a.b": 1}` and `{"a": {"b":
    /// 1}}`.
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
    /// Finds in `line` what is wanted.
    pub(crate) fn read(&self, line: &[u8], draft: &mut Draft) -> Result<(), Cause> {
        draft.seen.clear();
        draft.seen.resize(self.seen, false);
        let mut scanner = Scanner::new(line);
        scanner.space();
        if !scanner.eat(b'{') {
            return Err(Cause::Json);
        }
        scanner.object(&self.root, draft)?;
        scanner.space();
        if scanner.rest.is_empty() { Ok(()) } else { Err(Cause::Json) }
    }
}

/// A value of JSON that is none or one piece of the line.
enum Value<'a> {
    String(Piece<'a>),
    /// A number, `true` or `false`.
    Bare(Piece<'a>),
    Null,
    /// What follows is the inside of an object.
    Object,
    /// What follows is the inside of a list.
    List,
}

struct Scanner<'a> {
    line: &'a [u8],
    rest: &'a [u8],
}

impl<'a> Scanner<'a> {
    const fn new(line: &'a [u8]) -> Self {
        Self { line, rest: line }
    }

    fn space(&mut self) {
        while let Some((b' ' | b'\t' | b'\r' | b'\n', rest)) = self.rest.split_first() {
            self.rest = rest;
        }
    }

    fn eat(&mut self, byte: u8) -> bool {
        match self.rest.split_first() {
            Some((first, rest)) if *first == byte => {
                self.rest = rest;
                true
            }
            _ => false,
        }
    }

    fn piece(&self, text: &'a [u8]) -> Piece<'a> {
        // `text` ends where `rest` begins, but for a closing quote.
        let end = self.line.len().wrapping_sub(self.rest.len());
        Piece { text, from: end.wrapping_sub(text.len()) }
    }

    /// The inside of a string whose opening quote was eaten.
    fn string(&mut self) -> Result<Piece<'a>, Cause> {
        let start = self.rest;
        let mut length = 0_usize;
        loop {
            let found = memchr2(b'"', b'\\', start.get(length..).unwrap_or_default());
            let at = length.wrapping_add(found.ok_or(Cause::Json)?);
            let (text, rest) = start.split_at_checked(at).ok_or(Cause::Json)?;
            if rest.first() == Some(&b'"') {
                self.rest = rest;
                let piece = self.piece(text);
                self.rest = rest.get(1..).unwrap_or_default();
                return Ok(piece);
            }
            length = at.wrapping_add(2);
        }
    }

    fn value(&mut self) -> Result<Value<'a>, Cause> {
        let (first, rest) = self.rest.split_first().ok_or(Cause::Json)?;
        match first {
            b'"' => {
                self.rest = rest;
                self.string().map(Value::String)
            }
            b'{' => {
                self.rest = rest;
                Ok(Value::Object)
            }
            b'[' => {
                self.rest = rest;
                Ok(Value::List)
            }
            _ => {
                let is_bare = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.');
                let end = self.rest.iter().position(|b| !is_bare(b)).unwrap_or(self.rest.len());
                let (text, rest) = self.rest.split_at_checked(end).ok_or(Cause::Json)?;
                self.rest = rest;
                match text {
                    b"null" => Ok(Value::Null),
                    b"true" | b"false" => Ok(Value::Bare(self.piece(text))),
                    [b'-' | b'0'..=b'9', ..] => Ok(Value::Bare(self.piece(text))),
                    _ => Err(Cause::Json),
                }
            }
        }
    }

    /// A key and the colon behind it; `None` at the end of the object.
    fn key(&mut self, is_first: bool) -> Result<Option<Piece<'a>>, Cause> {
        self.space();
        if self.eat(b'}') {
            return Ok(None);
        }
        if !is_first {
            if !self.eat(b',') {
                return Err(Cause::Json);
            }
            self.space();
        }
        if !self.eat(b'"') {
            return Err(Cause::Json);
        }
        let key = self.string()?;
        self.space();
        if !self.eat(b':') {
            return Err(Cause::Json);
        }
        self.space();
        Ok(Some(key))
    }

    /// The inside of an object, down along the wanted paths only: these have few parts.
    fn object(&mut self, node: &Node, draft: &mut Draft) -> Result<(), Cause> {
        let (mut is_first, mut plain) = (true, Vec::new());
        while let Some(key) = self.key(is_first)? {
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
            match self.value()? {
                Value::String(piece) => draft.take(action, piece, Escape::Json)?,
                Value::Bare(piece) => draft.take(action, piece, Escape::None)?,
                Value::Null => {}
                Value::List if action != Action::Skip => self.list(action, draft)?,
                Value::List => self.skip(Inside::List)?,
                Value::Object => match branch {
                    Some((_, _, node)) => self.object(node, draft)?,
                    None => self.skip(Inside::Object)?,
                },
            }
        }
        Ok(())
    }

    /// A list whose elements are one text, joined as header lines are.
    fn list(&mut self, action: Action, draft: &mut Draft) -> Result<(), Cause> {
        self.space();
        let mut is_first = true;
        while !self.eat(b']') {
            if !is_first && !self.eat(b',') {
                return Err(Cause::Json);
            }
            is_first = false;
            self.space();
            match self.value()? {
                Value::String(piece) => draft.join(action, piece.text, Escape::Json),
                Value::Bare(piece) => draft.join(action, piece.text, Escape::None),
                Value::Null => {}
                Value::Object => self.skip(Inside::Object)?,
                Value::List => self.skip(Inside::List)?,
            }
            self.space();
        }
        Ok(())
    }

    /// Skips what is left of an object or a list, whatever stands in it.
    fn skip(&mut self, inside: Inside) -> Result<(), Cause> {
        // One bit for each level, the innermost the lowest: whether it is an object.
        let (mut levels, mut depth) = (u64::from(inside == Inside::Object), 1_u32);
        let mut is_first = true;
        while depth > 0 {
            self.space();
            let is_object = levels & 1 == 1;
            if self.eat(if is_object { b'}' } else { b']' }) {
                levels >>= 1;
                depth = depth.wrapping_sub(1);
                is_first = false;
                continue;
            }
            if is_object {
                if self.key(is_first)?.is_none() {
                    return Err(Cause::Json);
                }
            } else if !is_first && !self.eat(b',') {
                return Err(Cause::Json);
            }
            self.space();
            let value = self.value()?;
            is_first = matches!(value, Value::Object | Value::List);
            if is_first {
                if depth == DEEPEST {
                    return Err(Cause::TooDeep);
                }
                levels = levels.wrapping_shl(1) | u64::from(matches!(value, Value::Object));
                depth = depth.wrapping_add(1);
            }
        }
        Ok(())
    }

    /// Adds the paths of all values of a line to `names`.
    fn names(&mut self, names: &mut Vec<String>) -> Result<(), Cause> {
        self.walk(&mut |path, _| {
            let is_usable = path.split('.').count() <= MOST_PARTS && names.len() < MOST_KEYS;
            if is_usable && !names.contains(&path) {
                names.push(path);
            }
        })
    }

    /// Adds all paths with their strings to `pairs`.
    fn strings(&mut self, pairs: &mut Vec<(String, String)>) -> Result<(), Cause> {
        self.walk(&mut |path, value| {
            if let Value::String(piece) = value {
                pairs.push((path, plain(piece.text)));
            }
        })
    }

    /// Calls `on_value` for all values that are no objects, with their paths.
    fn walk(&mut self, on_value: &mut impl FnMut(String, Value<'a>)) -> Result<(), Cause> {
        self.space();
        if !self.eat(b'{') {
            return Err(Cause::Json);
        }
        // The beginnings of paths, as the objects stand in each other.
        let mut prefixes = vec![String::new()];
        let mut is_first = true;
        while let Some(prefix) = prefixes.last() {
            let Some(key) = self.key(is_first)? else {
                prefixes.pop();
                is_first = false;
                continue;
            };
            is_first = false;
            let path = format!("{prefix}{}", plain(key.text));
            match self.value()? {
                Value::Object if prefixes.len() < MOST_PARTS => {
                    prefixes.push(format!("{path}."));
                    is_first = true;
                }
                Value::Object => self.skip(Inside::Object)?,
                Value::List => {
                    self.skip(Inside::List)?;
                    on_value(path, Value::List);
                }
                other => on_value(path, other),
            }
        }
        Ok(())
    }
}

/// A string of JSON without its escapes.
fn plain(text: &[u8]) -> String {
    let mut out = Vec::new();
    let is_escaped = unescape(text, Escape::Json, &mut out);
    String::from_utf8_lossy(if is_escaped { &out } else { text }).into_owned()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Inside {
    Object,
    List,
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
