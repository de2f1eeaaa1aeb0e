//! The readings of a path: every normal form that some kind of server produces from it.
//!
//! Servers agree about a path unless it has an escaped slash, a backslash, or both dot segments and
//! empty segments. They differ in whether these are slashes, and in whether dots are resolved
//! before or after that. So such a path is read in every way that is known of a server.
//!
//! Invariant: a path without any of these has one reading and costs one pass. Keys contain `main`.
//! Two paths that are the same to one server have the same `main`, unless one of them is
//! `disputed`: then some server reads it as a path other than `main`, and any key made from it
//! would count one resource twice. Deliberately absent: decoding twice, `;` parameters, NUL and
//! overlong UTF-8: they are bytes of a segment like others.

use alloc::borrow::Cow;
use alloc::vec::Vec;

use crate::path::{Noticed, Separators, lower, normalise, plain_len};

/// The end of every reading in the list: no normal form contains this byte.
const END: u8 = b'?';

/// One kind of server.
struct Server {
    /// Its operation on the path before it decodes anything.
    first: First,
    /// The bytes that it then reads as slashes.
    separators: Separators,
    /// After escaped dots and slashes it leaves no slash at the end (POSIX `normpath`).
    trims: bool,
}

/// The operation on a path before decoding.
#[derive(Clone, Copy, PartialEq, Eq)]
enum First {
    /// Nothing.
    Nothing,
    /// Dot segments are resolved, and an empty segment is one (RFC 3986, 5.2.4).
    Dots,
    /// The same by the URL standard: a backslash is a slash.
    Url,
    /// As `Url`, but `//name` at the beginning is read as a host: `new URL(target, base)`.
    Reference,
}

const fn separators(escaped_slash: bool, backslash: bool, escaped_backslash: bool) -> Separators {
    Separators { escaped_slash, backslash, escaped_backslash }
}

const fn server(first: First, separators: Separators) -> Server {
    Server { first, separators, trims: false }
}

const NONE: Separators = separators(false, false, false);
const BACKSLASH: Separators = separators(false, true, false);
const SLASH: Separators = separators(true, false, false);
const BOTH: Separators = separators(true, true, false);
const ALL: Separators = separators(true, true, true);

/// Servers that distinguish an escaped slash from a slash.
const LITERAL: [Server; 6] = [
    // Routers that compare segments, decoded or not.
    server(First::Nothing, NONE),
    // The same behind a proxy or a library that resolves dots.
    server(First::Dots, NONE),
    server(First::Url, NONE),
    server(First::Nothing, BACKSLASH),
    server(First::Reference, NONE),
    Server { first: First::Nothing, separators: NONE, trims: true },
];

/// Servers that decode first, alone or behind one that does not.
const DECODING: [Server; 10] = [
    // nginx and most others on Unix: a backslash is a letter.
    server(First::Nothing, SLASH),
    server(First::Dots, SLASH),
    server(First::Url, SLASH),
    // A URL library, then `decodeURIComponent`.
    server(First::Nothing, BOTH),
    server(First::Reference, SLASH),
    // Windows, and Envoy when it unescapes slashes.
    server(First::Nothing, ALL),
    server(First::Dots, ALL),
    server(First::Url, ALL),
    // Python's http.server.
    Server { first: First::Nothing, separators: SLASH, trims: true },
    Server { first: First::Nothing, separators: ALL, trims: true },
];

/// A path in all its readings; the buffers are reused.
#[derive(Debug, Default)]
pub struct Paths {
    main: Vec<u8>,
    /// Every other reading, each followed by [`END`].
    others: Vec<u8>,
    disputed: bool,
    /// True when an escaped slash is not a slash.
    is_literal: bool,
    resolved: Vec<u8>,
    reading: Vec<u8>,
}

/// The meaning of an escaped slash or backslash in a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EscapedSlashes {
    /// Perhaps a slash: a rule holds if its path matches either way, an exemption only if both do.
    Separator,
    /// A letter of its segment.
    Literal,
}

impl EscapedSlashes {
    /// The separators of a segment in the reading that keys contain.
    const fn separators(self) -> Separators {
        match self {
            Self::Separator => ALL,
            Self::Literal => BACKSLASH,
        }
    }
}

