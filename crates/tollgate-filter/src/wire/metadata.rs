//! The metadata of a stream, in its wire format. In that protobuf message every value has its type.
//!
//! Invariant: a value is text, a number or a boolean; a list, an object and null are none. A client
//! is counted by whole numbers only. The host can return one value by its own path, but without its
//! type: eight bytes could then be a text or a double. A host with typed values makes a [`Value`]
//! of each. Any bytes give a value or none.
//!
//! Source: `envoy.config.core.v3.Metadata` and google/protobuf/struct.proto.

use std::borrow::Cow;

use tollgate_policy::{decimal, whole_number};

use crate::wire::structpb::{Field, Reader};

/// A value of metadata.
#[derive(Clone, Debug, PartialEq)]
pub enum Value<'a> {
    /// A text, perhaps empty.
    Text(Cow<'a, [u8]>),
    /// A number, as every number of a `Struct` is.
    Number(f64),
    /// A boolean.
    Truth(bool),
}

impl<'a> Value<'a> {
    /// The value as text, with a number in decimal; `None` for infinities and NaN.
    pub fn text(self) -> Option<Cow<'a, [u8]>> {
        Some(match self {
            Self::Text(text) => text,
            Self::Number(number) => decimal(number)?.into_bytes().into(),
            Self::Truth(truth) => if truth { &b"true"[..] } else { b"false" }.into(),
        })
    }

    /// The text by which a client is counted: as [`Value::text`], but `None` for a number that is
    /// not whole or is beyond 2^53 - 1, where several whole numbers are one double.
    pub fn identifier(self) -> Option<Cow<'a, [u8]>> {
        match self {
            Self::Number(number) => Some(whole_number(number)?.into_bytes().into()),
            value => value.text(),
        }
    }
}

/// The value at the end of `path` in what the filter of this name has left in a serialised
/// `Metadata`.
pub fn value<'a, 'p>(
    metadata: &'a [u8],
    filter: &str,
    path: impl IntoIterator<Item = &'p str>,
) -> Option<Value<'a>> {
    let mut path = path.into_iter();
    let mut found = only_field(entry(entry(metadata, filter)?, path.next()?)?)?;
    for name in path {
        let Field::Bytes(5, fields) = found else { return None };
        found = only_field(entry(fields, name)?)?;
    }
    match found {
        Field::Double(2, number) => Some(Value::Number(number)),
        Field::Bytes(3, text) => Some(Value::Text(text.into())),
        Field::Varint(4, truth) => Some(Value::Truth(truth != 0)),
        _ => None,
    }
}

/// The value of `key` in the map that is field 1 of a message: the last one, as protobuf has it.
fn entry<'a>(message: &'a [u8], key: &str) -> Option<&'a [u8]> {
    let mut found = None;
    let mut fields = Reader(message);
    while let Some(field) = fields.next_field().ok()? {
        let Field::Bytes(1, pair) = field else { continue };
        let (mut name, mut value) = (&b""[..], &b""[..]);
        let mut pair = Reader(pair);
        while let Some(field) = pair.next_field().ok()? {
            match field {
                Field::Bytes(1, bytes) => name = bytes,
                Field::Bytes(2, bytes) => value = bytes,
                _ => {}
            }
        }
        if name == key.as_bytes() {
            found = Some(value);
        }
    }
    found
}

/// The last field of a message. Of the alternatives in a value, the last one counts.
fn only_field(message: &[u8]) -> Option<Field<'_>> {
    let mut last = None;
    let mut fields = Reader(message);
    while let Some(field) = fields.next_field().ok()? {
        last = Some(field);
    }
    last
}

#[cfg(test)]
#[allow(missing_docs)]
pub mod tests {
    use super::*;
    use crate::wire::structpb::tests::bytes_field as message;

    fn map(entries: &[(&str, Vec<u8>)]) -> Vec<u8> {
        let entry = |(key, value): &(&str, Vec<u8>)| {
            message(1, &[message(1, key.as_bytes()), message(2, value)].concat())
        };
        entries.iter().flat_map(entry).collect()
    }

    fn number(value: f64) -> Vec<u8> {
        [&[2 << 3 | 1][..], &value.to_le_bytes()].concat()
    }

