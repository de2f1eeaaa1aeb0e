//! Paths: the normal form of a request's path, and the patterns that match it.
//!
//! Invariant: two spellings of a path that servers treat alike (RFC 3986, 6.2.2) have one normal
//! form here: a byte and its escape are the same, except for bytes that are part of the syntax of
//! paths. `readings` contains the paths that servers read differently. The case of
//! letters is kept, and a caller whose origin ignores it makes both lower. Deliberately absent:
//! trailing slashes, which servers do distinguish, and a second decoding (`%2561`), which no
//! server should do.

use alloc::string::String;
use alloc::vec::Vec;

use crate::byte_set::ByteSet;
use crate::percent::next_byte;
use core::fmt;

/// The longest pattern, in bytes.
const MAX_PATTERN: usize = 1024;
/// The most segments of a pattern.
const MAX_SEGMENTS: usize = 64;
/// The message for a pattern that would only seem to match paths.
const NOT_NORMAL: &str =
    "has an empty segment, a dot segment or a backslash, which no path has in normal form";

/// One path pattern, in segments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// The parts between its slashes.
    pub segments: Vec<Segment>,
    /// Ends in `**`: any further segments, none included.
    pub rest: bool,
}

/// One segment of a pattern.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Segment {
    /// These bytes, in normal form.
    Literal(Vec<u8>),
    /// `*`: any one segment that is not empty.
    Any,
    /// `{name}`: any one segment that is not empty, captured.
    Capture(String),
}

/// True when one of the patterns is `/**`, which every path matches in every reading, so that no
/// path needs to be read.
pub fn all(patterns: &[Pattern]) -> bool {
    patterns.iter().any(|pattern| pattern.rest && pattern.segments.is_empty())
}

impl Pattern {
    /// Reads `/users/{id}/*/**`; the error gives the reason.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let Some(after_slash) = text.strip_prefix('/') else {
            return Err("must start with \"/\"");
        };
        if text.len() > MAX_PATTERN || after_slash.split('/').count() > MAX_SEGMENTS {
            return Err("is too long; use at most 1024 bytes and 64 segments");
        }
        if text.contains(['?', '#']) {
            return Err("has a query; paths are matched without it");
        }
        let (body, rest) = match after_slash.strip_suffix("**") {
            Some("") => return Ok(Self { segments: Vec::new(), rest: true }),
            Some(body) => (body.strip_suffix('/').ok_or("has \"**\" inside a segment")?, true),
            None => (after_slash, false),
        };
        let segments = body.split('/').map(segment).collect::<Result<Vec<_>, _>>()?;
        // Only a trailing slash leaves an empty segment in a path's normal form.
        let full = if rest { segments.len() } else { segments.len().saturating_sub(1) };
        if segments.iter().take(full).any(|s| matches!(s, Segment::Literal(l) if l.is_empty())) {
            return Err(NOT_NORMAL);
        }
        Ok(Self { segments, rest })
    }
}

impl Pattern {
    /// True for a pattern that [`Pattern::parse`] can return.
    pub fn is_normal(&self) -> bool {
        let last = self.segments.len().saturating_sub(1);
        let has_none = self.segments.is_empty() && !self.rest;
        let mut normal = Vec::new();
        let mut is_normal = |(i, segment): (usize, &Segment)| match segment {
            Segment::Literal(literal) if literal.is_empty() => i == last && !self.rest,
            Segment::Literal(literal) => {
                normalise(literal, Separators::default(), &mut normal);
                !literal.contains(&b'/') && normal.strip_prefix(b"/") == Some(literal)
            }
            Segment::Any => true,
            Segment::Capture(name) => is_capture(name),
        };
        !has_none
            && self.segments.len() <= MAX_SEGMENTS
            && self.segments.iter().enumerate().all(&mut is_normal)
    }

