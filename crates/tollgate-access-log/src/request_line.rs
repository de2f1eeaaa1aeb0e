//! The first line of a request, as servers log it.
//!
//! Invariant: a line that does not begin with a method is not a request. The target is the text as
//! it is, including spaces; whether a server would accept it is not checked.

/// The range of a part of a text: start and end.
pub(crate) type Range = (usize, usize);

/// The method and the target of `GET /a HTTP/1.1`; the version may be missing. `None` for a line
/// that does not begin with a method or has no target: other data that came to the port, or
/// nothing.
pub(crate) fn request_line(line: &[u8], has_target: bool) -> Option<(Range, Range)> {
    let end = memchr::memchr(b' ', line)?;
    let is_token = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
    if end == 0 || !line.get(..end)?.iter().all(is_token) {
        return None;
    }
    let from = end.wrapping_add(1);
    if line.get(from).is_none_or(|first| *first == b' ') {
        return None;
    }
    if !has_target {
        return Some(((0, end), (from, from)));
    }
    let last = memchr::memrchr(b' ', line)?;
    let has_version = last > end && line.get(last..)?.starts_with(b" HTTP/");
    let to = if has_version { last } else { line.len() };
    Some(((0, end), (from, to)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_a_method_and_a_target() {
        let rows = [
            ("GET / HTTP/1.1", Some(("GET", "/"))),
            ("GET /a b HTTP/1.1", Some(("GET", "/a b"))),
            ("GET /old", Some(("GET", "/old"))),
            ("M-SEARCH * HTTP/1.1", Some(("M-SEARCH", "*"))),
            ("GET / HTTP/1.1 x", Some(("GET", "/ HTTP/1.1 x"))),
            ("GET  HTTP/1.1", None),
            ("GET ", None),
            ("GET", None),
            (" / HTTP/1.1", None),
            ("-", None),
            ("", None),
            ("\u{16}\u{3} /", None),
        ];
        for (line, expected) in rows {
            let parts = |((a, b), (c, d)): (Range, Range)| (&line[a..b], &line[c..d]);
            assert_eq!(request_line(line.as_bytes(), true).map(parts), expected, "{line:?}");
            let method = request_line(line.as_bytes(), false).map(|((a, b), _)| &line[a..b]);
            assert_eq!(method, expected.map(|(method, _)| method), "{line:?}");
        }
    }
}