impl Paths {
    /// Reads the path of `target`, without query and fragment; in a whole URL, the part after the
    /// host. Returns the number of bytes of `target` before query and fragment.
    pub fn read(&mut self, target: &[u8], slashes: EscapedSlashes) -> usize {
        self.others.clear();
        self.disputed = false;
        self.is_literal = slashes == EscapedSlashes::Literal;
        if let Some(plain) = plain_len(target).and_then(|len| target.get(..len)) {
            self.main.clear();
            self.main.extend_from_slice(plain);
            return plain.len();
        }
        let before = target.split(|b| matches!(b, b'?' | b'#')).next().unwrap_or_default();
        let path = if before.starts_with(b"/") { before } else { after_host(before) };
        let noticed = normalise(path, slashes.separators(), &mut self.main);
        if !self.is_ordinary(path, noticed) {
            self.read_all(path, noticed);
        }
        before.len()
    }

    /// True when every server reads `path` alike.
    fn is_ordinary(&self, path: &[u8], noticed: Noticed) -> bool {
        let Noticed { separators, empty, dots } = noticed;
        let ends_in_dots = || self.main.ends_with(b"/") && !path.ends_with(b"/");
        !separators && !(dots && (empty || ends_in_dots())) && !(empty && names_host(path))
    }

    /// Adds every other reading.
    fn read_all(&mut self, path: &[u8], noticed: Noticed) {
        let is_literal = self.is_literal;
        let decoding = DECODING.iter().filter(|_| !is_literal);
        for server in LITERAL.iter().chain(decoding) {
            let differs = match server.first {
                First::Reference => names_host(path),
                First::Url => noticed.separators,
                First::Nothing | First::Dots => true,
            };
            // Servers that differ only in separators read a path without any alike, and each
            // reading of a long path takes time.
            if !differs || !noticed.separators && server.separators != NONE {
                continue;
            }
            self.read_as(path, server);
            if !self.all().any(|known| known == self.reading) {
                self.others.extend_from_slice(&self.reading);
                self.others.push(END);
                self.disputed |= server.first != First::Reference && !self.is_main();
            }
        }
    }

    /// Writes the reading of `path` by `server` into `reading`.
    fn read_as(&mut self, path: &[u8], server: &Server) {
        let source = if server.first == First::Nothing {
            path
        } else {
            resolve_dots(path, server.first, &mut self.resolved);
            &self.resolved
        };
        normalise(source, server.separators, &mut self.reading);
        // A literal slash at the end stays, whatever else is trimmed.
        if server.trims && !path.ends_with(b"/") && self.reading.len() > 1 {
            self.reading.pop_if(|last| *last == b'/');
        }
    }

    /// True when the reading just made differs from the main one only in escaped slashes.
    fn is_main(&mut self) -> bool {
        if self.is_literal {
            return self.reading == self.main;
        }
        normalise(&self.reading, ALL, &mut self.resolved);
        self.resolved == self.main
    }

    /// The reading that keys contain.
    pub fn main(&self) -> &[u8] {
        &self.main
    }

    /// Writes the ASCII letters of every reading in lower case.
    pub fn lower(&mut self) {
        lower(&mut self.main);
        lower(&mut self.others);
    }

    /// Every reading, each once, the main one first.
    pub fn all(&self) -> impl Iterator<Item = &[u8]> {
        let others = self.others.split_inclusive(|b| *b == END);
        core::iter::once(&*self.main).chain(others.filter_map(|one| one.strip_suffix(&[END])))
    }

    /// True when every server reads it alike.
    pub const fn is_one(&self) -> bool {
        self.others.is_empty()
    }

    /// One segment of a reading as keys contain it: with the same slashes, however they are
    /// written.
    pub fn comparable<'p>(&self, segment: &'p [u8]) -> Cow<'p, [u8]> {
        let escaped = |w: &[u8]| w == b"%2F" || w == b"%5C";
        if self.is_literal || !segment.windows(3).any(escaped) {
            return segment.into();
        }
        let mut out = Vec::new();
        normalise(segment, ALL, &mut out);
        out.pop_if(|last| *last == b'/');
        out.split_off(1.min(out.len())).into()
    }

    /// True when a server reads it as a path other than the main one, not only with other slashes.
    pub const fn is_disputed(&self) -> bool {
        self.disputed
    }

    /// Bytes that the buffers occupy.
    pub const fn capacity(&self) -> usize {
        let Self { main, others, resolved, reading, .. } = self;
        main.capacity()
            .saturating_add(others.capacity())
            .saturating_add(resolved.capacity())
            .saturating_add(reading.capacity())
    }

    /// The buffers, for the caller that bounds their retained capacity.
    pub const fn buffers(&mut self) -> [&mut Vec<u8>; 4] {
        [&mut self.main, &mut self.others, &mut self.resolved, &mut self.reading]
    }
}

