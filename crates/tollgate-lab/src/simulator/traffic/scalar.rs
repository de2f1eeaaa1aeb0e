//! The small values of a traffic document: numbers within bounds, times, rates, texts.
//!
//! Invariant: every number is bounded where it is parsed, so nothing made from a document can grow
//! without one of these bounds. A mistake shows the text in the document and the allowed values;
//! the reader adds its place.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tollgate_core::{MAX_WINDOW, Span};

/// The most instants and bins.
const MAX_LISTED: usize = 100_000;
/// Bytes of a text.
const MAX_TEXT: usize = 4_096;
/// Headers of a request.
const MAX_HEADERS: usize = 64;
/// Entries of a descriptor.
const MAX_ENTRIES: usize = 32;

/// A whole number from `MIN` to `MAX`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Bounded<const MIN: u64, const MAX: u64>(pub(crate) u64);

/// How many clients, requests or attempts.
pub(crate) type Count = Bounded<1, 1_000_000>;
/// How many requests in a bin.
pub(crate) type Bin = Bounded<0, 1_000_000>;
/// How many nodes.
pub(crate) type Nodes = Bounded<1, 64>;
/// Millionths.
pub(crate) type Ppm = Bounded<0, 500_000>;
/// A cost.
pub(crate) type Units = Bounded<0, 1_000_000_000>;
/// The status of a response.
pub(crate) type StatusCode = Bounded<100, 599>;

/// The status of the origin's response; 200 by default.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(transparent)]
pub(crate) struct Status(pub(crate) StatusCode);

impl Default for Status {
    fn default() -> Self {
        Self(Bounded(200))
    }
}

impl<const MIN: u64, const MAX: u64> Default for Bounded<MIN, MAX> {
    fn default() -> Self {
        Self(MIN)
    }
}

impl<'de, const MIN: u64, const MAX: u64> Deserialize<'de> for Bounded<MIN, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Whole<const MIN: u64, const MAX: u64>;
        impl<const MIN: u64, const MAX: u64> Visitor<'_> for Whole<MIN, MAX> {
            type Value = u64;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a whole number from {MIN} to {MAX}")
            }
            fn visit_u64<E: Error>(self, n: u64) -> Result<u64, E> {
                let is_within = (MIN..=MAX).contains(&n);
                let wrong = || E::invalid_value(Unexpected::Unsigned(n), &self);
                is_within.then_some(n).ok_or_else(wrong)
            }
        }
        deserializer.deserialize_u64(Whole::<MIN, MAX>).map(Self)
    }
}

/// How uneven clients are, from 0 to 4, in thousandths: this gives the same number on every
/// machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exponent(pub(crate) u16);

#[expect(
    clippy::float_arithmetic,
    clippy::as_conversions,
    reason = "a number as people write it, and as chance needs it"
)]
impl Exponent {
    pub(crate) fn value(self) -> f64 {
        f64::from(self.0) / 1_000.0
    }

    fn new(value: f64) -> Option<Self> {
        let is_within = (0.0..=4.0).contains(&value);
        is_within.then_some(Self(libm::round(value * 1_000.0) as u16)) // at most 4,000
    }
}

impl<'de> Deserialize<'de> for Exponent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = f64::deserialize(deserializer)?;
        let wrong = || Error::invalid_value(Unexpected::Float(value), &"a number from 0 to 4");
        Self::new(value).ok_or_else(wrong)
    }
}

impl Serialize for Exponent {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.value())
    }
}

/// A list of at most [`MAX_LISTED`].
#[derive(Clone, Debug, Serialize)]
#[serde(transparent)]
pub(crate) struct Listed<T>(pub(crate) Vec<T>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Listed<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let list = Vec::deserialize(deserializer)?;
        let wrong = || Error::invalid_length(list.len(), &"a list of at most 100000");
        if list.len() > MAX_LISTED { Err(wrong()) } else { Ok(Self(list)) }
    }
}

/// A text of one line.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(transparent)]
pub(crate) struct Text(pub(crate) String);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text.len() > MAX_TEXT || text.bytes().any(|b| matches!(b, b'\r' | b'\n' | 0)) {
            return Err(Error::custom("use one line of at most 4096 bytes"));
        }
        Ok(Self(text))
    }
}

