//! The outline of a JSON text: the positions of its objects, lists and fields, complete or not.
//!
//! Invariant: any text has an outline, in time that grows with its length and on a bounded stack.
//! If the text is JSON, the outline is that of its value, except for parts deeper than
//! [`MAX_DEPTH`]. This file does not decide whether a text is JSON, or a policy.

use core::ops::Range;

use crate::tokens::{Kind, Token};

/// The same depth as the policy's own parser.
const MAX_DEPTH: usize = 128;

/// A value and its position, in bytes.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) range: Range<usize>,
    pub(crate) value: Value,
}

#[derive(Debug)]
pub(crate) enum Value {
    Scalar,
    Object { fields: Vec<Field>, is_closed: bool },
    List { items: Vec<Node>, is_closed: bool },
}

/// A field of an object.
#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) name: String,
    /// The position of the name, with its quotes.
    pub(crate) range: Range<usize>,
    pub(crate) value: Option<Node>,
}

impl Node {
    /// True when `offset` is between the brackets of an object or a list.
    pub(crate) const fn holds(&self, offset: usize) -> bool {
        let is_closed = match self.value {
            Value::Scalar => return false,
            Value::Object { is_closed, .. } | Value::List { is_closed, .. } => is_closed,
        };
        let before_end = if is_closed { offset < self.range.end } else { offset <= self.range.end };
        self.range.start < offset && before_end
    }
}

/// The outline of the first value of the text with these `tokens`.
pub(crate) fn outline(text: &str, tokens: &[Token]) -> Option<Node> {
    let mut parser = Parser { text, tokens, at: 0, objects: 0, lists: 0 };
    while parser.peek().is_some() {
        match parser.value() {
            Some(node) => return Some(node),
            None => parser.next(),
        };
    }
    None
}

struct Parser<'t> {
    text: &'t str,
    tokens: &'t [Token],
    /// The index of the next token.
    at: usize,
    /// How many of each are open.
    objects: usize,
    lists: usize,
}

impl Parser<'_> {
    fn peek(&self) -> Option<Token> {
        self.tokens.get(self.at).copied()
    }

    fn peek_second(&self) -> Option<Token> {
        self.tokens.get(self.at.saturating_add(1)).copied()
    }

    fn next(&mut self) -> Option<Token> {
        let token = self.peek();
        self.at = self.at.saturating_add(1);
        token
    }

    /// The value that begins here; `None`, and no token is consumed, when no value begins here.
    fn value(&mut self) -> Option<Node> {
        let token = self.peek()?;
        let is_deep = self.objects.saturating_add(self.lists) >= MAX_DEPTH;
        match token.kind {
            Kind::Text { .. } | Kind::Word => {
                self.next();
                Some(Node { range: token.from..token.to, value: Value::Scalar })
            }
            Kind::OpenObject if !is_deep => Some(self.object(token)),
            Kind::OpenList if !is_deep => Some(self.list(token)),
            _ => None,
        }
    }

    fn object(&mut self, open: Token) -> Node {
        self.next();
        self.objects = self.objects.saturating_add(1);
        let mut fields = Vec::new();
        let (end, is_closed) = loop {
            let Some(token) = self.peek() else { break (self.text.len(), false) };
            match token.kind {
                Kind::CloseObject => {
                    self.next();
                    break (token.to, true);
                }
                // It closes a list around this object, which was left open.
                Kind::CloseList if self.lists > 0 => break (token.from, false),
                Kind::Text { .. } | Kind::Word => fields.push(self.field(token)),
                Kind::OpenObject | Kind::OpenList => {
                    let range = token.from..token.from;
                    let value = self.value();
                    if value.is_none() {
                        self.next();
                    }
                    fields.push(Field { name: String::new(), range, value });
                }
                Kind::CloseList | Kind::Colon | Kind::Comma => {
                    self.next();
                }
            }
        };
        self.objects = self.objects.saturating_sub(1);
        Node { range: open.from..end, value: Value::Object { fields, is_closed } }
    }

    fn field(&mut self, name: Token) -> Field {
        self.next();
        let mut value = None;
        if self.peek().is_some_and(|token| token.kind == Kind::Colon) {
            self.next();
            if !self.is_name() {
                value = self.value();
            }
        }
        Field { name: unquoted(self.text, name), range: name.from..name.to, value }
    }

    /// True when a field begins here, possibly where a value should.
    fn is_name(&self) -> bool {
        let is_text = |token: Token| matches!(token.kind, Kind::Text { .. } | Kind::Word);
        self.peek().is_some_and(is_text)
            && self.peek_second().is_some_and(|token| token.kind == Kind::Colon)
    }

    fn list(&mut self, open: Token) -> Node {
        self.next();
        self.lists = self.lists.saturating_add(1);
        let mut items = Vec::new();
        let (end, is_closed) = loop {
            let Some(token) = self.peek() else { break (self.text.len(), false) };
            match token.kind {
                Kind::CloseList => {
                    self.next();
                    break (token.to, true);
                }
                Kind::CloseObject if self.objects > 0 => break (token.from, false),
                _ => match self.value() {
                    Some(item) => items.push(item),
                    None => {
                        self.next();
                    }
                },
            }
        };
        self.lists = self.lists.saturating_sub(1);
        Node { range: open.from..end, value: Value::List { items, is_closed } }
    }
}

