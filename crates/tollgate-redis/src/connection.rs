//! One connection: commands are sent in order, and replies are received in order.
//!
//! Invariant: each command has one outcome: its reply, or that the connection was cut. Nothing is
//! sent again. One task owns the connection. A caller may stop waiting for its reply; the reply is
//! discarded when it arrives. A connection whose oldest command has waited for `stall` is cut: the
//! other side may be gone without closing it.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use crate::commit::Fault;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until};

use crate::resp::{self, Value};

/// At most this many bytes wait to be written before more commands are taken.
const MAX_UNWRITTEN: usize = 1 << 20;
/// Commands that are taken at a time.
const BATCH: usize = 256;

/// The outcome of a command.
pub(crate) type Outcome = Result<Value, Fault>;

/// Any stream, with TLS or without.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin + 'static {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin + 'static> Stream for S {}

/// A connection that is open, or was.
#[derive(Debug)]
pub(crate) struct Connection {
    commands: mpsc::UnboundedSender<Sent>,
    task: AbortHandle,
}

#[derive(Debug)]
struct Sent {
    bytes: Vec<u8>,
    /// Replies that precede the awaited one.
    before: u8,
    caller: oneshot::Sender<Outcome>,
}

struct Pending {
    since: Instant,
    before: u8,
    caller: oneshot::Sender<Outcome>,
}

impl Connection {
    pub(crate) fn new(stream: impl Stream, stall: Duration) -> Self {
        let (commands, receiver) = mpsc::unbounded_channel();
        let task = tokio::spawn(run(stream, receiver, stall)).abort_handle();
        Self { commands, task }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.commands.is_closed()
    }

    /// Closes it. Each command without a reply ends with [`Fault::Cut`].
    pub(crate) fn cut(&self) {
        self.task.abort();
    }

    /// Sends commands and waits for their last reply, which `before` others precede. `None`: the
    /// connection was closed, and nothing is sent.
    pub(crate) fn send(&self, bytes: Vec<u8>, before: u8) -> Option<oneshot::Receiver<Outcome>> {
        let (caller, reply) = oneshot::channel();
        self.commands.send(Sent { bytes, before, caller }).ok()?;
        Some(reply)
    }

    /// Sends one command and waits for its outcome.
    pub(crate) async fn ask(&self, arguments: &[&[u8]]) -> Outcome {
        let mut bytes = Vec::new();
        resp::command(arguments, &mut bytes);
        let reply = self.send(bytes, 0).ok_or(Fault::Unreachable)?;
        reply.await.unwrap_or(Err(Fault::Cut))
    }
}

async fn run(stream: impl Stream, mut commands: mpsc::UnboundedReceiver<Sent>, stall: Duration) {
    let (mut reader, mut writer) = tokio::io::split(stream);
    let mut pending: VecDeque<Pending> = VecDeque::new();
    let (mut unwritten, mut unread) = (Vec::new(), Vec::with_capacity(16 << 10));
    let (mut batch, mut is_flushed) = (Vec::new(), true);
    let why = loop {
        let cut_at = pending.front().map(|oldest| oldest.since.checked_add(stall));
        let cut_at = cut_at.flatten().unwrap_or_else(Instant::now);
        tokio::select! {
            biased;
            written = write(&mut writer, &unwritten), if !is_flushed => match written {
                Ok(Some(0)) => break Fault::Cut,
                Ok(Some(len)) => drop(unwritten.drain(..len)),
                Ok(None) => is_flushed = true,
                Err(why) => break of_io(&why),
            },
            read = reader.read_buf(&mut unread) => match read {
                Ok(0) => break Fault::Cut,
                Err(why) => break of_io(&why),
                Ok(_) => if deliver(&mut unread, &mut pending).is_err() { break Fault::Nonsense },
            },
            taken = commands.recv_many(&mut batch, BATCH), if unwritten.len() < MAX_UNWRITTEN => {
                if taken == 0 {
                    break Fault::Cut;
                }
                let since = Instant::now();
                for Sent { bytes, before, caller } in batch.drain(..) {
                    unwritten.extend(bytes);
                    is_flushed = false;
                    pending.push_back(Pending { since, before, caller });
                }
            },
            () = sleep_until(cut_at), if !pending.is_empty() => break Fault::Cut,
        }
    };
    commands.close();
    // The first command gets the reason; the outcome of the others is unknown.
    let mut why = Some(why);
    for waiting in pending {
        waiting.caller.send(Err(why.take().unwrap_or(Fault::Cut))).ok();
    }
}

/// Writes some of the bytes and returns how many; without bytes, flushes TLS.
async fn write(writer: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> io::Result<Option<usize>> {
    match bytes {
        [] => writer.flush().await.map(|()| None),
        _ => writer.write(bytes).await.map(Some),
    }
}

/// A TLS error does not mean that the node is gone: one side rejected the other.
fn of_io(why: &io::Error) -> Fault {
    let is_tls = why.get_ref().is_some_and(|inner| inner.is::<rustls::Error>());
    if is_tls { Fault::Tls } else { Fault::Cut }
}

/// Delivers the replies that have arrived.
fn deliver(
    unread: &mut Vec<u8>,
    pending: &mut VecDeque<Pending>,
) -> Result<(), resp::MalformedReply> {
    let mut read = 0_usize;
    while let Some(rest) = unread.get(read..).filter(|rest| !rest.is_empty()) {
        let Some((value, len)) = resp::read(rest)? else { break };
        read = read.saturating_add(len);
        // A reply without a command.
        let first = pending.front_mut().ok_or(resp::MalformedReply)?;
        if let Some(before) = first.before.checked_sub(1) {
            first.before = before;
        } else if let Some(first) = pending.pop_front() {
            first.caller.send(Ok(value)).ok();
        }
    }
    unread.drain(..read);
    Ok(())
}
