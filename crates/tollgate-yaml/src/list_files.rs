//! Lists of a policy whose values are in files next to it: `{"file": "blocked.txt"}` among the
//! values of a list is each value of that file.
//!
//! Invariant: a document has all values of its files, or it is refused. A name is a relative path
//! without `..`, so that checking a policy of unknown origin reads no file outside its folder.
//! Deliberately absent: files of files, and numbers other than those of `asns`.

use std::fs::File;
use std::io::Read;
use std::path::{Component, Path};

use crate::{Fault, Field, Form, Kind, Node, Scalar};

/// The longest file that is read, in bytes: a whole policy is no longer.
const MAX_FILE: u64 = 1 << 20;

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

impl Node {
    /// The names of the files that lists of this document take values from, in their order.
    pub fn list_files(&self) -> Vec<&str> {
        match &self.kind {
            Kind::Scalar(_) => Vec::new(),
            Kind::List(items) => items
                .iter()
                .flat_map(|it| named(it).map_or_else(|| it.list_files(), |n| vec![n]))
                .collect(),
            Kind::Object(fields) => fields.iter().flat_map(|it| it.value.list_files()).collect(),
        }
    }

    /// Puts the values of files in the place of their names.
    pub(crate) fn take_files(
        &mut self,
        path: &str,
        read: &mut dyn FnMut(&str) -> Result<String, String>,
        taken: &mut Vec<ListFile>,
    ) -> Result<(), Fault> {
        match &mut self.kind {
            Kind::Scalar(_) => Ok(()),
            Kind::Object(fields) => {
                fields.iter_mut().try_for_each(|Field { name, value, .. }| {
                    let dot = if path.is_empty() { "" } else { "." };
                    value.take_files(&format!("{path}{dot}{name}"), read, taken)
                })
            }
            Kind::List(items) => {
                let mut all = Vec::with_capacity(items.len());
                for mut item in std::mem::take(items) {
                    let Some(name) = named(&item).map(ToOwned::to_owned) else {
                        item.take_files(&format!("{path}[{}]", all.len()), read, taken)?;
                        all.push(item);
                        continue;
                    };
                    let Node { line, column, .. } = item;
                    let text = is_inside(&name).and_then(|()| read(&name)).and_then(not_empty);
                    let text = text.map_err(|why| Fault {
                        line,
                        column,
                        message: format!("{path}: the file \"{name}\" {why}"),
                    })?;
                    // The numbers of systems are numbers in JSON, and all other lists are texts.
                    let form = if path.ends_with(".asns") { Form::Plain } else { Form::Quoted };
                    let values = || values(&text);
                    let lines = values().map(|(line, _)| line).collect();
                    taken.push(ListFile { list: path.to_owned(), first: all.len(), name, lines });
                    all.extend(values().map(|(_, value)| {
                        let kind = Kind::Scalar(Scalar { text: value.to_owned(), form });
                        Node { line, column, kind }
                    }));
                }
                *items = all;
                Ok(())
            }
        }
    }
}

/// The file that an item of a list names.
fn named(item: &Node) -> Option<&str> {
    let [field] = item.fields() else { return None };
    field.value.text().filter(|_| field.name == "file")
}

/// The values of a file, each with its line: one on each line, `#` begins a comment.
fn values(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = text.trim_start_matches('\u{feff}').lines().enumerate();
    let values = lines.map(|(index, line)| {
        (index.saturating_add(1), line.split('#').next().unwrap_or_default().trim())
    });
    values.filter(|(_, value)| !value.is_empty())
}

/// A file that was cut short must not lift a block.
fn not_empty(text: String) -> Result<String, String> {
    if values(&text).next().is_none() {
        return Err("has no value; write at least one, or take the file out of the list".into());
    }
    Ok(text)
}

fn is_inside(name: &str) -> Result<(), String> {
    let mut parts = Path::new(name).components();
    if name.is_empty() || !parts.all(|it| matches!(it, Component::Normal(_) | Component::CurDir)) {
        return Err("is not in the folder of the policy; use a relative path without \"..\"".into());
    }
    Ok(())
}

/// The text of the file `name` in the folder of the file `policy`; of the standard input, `-`, in
/// the current folder.
///
/// # Errors
/// What is wrong with the file, as the rest of a sentence.
pub fn read_beside(policy: &Path, name: &str) -> Result<String, String> {
    let cannot = |why: std::io::Error| format!("cannot be read: {why}");
    let path = policy.parent().unwrap_or(Path::new("")).join(name);
    let metadata = path.metadata().map_err(cannot)?;
    if !metadata.is_file() {
        return Err("is not a regular file".to_owned());
    }
    let mut text = String::new();
    let most = MAX_FILE.saturating_add(1);
    File::open(path).and_then(|file| file.take(most).read_to_string(&mut text)).map_err(cannot)?;
    if u64::try_from(text.len()).is_ok_and(|len| len > MAX_FILE) {
        return Err("is longer than 1 MiB".to_owned());
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use tollgate_policy::Surface;

    use crate::{Document, Language};

    const POLICY: &str = r#"{"version": 1, "rules": [{"name": "a", "deny": true, "when": {
        "client_cidrs": ["192.0.2.1", {"file": "a.txt"}, "x", {"file": "lists/b.txt"}],
        "asns": [{"file": "asns"}]}}]}"#;

    fn file(name: &str) -> Result<String, String> {
        match name {
            "a.txt" => {
                Ok("\u{feff}# first\r\n198.51.100.0/24 # why\r\n\r\n 2001:db8::/32\t\r\n".into())
            }
            "lists/b.txt" => Ok("300.0.0.1\n203.0.113.1".into()),
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
            let networks =
                ["192.0.2.1", "198.51.100.0/24", "2001:db8::/32", "x", "300.0.0.1", "203.0.113.1"];
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
        assert_eq!(untouched.files_to_take(), ["a.txt", "lists/b.txt", "asns"]);
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
        let no_json = r#"{"a": [{"file": "a.txt"}"#;
        assert_eq!(taken(no_json, Language::Json).unwrap().json, no_json, "left for the compiler");
    }
}
