//! Several logs as one, in the order of time.
//!
//! Invariant: records of different logs come in the order of their times, and at equal times in the
//! order of the command line. A log is opened when the time of its first record has come, so
//! rotated files are read one after the other and the logs of several machines in parallel.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use tollgate_access_log::{Bounds, Field, Format, Queue, Record, Refused, Wanted};
use tollgate_lab::replay::{LogCounts, Source};

use crate::error::CommandError;
use crate::replay::inputs::{Input, Next, Pieces};
use crate::replay::interrupt::Interrupt;

/// Logs that may be open at the same time.
const MOST_OPEN: usize = 256;
const SECOND_NS: u64 = 1_000_000_000;

/// Every log that is not at its end, and the counts of the others.
pub(crate) struct Merge<'i> {
    logs: Vec<Log<'i>>,
    counts: LogCounts,
    /// Lines of the logs that are at their end.
    lines: u64,
    interrupt: &'i Interrupt,
    read: &'i Arc<AtomicU64>,
}

struct Log<'i> {
    input: &'i mut Input,
    source: Source,
    /// Records that wait for those of other logs.
    queue: Queue,
    state: LogState,
    /// No earlier record is still to come.
    floor_ns: u64,
}

enum LogState {
    Closed,
    Open(Pieces),
    /// Everything was read, but the records in the queue were not yet passed on.
    Ended,
}

impl<'i> Merge<'i> {
    /// Prepares to read `inputs`, each with its format.
    pub(crate) fn new(
        inputs: &'i mut [Input],
        formats: &[Format],
        fields: &[Field],
        bounds: Bounds,
        (interrupt, read): (&'i Interrupt, &'i Arc<AtomicU64>),
    ) -> Result<Self, CommandError> {
        let mut logs = Vec::new();
        for (input, format) in inputs.iter_mut().zip(formats) {
            let cannot =
                |refused: Refused| CommandError::Misuse(format!("{}: {refused}", input.name));
            let source = Source::new(format, fields.to_vec(), bounds).map_err(cannot)?;
            let queue = Queue::new(Wanted::new(fields.iter().cloned()));
            // A line after the beginning may be earlier, by up to a whole second.
            let floor_ns = input.first_ns(format).saturating_sub(bounds.out_of_order_ns);
            let floor_ns = floor_ns.saturating_sub(floor_ns % SECOND_NS);
            logs.push(Log { input, source, queue, state: LogState::Closed, floor_ns });
        }
        Ok(Self { logs, counts: LogCounts::default(), lines: 0, interrupt, read })
    }

