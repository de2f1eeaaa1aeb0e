//! Measures the least cost of reading a log, and writes logs to measure it on.
//!
//! `floor combined FILE LINES CLIENTS` and `floor tsv FILE LINES CLIENTS` write a log, the same one
//! in every run. `floor days FILE LOG N` writes a log of one day, with the columns host, logname,
//! time and so on, N times with N dates. `floor gzip FILE LOG` compresses one. `floor split LOG`
//! only finds its lines, `floor gunzip LOG` only decompresses it; both print how much there was.
//! `cargo xtask bench replay` runs them in turns with the replay. It asserts nothing about time.
#![allow(clippy::unwrap_used, clippy::panic, clippy::arithmetic_side_effects)]
#![allow(clippy::indexing_slicing, clippy::as_conversions)]

use std::fs::File;
use std::hint::black_box;
use std::io::{BufRead, BufReader, BufWriter, Read, Write, sink};

use tollgate_test_support::Random;

use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;

/// The number of bytes that a fast program reads at once.
const BUFFER: usize = 1 << 18;
/// 1 August 1995, 00:00:00 UTC.
const FROM: u64 = 807_235_200;
/// Lines per second, on average.
const A_SECOND: u64 = 64;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["combined", file, lines, clients] => write(file, lines, clients, "", combined),
        ["tsv", file, lines, clients] => write(file, lines, clients, COLUMNS, tsv),
        ["days", file, log, days] => repeat(file, log, days.parse().unwrap()),
        ["gzip", file, log] => gzip(file, log),
        ["split", log] => println!("{}", split(log)),
        ["gunzip", log] => println!("{}", gunzip(log)),
        _ => panic!("see crates/tollgate-access-log/examples/floor.rs"),
    }
}

/// One request of a generated log.
struct Line {
    second: u64,
    client: u64,
    /// Random bits for the other fields.
    bits: u64,
}

const COLUMNS: &str = "host\tlogname\ttime\tmethod\turl\tresponse\tbytes\treferer\tuseragent\n";
const PAGES: [&str; 8] = [
    "/",
    "/images/launch-logo.gif",
    "/shuttle/missions/sts-70/sts-70-day-03-highlights.html",
    "/api/v1/items?page=2&sort=price",
    "/history/apollo/apollo-13/apollo-13.html",
    "/static/app.5f3a9c.js",
    "/search?q=rate+limit",
    "/images/ksclogo-medium.gif",
];
const AGENTS: [&str; 4] = [
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/126.0.0.0 Safari/537.36",
    "Mozilla/5.0 (iPhone; CPU iPhone OS 17_5 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/17.5 Mobile/15E148 Safari/604.1",
    "curl/8.7.1",
    "Mozilla/5.0 (X11; Linux x86_64; rv:127.0) Gecko/20100101 Firefox/127.0",
];

fn write(file: &str, lines: &str, clients: &str, head: &str, line: fn(&mut String, &Line)) {
    let (lines, clients): (u64, u64) = (lines.parse().unwrap(), clients.parse().unwrap());
    let mut out = BufWriter::with_capacity(BUFFER, File::create(file).unwrap());
    out.write_all(head.as_bytes()).unwrap();
    let mut random = Random::new(1);
    let mut text = String::new();
    for n in 0..lines {
        let bits = random.number();
        // Every client once; then half of the requests come from a few, half from any.
        let any = random.number() % clients;
        let few = (0..4).fold(any, |of, _| (of * (random.number() % clients)) / clients);
        let client = if n < clients { n } else { [any, few][(bits >> 32) as usize % 2] };
        text.clear();
        line(&mut text, &Line { second: FROM + n / A_SECOND, client, bits });
        out.write_all(text.as_bytes()).unwrap();
    }
    out.flush().unwrap();
}

fn page(bits: u64) -> &'static str {
    PAGES[(bits % 8) as usize]
}

