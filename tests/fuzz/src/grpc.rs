//! Any bytes as gRPC messages.
//!
//! Invariant checked: any bytes are a message or an error with its reason, of bounded size; a
//! message that comes in parts is the same as in one; values are within the bytes and their limits.
//! Fields written again, in their shortest form, are the same message. A crate that includes this
//! module has the server's `messages` at its root.

use crate::messages::authorization::{CheckRequest, MAX_HEADERS};
use crate::messages::rate_limit::{MAX_DESCRIPTORS, MAX_ENTRIES, RateLimitRequest};
use crate::messages::wire::{Fields, Value, Writer};
use crate::messages::{frame, health};

/// Reads them as every kind of message and frame.
pub fn check(bytes: &[u8]) {
    if let Ok(message) = frame::message(bytes) {
        assert_eq!(frame::framed(message), bytes);
    }
    assert_eq!(frame::message(&frame::framed(bytes)), Ok(bytes));
    let _ = frame::timeout(bytes);
    written_anew(bytes);
    if let Ok(service) = health::service(bytes) {
        assert!(service.len() <= bytes.len());
    }
    match RateLimitRequest::read(bytes) {
        Ok(request) => {
            assert!((1..=MAX_DESCRIPTORS).contains(&request.descriptors.len()));
            for descriptor in &request.descriptors {
                assert!((1..=MAX_ENTRIES).contains(&descriptor.entries.len()));
            }
        }
        Err(why) => assert!(!why.message.is_empty() && why.encoded_message().len() < 256),
    }
    match CheckRequest::read(bytes) {
        Ok(request) => {
            assert!(request.headers.len() <= MAX_HEADERS);
            // Unknown fields are ignored: field 15, of every type.
            let mut more = bytes.to_vec();
            more.extend([0x78, 1, 0x7a, 1, b'x', 0x79, 0, 0, 0, 0, 0, 0, 0, 0, 0x7d, 0, 0, 0, 0]);
            assert_eq!(CheckRequest::read(&more).as_ref(), Ok(&request));
        }
        Err(why) => assert!(!why.message.is_empty() && why.encoded_message().len() < 256),
    }
}

/// Writes the fields of a message again: their values stay the same, whatever the form of their
/// numbers and lengths.
fn written_anew(bytes: &[u8]) {
    let mut out = Writer::default();
    let (mut fields, mut is_whole) = (0, true);
    for field in Fields::of(bytes) {
        let Ok((number, value)) = field else {
            is_whole = false;
            continue;
        };
        assert!(is_whole, "nothing comes after an error");
        fields += 1;
        match value {
            Value::Varint(value) => out.any_number(number, value),
            Value::Bytes(value) => out.bytes(number, value),
            Value::Fixed(value) => match value.try_into() {
                Ok(value) => out.fixed64(number, u64::from_le_bytes(value)),
                // Four bytes, which this project never writes.
                Err(_) => return,
            },
        }
    }
    assert!(fields <= bytes.len() / 2, "a field has two bytes");
    if !is_whole {
        assert!(RateLimitRequest::read(bytes).is_err() && health::service(bytes).is_err());
        return;
    }
    let anew = out.finish();
    assert!(anew.len() <= bytes.len(), "the shortest form");
    assert_eq!(RateLimitRequest::read(&anew), RateLimitRequest::read(bytes));
    assert_eq!(CheckRequest::read(&anew), CheckRequest::read(bytes));
    assert_eq!(health::service(&anew), health::service(bytes));
    // Two parts, one after the other, are both combined.
    if let (Ok(one), Ok(two)) =
        (RateLimitRequest::read(bytes), RateLimitRequest::read(&[bytes, &anew].concat()))
    {
        assert_eq!((two.domain, two.descriptors.len()), (one.domain, 2 * one.descriptors.len()));
    }
}
