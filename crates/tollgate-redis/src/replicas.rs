//! Commits that count only when replicas have them: the command after such a commit, and the
//! connections for both.
//!
//! Invariant: `WAIT` covers the writes of its own connection, and blocks that connection. So one of
//! these has one commit and its `WAIT` under way, and is returned only after both replies. One that
//! was abandoned in between is closed. There are at most [`MAX_CONNECTIONS`] per node at a time.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::commit::{Fault, Reply};
use tokio::sync::{OnceCell, Semaphore, SemaphorePermit};
use tokio::time::Instant;
use tollgate_core::Span;

use crate::connection::Connection;
use crate::reply::{CommandResult, of_call, of_commit, of_error};
use crate::resp::{Value, command};

/// The most connections per node. The committers together send no more commits than that at a time
/// ([`Engine::new`](crate::Engine::new)): others wait there, undecided.
pub(crate) const MAX_CONNECTIONS: u32 = 32;

/// How many replicas must have a commit before it counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replicas {
    /// The number of replicas, at least one.
    pub count: u32,
    /// How long the engine waits for them: shorter than the timeout of a call.
    pub timeout: Duration,
}

impl Replicas {
    /// The command after a commit. Without a timeout it would wait for ever.
    fn wait(self) -> Vec<u8> {
        let timeout = self.timeout.as_millis().max(1).to_string();
        let mut bytes = Vec::with_capacity(64);
        command(&[b"WAIT", self.count.to_string().as_bytes(), timeout.as_bytes()], &mut bytes);
        bytes
    }

    /// The result of a commit, from its reply and the reply to its `WAIT`, which came `later`.
    fn result(self, commit: &Value, waited: Value, later: Duration) -> CommandResult {
        let CommandResult::Reply(reply) = of_commit(commit) else { return of_commit(commit) };
        // The clock was read when the script ran. The reading is assigned to the middle of both
        // round trips, so half of the second one is added to the time.
        let half = u64::try_from(later.as_nanos().div_euclid(2)).unwrap_or(u64::MAX);
        let half = Span::from_nanos(half);
        CommandResult::Reply(match reply {
            Reply::Done { time } => {
                let time = time.saturating_add(half);
                match self.fault(waited) {
                    None => Reply::Done { time },
                    Some(fault) => Reply::Alone { time, fault },
                }
            }
            Reply::Mismatch { stored, time } => {
                Reply::Mismatch { stored, time: time.saturating_add(half) }
            }
            Reply::OtherTime { stored, time } => {
                Reply::OtherTime { stored, time: time.saturating_add(half) }
            }
            other => other,
        })
    }

    /// The fault in a reply to `WAIT`, if any.
    fn fault(self, waited: Value) -> Option<Fault> {
        if let Value::Error(line) = &waited {
            let is_forbidden =
                of_error(line) == CommandResult::Reply(Reply::Refused(Fault::Forbidden));
            return Some(if is_forbidden { Fault::Forbidden } else { Fault::Replicas });
        }
        let has_enough = waited.number().is_some_and(|count| count >= u64::from(self.count));
        if has_enough { None } else { Some(Fault::Replicas) }
    }
}

/// The connections for commits of one node. They live as long as the connection for everything
/// else.
#[derive(Debug)]
pub(crate) struct Pool {
    free: Mutex<Vec<Connection>>,
    places: Semaphore,
    /// The run id of the process: other connections must be to the same one.
    pub(crate) run_id: OnceCell<Vec<u8>>,
}

/// A connection that is lent to one commit.
#[derive(Debug)]
pub(crate) struct LentConnection<'p> {
    pool: &'p Pool,
    connection: Connection,
    _place: SemaphorePermit<'p>,
}

impl Default for Pool {
    fn default() -> Self {
        // Never more than the maximum.
        let places = usize::try_from(MAX_CONNECTIONS).unwrap_or(1);
        let (free, run_id) = (Mutex::default(), OnceCell::new());
        Self { free, places: Semaphore::new(places), run_id }
    }
}

