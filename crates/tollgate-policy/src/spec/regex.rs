//! Regular expressions on values of requests.
//!
//! Invariant: a value is bytes, and each byte is one character, so every value can be searched and
//! no byte ends a match: `.` matches any byte, `\w`, `\d`, `\s` and `(?i)` know ASCII alone. An
//! expression is text of ASCII, compiled once per policy, and the search takes time in the length
//! of the value. Programs are not part of a policy's bytes. Deliberately absent: a search in a
//! value of more than [`MAX_SEARCHED`](crate::spec::MAX_SEARCHED) bytes, which callers refuse.
//!
//! Without the feature `regex` the file `no_regex.rs` is in the place of this one.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Range;

use crate::spec::bounds::MAX_REGEX;
use crate::spec::coded::{Coded, Reader, shape};
use program::Program;

/// A regular expression. Equal texts are equal expressions.
#[derive(Clone, Debug)]
pub struct Regex {
    text: String,
    /// `None` until its policy is made.
    program: Option<Program>,
}

impl PartialEq for Regex {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Regex {}

impl Regex {
    /// The expression `text`, without its program, which takes memory.
    ///
    /// # Errors
    /// Why it is not a regular expression; a sentence without its subject.
    pub fn new(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("is empty, so it matches every value; leave it out".into());
        }
        if text.len() > MAX_REGEX {
            return Err(format!("has {} bytes; use at most {MAX_REGEX}", text.len()));
        }
        if let Some(at) = text.bytes().position(|byte| !matches!(byte, 0x20..=0x7e)) {
            return Err(format!(
                "has a character outside %x20-7E after {at} bytes; write each of its bytes as \\xNN"
            ));
        }
        if let Some(at) = code_point(text) {
            return Err(format!(
                "names a character after {at} bytes, and a value is bytes; write each of its bytes as \\xNN"
            ));
        }
        Program::new(text)?;
        Ok(Self { text: text.into(), program: None })
    }

    /// Its text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The number of its groups that capture.
    pub fn groups(&self) -> usize {
        Program::new(&self.text).map_or(0, |program| program.groups())
    }

    /// True when a key part has an empty value for some value that matches: the group, or else the
    /// whole expression, matches an empty text.
    pub fn may_be_empty(&self) -> bool {
        let counted = group(&self.text).unwrap_or(&self.text);
        Program::new(counted).is_ok_and(|program| program.part(b"").is_some())
    }

    /// True when each of its alternatives begins with `^` and ends with `$`.
    pub fn is_anchored(&self) -> bool {
        let text = match self.text.strip_prefix("(?").and_then(|rest| rest.split_once(')')) {
            Some((flags, rest)) if flags.bytes().all(|flag| matches!(flag, b'i' | b's')) => rest,
            _ => &self.text,
        };
        // Flags inside may end a line there, and a repetition makes an anchor optional.
        let has_flags = text.split("(?").skip(1).any(|rest| !rest.starts_with(':'));
        let is_anchored = |branch: &str| {
            let before = branch.strip_suffix('$').unwrap_or_default();
            let escapes = before.bytes().rev().take_while(|b| *b == b'\\').count();
            let after = before.strip_prefix('^');
            let is_bound = after.is_some_and(|after| !after.starts_with(['*', '?', '+', '{']));
            is_bound && !has_flags && escapes.is_multiple_of(2)
        };
        let mut start = 0;
        let ends = bars(text).into_iter().chain([text.len()]);
        let mut branches = ends.map(|end| {
            let branch = text.get(start..end).unwrap_or_default();
            start = end.saturating_add(1);
            branch
        });
        branches.all(is_anchored)
    }

    /// True when `value` matches anywhere.
    pub fn is_match(&self, value: &[u8]) -> bool {
        debug_assert!(self.program.is_some(), "a policy has the programs of its expressions");
        self.program.as_ref().is_some_and(|program| program.is_match(value))
    }

    /// Builds its program.
    ///
    /// # Errors
    /// Why it is not a regular expression.
    pub(crate) fn build(&mut self) -> Result<(), String> {
        self.program = Some(Program::new(&self.text)?);
        Ok(())
    }

    /// Takes the program of an equal expression.
    pub(crate) fn share(&mut self, equal: &Self) {
        self.program.clone_from(&equal.program);
    }

