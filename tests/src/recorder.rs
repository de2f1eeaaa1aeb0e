//! A relay between servers and one node of a Redis, which records every commit that passes.
//!
//! Invariant: a commit is recorded before the engine gets it, and its reply before the server does;
//! bytes are passed on unchanged. Bytes that are not a command (a replica's stream) are passed on
//! unread. Deliberately absent: any order between connections: the history derives it from the
//! commits' values.

use std::collections::VecDeque;
use std::io::Write;
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Instant;

use tollgate_redis::resp::{self, Value};

use crate::history::{Commit, CommitReply};
use crate::process::read;

/// The commits through all recorders of an engine.
#[derive(Clone, Default)]
pub struct Log(Arc<Inner>);

#[derive(Default)]
struct Inner {
    commits: Mutex<Vec<Commit>>,
    drops_one: AtomicBool,
    /// The port of the node whose replicas receive nothing; 0 for none.
    muted: AtomicU16,
}

impl Log {
    /// All commits so far.
    pub fn commits(&self) -> Vec<Commit> {
        self.0.commits.lock().expect("nobody panics with it").clone()
    }

    /// The key of the last one.
    pub fn last_key(&self) -> Option<Vec<u8>> {
        self.0.commits.lock().expect("nobody panics with it").last().map(|last| last.key.clone())
    }

    /// Makes the engine report a false success, once: the next commit that it acknowledges is not
    /// written.
    pub fn drop_one(&self) {
        self.0.drops_one.store(true, Ordering::Relaxed);
    }

    /// Whether that has happened.
    pub fn has_dropped(&self) -> bool {
        !self.0.drops_one.load(Ordering::Relaxed)
    }

    /// Passes nothing to the replicas of the node on port `node`, which still consider it alive.
    /// Kill the node afterwards, because they never receive what they missed. 0 ends it.
    pub fn mute(&self, node: u16) {
        self.0.muted.store(node, Ordering::Relaxed);
    }

    /// Listens on `port` for the node on port `node`, for as long as this process lives.
    pub fn record(&self, port: u16, node: u16) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).expect("the port is free");
        let log = self.clone();
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let _ = log.pass(client, node);
            }
        });
    }

    fn pass(&self, client: TcpStream, node: u16) -> std::io::Result<()> {
        let engine = TcpStream::connect((Ipv4Addr::LOCALHOST, node))?;
        client.set_nodelay(true)?;
        engine.set_nodelay(true)?;
        let waiting = Arc::new(Waiting::default());
        let (to_engine, to_client) = (engine.try_clone()?, client.try_clone()?);
        let (log, asked) = (self.clone(), waiting.clone());
        thread::spawn(move || {
            carry((client, to_engine), &asked, |bytes| log.record_command(bytes, &asked), || false);
        });
        let log = self.clone();
        thread::spawn(move || {
            let is_muted = || log.0.muted.load(Ordering::Relaxed) == node;
            carry(
                (engine, to_client),
                &waiting,
                |bytes| log.record_reply(bytes, &waiting),
                is_muted,
            );
        });
        Ok(())
    }

    /// The command to send in place of a command.
    fn record_command(&self, command: &Value, waiting: &Waiting) -> Option<Vec<u8>> {
        let parts: Vec<&[u8]> = command.parts()?.iter().filter_map(Value::bytes).collect();
        let name = parts.first()?.to_ascii_uppercase();
        if name == b"PSYNC" {
            waiting.is_raw.store(true, Ordering::Relaxed);
        }
        let [_, _, b"1", key, expected, new, life, at, _tolerance, _number] = parts[..] else {
            waiting.push(None);
            return None;
        };
        let number = |bytes| std::str::from_utf8(bytes).ok()?.parse::<i64>().ok();
        let life = number(life)?;
        let commit = Commit {
            key: key.to_vec(),
            expected: expected.to_vec(),
            new: (life >= 0).then(|| new.to_vec()),
            at_ms: u64::try_from(number(at)?).ok()?,
            reply: CommitReply::Nothing,
        };
        let mut commits = self.0.commits.lock().expect("nobody panics with it");
        let is_dropped = life > 0 && self.0.drops_one.swap(false, Ordering::Relaxed);
        waiting.push(Some(Sent { commit: commits.len(), is_dropped }));
        commits.push(commit);
        if is_dropped {
            let mut kept = parts;
            kept[6] = b"-1";
            let mut bytes = Vec::new();
            resp::command(&kept, &mut bytes);
            return Some(bytes);
        }
        None
    }

    fn record_reply(&self, reply: &Value, waiting: &Waiting) -> Option<Vec<u8>> {
        if let Some(Some(Sent { commit, is_dropped })) = waiting.pop() {
            let first = reply.parts().and_then(|parts| parts.first()?.number());
            let reply = if first == Some(0) {
                CommitReply::Done(Instant::now())
            } else {
                CommitReply::Refused
            };
            if is_dropped && reply == CommitReply::Refused {
                // It would not have been written in any case.
                self.drop_one();
            }
            self.0.commits.lock().expect("nobody panics with it")[commit].reply = reply;
        }
        None
    }
}

/// A commit that has no reply yet.
struct Sent {
    /// Its number in the log.
    commit: usize,
    is_dropped: bool,
}

/// The commands of a connection that have no reply yet.
#[derive(Default)]
struct Waiting {
    commands: Mutex<VecDeque<Option<Sent>>>,
    is_raw: AtomicBool,
}

impl Waiting {
    fn push(&self, commit: Option<Sent>) {
        self.commands.lock().expect("nobody panics with it").push_back(commit);
    }

    fn pop(&self) -> Option<Option<Sent>> {
        self.commands.lock().expect("nobody panics with it").pop_front()
    }
}

/// Carries whole commands or replies, each after `look` saw it, and other bytes unless muted; then
/// both directions end.
fn carry(
    (mut from, mut to): (TcpStream, TcpStream),
    waiting: &Waiting,
    look: impl Fn(&Value) -> Option<Vec<u8>>,
    is_muted: impl Fn() -> bool,
) {
    let (mut held, mut buffer) = (Vec::new(), vec![0; 65_536]);
    while let Ok(len) = read(&mut from, &mut buffer) {
        if len == 0 {
            break;
        }
        held.extend_from_slice(&buffer[..len]);
        let mut out = Vec::new();
        while !waiting.is_raw.load(Ordering::Relaxed) {
            match resp::read(&held) {
                Ok(Some((value, len))) => {
                    let whole: Vec<u8> = held.drain(..len).collect();
                    out.extend(look(&value).unwrap_or(whole));
                }
                Ok(None) => break,
                Err(_) => waiting.is_raw.store(true, Ordering::Relaxed),
            }
        }
        if waiting.is_raw.load(Ordering::Relaxed) {
            out.append(&mut held);
            if is_muted() {
                out.clear();
            }
        }
        if to.write_all(&out).is_err() {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