/// Header values by name, in lower case.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(transparent)]
pub(crate) struct Headers(pub(crate) BTreeMap<String, Text>);

impl<'de> Deserialize<'de> for Headers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let given = BTreeMap::<String, Text>::deserialize(deserializer)?;
        if given.len() > MAX_HEADERS {
            return Err(Error::invalid_length(given.len(), &"at most 64 headers"));
        }
        Ok(Self(
            given.into_iter().map(|(name, value)| (name.to_ascii_lowercase(), value)).collect(),
        ))
    }
}

/// The entries of a descriptor in their order, each an object of one key: `[{"user": "{client}"}]`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Descriptor(pub(crate) Vec<(Text, Text)>);

impl Descriptor {
    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<'de> Deserialize<'de> for Descriptor {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let given = Vec::<BTreeMap<String, Text>>::deserialize(deserializer)?;
        if given.len() > MAX_ENTRIES {
            return Err(Error::invalid_length(given.len(), &"at most 32 entries"));
        }
        if given.iter().any(|entry| entry.len() != 1) {
            return Err(Error::custom("an entry of a descriptor is an object with one key"));
        }
        let entries = given.into_iter().flatten();
        Ok(Self(entries.map(|(key, value)| (Text(key), value)).collect()))
    }
}

impl Serialize for Descriptor {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let entries = self.0.iter().map(|(key, value)| BTreeMap::from([(&*key.0, value)]));
        serializer.collect_seq(entries)
    }
}

/// A length of time: `500us`, `20ms`, `10s`, `1m`, `1h`, `1d`; at most 366 days.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Time(pub(crate) Span);

impl Time {
    /// No time at all.
    pub(crate) fn is_zero(&self) -> bool {
        self.0 == Span::ZERO
    }
}

/// The same, but greater than zero.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Positive(pub(crate) Span);

/// This count per this time: `10/1s`, or `10/s`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rate {
    pub(crate) count: u64,
    pub(crate) per: Span,
}

const UNITS: [(&str, u64); 6] = [
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
    ("d", 86_400_000_000_000),
];

fn parse_time(text: &str) -> Option<Span> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at_checked(digits)?;
    let (_, nanos) = UNITS.iter().find(|(name, _)| *name == unit)?;
    let span = Span::from_nanos(number.parse::<u64>().ok()?.checked_mul(*nanos)?);
    (span <= MAX_WINDOW).then_some(span)
}

/// Writes a length of time in its shortest form.
struct Written(Span);

impl fmt::Display for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.as_nanos();
        if nanos == 0 {
            return f.write_str("0s");
        }
        let divides = |(_, unit): &&(&str, u64)| nanos.checked_rem(*unit) == Some(0);
        let (name, unit) = UNITS.iter().rev().find(divides).unwrap_or(&("us", 1_000));
        write!(f, "{}{name}", nanos.checked_div(*unit).unwrap_or(0))
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        parse_time(&text).map(Self).ok_or_else(|| {
            let wanted = "a length of time; use 0s to 366d, such as \"500us\", \"20ms\", \"10s\", \"1m\" or \"1h\"";
            Error::invalid_value(Unexpected::Str(&text), &wanted)
        })
    }
}

impl<'de> Deserialize<'de> for Positive {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Time(span) = Time::deserialize(deserializer)?;
        let is_some = span > Span::ZERO;
        is_some.then_some(Self(span)).ok_or_else(|| Error::custom("must be more than 0s"))
    }
}

impl<'de> Deserialize<'de> for Rate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let parsed = text.split_once('/').and_then(|(count, per)| {
            let count = count.parse().ok().filter(|n| *n <= 1_000_000)?;
            let per = parse_time(per).or_else(|| parse_time(&format!("1{per}")))?;
            (per > Span::ZERO).then_some(Self { count, per })
        });
        parsed.ok_or_else(|| {
            let wanted = "a rate; use 0 to 1000000 in a time, such as \"10/1s\" or \"5/2m\"";
            Error::invalid_value(Unexpected::Str(&text), &wanted)
        })
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&Written(self.0))
    }
}

impl Serialize for Positive {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&Written(self.0))
    }
}

impl Serialize for Rate {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{}/{}", self.count, Written(self.per)))
    }
}
