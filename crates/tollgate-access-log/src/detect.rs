//! Finds the format of a log from its first lines.
//!
//! Invariant: a format is found only when it reads more than half of the lines, its time included:
//! one odd line decides nothing.

use crate::field::{Field, Wanted};
use crate::format::Format;
use crate::reader::{Limits, Reader};

/// Formats that are tried, the most specific ones first.
const TRIED: [&str; 8] =
    ["envoy", "vhost", "combined", "common", "envoy-json", "json", "tsv", "csv"];

impl Format {
    /// The format that the first bytes of a log are written in; `None` when none fits. Some
    /// kilobytes are enough; a last line without an end is left out.
    #[must_use]
    pub fn detect(head: &[u8]) -> Option<Self> {
        let end = memchr::memrchr(b'\n', head).unwrap_or(head.len());
        let whole = head.get(..end)?;
        let fitted = |spec: &&str| Self::parse(spec).and_then(|format| format.fit(whole)).ok();
        TRIED.iter().filter_map(fitted).find(|format| fits(format, whole))
    }
}

fn fits(format: &Format, head: &[u8]) -> bool {
    let fields = [Field::Client, Field::Method, Field::Target, Field::Status];
    let agent = Field::header("user-agent");
    let known = fields.into_iter().chain([agent]).filter(|field| format.contains(field));
    let known: Vec<Field> = known.collect();
    // A time alone is not a request.
    if known.is_empty() {
        return false;
    }
    let Ok(mut reader) = Reader::new(format, Wanted::new(known), Limits::default()) else {
        return false;
    };
    let read = reader.feed(head, &mut |_| {}).and_then(|()| reader.finish(&mut |_| {}));
    let counts = reader.counts();
    let lines = counts.lines.saturating_sub(counts.empty);
    read.is_ok() && counts.records > lines / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_found_by_their_first_lines() {
        let common = r#"a.example - bob [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.0" 200 2326"#;
        let combined = format!(r#"{common} "-" "Mozilla/4.08 [en]""#);
        let found = |log: &str| Format::detect(log.as_bytes()).map(|format| format.to_string());
        assert_eq!(found(common).as_deref(), Some("common"));
        assert_eq!(found(&combined).as_deref(), Some("combined"));
        assert_eq!(
            found(&format!("\n{combined}\n{combined}\n192.0.")).as_deref(),
            Some("combined")
        );
        assert_eq!(found(&format!("{common}\nx\n{common}\nx\n")), None);
        assert_eq!(found(""), None);
        let rows = [
            ("www.example.com:80 ", "vhost"),
            ("{\"ts\":1795332286,\"request\":{\"remote_ip\":\"192.0.2.1\"}}\n", "json"),
            ("{\"start_time\":\"2026-11-22T07:24:46.123Z\",\"method\":\"GET\"}\n", "envoy-json"),
            ("host\tlogname\ttime\tmethod\na\t-\t1795332286\tGET\n", "tsv"),
            ("\u{feff}time,client_ip\n1795332286,192.0.2.1\n", "csv"),
            (
                "[2026-11-22T07:24:46.123Z] \"GET / HTTP/1.1\" 200 - 0 1 0 - \"-\" \"-\" \"-\" \"a\" \"-\"\n",
                "envoy",
            ),
        ];
        for (log, name) in rows {
            let log = if name == "vhost" { format!("{log}{combined}") } else { log.to_owned() };
            assert_eq!(found(&log).as_deref(), Some(name), "{log}");
        }
        for log in ["time\n1795332286\n", "{\"time\":1795332286}\n", "a,b\n1,2\n"] {
            assert_eq!(found(log), None, "{log}");
        }
    }
}
