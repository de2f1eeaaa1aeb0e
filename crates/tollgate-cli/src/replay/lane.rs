//! The replay in a separate thread, behind the thread that reads the logs.
//!
//! Invariant: records are replayed in the order in which they are pushed, and all of them before
//! the lane ends. The data under way is bounded: a few batches, which are reused.

use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::{Scope, ScopedJoinHandle};

use tollgate_access_log::{Batch, Field, Record, Wanted};
use tollgate_lab::replay::{Observer, Replay};

/// Batches under way; each has a few hundred requests.
const AHEAD: usize = 4;
/// Bytes after which a batch is handed over.
const FULL: usize = 32 * 1024;

/// The reading thread's end: it receives records.
#[derive(Debug)]
pub(crate) struct Lane<'s> {
    batch: Batch,
    wanted: Wanted,
    full: SyncSender<Batch>,
    used: Receiver<Batch>,
    thread: ScopedJoinHandle<'s, ()>,
}

impl<'s> Lane<'s> {
    /// Starts to replay the records that will be pushed.
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

    /// Adds a record.
    pub(crate) fn push(&mut self, record: &Record<'_>) {
        self.batch.push(record);
        if self.batch.bytes() >= FULL {
            self.hand_over();
        }
    }

    /// Hands over the present batch, so that no record waits for more.
    pub(crate) fn hand_over(&mut self) {
        if !self.batch.is_empty() {
            let next = self.used.try_recv().unwrap_or_else(|_| Batch::new(self.wanted.clone()));
            // The other end stays until this one is dropped.
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