impl Pool {
    /// Lends a connection, which `open` opens if none is free; waits for a place.
    pub(crate) async fn lend(
        &self,
        open: impl Future<Output = Result<Connection, Fault>>,
    ) -> Result<LentConnection<'_>, Fault> {
        let place = self.places.acquire().await.map_err(|_| Fault::Unreachable)?;
        let connection = match self.take() {
            Some(connection) => connection,
            None => open.await?,
        };
        Ok(LentConnection { pool: self, connection, _place: place })
    }

    fn take(&self) -> Option<Connection> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        free.retain(|connection| !connection.is_closed());
        free.pop()
    }
}

impl LentConnection<'_> {
    /// Sends the commit of this number, before whose reply `before` others come, and the wait for
    /// replicas. `is_sent` becomes true when it may have been sent.
    pub(crate) async fn commit(
        self,
        (bytes, before, number): (Vec<u8>, u8, u64),
        replicas: Replicas,
        is_sent: &mut bool,
    ) -> Result<CommandResult, Fault> {
        let commit = self.connection.send(bytes, before).ok_or(Fault::Unreachable)?;
        *is_sent = true;
        let waited = self.connection.send(replicas.wait(), 0);
        let commit = of_call(commit.await.unwrap_or(Err(Fault::Cut))?, number)?;
        let since = Instant::now();
        let waited = waited.ok_or(Fault::Cut)?.await.unwrap_or(Err(Fault::Cut))?;
        let result = replicas.result(&commit, waited, since.elapsed());
        let Self { pool, connection, _place } = self;
        pool.free.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
        Ok(result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_core::Timestamp;

    const TWO: Replicas = Replicas { count: 2, timeout: Duration::from_millis(70) };

    fn commit(status: i64, rest: &[&[u8]]) -> Value {
        let bulk = |bytes: &&[u8]| Value::Bulk(Some(bytes.to_vec()));
        let time = [&b"1780000000"[..], b"0"];
        let all = [Value::Int(status)].into_iter().chain(time.iter().chain(rest).map(bulk));
        Value::Array(Some(all.collect()))
    }

    #[test]
    fn a_commit_counts_by_the_reply_to_its_wait() {
        let time = Timestamp::from_millis(1_780_000_000_010);
        let alone = |fault| CommandResult::Reply(Reply::Alone { time, fault });
        let later = Duration::from_millis(20);
        for (waited, expected) in [
            (Value::Int(2), CommandResult::Reply(Reply::Done { time })),
            (Value::Int(3), CommandResult::Reply(Reply::Done { time })),
            (Value::Int(1), alone(Fault::Replicas)),
            (Value::Int(-1), alone(Fault::Replicas)),
            (Value::Bulk(None), alone(Fault::Replicas)),
            (Value::Error(b"UNBLOCKED force unblock".to_vec()), alone(Fault::Replicas)),
            (Value::Error(b"NOPERM no permissions".to_vec()), alone(Fault::Forbidden)),
        ] {
            let result = TWO.result(&commit(0, &[]), waited.clone(), later);
            assert_eq!(result, expected, "{waited:?}");
        }
        // Nothing was written: the count of replicas does not matter.
        let result = TWO.result(&commit(1, &[b""]), Value::Int(0), later);
        assert_eq!(result, CommandResult::Reply(Reply::Mismatch { stored: None, time }));
        let moved = Value::Error(b"MOVED 1 127.0.0.1:2".to_vec());
        let result = TWO.result(&moved, Value::Int(0), later);
        assert_eq!(result, CommandResult::Moved("127.0.0.1:2".to_owned()));
    }

    #[test]
    fn the_engine_never_waits_for_ever() {
        assert_eq!(TWO.wait(), b"*3\r\n$4\r\nWAIT\r\n$1\r\n2\r\n$2\r\n70\r\n");
        let at_once = Replicas { timeout: Duration::ZERO, ..TWO };
        assert!(at_once.wait().ends_with(b"$1\r\n1\r\n"));
    }
}
