//! The protocol: RESP 2. Commands as bytes, replies from bytes.
//!
//! Invariant: any bytes are a reply, the beginning of one, or nonsense. Reading takes at most
//! [`MAX_REPLY`] bytes and [`MAX_ITEMS`] parts, whatever length the engine announces: it may be
//! another program, or a malicious one.
//!
//! Source: the Redis serialization protocol specification, version 2.

use std::fmt;

/// The most bytes of one reply: a value of one mebibyte with its framing, or the map of a large
/// cluster.
pub const MAX_REPLY: usize = 4 << 20;

/// The most parts of one reply: a cluster of a thousand nodes whose slots are scattered.
pub const MAX_ITEMS: usize = 65_536;

/// Nesting of arrays: a map of slots has three levels.
const MAX_DEPTH: u32 = 8;

/// The longest line: an error may quote the command.
const MAX_LINE: usize = 4_096;

/// A reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// `+`: a word.
    Simple(Vec<u8>),
    /// `-`: an error; its first word identifies it.
    Error(Vec<u8>),
    /// `:`
    Int(i64),
    /// `$`: bytes, or nothing.
    Bulk(Option<Vec<u8>>),
    /// `*`: several, or nothing.
    Array(Option<Vec<Value>>),
}

/// Bytes that cannot begin a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MalformedReply;

impl fmt::Display for MalformedReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("these bytes are not a reply of the protocol")
    }
}

impl std::error::Error for MalformedReply {}

impl Value {
    /// The bytes of a word or of a bulk.
    #[must_use]
    pub fn bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Simple(bytes) | Self::Bulk(Some(bytes)) => Some(bytes),
            Self::Error(_) | Self::Int(_) | Self::Bulk(None) | Self::Array(_) => None,
        }
    }

    /// A number, as an integer or as digits.
    #[must_use]
    pub fn number(&self) -> Option<u64> {
        match self {
            Self::Int(number) => u64::try_from(*number).ok(),
            _ => std::str::from_utf8(self.bytes()?).ok()?.parse().ok(),
        }
    }

    /// The parts of an array.
    #[must_use]
    pub fn parts(&self) -> Option<&[Self]> {
        match self {
            Self::Array(Some(parts)) => Some(parts),
            _ => None,
        }
    }
}

/// Appends a command to `out`.
pub fn command(arguments: &[&[u8]], out: &mut Vec<u8>) {
    head(b'*', arguments.len(), out);
    for argument in arguments {
        head(b'$', argument.len(), out);
        out.extend_from_slice(argument);
        out.extend_from_slice(b"\r\n");
    }
}

fn head(kind: u8, number: usize, out: &mut Vec<u8>) {
    out.push(kind);
    let mut digits = [0; 20];
    let mut rest = number;
    let mut len = 0;
    for digit in digits.iter_mut().rev() {
        *digit = b'0'.saturating_add(u8::try_from(rest.rem_euclid(10)).unwrap_or(0));
        rest = rest.div_euclid(10);
        len = 1_usize.saturating_add(len);
        if rest == 0 {
            break;
        }
    }
    let from = digits.len().saturating_sub(len);
    out.extend_from_slice(digits.get(from..).unwrap_or_default());
    out.extend_from_slice(b"\r\n");
}

/// Reads one reply from the front of `bytes`: returns it and its length, or `None` if more bytes
/// are needed.
///
/// # Errors
/// No further bytes could make it a reply, or it is too large.
pub fn read(bytes: &[u8]) -> Result<Option<(Value, usize)>, MalformedReply> {
    let mut reader = Reader { rest: bytes, items: 0 };
    match reader.value(0) {
        Ok(value) => Ok(Some((value, bytes.len().saturating_sub(reader.rest.len())))),
        Err(Stop::Short) if bytes.len() > MAX_REPLY => Err(MalformedReply),
        Err(Stop::Short) => Ok(None),
        Err(Stop::Nonsense) => Err(MalformedReply),
    }
}

enum Stop {
    Short,
    Nonsense,
}

struct Reader<'b> {
    rest: &'b [u8],
    items: usize,
}

impl<'b> Reader<'b> {
    fn value(&mut self, depth: u32) -> Result<Value, Stop> {
        self.items = self.items.saturating_add(1);
        if self.items > MAX_ITEMS || depth > MAX_DEPTH {
            return Err(Stop::Nonsense);
        }
        let Some((kind, rest)) = self.rest.split_first() else { return Err(Stop::Short) };
        if !b"+-:$*".contains(kind) {
            return Err(Stop::Nonsense);
        }
        self.rest = rest;
        let line = self.line()?;
        match kind {
            b'+' => Ok(Value::Simple(line.to_vec())),
            b'-' => Ok(Value::Error(line.to_vec())),
            b':' => Ok(Value::Int(number(line)?)),
            b'$' => self.bulk(number(line)?),
            _ => self.array(number(line)?, depth),
        }
    }

