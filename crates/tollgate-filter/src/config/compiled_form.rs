//! The forms in which a plugin's configuration may contain a compiled policy.
//!
//! Invariant: a compiled policy is recognised by its first bytes, in every form in which Envoy and
//! the writers of its configurations can hold it; no document begins with them. Deliberately
//! absent: whether it is valid; its reader checks that.

use std::borrow::Cow;

use tollgate_policy::Plugin;

use crate::wire::structpb::{Field, Reader, StructError};

/// The field of a `Struct`, or of an object in JSON, whose text is a compiled policy.
const FIELD: &str = "compiled";

/// The compiled policy in a configuration, as bytes or as their text, if that is what it is: the
/// bytes (`BytesValue`), their base64 (`StringValue`), or an object with the base64 as its one
/// field `compiled` (`Struct`, or JSON in a `StringValue`).
pub fn find(configuration: &[u8]) -> Option<Cow<'_, [u8]>> {
    if Plugin::is_compiled(configuration) {
        return Some(configuration.into());
    }
    if let Ok(Some(text)) = of_struct(configuration) {
        return Some(text.into());
    }
    of_json(configuration).map(Into::into)
}

/// The text of a `Struct`'s only field, if that is ours.
fn of_struct(bytes: &[u8]) -> Result<Option<&[u8]>, StructError> {
    let mut fields = Reader(bytes);
    let (Some(Field::Bytes(1, entry)), None) = (fields.next_field()?, fields.next_field()?) else {
        return Ok(None);
    };
    let (mut key, mut value) = (None, None);
    let mut entry = Reader(entry);
    while let Some(field) = entry.next_field()? {
        match field {
            Field::Bytes(1, bytes) => key = Some(bytes),
            Field::Bytes(2, bytes) => value = Some(bytes),
            _ => return Err(StructError::Malformed),
        }
    }
    let (Some(FIELD), Some(value)) = (key.and_then(|key| core::str::from_utf8(key).ok()), value)
    else {
        return Ok(None);
    };
    let mut value = Reader(value);
    match (value.next_field()?, value.next_field()?) {
        (Some(Field::Bytes(3, text)), None) => Ok(Some(text)),
        _ => Ok(None),
    }
}

/// The same of JSON, in which base64 needs no escapes.
fn of_json(text: &[u8]) -> Option<Vec<u8>> {
    let text = text.trim_ascii().strip_prefix(b"{")?.trim_ascii_start();
    let text = text.strip_prefix(b"\"")?.strip_prefix(FIELD.as_bytes())?.strip_prefix(b"\"")?;
    let text = text.trim_ascii_start().strip_prefix(b":")?.trim_ascii_start();
    let text = text.strip_suffix(b"}")?.trim_ascii_end();
    let text = text.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    let is_plain = |byte: &u8| !matches!(byte, b'"' | b'\\' | 0..b' ');
    text.iter().all(is_plain).then(|| text.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::structpb::tests::bytes_field;

    fn object(field: &str, value: &[u8]) -> Vec<u8> {
        let entry = [bytes_field(1, field.as_bytes()), bytes_field(2, value)].concat();
        bytes_field(1, &entry)
    }

    #[test]
    fn a_compiled_policy_is_found_in_every_form() {
        let text = b"AHRvbGxnYXRlAQID";
        let bytes = b"\0tollgate\x01\x02\x03";
        let of_struct = object("compiled", &bytes_field(3, text));
        let json = b" {\n \"compiled\" : \"AHRvbGxnYXRlAQID\" } ";
        assert_eq!(find(bytes).as_deref(), Some(&bytes[..]));
        assert_eq!(
            find(b"\n  AHRvbGxnYXRlAQID\n").as_deref().map(<[u8]>::trim_ascii),
            Some(&text[..])
        );
        assert_eq!(find(&of_struct).as_deref(), Some(&text[..]));
        assert_eq!(find(json).as_deref(), Some(&text[..]));
    }

    // Guards: a document that is taken for a compiled policy and rejected with the wrong message.
    #[test]
    fn everything_else_is_none() {
        let two = [object("compiled", &bytes_field(3, b"a")), object("x", &bytes_field(3, b"b"))];
        let others: [&[u8]; 9] = [
            b"",
            b"{}",
            b"{\"version\": 1}",
            b"{\"compiled\": 1}",
            b"{\"compiled\": \"a\", \"fleet\": \"b\"}",
            b"{\"compiled\": \"a\\\"b\"}",
            &object("version", &bytes_field(3, b"a")),
            &object("compiled", &[1 << 3, 0]),
            &two.concat(),
        ];
        for other in others {
            assert_eq!(find(other), None, "{other:?}");
        }
    }
}
