//! Finds the place in a policy's text for a path of the compiler.
//!
//! Invariant: every path has a place: when a part of it is missing, the place of the parent that
//! should contain it.

use core::ops::Range;

use crate::outline::{Field, Node, Value};

/// The text to underline for a problem at `path`: for a scalar its name and value; for an object or
/// a list the name, or else the opening bracket.
pub(crate) fn locate(root: &Node, path: &str) -> Range<usize> {
    let (mut here, mut name, mut rest) = (root, None, path);
    while !rest.is_empty() {
        let (child, field, left) = match (&here.value, index(rest)) {
            (Value::List { items, .. }, Some((index, left))) => (items.get(index), None, left),
            (Value::Object { fields, .. }, None) => match field(fields, rest) {
                Some((field, left)) => (field.value.as_ref(), Some(field), left),
                None => break,
            },
            _ => break,
        };
        if field.is_some() || child.is_some() {
            name = field.map(|field| field.range.clone());
        }
        let Some(child) = child else { break };
        (here, rest) = (child, left);
    }
    underlined(here, name)
}

fn underlined(node: &Node, name: Option<Range<usize>>) -> Range<usize> {
    match (&node.value, name) {
        (Value::Scalar, Some(name)) => name.start..node.range.end.max(name.end),
        (Value::Scalar, None) => node.range.clone(),
        (_, Some(name)) => name,
        (_, None) => node.range.start..node.range.start.saturating_add(1),
    }
}

/// `[3]` at the beginning of a path, and the rest.
fn index(path: &str) -> Option<(usize, &str)> {
    let (index, rest) = path.strip_prefix('[')?.split_once(']')?;
    Some((index.parse().ok()?, rest))
}

/// The field at the beginning of a path, and the rest. A name may contain a full stop: the longest
/// name that fits is used, and the last of those given twice.
fn field<'n, 'p>(fields: &'n [Field], path: &'p str) -> Option<(&'n Field, &'p str)> {
    let path = path.strip_prefix('.').unwrap_or(path);
    let ends = |rest: &&str| rest.is_empty() || rest.starts_with(['.', '[']);
    let steps = fields.iter().rev().filter_map(|field| {
        let plain = path.strip_prefix(&field.name).filter(ends);
        let quoted = || {
            let rest = path.strip_prefix('"')?.strip_prefix(&field.name)?;
            rest.strip_prefix('"').filter(ends)
        };
        Some((field, plain.or_else(quoted)?))
    });
    steps.min_by_key(|(_, rest)| rest.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{outline::outline, tokens::tokens};

    #[test]
    fn a_path_leads_to_its_value_or_to_what_should_hold_it() {
        let text = r#"{"rules": [{"name": "a", "when": {"headers": {"x.y": 1, "b c": [2]}}}, 7]}"#;
        let root = outline(text, &tokens(text)).unwrap();
        for (path, underlined) in [
            ("", "{"),
            ("version", "{"),
            ("rules", r#""rules""#),
            ("rules[0]", "{"),
            ("rules[0].name", r#""name": "a""#),
            ("rules[0].key", "{"),
            ("rules[0].when.headers", r#""headers""#),
            ("rules[0].when.headers.x.y", r#""x.y": 1"#),
            (r#"rules[0].when.headers."b c"[0]"#, "2"),
            (r#"rules[0].when.headers."b c"[9]"#, r#""b c""#),
            ("rules[1]", "7"),
            ("rules[1].name", "7"),
            ("rules[5].name", r#""rules""#),
            ("rules.name", r#""rules""#),
        ] {
            assert_eq!(&text[locate(&root, path)], underlined, "{path}");
        }
    }

    #[test]
    fn a_name_without_a_value_is_underlined() {
        let text = r#"{"limit": , "window": "1m"}"#;
        let root = outline(text, &tokens(text)).unwrap();
        assert_eq!(&text[locate(&root, "limit")], r#""limit""#);
    }
}
