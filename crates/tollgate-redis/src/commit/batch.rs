//! Deciding what waits for one key, all of it on the same bytes and at one time.
//!
//! Invariant: in order: each on what those before it left. What is decided here is no answer yet.

use tollgate_core::Timestamp;
use tollgate_policy::{Clock, Counts};

use crate::commit::ask::{Ask, Failed};
use crate::commit::call::{Fault, Write};
use crate::commit::remembered::Seen;
use crate::commit::value::{self, Tag, Unreadable};

/// What a batch comes to.
#[derive(Debug)]
pub(crate) struct Decided {
    /// In the order of what was asked.
    pub(crate) replies: Vec<Result<Vec<u8>, Failed>>,
    pub(crate) write: Write,
    /// What stands there once it is written.
    pub(crate) leaves: Option<Seen>,
}

impl Decided {
    /// True when the engine has to be asked before any of it is an answer.
    pub(crate) fn needs_call(&self) -> bool {
        self.write != Write::Keep || self.replies.iter().any(Result::is_ok)
    }
}

/// Decides `asks` on what `stands` there. Where a commit counts only when replicas have it, what
/// tells of an earlier one is written again: a reply to nothing written says nothing of them.
pub(crate) fn decide<'a>(
    stands: Option<&Seen>,
    asks: impl Iterator<Item = &'a Ask>,
    clock: &Clock,
    (tag, is_replicated): (Tag, bool),
) -> Decided {
    let mut counts = match value::read(stands.map(|seen| &*seen.value)) {
        Ok(counts) => counts,
        Err(why) => return unreadable(why, asks.count(), (tag, clock.now)),
    };
    let mut is_changed = false;
    let mut reply = |ask: &Ask| {
        let answered = ask.step(&mut counts, clock)?;
        is_changed |= answered.is_changed || is_replicated && ask.tells_of_earlier();
        Ok(answered.reply)
    };
    let replies = asks.map(&mut reply).collect();
    let (mut write, mut leaves) = (Write::Keep, stands.cloned());
    if is_changed {
        let changed;
        (changed, leaves) = written(&counts, tag, clock.now);
        let is_there = stands.is_some() || leaves.is_some();
        write = if is_there { changed } else { Write::Keep };
    }
    Decided { replies, write, leaves }
}

/// What is written so that `counts` stand there, and what stands there then.
fn written(counts: &Counts, tag: Tag, now: Timestamp) -> (Write, Option<Seen>) {
    let (write, until) = value::write(counts, tag, now);
    let leaves = match &write {
        Write::Put { value, .. } => Some(Seen { value: value.clone(), until }),
        Write::Keep | Write::Delete => None,
    };
    (write, leaves)
}

/// What cannot be read fails those who find it; what we wrote ourselves makes room for a new
/// beginning.
fn unreadable(why: Unreadable, asks: usize, (tag, now): (Tag, Timestamp)) -> Decided {
    match why {
        // Not remembered either: it is looked for anew each time, until it is gone.
        Unreadable::Foreign => {
            let replies = vec![Err(Failed::Engine(Fault::Foreign)); asks];
            Decided { replies, write: Write::Keep, leaves: None }
        }
        Unreadable::Damaged => {
            let replies = vec![Err(Failed::Corrupt); asks];
            let (write, leaves) = written(&Counts::begun_anew(now), tag, now);
            Decided { replies, write, leaves }
        }
    }
}
