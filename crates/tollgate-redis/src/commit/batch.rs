//! Decides all waiting requests of one key on the same bytes and at the same time.
//!
//! Invariant: requests are decided in order, each on the state that those before it left. A
//! decision here is not yet a response.

use tollgate_core::Timestamp;
use tollgate_storage::{Clock, Counts};

use crate::commit::call::{Fault, Write};
use crate::commit::request::{Failed, KeyRequest};
use crate::commit::value::{self, Tag, UnreadableValue};
use crate::commit::value_memory::KnownValue;

/// The result of a batch.
#[derive(Debug)]
pub(crate) struct BatchResult {
    /// In the order of the requests.
    pub(crate) replies: Vec<Result<Vec<u8>, Failed>>,
    pub(crate) write: Write,
    /// The value of the key after the write.
    pub(crate) leaves: Option<KnownValue>,
}

impl BatchResult {
    /// True when the engine must acknowledge a call before any of these replies may leave.
    pub(crate) fn needs_call(&self) -> bool {
        self.write != Write::Keep || self.replies.iter().any(Result::is_ok)
    }
}

/// Decides `asks` on the stored value `stored`. Where a commit counts only when replicas have it, a
/// request whose response depends on an earlier commit is written again: a call that writes nothing
/// does not show that replicas have that commit.
pub(crate) fn decide<'a>(
    stored: Option<&KnownValue>,
    asks: impl Iterator<Item = &'a KeyRequest>,
    clock: &Clock,
    (tag, is_replicated): (Tag, bool),
) -> BatchResult {
    let mut counts = match value::read(stored.map(|seen| &*seen.value)) {
        Ok(counts) => counts,
        Err(why) => return unreadable(why, asks.count(), (tag, clock.now)),
    };
    let mut is_changed = false;
    let mut reply = |ask: &KeyRequest| {
        let step = ask.apply(&mut counts, clock)?;
        is_changed |= step.is_changed || is_replicated && ask.depends_on_earlier();
        Ok(step.reply)
    };
    let replies = asks.map(&mut reply).collect();
    let (mut write, mut leaves) = (Write::Keep, stored.cloned());
    if is_changed {
        let changed;
        (changed, leaves) = written(&counts, tag, clock.now);
        let is_there = stored.is_some() || leaves.is_some();
        write = if is_there { changed } else { Write::Keep };
    }
    BatchResult { replies, write, leaves }
}

/// The write that stores `counts`, and the stored value after it.
fn written(counts: &Counts, tag: Tag, now: Timestamp) -> (Write, Option<KnownValue>) {
    let (write, until) = value::write(counts, tag, now);
    let leaves = match &write {
        Write::Put { value, .. } => Some(KnownValue { value: value.clone(), until }),
        Write::Keep | Write::Delete => None,
    };
    (write, leaves)
}

/// An unreadable value fails all requests that find it. A damaged value of this version is replaced
/// by a new one.
fn unreadable(why: UnreadableValue, asks: usize, (tag, now): (Tag, Timestamp)) -> BatchResult {
    match why {
        // Not remembered either: the value is read again each time, until it is gone.
        UnreadableValue::Foreign => {
            let replies = vec![Err(Failed::Engine(Fault::Foreign)); asks];
            BatchResult { replies, write: Write::Keep, leaves: None }
        }
        UnreadableValue::Damaged => {
            let replies = vec![Err(Failed::Corrupt); asks];
            let (write, leaves) = written(&Counts::begun_anew(now), tag, now);
            BatchResult { replies, write, leaves }
        }
    }
}
