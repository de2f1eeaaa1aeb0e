//! The log: one line of JSON per event, on standard output.
//!
//! Invariant: a slow or absent reader of standard output delays no request. Lines go through a
//! bounded queue to their own thread. Lines without room are counted, and the next line contains
//! their number. No line contains data that a client sent. Events that requests cause are sampled
//! before they come here (`tollgate_service::log`).

use std::io::Write;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use serde_json::{Map, Value};

use crate::clock::Clock;

/// Lines that may wait to be written.
const MAX_QUEUED: usize = 1024;

/// The log.
#[derive(Debug)]
pub struct Log {
    clock: Clock,
    lines: Mutex<Option<SyncSender<String>>>,
    writer: Mutex<Option<JoinHandle<()>>>,
    dropped: AtomicU64,
}

/// The severity of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Normal operation.
    Info,
    /// Certainly not intended.
    Warning,
    /// Something failed.
    Error,
}

impl Level {
    const fn word(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

impl Log {
    /// A log on standard output.
    #[must_use]
    pub fn to_stdout(clock: Clock) -> Self {
        let (sender, receiver) = sync_channel(MAX_QUEUED);
        let writer = std::thread::Builder::new().name("log".to_owned());
        let writer = writer.spawn(move || write_all(&receiver)).ok();
        let (lines, writer) = (Mutex::new(Some(sender)), Mutex::new(writer));
        Self { clock, lines, writer, dropped: AtomicU64::new(0) }
    }

    /// A log without output.
    #[must_use]
    pub fn nowhere(clock: Clock) -> Self {
        let (lines, writer) = (Mutex::new(None), Mutex::new(None));
        Self { clock, lines, writer, dropped: AtomicU64::new(0) }
    }

    /// Logs that `event` happened, with these fields.
    pub fn event(&self, level: Level, event: &str, fields: &[(&str, Value)]) {
        let mut line = Map::new();
        line.insert("level".to_owned(), level.word().into());
        line.insert("event".to_owned(), event.into());
        let fields = fields.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
        line.extend(fields);
        self.line(&Value::Object(line).to_string());
    }

    /// Logs that `event` happened, with a message.
    pub fn message(&self, level: Level, event: &str, message: &str) {
        self.event(level, event, &[("message", message.into())]);
    }

    /// Logs an object of JSON, with the time in front.
    pub fn line(&self, object: &str) {
        let dropped = self.dropped.swap(0, Ordering::Relaxed);
        let lost = if dropped > 0 { format!("\"lost_lines\":{dropped},") } else { String::new() };
        let rest = object.strip_prefix('{').unwrap_or(object);
        let line = format!("{{\"time_ms\":{},{lost}{rest}\n", self.clock.now_ms());
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(lines) = &*lines
            && lines.try_send(line).is_err()
        {
            self.dropped.fetch_add(dropped.saturating_add(1), Ordering::Relaxed);
        }
    }

    /// Writes the queued lines and ends.
    pub fn close(&self) {
        drop(self.lines.lock().unwrap_or_else(PoisonError::into_inner).take());
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(writer) = writer {
            drop(writer.join());
        }
    }
}

fn write_all(lines: &Receiver<String>) {
    let mut out = std::io::stdout();
    for line in lines {
        // The output is closed: there is no better place to report that.
        let _ = out.write_all(line.as_bytes()).and_then(|()| out.flush());
    }
}
