//! YAML as a tree that keeps line numbers and has the meaning that Envoy's own reader (yaml-cpp)
//! gives it; and policies in YAML or JSON.
//!
//! Invariant: for any text, reading takes bounded memory and loses nothing: a duplicate name is in
//! the tree twice. Deliberately absent: merge keys (`<<`), which Envoy does not have, and a second
//! document, which Envoy would silently ignore.
//!
//! Modules are listed in import order: each imports only modules declared below it.
#![forbid(unsafe_code)]

mod document;
mod list_files;
mod builder;
mod envoy_differs;
mod node;
mod scalar;

use saphyr_parser::{Event, Parser, Span};

use builder::Builder;
pub use document::{Document, Language, Tree, json};
use envoy_differs::Source;
pub use list_files::{ListFile, read_beside};
pub use node::{AsJson, Fault, Field, Kind, Node};
pub use scalar::{Form, Reading, Scalar, Value};

impl Node {
    /// Reads `text` and fails where Envoy would read something else.
    pub fn parse(text: &str) -> Result<Self, Fault> {
        let mut source = Source::new(text);
        Self::parse_if(text, |event, span| source.same_for_envoy(event, span))
    }

    /// Reads `text` that is not meant for Envoy.
    pub fn parse_of_others(text: &str) -> Result<Self, Fault> {
        Self::parse_if(text, |_, _| Ok(()))
    }

    /// Reads `text` while `check` reports no fault.
    fn parse_if(
        text: &str,
        mut check: impl FnMut(&Event<'_>, Span) -> Result<(), Fault>,
    ) -> Result<Self, Fault> {
        let mut parser = Parser::new_from_str(text);
        let mut builder = Builder::default();
        while let Some(next) = parser.next_event() {
            let (event, span) = next.map_err(|error| Fault {
                line: error.marker().line(),
                column: error.marker().col().saturating_add(1),
                message: format!("not YAML: {}", error.info()),
            })?;
            check(&event, span)?;
            builder.take(event, span.start)?;
        }
        builder.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = include_str!("../../tollgate-cli/tests/policies/envoy.yaml");

    /// Fragments to insert between the characters of a text, so that each cut and each insertion is
    /// tested.
    const PIECES: [&str; 18] = [
        "&a ", "*a", "!!str ", "- ", ": ", "? ", "[", "]", "{", "}", "|\n", ">", "\"", "'", "\t",
        "\n", "---\n", "\u{85}",
    ];

    #[test]
    fn no_cut_and_no_insertion_traps() {
        let (mut read, mut refused) = (0, 0);
        let mut count = |text: &str| match Node::parse(text) {
            Ok(_) => read += 1,
            Err(_) => refused += 1,
        };
        for at in (0..TEXT.len()).filter(|at| TEXT.is_char_boundary(*at)) {
            count(&TEXT[..at]);
        }
        for (number, at) in (0..TEXT.len()).step_by(7).enumerate() {
            let piece = PIECES[number % PIECES.len()];
            count(&format!("{}{piece}{}", &TEXT[..at], &TEXT[at..]));
        }
        assert!(read > 300 && refused > 100, "{read} read, {refused} refused");
    }

    #[test]
    fn every_value_knows_its_line() {
        let root = Node::parse("a: 1\nb:\n- c\n- d:\n    e\n# f\ng: [h,\n i]\n").unwrap();
        let of = |name: &str| root.fields().iter().find(|field| field.name == name).unwrap();
        assert_eq!((of("a").line, of("b").line, of("g").line), (1, 2, 7));
        assert_eq!((of("b").value.items()[1].line, of("g").value.items()[1].line), (4, 8));
        let json = serde_json::to_string(&AsJson(&root, Reading::Policy)).unwrap();
        assert_eq!(json, r#"{"a":1,"b":["c",{"d":"e"}],"g":["h","i"]}"#);
    }
}
