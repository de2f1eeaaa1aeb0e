//! A JSON text (RFC 8259), read in pieces of any size for the numbers at some pointers.
//!
//! Invariant: nothing of the text is kept but the position in it: the kind of each open container,
//! at most [`MAX_DEPTH`], and a number of at most 15 digits. Two things are not checked: the UTF-8
//! of a string, and that its escaped surrogates are pairs. Text that a client brought into a
//! response must not hide the numbers after it.

use crate::json_pointer::{Found, MAX_DEPTH, Places};

/// A document in progress.
pub(crate) struct JsonText {
    pub(crate) places: Places,
    at: At,
    /// The number of open containers.
    depth: usize,
    /// A bit for each of them, the innermost last: 1 for an array.
    arrays: u64,
    /// The current string is a name.
    is_name: bool,
    /// The first half of a pair of escaped surrogates in a name.
    high: Option<u16>,
}

/// The part of a document that may come next.
#[derive(Clone, Copy, PartialEq, Eq)]
enum At {
    /// Blanks or the document.
    Start,
    Value,
    ElementOrEnd,
    NameOrEnd,
    Name,
    Colon,
    /// A comma or the end of the container; after the document only blanks.
    AfterValue,
    Text,
    Escape,
    /// This many digits of an escape after these.
    Hex(u8, u16),
    Number(Number),
    /// The rest of `true`, `false` or `null`.
    Word(&'static [u8]),
    Malformed,
}

/// The part of a number that has come (RFC 8259, 6).
#[derive(Clone, Copy, PartialEq, Eq)]
enum Number {
    Zero,
    Digits,
    Minus,
    SignedZero,
    SignedDigits,
    Point,
    Fraction,
    E,
    ESign,
    Exponent,
}

impl Number {
    /// The part after `byte`; `None` when the number does not continue with it.
    const fn after(self, byte: u8) -> Option<Self> {
        Some(match (self, byte) {
            (Self::Minus, b'1'..=b'9') => Self::SignedDigits,
            (Self::Minus, b'0') => Self::SignedZero,
            (Self::Digits, b'0'..=b'9') => Self::Digits,
            (Self::SignedDigits, b'0'..=b'9') => Self::SignedDigits,
            (Self::Point | Self::Fraction, b'0'..=b'9') => Self::Fraction,
            (Self::Zero | Self::Digits | Self::SignedZero | Self::SignedDigits, b'.') => {
                Self::Point
            }
            (_, b'e' | b'E') if self.may_end() && !matches!(self, Self::Exponent) => Self::E,
            (Self::E, b'+' | b'-') => Self::ESign,
            (Self::E | Self::ESign | Self::Exponent, b'0'..=b'9') => Self::Exponent,
            _ => return None,
        })
    }

    const fn may_end(self) -> bool {
        !matches!(self, Self::Minus | Self::Point | Self::E | Self::ESign)
    }
}

const fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

impl JsonText {
    pub(crate) const fn new(places: Places) -> Self {
        Self { places, at: At::Start, depth: 0, arrays: 0, is_name: false, high: None }
    }

    /// The next bytes of the document.
    pub(crate) fn push(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() && self.at != At::Malformed {
            if self.at == At::Text {
                let is_plain = |byte: &u8| !matches!(byte, b'"' | b'\\' | 0..=0x1f);
                let len = bytes.iter().take_while(|byte| is_plain(byte)).count();
                let (plain, rest) = bytes.split_at_checked(len).unwrap_or_default();
                self.name(plain);
                bytes = rest;
            }
            let Some((byte, rest)) = bytes.split_first() else { return };
            self.byte(*byte);
            bytes = rest;
        }
    }

    /// The document has ended, or another begins. `is_whole` is false where its last bytes may be
    /// missing. Returns `None` for a valid one, else the reason why it is not.
    pub(crate) fn end(&mut self, is_whole: bool) -> Option<Found> {
        if self.depth == 0 && is_whole {
            self.end_number();
        }
        let problem = match self.at {
            At::AfterValue if self.depth == 0 => None,
            At::Start => Some(Found::Absent),
            At::Malformed => Some(Found::Unreadable),
            _ => Some(Found::Incomplete),
        };
        self.places.end_document(problem.is_none());
        (self.at, self.depth, self.arrays, self.high) = (At::Start, 0, 0, None);
        problem
    }

    fn byte(&mut self, byte: u8) {
        self.at = match self.at {
            At::Start | At::Value | At::ElementOrEnd | At::NameOrEnd | At::Name | At::Colon
                if is_blank(byte) =>
            {
                return;
            }
            At::AfterValue if is_blank(byte) => return,
            At::ElementOrEnd if byte == b']' => self.close(),
            At::ElementOrEnd => {
                self.places.begin_element(self.depth);
                self.value(byte)
            }
            At::Start | At::Value => self.value(byte),
            At::NameOrEnd if byte == b'}' => self.close(),
            At::NameOrEnd | At::Name if byte == b'"' => {
                self.is_name = true;
                self.places.begin_name(self.depth);
                At::Text
            }
            At::Colon if byte == b':' => At::Value,
            At::AfterValue => self.after_value(byte),
            At::Text => self.text(byte),
            At::Escape => self.escape(byte),
            At::Hex(left, code) => self.hex(left, code, byte),
            At::Word([next, rest @ ..]) if *next == byte => {
                if rest.is_empty() {
                    self.end_value()
                } else {
                    At::Word(rest)
                }
            }
            At::Number(number) => return self.number(number, byte),
            At::NameOrEnd | At::Name | At::Colon | At::Word(_) | At::Malformed => At::Malformed,
        };
    }

