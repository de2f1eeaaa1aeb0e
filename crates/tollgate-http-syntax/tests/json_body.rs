//! Numbers in JSON bodies: rows, the corpus of the fuzzer, and random bodies in random pieces
//! against a reader that keeps the whole body.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "tests"
)]

#[path = "../../../tests/fuzz/src/json_body.rs"]
mod oracle;

use tollgate_http_syntax::json_body::{JsonBody, JsonFormat};
use tollgate_http_syntax::json_pointer::{Found, MAX_DEPTH, is_pointer};

use Found::{Absent, Conflicting, Incomplete, Number, Unreadable};
use JsonFormat::{Document, Events, Lines};

/// The value at `pointer` of a whole body, the same by the oracle and in all pieces.
fn at(format: JsonFormat, pointer: &str, body: &[u8]) -> Found {
    let word = match format {
        Document => "document",
        Lines => "lines",
        Events => "events",
    };
    oracle::check(&[format!("{word} 3\n{pointer}\n").as_bytes(), body].concat());
    oracle::scan(format, &[pointer], &mut [body].into_iter(), true)[0]
}

/// The same where the body broke off.
fn cut(format: JsonFormat, pointer: &str, body: &[u8]) -> Found {
    oracle::scan(format, &[pointer], &mut [body].into_iter(), false)[0]
}

#[test]
fn only_digits_are_a_number() {
    for (value, found) in [
        ("0", Number(0)),
        ("17", Number(17)),
        ("999999999999999", Number(999_999_999_999_999)),
        ("1000000000000000", Number(u64::MAX)),
        ("1000000000000000000000000000000", Number(u64::MAX)),
        ("-1", Unreadable),
        ("-0", Unreadable),
        ("0.5", Unreadable),
        ("17.0", Unreadable),
        ("17e0", Unreadable),
        ("17E+2", Unreadable),
        ("\"17\"", Unreadable),
        ("null", Unreadable),
        ("true", Unreadable),
        ("[17]", Unreadable),
        ("{\"total\": 17}", Unreadable),
        // These are not JSON.
        ("017", Unreadable),
        ("+17", Unreadable),
        ("17.", Unreadable),
        ("1e", Unreadable),
        (".5", Unreadable),
        ("0x10", Unreadable),
        ("NaN", Unreadable),
        ("", Unreadable),
    ] {
        let body = format!("{{\"usage\": {{\"total\": {value}}}}}");
        assert_eq!(at(Document, "/usage/total", body.as_bytes()), found, "{value}");
    }
}

#[test]
fn a_pointer_names_one_place() {
    for (pointer, body, found) in [
        ("", "17", Number(17)),
        ("", " 17\n", Number(17)),
        ("", "{}", Unreadable),
        ("/", "{\"\": 1}", Number(1)),
        ("//", "{\"\": {\"\": 1}}", Number(1)),
        ("/a~1b", "{\"a/b\": 1}", Number(1)),
        ("/a~1b", "{\"a\": {\"b\": 1}}", Absent),
        ("/m~0n", "{\"m~n\": 1}", Number(1)),
        ("/~01", "{\"~1\": 1}", Number(1)),
        ("/usage", "{\"\\u0075sage\": 1}", Number(1)),
        ("/usage", "{\"\\u0055sage\": 1}", Absent),
        ("/usag\u{e9}", "{\"usag\\u00e9\": 1}", Number(1)),
        ("/\u{1f600}", "{\"\\ud83d\\ude00\": 1}", Number(1)),
        ("/\u{1f600}", "{\"\\ud83d\": 1, \"\\ude00\": 2, \"\\ude00\\ud83d\": 3}", Absent),
        ("/a\u{1f600}", "{\"a\\ud83d\\ud83d\\ude00\": 3}", Absent),
        ("/a", "{\"a\\ud83d\": 3}", Absent),
        ("/a\"b", "{\"a\\\"b\": 1}", Number(1)),
        ("/usage", "{\"usage2\": 2, \"usag\": 3, \"Usage\": 4}", Absent),
        ("/usage", "{\"other\": {\"usage\": 1}}", Absent),
        ("/usage", "[{\"usage\": 1}]", Absent),
        ("/usage/total", "{\"usage\": 5}", Absent),
        ("/usage/total", "{\"usage\": null}", Absent),
        ("/0", "[7, 8]", Number(7)),
        ("/1", "[7, 8]", Number(8)),
        ("/2", "[7, 8]", Absent),
        ("/-", "[7, 8]", Absent),
        ("/01", "[7, 8]", Absent),
        ("/+1", "[7, 8]", Absent),
        ("/01", "{\"01\": 1}", Number(1)),
        ("/1/1", "[[1, 2], [3, 4], [5, 6]]", Number(4)),
        ("/2/0/x", "[[[], [], 1], {\"a\": [1]}, [{\"x\": 9}]]", Number(9)),
        ("/4294967296", "[1]", Absent),
    ] {
        assert_eq!(at(Document, pointer, body.as_bytes()), found, "{pointer} {body}");
    }
}