/// A segment, written as in a path or decoded, in the form that keys contain; empty when no path
/// has it.
pub fn segment(text: &[u8], slashes: EscapedSlashes) -> Vec<u8> {
    let is_literal = slashes == EscapedSlashes::Literal;
    let paths = Paths { is_literal, ..Paths::default() };
    let mut path = Vec::new();
    normalise(&[b"/", text].concat(), NONE, &mut path);
    path.pop_if(|last| *last == b'/');
    paths.comparable(path.get(1..).unwrap_or_default()).into_owned()
}

/// True when a URL library with a base would read the beginning as a host.
fn names_host(path: &[u8]) -> bool {
    matches!(path, [b'/' | b'\\', b'/' | b'\\', ..])
}

/// The path of a whole URL (RFC 9112, 3.2.2); `path` itself when it is not one.
fn after_host(path: &[u8]) -> &[u8] {
    let Some(colon) = path.windows(3).position(|w| w == b"://") else { return path };
    let is_scheme = path.iter().take(colon).all(u8::is_ascii_alphanumeric);
    let rest = path.get(colon.saturating_add(3)..).filter(|_| is_scheme && colon > 0);
    rest.map_or(path, |rest| {
        rest.iter().position(|b| *b == b'/').and_then(|i| rest.get(i..)).unwrap_or_default()
    })
}

/// Writes `path` with its dot segments resolved and nothing else changed into `out`, which is
/// cleared first.
fn resolve_dots(path: &[u8], first: First, out: &mut Vec<u8>) {
    out.clear();
    let is_slash = |b: &u8| *b == b'/' || first != First::Dots && *b == b'\\';
    let rest = match path {
        [_, _, host @ ..] if first == First::Reference => {
            let end = host.iter().position(is_slash).map_or(host.len(), |i| i.saturating_add(1));
            host.get(end..).unwrap_or_default()
        }
        [start, rest @ ..] if is_slash(start) => rest,
        _ => path,
    };
    let mut segments = rest.split(is_slash).peekable();
    while let Some(segment) = segments.next() {
        let dots = dots(segment);
        if dots == Some(2) {
            let parent = out.iter().rposition(|b| *b == b'/');
            out.truncate(parent.unwrap_or_default());
        }
        if dots.is_none() || segments.peek().is_none() {
            out.push(b'/');
        }
        if dots.is_none() {
            out.extend_from_slice(segment);
        }
    }
}