    /// Where `value` has the group, or else the whole match of an expression without a group;
    /// `None` without a match, and where the match has no part in the group.
    pub fn part(&self, value: &[u8]) -> Option<Range<usize>> {
        debug_assert!(self.program.is_some(), "a policy has the programs of its expressions");
        self.program.as_ref()?.part(value)
    }
}

/// Its encoding is its text. It is not `Coded`, because a build without expressions reads none.
impl Regex {
    /// The shape of its encoding.
    pub(crate) const SHAPE: u64 = shape(&["regular expression"], &[]);

    /// Appends it.
    pub(crate) fn write(&self, to: &mut Vec<u8>) {
        self.text.write(to);
    }

    /// Reads an expression; `None` once the reader has failed.
    pub(crate) fn read(from: &mut Reader<'_>) -> Option<Self> {
        let text = String::read(from);
        from.try_with(|_| Self::new(&text).ok())
    }
}

/// The bytes before an escape that names a character by its number.
fn code_point(text: &str) -> Option<usize> {
    let mut rest = text.bytes().enumerate().peekable();
    while let Some((at, byte)) = rest.next() {
        let escaped = if byte == b'\\' { rest.next() } else { None };
        match escaped {
            Some((_, b'u' | b'U')) => return Some(at),
            Some((_, b'x')) if rest.peek().is_some_and(|(_, byte)| *byte == b'{') => {
                return Some(at);
            }
            _ => {}
        }
    }
    None
}

/// The role of a character in a valid expression.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mark {
    Open,
    Close,
    Bar,
}

/// The positions of the characters that structure a valid expression: none that is escaped or in a
/// class.
fn marks(text: &str) -> Vec<(usize, Mark)> {
    let (mut marks, mut classes) = (Vec::new(), 0_usize);
    let mut rest = text.bytes().enumerate().peekable();
    while let Some((at, byte)) = rest.next() {
        match byte {
            b'\\' => {
                rest.next();
            }
            b'[' => {
                // A bracket that begins a class, or its complement, is a character of it.
                rest.next_if(|(_, next)| *next == b'^');
                rest.next_if(|(_, next)| *next == b']');
                classes = classes.saturating_add(1);
            }
            b']' => classes = classes.saturating_sub(1),
            b'(' if classes == 0 => marks.push((at, Mark::Open)),
            b')' if classes == 0 => marks.push((at, Mark::Close)),
            b'|' if classes == 0 => marks.push((at, Mark::Bar)),
            _ => {}
        }
    }
    marks
}

/// The positions of the bars between the alternatives of the whole expression.
fn bars(text: &str) -> Vec<usize> {
    let mut depth = 0_usize;
    let mut bars = Vec::new();
    for (at, mark) in marks(text) {
        match mark {
            Mark::Open => depth = depth.saturating_add(1),
            Mark::Close => depth = depth.saturating_sub(1),
            Mark::Bar if depth == 0 => bars.push(at),
            Mark::Bar => {}
        }
    }
    bars
}

/// The text of the first group that captures.
fn group(text: &str) -> Option<&str> {
    let (mut depth, mut start) = (0_usize, None);
    for (at, mark) in marks(text) {
        let inner = at.saturating_add(1);
        match mark {
            Mark::Open if start.is_none() => {
                start = (text.as_bytes().get(inner) != Some(&b'?')).then_some(inner);
            }
            Mark::Open => depth = depth.saturating_add(1),
            Mark::Close => match start {
                Some(start) if depth == 0 => return text.get(start..at),
                Some(_) => depth = depth.saturating_sub(1),
                None => {}
            },
            Mark::Bar => {}
        }
    }
    None
}

mod program {
    use alloc::borrow::Cow;
    use alloc::string::ToString;

    use super::*;

    /// Bytes of the states of an expression.
    const MAX_STATES: usize = 10_240;
    /// How deep groups and repetitions may be nested.
    const MAX_NESTING: u32 = 16;

    /// An expression that can be searched for; a copy shares everything.
    #[derive(Clone, Debug)]
    pub(super) struct Program(regex_lite::Regex);

