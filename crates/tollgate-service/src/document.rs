//! A policy document as text with its members, as it was written.
//!
//! Invariant: the JSON parser decides where a value begins and ends and which texts are names, so
//! white space, escapes and duplicates hide nothing. Deliberately absent: the meaning of a
//! document; that is in the policy crate.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// The members of an object in their order, duplicates included, each value as it is written.
pub(crate) struct Members<'a>(pub(crate) Vec<(String, &'a RawValue)>);

impl<'a> Members<'a> {
    /// The members of the object in `text`; `None` when it is not an object.
    pub(crate) fn of(text: &'a str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// The value of the first member `name`, as it is written.
    pub(crate) fn get(&self, name: &str) -> Option<&'a str> {
        self.all(name).next()
    }

    /// The values of all members `name`.
    pub(crate) fn all<'m>(&'m self, name: &'m str) -> impl Iterator<Item = &'a str> + 'm {
        self.0.iter().filter(move |(other, _)| other == name).map(|(_, value)| value.get())
    }

    /// The text of the first member `name`.
    pub(crate) fn text(&self, name: &str) -> Option<String> {
        serde_json::from_str(self.get(name)?).ok()
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Reader)
    }
}

/// The items of the list in `text`, each as it is written; `None` when it is not a list.
pub(crate) fn items(text: &str) -> Option<Vec<&str>> {
    let items: Vec<&RawValue> = serde_json::from_str(text).ok()?;
    Some(items.into_iter().map(RawValue::get).collect())
}

/// A document without the byte order mark that editors on Windows begin a file with.
pub(crate) fn without_mark(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}

/// The place of `part` in `whole`, which it is a slice of.
pub(crate) fn place(whole: &str, part: &str) -> Option<Range<usize>> {
    let start = part.as_ptr().addr().checked_sub(whole.as_ptr().addr())?;
    let range = start..start.checked_add(part.len())?;
    (whole.get(range.clone()) == Some(part)).then_some(range)
}

/// `json` without the white space between its tokens.
pub(crate) fn compact(json: &str) -> String {
    let (mut in_text, mut is_escaped) = (false, false);
    let keep = |c: &char| {
        let is_kept = in_text || !c.is_ascii_whitespace();
        (in_text, is_escaped) = match c {
            _ if is_escaped => (in_text, false),
            '"' => (!in_text, false),
            '\\' => (in_text, true),
            _ => (in_text, false),
        };
        is_kept
    };
    json.chars().filter(keep).collect()
}

/// The rules of a document: their names, and their text as written.
pub(crate) fn rules(root: &Members<'_>) -> Vec<(String, String)> {
    let rules = root.get("rules").and_then(items).unwrap_or_default();
    let named = rules.into_iter().filter_map(|rule| Some((Members::of(rule)?.text("name")?, rule)));
    named.map(|(name, rule)| (name, rule.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    #[test]
    fn members_are_found_however_they_are_written() {
        let text = " {\"a\" : [ 1, {\"b\":2} ] ,\"\\u0061\":\"x\"}";
        let members = Members::of(text).expect("an object");
        assert_eq!(members.all("a").collect::<Vec<_>>(), ["[ 1, {\"b\":2} ]", "\"x\""]);
        let list = members.get("a").expect("there");
        assert_eq!(items(list).expect("a list"), vec!["1", "{\"b\":2}"]);
        assert_eq!(place(text, list).and_then(|range| text.get(range)), Some(list));
        assert_eq!(place(text, "{\"b\":2}"), None, "equal, and of another text");
        for none in ["[]", "1", "{", "", "{}x"] {
            assert!(Members::of(none).is_none(), "{none}");
        }
    }

    #[test]
    fn white_space_goes_and_texts_stay() {
        assert_eq!(compact(" { \"a b\\\" \" : [ 1 ,\n\t2 ] } "), "{\"a b\\\" \":[1,2]}");
        assert_eq!(compact("\"\\\\\" \"x y\""), "\"\\\\\"\"x y\"");
    }
}