    fn line(&mut self) -> Result<&'b [u8], Stop> {
        let Some(end) = self.rest.iter().take(MAX_LINE).position(|byte| b"\r\n".contains(byte))
        else {
            return Err(if self.rest.len() < MAX_LINE { Stop::Short } else { Stop::Nonsense });
        };
        let (line, rest) = self.rest.split_at_checked(end).ok_or(Stop::Nonsense)?;
        self.rest = rest;
        self.end_of_line()?;
        Ok(line)
    }

    fn end_of_line(&mut self) -> Result<(), Stop> {
        match self.rest {
            [b'\r', b'\n', rest @ ..] => {
                self.rest = rest;
                Ok(())
            }
            [] | [b'\r'] => Err(Stop::Short),
            _ => Err(Stop::Nonsense),
        }
    }

    fn bulk(&mut self, len: i64) -> Result<Value, Stop> {
        if len == -1 {
            return Ok(Value::Bulk(None));
        }
        let len = usize::try_from(len).map_err(|_| Stop::Nonsense)?;
        if len > MAX_REPLY {
            return Err(Stop::Nonsense);
        }
        let (bytes, rest) = self.rest.split_at_checked(len).ok_or(Stop::Short)?;
        self.rest = rest;
        self.end_of_line()?;
        Ok(Value::Bulk(Some(bytes.to_vec())))
    }

    fn array(&mut self, len: i64, depth: u32) -> Result<Value, Stop> {
        if len == -1 {
            return Ok(Value::Array(None));
        }
        let len = usize::try_from(len).map_err(|_| Stop::Nonsense)?;
        if len > MAX_ITEMS {
            return Err(Stop::Nonsense);
        }
        // No memory is reserved for announced parts.
        let mut parts = Vec::new();
        for _ in 0..len {
            parts.push(self.value(depth.saturating_add(1))?);
        }
        Ok(Value::Array(Some(parts)))
    }
}

fn number(line: &[u8]) -> Result<i64, Stop> {
    std::str::from_utf8(line).ok().and_then(|text| text.parse().ok()).ok_or(Stop::Nonsense)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_arrays_of_bytes() {
        let mut out = Vec::new();
        command(&[b"SET", b"a\r\n", &[b'x'; 12], b""], &mut out);
        assert_eq!(out, b"*4\r\n$3\r\nSET\r\n$3\r\na\r\n\r\n$12\r\nxxxxxxxxxxxx\r\n$0\r\n\r\n");
    }

    #[test]
    fn replies_are_read_whole_or_waited_for() {
        let reply = b"*5\r\n:-7\r\n$2\r\n\r\n\r\n$-1\r\n-ERR no\r\n*2\r\n+OK\r\n*-1\r\n";
        let value = Value::Array(Some(vec![
            Value::Int(-7),
            Value::Bulk(Some(b"\r\n".to_vec())),
            Value::Bulk(None),
            Value::Error(b"ERR no".to_vec()),
            Value::Array(Some(vec![Value::Simple(b"OK".to_vec()), Value::Array(None)])),
        ]));
        for end in 0..reply.len() {
            assert_eq!(read(reply.get(..end).unwrap_or_default()), Ok(None), "{end}");
        }
        let followed = [&reply[..], b":1\r\n"].concat();
        assert_eq!(read(&followed), Ok(Some((value, reply.len()))));
    }

    #[test]
    fn nonsense_is_told_at_once_and_takes_no_room() {
        for bytes in [
            &b"HTTP/1.1 400 Bad Request\r\n"[..],
            b":\r\n",
            b":1\n",
            b"+OK\rx",
            b"$-2\r\n",
            b"$9223372036854775807\r\n",
            b"*9223372036854775807\r\n",
            b"*65537\r\n",
            b"$4194305\r\n",
            b"$1\r\nabc",
            b"*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n",
            &[b'+'; MAX_LINE + 1],
        ] {
            assert_eq!(read(bytes), Err(MalformedReply), "{}", bytes.escape_ascii());
        }
        // As many arrays as the limit of parts, each of which announces as many.
        let promises = b"*65536\r\n".repeat(8);
        assert_eq!(read(&promises), Ok(None));
        assert_eq!(read(&b"*1\r\n".repeat(70_000)), Err(MalformedReply));
    }
}
