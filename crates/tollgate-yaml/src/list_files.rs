//! Lists of a policy whose values are in files next to it: `{"file": "blocked.txt"}` among the
//! values of a list is each value of that file.
//!
//! Invariant: a document has all values of its files, or it is refused. A file is in the folder of
//! the policy or below it, also after links were followed, so that checking a policy of unknown
//! origin shows no line of any other file.
//! Deliberately absent: files of files, and numbers other than those of `asns`.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::path::{Component, Path};

use tollgate_http_syntax::token::is_token;

use crate::{Fault, Field, Form, Kind, Node, Scalar};

/// The most bytes of all files of a policy together: a whole document is no longer.
const MAX_BYTES: usize = 1 << 20;

/// The values that a list has from a file.
#[derive(Debug)]
pub struct ListFile {
    /// The path of the list: `rules[0].when.client_cidrs`.
    list: String,
    /// The index of the first value in that list.
    first: usize,
    /// The file as the policy names it.
    name: String,
    /// The line of each value in the file, counted from 1.
    lines: Vec<usize>,
}

impl ListFile {
    /// The place in the file of the value that `path` is, or is inside: `blocked.txt, line 13`.
    pub(crate) fn place(&self, path: &str) -> Option<String> {
        let index = path.strip_prefix(&self.list)?.strip_prefix('[')?.split(']').next()?;
        let index: usize = index.parse().ok()?;
        let line = self.lines.get(index.checked_sub(self.first)?)?;
        Some(format!("{}, line {line}", self.name))
    }
}

/// Puts the values of files in the place of their names.
pub(crate) struct Taker<'r> {
    /// The text of a file, or what is wrong with it.
    read: &'r mut dyn FnMut(&str) -> Result<String, String>,
    /// The bytes that the files may still have together.
    left: usize,
    pub(crate) taken: Vec<ListFile>,
}

impl<'r> Taker<'r> {
    pub(crate) fn new(read: &'r mut dyn FnMut(&str) -> Result<String, String>) -> Self {
        Self { read, left: MAX_BYTES, taken: Vec::new() }
    }

    /// In `node`, which is at `path`. The lists in a list are no lists of values: an object there
    /// is what it says.
    ///
    /// # Errors
    /// The first file that has no values to take.
    pub(crate) fn take(&mut self, node: &mut Node, path: &str) -> Result<(), Fault> {
        match &mut node.kind {
            Kind::Scalar(_) => Ok(()),
            Kind::Object(fields) => {
                fields.iter_mut().try_for_each(|Field { name, value, .. }| {
                    let dot = if path.is_empty() { "" } else { "." };
                    let quote = if is_token(name.as_bytes()) { "" } else { "\"" };
                    self.take(value, &format!("{path}{dot}{quote}{name}{quote}"))
                })
            }
            Kind::List(items) => {
                let mut all = Vec::with_capacity(items.len());
                for mut item in std::mem::take(items) {
                    if let Some(name) = named(&item) {
                        let place = (path, all.len());
                        let text = self.text(name, place).map_err(|message| Fault {
                            line: item.line,
                            column: item.column,
                            message,
                        })?;
                        all.extend(values(&text).map(|(_, value)| value_node(value, path, &item)));
                        continue;
                    }
                    if matches!(item.kind, Kind::Object(_)) {
                        self.take(&mut item, &format!("{path}[{}]", all.len()))?;
                    }
                    all.push(item);
                }
                *items = all;
                Ok(())
            }
        }
    }

    /// The text of a file whose first value is at `index` of the list at `path`.
    fn text(&mut self, name: &str, (path, index): (&str, usize)) -> Result<String, String> {
        let text = is_inside(name).and_then(|()| (self.read)(name));
        let text = text.and_then(|text| {
            self.left = self
                .left
                .checked_sub(text.len())
                .ok_or("is too long: all files of a policy have at most 1 MiB")?;
            let lines: Vec<usize> = values(&text).map(|(line, _)| line).collect();
            if lines.is_empty() {
                return Err(
                    "has no value; write at least one, or take the file out of the list".into()
                );
            }
            let (list, name) = (path.to_owned(), name.to_owned());
            self.taken.push(ListFile { list, first: index, name, lines });
            Ok(text)
        });
        text.map_err(|why| format!("{path}: the file \"{name}\" {why}"))
    }
}