    /// `Some` with the captured segments, in order, when `path`, in normal form, matches.
    pub fn matches<'p>(
        &'p self,
        path: &'p [u8],
    ) -> Option<impl Iterator<Item = (&'p str, &'p [u8])>> {
        let mut given = path.strip_prefix(b"/").unwrap_or(path).split(|b| *b == b'/');
        for segment in &self.segments {
            let piece = given.next()?;
            let matches = match segment {
                Segment::Literal(literal) => literal == piece,
                Segment::Any | Segment::Capture(_) => !piece.is_empty(),
            };
            if !matches {
                return None;
            }
        }
        if !self.rest && given.next().is_some() {
            return None;
        }
        let pieces = path.strip_prefix(b"/").unwrap_or(path).split(|b| *b == b'/');
        Some(self.segments.iter().zip(pieces).filter_map(|(segment, piece)| match segment {
            Segment::Capture(name) => Some((name.as_str(), piece)),
            Segment::Literal(_) | Segment::Any => None,
        }))
    }

    /// True when [`Pattern::lower`] changes nothing.
    pub fn is_lower(&self) -> bool {
        let mut lowered = self.clone();
        lowered.lower();
        lowered == *self
    }

    /// Writes the ASCII letters of its literal segments in lower case, for paths that are.
    pub fn lower(&mut self) {
        for segment in &mut self.segments {
            if let Segment::Literal(bytes) = segment {
                lower(bytes);
            }
        }
    }

    /// Its segments as a path in normal form, without `**`; `None` when one of them is a wildcard.
    pub fn literal(&self) -> Option<Vec<u8>> {
        let mut path = Vec::new();
        for segment in &self.segments {
            let Segment::Literal(literal) = segment else { return None };
            path.push(b'/');
            path.extend_from_slice(literal);
        }
        Some(path)
    }

    /// The names that this pattern captures.
    pub fn captures(&self) -> impl Iterator<Item = &str> {
        self.segments.iter().filter_map(|segment| match segment {
            Segment::Capture(name) => Some(name.as_str()),
            Segment::Literal(_) | Segment::Any => None,
        })
    }

    /// True when every path that `other` matches is matched by this pattern; false when unsure.
    pub fn covers(&self, other: &Self) -> bool {
        let fits = if self.rest {
            self.segments.len() <= other.segments.len()
        } else {
            !other.rest && self.segments.len() == other.segments.len()
        };
        fits && self.segments.iter().zip(&other.segments).all(|(mine, theirs)| {
            match (mine, theirs) {
                (Segment::Literal(a), Segment::Literal(b)) => a == b,
                (Segment::Literal(_), Segment::Any | Segment::Capture(_)) => false,
                (Segment::Any | Segment::Capture(_), Segment::Literal(b)) => !b.is_empty(),
                (Segment::Any | Segment::Capture(_), Segment::Any | Segment::Capture(_)) => true,
            }
        })
    }
}

fn segment(text: &str) -> Result<Segment, &'static str> {
    // Most segments are their own normal form; without optimisation, computing it takes twice as
    // long.
    if text.bytes().all(|byte| PLAIN.contains(byte))
        && !text.contains('*')
        && !matches!(text, "." | "..")
    {
        return Ok(Segment::Literal(text.into()));
    }
    if text == "*" {
        return Ok(Segment::Any);
    }
    if let Some(name) = text.strip_prefix('{').and_then(|t| t.strip_suffix('}')) {
        return if is_capture(name) {
            Ok(Segment::Capture(name.into()))
        } else {
            Err("has a capture whose name is not made of letters, digits and \"_\"")
        };
    }
    if text.contains("**") {
        return Err("may have \"**\" only at its end");
    }
    if text.contains(['*', '{', '}']) {
        return Err("has \"*\", \"{\" or \"}\" inside a segment; use a whole segment");
    }
    let mut literal = Vec::new();
    normalise(text.as_bytes(), Separators::default(), &mut literal);
    // The normal form begins with a slash.
    let literal = literal.split_off(1.min(literal.len()));
    if literal.is_empty() != text.is_empty() || text.contains('\\') {
        return Err(NOT_NORMAL);
    }
    Ok(Segment::Literal(literal))
}

