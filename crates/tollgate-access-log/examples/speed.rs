//! Measures how fast a log is read, compared with a bare line splitter on the same bytes:
//! `cargo run --profile release-test -p tollgate-access-log --example speed -- FILE [FORMAT]`.
//!
//! Invariant: the two are measured in turns, several times each, and the best of each is shown, so
//! that other work of the machine affects both. The file is repeated in memory until it has 64 MiB.
#![allow(missing_docs, clippy::arithmetic_side_effects, clippy::expect_used)]
#![allow(clippy::indexing_slicing, clippy::unwrap_used)]

use std::hint::black_box;
use std::time::{Duration, Instant};

use tollgate_access_log::{Bounds, Field, Format, Limits, Order, Reader, Wanted};

/// As programs read files.
const PIECE: usize = 256 * 1024;
const ROUNDS: usize = 9;
const BYTES: usize = 64 << 20;

/// The name of a measurement, the work, and the best time so far.
type Run<'a> = (&'static str, Box<dyn Fn() -> u64 + 'a>, Duration);

fn main() {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().expect("the path of a log");
    let log = std::fs::read(&path).expect("a log that can be read");
    let format = match arguments.next() {
        Some(spec) => Format::parse(&spec).and_then(|format| format.fit(&log)).unwrap(),
        None => Format::detect(&log[..log.len().min(PIECE)]).expect("a format that is known"),
    };
    let times = (BYTES / log.len().max(1)).max(1);
    println!("{format}, {} lines, {times} times", log.iter().filter(|b| **b == b'\n').count());
    let few = [Field::Client];
    let many = [Field::Client, Field::Method, Field::Target, Field::Status];
    let mut runs: [Run<'_>; 4] = [
        ("bare splitter", Box::new(|| split(&log, times)), Duration::MAX),
        ("client", Box::new(|| read(&log, times, &format, &few)), Duration::MAX),
        (
            "client, method, target, status",
            Box::new(|| read(&log, times, &format, &many)),
            Duration::MAX,
        ),
        ("the same, in order", Box::new(|| ordered(&log, times, &format, &many)), Duration::MAX),
    ];
    let mut lines = [0; 4];
    for _ in 0..ROUNDS {
        for ((_, run, best), lines) in runs.iter_mut().zip(&mut lines) {
            let begin = Instant::now();
            *lines = black_box(run());
            *best = begin.elapsed().min(*best);
        }
    }
    let bare_ns = runs[0].2.as_nanos();
    for ((name, _, best), lines) in runs.iter().zip(lines) {
        let per_second = u128::from(lines) * 1_000_000_000 / best.as_nanos().max(1);
        let thousandths = bare_ns * 1000 / best.as_nanos().max(1);
        println!(
            "{name:<32} {per_second:>12} lines/s  {}.{:03} x",
            thousandths / 1000,
            thousandths % 1000
        );
    }
}

fn split(log: &[u8], times: usize) -> u64 {
    let (mut lines, mut bytes) = (0, 0);
    for _ in 0..times {
        let mut rest = log;
        while let Some(end) = memchr::memchr(b'\n', rest) {
            bytes += black_box(&rest[..end]).len();
            rest = &rest[end + 1..];
            lines += 1;
        }
    }
    black_box(bytes);
    lines
}

fn read(log: &[u8], times: usize, format: &Format, fields: &[Field]) -> u64 {
    let wanted = Wanted::new(fields.iter().cloned());
    let mut reader = Reader::new(format, wanted, Limits::default()).unwrap();
    for _ in 0..times {
        for piece in log.chunks(PIECE) {
            reader
                .feed(piece, &mut |record| {
                    black_box(&record);
                })
                .unwrap();
        }
        reader
            .finish(&mut |record| {
                black_box(&record);
            })
            .unwrap();
    }
    reader.counts().records
}

fn ordered(log: &[u8], times: usize, format: &Format, fields: &[Field]) -> u64 {
    let wanted = Wanted::new(fields.iter().cloned());
    let mut reader = Reader::new(format, wanted.clone(), Limits::default()).unwrap();
    let mut order = Order::new(wanted, Bounds::default());
    let mut records = 0;
    for _ in 0..times {
        let mut on_record = |record: tollgate_access_log::Record<'_>| {
            order.push(&record, &mut |record| {
                black_box(&record);
                records += 1;
            });
        };
        for piece in log.chunks(PIECE) {
            reader.feed(piece, &mut on_record).unwrap();
        }
        reader.finish(&mut on_record).unwrap();
        order.finish(&mut |_| records += 1);
    }
    records
}