/// A value of the list at `path`, in the place of `item`. Numbers of systems are numbers in a
/// document, and all other values are texts.
fn value_node(value: &str, path: &str, item: &Node) -> Node {
    let is_asns = [".when.asns", ".unless.asns", "].asns"].iter().any(|end| path.ends_with(end));
    let is_number = value.bytes().all(|byte| byte.is_ascii_digit()) && !value.starts_with('0');
    let form = if is_asns && is_number { Form::Plain } else { Form::Quoted };
    let kind = Kind::Scalar(Scalar { text: value.to_owned(), form });
    Node { kind, ..*item }
}

impl Node {
    /// The names of the files that lists of this document take values from.
    pub fn list_files(&self) -> BTreeSet<&str> {
        match &self.kind {
            Kind::Scalar(_) => BTreeSet::new(),
            Kind::Object(fields) => fields.iter().flat_map(|it| it.value.list_files()).collect(),
            Kind::List(items) => {
                let of = |item| match named(item) {
                    Some(name) => BTreeSet::from([name]),
                    None if matches!(item.kind, Kind::Object(_)) => item.list_files(),
                    None => BTreeSet::new(),
                };
                items.iter().flat_map(of).collect()
            }
        }
    }
}

/// The file that an item of a list names.
fn named(item: &Node) -> Option<&str> {
    let [field] = item.fields() else { return None };
    field.value.text().filter(|_| field.name == "file")
}

/// The values of a file, each with its line: one on each line. `#` at the beginning or after white
/// space begins a comment.
fn values(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = text.trim_start_matches('\u{feff}').lines().enumerate();
    let values = lines.map(|(index, line)| (index.saturating_add(1), without_comment(line).trim()));
    values.filter(|(_, value)| !value.is_empty())
}

fn without_comment(line: &str) -> &str {
    let ends_value = |before: &str| before.is_empty() || before.ends_with(char::is_whitespace);
    let begins = |at: &usize| line.get(..*at).is_some_and(ends_value);
    let mut places = line.match_indices('#').map(|(at, _)| at);
    places.find(begins).and_then(|at| line.get(..at)).unwrap_or(line)
}

const OUTSIDE: &str = "is not in the folder of the policy; use a relative path without \"..\"";

fn is_inside(name: &str) -> Result<(), String> {
    let mut parts = Path::new(name).components();
    if name.is_empty() || !parts.all(|it| matches!(it, Component::Normal(_) | Component::CurDir)) {
        return Err(OUTSIDE.to_owned());
    }
    Ok(())
}

