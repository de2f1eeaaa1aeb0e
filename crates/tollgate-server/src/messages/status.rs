//! The status of a call: a code and a message.
//!
//! Invariant: a message is text of this project, and is percent-encoded as "Responses" of the gRPC
//! project's PROTOCOL-HTTP2.md requires.

use super::wire::Malformed;

/// The codes that are used here, by the gRPC project's names and numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// The call succeeded.
    Ok,
    /// The request is invalid, and sending it again does not help.
    InvalidArgument,
    /// The caller's deadline has passed.
    DeadlineExceeded,
    /// The named thing does not exist.
    NotFound,
    /// This caller is not permitted.
    PermissionDenied,
    /// The request is too large, or there are too many.
    ResourceExhausted,
    /// The method is not implemented.
    Unimplemented,
    /// Not available now.
    Unavailable,
    /// The caller is not authenticated.
    Unauthenticated,
}

impl Code {
    /// Every code that is used here.
    pub const ALL: [Self; 9] = [
        Self::Ok,
        Self::InvalidArgument,
        Self::DeadlineExceeded,
        Self::NotFound,
        Self::PermissionDenied,
        Self::ResourceExhausted,
        Self::Unimplemented,
        Self::Unavailable,
        Self::Unauthenticated,
    ];

    /// Its name, as the gRPC project writes it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "OK",
            Self::InvalidArgument => "INVALID_ARGUMENT",
            Self::DeadlineExceeded => "DEADLINE_EXCEEDED",
            Self::NotFound => "NOT_FOUND",
            Self::PermissionDenied => "PERMISSION_DENIED",
            Self::ResourceExhausted => "RESOURCE_EXHAUSTED",
            Self::Unimplemented => "UNIMPLEMENTED",
            Self::Unavailable => "UNAVAILABLE",
            Self::Unauthenticated => "UNAUTHENTICATED",
        }
    }

    /// Its number.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::Ok => 0,
            Self::InvalidArgument => 3,
            Self::DeadlineExceeded => 4,
            Self::NotFound => 5,
            Self::PermissionDenied => 7,
            Self::ResourceExhausted => 8,
            Self::Unimplemented => 12,
            Self::Unavailable => 14,
            Self::Unauthenticated => 16,
        }
    }
}

/// The status of a call that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// The code.
    pub code: Code,
    /// The error, in one sentence.
    pub message: String,
}

impl Status {
    /// A status of this code and message.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// A status of [`Code::InvalidArgument`].
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(Code::InvalidArgument, message)
    }

    /// The message as the field `grpc-message`: all but %x20-24 and %x26-7E percent-encoded.
    #[must_use]
    pub fn encoded_message(&self) -> String {
        let mut out = String::with_capacity(self.message.len());
        for byte in self.message.bytes() {
            match byte {
                b' '..=b'$' | b'&'..=b'~' => out.push(char::from(byte)),
                _ => out.push_str(&format!("%{byte:02X}")),
            }
        }
        out
    }
}

impl From<Malformed> for Status {
    fn from(Malformed: Malformed) -> Self {
        Self::invalid("the message is not a protocol buffer of this call")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_listed_once() {
        for (index, code) in Code::ALL.iter().enumerate() {
            let is_other = |it: &Code| it.number() < code.number() && it.name() != code.name();
            assert!(Code::ALL.iter().take(index).all(is_other), "{code:?}");
        }
    }

    #[test]
    fn messages_are_percent_encoded() {
        assert_eq!(Status::invalid("5 %: \"ä\"\n").encoded_message(), "5 %25: \"%C3%A4\"%0A");
    }
}
