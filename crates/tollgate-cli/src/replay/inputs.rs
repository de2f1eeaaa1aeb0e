//! The logs on the command line: their formats, and their bytes.
//!
//! Invariant: a log that can be opened again is opened when its time has come, so a large number of
//! rotated files needs no more resources than one. Others (the standard input, a pipe) are read
//! once, from the beginning. A separate thread unpacks each open log, a few pieces ahead.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use tollgate_access_log::{FORMAT_NAMES, Field, Format, Limits, Reader, Refused, Wanted};

use crate::error::CommandError;
use crate::replay::interrupt::Interrupt;
use crate::replay::spool::{NoCopyReason, Spool};
use crate::replay::unpack::{LogEnd, PIECE, ReceiverClosed, unpack};

/// Pieces that are unpacked ahead.
const AHEAD: usize = 4;
/// The bytes of a log that determine its format and its first time.
const HEAD: usize = 64 * 1024;

/// One log.
#[derive(Debug)]
pub(crate) struct Input {
    pub(crate) name: String,
    path: PathBuf,
    /// The beginning, as far as it was read.
    pub(crate) head: Vec<u8>,
    /// The pieces of a log that can be read only once, and how its beginning ended.
    once: Option<Pieces>,
    /// The copy of such a log, for a second pass.
    spool: Option<Spool>,
    /// Bytes of the file, where it has a size.
    pub(crate) size: Option<u64>,
}

/// The next result of an open log.
#[derive(Debug)]
pub(crate) enum Next {
    Piece(Vec<u8>),
    Whole,
    Broken(String),
    Interrupted,
}

/// The bytes of an open log, piece by piece.
#[derive(Debug)]
pub(crate) struct Pieces {
    /// The beginning, which was read to detect the format.
    first: Option<Vec<u8>>,
    pieces: Receiver<Result<Vec<u8>, LogEnd>>,
    used: SyncSender<Vec<u8>>,
    ended: Option<LogEnd>,
}

impl Input {
    /// Reads the beginning of a log. A log that can be read only once is copied for a second pass,
    /// if it has at most `spooled` bytes.
    pub(crate) fn open(
        path: &Path,
        interrupt: &Interrupt,
        spooled: Option<u64>,
    ) -> Result<Self, CommandError> {
        let is_standard = path.as_os_str() == "-";
        let name = if is_standard { "<stdin>".to_owned() } else { path.display().to_string() };
        let mut input = Self {
            name,
            path: path.to_owned(),
            head: Vec::new(),
            once: None,
            spool: None,
            size: None,
        };
        let file = if is_standard { None } else { Some(input.file()?) };
        let metadata = file.as_ref().and_then(|file| file.metadata().ok());
        if metadata.as_ref().is_some_and(std::fs::Metadata::is_dir) {
            return Err(CommandError::Misuse(format!(
                "{} is a directory; name the logs in it",
                input.name
            )));
        }
        match file {
            Some(file) if metadata.as_ref().is_some_and(std::fs::Metadata::is_file) => {
                input.size = metadata.map(|metadata| metadata.len());
                let head = &mut input.head;
                let take = &mut |piece: Vec<u8>| {
                    head.extend_from_slice(&piece);
                    if head.len() < HEAD { Ok(piece) } else { Err(ReceiverClosed) }
                };
                // A file that breaks off already is reported when it is read.
                let _ = unpack(&mut BufReader::with_capacity(HEAD, file), take);
                // A piece may be longer, and there may be thousands of rotated logs.
                input.head.truncate(HEAD);
                input.head.shrink_to_fit();
            }
            Some(file) => input.spool(file, interrupt, spooled),
            None => input.spool(std::io::stdin(), interrupt, spooled),
        }
        Ok(input)
    }

    /// Succeeds if it can be read a second time.
    ///
    /// # Errors
    /// The reason why it cannot, in words.
    pub(crate) fn can_be_read_again(&self) -> Result<(), String> {
        if self.size.is_some() {
            return Ok(());
        }
        let again =
            self.spool.as_ref().map_or(Err(NoCopyReason::TooLong), |spool| spool.again().map(drop));
        again.map_err(|why| match why {
            NoCopyReason::TooLong => format!("{} is longer than --spool", self.name),
            NoCopyReason::Failed(error) => format!("cannot copy {}: {error}", self.name),
        })
    }

    /// Its bytes, from the beginning; `read` counts those of the file.
    pub(crate) fn pieces(&mut self, read: &Arc<AtomicU64>) -> Result<Pieces, CommandError> {
        match self.once.take() {
            Some(once) => Ok(once),
            None if self.size.is_none() => {
                let copy = self.spool.as_ref().and_then(|spool| spool.again().ok());
                let gone =
                    || CommandError::Misuse(format!("the copy of {} was deleted", self.name));
                Ok(Pieces::start(copy.ok_or_else(gone)?))
            }
            None => Ok(Pieces::start(CountingFile { from: self.file()?, read: Arc::clone(read) })),
        }
    }