/// The text of a string or a word; of a string that is not closed, the existing part.
pub(crate) fn unquoted(text: &str, token: Token) -> String {
    let written = text.get(token.from..token.to).unwrap_or_default();
    match token.kind {
        Kind::Text { .. } => {
            serde_json::from_str(written).unwrap_or_else(|_| written.trim_matches('"').to_owned())
        }
        _ => written.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokens::tokens;

    /// The outline as text: names with `=`, scalars as written, `?` for a missing part.
    fn drawn(text: &str) -> String {
        fn draw(text: &str, node: &Node) -> String {
            let open = |is_closed: bool| if is_closed { "" } else { "~" };
            match &node.value {
                Value::Scalar => text[node.range.clone()].to_owned(),
                Value::Object { fields, is_closed } => {
                    let field = |field: &Field| {
                        let value = field.value.as_ref();
                        let value = value.map_or("?".to_owned(), |value| draw(text, value));
                        format!("{}={value}", field.name)
                    };
                    let fields: Vec<_> = fields.iter().map(field).collect();
                    format!("{{{}}}{}", fields.join(" "), open(*is_closed))
                }
                Value::List { items, is_closed } => {
                    let items: Vec<_> = items.iter().map(|item| draw(text, item)).collect();
                    format!("[{}]{}", items.join(" "), open(*is_closed))
                }
            }
        }
        outline(text, &tokens(text)).map_or("nothing".to_owned(), |node| draw(text, &node))
    }

    #[test]
    fn what_is_whole_is_drawn_whole() {
        let text = r#"{"a": [1, {"b\u0041": "x"}], "c": {}}"#;
        assert_eq!(drawn(text), r#"{a=[1 {bA="x"}] c={}}"#);
    }

    #[test]
    fn what_is_half_written_keeps_its_neighbours() {
        for (text, outline) in [
            ("", "nothing"),
            (" } ] ,", "nothing"),
            (r#"{"a": , "b": 1}"#, "{a=? b=1}"),
            (r#"{"a":  "b": 1}"#, "{a=? b=1}"),
            (r#"{"a" "b": 1"#, "{a=? b=1}~"),
            (r#"[{"a": [1, 2}, {"b": 1}]"#, "[{a=[1 2]~} {b=1}]"),
            (r#"[{"a": 1 , {"b": 1}]"#, "[{a=1 ={b=1}}~]"),
            (r#"{"a": 1]}"#, "{a=1}"),
            (r#"{a: tru"#, "{a=tru}~"),
            ("{\"na\n\"x\": 1}", "{na=? x=1}"),
        ] {
            assert_eq!(drawn(text), outline, "{text}");
        }
    }

    /// Guards: a permalink of brackets alone would end the stack.
    #[test]
    fn no_depth_ends_the_stack() {
        for piece in ["[", "{\"a\":", "{", "[{", "]", "}"] {
            let text = piece.repeat(200_000);
            drawn(&text);
        }
    }
}
