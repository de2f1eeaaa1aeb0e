//! Any bytes as the engine's replies.
//!
//! Invariant checked: a reply is read whole, the same in pieces and with any bytes after it, and
//! never panics; whatever replies mean, every request has exactly one result in the end, and an
//! unacknowledged commit is never an admission.

use std::sync::Arc;

use tollgate_core::Span;
use tollgate_redis::commit::{
    Committer, Event, Fault, KeyRequest, Name, Operation, Reply, Settings,
};
use tollgate_redis::reply::{CommandResult, of_commit, of_read};
use tollgate_redis::resp::{self, Value};

/// Requests of a run: some for one key, some for another.
const ASKS: u32 = 12;

/// Replies to all calls of a server with these bytes, one reply after the other.
pub fn check(bytes: &[u8]) {
    let mut committer = Committer::new(Settings::default(), [7; 16]);
    let (mut events, mut answers) = (Vec::new(), 0);
    for who in 0..ASKS {
        let name = Name::new([u8::try_from(who % 3).unwrap_or(0); 32]);
        let ask = KeyRequest::Check(bytes.iter().copied().take(64).collect());
        let ask = if who % 2 == 0 { describe() } else { ask };
        let mono = Span::from_millis(u64::from(who));
        committer.ask((name, 0), (ask, who), mono, &mut events);
    }
    let mut rest = bytes;
    let mut mono = 100;
    while let Some(event) = events.pop() {
        mono += 1;
        let call = match event {
            Event::Answer(..) => {
                answers += 1;
                continue;
            }
            Event::Call(call) => call,
        };
        let value = read(&mut rest);
        let reply = match (value, &call.what) {
            (None, _) => Reply::Unknown(Fault::Cut),
            (Some(value), Operation::Commit { .. }) => meant(of_commit(&value)),
            (Some(value), Operation::Read) => meant(of_read(value)),
        };
        let acknowledges = matches!(reply, Reply::Done { .. });
        let before = events.len();
        committer.reply(call.id, reply.clone(), Span::from_millis(mono), &mut events);
        let is_admitted = |event: &Event<u32>| matches!(event, Event::Answer(_, Ok(_)));
        let tells =
            matches!(reply, Reply::Stored(_) | Reply::Mismatch { .. } | Reply::OtherTime { .. });
        let is_answered = events.get(before..).is_some_and(|new| new.iter().any(is_admitted));
        assert!(acknowledges || tells || !is_answered, "answered without an acknowledgement");
        committer.reply(call.id, reply, Span::from_millis(mono), &mut events);
    }
    assert_eq!((answers, committer.under_way()), (ASKS, 0));
}

/// A look at a key's usage: it changes nothing.
fn describe() -> KeyRequest {
    let zeros = [0; 8];
    KeyRequest::Operate([&b"tollgt\0K"[..], &zeros, &[1], &zeros, &zeros].concat())
}

fn meant(heard: CommandResult) -> Reply {
    match heard {
        CommandResult::Reply(reply) => reply,
        CommandResult::Moved(_) => Reply::Elsewhere { lane: 1 },
        CommandResult::Ask(_) => Reply::Stored(Some(Arc::from(&b"x"[..]))),
    }
}

/// The next reply, if the bytes contain one.
fn read(rest: &mut &[u8]) -> Option<Value> {
    let bytes = *rest;
    let (value, len) = resp::read(bytes).ok()??;
    assert!(len <= bytes.len() && len > 0);
    let (own, after) = bytes.split_at(len);
    assert_eq!(resp::read(own), Ok(Some((value.clone(), len))), "what follows changes it");
    // All prefixes of short ones, some of long ones.
    for end in (0..len).step_by(1 + len / 64) {
        assert_eq!(resp::read(&own[..end]), Ok(None), "a part of it is not the beginning of it");
    }
    *rest = after;
    Some(value)
}