/// `1.2.3.4 - - [01/Aug/1995:00:00:00 +0000] "GET / HTTP/1.1" 200 123 "-" "curl/8.7.1"`
fn combined(text: &mut String, line: &Line) {
    use std::fmt::Write;
    let Line { second, client, bits } = *line;
    let [_, a, b, c] = ((client * 7919) as u32).to_be_bytes();
    let (day, clock) = ((second - FROM) / 86_400 + 1, (second - FROM) % 86_400);
    let (hour, minute, second) = (clock / 3600, clock / 60 % 60, clock % 60);
    let (page, agent) = (page(bits), AGENTS[(bits >> 8) as usize % 4]);
    let bytes = bits >> 48;
    let referer = if bits & 64 == 0 { "-" } else { "https://www.example.com/shop/index.html" };
    write!(text, "{}.{a}.{b}.{c} - - [{day:02}/Aug/1995:", 11 + client % 200).unwrap();
    write!(text, "{hour:02}:{minute:02}:{second:02} +0000] \"GET {page} HTTP/1.1\" ").unwrap();
    writeln!(text, "200 {bytes} \"{referer}\" \"{agent}\"").unwrap();
}

fn tsv(text: &mut String, line: &Line) {
    use std::fmt::Write;
    let Line { second, client, bits } = *line;
    let (page, bytes) = (page(bits), bits >> 48);
    writeln!(text, "host{client}.dialup.example.net\t-\t{second}\tGET\t{page}\t200\t{bytes}\t\t")
        .unwrap();
}

/// The same day again and again, one day later each time.
fn repeat(file: &str, log: &str, days: u64) {
    let text = std::fs::read_to_string(log).unwrap();
    let (head, rows) = text.split_once('\n').unwrap();
    let mut out = BufWriter::with_capacity(BUFFER, File::create(file).unwrap());
    writeln!(out, "{head}").unwrap();
    for day in 0..days {
        for row in rows.lines() {
            let mut columns = row.splitn(4, '\t');
            let mut column = || columns.next().unwrap();
            let (host, name, time, rest) = (column(), column(), column(), column());
            let time = time.parse::<u64>().unwrap() + day * 86_400;
            writeln!(out, "{host}\t{name}\t{time}\t{rest}").unwrap();
        }
    }
    out.flush().unwrap();
}

fn gzip(file: &str, log: &str) {
    let out = BufWriter::new(File::create(file).unwrap());
    let mut packed = GzEncoder::new(out, flate2::Compression::default());
    std::io::copy(&mut File::open(log).unwrap(), &mut packed).unwrap();
    packed.finish().unwrap().flush().unwrap();
}

/// The number of lines, after finding the end of each.
fn split(log: &str) -> usize {
    let mut lines = BufReader::with_capacity(BUFFER, File::open(log).unwrap());
    let (mut count, mut rest) = (0, Vec::new());
    loop {
        let buffer = lines.fill_buf().unwrap();
        if buffer.is_empty() {
            return count + usize::from(!rest.is_empty());
        }
        let mut from = 0;
        while let Some(len) = memchr::memchr(b'\n', &buffer[from..]) {
            let line = &buffer[from..from + len];
            if rest.is_empty() {
                black_box(line);
            } else {
                rest.extend_from_slice(line);
                black_box(&rest);
                rest.clear();
            }
            count += 1;
            from += len + 1;
        }
        rest.extend_from_slice(&buffer[from..]);
        let len = buffer.len();
        lines.consume(len);
    }
}

/// The number of bytes after decompression.
fn gunzip(log: &str) -> u64 {
    let packed = BufReader::with_capacity(BUFFER, File::open(log).unwrap());
    let mut plain = MultiGzDecoder::new(packed);
    let (mut buffer, mut bytes) = (vec![0; BUFFER], 0);
    loop {
        match plain.read(&mut buffer).unwrap() {
            0 => return bytes,
            len => bytes += sink().write(black_box(&buffer[..len])).unwrap() as u64,
        }
    }
}