fn is_capture(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// The separators that end a segment, in addition to a literal slash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Separators {
    /// `%2F`
    pub escaped_slash: bool,
    /// `\`
    pub backslash: bool,
    /// `%5C`
    pub escaped_backslash: bool,
}

impl Separators {
    const fn include(self, byte: u8, escaped: bool) -> bool {
        match (byte, escaped) {
            (b'/', true) => self.escaped_slash,
            (b'\\', false) => self.backslash,
            (b'\\', true) => self.escaped_backslash,
            _ => false,
        }
    }
}

/// The syntax in a path that servers read differently.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Noticed {
    /// `%2F`, `\` or `%5C`.
    pub separators: bool,
    /// An empty segment before the last one.
    pub empty: bool,
    /// `.` or `..`, before the last segment or as it.
    pub dots: bool,
}

/// The number of bytes of `target`, up to its query, that form a path that is its own normal form
/// and that all servers read alike, as most are. `None` when the path needs a full reading: it has
/// an escape, an empty segment, or one that begins with a dot.
pub fn plain_len(target: &[u8]) -> Option<usize> {
    let mut rest = target.strip_prefix(b"/")?;
    loop {
        if let [b'/' | b'.', ..] = rest {
            return None;
        }
        let after = rest.get(PLAIN.prefix_len(rest)..).unwrap_or_default();
        rest = match after {
            [b'/', rest @ ..] => rest,
            [] | [b'?' | b'#', ..] => return Some(target.len().saturating_sub(after.len())),
            _ => return None,
        };
    }
}

/// Writes the ASCII letters of a path in normal form, or of a part of one, in lower case. Its
/// escapes keep their capitals, without which it would not be normal.
pub fn lower(path: &mut [u8]) {
    let mut rest = path;
    while let Some((first, after)) = rest.split_first_mut() {
        let of_escape = if *first == b'%' { 2.min(after.len()) } else { 0 };
        first.make_ascii_lowercase();
        let (_, after) = after.split_at_mut(of_escape);
        rest = after;
    }
}

/// Writes the normal form of `path` into `out`, which is cleared first: characters that a segment
/// may contain decoded and all others as escapes in upper case, a percent sign that begins no
/// escape as `%25`, separators as slashes, slashes merged, dot segments resolved, with a leading
/// slash. Never fails: text that is not a path becomes one.
pub fn normalise(path: &[u8], separators: Separators, out: &mut Vec<u8>) -> Noticed {
    out.clear();
    out.push(b'/');
    let mut noticed = Noticed::default();
    let mut rest = path.strip_prefix(b"/").unwrap_or(path);
    loop {
        let (plain, special) = rest.split_at_checked(PLAIN.prefix_len(rest)).unwrap_or_default();
        out.extend_from_slice(plain);
        let Some((byte, escaped, after)) = next_byte(special) else { break };
        rest = after;
        match byte {
            b'/' if !escaped => {
                end_segment(out, &mut noticed);
                let more = rest.iter().take_while(|byte| **byte == b'/').count();
                noticed.empty |= more > 0;
                rest = rest.get(more..).unwrap_or_default();
            }
            _ if PLAIN.contains(byte) => out.push(byte),
            b'/' | b'\\' => {
                noticed.separators = true;
                if separators.include(byte, escaped) {
                    end_segment(out, &mut noticed);
                } else {
                    push_escape(out, byte);
                }
            }
            // A bare percent sign, too: it must not form an escape with digits that are decoded
            // after it.
            _ => push_escape(out, byte),
        }
    }
    // After an empty segment or dots at the end, the slash before them stays; a name gets no slash.
    let tail = out.rsplit(|b| *b == b'/').next().unwrap_or_default();
    if matches!(tail, b"" | b"." | b"..") {
        noticed.dots |= !tail.is_empty();
        end_segment(out, &mut Noticed::default());
    }
    noticed
}

