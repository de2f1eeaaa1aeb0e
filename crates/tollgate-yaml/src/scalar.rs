//! The meaning of a scalar.
//!
//! Invariant: a scalar means here what the Envoy filter receives for it. Source: Envoy's
//! `parseYamlNode`, and yaml-cpp's conversions to a boolean and to a 64-bit number, compared with a
//! real Envoy in tests/e2e.

use serde::ser::{Serialize, Serializer};

/// A text that may represent another value.
#[derive(Clone, Debug)]
pub struct Scalar {
    /// As it is written, without quotes.
    pub text: String,
    /// How it is written.
    pub form: Form,
}

/// How a scalar is written, as far as this affects its meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Without quotes or tag.
    Plain,
    /// With a tag such as `!!str`, which only makes it not null.
    Tagged,
    /// In quotes, as a folded block, or with the tag `!`: a text.
    Quoted,
    /// A text, as a block of lines that begins on the line after its header.
    Literal,
}

/// The reader of a scalar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// A policy in a YAML file of its own: whole numbers are numbers.
    Policy,
    /// Envoy, which turns whole numbers beyond 32 bits into texts.
    Envoy,
    /// JSON, where quotes distinguish texts from all other values.
    Json,
}

/// The meaning of a scalar.
#[derive(Clone, Debug, PartialEq)]
pub enum Value<'s> {
    /// Null.
    Null,
    /// `true`, `yes`, `off`.
    Bool(bool),
    /// A whole number.
    Whole(i64),
    /// Only Envoy: a whole number beyond 32 bits, which becomes a text with its decimal digits.
    Large(i64),
    /// Only JSON: a number that is not a whole number of 64 bits.
    Number(f64),
    /// A text.
    Text(&'s str),
}

impl Reading {
    /// The meaning of a scalar to this reader.
    pub fn value(self, scalar: &Scalar) -> Value<'_> {
        let Scalar { text, form } = scalar;
        match form {
            Form::Quoted | Form::Literal => return Value::Text(text),
            Form::Plain if is_null(text) => return Value::Null,
            Form::Plain | Form::Tagged => {}
        }
        if self == Self::Json {
            return json_value(text);
        }
        if let Some(truth) = boolean(text) {
            return Value::Bool(truth);
        }
        match whole(text) {
            Some(number) if self == Self::Envoy && i32::try_from(number).is_err() => {
                Value::Large(number)
            }
            Some(number) => Value::Whole(number),
            None => Value::Text(text),
        }
    }
}

impl Scalar {
    /// The scalar as the name of a field: names are texts, and null is one.
    pub(crate) fn into_name(self) -> String {
        if self.form == Form::Plain && is_null(&self.text) { "null".to_owned() } else { self.text }
    }
}

impl Serialize for Value<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match *self {
            Self::Null => serializer.serialize_unit(),
            Self::Bool(truth) => serializer.serialize_bool(truth),
            Self::Whole(number) => serializer.serialize_i64(number),
            Self::Large(number) => serializer.collect_str(&number),
            Self::Number(number) => serializer.serialize_f64(number),
            Self::Text(text) => serializer.serialize_str(text),
        }
    }
}

fn is_null(text: &str) -> bool {
    matches!(text, "" | "~" | "null" | "Null" | "NULL")
}

/// A number is a double, and is whole if the double is whole: `1e3` is 1000.
fn json_value(text: &str) -> Value<'_> {
    match (text, text.parse::<f64>()) {
        ("true", _) => Value::Bool(true),
        ("false", _) => Value::Bool(false),
        (_, Ok(number)) => match tollgate_policy::decimal(number).map(|digits| digits.parse()) {
            Some(Ok(whole)) => Value::Whole(whole),
            Some(Err(_)) => Value::Number(number),
            None => Value::Text(text),
        },
        (_, Err(_)) => Value::Text(text),
    }
}

/// YAML 1.1, in lower case, in capitals, or with one capital.
fn boolean(text: &str) -> Option<bool> {
    let mut rest = text.chars();
    rest.next()?;
    let is_even = text.chars().all(|c| c.is_ascii_lowercase())
        || text.chars().all(|c| c.is_ascii_uppercase())
        || rest.all(|c| c.is_ascii_lowercase());
    match text.to_ascii_lowercase().as_str() {
        _ if !is_even => None,
        "y" | "yes" | "true" | "on" => Some(true),
        "n" | "no" | "false" | "off" => Some(false),
        _ => None,
    }
}

/// A whole number as C writes one: `0x` is hexadecimal, a leading `0` octal.
fn whole(text: &str) -> Option<i64> {
    let (digits, sign) = match text.as_bytes().first()? {
        b'-' => (text.get(1..)?, "-"),
        b'+' => (text.get(1..)?, ""),
        _ => (text, ""),
    };
    let hexadecimal = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X"));
    let (digits, radix) = match (hexadecimal, digits.strip_prefix('0')) {
        (Some(digits), _) => (digits, 16),
        (None, Some(digits)) if !digits.is_empty() => (digits, 8),
        _ => (digits, 10),
    };
    // `from_str_radix` would accept a second sign.
    let is_plain = digits.starts_with(|c: char| c.is_ascii_hexdigit());
    is_plain.then(|| i64::from_str_radix(&format!("{sign}{digits}"), radix).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(text: &str, reading: Reading) -> String {
        let scalar = Scalar { text: text.to_owned(), form: Form::Plain };
        serde_json::to_string(&reading.value(&scalar)).unwrap()
    }

    // Each value as Envoy 1.40 passes it to a filter.
    #[test]
    fn a_scalar_means_what_envoy_makes_of_it() {
        let rows = "off=false NO=false y=true Y=true yEs='yEs' ON=true oN='oN' n=false TRUE=true tRUE='tRUE' True=true \
                    010=8 0x1f=31 08='08' 1_000='1_000' +5=5 -3=-3 1.5='1.5' 1e3='1e3' .inf='.inf' ~=null null=null \
                    nULL='nULL' 2147483647=2147483647 2147483648='2147483648' 0x80000000='2147483648' +3000000000='3000000000' -2147483648=-2147483648 \
                    9999999999999999999999='9999999999999999999999' 0o17='0o17' 0b11='0b11' -0=0 00=0 0x='0x' -0x10=-16 \
                    -010=-8 +-5='+-5' -='-' 0=0 2001-01-01='2001-01-01'";
        for row in rows.split_whitespace() {
            let (text, expected) = row.split_once('=').unwrap();
            assert_eq!(plain(text, Reading::Envoy), expected.replace('\'', "\""), "{text}");
        }
        assert_eq!(plain("", Reading::Envoy), "null");
        assert_eq!(plain("2147483648", Reading::Policy), "2147483648");
        assert_eq!(plain("off", Reading::Json), "\"off\"");
        assert_eq!(plain("1.5", Reading::Json), "1.5");
        assert_eq!(plain("1e3", Reading::Json), "1000");
    }
}