    /// Passes on some records, none of which is later than one that is still to come; false when
    /// there are no more, or when no more are wanted.
    pub(crate) fn step(
        &mut self,
        on_record: &mut impl FnMut(&Record<'_>),
    ) -> Result<bool, CommandError> {
        let Some((at, until_ns)) = self.first() else { return Ok(false) };
        let open = self.logs.iter().filter(|log| matches!(log.state, LogState::Open(_))).count();
        let Some(log) = self.logs.get_mut(at) else { return Ok(false) };
        if log.queue.next_ns().is_some() {
            log.queue.pop_until(until_ns, on_record);
        } else {
            if open >= MOST_OPEN && matches!(log.state, LogState::Closed) {
                return Err(CommandError::Misuse(format!(
                    "more than {MOST_OPEN} logs have requests of the same time; merge some of them first"
                )));
            }
            match log.read_on(until_ns, self.interrupt, self.read, on_record)? {
                Next::Interrupted => return Ok(false),
                Next::Broken(message) => self.counts.damaged(log.input.name.clone(), message),
                Next::Piece(_) | Next::Whole => {}
            }
        }
        if matches!(log.state, LogState::Ended) && log.queue.next_ns().is_none() {
            self.close(at);
        }
        Ok(true)
    }

    /// Lines that were read so far.
    pub(crate) fn lines(&self) -> u64 {
        self.logs.iter().map(|log| log.source.lines()).fold(self.lines, u64::saturating_add)
    }

    /// Ends the reading, even if there is more: passes on the records read so far, and returns the
    /// counts.
    pub(crate) fn finish(
        mut self,
        on_record: &mut impl FnMut(&Record<'_>),
    ) -> Result<LogCounts, CommandError> {
        self.logs.retain(|log| !matches!(log.state, LogState::Closed));
        for log in &mut self.logs {
            if matches!(log.state, LogState::Open(_)) {
                log.end(0, on_record)?;
            }
        }
        while let Some((at, until_ns)) = self.first() {
            let Some(log) = self.logs.get_mut(at) else { break };
            log.queue.pop_until(until_ns, on_record);
            if log.queue.next_ns().is_none() {
                self.close(at);
            }
        }
        Ok(self.counts)
    }

    /// The log with the earliest next record, and the time of the next record of the others.
    fn first(&self) -> Option<(usize, u64)> {
        let next = || self.logs.iter().map(Log::next_ns).enumerate();
        let (at, _) = next().min_by_key(|(_, next_ns)| *next_ns)?;
        let others = next().filter(|(other, _)| *other != at);
        Some((at, others.map(|(_, next_ns)| next_ns).min().unwrap_or(u64::MAX)))
    }

    fn close(&mut self, at: usize) {
        let log = self.logs.remove(at);
        log.source.count(&mut self.counts);
        self.lines = self.lines.saturating_add(log.source.lines());
    }
}

impl Log<'_> {
    /// The time of its next record; where that was not read yet, a lower bound.
    fn next_ns(&self) -> u64 {
        self.queue.next_ns().unwrap_or(self.floor_ns)
    }

    /// Reads the next piece. Records up to `until_ns` are passed on, the others wait. Nothing waits
    /// before the call.
    fn read_on(
        &mut self,
        until_ns: u64,
        interrupt: &Interrupt,
        read: &Arc<AtomicU64>,
        on_record: &mut impl FnMut(&Record<'_>),
    ) -> Result<Next, CommandError> {
        if matches!(self.state, LogState::Closed) {
            self.state = LogState::Open(self.input.pieces(read)?);
        }
        let LogState::Open(pieces) = &mut self.state else { return Ok(Next::Whole) };
        match pieces.next(interrupt) {
            Next::Piece(piece) => {
                let Self { input, source, queue, floor_ns, .. } = self;
                let fed = source.feed(&piece, &mut sorted(queue, floor_ns, until_ns, on_record));
                fed.map_err(|refused| CommandError::Misuse(format!("{}: {refused}", input.name)))?;
                if let LogState::Open(pieces) = &self.state {
                    pieces.give_back(piece);
                }
                Ok(Next::Piece(Vec::new()))
            }
            Next::Interrupted => Ok(Next::Interrupted),
            ending => self.end(until_ns, on_record).map(|()| ending),
        }
    }

    /// Ends the log: records up to `until_ns` are passed on, the others wait.
    fn end(
        &mut self,
        until_ns: u64,
        on_record: &mut impl FnMut(&Record<'_>),
    ) -> Result<(), CommandError> {
        let Self { input, source, queue, floor_ns, .. } = self;
        let ended = source.finish(&mut sorted(queue, floor_ns, until_ns, on_record));
        self.state = LogState::Ended;
        ended.map_err(|refused| CommandError::Misuse(format!("{}: {refused}", input.name)))
    }
}

/// Passes on a record up to `until_ns`, and queues a later one.
fn sorted(
    queue: &mut Queue,
    floor_ns: &mut u64,
    until_ns: u64,
    on_record: &mut impl FnMut(&Record<'_>),
) -> impl FnMut(&Record<'_>) {
    move |record| {
        if record.time.unix_ns <= until_ns && queue.next_ns().is_none() {
            *floor_ns = record.time.unix_ns;
            on_record(record);
        } else {
            queue.push(record);
        }
    }
}