    /// A value begins with `byte`.
    fn value(&mut self, byte: u8) -> At {
        if let b'0'..=b'9' = byte {
            self.places.begin_digits(byte);
            return At::Number(if byte == b'0' { Number::Zero } else { Number::Digits });
        }
        self.places.note_other(self.depth);
        match byte {
            b'"' => {
                self.is_name = false;
                At::Text
            }
            b'-' => At::Number(Number::Minus),
            b't' => At::Word(b"rue"),
            b'f' => At::Word(b"alse"),
            b'n' => At::Word(b"ull"),
            b'{' | b'[' if self.depth < MAX_DEPTH => {
                let is_array = byte == b'[';
                self.arrays = self.arrays << 1 | u64::from(is_array);
                self.depth = self.depth.saturating_add(1);
                if !is_array {
                    return At::NameOrEnd;
                }
                self.places.begin_array(self.depth);
                At::ElementOrEnd
            }
            _ => At::Malformed,
        }
    }

    fn is_in_array(&self) -> bool {
        self.arrays & 1 == 1
    }

    fn after_value(&mut self, byte: u8) -> At {
        match (byte, self.is_in_array()) {
            _ if self.depth == 0 => At::Malformed,
            (b',', false) => At::Name,
            (b',', true) => {
                self.places.next_element(self.depth);
                self.places.begin_element(self.depth);
                At::Value
            }
            (b']', true) | (b'}', false) => self.close(),
            _ => At::Malformed,
        }
    }

    fn close(&mut self) -> At {
        self.depth = self.depth.saturating_sub(1);
        self.arrays >>= 1;
        self.end_value()
    }

    fn end_value(&mut self) -> At {
        self.places.end_value(self.depth);
        At::AfterValue
    }

    fn number(&mut self, number: Number, byte: u8) {
        if let Some(after) = number.after(byte) {
            if after == Number::Digits {
                self.places.digit(byte);
            } else if matches!((number, after), (Number::Zero | Number::Digits, _)) {
                // A fraction or an exponent follows: it is not a number of digits alone.
                self.places.note_other(self.depth);
            }
            self.at = At::Number(after);
            return;
        }
        self.end_number();
        match self.at {
            At::AfterValue => self.byte(byte),
            _ => self.at = At::Malformed,
        }
    }

    /// Ends a number that is complete.
    fn end_number(&mut self) {
        let At::Number(number) = self.at else { return };
        if number.may_end() {
            if matches!(number, Number::Zero | Number::Digits) {
                self.places.note_digits(self.depth);
            }
            self.at = self.end_value();
        }
    }

    /// Bytes of a string, its escapes decoded.
    fn name(&mut self, bytes: &[u8]) {
        if !self.is_name || bytes.is_empty() {
            return;
        }
        if self.high.take().is_some() {
            self.places.name(NO_CHARACTER, self.depth);
        }
        self.places.name(bytes, self.depth);
    }

    fn text(&mut self, byte: u8) -> At {
        match byte {
            b'\\' => At::Escape,
            b'"' if self.is_name => {
                if self.high.take().is_some() {
                    self.places.name(NO_CHARACTER, self.depth);
                }
                self.places.end_name(self.depth);
                At::Colon
            }
            b'"' => self.end_value(),
            // A control character: all others are skipped.
            _ => At::Malformed,
        }
    }

    fn escape(&mut self, byte: u8) -> At {
        let decoded = match byte {
            b'"' | b'\\' | b'/' => byte,
            b'b' => 8,
            b'f' => 12,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'u' => return At::Hex(4, 0),
            _ => return At::Malformed,
        };
        self.name(&[decoded]);
        At::Text
    }

    fn hex(&mut self, left: u8, code: u16, byte: u8) -> At {
        let Some(digit) = char::from(byte).to_digit(16).and_then(|it| u16::try_from(it).ok())
        else {
            return At::Malformed;
        };
        let code = code << 4 | digit;
        let left = left.saturating_sub(1);
        if left > 0 {
            return At::Hex(left, code);
        }
        if self.is_name {
            self.code_unit(code);
        }
        At::Text
    }

    /// An escaped unit of UTF-16 in a name (RFC 8259, 7).
    fn code_unit(&mut self, unit: u16) {
        let pair = self.high.filter(|_| (0xdc00..0xe000).contains(&unit));
        if (0xd800..0xdc00).contains(&unit) {
            self.name(if self.high.is_some() { NO_CHARACTER } else { &[] });
            self.high = Some(unit);
            return;
        }
        let character = match pair {
            Some(high) => {
                self.high = None;
                char::decode_utf16([high, unit]).next().and_then(Result::ok)
            }
            None => char::from_u32(unit.into()),
        };
        match character {
            Some(character) => self.name(character.encode_utf8(&mut [0; 4]).as_bytes()),
            None => self.name(NO_CHARACTER),
        }
    }
}

/// A byte that no pointer contains, for half of a pair of surrogates.
const NO_CHARACTER: &[u8] = &[0xff];
