//! Finds the position of the cursor in a policy, whether the text is complete or not.
//!
//! Invariant: a place between the brackets of an object or a list is found by the brackets, so
//! half-written text in one place does not affect another. This file does not know which text is
//! allowed there.

use core::ops::Range;

use crate::outline::{Field, Node, Value, unquoted};
use crate::tokens::{Kind, Token};

/// One step from a value to one within it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Field(String),
    Item,
}

/// The place where text can be written at the cursor.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Context {
    /// The path from the document to the object whose field is written, or to the value that is
    /// written.
    pub(crate) path: Vec<Step>,
    pub(crate) wanted: ExpectedSyntax,
    /// The range to replace, in bytes: the token at the cursor, or nothing.
    pub(crate) replaced: Range<usize>,
    /// The part of that token before the cursor, without quotes.
    pub(crate) written: String,
    /// True when another field or item follows without a comma.
    pub(crate) needs_comma: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ExpectedSyntax {
    /// A field's name; `taken` are the names already used.
    Name { taken: Vec<String>, has_value: bool },
    /// A value; for a value in an object, the names of its other fields.
    Value { siblings: Vec<String> },
}

/// The place at `offset`, in bytes; `None` where nothing can be written, as after a value.
pub(crate) fn context(
    text: &str,
    tokens: &[Token],
    root: Option<&Node>,
    offset: usize,
) -> Option<Context> {
    let here = tokens.iter().position(|token| is_at(*token, offset));
    let token = here.and_then(|i| tokens.get(i)).copied();
    let begins = token.map_or(offset, |token| token.from);
    let before = tokens.iter().take_while(|token| token.to <= begins).count();
    let previous = before.checked_sub(1).and_then(|i| tokens.get(i));
    let next = tokens.get(here.map_or(before, |i| i.saturating_add(1))).map(|token| token.kind);
    let mut path = Vec::new();
    let holder = root.and_then(|root| deepest(root, begins, &mut path));
    let previous = previous.map(|token| token.kind);
    let wanted = match (holder.map(|holder| &holder.value), previous) {
        (Some(Value::Object { fields, .. }), Some(Kind::OpenObject | Kind::Comma)) => {
            let taken = names(fields, begins);
            ExpectedSyntax::Name { taken, has_value: next == Some(Kind::Colon) }
        }
        (Some(Value::Object { fields, .. }), Some(Kind::Colon)) => {
            let name = before.checked_sub(2).and_then(|i| tokens.get(i))?;
            path.push(Step::Field(unquoted(text, *name)));
            ExpectedSyntax::Value { siblings: names(fields, name.from) }
        }
        (Some(Value::List { .. }), Some(Kind::OpenList | Kind::Comma)) => {
            path.push(Step::Item);
            ExpectedSyntax::Value { siblings: Vec::new() }
        }
        (None, None) => ExpectedSyntax::Value { siblings: Vec::new() },
        _ => return None,
    };
    let replaced = token.map_or(offset..offset, |token| token.from..end(text, token, offset));
    let written = text.get(replaced.start..offset).unwrap_or_default();
    let follows = [Kind::Comma, Kind::Colon, Kind::CloseObject, Kind::CloseList];
    Some(Context {
        path,
        wanted,
        written: written.trim_start_matches('"').to_owned(),
        replaced,
        needs_comma: next.is_some_and(|next| !follows.contains(&next)) && root.is_some(),
    })
}

/// Where the token at the cursor ends. A string whose rest looks like the lines of a policy was not
/// closed, and ends at the cursor.
fn end(text: &str, token: Token, offset: usize) -> usize {
    let rest = text.get(offset..token.to).unwrap_or_default();
    if rest.contains(['{', '}', '[', ']', ':', ',']) { offset } else { token.to }
}

/// True when `offset` is within a string or a word, or at its end while it is being written.
const fn is_at(token: Token, offset: usize) -> bool {
    match token.kind {
        Kind::Text { is_closed: true } => token.from < offset && offset < token.to,
        Kind::Text { is_closed: false } | Kind::Word => token.from < offset && offset <= token.to,
        _ => false,
    }
}

