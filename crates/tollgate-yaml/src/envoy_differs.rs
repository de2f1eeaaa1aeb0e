//! Detects scalars that Envoy's reader silently turns into another text.
//!
//! Invariant: they are errors, with the text to write instead. Deliberately absent: scalars that
//! Envoy's reader itself rejects; Envoy reports those when it starts.

use std::str::Chars;

use saphyr_parser::{Event, ScalarStyle, Span};

use crate::node::Fault;

/// The parsed text, read in step with the parser's marks.
pub(crate) struct Source<'t> {
    rest: Chars<'t>,
    /// The number of characters before `rest`.
    at: usize,
}

impl<'t> Source<'t> {
    pub(crate) fn new(text: &'t str) -> Self {
        Self { rest: text.chars(), at: 0 }
    }

    /// A fault if Envoy takes the scalar at `span` for another text.
    pub(crate) fn same_for_envoy(&mut self, event: &Event<'_>, span: Span) -> Result<(), Fault> {
        let Event::Scalar(text, style, ..) = event else { return Ok(()) };
        let message = match style {
            ScalarStyle::DoubleQuoted if self.has_blank_escape(span) => {
                "Envoy reads \\_ and \\N as a blank: use \\u00a0 and \\u0085"
            }
            ScalarStyle::Folded if text.ends_with("\n\n") => {
                "Envoy keeps one line less at the end of a block that begins with >+: use > or |+"
            }
            _ => return Ok(()),
        };
        let (line, column) = (span.start.line(), span.start.col().saturating_add(1));
        Err(Fault { line, column, message: message.to_owned() })
    }

    fn has_blank_escape(&mut self, span: Span) -> bool {
        // Marks only grow, so the text is traversed once.
        if let Some(before) = span.start.index().checked_sub(self.at).filter(|count| *count > 0) {
            self.rest.nth(before.saturating_sub(1));
            self.at = span.start.index();
        }
        let mut written = self.rest.clone().take(span.len());
        while let Some(c) = written.next() {
            if c == '\\' && matches!(written.next(), Some('_' | 'N')) {
                return true;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use crate::Node;

    fn fault(text: &str) -> Option<(usize, String)> {
        Node::parse(text).err().map(|fault| (fault.line, fault.message))
    }

    #[test]
    fn what_envoy_reads_in_another_way_is_refused() {
        for text in ["\u{e4}: [\"b\"]\nc: \"\u{e4}\\_d\"\n", "a: [b, 'c']\n? [\"\\N\"]\n: 1\n"] {
            let (line, message) = fault(text).unwrap();
            assert_eq!((line, message.contains("as a blank")), (2, true), "{text}");
        }
        let (line, message) = fault("a: >+\n  b\n\nc: d\n").unwrap();
        // The parser's mark of a block is its first line.
        assert_eq!((line, message.contains(">+")), (2, true));
    }

    #[test]
    fn what_only_looks_like_it_is_read() {
        let texts = [
            "a: \"\\\\_\\\\N\"\n",
            "a: '\\_\\N'\n",
            "a: \\_\\N # \"\\_\n",
            "a: \"\\u00a0\\u0085\\L\"\nb: '\\_'\n",
            "a: >+\n  b\nc: >\n  d\n\n\ne: |+\n  f\n\n",
        ];
        for text in texts {
            assert_eq!(fault(text), None, "{text}");
        }
    }
}
