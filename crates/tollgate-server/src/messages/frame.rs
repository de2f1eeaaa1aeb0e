//! The framing of a message: its length, and how long the caller waits (PROTOCOL-HTTP2.md of the
//! gRPC project).
//!
//! Invariant: a unary call has one message, whole and not compressed.

use std::time::Duration;

use super::status::{Code, Status};

/// The compression flag and four bytes of length.
pub const PREFIX: usize = 5;

/// The one message of a body.
///
/// # Errors
/// The body contains no message, more than one, a truncated one, or a compressed one.
pub fn message(body: &[u8]) -> Result<&[u8], Status> {
    let cut = || Status::invalid("the body is not one whole message");
    let (prefix, message) = body.split_first_chunk::<PREFIX>().ok_or_else(cut)?;
    let [flag, length @ ..] = *prefix;
    match flag {
        0 => {}
        1 => {
            let message = "compressed messages are not read; send \"grpc-encoding: identity\"";
            return Err(Status::new(Code::Unimplemented, message));
        }
        _ => return Err(Status::invalid("the flags of the message are not those of gRPC")),
    }
    let is_whole = u32::try_from(message.len()) == Ok(u32::from_be_bytes(length));
    is_whole.then_some(message).ok_or_else(cut)
}

/// Frames a message for sending.
#[must_use]
pub fn framed(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    let mut out = Vec::with_capacity(PREFIX.saturating_add(message.len()));
    out.push(0);
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(message);
    out
}

/// How long the caller waits, from the field `grpc-timeout`: at most eight digits and a unit.
/// `None` for any other text; then there is no deadline.
#[must_use]
pub fn timeout(text: &[u8]) -> Option<Duration> {
    let (unit, digits) = text.split_last()?;
    if digits.is_empty() || digits.len() > 8 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number: u64 = std::str::from_utf8(digits).ok()?.parse().ok()?;
    Some(match unit {
        b'H' => Duration::from_secs(number.saturating_mul(3600)),
        b'M' => Duration::from_secs(number.saturating_mul(60)),
        b'S' => Duration::from_secs(number),
        b'm' => Duration::from_millis(number),
        b'u' => Duration::from_micros(number),
        b'n' => Duration::from_nanos(number),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_one_message() {
        assert_eq!(message(&framed(b"")), Ok(&b""[..]));
        assert_eq!(message(&framed(b"abc")), Ok(&b"abc"[..]));
        let two = [framed(b"a"), framed(b"b")].concat();
        for wrong in [&b""[..], &[0, 0, 0, 0], &[0, 0, 0, 0, 1], &[2, 0, 0, 0, 0], &two] {
            assert_eq!(message(wrong).map_err(|it| it.code), Err(Code::InvalidArgument));
        }
        let compressed = message(&[1, 0, 0, 0, 0]).map_err(|it| it.code);
        assert_eq!(compressed, Err(Code::Unimplemented));
    }

    #[test]
    fn a_timeout_has_eight_digits_and_a_unit() {
        let rows = [
            ("20m", Some(Duration::from_millis(20))),
            ("1S", Some(Duration::from_secs(1))),
            ("99999999H", Some(Duration::from_secs(99_999_999 * 3600))),
            ("2M", Some(Duration::from_secs(120))),
            ("7u", Some(Duration::from_micros(7))),
            ("7n", Some(Duration::from_nanos(7))),
            ("100000000n", None),
            ("m", None),
            ("", None),
            ("1", None),
            ("-1S", None),
            ("1s", None),
        ];
        for (text, expected) in rows {
            assert_eq!(timeout(text.as_bytes()), expected, "{text}");
        }
    }
}
