//! The messages between an isolate that follows the policy in force and the policy object: the
//! question of every five seconds, in few bytes, and the policy as it was compiled there. So a
//! request that is decided never parses JSON or a document.
//!
//! Invariant: any bytes are parsed as a question, a reply or neither. Neither begins as JSON does.
//! An earlier version of the code understands only JSON: in that case the isolate asks in JSON, as
//! it does for content that this format cannot express. All numbers are little-endian; no number of
//! a version is 0.

use tollgate_service::Source;
use tollgate_storage::Bytes;

const TAG: u8 = 1;

/// The policy in force. Requested as [`PolicyCall::Read`](tollgate_service::PolicyCall::Read)
/// without the deployed text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Question {
    /// The fingerprint of the deployed file.
    pub(crate) fingerprint: u64,
    /// The version that the isolate knows already.
    pub(crate) known: Option<u64>,
    /// The newest generation found in a count.
    pub(crate) seen: Option<u64>,
    pub(crate) now_ms: u64,
}

/// The policy in force; as [`Current`](tollgate_service::Current).
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct InForce {
    pub(crate) version: u64,
    pub(crate) generation: u64,
    pub(crate) relieved: u64,
    pub(crate) source: Source,
    /// The policy compiled; empty where the isolate knows it.
    pub(crate) compiled: Vec<u8>,
}

impl Question {
    pub(crate) fn to_bytes(self) -> Vec<u8> {
        let Self { fingerprint, known, seen, now_ms } = self;
        let mut bytes = vec![TAG];
        for number in [fingerprint, known.unwrap_or(0), seen.unwrap_or(0), now_ms] {
            bytes.extend(number.to_le_bytes());
        }
        bytes
    }

    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let ([fingerprint, known, seen, now_ms], []) = numbers(bytes)? else { return None };
        let some = |number| Some(number).filter(|number| *number > 0);
        Some(Self { fingerprint, known: some(known), seen: some(seen), now_ms })
    }
}

impl InForce {
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let Self { version, generation, relieved, source, compiled } = self;
        let source = match source {
            Source::Deployed => 0,
            Source::Written => 1,
        };
        let mut bytes = vec![TAG];
        for number in [*version, *generation, *relieved, source] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend_from_slice(compiled);
        bytes
    }

    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let ([version, generation, relieved, source], compiled) = numbers(bytes)?;
        let source = match source {
            0 => Source::Deployed,
            1 => Source::Written,
            _ => return None,
        };
        let compiled = compiled.to_vec();
        Some(Self { version, generation, relieved, source, compiled })
    }
}

/// The four numbers after the tag, and the rest of the bytes.
fn numbers(bytes: &[u8]) -> Option<([u64; 4], &[u8])> {
    let mut rest = Bytes(bytes.strip_prefix(&[TAG])?);
    let mut numbers = [0; 4];
    for number in &mut numbers {
        *number = rest.u64()?;
    }
    Some((numbers, rest.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_service::{PolicyCall, StoreCall};

    #[test]
    fn what_is_written_is_read_and_nothing_else() {
        let question =
            Question { fingerprint: u64::MAX, known: None, seen: Some(7), now_ms: 1 << 40 };
        let bytes = question.to_bytes();
        assert_eq!(Question::read(&bytes), Some(question));
        let compiled = vec![0, 1, 2];
        let (version, generation, relieved, source) = (3, 2, 1, Source::Written);
        let found = InForce { version, generation, relieved, source, compiled };
        let answer = found.to_bytes();
        assert_eq!(InForce::read(&answer), Some(found));
        for len in 0..33 {
            assert_eq!(Question::read(&bytes[..len]), None);
            assert_eq!(InForce::read(&answer[..len]), None);
        }
        assert_eq!(Question::read(&[&bytes[..], &[0]].concat()), None, "it is longer");
        let mut other = answer;
        other[25] = 2;
        assert_eq!(InForce::read(&other), None, "no such source");
    }

    /// Guards: an isolate that takes the JSON of an earlier version for a policy, and an object of
    /// an earlier version that takes these bytes for a call.
    #[test]
    fn json_is_neither_and_these_are_no_json() {
        for json in [r#"{"policy":{"current":{}}}"#, r#"{"failed":"x"}"#, "\"send_text\"", "1"] {
            assert_eq!(InForce::read(json.as_bytes()), None);
            assert_eq!(Question::read(json.as_bytes()), None);
        }
        let call = StoreCall::Policy(PolicyCall::Version { number: 1 }).to_json();
        assert_eq!(Question::read(call.as_bytes()), None);
        let question = Question { fingerprint: 1, known: None, seen: None, now_ms: 1 };
        assert!(StoreCall::from_json(&question.to_bytes()).is_none());
    }
}
