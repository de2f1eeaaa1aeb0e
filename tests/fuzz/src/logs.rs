//! Logs of any bytes in any format.
//!
//! An input is the words of a format, a line end, and the log. Invariant checked: a format is
//! rejected with a message that a terminal can show, or reads the log: every line is a record,
//! empty or counted by its cause; a text of a record is in the log, or is such a text without its
//! escapes; however the log is cut into pieces, the records are the same; a reader of fewer fields
//! gets no fewer lines, except for lines that are ambiguous in those fields; and records in any
//! order are returned in order of time, or are counted.

use tollgate_access_log::{
    Bounds, Cause, Client, Counts, Field, Format, Limits, Order, Reader, Record, Refused, Wanted,
};

/// Longer logs find nothing new.
const LONGEST: usize = 1500;
/// Short, so that some lines are too long.
const LINE_BYTES: usize = 200;

/// Reads a log in the format of its first line, if that begins with one of `names`; otherwise in
/// the first of them.
pub fn check(names: &[&str], bytes: &[u8]) {
    let bytes = &bytes[..bytes.len().min(LONGEST)];
    let at = bytes.iter().position(|b| *b == b'\n').map_or(bytes.len(), |at| at + 1);
    let (first, log) = bytes.split_at(at);
    let words = String::from_utf8_lossy(first.strip_suffix(b"\n").unwrap_or(first));
    let is_named = names.iter().any(|name| words.split(':').next() == Some(name));
    let parsed = Format::parse(if is_named { &words } else { names[0] });
    let format = match parsed.and_then(|format| format.fit(log)) {
        Ok(format) => format,
        Err(why) => {
            let why = why.to_string();
            assert!(!why.contains(char::is_control), "{why:?}");
            return;
        }
    };
    // This tries every format, which is slow.
    if log.len() < 200
        && let Some(found) = Format::detect(log)
    {
        assert!(found.contains(&Field::Time), "{found}");
    }
    let all = ["client", "peer", "user", "method", "target", "host", "status", "route", "country"]
        .into_iter()
        .chain([
            "asn",
            "header.user-agent",
            "header.a",
            "cookie.a",
            "query.a",
            "claim.a",
            "metadata.a/b",
        ]);
    let all = Wanted::new(all.filter_map(Field::parse));
    let Ok(read) = Read::at_once(&format, &all, log, log.len().max(1)) else { return };
    for piece in [1, 7] {
        let in_pieces = Read::at_once(&format, &all, log, piece);
        assert_eq!(in_pieces.as_ref(), Ok(&read), "{format} in pieces of {piece}");
    }
    read.is_whole(log);
    let few = Read::at_once(&format, &Wanted::new([]), log, log.len().max(1)).expect("as above");
    // Fields that are not read cannot show which reading is the right one.
    let of = |counts: &Counts| {
        counts
            .unparsable()
            .filter(|(cause, _)| *cause == Cause::Ambiguous)
            .map(|(_, n)| n)
            .sum::<u64>()
    };
    let found = few.counts.records + of(&few.counts);
    assert!(found >= read.counts.records, "{format}: {few:?} and {read:?}");
    ordered(&format, &all, log);
}

/// The result of reading a log.
#[derive(Debug, PartialEq)]
struct Read {
    records: Vec<OwnedRecord>,
    counts: Counts,
}

/// A record that owns its texts.
#[derive(Debug, PartialEq)]
struct OwnedRecord {
    unix_ns: u64,
    is_whole_second: bool,
    status: Option<u16>,
    client: Option<String>,
    texts: Vec<Vec<u8>>,
}

impl Read {
    fn at_once(f: &Format, wanted: &Wanted, log: &[u8], piece: usize) -> Result<Self, Refused> {
        let limits = Limits { line_bytes: LINE_BYTES };
        let mut reader = Reader::new(f, wanted.clone(), limits)?;
        let mut records = vec![];
        for piece in log.chunks(piece) {
            reader.feed(piece, &mut |record| records.push(OwnedRecord::new(&record)))?;
        }
        reader.finish(&mut |record| records.push(OwnedRecord::new(&record)))?;
        let counts = reader.counts().clone();
        assert_eq!(counts.bytes, log.len() as u64);
        Ok(Self { records, counts })
    }

    fn is_whole(&self, log: &[u8]) {
        let counts = &self.counts;
        let unparsable: u64 = counts.unparsable().map(|(_, count)| count).sum();
        assert_eq!(counts.lines, counts.records + counts.empty + unparsable, "{counts:?}");
        assert_eq!(counts.records, self.records.len() as u64);
        let ends = log.iter().filter(|byte| **byte == b'\n').count() as u64;
        assert!(counts.lines <= ends + 1, "{counts:?}");
        for sample in counts.samples() {
            let is_shown = |c: char| c.is_ascii_graphic() || c == ' ';
            assert!(sample.text.chars().all(is_shown) && sample.text.len() <= 640);
        }
        let has_escapes = log.contains(&b'\\') || log.contains(&b'"');
        for text in self.records.iter().flat_map(|told| &told.texts) {
            let stands =
                |text: &[u8]| text.is_empty() || log.windows(text.len()).any(|part| part == text);
            // A target may be composed of a path and a query, a list of its elements.
            let is_joined = text.split(|b| b"?,".contains(b)).all(|part| stands(part.trim_ascii()));
            assert!(has_escapes || stands(text) || is_joined, "{}", text.escape_ascii());
            // Up to the `, ` between elements of a list, which is `","` in the log.
            assert!(text.len() <= log.len() + 1);
        }
    }
}

impl OwnedRecord {
    fn new(record: &Record<'_>) -> Self {
        let client = record.client.map(|client| match client {
            Client::Address(address) => address.to_string(),
            Client::Name(name) => format!("name {}", name.escape_ascii()),
        });
        let texts = [
            record.user(),
            record.method(),
            record.target(),
            record.host(),
            record.route(),
            record.country(),
            record.asn(),
            record.header("user-agent"),
            record.header("a"),
            record.cookie("a"),
            record.query("a"),
            record.claim("a"),
            record.metadata("a/b"),
            record.certificate("subject"),
        ];
        Self {
            unix_ns: record.time.unix_ns,
            is_whole_second: record.time.is_whole_second,
            status: record.status,
            client,
            texts: texts.into_iter().flatten().map(<[u8]>::to_vec).collect(),
        }
    }
}

/// Everything is returned in order or is counted, with little room and with much.
fn ordered(format: &Format, wanted: &Wanted, log: &[u8]) {
    for held_bytes in [100, 1 << 20] {
        let bounds = Bounds { out_of_order_ns: 2_000_000_000, held_bytes };
        let mut order = Order::new(wanted.clone(), bounds);
        let limits = Limits { line_bytes: LINE_BYTES };
        let Ok(mut reader) = Reader::new(format, wanted.clone(), limits) else { return };
        let (mut before, mut out) = (0, 0_u64);
        let mut on_ordered = |record: Record<'_>| {
            assert!(record.time.unix_ns >= before, "{format}");
            before = record.time.unix_ns;
            out += 1;
        };
        let mut on_record = |record: Record<'_>| order.push(&record, &mut on_ordered);
        let fed = reader.feed(log, &mut on_record).and_then(|()| reader.finish(&mut on_record));
        assert!(fed.is_ok(), "{format} was read before");
        order.finish(&mut on_ordered);
        let counts = order.counts();
        assert_eq!(out, counts.records);
        assert_eq!(reader.counts().records, out + counts.late + counts.ahead, "{counts:?}");
    }
}
