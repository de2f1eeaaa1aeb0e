//! `google.protobuf.Struct` in its wire format to JSON text.
//!
//! An operator that writes the policy as YAML inside an Envoy configuration provides a `Struct`,
//! and Envoy hands the filter its serialised bytes. Invariant: any bytes are either a whole,
//! well-formed `Struct` or an error; nothing is guessed, skipped or cut. Deliberately absent: any
//! other protobuf message; `metadata` reads one with the reader of this one's fields.
//!
//! Source: google/protobuf/struct.proto, and the encoding guide of protobuf.

use core::fmt::Write;

use tollgate_policy::decimal;

/// How deep lists and objects may nest: a policy needs six.
const MAX_DEPTH: u32 = 32;

/// The reason why bytes are not a `Struct`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StructError {
    /// They end early, or contain a field that the message does not have.
    Malformed,
    /// More than 32 levels.
    TooDeep,
    /// Infinity, or not a number.
    OutOfRange,
    /// A text that is not UTF-8.
    NotUtf8,
}

impl StructError {
    /// For the log.
    pub const fn message(self) -> &'static str {
        match self {
            Self::Malformed => "the google.protobuf.Struct is malformed",
            Self::TooDeep => "the google.protobuf.Struct is nested more than 32 levels deep",
            Self::OutOfRange => "the google.protobuf.Struct holds a number that JSON has not",
            Self::NotUtf8 => "the google.protobuf.Struct holds text that is not UTF-8",
        }
    }
}

/// The JSON text of a serialised `Struct`.
///
/// # Errors
/// See [`StructError`].
pub fn to_json(bytes: &[u8]) -> Result<String, StructError> {
    let mut out = String::with_capacity(bytes.len());
    write_struct(bytes, MAX_DEPTH, &mut out)?;
    Ok(out)
}

/// `message Struct { map<string, Value> fields = 1; }`
fn write_struct(bytes: &[u8], depth: u32, out: &mut String) -> Result<(), StructError> {
    let depth = depth.checked_sub(1).ok_or(StructError::TooDeep)?;
    let mut fields = Reader(bytes);
    out.push('{');
    while let Some(field) = fields.next_field()? {
        let Field::Bytes(1, entry) = field else { return Err(StructError::Malformed) };
        separate(out, '{');
        let (mut key, mut value) = (None, None);
        let mut entry = Reader(entry);
        while let Some(field) = entry.next_field()? {
            match field {
                Field::Bytes(1, bytes) => key = Some(bytes),
                Field::Bytes(2, bytes) => value = Some(bytes),
                _ => return Err(StructError::Malformed),
            }
        }
        write_text(key.unwrap_or_default(), out)?;
        out.push(':');
        write_value(value.ok_or(StructError::Malformed)?, depth, out)?;
    }
    out.push('}');
    Ok(())
}

/// `message Value`: null 1, number 2, string 3, bool 4, struct 5, list 6; exactly one of them.
fn write_value(bytes: &[u8], depth: u32, out: &mut String) -> Result<(), StructError> {
    let mut reader = Reader(bytes);
    let field = reader.next_field()?.ok_or(StructError::Malformed)?;
    if reader.next_field()?.is_some() {
        return Err(StructError::Malformed);
    }
    match field {
        Field::Varint(1, _) => out.push_str("null"),
        Field::Double(2, number) => write_number(number, out)?,
        Field::Bytes(3, text) => write_text(text, out)?,
        Field::Varint(4, truth) => out.push_str(if truth == 0 { "false" } else { "true" }),
        Field::Bytes(5, fields) => write_struct(fields, depth, out)?,
        Field::Bytes(6, values) => write_list(values, depth, out)?,
        _ => return Err(StructError::Malformed),
    }
    Ok(())
}