/// Ends the segment at the end of `out` with a slash: an empty one is removed, dots are resolved.
fn end_segment(out: &mut Vec<u8>, noticed: &mut Noticed) {
    let start = out.iter().rposition(|b| *b == b'/').map_or(0, |i| i.saturating_add(1));
    match out.get(start..).unwrap_or_default() {
        b"" => noticed.empty = true,
        b"." => {
            noticed.dots = true;
            out.truncate(start);
        }
        b".." => {
            noticed.dots = true;
            let parent = start.saturating_sub(1);
            let above = out.iter().take(parent).rposition(|b| *b == b'/');
            out.truncate(above.map_or(1, |i| i.saturating_add(1)));
        }
        _ => out.push(b'/'),
    }
}

fn push_escape(out: &mut Vec<u8>, byte: u8) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let digit = |n: u8| DIGITS.get(usize::from(n)).copied().unwrap_or(b'0');
    out.extend([b'%', digit(byte.wrapping_shr(4)), digit(byte & 15)]);
}

/// The bytes that a segment may contain without an escape (RFC 3986, 3.3, `pchar`). By the letter
/// of 6.2.2.2 only the unreserved ones mean the same when escaped; servers decode the others, too.
static PLAIN: ByteSet = ByteSet::alphanumeric_and(b"-._~:@!$&'()*+,;=");

