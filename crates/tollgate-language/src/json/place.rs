//! Places in a document, and the problems noted at them.
//!
//! Invariant: problems come out in the order of the document, whichever pass found them: a place
//! comes before the places inside it, missing fields after those that are present. Problems of one
//! place keep the order in which they were found. The public form of a place contains names of this
//! crate and numbers, and no part of the document: a field's name is static.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::cell::RefCell;
use core::fmt;

use crate::json::node::Node;
use crate::json::node::quoted;
use tollgate_http_syntax::sort::sort_by;
use tollgate_http_syntax::token::is_token;
use tollgate_policy::SlabMap;
use tollgate_policy::spec::{MAX_QUOTED, Problem, Problems, quoted_text};

/// The most problems that are listed: a person does not write a document with more.
const MAX_PROBLEMS: usize = 1000;

/// The end of a message about a boolean that was perhaps meant as a text.
pub const BOOLEAN_HINT: &str = "; in YAML, off, NO and yes are booleans: quote it";

/// A place in the document, and the list that its problems go to.
#[derive(Clone, Copy)]
pub(crate) struct At<'a> {
    parent: Option<&'a At<'a>>,
    step: Step<'a>,
    noted: &'a RefCell<ProblemList>,
}

#[derive(Clone, Copy)]
enum Step<'a> {
    Root,
    /// A name that every document has; never a name that the document chose.
    Field(&'static str),
    /// A name that the document chose.
    UserField(&'a str),
    Item(usize),
}

/// The problems so far, in the order in which they were found.
#[derive(Debug, Default)]
pub(crate) struct ProblemList(Vec<(Vec<PathStep>, Problem)>);

/// One step on the path from the document to a place.
#[derive(Debug)]
enum PathStep {
    Field(String),
    Item(usize),
}

impl<'a> At<'a> {
    /// The document itself.
    pub(crate) const fn root(noted: &'a RefCell<ProblemList>) -> Self {
        Self { parent: None, step: Step::Root, noted }
    }

    /// The field `name` of this object.
    pub(crate) const fn field(&'a self, name: &'static str) -> At<'a> {
        At { parent: Some(self), step: Step::Field(name), noted: self.noted }
    }

    /// The field of this object with a name that the document chose.
    pub(crate) const fn user_field(&'a self, name: &'a str) -> At<'a> {
        At { parent: Some(self), step: Step::UserField(name), noted: self.noted }
    }

    /// The item `index` of this list.
    pub(crate) const fn item(&'a self, index: usize) -> At<'a> {
        At { parent: Some(self), step: Step::Item(index), noted: self.noted }
    }

    /// The number of problems noted anywhere so far.
    pub(crate) fn problem_count(&self) -> usize {
        self.noted.borrow().0.len()
    }

    pub(crate) const fn is_root(&self) -> bool {
        matches!(self.step, Step::Root)
    }

    /// Notes a problem here.
    pub(crate) fn problem(&self, message: String) {
        let mut noted = self.noted.borrow_mut();
        if noted.0.len() < MAX_PROBLEMS {
            let (text, mut place) = (self.to_string(), String::new());
            // Writing to a string cannot fail.
            let _ = self.write(&mut place, false);
            noted.0.push((self.path(), Problem { path: text, place, message }));
        } else if noted.0.len() == MAX_PROBLEMS {
            let message = "there are more mistakes than are listed".to_string();
            noted.0.push((Vec::new(), Problem::new("", message)));
        }
    }

    /// True when no further problem will be listed, so that composing a message is useless.
    pub(crate) fn is_full(&self) -> bool {
        self.problem_count() > MAX_PROBLEMS
    }

    /// Notes that `node` is not a valid value of this place; `wanted` describes the valid ones.
    pub(crate) fn wrong<T>(&self, node: &Node, wanted: &str) -> Option<T> {
        if !self.is_full() {
            self.problem(alloc::format!("{} is not {wanted}", quoted(node)));
        }
        None
    }

    /// The same where a text is expected: a boolean was perhaps meant as one.
    pub(crate) fn not_text<T>(&self, node: &Node, wanted: &str) -> Option<T> {
        let hint = if matches!(node, Node::Bool(_)) { BOOLEAN_HINT } else { "" };
        self.wrong(node, &alloc::format!("{wanted}{hint}"))
    }

    fn path(&self) -> Vec<PathStep> {
        let mut path = self.parent.map_or_else(Vec::new, Self::path);
        match self.step {
            Step::Root => {}
            Step::Field(name) | Step::UserField(name) => {
                path.push(PathStep::Field(name.to_string()))
            }
            Step::Item(index) => path.push(PathStep::Item(index)),
        }
        path
    }

    /// Writes the path; without `shows_user_names`, names that the document chose become `*`.
    fn write(&self, out: &mut dyn fmt::Write, shows_user_names: bool) -> fmt::Result {
        if let Some(parent) = self.parent {
            parent.write(out, shows_user_names)?;
            let is_named = matches!(self.step, Step::Field(_) | Step::UserField(_));
            if is_named && !matches!(parent.step, Step::Root) {
                out.write_str(".")?;
            }
        }
        match self.step {
            Step::Root => Ok(()),
            Step::UserField(_) if !shows_user_names => out.write_str("*"),
            // It may be of any length and contain any character.
            Step::UserField(name) if name.len() > MAX_QUOTED || !is_token(name.as_bytes()) => {
                out.write_str(&quoted_text(name))
            }
            Step::Field(name) | Step::UserField(name) => out.write_str(name),
            Step::Item(index) => write!(out, "[{index}]"),
        }
    }
}

