//! Records that wait for those of another log.
//!
//! Invariant: first in, first out, and records are unchanged. The owner bounds its size: a program
//! that merges logs adds the records of one piece of a log.

use crate::field::Wanted;
use crate::record::{Place, Record};
use crate::spool;

/// Records in their order.
#[derive(Clone, Debug)]
pub struct Queue {
    wanted: Wanted,
    bytes: Vec<u8>,
    /// The position of the first record.
    from: usize,
    places: Vec<Place>,
    /// The time of the first record.
    next_ns: Option<u64>,
}

impl Queue {
    /// A queue for records of a reader with the same wanted fields.
    #[must_use]
    pub const fn new(wanted: Wanted) -> Self {
        Self { wanted, bytes: Vec::new(), from: 0, places: Vec::new(), next_ns: None }
    }

    /// The time of the first record; `None` when there is none.
    #[must_use]
    pub const fn next_ns(&self) -> Option<u64> {
        self.next_ns
    }

    /// Adds a record at the end.
    pub fn push(&mut self, record: &Record<'_>) {
        self.next_ns.get_or_insert(record.time.unix_ns);
        spool::write(record, &mut self.bytes);
    }

    /// Passes on the records up to the time `until_ns`, including that time.
    pub fn pop_until(&mut self, until_ns: u64, on_record: &mut impl FnMut(&Record<'_>)) {
        while self.next_ns.is_some_and(|at_ns| at_ns <= until_ns) {
            let rest = self.bytes.get(self.from..).unwrap_or_default();
            let Some((record, after)) = spool::read(rest, &mut self.places, &self.wanted) else {
                break;
            };
            let left = after.len();
            on_record(&record);
            self.from = self.bytes.len().saturating_sub(left);
            let rest = self.bytes.get(self.from..).unwrap_or_default();
            let next = spool::read(rest, &mut self.places, &self.wanted);
            self.next_ns = next.map(|(record, _)| record.time.unix_ns);
        }
        if self.next_ns.is_none() {
            self.bytes.clear();
            self.from = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Field, Format, Limits, Reader};

    #[test]
    fn records_come_out_as_they_went_in() {
        let wanted = Wanted::new([Field::Client, Field::Target, Field::Status]);
        let format = Format::parse("common").unwrap();
        let mut reader = Reader::new(&format, wanted.clone(), Limits::default()).unwrap();
        let line = |second: u64| {
            format!(
                "h{second} - - [01/Aug/1995:06:00:{second:02} +0000] \"GET /{second} HTTP/1.0\" 200 1\n"
            )
        };
        let log: String = (0..50).map(line).collect();
        let shown = |record: &Record<'_>| {
            (record.time, format!("{:?} {:?}", record.client, record.target()), record.status)
        };
        let (mut queue, mut put, mut got) = (Queue::new(wanted), Vec::new(), Vec::new());
        let feed = reader.feed(log.as_bytes(), &mut |record| {
            put.push(shown(&record));
            queue.push(&record);
        });
        feed.unwrap();
        let first = put[0].0.unix_ns;
        assert_eq!(queue.next_ns(), Some(first));
        queue.pop_until(first - 1, &mut |_| panic!("too early"));
        queue.pop_until(first + 9_000_000_000, &mut |record| got.push(shown(record)));
        assert_eq!((got.len(), queue.next_ns()), (10, Some(first + 10_000_000_000)));
        queue.pop_until(u64::MAX, &mut |record| got.push(shown(record)));
        assert_eq!((got, queue.next_ns(), queue.bytes.len()), (put, None, 0));
    }
}
