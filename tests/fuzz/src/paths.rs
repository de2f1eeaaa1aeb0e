//! Which rules a path matches, whatever the path and the patterns are.
//!
//! A corpus file is a path pattern a line, an empty line, and a request target. Invariant checked: the
//! normal form of a path is its own, and that of every other spelling; a rule found through the index,
//! one that is asked directly, and a matcher as naive as can be agree; a capture is a segment.

use tollgate_policy::{Plan, Policy, Surface};

use super::request::Request;

/// More rules than these teach nothing new.
const MOST_PATTERNS: usize = 6;
/// A key before its one part: the group's identity and the part's length.
const KEY_HEADER: usize = 12;

/// Compiles the patterns that are any, and asks three ways which match.
pub fn check(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let (patterns, _) = text.split_once("\n\n").unwrap_or((&text, ""));
    let at = bytes.windows(2).position(|w| w == b"\n\n").map_or(bytes.len(), |at| at + 2);
    let target = &bytes[at..];
    let mut patterns: Vec<&str> = patterns.lines().take(MOST_PATTERNS).collect();
    let policy = match Policy::compile(&document(&patterns), Surface::Envoy) {
        Ok(policy) => policy,
        Err(problems) => {
            let refused = |i: &usize| {
                let place = format!("rules[{i}].");
                problems.0.iter().any(|problem| problem.path.starts_with(&place))
            };
            // Rule 0 has no pattern, and every pattern three rules.
            let mut i = 0..;
            patterns.retain(|_| i.next().is_some_and(|i: usize| !refused(&(3 * i + 1))));
            Policy::compile(&document(&patterns), Surface::Envoy).expect("only good patterns")
        }
    };
    let path = normal_form(target);
    is_normal(target, &path);
    let mut plan = Plan::new();
    policy.plan(&Request::get(target), &mut plan);
    let applied: Vec<usize> = plan.outcome(&policy).rules().map(|(rule, _)| rule).collect();
    for (i, pattern) in patterns.iter().enumerate() {
        let captured = naive(pattern, &path);
        let [indexed, direct, capturing] = [1, 2, 3].map(|rule| applied.contains(&(3 * i + rule)));
        assert_eq!(indexed, captured.is_some(), "{pattern} and {target:?}: the index");
        assert_eq!(direct, captured.is_none(), "{pattern} and {target:?}: asked directly");
        assert_eq!(capturing, captured.is_some(), "{pattern} and {target:?}: with its captures");
        let expected: Vec<&[u8]> = captured.into_iter().flatten().take(1).collect();
        let keys = (0..plan.len()).map(|p| &plan.key(p)[KEY_HEADER.min(plan.key(p).len())..]);
        for piece in expected {
            assert!(
                keys.clone().any(|key| key == piece),
                "{pattern} captures {piece:?} of {path:?}"
            );
        }
    }
}

/// Rule 0 counts every request by its path; then for each pattern one rule that the index finds, one that
/// applies when the pattern does not match, and one that counts by the first capture.
fn document(patterns: &[&str]) -> String {
    let mut rules = String::from(
        r#"{"name": "all", "key": ["path"], "quotas": [{"limit": 1, "window": "1s"}]}"#,
    );
    for (i, pattern) in patterns.iter().enumerate() {
        let quoted = quoted(pattern);
        let key = match captures(pattern).next() {
            Some(name) => format!(r#"{{"path_param": {}}}"#, self::quoted(name)),
            None => r#""path""#.to_owned(),
        };
        for (name, condition, key) in [
            ("index", "when", r#""path""#),
            ("direct", "unless", r#""path""#),
            ("key", "when", &key),
        ] {
            rules.push_str(&format!(
                r#", {{"name": "{i} {name}", "{condition}": {{"paths": [{quoted}]}}, "key": [{key}],
                "quotas": [{{"limit": 1, "window": "1s"}}]}}"#
            ));
        }
    }
    format!(r#"{{"version": 1, "rules": [{rules}]}}"#)
}

/// A JSON string with nothing left to be escaped.
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

/// The path as rules are counted by it.
fn normal_form(target: &[u8]) -> Vec<u8> {
    thread_local! {
        static BY_PATH: Policy = Policy::compile(&document(&[]), Surface::Envoy).expect("a policy");
    }
    let mut plan = Plan::new();
    BY_PATH.with(|policy| policy.plan(&Request::get(target), &mut plan));
    plan.key(0)[KEY_HEADER..].to_vec()
}

fn is_normal(target: &[u8], path: &[u8]) {
    assert_eq!(path.first(), Some(&b'/'), "{target:?}");
    assert!(!path.windows(2).any(|w| w == b"//") && !path.contains(&b'\\'), "{path:?}");
    assert!(!path.contains(&b'?') && !path.contains(&b'#'), "{path:?}");
    assert!(!path.split(|b| *b == b'/').any(|s| s == b"." || s == b".."), "{path:?}");
    assert_eq!(normal_form(path), path, "of {target:?} has another one");
    let spelled = |spell: fn(&u8) -> Vec<u8>| path.iter().flat_map(spell).collect::<Vec<u8>>();
    let slashes = spelled(|b| if *b == b'/' { b"/.//".to_vec() } else { vec![*b] });
    assert_eq!(normal_form(&slashes), path, "more slashes");
    let parents = spelled(|b| if *b == b'/' { b"/x/%2e.\\".to_vec() } else { vec![*b] });
    assert_eq!(normal_form(&parents), path, "there and back");
    let mut escapes = Vec::new();
    let mut digits = 0; // what belongs to an escape cannot be escaped once more
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
    assert_eq!(normal_form(&escapes), path, "escapes");
    let query = [path, b"?a=/b/../c#d"].concat();
    assert_eq!(normal_form(&query), path, "a query");
}

fn captures(pattern: &str) -> impl Iterator<Item = &str> {
    pattern.split('/').filter_map(|s| s.strip_prefix('{')?.strip_suffix('}'))
}

/// The captured segments when the whole of `path` matches: segment by segment, nothing shared with the
/// matcher but the idea.
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

/// The bytes that a segment means, however they are written. A percent sign that begins no escape is one.
fn unescaped(segment: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut i = 0;
    while i < segment.len() {
        let hex = |at: usize| char::from(*segment.get(at)?).to_digit(16);
        let escape =
            Some(i).filter(|_| segment[i] == b'%').and_then(|_| Some((hex(i + 1)?, hex(i + 2)?)));
        let (byte, len) = match escape {
            Some((high, low)) => ((high * 16 + low) as u8, 3),
            None => (segment[i], 1),
        };
        out.push(byte);
        i += len;
    }
    out
}
