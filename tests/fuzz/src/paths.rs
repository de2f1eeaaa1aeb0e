//! The rules that a path matches, for any path and any patterns.
//!
//! A corpus file is one path pattern per line, an empty line, and a request target. Invariant
//! checked: the normal form of a path is its own normal form, and that of every other spelling. A
//! rule found through the index applies if any reading matches, an exemption only if all do, by the
//! simplest possible readings and matcher. A capture is a segment, and no key is made of a path
//! that some server reads as another one.

use std::collections::BTreeSet;

use tollgate_policy::{Plan, Policy, Surface};

use super::request::Request;

/// More rules than these find nothing new.
const MOST_PATTERNS: usize = 6;
/// A key before its one part: the group's identity and the part's length.
const KEY_HEADER: usize = 12;

/// Compiles the patterns, which may be any text, and determines the matches in three ways.
pub fn check(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let (patterns, _) = text.split_once("\n\n").unwrap_or((&text, ""));
    let at = bytes.windows(2).position(|w| w == b"\n\n").map_or(bytes.len(), |at| at + 2);
    let target = &bytes[at..];
    let mut patterns: Vec<&str> = patterns.lines().take(MOST_PATTERNS).collect();
    let policy = match tollgate_language::compile(&document(&patterns), Surface::Envoy) {
        Ok(policy) => policy,
        Err(problems) => {
            let refused = |i: &usize| {
                let place = format!("rules[{i}].");
                problems.0.iter().any(|problem| problem.path.starts_with(&place))
            };
            // Rule 0 has no pattern, and every pattern has three rules.
            let mut i = 0..;
            patterns.retain(|_| i.next().is_some_and(|i: usize| !refused(&(3 * i + 1))));
            tollgate_language::compile(&document(&patterns), Surface::Envoy)
                .expect("only good patterns")
        }
    };
    let (path, readings, is_disputed) = readings(target);
    let key = normal_form(target);
    assert_eq!(key.is_none(), is_disputed, "{target:?}: {readings:?}");
    if let Some(key) = key {
        assert_eq!(key, path, "{target:?}");
        is_normal(target, &path);
    }
    let mut plan = Plan::new();
    policy.plan(&Request::get(target), &mut plan);
    let applied: Vec<usize> = plan.outcome(&policy).rules().map(|(rule, _)| rule).collect();
    for (i, pattern) in patterns.iter().enumerate() {
        let matching = readings.iter().filter(|path| naive(pattern, path).is_some()).count();
        let [indexed, direct, capturing] = [1, 2, 3].map(|rule| applied.contains(&(3 * i + rule)));
        assert_eq!(indexed, matching > 0, "{pattern} and {target:?}: the index");
        assert_eq!(direct, matching < readings.len(), "{pattern} and {target:?}: let off");
        assert_eq!(capturing, matching > 0, "{pattern} and {target:?}: with its captures");
        if readings.len() > 1 {
            continue;
        }
        let expected: Vec<&[u8]> = naive(pattern, &path).into_iter().flatten().take(1).collect();
        let keys = (0..plan.len()).map(|p| {
            &plan.partition(p).unwrap().key()
                [KEY_HEADER.min(plan.partition(p).unwrap().key().len())..]
        });
        for piece in expected {
            assert!(
                keys.clone().any(|key| key == piece),
                "{pattern} captures {piece:?} of {path:?}"
            );
        }
    }
}

/// The spellings that a server reads as a slash: `/`, `%2F`, `\`, `%5C`.
type Slashes = [bool; 4];

/// The readings of a target by every kind of server, implemented a second time: by segments,
/// sharing only the idea with the policy's readings. Returns the one for keys, all of them, and
/// whether one is another path than the first, not only with other slashes.
fn readings(target: &[u8]) -> (Vec<u8>, BTreeSet<Vec<u8>>, bool) {
    let mut path = target.split(|b| matches!(b, b'?' | b'#')).next().expect("a first part");
    if let Some(at) = path.windows(3).position(|w| w == b"://")
        && at > 0
        && path[..at].iter().all(u8::is_ascii_alphanumeric)
    {
        let rest = &path[at + 3..];
        path = &rest[rest.iter().position(|b| *b == b'/').unwrap_or(rest.len())..];
    }
    let none: Slashes = [true, false, false, false];
    let nginx: Slashes = [true, true, false, false];
    let windows: Slashes = [true; 4];
    let url = |path: &[u8]| dots_first(path, |b| b"/\\".contains(b));
    let (dots, standard) = (dots_first(path, |b| *b == b'/'), url(path));
    let mut all = BTreeSet::new();
    for slashes in [none, nginx, windows, [true, false, true, false], [true, true, true, false]] {
        all.insert(joined(segments(path, slashes), false));
    }
    for slashes in [none, nginx, windows] {
        all.insert(joined(segments(&dots, slashes), false));
        all.insert(joined(segments(&standard, slashes), false));
        all.insert(joined(segments(path, slashes), !path.ends_with(b"/")));
    }
    let main = joined(segments(path, windows), false);
    let is_disputed = all.iter().any(|path| joined(segments(path, windows), false) != main);
    if path.len() > 1 && path[..2].iter().all(|b| b"/\\".contains(b)) {
        let host = &path[2..];
        let end = host.iter().position(|b| b"/\\".contains(b)).unwrap_or(host.len());
        for slashes in [none, nginx] {
            all.insert(joined(segments(&url(&host[end..]), slashes), false));
        }
    }
    (main, all, is_disputed)
}