#[test]
fn two_values_at_one_place_are_no_number() {
    for (body, found) in [
        (r#"{"usage": {"total": 1}, "usage": {"total": 1}}"#, Number(1)),
        (r#"{"usage": {"total": 1}, "usage": {"total": 2}}"#, Conflicting),
        (r#"{"usage": {"total": 1}, "\u0075sage": {"total": 2}}"#, Conflicting),
        (r#"{"usage": {"total": 1, "total": 2}}"#, Conflicting),
        (r#"{"usage": {"total": 1, "total": "1"}}"#, Conflicting),
        (r#"{"usage": {"total": 1, "total": 2, "total": 1}}"#, Conflicting),
        (r#"{"usage": {"total": 1}, "usage": null}"#, Number(1)),
        (r#"{"usage": {"total": null, "total": null}}"#, Unreadable),
    ] {
        assert_eq!(at(Document, "/usage/total", body.as_bytes()), found, "{body}");
    }
}

#[test]
fn a_document_counts_when_it_is_whole() {
    let json = br#"{"n": 1, "text": "a\"}\u12aB\\", "list": [true, false, null, -1.5e-3, {}]}"#;
    assert_eq!(at(Document, "/n", json), Number(1));
    assert_eq!(cut(Document, "/n", json), Number(1), "its end was there");
    for end in 1..json.len() {
        assert_eq!(at(Document, "/n", &json[..end]), Incomplete, "{end}");
    }
    assert_eq!(at(Document, "", b"12"), Number(12));
    assert_eq!(cut(Document, "", b"12"), Incomplete, "more digits may be missing");
    for nothing in [&b""[..], b" \r\n"] {
        assert_eq!(at(Document, "/n", nothing), Absent);
    }
    for bad in [
        &b"{\"n\": 1} x"[..],
        b"{\"n\": 1}{\"n\": 1}",
        b"{\"n\": 1,}",
        b"{\"n\": 1]",
        b"[{\"n\": 1}}",
        b"{\"n\": 1, 'a': 2}",
        b"{n: 1}",
        b"{\"n\" 1}",
        b"{\"n\": 1 \"a\": 2}",
        b"{\"n\": 1, \"a\": tru}",
        b"{\"n\": 1, \"a\": \"\n\"}",
        b"{\"n\": 1, \"a\": \"\\x\"}",
        b"{\"n\": 1, \"a\": \"\\u12g4\"}",
        b"{\"n\": 1, \"a\": /* */ 2}",
        b"\xff{\"n\": 1}",
        b"\xef{\"n\": 1}",
        b"\xef\xbb\xbf\xef\xbb\xbf{\"n\": 1}",
        b"data: {\"n\": 1}\n\n",
    ] {
        assert_eq!(at(Document, "/n", bad), Unreadable, "{}", bad.escape_ascii());
    }
    assert_eq!(at(Document, "/n", b"\xef\xbb\xbf{\"n\": 1}"), Number(1), "byte order mark");
}

// Guards: a client that has its words repeated in the response, and so hides the numbers after.
#[test]
fn words_of_a_client_hide_nothing() {
    for text in
        [&b"\xff\xfe"[..], b"\\ud800", b"\\udc00x", b"\xed\xa0\x80", b"\\\"usage\\\": 5", b"\x7f"]
    {
        let body = [b"{\"text\": \"", text, b"\", \"n\": 1}"].concat();
        assert_eq!(at(Document, "/n", &body), Number(1), "{}", text.escape_ascii());
        let body = [b"{\"", text, b"\": 2, \"n\": 1}"].concat();
        assert_eq!(at(Document, "/n", &body), Number(1), "{}", text.escape_ascii());
    }
}

#[test]
fn containers_are_followed_to_their_limit() {
    let nested = |depth: usize, open: &str, close: &str| {
        let inner = [open.repeat(depth - 1), "1".to_owned(), close.repeat(depth - 1)].concat();
        format!("{{\"a\": {inner}, \"n\": 1}}")
    };
    for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
        let deepest = nested(MAX_DEPTH, open, close);
        assert_eq!(at(Document, "/n", deepest.as_bytes()), Number(1));
        let deeper = nested(MAX_DEPTH + 1, open, close);
        assert_eq!(at(Document, "/n", deeper.as_bytes()), Unreadable);
    }
    let deepest = "/a".repeat(MAX_DEPTH);
    assert!(is_pointer(&deepest) && !is_pointer(&(deepest.clone() + "/a")));
    let body = nested(MAX_DEPTH, "{\"a\":", "}");
    assert_eq!(at(Document, &deepest, body.as_bytes()), Number(1));
}

#[test]
fn a_string_of_any_length_passes() {
    let mut body = JsonBody::new(Document, ["/n"].into_iter());
    body.push(b"{\"");
    let piece = vec![b'a'; 1 << 20];
    (0..32).for_each(|_| body.push(&piece));
    body.push(b"\": \"");
    (0..32).for_each(|_| body.push(&piece));
    body.push(b"\", \"n\": 1}");
    body.end(true);
    assert_eq!(body.found("/n"), Number(1));
}

#[test]
fn of_events_the_last_value_counts() {
    let n = |body: &str| at(Events, "/n", body.as_bytes());
    for (body, found) in [
        ("data: {\"n\": 1}\n\n", Number(1)),
        ("data:{\"n\":1}\n\n", Number(1)),
        ("data:  {\"n\": 1}\r\n\r\n", Number(1)),
        ("data: {\"n\": 1}\r\rdata: {\"n\": 2}\r\r", Number(2)),
        ("data: {\"n\": 1}\n\ndata: {\"n\": 2}\n\ndata: [DONE]\n\n", Number(2)),
        ("data: {\"n\": 1}\n\ndata: {\"m\": 2}\n\ndata: {\"n\"\n\n", Number(1)),
        ("data: {\"n\": 1}\n\ndata: {\"n\": null}\n\n", Unreadable),
        ("data: {\"n\": null}\n\ndata: {\"n\": 3}\n\n", Number(3)),
        ("data: {\"n\": 1}\n\ndata: {\"n\": 1, \"n\": 2}\n\n", Conflicting),
        // Lines of one event are one document, with a newline between them.
        ("data: {\"n\":\ndata: 1\ndata: }\n\n", Number(1)),
        ("data: {\"n\": 1\ndata\ndata:\ndata: 2}\n\n", Absent),
        ("data: {\"n\": 1}\ndata: {\"n\": 2}\n\n", Absent),
        ("data: {\"n\": 1\ndata: 2}\n\n", Absent),
        ("data: {\"a\": \"\ndata: \", \"n\": 1}\n\n", Absent),
        // Other fields, comments, and names that only begin alike.
        (": ping\nevent: x\nid: 1\nretry: 5\ndata: {\"n\": 1}\n\n:\n\n", Number(1)),
        (
            "dat: {\"n\": 1}\n\ndatas: {\"n\": 1}\n\n data: {\"n\": 1}\n\nData: {\"n\": 1}\n\n",
            Absent,
        ),
        ("event: data: {\"n\": 1}\n\n", Absent),
        ("\u{feff}data: {\"n\": 1}\n\n", Number(1)),
        ("data: \u{feff}{\"n\": 1}\n\n", Absent),
        // The last event, without the empty line.
        ("data: {\"n\": 1}\n", Number(1)),
        ("data: {\"n\": 1}", Number(1)),
        ("data: {\"n\": 1}\n\ndata: {\"n\": 2", Number(1)),
        ("", Absent),
        ("\n\n\n", Absent),
        ("{\"n\": 1}\n\n", Absent),
    ] {
        assert_eq!(n(body), found, "{body:?}");
    }
    assert_eq!(cut(Events, "/n", b"data: {\"n\": 1}\n\ndata: {\"n\": 22"), Number(1));
    assert_eq!(cut(Events, "", b"data: 1\n\ndata: 2"), Number(1), "more digits may be missing");
    assert_eq!(cut(Events, "", b"data: 1\n\ndata: 2\n"), Number(1));
    assert_eq!(cut(Events, "", b"data: 1\n\ndata: 2\n\n"), Number(2));
}

#[test]
fn of_lines_the_last_value_counts() {
    for (body, found) in [
        ("{\"n\": 1}\n{\"m\": 1}\n{\"n\": 2, \"done\": true}\n", Number(2)),
        ("{\"n\": 1}\r\n{\"n\": 2}", Number(2)),
        ("{\"n\": 1}\nno\n\n{\"n\":\n", Number(1)),
        ("{\"n\": 1}{\"n\": 2}\n", Absent),
    ] {
        assert_eq!(at(Lines, "/n", body.as_bytes()), found, "{body:?}");
    }
}

#[test]
fn each_pointer_has_its_own_value() {
    let body = br#"data: {"type": "message_start", "message": {"usage": {"input_tokens": 25, "output_tokens": 1}}}

data: {"type": "message_delta", "usage": {"output_tokens": 15}}

"#;
    let pointers = ["/message/usage/input_tokens", "/usage/output_tokens", "/usage/input_tokens"];
    let found = oracle::scan(Events, &pointers, &mut [&body[..]].into_iter(), true);
    assert_eq!(found, [Number(25), Number(15), Absent]);
}

#[test]
fn types_are_known_whatever_their_parameters() {
    for (value, format) in [
        ("application/json", Some(Document)),
        (" Application/JSON ; charset=utf-8", Some(Document)),
        ("application/problem+json", Some(Document)),
        ("application/vnd.api+JSON;v=1", Some(Document)),
        ("text/event-stream", Some(Events)),
        ("TEXT/EVENT-STREAM;charset=utf-8", Some(Events)),
        ("application/x-ndjson", Some(Lines)),
        ("application/json, application/json", Some(Document)),
        ("application/json, application/problem+json", Some(Document)),
        ("application/json, text/event-stream", None),
        ("text/event-stream,", None),
        ("text/plain", None),
        ("text/plain; a=application/json", None),
        ("application/jsonp", None),
        ("application/json-seq", None),
        ("+json", None),
        ("json", None),
        ("", None),
    ] {
        assert_eq!(JsonFormat::of(value.as_bytes()), format, "{value}");
    }
}

#[test]
fn pointers_are_those_of_the_standard() {
    for text in ["", "/", "/a", "/a/b", "/a~0b", "/a~1b", "/~01", "//", "/\u{e9}", "/0", "/-"] {
        assert!(is_pointer(text), "{text:?}");
    }
    for text in ["a", "#/a", "$.a", "/a~", "/a~2", "/~/", "a/b", " /a"] {
        assert!(!is_pointer(text), "{text:?}");
    }
}

#[test]
fn the_corpus_holds() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fuzz/corpus/json_body");
    let mut files = 0;
    for file in std::fs::read_dir(folder).expect("a corpus") {
        let file = file.expect("a file").path();
        println!("{}", file.display()); // the last one shown is the one that failed
        oracle::check(&std::fs::read(file).expect("bytes"));
        files += 1;
    }
    assert!(files > 10, "{files}");
}

/// A generator of the numbers that a seed gives (splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((x ^ (x >> 31)) % u64::try_from(n).unwrap()).unwrap()
    }

    fn of<'a>(&mut self, list: &[&'a str]) -> &'a str {
        list[self.below(list.len())]
    }
}

const NAMES: [&str; 14] = [
    "usage",
    "usage",
    "\\u0075sage",
    "total",
    "total",
    "t\\u006ftal",
    "a/b",
    "a\\/b",
    "m~n",
    "",
    "0",
    "1",
    "\\ud83d\\ude00",
    "\\ud83d",
];
const POINTERS: [&str; 14] = [
    "",
    "/usage",
    "/usage/total",
    "/a~1b",
    "/m~0n",
    "/",
    "/0",
    "/1",
    "/1/0",
    "/usage/0",
    "/usage/0/total",
    "/\u{1f600}",
    "/usage/usage/usage",
    "/total",
];
const SCALARS: [&str; 14] = [
    "0",
    "1",
    "17",
    "17",
    "123456789012345",
    "1234567890123456",
    "-1",
    "1.5",
    "2e3",
    "null",
    "true",
    "\"17\"",
    "\"\\u00e9 \\\" \\\\\"",
    "\"data: {}\"",
];
const BLANKS: [&str; 8] = ["", "", "", "", " ", "\t", "  ", " "];

fn document(random: &mut Random, depth: usize, out: &mut String) {
    *out += random.of(&BLANKS);
    match random.below(if depth > 4 { 4 } else { 10 }) {
        0..4 => *out += random.of(&SCALARS),
        4..8 => {
            *out += "{";
            for i in 0..random.below(5) {
                *out += if i > 0 { "," } else { "" };
                *out += random.of(&BLANKS);
                *out += &format!("\"{}\"{}:", random.of(&NAMES), random.of(&BLANKS));
                document(random, depth + 1, out);
            }
            *out += "}";
        }
        _ => {
            *out += "[";
            for i in 0..random.below(4) {
                *out += if i > 0 { "," } else { "" };
                document(random, depth + 1, out);
            }
            *out += "]";
        }
    }
    *out += random.of(&BLANKS);
}

#[test]
fn random_bodies_are_what_another_reader_finds() {
    let mut random = Random(1);
    let mut numbers = 0;
    for case in 0..20_000 {
        let format = [Document, Lines, Events][case % 3];
        let mut body = String::new();
        for _ in 0..if format == Document { 1 } else { random.below(4) } {
            let mut text = String::new();
            document(&mut random, 0, &mut text);
            body += &match format {
                Document => text,
                Lines => text + "\n",
                Events => {
                    let end = random.of(&["\n", "\r", "\r\n"]);
                    let split = format!(",{end}data:");
                    let text = if random.below(3) == 0 { text.replace(',', &split) } else { text };
                    let comment = random.of(&["", ":", "event: x\n", "id\n"]);
                    format!("{comment}{}{text}{end}{end}", random.of(&["data:", "data: "]))
                }
            };
        }
        let mut body = body.into_bytes();
        if random.below(4) == 0 && !body.is_empty() {
            match random.below(3) {
                0 => body.truncate(random.below(body.len())),
                1 => {
                    let at = random.below(body.len());
                    body[at] = b"{}[],:\"\\0e.-\n\r \xff"[random.below(16)];
                }
                _ => drop(body.remove(random.below(body.len()))),
            }
        }
        let pointers: Vec<_> = (0..4).map(|_| random.of(&POINTERS)).collect();
        let word = ["document", "lines", "events"][case % 3];
        let head = format!("{word} {}\n{}\n", 1 + random.below(9), pointers.join(" "));
        println!("{head}{}", body.escape_ascii()); // the last one shown is the one that failed
        oracle::check(&[head.as_bytes(), &body].concat());
        let found = oracle::scan(format, &pointers, &mut [&body[..]].into_iter(), true);
        numbers += found.iter().filter(|it| matches!(it, Number(_))).count();
    }
    assert!(numbers > 1_500, "{numbers}: the bodies show too little");
}