/// `message ListValue { repeated Value values = 1; }`
fn write_list(bytes: &[u8], depth: u32, out: &mut String) -> Result<(), StructError> {
    let depth = depth.checked_sub(1).ok_or(StructError::TooDeep)?;
    let mut values = Reader(bytes);
    out.push('[');
    while let Some(field) = values.next_field()? {
        let Field::Bytes(1, value) = field else { return Err(StructError::Malformed) };
        separate(out, '[');
        write_value(value, depth, out)?;
    }
    out.push(']');
    Ok(())
}

fn separate(out: &mut String, open: char) {
    if !out.ends_with(open) {
        out.push(',');
    }
}

fn write_number(number: f64, out: &mut String) -> Result<(), StructError> {
    out.push_str(&decimal(number).ok_or(StructError::OutOfRange)?);
    Ok(())
}

fn write_text(bytes: &[u8], out: &mut String) -> Result<(), StructError> {
    let text = core::str::from_utf8(bytes).map_err(|_| StructError::NotUtf8)?;
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\0'..='\x1f' => {
                let _ = write!(out, "\\u{:04x}", u32::from(character)); // cannot fail either
            }
            _ => out.push(character),
        }
    }
    out.push('"');
    Ok(())
}

/// One field of a message: its number and its payload.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Field<'a> {
    /// A whole number.
    Varint(u64, u64),
    /// Eight bytes.
    Double(u64, f64),
    /// A text or a message.
    Bytes(u64, &'a [u8]),
}

