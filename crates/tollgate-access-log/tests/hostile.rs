//! Lines that are never written by accident: each is counted by its cause, and none costs memory.
//!
//! Guards: the memory that a reader and an order reserve, counted by the allocator of this test. It
//! has one test function, so that no other test's memory is counted.
#![allow(missing_docs, unsafe_code, clippy::arithmetic_side_effects, clippy::as_conversions)]
#![allow(clippy::indexing_slicing, clippy::unwrap_used)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use tollgate_access_log::{
    Bounds, Cause, Counts, Field, Format, Limits, Order, Reader, Record, Refused, Wanted,
};

/// Counts the reserved bytes, and their maximum.
struct Counting;

static NOW: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is passed on unchanged; in addition only numbers are stored.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = NOW.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        MOST.fetch_max(now, Ordering::Relaxed);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The most bytes that `work` had reserved, in addition to those reserved before.
fn most_reserved(work: impl FnOnce()) -> usize {
    let before = NOW.load(Ordering::Relaxed);
    MOST.store(before, Ordering::Relaxed);
    work();
    MOST.load(Ordering::Relaxed) - before
}

const GOOD: &str = r#"192.0.2.1 - - [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.1" 200 1 "-" "x""#;
const PIECE: usize = 64 * 1024;

fn reader(spec: &str) -> Reader {
    let fields = ["client", "method", "target", "status", "header.user-agent"];
    let wanted = Wanted::new(fields.iter().filter_map(|words| Field::parse(words)));
    Reader::new(&Format::parse(spec).unwrap(), wanted, Limits::default()).unwrap()
}

/// The counts for a log that consists of `times` copies of one piece, between two valid lines.
fn counts(spec: &str, good: &str, piece: &[u8], times: usize) -> Counts {
    let mut reader = reader(spec);
    let mut ignore = |_: Record<'_>| {};
    reader.feed(format!("{good}\n").as_bytes(), &mut ignore).unwrap();
    for _ in 0..times {
        reader.feed(piece, &mut ignore).unwrap();
    }
    reader.feed(format!("\n{good}\n").as_bytes(), &mut ignore).unwrap();
    reader.finish(&mut ignore).unwrap();
    reader.counts().clone()
}

fn only(cause: Cause, count: u64) -> Vec<(Cause, u64)> {
    vec![(cause, count)]
}

/// A line of 2 GiB, in every format that has a state of its own while it reads one.
fn endless_lines() {
    let zeros = vec![0_u8; 1 << 20];
    let json = r#"{"ts":1}"#;
    for (spec, good) in [("combined", GOOD), ("json:time=ts", json), ("csv:[time]", "1")] {
        let times = if spec == "combined" { 2048 } else { 10 };
        let mut found = None;
        let most = most_reserved(|| found = Some(counts(spec, good, &zeros, times)));
        let found = found.unwrap();
        assert_eq!((found.lines, found.records), (3, 2), "{spec}");
        assert!(found.unparsable().eq(only(Cause::TooLong, 1)), "{spec}: {found:?}");
        assert!(most < 4 * PIECE, "{spec}: {most} bytes");
        assert_eq!(found.samples()[0].text.len(), 160 * "\\x00".len());
    }
}