    impl Program {
        /// # Errors
        /// Why `text` is not an expression.
        pub(super) fn new(text: &str) -> Result<Self, String> {
            let why = match built(text) {
                Ok(program) => return Ok(Self(program)),
                Err(why) => why,
            };
            // The parser reads from the left, so a text that contains the mistake has this error,
            // whatever follows it.
            let fails = |end: &usize| {
                text.get(..*end).is_some_and(|it| built(it).err().as_ref() == Some(&why))
            };
            let at = (1..=text.len()).rev().take_while(fails).last().unwrap_or(text.len());
            Err(format!("is not a regular expression at character {at}: {why}"))
        }

        pub(super) fn groups(&self) -> usize {
            self.0.captures_len().saturating_sub(1)
        }

        pub(super) fn is_match(&self, value: &[u8]) -> bool {
            self.0.is_match(&text_of(value))
        }

        pub(super) fn part(&self, value: &[u8]) -> Option<Range<usize>> {
            let text = text_of(value);
            let found = match self.groups() {
                0 => self.0.find(&text)?,
                _ => self.0.captures(&text)?.get(1)?,
            };
            // One byte of the value is one character of the text.
            let place = |at: usize| text.get(..at).map(|before| before.chars().count());
            match matches!(text, Cow::Borrowed(_)) {
                true => Some(found.range()),
                false => Some(place(found.start())?..place(found.end())?),
            }
        }
    }

    fn built(text: &str) -> Result<regex_lite::Regex, String> {
        let mut builder = regex_lite::RegexBuilder::new(text);
        builder.dot_matches_new_line(true).size_limit(MAX_STATES).nest_limit(MAX_NESTING);
        builder.build().map_err(|error| error.to_string())
    }