/// The number of dots when `segment` is `.` or `..`, escaped or not.
fn dots(segment: &[u8]) -> Option<u8> {
    let mut rest = segment;
    let mut dots = 0_u8;
    while let Some((byte, _, after)) = crate::percent::next_byte(rest) {
        if byte != b'.' || dots == 2 {
            return None;
        }
        dots = dots.saturating_add(1);
        rest = after;
    }
    (dots > 0).then_some(dots)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use alloc::string::String;

    fn read(target: &[u8], slashes: EscapedSlashes) -> Paths {
        let mut paths = Paths::default();
        paths.read(target, slashes);
        paths
    }

    fn texts(paths: &Paths) -> Vec<String> {
        paths.all().map(|path| String::from_utf8_lossy(path).into_owned()).collect()
    }

    /// Some server reads `target` as `path`, whether it is `literal` or not.
    fn check(target: &str, path: &str) {
        let readings = texts(&read(target.as_bytes(), EscapedSlashes::Separator));
        assert!(readings.iter().any(|reading| reading == path), "{target}: {readings:?}");
    }

    #[test]
    fn one_reading_of_what_servers_read_alike() {
        for (target, path) in [
            ("/login", "/login"),
            ("/login?next=/%2f\\..", "/login"),
            ("/login#/../x", "/login"),
            ("/a/../login", "/login"),
            ("/a/b/%2e%2e/..//login", "/login"),
            ("/a/./", "/a/"),
            ("//login/", "/login/"),
            ("login", "/login"),
            ("*", "/*"),
            ("", "/"),
            ("/..", "/"),
            ("http://h/login?a", "/login"),
            ("HTTPS://h", "/"),
            ("/http://h/login", "/http:/h/login"),
            ("://h/login", "/:/h/login"),
            ("/a;v=1/..;/b", "/a;v=1/..;/b"),
            ("/%252f%c0%af%u002f%00/.../x.", "/%252f%C0%AF%25u002f%00/.../x."),
        ] {
            for slashes in [EscapedSlashes::Separator, EscapedSlashes::Literal] {
                let paths = read(target.as_bytes(), slashes);
                // A path that begins with two slashes is read by Node's idiom, too, and by no
                // other.
                let readings = if target.starts_with("//") { 2 } else { 1 };
                assert_eq!((texts(&paths).len(), paths.main()), (readings, path.as_bytes()));
                assert!(!paths.is_disputed(), "{target}");
            }
        }
    }

    #[test]
    fn every_way_to_a_path_is_read() {
        for target in [
            "/%2Flogin",
            "/%2flogin",
            "%2flogin",
            "/x/..%2flogin",
            "/x/..%5clogin",
            "/x%2f..%2flogin",
            "/x%2f%2e%2e%5Clogin",
            "/%2e%2e%2flogin",
            "/..\\login",
            // nginx: a backslash is a letter, and its segment is removed with the dots.
            "/a\\b/../login",
            "/a\\b/..%2flogin",
            "/a%5cb%2F..%2Flogin",
            // Dots first, then the escapes.
            "/a%2fb/../x/..%2flogin",
            "/a%2fb/../login",
            "/a\\b/../..\\x/..%2flogin",
            "/..%2f..\\login",
            // Node's `new URL(target, base)`.
            "//host/login",
            "/\\host/x/../login",
            // POSIX: no slash at the end.
            "/login/.",
            "/login/x/..",
            "/login%2F",
            "/login%2f.",
        ] {
            check(target, "/login");
        }
        // An empty segment counts as a segment where dots are resolved first.
        check("/api//../x", "/api/x");
        check("/api//../x", "/x");
        check("/a%2Fb", "/a%2Fb");
        check("/a%2Fb", "/a/b");
        check("/a\\b", "/a%5Cb");
    }

    #[test]
    fn what_is_no_slash_stays_one_letter() {
        let readings = |target: &[u8]| texts(&read(target, EscapedSlashes::Literal));
        assert_eq!(readings(b"/a%2fb"), ["/a%2Fb"]);
        assert_eq!(readings(b"/a/..%5cb/../c"), ["/a/c"]);
        assert_eq!(readings(b"/x/..%2flogin"), ["/x/..%2Flogin"]);
        assert_eq!(readings(b"/a\\b"), ["/a/b", "/a%5Cb"]);
    }

    #[test]
    fn a_key_is_made_of_what_no_server_disputes() {
        let disputed = |target: &[u8], slashes| read(target, slashes).is_disputed();
        for target in
            ["/a%2fb", "/a\\b%5cc", "/x/..%2flogin", "/%2flogin", "/a%2F/", "//a", "/a/../b"]
        {
            assert!(!disputed(target.as_bytes(), EscapedSlashes::Separator), "{target}");
        }
        for target in ["/a%2fb/../x", "/a\\b/../x", "/a//../x", "/login/.", "/login%2f"] {
            assert!(disputed(target.as_bytes(), EscapedSlashes::Separator), "{target}");
        }
        assert!(!disputed(b"/a%2fb/../x", EscapedSlashes::Literal));
        assert!(disputed(b"/a\\b", EscapedSlashes::Literal));
    }

    const PIECES: [&str; 7] = ["/a", "/..", "/", "..", "%2f", "\\", "%5C"];
    /// The most pieces of a path; every path up to this length is tried.
    const LONGEST: u32 = 5;

    /// The law of keys: paths that are the same to one server have one key, or the key is disputed.
    #[test]
    fn one_path_has_one_key() {
        let mut keys: BTreeMap<(usize, Vec<u8>), Vec<u8>> = BTreeMap::new();
        let mut compared = 0;
        for number in 0..8_usize.pow(LONGEST) {
            let digits = (0..LONGEST).map(|i| number / 8_usize.pow(i) % 8);
            let path: String = digits.filter_map(|i| PIECES.get(i).copied()).collect();
            let paths = read(path.as_bytes(), EscapedSlashes::Separator);
            for (i, server) in LITERAL.iter().chain(&DECODING).enumerate() {
                let is_reference = server.first == First::Reference;
                if is_reference && !names_host(path.as_bytes()) {
                    continue;
                }
                let mut alone = Paths::default();
                alone.read_as(path.as_bytes(), server);
                assert!(paths.all().any(|known| known == alone.reading), "{path} by {i}");
                if is_reference || paths.is_disputed() {
                    continue; // only conditions know it
                }
                compared += 1;
                let key = keys.entry((i, alone.reading)).or_insert_with(|| paths.main.clone());
                assert_eq!(*key, paths.main, "{path} by {i}");
            }
        }
        assert!(compared > 50_000, "{compared}");
    }
}
