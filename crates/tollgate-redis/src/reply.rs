//! The meaning of an engine's reply for a call.
//!
//! Invariant: only a certain reply is treated as certain. An error means that nothing was written,
//! because the script writes last; an invalid reply means nothing.

use std::sync::Arc;

use crate::commit::{Fault, Reply};
use tollgate_core::{Span, Timestamp};

use crate::resp::Value;

/// The result of a sent command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandResult {
    /// A reply.
    Reply(Reply),
    /// The slot is at another node, for good.
    Moved(String),
    /// This key may be at another node already; valid once.
    Ask(String),
}

/// A reply to the script without the number of its call, which must be this one. An error has none.
///
/// # Errors
/// It is the reply to another call: a proxy repeats, drops or reorders replies, so the replies of
/// this connection no longer match its commands.
pub fn of_call(value: Value, number: u64) -> Result<Value, Fault> {
    let Value::Array(Some(mut parts)) = value else { return Ok(value) };
    let received = parts.pop().and_then(|last| last.number());
    if received == Some(number) { Ok(Value::Array(Some(parts))) } else { Err(Fault::Nonsense) }
}

/// The meaning of a reply to the script, [without its number](of_call).
#[must_use]
pub fn of_commit(value: &Value) -> CommandResult {
    match value {
        Value::Error(line) => of_error(line),
        Value::Array(Some(parts)) => {
            CommandResult::Reply(of_parts(parts).unwrap_or(Reply::Unknown(Fault::Nonsense)))
        }
        Value::Simple(_) | Value::Int(_) | Value::Bulk(_) | Value::Array(None) => {
            CommandResult::Reply(Reply::Unknown(Fault::Nonsense))
        }
    }
}

/// The meaning of a reply to a read.
#[must_use]
pub fn of_read(value: Value) -> CommandResult {
    match value {
        Value::Error(line) => of_error(&line),
        Value::Bulk(stored) => CommandResult::Reply(Reply::Stored(stored.map(Arc::from))),
        Value::Simple(_) | Value::Int(_) | Value::Array(_) => {
            CommandResult::Reply(Reply::Unknown(Fault::Nonsense))
        }
    }
}

fn of_parts(parts: &[Value]) -> Option<Reply> {
    let [what, seconds, micros, rest @ ..] = parts else { return None };
    let time = time_of(seconds, micros)?;
    let stored = || match rest {
        [Value::Bulk(Some(bytes))] => {
            Some(Some(bytes).filter(|bytes| !bytes.is_empty()).map(|bytes| Arc::from(&**bytes)))
        }
        _ => None,
    };
    match (what.number()?, rest) {
        (0, []) => Some(Reply::Done { time }),
        (1, _) => Some(Reply::Mismatch { stored: stored()?, time }),
        (2, _) => Some(Reply::OtherTime { stored: stored()?, time }),
        _ => None,
    }
}

/// The engine's clock, from the parts of a reply to `TIME`.
pub(crate) fn time_of(seconds: &Value, micros: &Value) -> Option<Timestamp> {
    let seconds = Timestamp::ZERO.saturating_add(Span::from_secs(seconds.number()?));
    let micros = Some(micros.number()?).filter(|micros| *micros < 1_000_000)?;
    Some(seconds.saturating_add(Span::from_nanos(micros.saturating_mul(1_000))))
}

/// The meaning of an error; its first word identifies it.
#[must_use]
pub fn of_error(line: &[u8]) -> CommandResult {
    let text = String::from_utf8_lossy(line);
    let mut words = text.split_ascii_whitespace();
    let fault = match words.next().unwrap_or_default() {
        "NOSCRIPT" => return CommandResult::Reply(Reply::NoScript),
        kind @ ("MOVED" | "ASK") => {
            return match words.nth(1) {
                Some(address) if kind == "MOVED" => CommandResult::Moved(address.to_owned()),
                Some(address) => CommandResult::Ask(address.to_owned()),
                None => CommandResult::Reply(Reply::Refused(Fault::ClusterDown)),
            };
        }
        "OOM" => Fault::OutOfMemory,
        "LOADING" | "BUSY" => Fault::Loading,
        "READONLY" => Fault::ReadOnly,
        "NOREPLICAS" => Fault::TooFewReplicas,
        "CLUSTERDOWN" | "TRYAGAIN" | "MASTERDOWN" => Fault::ClusterDown,
        "NOAUTH" | "NOPERM" | "WRONGPASS" | "DENIED" => Fault::Forbidden,
        // Within a script, older engines write it after their own words.
        _ if text.contains("WRONGTYPE") => Fault::Foreign,
        _ => Fault::Error,
    };
    CommandResult::Reply(Reply::Refused(fault))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(status: i64, rest: &[&[u8]]) -> Value {
        let bulk = |bytes: &&[u8]| Value::Bulk(Some(bytes.to_vec()));
        let time = [&b"1780000000"[..], b"250000"];
        let all = [Value::Int(status)].into_iter().chain(time.iter().chain(rest).map(bulk));
        Value::Array(Some(all.collect()))
    }

    #[test]
    fn replies_of_the_script() {
        let time = Timestamp::from_millis(1_780_000_000_250);
        let stored = |bytes: &[u8]| Some(Arc::from(bytes));
        let nonsense = Reply::Unknown(Fault::Nonsense);
        for (value, expected) in [
            (parts(0, &[]), Reply::Done { time }),
            (parts(1, &[b""]), Reply::Mismatch { stored: None, time }),
            (parts(1, &[b"x"]), Reply::Mismatch { stored: stored(b"x"), time }),
            (parts(2, &[b"x"]), Reply::OtherTime { stored: stored(b"x"), time }),
            (parts(0, &[b"x"]), nonsense.clone()),
            (parts(1, &[]), nonsense.clone()),
            (parts(3, &[b""]), nonsense.clone()),
            (Value::Array(Some(Vec::new())), nonsense.clone()),
            (Value::Simple(b"OK".to_vec()), nonsense),
        ] {
            assert_eq!(of_commit(&value), CommandResult::Reply(expected), "{value:?}");
        }
    }

    #[test]
    fn errors_are_named() {
        let refused = |fault| CommandResult::Reply(Reply::Refused(fault));
        for (line, expected) in [
            ("NOSCRIPT No matching script.", CommandResult::Reply(Reply::NoScript)),
            ("MOVED 3999 127.0.0.1:6381", CommandResult::Moved("127.0.0.1:6381".to_owned())),
            ("ASK 3999 127.0.0.1:6381", CommandResult::Ask("127.0.0.1:6381".to_owned())),
            ("MOVED", refused(Fault::ClusterDown)),
            (
                "OOM command not allowed when used memory > 'maxmemory'.",
                refused(Fault::OutOfMemory),
            ),
            ("READONLY You can't write against a read only replica.", refused(Fault::ReadOnly)),
            ("NOREPLICAS Not enough good replicas to write.", refused(Fault::TooFewReplicas)),
            ("LOADING Redis is loading the dataset in memory", refused(Fault::Loading)),
            ("WRONGTYPE Operation against a key", refused(Fault::Foreign)),
            (
                "ERR Error running script (call to f_1): WRONGTYPE Operation",
                refused(Fault::Foreign),
            ),
            ("", refused(Fault::Error)),
        ] {
            assert_eq!(of_commit(&Value::Error(line.into())), expected, "{line}");
            assert_eq!(of_read(Value::Error(line.into())), expected, "{line}");
        }
    }
}