impl fmt::Display for At<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, true)
    }
}

/// The value that `read` finds in `document`, or every problem that it notes there.
pub(crate) fn read_document<T>(
    document: &Node,
    read: impl FnOnce(&At<'_>) -> Option<T>,
) -> Result<T, Problems> {
    let noted = RefCell::default();
    let value = read(&At::root(&noted));
    let problems = noted.take().in_order(document);
    value.filter(|_| problems.0.is_empty()).ok_or(problems)
}

impl ProblemList {
    /// The problems in the order of `document`; the note about unlisted problems comes last.
    pub(crate) fn in_order(mut self, document: &Node) -> Problems {
        let more = self.0.split_off(self.0.len().min(MAX_PROBLEMS));
        let mut order = Order::default();
        let mut placed: Vec<(Vec<usize>, Problem)> = self
            .0
            .into_iter()
            .map(|(path, problem)| (order.of(&path, document), problem))
            .collect();
        sort_by(&mut placed, |(one, _), (other, _)| one.cmp(other));
        let last = more.into_iter().map(|(_, problem)| problem);
        Problems(placed.into_iter().map(|(_, problem)| problem).chain(last).collect())
    }
}

/// The positions of fields in the objects that were visited: an object of many fields is read once.
#[derive(Default)]
struct Order<'d>(SlabMap<*const Node, SlabMap<&'d str, usize>>);

impl<'d> Order<'d> {
    /// The index of each step among its siblings; a missing one comes after all that are present.
    fn of(&mut self, path: &[PathStep], document: &'d Node) -> Vec<usize> {
        let mut node = Some(document);
        let mut places = Vec::with_capacity(path.len());
        for step in path {
            let (place, next) = match (step, node) {
                (PathStep::Item(i), Some(Node::List(items))) => (*i, items.get(*i)),
                (PathStep::Item(i), _) => (*i, None),
                (PathStep::Field(name), Some(object @ Node::Object(fields))) => {
                    let object = core::ptr::from_ref(object);
                    if self.0.get(&object).is_none() {
                        self.0.insert(object, first_of(fields));
                    }
                    let found = self.0.get(&object).and_then(|places| places.get(&name.as_str()));
                    let place = found.copied().unwrap_or(usize::MAX);
                    (place, fields.get(place).map(|(_, value)| value))
                }
                (PathStep::Field(_), _) => (usize::MAX, None),
            };
            places.push(place);
            node = next;
        }
        places
    }
}

/// The first index of each name.
fn first_of(fields: &[(String, Node)]) -> SlabMap<&str, usize> {
    let mut first = SlabMap::new();
    for (i, (name, _)) in fields.iter().enumerate() {
        first.insert_new(name.as_str(), i);
    }
    first
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(document: &str, note: fn(&At<'_>)) -> Vec<String> {
        let node = Node::parse(document).unwrap();
        let noted = RefCell::new(ProblemList::default());
        note(&At::root(&noted));
        noted.into_inner().in_order(&node).0.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn problems_come_in_the_order_of_the_document() {
        let document = r#"{"b": [1, {"y": 1, "x": 2}], "a": 3}"#;
        let all = messages(document, |root| {
            root.field("none").problem("missing".into());
            root.field("a").problem("later".into());
            root.field("b").item(1).field("x").problem("second".into());
            root.field("b").item(1).field("y").problem("first".into());
            root.field("b").item(1).problem("of both".into());
            root.field("b").item(9).problem("of none".into());
            root.field("a").problem("last of a".into());
            root.problem("of all".into());
        });
        let expected = [
            "of all",
            "b[1]: of both",
            "b[1].y: first",
            "b[1].x: second",
            "b[9]: of none",
            "a: later",
            "a: last of a",
            "none: missing",
        ];
        assert_eq!(all, expected);
    }

    #[test]
    fn the_note_about_unlisted_problems_comes_last() {
        let all =
            messages("{}", |root| (0..2000).for_each(|i| root.item(2000 - i).problem("x".into())));
        assert_eq!(all.len(), MAX_PROBLEMS + 1);
        assert_eq!((all[0].as_str(), all[999].as_str()), ("[1001]: x", "[2000]: x"));
        assert_eq!(all[1000], "there are more mistakes than are listed");
    }
}
