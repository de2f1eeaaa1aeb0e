//! The tree from the events of the parser.
//!
//! Invariant: nothing here recurses, and the target of an alias is weighed before it is copied, so
//! neither depth nor a few lines of aliases to aliases take more than a bounded amount of memory.

use std::collections::BTreeMap;

use saphyr_parser::{Event, Marker, ScalarStyle, Tag};

use crate::node::{Fault, Field, Kind, Node};
use crate::scalar::{Form, Scalar};

/// How deep lists and objects may nest: a policy's own 128, and the listener around it.
const MAX_DEPTH: usize = 160;
/// The maximum weight of a tree: its nodes and the bytes of their text. The target of an alias
/// counts each time the alias is used.
const MAX_WEIGHT: usize = 32 << 20;
const NODE_WEIGHT: usize = 16;

/// The part of the tree that was read so far.
#[derive(Default)]
pub(crate) struct Builder {
    open: Vec<Open>,
    /// The targets of aliases, each with its weight.
    anchors: BTreeMap<usize, (Node, usize)>,
    weight: usize,
    root: Option<Node>,
}

/// A list or an object that has not ended.
struct Open {
    line: usize,
    column: usize,
    anchor: usize,
    /// The weight of the tree when it began.
    weight: usize,
    content: Content,
}

enum Content {
    List(Vec<Node>),
    /// The fields, and the name whose value comes next.
    Object(Vec<Field>, Option<Name>),
}

struct Name {
    text: String,
    line: usize,
    column: usize,
    /// Envoy leaves such a field out.
    is_ignored: bool,
}

impl Builder {
    /// Takes the next event, which begins at `mark`.
    pub(crate) fn take(&mut self, event: Event<'_>, mark: Marker) -> Result<(), Fault> {
        let (line, column) = (mark.line(), mark.col().saturating_add(1));
        let fault = |message: &str| Err(Fault { line, column, message: message.to_owned() });
        match event {
            Event::DocumentStart(_) if self.root.is_some() => {
                fault("a second document begins here, which is not read; give one document")
            }
            Event::Scalar(text, style, anchor, tag) => {
                self.weigh(NODE_WEIGHT.saturating_add(text.len()), line)?;
                let is_ignored = tag.as_deref().is_some_and(|tag| is_tag(tag, "!ignore"));
                let form = form(style, tag.as_deref());
                let scalar = Scalar { text: text.into_owned(), form };
                let weight = NODE_WEIGHT.saturating_add(scalar.text.len());
                let node = Node { line, column, kind: Kind::Scalar(scalar) };
                self.anchor(anchor, &node, weight)?;
                self.put(node, is_ignored)
            }
            Event::SequenceStart(anchor, _) => {
                self.start((line, column), anchor, Content::List(Vec::new()))
            }
            Event::MappingStart(anchor, _) => {
                self.start((line, column), anchor, Content::Object(Vec::new(), None))
            }
            Event::SequenceEnd | Event::MappingEnd => self.end(),
            Event::Alias(anchor) => match self.anchors.get(&anchor).cloned() {
                Some((node, weight)) => {
                    self.weigh(weight, line)?;
                    self.put(node, false)
                }
                None => fault("an alias refers to a node that contains it"),
            },
            _ => Ok(()),
        }
    }

    /// The whole tree.
    pub(crate) fn finish(self) -> Result<Node, Fault> {
        self.root.ok_or(Fault { line: 1, column: 1, message: "is empty".to_owned() })
    }

    fn weigh(&mut self, weight: usize, line: usize) -> Result<(), Fault> {
        self.weight = self.weight.saturating_add(weight);
        if self.weight <= MAX_WEIGHT {
            return Ok(());
        }
        Err(Fault {
            line,
            column: 1,
            message: "has too many values, with those of its aliases".to_owned(),
        })
    }

    fn start(
        &mut self,
        (line, column): (usize, usize),
        anchor: usize,
        content: Content,
    ) -> Result<(), Fault> {
        if self.open.len() >= MAX_DEPTH {
            let message = format!("is nested more than {MAX_DEPTH} levels deep");
            return Err(Fault { line, column, message });
        }
        self.open.push(Open { line, column, anchor, weight: self.weight, content });
        self.weigh(NODE_WEIGHT, line)
    }

    fn end(&mut self) -> Result<(), Fault> {
        let Some(Open { line, column, anchor, weight, content }) = self.open.pop() else {
            return Ok(());
        };
        let kind = match content {
            Content::List(items) => Kind::List(items),
            Content::Object(fields, _) => Kind::Object(fields),
        };
        let node = Node { line, column, kind };
        self.anchor(anchor, &node, self.weight.saturating_sub(weight))?;
        self.put(node, false)
    }

    /// Stores a copy of a node that has an anchor (`0` is none). The copy weighs as much as the
    /// node.
    fn anchor(&mut self, anchor: usize, node: &Node, weight: usize) -> Result<(), Fault> {
        if anchor != 0 {
            self.weigh(weight, node.line)?;
            self.anchors.insert(anchor, (node.clone(), weight));
        }
        Ok(())
    }

    /// Puts a whole value where it belongs.
    fn put(&mut self, node: Node, is_ignored: bool) -> Result<(), Fault> {
        let (line, column) = (node.line, node.column);
        match self.open.last_mut().map(|open| &mut open.content) {
            None => self.root = Some(node),
            Some(Content::List(items)) => items.push(node),
            Some(Content::Object(fields, name)) => match (name.take(), node.kind) {
                (None, Kind::Scalar(scalar)) => {
                    *name = Some(Name { text: scalar.into_name(), line, column, is_ignored });
                }
                (None, _) => {
                    let message = "a list or an object cannot be a name".to_owned();
                    return Err(Fault { line, column, message });
                }
                (Some(name), _) if name.is_ignored => {}
                (Some(name), kind) => {
                    let value = Node { line, column, kind };
                    let Name { text, line, column, .. } = name;
                    fields.push(Field { name: text, line, column, value });
                }
            },
        }
        Ok(())
    }
}

/// The form of a scalar with this style and tag.
fn form(style: ScalarStyle, tag: Option<&Tag>) -> Form {
    match (tag, style) {
        (Some(tag), _) if !is_tag(tag, "!") => Form::Tagged,
        (None, ScalarStyle::Plain) => Form::Plain,
        (_, ScalarStyle::Literal) => Form::Literal,
        _ => Form::Quoted,
    }
}

fn is_tag(tag: &Tag, written: &str) -> bool {
    written.strip_prefix(&tag.handle).is_some_and(|suffix| suffix == tag.suffix)
}
