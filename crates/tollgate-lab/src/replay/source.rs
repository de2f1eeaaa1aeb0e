//! One log of a replay: bytes in, records in the order of time out.
//!
//! Invariant: the records do not depend on how the bytes are split.

use tollgate_access_log::{Bounds, Field, Format, Limits, Order, Reader, Record, Refused, Wanted};

use crate::replay::summarise::LogCounts;

/// One log.
#[derive(Debug)]
pub struct Source {
    reader: Reader,
    order: Order,
}

impl Source {
    /// A log in `format`; only `fields` are read.
    ///
    /// # Errors
    /// The format does not contain the time.
    pub fn new(format: &Format, fields: Vec<Field>, bounds: Bounds) -> Result<Self, Refused> {
        let wanted = Wanted::new(fields);
        let reader = Reader::new(format, wanted.clone(), Limits::default())?;
        Ok(Self { reader, order: Order::new(wanted, bounds) })
    }

    /// Reads the next bytes, and emits the records whose order is now known.
    ///
    /// # Errors
    /// The log cannot be read.
    pub fn feed(
        &mut self,
        bytes: &[u8],
        on_record: &mut impl FnMut(&Record<'_>),
    ) -> Result<(), Refused> {
        let Self { reader, order } = self;
        reader.feed(bytes, &mut |record| order.push(&record, &mut |record| on_record(&record)))
    }

    /// Ends the log, and emits the remaining records.
    ///
    /// # Errors
    /// The log cannot be read.
    pub fn finish(&mut self, on_record: &mut impl FnMut(&Record<'_>)) -> Result<(), Refused> {
        let Self { reader, order } = self;
        reader.finish(&mut |record| order.push(&record, &mut |record| on_record(&record)))?;
        order.finish(&mut |record| on_record(&record));
        Ok(())
    }

    /// Lines so far.
    #[must_use]
    pub const fn lines(&self) -> u64 {
        self.reader.counts().lines
    }

    /// Adds the counts of this log.
    pub fn count(&self, counts: &mut LogCounts) {
        counts.add(self.reader.counts(), self.order.counts());
    }
}