    /// The value as text in which each byte is one character, as in Latin-1.
    fn text_of(value: &[u8]) -> Cow<'_, str> {
        match core::str::from_utf8(value) {
            Ok(text) if text.is_ascii() => text.into(),
            _ => value.iter().copied().map(char::from).collect::<String>().into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    fn compiled(text: &str) -> Regex {
        let mut regex = Regex::new(text).unwrap_or_else(|why| panic!("{text}: {why}"));
        regex.build().unwrap();
        regex
    }

    fn part(text: &str, value: &[u8]) -> Option<Vec<u8>> {
        compiled(text).part(value).map(|found| value[found].to_vec())
    }

    #[test]
    fn a_part_is_the_group_or_all_that_matches() {
        for (text, value, found) in [
            ("^org-([0-9]+)$", &b"org-42"[..], Some(&b"42"[..])),
            ("^org-([0-9]+)$", b"org-42 ", None),
            ("^org-([0-9]+)$", b"org-", None),
            ("org-[0-9]+", b"an org-42!", Some(b"org-42")),
            ("^(?:org-([0-9]+)|guest)$", b"org-7", Some(b"7")),
            // The match has no part in the group.
            ("^(?:org-([0-9]+)|guest)$", b"guest", None),
            ("^(?i:BEARER) (.*)$", b"bEaReR t", Some(b"t")),
            ("^(.*?),", b"a,b", Some(b"a")),
            ("^([^@]*)", b"@", Some(b"")),
        ] {
            assert_eq!(part(text, value).as_deref(), found, "{text} in {value:?}");
        }
    }

    // Guards: a byte with which a client leaves a rule, because a search stops at it or takes it
    // for another.
    #[test]
    fn every_byte_is_one_character() {
        for byte in 0..=u8::MAX {
            let value = [b'a', byte, b'z'];
            assert_eq!(part("^a(.)z$", &value).as_deref(), Some(&[byte][..]), "{byte}");
            assert_eq!(part("^a([^q])z$", &value).is_some(), byte != b'q', "{byte}");
            assert_eq!(part("^.{3}$", &value).as_deref(), Some(&value[..]), "{byte}");
            let escape = alloc::format!("^a\\x{byte:02X}z$");
            assert!(compiled(&escape).is_match(&value), "{escape}");
            let is_word = byte.is_ascii_alphanumeric() || byte == b'_';
            assert_eq!(compiled(r"^a\wz$").is_match(&value), is_word, "{byte}");
            assert_eq!(compiled(r"^a\dz$").is_match(&value), byte.is_ascii_digit(), "{byte}");
        }
        // Of several bytes, some of them text and some not.
        let value = "x\u{e9}\u{2603}-".as_bytes();
        assert_eq!(part("^x(.*)-$", value).as_deref(), Some(&value[1..value.len() - 1]));
        assert_eq!(part("^.*(-)$", value).as_deref(), Some(&b"-"[..]));
        assert!(compiled(r"^x\xC3\xA9").is_match(value));
        assert!(!compiled("(?i)^\\xE9").is_match(b"\xc9"));
    }

    #[test]
    fn a_text_has_bounds_and_its_mistake_has_a_place() {
        let long = |len: usize| "a".repeat(len);
        assert!(Regex::new(&long(MAX_REGEX)).is_ok());
        let mut wrong = vec![];
        for (text, why) in [
            (long(257), "has 257 bytes; use at most 256"),
            (String::new(), "is empty, so it matches every value; leave it out"),
            (
                "a\u{e9}".into(),
                "has a character outside %x20-7E after 1 bytes; write each of its bytes as \\xNN",
            ),
            (
                r"\\\u{e9}".into(),
                "names a character after 2 bytes, and a value is bytes; write each of its bytes as \\xNN",
            ),
            (
                r"\x{e9}".into(),
                "names a character after 0 bytes, and a value is bytes; write each of its bytes as \\xNN",
            ),
            (
                "ab(cd".into(),
                "is not a regular expression at character 3: found open group without closing ')'",
            ),
            (
                "(a)b)c".into(),
                "is not a regular expression at character 5: found closing ')' without matching '('",
            ),
            (
                "a[z-b]c".into(),
                "is not a regular expression at character 5: invalid range in character class",
            ),
            ("a**".into(), ""),
            (
                r"(a)\1".into(),
                "is not a regular expression at character 5: backreferences are not supported",
            ),
            (
                "a(?=b)".into(),
                "is not a regular expression at character 4: look-around is not supported",
            ),
            (
                "[a-z]{300}".into(),
                "is not a regular expression at character 10: compiled regex exceeded size limit",
            ),
            (
                "(".repeat(17) + &")".repeat(17),
                "is not a regular expression at character 17: pattern has too much nesting",
            ),
        ] {
            let found = Regex::new(&text).err().unwrap_or_default();
            if found != why {
                wrong.push((text, found));
            }
        }
        assert!(wrong.is_empty(), "{wrong:#?}");
    }

    #[test]
    fn anchors_groups_and_empty_matches_are_found() {
        for (text, is_anchored, group, may_be_empty) in [
            ("^a$", true, None, false),
            ("a$", false, None, false),
            ("^a", false, None, false),
            ("^a|b$", false, None, false),
            ("^a$|^b$", true, None, false),
            ("^(?:a|b)$", true, None, false),
            ("^[|]$", true, None, false),
            ("^a\\|b$", true, None, false),
            ("^a\\$", false, None, false),
            ("^a\\\\$", true, None, false),
            ("(?i)^a$", true, None, false),
            ("(?s)^.*$", true, None, true),
            ("(?m)^a$", false, None, false),
            ("^(?m)a$", false, None, false),
            ("^(?i:a)$", false, None, false),
            ("^*a$", false, None, false),
            ("^{0}a$", false, None, false),
            ("^(a|)$", true, Some("a|"), true),
            ("^(?:x)(a*)$", true, Some("a*"), true),
            ("^(a(?:b|(?:c))+)$", true, Some("a(?:b|(?:c))+"), false),
            ("^[(](a)$", true, Some("a"), false),
            ("^[]()](a)$", true, Some("a"), false),
            ("^\\((a)$", true, Some("a"), false),
            ("a*", false, None, true),
        ] {
            let regex = Regex::new(text).unwrap();
            let found = super::group(text);
            assert_eq!((regex.is_anchored(), found), (is_anchored, group), "{text}");
            assert_eq!(regex.may_be_empty(), may_be_empty, "{text}");
            assert_eq!(regex.groups(), usize::from(group.is_some()), "{text}");
        }
    }

    #[test]
    fn bytes_are_the_text() {
        let regex = Regex::new("^a$").unwrap();
        let mut bytes = vec![];
        regex.write(&mut bytes);
        assert_eq!(bytes, b"\x03^a$");
        assert_eq!(Regex::read(&mut Reader::new(&bytes)), Some(regex));
        assert_eq!(Regex::read(&mut Reader::new(b"\x02a(")), None);
    }
}
