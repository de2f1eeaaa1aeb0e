//! Lines of every format, and the fields read from them: the rows of `lines.txt`.
//!
//! Invariant: a row contains every field of its line. `TOLLGATE_BLESS=1` writes the results again;
//! each must be checked against its line before it is committed.

use std::fmt::Write as _;
use std::path::Path;

use tollgate_access_log::{Client, Field, Format, Limits, Reader, Record, Wanted};
use tollgate_test_support::golden::assert_file;

/// The fields that are read from every line.
const ASKED: [&str; 23] = [
    "client",
    "peer",
    "user",
    "method",
    "target",
    "host",
    "status",
    "route",
    "country",
    "asn",
    "header.referer",
    "header.user-agent",
    "header.x-forwarded-for",
    "header.x-request-id",
    "header.x-api-key",
    "header.accept",
    "cookie.session",
    "query.q",
    "claim.sub",
    "certificate.subject",
    "certificate.sha256",
    "metadata.envoy.filters.http.ext_authz/tenant/id",
    "header.cookie",
];

fn wanted() -> Wanted {
    Wanted::new(ASKED.iter().map(|words| Field::parse(words).unwrap()))
}

/// `time=... client=...`: the fields of a record, in the order of [`ASKED`].
fn shown(record: &Record<'_>) -> String {
    let (seconds, ns) = (record.time.unix_ns / 1_000_000_000, record.time.unix_ns % 1_000_000_000);
    let mut out = format!("time={seconds}");
    if !record.time.is_whole_second {
        write!(out, ".{ns:09}").unwrap();
    }
    for words in ASKED {
        let text = |text: &[u8]| text.escape_ascii().to_string();
        let value = match words {
            "client" => record.client.map(|client| match client {
                Client::Address(address) => address.to_string(),
                Client::Name(name) => format!("name:{}", text(name)),
            }),
            "peer" => record.peer.map(|peer| peer.to_string()),
            "status" => record.status.map(|status| status.to_string()),
            "user" => record.user().map(text),
            "method" => record.method().map(text),
            "target" => record.target().map(text),
            "host" => record.host().map(text),
            "route" => record.route().map(text),
            "country" => record.country().map(text),
            "asn" => record.asn().map(text),
            _ => match words.split_once('.').unwrap() {
                ("header", name) => record.header(name).map(text),
                ("cookie", name) => record.cookie(name).map(text),
                ("query", name) => record.query(name).map(text),
                ("claim", name) => record.claim(name).map(text),
                ("cf", name) => record.cloudflare(name).map(text),
                ("certificate", name) => record.certificate(name).map(text),
                ("metadata", path) => record.metadata(path).map(text),
                _ => panic!("{words}"),
            },
        };
        if let Some(value) = value {
            write!(out, " {words}={value}").unwrap();
        }
    }
    out
}

/// The result of reading a file of one line.
fn read(format: &Format, header: &str, line: &[u8]) -> String {
    let mut reader = Reader::new(format, wanted(), Limits::default()).unwrap();
    let mut out = Vec::new();
    reader.feed(header.as_bytes(), &mut |record| out.push(shown(&record))).unwrap();
    reader.feed(line, &mut |record| out.push(shown(&record))).unwrap();
    reader.finish(&mut |record| out.push(shown(&record))).unwrap();
    for (cause, count) in reader.counts().unparsable() {
        out.push(format!("{count} {}", cause.name()));
    }
    out.join(" | ")
}

/// The rows are `format SPEC`, `map MAP`, `header LINE` or `fit LINE`, and then lines after `<`,
/// each with its result after `>`. In a line `\t`, `\r`, `\n` and `\xHH` stand for these bytes
/// where the format has no backslashes of its own: after `<<`.
#[test]
fn every_line_tells_what_its_row_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/lines.txt");
    let text = std::fs::read_to_string(&path).unwrap();
    let (mut format, mut header, mut line) = (None, String::new(), Vec::new());
    let (mut found, mut rows) = (String::new(), 0);
    for row in text.lines() {
        let (kind, rest) = row.split_once(' ').unwrap_or((row, ""));
        match kind {
            "format" => {
                format = Some(Format::parse(rest).unwrap_or_else(|why| panic!("{row}: {why}")));
                header.clear();
            }
            "map" => format = Some(format.unwrap().with_map(rest).unwrap()),
            "header" => {
                header = unescaped(rest) + "\n";
                format = Some(format.unwrap().fit(header.as_bytes()).unwrap());
            }
            "fit" => format = Some(format.unwrap().fit(rest.as_bytes()).unwrap()),
            "<" => line = rest.as_bytes().to_vec(),
            "<<" => line = unescaped(rest).into_bytes(),
            ">" => {
                let answer = read(format.as_ref().unwrap(), &header, &line);
                writeln!(found, "> {answer}").unwrap();
                rows += 1;
                continue;
            }
            _ => assert!(kind.is_empty() || kind == "#", "{row}"),
        }
        writeln!(found, "{row}").unwrap();
    }
    assert!(rows > 60, "{rows} rows");
    assert_file(path, &found);
}

/// Tabs and line ends, which an editor would change.
fn unescaped(text: &str) -> String {
    text.replace("\\t", "\t").replace("\\r", "\r").replace("\\n", "\n").replace("\\0", "\0")
}