/// Reads the fields of a message, one after the other.
pub struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    /// The next field; `None` after the last one.
    ///
    /// # Errors
    /// The bytes end early, or begin with a field that no `Struct` could have.
    pub fn next_field(&mut self) -> Result<Option<Field<'a>>, StructError> {
        if self.0.is_empty() {
            return Ok(None);
        }
        self.field().map(Some).ok_or(StructError::Malformed)
    }

    fn field(&mut self) -> Option<Field<'a>> {
        let tag = self.varint()?;
        let number = tag >> 3;
        match tag & 7 {
            0 => Some(Field::Varint(number, self.varint()?)),
            1 => {
                let (double, rest) = self.0.split_first_chunk::<8>()?;
                self.0 = rest;
                Some(Field::Double(number, f64::from_le_bytes(*double)))
            }
            2 => {
                let len = usize::try_from(self.varint()?).ok()?;
                let (bytes, rest) = self.0.split_at_checked(len)?;
                self.0 = rest;
                Some(Field::Bytes(number, bytes))
            }
            _ => None,
        }
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.0.split_first()?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f).checked_shl(shift)?;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    // The bytes that protobuf itself writes, piece by piece.
    pub(crate) fn bytes_field(number: u8, bytes: &[u8]) -> Vec<u8> {
        let mut out = vec![number << 3 | 2];
        let mut len = bytes.len();
        while len >= 0x80 {
            out.push(u8::try_from(len & 0x7f).unwrap() | 0x80);
            len >>= 7;
        }
        out.push(u8::try_from(len).unwrap());
        out.extend_from_slice(bytes);
        out
    }

    fn number(value: f64) -> Vec<u8> {
        [vec![2 << 3 | 1], value.to_le_bytes().to_vec()].concat()
    }

    fn text(value: &str) -> Vec<u8> {
        bytes_field(3, value.as_bytes())
    }

    fn object(fields: &[(&str, Vec<u8>)]) -> Vec<u8> {
        let entry = |(key, value): &(&str, Vec<u8>)| {
            bytes_field(1, &[bytes_field(1, key.as_bytes()), bytes_field(2, value)].concat())
        };
        fields.iter().flat_map(entry).collect()
    }

    fn list(values: &[Vec<u8>]) -> Vec<u8> {
        values.iter().flat_map(|value| bytes_field(1, value)).collect()
    }

    fn check(bytes: &[u8], expected: Result<&str, StructError>) {
        assert_eq!(to_json(bytes).as_deref(), expected.as_ref().copied());
    }

    #[test]
    fn every_kind_of_value() {
        let nested = bytes_field(5, &object(&[("b", text("c"))]));
        let fields = [
            ("version", number(1.0)),
            ("null", vec![1 << 3, 0]),
            ("yes", vec![4 << 3, 1]),
            ("no", vec![4 << 3, 0]),
            ("list", bytes_field(6, &list(&[number(0.5), text("a"), nested, bytes_field(6, &[])]))),
            ("empty", bytes_field(5, &[])),
        ];
        let json = r#"{"version":1,"null":null,"yes":true,"no":false,"list":[0.5,"a",{"b":"c"},[]],"empty":{}}"#;
        check(&object(&fields), Ok(json));
        check(&[], Ok("{}"));
    }

    #[test]
    fn whole_numbers_stay_whole() {
        let rows = [
            (100.0, "100"),
            (-1.0, "-1"),
            (0.0, "0"),
            (1.5, "1.5"),
            (-0.1, "-0.1"),
            (12.34, "12.34"),
            (1e-9, "0.000000001"),
            (86_400_000_000_000.0, "86400000000000"),
            (9_007_199_254_740_993.0, "9007199254740992"),
            (18_446_744_073_709_549_568.0, "18446744073709550000"),
        ];
        for (value, json) in rows {
            check(&object(&[("n", number(value))]), Ok(&format!("{{\"n\":{json}}}")));
        }
        for value in [f64::INFINITY, f64::NEG_INFINITY, f64::NAN] {
            check(&object(&[("n", number(value))]), Err(StructError::OutOfRange));
        }
    }

    #[test]
    fn texts_are_escaped() {
        check(
            &object(&[("a\"b", text("\\ \n \u{1} é {["))]),
            Ok("{\"a\\\"b\":\"\\\\ \\u000a \\u0001 é {[\"}"),
        );
        check(&object(&[("", text(""))]), Ok("{\"\":\"\"}"));
        check(&object(&[("a", bytes_field(3, &[0xff]))]), Err(StructError::NotUtf8));
    }

    // Two members, the second after a text that ends in the opening brace: the comma must not
    // vanish.
    #[test]
    fn commas_stand_between_members_whatever_they_are() {
        check(&object(&[("a", text("{")), ("b", text("["))]), Ok("{\"a\":\"{\",\"b\":\"[\"}"));
    }

    #[test]
    fn no_cut_and_no_flipped_bit_traps() {
        let fields = [
            ("limit", number(10.0)),
            ("name", text("api")),
            ("l", bytes_field(6, &list(&[text("x")]))),
        ];
        let whole = object(&fields);
        for len in 1..whole.len() {
            let _ = to_json(&whole[..len]);
        }
        assert_eq!(to_json(&whole[..whole.len() - 1]), Err(StructError::Malformed));
        for byte in 0..whole.len() {
            for bit in 0..8 {
                let mut bent = whole.clone();
                bent[byte] ^= 1 << bit;
                let _ = to_json(&bent);
            }
        }
    }

    #[test]
    fn what_is_no_struct_is_refused() {
        let no_value = bytes_field(1, &bytes_field(1, b"k"));
        let two_values = object(&[("k", [number(1.0), number(2.0)].concat())]);
        let unknown_field = bytes_field(2, b"");
        for bytes in
            [no_value, two_values, unknown_field, vec![0x0b], vec![0xff; 11], b"{\"a\":1}".to_vec()]
        {
            check(&bytes, Err(StructError::Malformed));
        }
    }

    #[test]
    fn the_depth_is_bounded() {
        let nest = |levels: usize| {
            (0..levels).fold(number(1.0), |inner, _| bytes_field(6, &list(&[inner])))
        };
        assert!(to_json(&object(&[("k", nest(31))])).is_ok());
        check(&object(&[("k", nest(32))]), Err(StructError::TooDeep));
        check(&object(&[("k", nest(200))]), Err(StructError::TooDeep));
    }
}
