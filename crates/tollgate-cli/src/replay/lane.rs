//! The replay in a thread of its own, behind the one that reads the logs.
//!
//! Invariant: records are replayed in the order in which they are given, and all of them before the
//! lane ends. What is on its way is bounded: a few batches, which go round.

use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::{Scope, ScopedJoinHandle};

use tollgate_access_log::{Batch, Field, Record, Wanted};
use tollgate_replay::{Observer, Replay};

/// Batches on their way; each of them is a few hundred requests.
const AHEAD: usize = 4;
/// Bytes after which a batch is handed over.
const FULL: usize = 32 * 1024;

/// Where the reading thread puts records.
#[derive(Debug)]
pub(crate) struct Lane<'s> {
    batch: Batch,
    wanted: Wanted,
    full: SyncSender<Batch>,
    used: Receiver<Batch>,
    thread: ScopedJoinHandle<'s, ()>,
}

impl<'s> Lane<'s> {
    /// Starts to replay what will be given.
    pub(crate) fn start<'e, O: Observer + Send>(
        scope: &'s Scope<'s, 'e>,
        replay: &'s mut Replay<O>,
        fields: &[Field],
    ) -> Self {
        let wanted = Wanted::new(fields.iter().cloned());
        let (full, batches) = sync_channel(AHEAD);
        let (back, used) = channel();
        let thread = scope.spawn(move || run(replay, &batches, &back));
        Self { batch: Batch::new(wanted.clone()), wanted, full, used, thread }
    }

    /// Gives a record.
    pub(crate) fn push(&mut self, record: &Record<'_>) {
        self.batch.push(record);
        if self.batch.bytes() >= FULL {
            self.hand_over();
        }
    }

    /// Hands over what was given, so that nothing waits for more.
    pub(crate) fn hand_over(&mut self) {
        if !self.batch.is_empty() {
            let next = self.used.try_recv().unwrap_or_else(|_| Batch::new(self.wanted.clone()));
            // The other end stays until this one is gone.
            let _ = self.full.send(std::mem::replace(&mut self.batch, next));
        }
    }

    /// Waits until everything is replayed.
    pub(crate) fn end(mut self) {
        self.hand_over();
        let Self { full, thread, .. } = self;
        drop(full);
        if let Err(panic) = thread.join() {
            std::panic::resume_unwind(panic);
        }
    }
}

fn run<O: Observer>(replay: &mut Replay<O>, full: &Receiver<Batch>, back: &Sender<Batch>) {
    while let Ok(mut batch) = full.recv() {
        replay.push_all(&mut batch);
        let _ = back.send(batch);
    }
}
