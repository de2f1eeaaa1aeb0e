//! Records that are passed on together: from the thread that reads a log to the one that uses it.
//!
//! Invariant: the pushed records are returned unchanged, in the same order, each time.

use crate::field::Wanted;
use crate::record::{Place, Record};
use crate::spool;

/// Some records of a reader, in memory that is used again.
#[derive(Clone, Debug)]
pub struct Batch {
    wanted: Wanted,
    bytes: Vec<u8>,
    places: Vec<Place>,
    len: usize,
}

impl Batch {
    /// A batch for records of a reader with the same wanted fields.
    #[must_use]
    pub const fn new(wanted: Wanted) -> Self {
        Self { wanted, bytes: Vec::new(), places: Vec::new(), len: 0 }
    }

    /// Adds a record.
    pub fn push(&mut self, record: &Record<'_>) {
        spool::write(record, &mut self.bytes);
        self.len = self.len.wrapping_add(1);
    }

    /// Gives every record, in the order in which they were added.
    pub fn each(&mut self, mut on_record: impl FnMut(&Record<'_>)) {
        let Self { wanted, bytes, places, .. } = self;
        let mut rest = bytes.as_slice();
        while let Some((record, after)) = spool::read(rest, places, wanted) {
            on_record(&record);
            rest = after;
        }
    }

    /// Forgets the records.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.len = 0;
    }

    /// How many records there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// True when there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes that the records take.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Field, Format, Limits, Reader};

    #[test]
    fn records_come_out_as_they_went_in_however_often() {
        let fields = ["client", "target", "header.user-agent"].map(|f| Field::parse(f).unwrap());
        let wanted = Wanted::new(fields);
        let format = Format::parse("combined").unwrap();
        let mut reader = Reader::new(&format, wanted.clone(), Limits::default()).unwrap();
        let mut batch = Batch::new(wanted);
        let mut log = String::new();
        for n in 0..50 {
            let client = ["192.0.2.1", "2001:db8::7", "host.example", "-"][n % 4];
            let agent = ["-", "a", "b\\x22"][n % 3];
            log += &format!(
                "{client} - - [10/Oct/2000:13:55:36 -0700] \"GET /{n} HTTP/1.1\" 200 7 \"-\" \"{agent}\"\n"
            );
        }
        let mut seen = Vec::new();
        let text = |record: &Record<'_>| {
            let agent = record.header("user-agent").map(<[u8]>::to_vec);
            format!("{:?} {:?} {:?} {agent:?}", record.time, record.client, record.target())
        };
        let mut push = |record: Record<'_>| {
            seen.push(text(&record));
            batch.push(&record);
        };
        reader.feed(log.as_bytes(), &mut push).unwrap();
        assert_eq!((seen.len(), batch.len()), (50, 50));
        for _ in 0..2 {
            let mut back = Vec::new();
            batch.each(|record| back.push(text(record)));
            assert_eq!(back, seen);
        }
        batch.clear();
        batch.each(|_| panic!("there is none"));
        assert!(batch.is_empty() && batch.bytes() == 0);
    }
}
