//! Protocol buffers (the encoding guide of protobuf.dev), read in place and written.
//!
//! Invariant: reading allocates nothing and ends: each step takes at least one byte. As in every
//! reader of protobuf: unknown fields are skipped; of a value that occurs several times the last
//! one counts; a message that comes in parts is the parts combined. A known field of another wire
//! type is malformed. Deliberately absent: groups, which proto3 does not have.

/// The bytes are not a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// The value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// A number or a boolean.
    Varint(u64),
    /// Four or eight bytes.
    Fixed(&'a [u8]),
    /// A text, bytes, or a message.
    Bytes(&'a [u8]),
}

impl<'a> Value<'a> {
    /// The bytes of a text or a message.
    ///
    /// # Errors
    /// It is something else.
    pub const fn bytes(self) -> Result<&'a [u8], Malformed> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            Self::Varint(_) | Self::Fixed(_) => Err(Malformed),
        }
    }

    /// The number.
    ///
    /// # Errors
    /// It is something else.
    pub const fn number(self) -> Result<u64, Malformed> {
        match self {
            Self::Varint(number) => Ok(number),
            Self::Bytes(_) | Self::Fixed(_) => Err(Malformed),
        }
    }
}

/// The fields of a message, in their order: number and value. Ends after the first error.
#[derive(Clone, Copy, Debug)]
pub struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    /// The fields of `message`.
    #[must_use]
    pub const fn of(message: &'a [u8]) -> Self {
        Self(message)
    }

    fn next_field(&mut self) -> Result<(u32, Value<'a>), Malformed> {
        // A key is 32 bits: the number of the field, and three bits of its type.
        let key = u32::try_from(self.varint()?).map_err(|_| Malformed)?;
        let value = match key & 7 {
            0 => Value::Varint(self.varint()?),
            1 => Value::Fixed(self.take(8)?),
            2 => {
                let length = usize::try_from(self.varint()?).map_err(|_| Malformed)?;
                Value::Bytes(self.take(length)?)
            }
            5 => Value::Fixed(self.take(4)?),
            _ => return Err(Malformed),
        };
        match key >> 3 {
            0 => Err(Malformed),
            number => Ok((number, value)),
        }
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    /// At most ten bytes of seven bits, the least significant first; a value beyond 64 bits is an
    /// error.
    fn varint(&mut self) -> Result<u64, Malformed> {
        let mut number = 0_u64;
        for shift in (0..70).step_by(7) {
            let (byte, rest) = self.0.split_first().ok_or(Malformed)?;
            self.0 = rest;
            let bits = u64::from(byte & 0x7f);
            let moved = bits.checked_shl(shift).filter(|moved| moved >> shift == bits);
            number |= moved.ok_or(Malformed)?;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(Malformed)
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u32, Value<'a>), Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let next = self.next_field();
        if next.is_err() {
            self.0 = &[];
        }
        Some(next)
    }
}

/// Calls `each` with every value of field `number` in `message`.
///
/// # Errors
/// The message is malformed, or `each` failed.
pub fn each<'a, E: From<Malformed>>(
    message: &'a [u8],
    number: u32,
    mut each: impl FnMut(Value<'a>) -> Result<(), E>,
) -> Result<(), E> {
    for field in Fields::of(message) {
        let (found, value) = field?;
        if found == number {
            each(value)?;
        }
    }
    Ok(())
}

/// Writes a message.
#[derive(Clone, Debug, Default)]
pub struct Writer(Vec<u8>);

impl Writer {
    /// Writes a number; 0 is the value of an absent field, so it is not written.
    pub fn number(&mut self, field: u32, number: u64) {
        if number != 0 {
            self.key(field, 0);
            self.varint(number);
        }
    }

    /// Writes a number, also when it is 0: the value of a field in a `oneof`.
    pub fn any_number(&mut self, field: u32, number: u64) {
        self.key(field, 0);
        self.varint(number);
    }

    /// Writes a number as eight bytes, also when it is 0.
    pub fn fixed64(&mut self, field: u32, number: u64) {
        self.key(field, 1);
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    /// Writes bytes or a text, also when it is empty.
    pub fn bytes(&mut self, field: u32, bytes: &[u8]) {
        self.key(field, 2);
        self.varint(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
        self.0.extend_from_slice(bytes);
    }

    /// Writes a message.
    pub fn message(&mut self, field: u32, write: impl FnOnce(&mut Self)) {
        let mut inner = Self::default();
        write(&mut inner);
        self.bytes(field, &inner.0);
    }

    /// The bytes of the message.
    #[must_use]
    pub fn finish(self) -> Vec<u8> {
        self.0
    }

    fn key(&mut self, field: u32, wire_type: u64) {
        self.varint(u64::from(field) << 3 | wire_type);
    }

    fn varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(low_bits(number) | 0x80);
            number >>= 7;
        }
        self.0.push(low_bits(number));
    }
}

fn low_bits(number: u64) -> u8 {
    u8::try_from(number & 0x7f).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_at_most_64_bits() {
        let mut most = vec![8];
        most.extend([0xff; 9]);
        for (last, expected) in [
            (1, Ok((1, Value::Varint(u64::MAX)))),
            (2, Err(Malformed)),    // a sixty-fifth bit
            (0x81, Err(Malformed)), // an eleventh byte
        ] {
            let bytes = [&most[..], &[last]].concat();
            assert_eq!(Fields::of(&bytes).next(), Some(expected), "{last}");
        }
        for number in [1, 127, 128, 300, u64::from(u32::MAX), u64::MAX] {
            let mut writer = Writer::default();
            writer.number(7, number);
            let expected = Some(Ok((7, Value::Varint(number))));
            assert_eq!(Fields::of(&writer.finish()).next(), expected);
        }
    }

    #[test]
    fn what_is_cut_is_malformed_and_ends() {
        let mut writer = Writer::default();
        writer.bytes(1, b"abc");
        writer.message(2, |inner| inner.number(1, 300));
        let whole = writer.finish();
        assert_eq!(Fields::of(&whole).count(), 2);
        for end in 1..whole.len() {
            let fields: Vec<_> = Fields::of(&whole[..end]).collect();
            let is_between = end == 5;
            assert_eq!(fields.iter().any(Result::is_err), !is_between, "{end}");
        }
        // Field 0, a group, a key beyond 32 bits, a length beyond the message.
        for wrong in [&[0, 0][..], &[0x0b], &[0x88, 0x80, 0x80, 0x80, 0x10, 0], &[0x0a, 5, 1]] {
            assert_eq!(Fields::of(wrong).next(), Some(Err(Malformed)), "{wrong:?}");
        }
    }
}
