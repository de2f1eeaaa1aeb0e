//! Bodies in JSON, in lines and in events, in pieces of any size.
//!
//! The input is two lines and a body: `document`, `lines` or `events`, then the size of the pieces;
//! pointers with a space between two. The laws: the pieces do not matter, and each pointer has what
//! a reader that keeps the whole body (`serde_json`) finds there.

use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use tollgate_http_syntax::json_body::{JsonBody, JsonFormat};
use tollgate_http_syntax::json_pointer::{Found, MAX_DEPTH, is_pointer};

pub fn check(input: &[u8]) {
    let mut lines = input.splitn(3, |byte| *byte == b'\n');
    let (Some(first), Some(second), Some(body)) = (lines.next(), lines.next(), lines.next()) else {
        return;
    };
    let (Ok(first), Ok(second)) = (std::str::from_utf8(first), std::str::from_utf8(second)) else {
        return;
    };
    let (format, size) = first.split_once(' ').unwrap_or((first, ""));
    let format = match format {
        "document" => JsonFormat::Document,
        "lines" => JsonFormat::Lines,
        "events" => JsonFormat::Events,
        _ => return,
    };
    // The oracle decodes what is not UTF-8 to this character.
    let is_known = |it: &&str| is_pointer(it) && !it.contains('\u{fffd}');
    let pointers: Vec<_> = second.split(' ').filter(is_known).take(8).collect();
    let size = size.parse().unwrap_or(1).max(1);
    for is_whole in [true, false] {
        let found = scan(format, &pointers, &mut body.chunks(size), is_whole);
        assert_eq!(found, scan(format, &pointers, &mut [body].into_iter(), is_whole), "at once");
        assert_eq!(found, scan(format, &pointers, &mut body.chunks(1), is_whole), "by byte");
        compare(format, &pointers, body, is_whole, &found);
    }
}

/// The values found at each pointer of a body in these pieces.
pub fn scan(
    format: JsonFormat,
    pointers: &[&str],
    pieces: &mut dyn Iterator<Item = &[u8]>,
    is_whole: bool,
) -> Vec<Found> {
    let mut scan = JsonBody::new(format, pointers.iter().copied());
    pieces.for_each(|piece| scan.push(piece));
    scan.end(is_whole);
    pointers.iter().map(|pointer| scan.found(pointer)).collect()
}

fn compare(format: JsonFormat, pointers: &[&str], body: &[u8], is_whole: bool, found: &[Found]) {
    let text = String::from_utf8_lossy(body);
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let documents = match format {
        JsonFormat::Document => vec![text.to_owned()],
        JsonFormat::Lines => text.split('\n').map(str::to_owned).collect(),
        JsonFormat::Events => events(text),
    };
    let mut expected = vec![Found::Absent; pointers.len()];
    let last = documents.len().saturating_sub(1);
    for (i, document) in documents.iter().enumerate() {
        // The end of a number shows only by what follows.
        let is_cut = i == last && !is_whole && document.ends_with(|it: char| it.is_ascii_digit());
        match values(document, pointers).filter(|_| !is_cut) {
            Some(values) => {
                for (expected, value) in expected.iter_mut().zip(values) {
                    if value != Found::Absent {
                        *expected = value;
                    }
                }
            }
            None if format == JsonFormat::Document => {
                let is_none = |it: &Found| !matches!(it, Found::Number(_) | Found::Conflicting);
                assert!(found.iter().all(is_none), "{found:?} of no JSON");
                return;
            }
            None => {}
        }
    }
    assert_eq!(found, expected, "{pointers:?}");
}

/// The data of each event, by the steps of the standard over the whole text; the last one also
/// without an empty line after it.
fn events(text: &str) -> Vec<String> {
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    let (mut events, mut data) = (Vec::new(), Vec::new());
    let mut lines = text.split('\n').peekable();
    while let Some(line) = lines.next() {
        if line.is_empty() && lines.peek().is_some() {
            events.push(data.join("\n"));
            data.clear();
            continue;
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        if field == "data" {
            data.push(value.strip_prefix(' ').unwrap_or(value).to_owned());
        }
    }
    events.push(data.join("\n"));
    events
}

/// The value at each pointer of a document; `None` when it is not JSON, or is too deep.
fn values(document: &str, pointers: &[&str]) -> Option<Vec<Found>> {
    let root: &RawValue = serde_json::from_str(document).ok()?;
    let mut all = Vec::new();
    collect(root, &mut Vec::new(), &mut all)?;
    let at = |pointer: &&str| {
        let mut found = Found::Absent;
        for (_, value) in all.iter().filter(|(path, _)| matches(path, pointer)) {
            let value = number(value);
            let is_same = found == Found::Absent || found == value;
            found = if is_same { value } else { Found::Conflicting };
        }
        found
    };
    Some(pointers.iter().map(at).collect())
}

fn number(value: &str) -> Found {
    match value {
        _ if !value.bytes().all(|byte| byte.is_ascii_digit()) => Found::Unreadable,
        _ if value.len() >= 16 => Found::Number(u64::MAX),
        _ => Found::Number(value.parse().unwrap()),
    }
}

/// A token of a path: a member's name, or the number of an element.
#[derive(Clone)]
enum Token {
    Name(Vec<u8>),
    Element(usize),
}

fn matches(path: &[Token], pointer: &str) -> bool {
    let tokens: Vec<_> = pointer.split('/').skip(1).collect();
    tokens.len() == path.len()
        && tokens.iter().zip(path).all(|(token, step)| match step {
            Token::Name(name) => token.replace("~1", "/").replace("~0", "~").as_bytes() == name,
            Token::Element(index) => *token == index.to_string(),
        })
}

/// Every value with its path; `None` when it is too deep.
fn collect<'a>(
    value: &'a RawValue,
    path: &mut Vec<Token>,
    all: &mut Vec<(Vec<Token>, &'a str)>,
) -> Option<()> {
    let text = value.get();
    all.push((path.clone(), text));
    let members: Vec<(Token, &RawValue)> = match text.as_bytes().first() {
        Some(b'{') => {
            let mut json = serde_json::Deserializer::from_str(text);
            json.deserialize_map(Members).unwrap()
        }
        Some(b'[') => {
            let elements: Vec<&RawValue> = serde_json::from_str(text).unwrap();
            elements.into_iter().enumerate().map(|(i, it)| (Token::Element(i), it)).collect()
        }
        _ => return Some(()),
    };
    if path.len() >= MAX_DEPTH {
        return None;
    }
    for (token, value) in members {
        path.push(token);
        collect(value, path, all)?;
        path.pop();
    }
    Some(())
}

/// The members of an object, also those of one name. A name may have halves of surrogate pairs.
struct Members;

impl<'de> Visitor<'de> for Members {
    type Value = Vec<(Token, &'de RawValue)>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = Vec::new();
        while let Some(Name(name)) = map.next_key()? {
            members.push((Token::Name(name), map.next_value()?));
        }
        Ok(members)
    }
}

struct Name(Vec<u8>);

impl<'de> serde::Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Bytes;
        impl Visitor<'_> for Bytes {
            type Value = Name;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a name")
            }

            fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Name, E> {
                Ok(Name(bytes.to_vec()))
            }
        }
        deserializer.deserialize_bytes(Bytes)
    }
}