    /// The bytes that Envoy returns for `metadata` when jwt_authn has left these claims, in
    /// addition to other filters' metadata.
    pub fn metadata() -> Vec<u8> {
        let claims = map(&[
            ("sub", message(3, b"user-042")),
            ("n", number(7.0)),
            ("id", number(50_000_000_000_123.0)),
            ("admin", vec![4 << 3, 1]),
            ("guest", vec![4 << 3, 0]),
            ("eight", message(3, &7.0_f64.to_le_bytes())),
            ("one", message(3, b"\x01")),
            ("empty", message(3, b"")),
            ("null", vec![1 << 3, 0]),
            ("list", message(6, &message(1, &message(3, b"a")))),
            ("object", message(5, &map(&[("a", message(3, b"b"))]))),
            ("none", vec![]),
        ]);
        let others = map(&[("payload", message(5, &map(&[("sub", message(3, b"forged"))])))]);
        let verified = map(&[("header", message(5, &[])), ("payload", message(5, &claims))]);
        [
            map(&[("a.filter", others), ("envoy.filters.http.jwt_authn", verified)]),
            message(2, b"\x0a\x01a"), // typed metadata of another filter
        ]
        .concat()
    }

    fn claim<'a>(metadata: &'a [u8], payload: &str, name: &str) -> Option<Cow<'a, [u8]>> {
        value(metadata, "envoy.filters.http.jwt_authn", [payload, name])?.text()
    }

    // Guards: eight bytes of text read as a number, and a number read as text: the type is in the
    // message.
    #[test]
    fn a_claim_has_the_kind_that_the_token_gave_it() {
        let metadata = metadata();
        let rows: [(&str, Option<&[u8]>); 13] = [
            ("sub", Some(b"user-042")),
            ("n", Some(b"7")),
            ("id", Some(b"50000000000123")),
            ("admin", Some(b"true")),
            ("guest", Some(b"false")),
            ("eight", Some(&7.0_f64.to_le_bytes())),
            ("one", Some(b"\x01")),
            ("empty", Some(b"")),
            ("null", None),
            ("list", None),
            ("object", None),
            ("none", None),
            ("absent", None),
        ];
        for (name, expected) in rows {
            assert_eq!(claim(&metadata, "payload", name).as_deref(), expected, "{name}");
        }
        for payload in ["header", "sub", "", "other"] {
            assert_eq!(claim(&metadata, payload, "sub"), None, "{payload}");
        }
        assert_eq!(claim(&[], "payload", "sub"), None);
        let other = |path: &[&str]| value(&metadata, "a.filter", path.iter().copied())?.text();
        assert_eq!(other(&["payload", "sub"]).as_deref(), Some(&b"forged"[..]));
        for path in [&[][..], &["payload"], &["payload", "sub", "more"], &["sub"]] {
            assert_eq!(other(path), None, "{path:?}");
        }
    }

    // Guards: two tenants whose numbers are one double, which would share a count.
    #[test]
    fn an_identifier_is_a_text_a_truth_or_a_whole_number_that_is_exact() {
        let found = |value: Value<'static>| value.identifier().map(Cow::into_owned);
        for (number, text) in [
            (7.0, Some("7")),
            (-7.0, Some("-7")),
            (0.0, Some("0")),
            (-0.0, Some("0")),
            (9_007_199_254_740_991.0, Some("9007199254740991")),
            (-9_007_199_254_740_991.0, Some("-9007199254740991")),
            (9_007_199_254_740_992.0, None),
            (-9_007_199_254_740_992.0, None),
            (1e300, None),
            (0.5, None),
            (f64::MIN_POSITIVE, None),
            (f64::INFINITY, None),
            (f64::NAN, None),
        ] {
            assert_eq!(found(Value::Number(number)), text.map(Into::into), "{number}");
        }
        assert_eq!(found(Value::Text(b"0.5".into())), Some(b"0.5".to_vec()));
        assert_eq!(found(Value::Text(b"".into())), Some(vec![]));
        assert_eq!(found(Value::Truth(true)), Some(b"true".to_vec()));
        assert_eq!(Value::Number(0.5).text().as_deref(), Some(&b"0.5"[..]));
    }

    #[test]
    fn no_cut_and_no_flipped_bit_traps() {
        let whole = metadata();
        for len in 0..whole.len() {
            let _ = claim(&whole[..len], "payload", "sub");
        }
        for byte in 0..whole.len() {
            for bit in 0..8 {
                let mut bent = whole.clone();
                bent[byte] ^= 1 << bit;
                let _ = claim(&bent, "payload", "id");
            }
        }
    }
}