/// The path with its dots resolved by RFC 3986, 5.2.4: an empty segment is a segment.
fn dots_first(path: &[u8], is_slash: fn(&u8) -> bool) -> Vec<u8> {
    let given = path.strip_prefix(b"/").or(path.strip_prefix(b"\\").filter(|_| is_slash(&b'\\')));
    let mut kept: Vec<&[u8]> = vec![];
    let mut given = given.unwrap_or(path).split(is_slash).peekable();
    while let Some(segment) = given.next() {
        let plain = String::from_utf8_lossy(segment).to_lowercase().replace("%2e", ".");
        if plain == ".." {
            kept.pop();
        }
        if plain != "." && plain != ".." {
            kept.push(segment);
        } else if given.peek().is_none() {
            kept.push(b"");
        }
    }
    kept.iter().flat_map(|segment| [b"/", *segment].concat()).collect()
}

/// The segments as bytes, dots resolved and empty ones removed; the last one may be empty.
fn segments(path: &[u8], [_, escaped, backslash, escaped_backslash]: Slashes) -> Vec<Vec<u8>> {
    let mut all: Vec<Vec<u8>> = vec![vec![]];
    let mut i = 0;
    while i < path.len() {
        let (byte, len) = byte_at(path, i);
        i += len;
        let is_slash = match (byte, len) {
            (b'/', 1) => true,
            (b'/', _) => escaped,
            (b'\\', 1) => backslash,
            (b'\\', _) => escaped_backslash,
            _ => false,
        };
        if is_slash {
            all.push(vec![]);
        } else {
            all.last_mut().expect("a segment").push(byte);
        }
    }
    let last = all.len() - 1;
    let mut kept: Vec<Vec<u8>> = vec![];
    for (i, segment) in all.into_iter().enumerate() {
        let is_dots = segment == b"." || segment == b"..";
        if segment == b".." {
            kept.pop();
        }
        if i == last || !is_dots && !segment.is_empty() {
            kept.push(if is_dots { vec![] } else { segment });
        }
    }
    kept
}

/// The normal form of these segments; `trimmed` without a slash at its end.
fn joined(mut segments: Vec<Vec<u8>>, trimmed: bool) -> Vec<u8> {
    if trimmed && segments.len() > 1 && segments.last().is_some_and(Vec::is_empty) {
        segments.pop();
    }
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._~:@!$&'()*+,;=".contains(&b);
    let written = |b: &u8| if plain(*b) { vec![*b] } else { format!("%{b:02X}").into_bytes() };
    let segment = |s: &Vec<u8>| [b"/".to_vec(), s.iter().flat_map(written).collect()].concat();
    segments.iter().flat_map(segment).collect()
}