/// Deep JSON, quotes that are never closed, escapes without end: all within a line's length.
fn nested_and_open() {
    let deep = [b"{\"a\":".repeat(10_000), b"1".to_vec(), b"}".repeat(10_000)].concat();
    let list = [b"{\"ts\":1,\"a\":".to_vec(), b"[".repeat(60_000)].concat();
    for deep in [deep, list] {
        let found = counts("json:time=ts", r#"{"ts":1}"#, &deep, 1);
        assert!(found.unparsable().eq(only(Cause::TooDeep, 1)), "{found:?}");
    }
    for (levels, causes) in [(64, vec![]), (65, only(Cause::TooDeep, 1))] {
        let list = format!("{{\"ts\":1,\"a\":{}{}}}", "[".repeat(levels), "]".repeat(levels));
        let found = counts("json:time=ts", r#"{"ts":1}"#, list.as_bytes(), 1);
        assert!(found.unparsable().eq(causes), "{levels}: {found:?}");
    }
    // 100,000 levels are more than a line may have.
    let found = counts("json:time=ts", r#"{"ts":1}"#, &b"[".repeat(100_000), 1);
    assert!(found.unparsable().eq(only(Cause::TooLong, 1)), "{found:?}");
    let open = b"\"\n".repeat(PIECE / 4);
    let most = most_reserved(|| {
        let found = counts("csv:[time]", "1", &open, 40);
        assert_eq!(found.records, 2);
        let wrong: u64 = found.unparsable().map(|(_, count)| count).sum();
        assert_eq!(found.lines, found.records + found.empty + wrong);
    });
    assert!(most < 8 * PIECE, "{most} bytes");
}

/// Ten million bytes of lines, all wrong in the same way, are a count and three samples.
fn many_wrong_lines() {
    let wrong = b"\x1b]0;title\x07\xff\xfe\0 <script>alert(1)</script>\n".repeat(1000);
    let most = most_reserved(|| {
        let found = counts("combined", GOOD, &wrong, 250);
        assert!(found.unparsable().eq(only(Cause::Form, 250_000)));
        assert_eq!((found.samples().len(), found.empty), (3, 1));
        for sample in found.samples() {
            assert_eq!(sample.text, r"\x1b]0;title\x07\xff\xfe\x00 <script>alert(1)</script>");
        }
    });
    assert!(most < 2 * PIECE, "{most} bytes");
}

/// Lines that fit a template in very many ways take a bounded number of tries.
fn many_ways() {
    let spec = "nginx:$http_a $http_b $http_c $http_d $msec $status";
    let line = [b"1 ".repeat(30_000), b"x".to_vec()].concat();
    let found = counts(spec, "a b c d 1 200", &line, 1);
    assert!(found.unparsable().eq(only(Cause::Ambiguous, 1)), "{found:?}");
}

/// A line that is not a request is never counted as one, whichever fields are wanted.
fn no_requests() {
    let log = GOOD.replace("GET / HTTP/1.1", "-");
    for fields in [vec![], vec![Field::Client], vec![Field::Method]] {
        let wanted = Wanted::new(fields);
        let format = Format::parse("combined").unwrap();
        let mut reader = Reader::new(&format, wanted.clone(), Limits::default()).unwrap();
        let mut methods = vec![];
        let mut keep = |record: Record<'_>| methods.push(record.method().is_some());
        reader.feed(format!("{log}\n{GOOD}\n").as_bytes(), &mut keep).unwrap();
        assert!(reader.counts().unparsable().eq(only(Cause::NoRequest, 1)));
        assert_eq!(methods, [wanted.has(&Field::Method)]);
    }
}

/// Line ends of other systems, marks, and files in UTF-16.
fn other_encodings() {
    let read = |log: &[u8]| {
        let mut reader = reader("combined");
        let result = reader.feed(log, &mut |_| {}).and_then(|()| reader.finish(&mut |_| {}));
        result.map(|()| (reader.counts().records, reader.counts().empty))
    };
    let crlf = format!("\u{feff}{GOOD}\r\n\r\n\n{GOOD}");
    assert_eq!(read(crlf.as_bytes()), Ok((2, 2)));
    // A lone carriage return does not end a line.
    assert_eq!(read(format!("{GOOD}\r{GOOD}").as_bytes()), Ok((1, 0)));
    let utf16: Vec<u8> =
        format!("\u{feff}{GOOD}\n").encode_utf16().flat_map(u16::to_le_bytes).collect();
    assert_eq!(read(&utf16), Err(Refused::Utf16));
    let utf16: Vec<u8> =
        format!("\u{feff}{GOOD}\n").encode_utf16().flat_map(u16::to_be_bytes).collect();
    assert_eq!(read(&utf16), Err(Refused::Utf16));
    assert!(Refused::Utf16.to_string().contains("UTF-16"));
}

/// A second of a million lines is held within its bound.
fn crowded_seconds() {
    const HELD: usize = 1 << 20;
    let mut reader = reader("combined");
    let fields = ["client", "method", "target", "status", "header.user-agent"];
    let wanted = Wanted::new(fields.iter().filter_map(|words| Field::parse(words)));
    let lines = format!("{GOOD}\n").repeat(1000);
    let (mut before, mut out) = (0, 0_u64);
    let most = most_reserved(|| {
        let mut order = Order::new(wanted, Bounds { held_bytes: HELD, ..Bounds::default() });
        let mut on_ordered = |record: Record<'_>| {
            assert!(record.time.unix_ns >= before);
            before = record.time.unix_ns;
            out += 1;
        };
        for _ in 0..300 {
            let mut on_record = |record: Record<'_>| order.push(&record, &mut on_ordered);
            reader.feed(lines.as_bytes(), &mut on_record).unwrap();
        }
        order.finish(&mut on_ordered);
        assert_eq!((order.counts().crowded_seconds, order.counts().late), (1, 0));
    });
    assert_eq!((out, before), (300_000, 971_211_336_999_000_000));
    assert!(most < 4 * HELD, "{most} bytes");
}

#[test]
fn hostile_lines_are_counted_and_cost_no_memory() {
    endless_lines();
    nested_and_open();
    many_wrong_lines();
    many_ways();
    no_requests();
    other_encodings();
    crowded_seconds();
}