/// The innermost object or list that contains `offset`, and the path to it.
fn deepest<'n>(node: &'n Node, offset: usize, path: &mut Vec<Step>) -> Option<&'n Node> {
    let mut here = node.holds(offset).then_some(node)?;
    loop {
        let step = match &here.value {
            Value::Scalar => None,
            Value::Object { fields, .. } => fields.iter().find_map(|field| {
                let value = field.value.as_ref().filter(|value| value.holds(offset))?;
                Some((Step::Field(field.name.clone()), value))
            }),
            Value::List { items, .. } => {
                items.iter().find(|item| item.holds(offset)).map(|item| (Step::Item, item))
            }
        };
        let Some((step, next)) = step else { return Some(here) };
        path.push(step);
        here = next;
    }
}

/// The names of all fields except the one that begins at `begins`.
fn names(fields: &[Field], begins: usize) -> Vec<String> {
    let others = fields.iter().filter(|field| field.range.start != begins);
    others.map(|field| field.name.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{outline::outline, tokens::tokens};

    /// The context at `|`.
    fn at(marked: &str) -> Option<Context> {
        let offset = marked.find('|').unwrap();
        let text = marked.replace('|', "");
        let tokens = tokens(&text);
        context(&text, &tokens, outline(&text, &tokens).as_ref(), offset)
    }

    fn path(context: &Context) -> String {
        let step = |step: &Step| match step {
            Step::Field(name) => format!(".{name}"),
            Step::Item => "[]".to_owned(),
        };
        context.path.iter().map(step).collect()
    }

    #[test]
    fn names_are_wanted_where_fields_begin() {
        for (marked, way, written) in [
            ("{|", "", ""),
            ("{\"|", "", ""),
            ("{\"ve|\"", "", "ve"),
            ("{\"version\": 1, ru|", "", "ru"),
            ("{\"rules\": [{\"na|", ".rules[]", "na"),
            ("{\"rules\": [{\"name\": \"a\"}, {|}]}", ".rules[]", ""),
            ("{\"rules\": [{\"when\": {\"pa|}, \"key\": []}]}", ".rules[].when", "pa"),
        ] {
            let context = at(marked).unwrap();
            assert!(matches!(context.wanted, ExpectedSyntax::Name { .. }), "{marked}");
            assert_eq!((path(&context).as_str(), context.written.as_str()), (way, written));
        }
    }

    #[test]
    fn values_are_wanted_behind_colons_and_in_lists() {
        for (marked, way, written) in [
            ("|", "", ""),
            ("{\"version\": |", ".version", ""),
            ("{\"rules\": [|]}", ".rules[]", ""),
            (
                "{\"rules\": [{\"quotas\": [{\"algorithm\": \"gc|",
                ".rules[].quotas[].algorithm",
                "gc",
            ),
            ("{\"rules\": [{\"key\": [\"client_ip\", |]}]}", ".rules[].key[]", ""),
            ("{\"rules\": [{\"mode\": |, \"name\": \"a\"}]}", ".rules[].mode", ""),
        ] {
            let context = at(marked).unwrap();
            assert!(matches!(context.wanted, ExpectedSyntax::Value { .. }), "{marked}");
            assert_eq!((path(&context).as_str(), context.written.as_str()), (way, written));
        }
    }

    #[test]
    fn nothing_is_wanted_behind_a_value_and_outside() {
        for marked in ["{\"a\": 1 |", "{} |", "[1 |]", "{\"a\" |", "{\"version\": 1}|"] {
            assert_eq!(at(marked), None, "{marked}");
        }
    }

    #[test]
    fn what_stands_around_is_known() {
        let context = at("{\"a\": 1, \"|b\": 2, \"c\": 3}").unwrap();
        let taken = vec!["a".to_owned(), "c".to_owned()];
        assert_eq!(context.wanted, ExpectedSyntax::Name { taken, has_value: true });
        assert!(!context.needs_comma);
        assert!(at("{\"a\": 1, | \"b\": 2}").unwrap().needs_comma);
        assert!(!at("{\"a\": 1, |}").unwrap().needs_comma);
        // The rest of the line is not part of a name that was not closed.
        assert_eq!(at("{\"a\": {\"x|}, \"b\": 2}").unwrap().replaced, 7..9);
        let context = at("{\"header\": \"x\", \"max\": |}").unwrap();
        assert_eq!(context.wanted, ExpectedSyntax::Value { siblings: vec!["header".to_owned()] });
    }
}