    /// The format of its lines alone.
    pub(crate) fn format(&self, wanted: Option<&Format>, map: &str) -> Result<Format, String> {
        let format = match wanted {
            Some(format) => format.clone(),
            None => {
                Format::detect(&self.head).ok_or_else(|| match Refused::by_head(&self.head) {
                    Some(refused) => format!("{}: {refused}", self.name),
                    None => format!(
                        "the first lines of {} match no known format; name it with --format: {}",
                        self.name,
                        FORMAT_NAMES.join(", ")
                    ),
                })?
            }
        };
        let mapped = if map.is_empty() { Ok(format) } else { format.with_map(map) };
        mapped.and_then(|format| format.fit(&self.head)).map_err(|e| format!("{}: {e}", self.name))
    }

    /// The earliest time in its beginning, in nanoseconds; 0 when there is none. Not the first
    /// time, because that may be one wrong timestamp, and a log that is opened late is replayed
    /// late.
    pub(crate) fn first_ns(&self, format: &Format) -> u64 {
        let wanted = Wanted::new([Field::Time]);
        let Ok(mut reader) = Reader::new(format, wanted, Limits::default()) else { return 0 };
        let mut first: Option<u64> = None;
        let _ = reader.feed(&self.head, &mut |record| {
            let at_ns = record.time.unix_ns;
            first = Some(first.map_or(at_ns, |first| first.min(at_ns)));
        });
        first.unwrap_or(0)
    }

    fn file(&self) -> Result<File, CommandError> {
        File::open(&self.path)
            .map_err(|error| CommandError::Misuse(format!("cannot read {}: {error}", self.name)))
    }

    /// Starts to read a log that can be read only once, with a copy if one is wanted.
    fn spool(
        &mut self,
        from: impl Read + Send + 'static,
        interrupt: &Interrupt,
        spooled: Option<u64>,
    ) {
        match spooled.map(Spool::new) {
            Some(spool) => {
                self.begin(spool.tee(from), interrupt);
                self.spool = Some(spool);
            }
            None => self.begin(from, interrupt),
        }
    }

    /// Starts to read a log that can be read only once.
    fn begin(&mut self, from: impl Read + Send + 'static, interrupt: &Interrupt) {
        let mut pieces = Pieces::start(from);
        while self.head.len() < HEAD {
            match pieces.next(interrupt) {
                Next::Piece(piece) => {
                    self.head.extend_from_slice(&piece);
                    pieces.give_back(piece);
                }
                Next::Whole => {
                    pieces.ended = Some(LogEnd::Whole);
                    break;
                }
                Next::Broken(message) => {
                    pieces.ended = Some(LogEnd::Broken(message));
                    break;
                }
                Next::Interrupted => break,
            }
        }
        pieces.first = Some(self.head.clone());
        self.once = Some(pieces);
    }
}

impl Pieces {
    fn start(from: impl Read + Send + 'static) -> Self {
        let (send, pieces) = sync_channel(AHEAD);
        let (used, spare) = sync_channel::<Vec<u8>>(AHEAD);
        std::thread::spawn(move || {
            let mut from = BufReader::with_capacity(PIECE, from);
            let ending = unpack(&mut from, &mut |piece| {
                send.send(Ok(piece)).map_err(|_| ReceiverClosed)?;
                Ok(spare.try_recv().unwrap_or_default())
            });
            // If the receiver is gone, the ending is not needed.
            let _ = send.send(Err(ending));
        });
        Self { first: None, pieces, used, ended: None }
    }

    /// Waits for the next piece, unless the user has interrupted.
    pub(crate) fn next(&mut self, interrupt: &Interrupt) -> Next {
        if let Some(first) = self.first.take() {
            return Next::Piece(first);
        }
        loop {
            if interrupt.is_wanted() {
                return Next::Interrupted;
            }
            let ending = match self.ended.take() {
                Some(ending) => ending,
                None => match self.pieces.recv_timeout(Duration::from_millis(100)) {
                    Ok(Ok(piece)) => return Next::Piece(piece),
                    Ok(Err(ending)) => ending,
                    Err(RecvTimeoutError::Timeout) => continue,
                    Err(RecvTimeoutError::Disconnected) => LogEnd::Left,
                },
            };
            return match ending {
                LogEnd::Whole => Next::Whole,
                LogEnd::Broken(message) => Next::Broken(message),
                LogEnd::Left => Next::Broken("the thread that unpacks it ended".to_owned()),
            };
        }
    }

    /// Returns a piece's buffer for reuse.
    pub(crate) fn give_back(&self, piece: Vec<u8>) {
        // The channel is full or closed: then the buffer is not needed.
        let _ = self.used.try_send(piece);
    }
}

/// A file, and the number of bytes read from it.
struct CountingFile {
    from: File,
    read: Arc<AtomicU64>,
}

impl Read for CountingFile {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.from.read(buffer)?;
        self.read.fetch_add(u64::try_from(read).unwrap_or(0), Ordering::Relaxed);
        Ok(read)
    }
}