/// Shadows, because a rule that denies hides the others. Rule 0 counts every request by its path;
/// then for each pattern one rule that the index finds, one that applies when the pattern does not
/// match, and one that counts by the first capture.
fn document(patterns: &[&str]) -> String {
    let mut rules = String::from(
        r#"{"name": "all", "key": ["path"], "mode": "shadow", "quotas": [{"limit": 1, "window": "1s"}]}"#,
    );
    for (i, pattern) in patterns.iter().enumerate() {
        let quoted = quoted(pattern);
        let key = match captures(pattern).next() {
            Some(name) => format!(r#"{{"path_param": {}}}"#, self::quoted(name)),
            None => r#""path""#.to_owned(),
        };
        for (name, condition, key) in [
            ("index", "when", r#""method""#),
            ("direct", "unless", r#""method""#),
            ("key", "when", &key),
        ] {
            rules.push_str(&format!(
                r#", {{"name": "{i} {name}", "{condition}": {{"paths": [{quoted}]}}, "key": [{key}], "mode": "shadow",
                "quotas": [{{"limit": 1, "window": "1s"}}]}}"#
            ));
        }
    }
    format!(r#"{{"version": 1, "rules": [{rules}]}}"#)
}

/// A JSON string in which nothing more must be escaped.
fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/*{}._-%".contains(c);
    let mut out = String::from("\"");
    for c in text.chars() {
        if plain(c) {
            out.push(c);
        } else {
            let mut units = [0; 2];
            c.encode_utf16(&mut units).iter().for_each(|u| out.push_str(&format!("\\u{u:04x}")));
        }
    }
    out + "\""
}

/// The path by which rules count it; `None` when they cannot.
fn normal_form(target: &[u8]) -> Option<Vec<u8>> {
    thread_local! {
        static BY_PATH: Policy = tollgate_language::compile(&document(&[]), Surface::Envoy).expect("a policy");
    }
    let mut plan = Plan::new();
    BY_PATH.with(|policy| policy.plan(&Request::get(target), &mut plan));
    (0..plan.len()).next().map(|i| plan.partition(i).unwrap().key()[KEY_HEADER..].to_vec())
}

fn is_normal(target: &[u8], path: &[u8]) {
    assert_eq!(path.first(), Some(&b'/'), "{target:?}");
    assert!(!path.windows(2).any(|w| w == b"//") && !path.contains(&b'\\'), "{path:?}");
    assert!(!path.contains(&b'?') && !path.contains(&b'#'), "{path:?}");
    assert!(!path.split(|b| *b == b'/').any(|s| s == b"." || s == b".."), "{path:?}");
    assert_eq!(normal_form(path).as_deref(), Some(path), "of {target:?} has another one");
    let spelled = |spell: fn(&u8) -> Vec<u8>| path.iter().flat_map(spell).collect::<Vec<u8>>();
    let slashes = spelled(|b| if *b == b'/' { b"/.//".to_vec() } else { vec![*b] });
    assert_eq!(normal_form(&slashes).as_deref(), Some(path), "more slashes");
    let parents = spelled(|b| if *b == b'/' { b"/x/%2e./".to_vec() } else { vec![*b] });
    assert_eq!(normal_form(&parents).as_deref(), Some(path), "there and back");
    let mut escapes = Vec::new();
    let mut digits = 0; // the characters of an escape cannot themselves be escaped
    for byte in path {
        match byte {
            b'%' => digits = 3,
            _ if digits == 0 && *byte != b'/' => {
                escapes.extend_from_slice(format!("%{byte:02x}").as_bytes());
                continue;
            }
            _ => {}
        }
        digits = usize::saturating_sub(digits, 1);
        escapes.push(*byte);
    }
    assert_eq!(normal_form(&escapes).as_deref(), Some(path), "escapes");
    let query = [path, b"?a=/b/../c#d"].concat();
    assert_eq!(normal_form(&query).as_deref(), Some(path), "a query");
}

fn captures(pattern: &str) -> impl Iterator<Item = &str> {
    pattern.split('/').filter_map(|s| s.strip_prefix('{')?.strip_suffix('}'))
}

/// The captured segments when the whole of `path` matches: segment by segment, sharing only the
/// idea with the matcher.
fn naive<'p>(pattern: &str, path: &'p [u8]) -> Option<Vec<&'p [u8]>> {
    let given: Vec<&[u8]> = path[1..].split(|b| *b == b'/').collect();
    let mut wanted: Vec<&str> = pattern[1..].split('/').collect();
    let open_ended = wanted.last() == Some(&"**");
    if open_ended {
        wanted.pop();
    }
    if given.len() < wanted.len() || !open_ended && given.len() > wanted.len() {
        return None;
    }
    let mut captured = Vec::new();
    for (wanted, given) in wanted.iter().zip(given) {
        match wanted {
            &"*" if !given.is_empty() => {}
            capture if capture.starts_with('{') && !given.is_empty() => captured.push(given),
            literal if unescaped(literal.as_bytes()) == unescaped(given) => {}
            _ => return None,
        }
    }
    Some(captured)
}

/// The decoded bytes of a segment in any spelling. A percent sign that begins no escape is kept.
fn unescaped(segment: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut i = 0;
    while i < segment.len() {
        let (byte, len) = byte_at(segment, i);
        out.push(byte);
        i += len;
    }
    out
}

/// The byte at `i` and the length of its spelling.
fn byte_at(path: &[u8], i: usize) -> (u8, usize) {
    let hex = |at: usize| char::from(*path.get(at)?).to_digit(16);
    let escape = Some(i).filter(|_| path[i] == b'%').and_then(|_| Some((hex(i + 1)?, hex(i + 2)?)));
    match escape {
        Some((high, low)) => ((high * 16 + low) as u8, 3),
        None => (path[i], 1),
    }
}