/// The text of the file `name` in the folder of the file `policy`; of the standard input, `-`, in
/// the current folder.
///
/// # Errors
/// The problem with the file, as the rest of a sentence.
pub fn read_beside(policy: &Path, name: &str) -> Result<String, String> {
    let cannot = |why: std::io::Error| format!("cannot be read: {why}");
    let folder = policy.parent().filter(|it| !it.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let folder = folder.canonicalize().map_err(cannot)?;
    // The links of a ConfigMap stay inside its folder.
    let path = folder.join(name).canonicalize().map_err(cannot)?;
    if !path.starts_with(&folder) {
        return Err(OUTSIDE.to_owned());
    }
    if !path.metadata().map_err(cannot)?.is_file() {
        return Err("is not a regular file".to_owned());
    }
    let mut bytes = Vec::new();
    let most = u64::try_from(MAX_BYTES).unwrap_or(u64::MAX).saturating_add(1);
    File::open(path).and_then(|file| file.take(most).read_to_end(&mut bytes)).map_err(cannot)?;
    if bytes.len() > MAX_BYTES {
        return Err("is longer than 1 MiB".to_owned());
    }
    String::from_utf8(bytes).map_err(|_| "is not UTF-8".to_owned())
}

#[cfg(test)]
mod tests {
    use tollgate_core::Timestamp;
    use tollgate_language::DescribedRequest;
    use tollgate_policy::{Disposition, Plan, Policy, Surface};
    use tollgate_test_support::Random;

    use std::fs;
    use std::os::unix::fs::symlink;

    use super::{MAX_BYTES, OUTSIDE, read_beside};
    use crate::{Document, Language};

    const ROUNDS: usize = if cfg!(debug_assertions) { 2_000 } else { 20_000 };

    const POLICY: &str = r#"{"version": 1, "rules": [{"name": "a", "deny": true, "when": {
        "client_cidrs": ["192.0.2.1", {"file": "a.txt"}, "x", {"file": "lists/b.txt"}],
        "asns": [{"file": "asns"}], "entries": [[{"file": "report.pdf"}]]}}]}"#;

    fn file(name: &str) -> Result<String, String> {
        match name {
            "a.txt" => {
                Ok("\u{feff}# first\r\n198.51.100.0/24 # why\r\n\r\n 2001:db8::/32\t\r\n".into())
            }
            "lists/b.txt" => Ok("300.0.0.1\n203.0.113.1#a\n".into()),
            "empty" => Ok(" # nothing\n\n".into()),
            "asns" => Ok("64496\n64497\n".into()),
            _ => Err("cannot be read: it is not there".into()),
        }
    }

    fn taken(policy: &str, language: Language) -> Result<Document, String> {
        let document = Document::read(policy.into(), language).unwrap();
        document.take_files(file).map_err(|fault| format!("line {}: {}", fault.line, fault.message))
    }

    // Guards: values that are lost, or reported at a place where they are not.
    #[test]
    fn the_values_of_files_are_values_of_the_list() {
        for language in [Language::Json, Language::Yaml] {
            let document = taken(POLICY, language).unwrap();
            let json: serde_json::Value = serde_json::from_str(&document.json).unwrap();
            let when = &json["rules"][0]["when"];
            let networks = [
                "192.0.2.1",
                "198.51.100.0/24",
                "2001:db8::/32",
                "x",
                "300.0.0.1",
                "203.0.113.1#a",
            ];
            assert_eq!(when["client_cidrs"], serde_json::json!(networks));
            assert_eq!(when["asns"], serde_json::json!([64496, 64497]));
            let problems = tollgate_language::compile(&document.json, Surface::Server).unwrap_err();
            let problems = document.located(problems, Surface::Server).to_string();
            let lines: Vec<_> = problems.lines().collect();
            assert!(
                lines[0].starts_with("rules[0].when.client_cidrs[3]: \"x\" is not"),
                "{problems}"
            );
            let second = "rules[0].when.client_cidrs[4]: lists/b.txt, line 1: \"300.0.0.1\" is not";
            assert!(lines[1].starts_with(second), "{problems}");
        }
        let untouched = Document::read(POLICY.into(), Language::Json).unwrap();
        assert_eq!(untouched.files_to_take(), ["a.txt", "asns", "lists/b.txt"]);
    }

    // Guards: links, through which a policy of unknown origin shows any file, and a file that never
    // ends.
    #[test]
    fn links_and_long_files_are_followed_no_further() {
        let root = std::env::temp_dir().join(format!("tollgate-lists-{}", std::process::id()));
        let (folder, outside) = (root.join("policy"), root.join("outside"));
        fs::create_dir_all(folder.join("lists")).unwrap();
        fs::create_dir_all(&outside).unwrap();
        fs::write(outside.join("secret"), "secret").unwrap();
        fs::write(folder.join("lists/a"), "a").unwrap();
        fs::write(folder.join("long"), vec![b'1'; MAX_BYTES + 1]).unwrap();
        fs::write(folder.join("bytes"), [0xff]).unwrap();
        symlink("lists/a", folder.join("inside")).unwrap();
        symlink(outside.join("secret"), folder.join("out")).unwrap();
        symlink(&outside, folder.join("folder")).unwrap();
        let policy = folder.join("policy.json");
        for good in ["lists/a", "./lists/a", "inside"] {
            assert_eq!(read_beside(&policy, good).as_deref(), Ok("a"), "{good}");
        }
        let refused = [
            ("out", OUTSIDE),
            ("folder/secret", OUTSIDE),
            ("lists", "is not a regular file"),
            ("long", "is longer than 1 MiB"),
            ("bytes", "is not UTF-8"),
        ];
        for (name, why) in refused {
            assert_eq!(read_beside(&policy, name), Err(why.to_owned()), "{name}");
        }
        fs::remove_dir_all(root).unwrap();
    }

    // Guards: a policy of unknown origin that reads any file of this machine, and one that is taken
    // without its list.
    #[test]
    fn a_file_outside_the_folder_or_absent_is_refused() {
        let of = |name: &str| format!("rules:\n- when:\n    hosts:\n    - a\n    - file: {name}\n");
        for outside in ["/etc/passwd", "../a.txt", "lists/../../a.txt", "\"\""] {
            let refused = taken(&of(outside), Language::Yaml).unwrap_err();
            assert!(refused.starts_with("line 5: rules[0].when.hosts: the file "), "{refused}");
            assert!(refused.contains("is not in the folder of the policy"), "{refused}");
        }
        let absent = taken(&of("c.txt"), Language::Yaml).unwrap_err();
        assert!(absent.ends_with("the file \"c.txt\" cannot be read: it is not there"), "{absent}");
        let empty = taken(&of("empty"), Language::Yaml).unwrap_err();
        assert!(empty.contains("the file \"empty\" has no value"), "{empty}");
        let pairs = r#"{"a": ["\ud83d\ude00", {"file": "a.txt"}]}"#;
        assert!(taken(pairs, Language::Json).is_err(), "not YAML");
        let numbers = r#"{"a": [1e3, 10000000000000000001, true, {"file": "a.txt"}]}"#;
        let json = taken(numbers, Language::Json).unwrap().json;
        assert!(json.contains("1e3,") && json.contains("10000000000000000001,"), "{json}");
        let no_json = r#"{"a": [{"file": "a.txt"}"#;
        assert_eq!(taken(no_json, Language::Json).unwrap().json, no_json, "left for the compiler");
    }

    /// The values of a file by another way: one character after the other.
    fn naive_values(text: &str) -> Vec<(usize, String)> {
        let (mut all, mut line, mut value, mut is_comment) =
            (Vec::new(), 1_usize, String::new(), false);
        for character in text.trim_start_matches('\u{feff}').chars().chain(['\n']) {
            match character {
                '\n' => {
                    let found = value.trim().to_owned();
                    all.extend((!found.is_empty()).then_some((line, found)));
                    (line, is_comment) = (line.saturating_add(1), false);
                    value.clear();
                }
                '#' if value.chars().last().is_none_or(char::is_whitespace) => is_comment = true,
                _ if is_comment => {}
                other => value.push(other),
            }
        }
        all
    }

    /// A list of networks as anything may write it.
    fn list(random: &mut Random) -> String {
        const PIECES: [&str; 30] = [
            "192.0.2.1",
            "192.0.2.0/24",
            "2001:db8::/32",
            "::",
            "0.0.0.0/0",
            "/",
            "/33",
            "/129",
            "300.0.0.1",
            "1.2.3",
            "::ffff:192.0.2.1",
            "#",
            " #",
            "#a",
            " ",
            "\t",
            "\u{a0}",
            "\u{2028}",
            "\r",
            "\r\n",
            "\n",
            "\n",
            "\n",
            "\n\n",
            "\0",
            "\u{202e}",
            "\u{feff}",
            "\"",
            "\\u0031",
            "{",
        ];
        (0..random.index(40)).map(|_| *random.pick(&PIECES)).collect()
    }

    // Guards: a line that denies other networks than those it shows, or is reported as another one;
    // a panic, and a message that a terminal obeys.
    #[test]
    fn any_text_is_networks_or_refused_with_its_lines() {
        let mut random = Random::new(0x115);
        let (mut compiled, mut refused) = (0, 0);
        for round in 0..ROUNDS {
            let mut text = list(&mut random);
            if random.chance(50) {
                let whole = ["192.0.2.1\n", "198.51.100.0/24 # why\n", "\n", "2001:db8::/48\r\n"];
                text = (0..random.index(9)).map(|_| *random.pick(&whole)).collect();
            }
            let document = r#"{"version": 1, "rules": [{"name": "a", "deny": true, "when": {
                "client_cidrs": ["203.0.113.7", {"file": "list"}]}}]}"#;
            let document = Document::read(document.into(), Language::Json).unwrap();
            let values = naive_values(&text);
            let document = match document.take_files(|_| Ok(text.clone())) {
                Ok(document) => document,
                Err(fault) => {
                    assert!(values.is_empty(), "{text:?}: {}", fault.message);
                    assert!(fault.message.contains("has no value"), "{}", fault.message);
                    continue;
                }
            };
            let json: serde_json::Value = serde_json::from_str(&document.json).unwrap();
            let taken = json["rules"][0]["when"]["client_cidrs"].as_array().unwrap();
            let expected: Vec<&str> = values.iter().map(|(_, value)| value.as_str()).collect();
            assert_eq!(
                taken[1..].iter().map(|it| it.as_str().unwrap()).collect::<Vec<_>>(),
                expected
            );
            match tollgate_language::compile(&document.json, Surface::Server) {
                Ok(policy) => {
                    compiled += 1;
                    denies_what_it_shows(&policy, &expected);
                }
                Err(problems) => {
                    refused += 1;
                    let words = document.located(problems, Surface::Server).to_string();
                    for line in words.lines() {
                        let at = line.split_once("list, line ").expect(&words).1;
                        let at: usize = at.split(':').next().unwrap().parse().expect(&words);
                        assert!(values.iter().any(|(line, _)| *line == at), "{words} of {text:?}");
                    }
                    let is_shown = |it: char| it == '\n' || !it.is_control() && it != '\u{202e}';
                    assert!(words.chars().all(is_shown), "round {round}: {words:?}");
                }
            }
        }
        assert!(compiled > ROUNDS / 10 && refused > ROUNDS / 10, "{compiled}, {refused}");
    }

    /// Asks the policy about the first and last address of each network, and their neighbours.
    fn denies_what_it_shows(policy: &Policy, shown: &[&str]) {
        let networks: Vec<(u128, u128)> = shown.iter().chain(&["203.0.113.7"]).map(span).collect();
        for asked in networks
            .iter()
            .flat_map(|(first, last)| [*first, *last, first.wrapping_sub(1), last.wrapping_add(1)])
        {
            let address = std::net::Ipv6Addr::from(asked).to_canonical();
            let is_shown = networks.iter().any(|(first, last)| (*first..=*last).contains(&asked));
            let request = format!(
                r#"{{"method": "GET", "path": "/", "headers": {{}}, "client_ip": "{address}"}}"#
            );
            let request = DescribedRequest::parse(request.as_bytes()).unwrap();
            let mut plan = Plan::new();
            policy.plan(&request, &mut plan);
            plan.decide(policy, Timestamp::from_millis(1));
            let is_denied = plan.outcome(policy).disposition() != Disposition::Allow;
            assert_eq!(is_denied, is_shown, "{address} of {shown:?}");
        }
    }

    /// The first and last address of a network, those of IPv4 as they are mapped.
    fn span(network: &&str) -> (u128, u128) {
        let (address, prefix) =
            network.split_once('/').map_or((*network, None), |(a, p)| (a, Some(p)));
        let address: std::net::IpAddr = address.parse().unwrap();
        let (bits, missing) = match address {
            std::net::IpAddr::V4(it) => (u128::from(it.to_ipv6_mapped()), 96_u32),
            std::net::IpAddr::V6(it) => (u128::from(it), 0),
        };
        let prefix: u32 = prefix.map_or(128, |it| missing.saturating_add(it.parse().unwrap()));
        let rest = u128::MAX.checked_shr(prefix).unwrap_or(0);
        (bits & !rest, bits | rest)
    }
}