/// The spelling in a document.
impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for segment in &self.segments {
            match segment {
                Segment::Literal(literal) => write!(f, "/{}", String::from_utf8_lossy(literal))?,
                Segment::Any => f.write_str("/*")?,
                Segment::Capture(name) => write!(f, "/{{{name}}}")?,
            }
        }
        f.write_str(if self.rest { "/**" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    /// As in the URL standard.
    const URL: Separators =
        Separators { escaped_slash: false, backslash: true, escaped_backslash: false };

    fn check(path: &str, expected: &str) {
        let mut out = Vec::new();
        normalise(path.as_bytes(), URL, &mut out);
        assert_eq!(core::str::from_utf8(&out), Ok(expected), "{path}");
        let mut again = Vec::new();
        normalise(&out, URL, &mut again);
        assert_eq!(again, out, "the normal form of {path} is not its own normal form");
    }

    #[test]
    fn every_spelling_of_a_path_has_one_form() {
        for spelling in [
            "/login",
            "//login",
            "/%6Cogin",
            "/l%6fgin",
            "/./login",
            "/a/../login",
            "/a/%2e%2E/login",
            "\\login",
            "/a/b/../../login",
            "login",
            "/../login",
            "///.//login",
            "/%2e/login",
        ] {
            check(spelling, "/login");
        }
    }

    #[test]
    fn every_byte_has_one_spelling() {
        for spelling in ["/v1/items:batch", "/v1/items%3abatch", "/v1/items%3Abatch"] {
            check(spelling, "/v1/items:batch");
        }
        for spelling in ["/caf\u{e9}", "/caf%c3%a9"] {
            check(spelling, "/caf%C3%A9");
        }
        for spelling in ["/!$&'()*+,;=:@", "/%21%24%26%27%28%29%2a%2b%2c%3b%3d%3a%40"] {
            check(spelling, "/!$&'()*+,;=:@");
        }
        for spelling in ["/a b{|}^`\"<>", "/a%20b%7b%7C%7d%5e%60%22%3c%3e"] {
            check(spelling, "/a%20b%7B%7C%7D%5E%60%22%3C%3E");
        }
    }

    #[test]
    fn what_servers_tell_apart_stays_apart() {
        check("/login/", "/login/");
        check("/Login", "/Login");
        check("/a%2fb", "/a%2Fb");
        check("/a%2Fb", "/a%2Fb");
        check("/a%5cb", "/a%5Cb");
        check("/a%3fb%23", "/a%3Fb%23");
        check("/a%zzb", "/a%25zzb");
        check("/a%2", "/a%252");
        check("/%25", "/%25");
        check("/%4%31", "/%2541");
        check("/a/.", "/a/");
        check("/a/..", "/");
        check("/a/%2e", "/a/");
        check("/a/b/..", "/a/");
        check("", "/");
        check("/", "/");
        check("/...", "/...");
        check("/a/...", "/a/...");
    }

    #[test]
    fn a_plain_path_is_found_in_one_pass() {
        for (target, path) in [
            ("/", Some("/")),
            ("/login", Some("/login")),
            ("/v1/users/", Some("/v1/users/")),
            ("/a.b/c..?x=//", Some("/a.b/c..")),
            ("/a#/../", Some("/a")),
            ("/?/a", Some("/")),
            ("/!$&'()*+,;=:@-_~", Some("/!$&'()*+,;=:@-_~")),
            ("", None),
            ("login", None),
            ("?", None),
            ("//", None),
            ("/a//b", None),
            ("/a/./b", None),
            ("/..", None),
            ("/.well-known", None),
            ("/a\\b", None),
            ("/%61", None),
            ("/a b", None),
            ("/\u{e9}", None),
        ] {
            let found = plain_len(target.as_bytes()).and_then(|len| target.get(..len));
            assert_eq!(found, path, "{target}");
        }
    }

    #[test]
    fn a_pattern_says_what_it_is_or_why_not() {
        let message = |text: &str| Pattern::parse(text).map(|_| ()).unwrap_err().to_string();
        assert_eq!(message("login"), "must start with \"/\"");
        assert_eq!(message("/a?b"), "has a query; paths are matched without it");
        for text in ["/a//b", "//", "/a//**", "/.", "/a/../b", "/a/%2E%2e", "/a\\b", "/\\b", "/\\"]
        {
            assert_eq!(message(text), NOT_NORMAL, "{text}");
        }
        assert_eq!(message("/a**"), "has \"**\" inside a segment");
        assert_eq!(message("/**/a"), "may have \"**\" only at its end");
        assert_eq!(
            message("/a*"),
            "has \"*\", \"{\" or \"}\" inside a segment; use a whole segment"
        );
        assert_eq!(
            message("/{}"),
            "has a capture whose name is not made of letters, digits and \"_\""
        );
        let pattern = Pattern::parse("/u/{id}/*/**").unwrap();
        assert_eq!(
            pattern.segments,
            [Segment::Literal(b"u".to_vec()), Segment::Capture("id".to_string()), Segment::Any]
        );
        assert!(pattern.rest);
    }

    proptest::proptest! {
        /// One pass notices the same syntax as all passes together.
        #[test]
        fn a_plain_path_is_its_own_normal_form(target in proptest::collection::vec(
            proptest::sample::select(&b"////aA0..:%2\\?#\xff "[..]), 0..12,
        )) {
            let path = target.split(|b| matches!(b, b'?' | b'#')).next().unwrap_or_default();
            if let Some(len) = plain_len(&target) {
                assert_eq!(len, path.len());
                let mut out = Vec::new();
                let noticed = normalise(path, Separators::default(), &mut out);
                assert_eq!((&*out, noticed), (path, Noticed::default()));
            }
        }

        #[test]
        fn the_normal_form_is_its_own(target in proptest::collection::vec(
            proptest::sample::select(&b"//\\.%%12345fFcCeEaA\xff\0 "[..]), 0..40,
        )) {
            let (mut out, mut again) = (Vec::new(), Vec::new());
            for bits in 0..8_u8 {
                let separators = Separators {
                    escaped_slash: bits & 1 != 0,
                    backslash: bits & 2 != 0,
                    escaped_backslash: bits & 6 == 6,
                };
                normalise(&target, separators, &mut out);
                normalise(&out, separators, &mut again);
                assert_eq!(again, out, "{separators:?}");
            }
        }
    }
}
