//! `tollgate embed --into`: the policy of one filter in a configuration of Envoy, replaced.
//!
//! Invariant: every line outside the filter's `configuration` stays the same, byte by byte. The new
//! text is read again before it is written: its filter has the requested policy, and all other
//! values mean what they meant before. Otherwise nothing is written. Deliberately not here:
//! policies written as JSON or in braces, and configurations that contain more than a policy,
//! because parts would be lost.

use std::path::Path;

use tollgate_yaml::{Document, Kind, Language, Node, Reading, json};

use crate::command;
use crate::configuration::{Configuration, Holds, Host};
use crate::envoy::{Filter, Filters, is_envoy};
use crate::error::CommandError;
use crate::input::{self, Input, MAX_INPUT};
use crate::output;
use crate::output_file::OutputFile;
use crate::source;

/// Replaces the policy of the filter `name`, or of the only filter, with the lines of an `Any`.
pub(crate) fn run(
    (policy, document): (&Path, &Document),
    into: &Path,
    name: Option<&str>,
    any: &[String],
) -> Result<(), CommandError> {
    let file = OutputFile::edit(into, [policy])?;
    let Input { name: file_name, text, language } = input::read(into)?;
    let refuse = |why: String| CommandError::Misuse(format!("{file_name}{why}"));
    if language == Language::Json {
        return Err(refuse(" is JSON, and only YAML is edited in place".to_owned()));
    }
    let old = read(&text).map_err(refuse)?;
    let filter = chosen(&old, name).map_err(refuse)?;
    let problems = source::compile_for(filter.host, document, &[]).problems;
    if !problems.is_empty() {
        return Err(command::refuse(&problems, &policy.display().to_string()));
    }
    let place = filter.place.words();
    let at = editable(&filter, &text)
        .map_err(|why| refuse(format!(":{}: {place} {why}", filter.place.line)))?;
    let field = configuration(filter.host, any);
    let edited = edited(&text, at, &field);
    if !is_same_but(&old, &edited, at, &field) {
        let why =
            "is written in a way that is not edited in place; paste what `tollgate embed` prints";
        return Err(refuse(format!(":{}: {place} {why}", at.line)));
    }
    if input::bytes_of(into, MAX_INPUT)? != text.as_bytes() {
        return Err(refuse(" changed while this command ran; try again".to_owned()));
    }
    file.write(edited.as_bytes())?;
    output::raw(&format!("{file_name}:{}: {place} has the policy now\n", at.line))
}

/// Parses an Envoy configuration.
fn read(text: &str) -> Result<Node, String> {
    let root = Node::parse(text.trim_start_matches('\u{feff}'))
        .map_err(|fault| format!(":{}: {}", fault.line, fault.message))?;
    if is_envoy(&root) { Ok(root) } else { Err(" is not a configuration of Envoy".to_owned()) }
}

/// The filter of this name, or the only filter.
fn chosen(root: &Node, name: Option<&str>) -> Result<Filter, String> {
    let found = Filters::find(root, Reading::Envoy);
    let none = found.none();
    let is_wanted = |filter: &Filter| name.is_none() || filter.place.filter.as_deref() == name;
    let places: Vec<String> = found.filters.iter().map(|filter| filter.place.words()).collect();
    let mut wanted = found.filters.into_iter().filter(is_wanted);
    match (wanted.next(), wanted.next(), name) {
        (Some(filter), None, _) => Ok(filter),
        (None, _, Some(name)) if none.is_none() => {
            Err(format!(" has no filter \"{name}\"; there are {}", places.join("; ")))
        }
        (None, _, _) => Err(format!(": {}", none.unwrap_or_default())),
        (Some(_), Some(_), None) => {
            Err(format!(" has several filters; name one with --filter: {}", places.join("; ")))
        }
        (Some(_), Some(_), Some(name)) => {
            Err(format!(" has several filters \"{name}\"; give them names of their own"))
        }
    }
}

/// The position of the filter's configuration, if its lines can be replaced.
fn editable(filter: &Filter, text: &str) -> Result<Configuration, &'static str> {
    let Some(at) = filter.configuration else {
        return Err("has no configuration; paste what `tollgate embed` prints");
    };
    match at.holds {
        Holds::Policy => {}
        Holds::More => {
            return Err(
                "has more in its configuration than a policy, which would be lost; edit its policy by hand",
            );
        }
        Holds::Unread => {
            return Err(
                "has a configuration that is not a document, such as a compiled policy; edit it by hand",
            );
        }
    }
    let line = text.split('\n').nth(at.line.saturating_sub(1)).unwrap_or_default();
    let line = line.trim_start_matches('\u{feff}');
    let is_block = line.chars().take_while(|c| *c == ' ').count() == at.column.saturating_sub(1);
    if is_block {
        Ok(at)
    } else {
        Err("is written in braces; write its configuration on lines of its own")
    }
}

/// Replaces the lines of the configuration: the first line, and those that are indented more.
fn edited(text: &str, at: Configuration, configuration: &[String]) -> String {
    let (first, margin) = (at.line.saturating_sub(1), at.column.saturating_sub(1));
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let after = lines.get(first.saturating_add(1)..).unwrap_or_default();
    let depth = |line: &str| line.chars().take_while(|c| *c == ' ').count();
    // Empty lines and comments belong to the lines around them.
    let is_neutral = |line: &str| matches!(line.trim_start().chars().next(), None | Some('#'));
    let is_deep = |line: &str| !line.trim().is_empty() && depth(line) > margin;
    let numbered = after.iter().enumerate();
    let inside = numbered
        .take_while(|(_, line)| is_deep(line) || is_neutral(line))
        .filter(|(_, line)| is_deep(line))
        .last()
        .map_or(0, |(index, _)| index.saturating_add(1));
    let end = if text.contains("\r\n") { "\r\n" } else { "\n" };
    let new = indented(configuration, margin).replace('\n', end);
    let before: String = lines.iter().take(first).copied().collect();
    let rest: String = after.iter().skip(inside).copied().collect();
    before + &new + &rest
}

/// True when `edited` reads as the requested configuration and is the same as `old` otherwise.
fn is_same_but(old: &Node, edited: &str, at: Configuration, configuration: &[String]) -> bool {
    let Ok(mut new) = read(edited) else { return false };
    let Ok(wanted) = Node::parse(&indented(configuration, 0)) else { return false };
    let mut old = old.clone();
    let (mut taken_of_old, mut taken_of_new) = (Vec::new(), Vec::new());
    take(&mut old, at, &mut taken_of_old);
    take(&mut new, at, &mut taken_of_new);
    let wanted = wanted.fields().first().map(|field| json(&field.value, Reading::Envoy));
    taken_of_old.len() == 1
        && taken_of_new.len() == 1
        && taken_of_new.iter().map(|node| json(node, Reading::Envoy)).next() == wanted
        && json(&old, Reading::Envoy) == json(&new, Reading::Envoy)
}

/// Removes the values of the fields that begin there from a tree; aliases repeat one such value.
fn take(node: &mut Node, at: Configuration, taken: &mut Vec<Node>) {
    match &mut node.kind {
        Kind::Scalar(_) => {}
        Kind::List(items) => items.iter_mut().for_each(|item| take(item, at, taken)),
        Kind::Object(fields) => {
            for field in fields {
                if (field.line, field.column) == (at.line, at.column) {
                    let empty = Kind::List(Vec::new());
                    let kind = std::mem::replace(&mut field.value.kind, empty);
                    taken.push(Node { kind, ..field.value });
                } else {
                    take(&mut field.value, at, taken);
                }
            }
        }
    }
}

/// The field with a filter's own configuration: its name in `host`, and the lines of its value.
pub(crate) fn configuration(host: Host, any: &[String]) -> Vec<String> {
    let name = format!("{}:", host.configuration());
    std::iter::once(name).chain(any.iter().cloned()).collect()
}

/// Puts `spaces` spaces before each line that is not empty.
pub(crate) fn indented(lines: &[String], spaces: usize) -> String {
    let margin = " ".repeat(spaces);
    let line = |line: &String| match line.as_str() {
        "" => "\n".to_owned(),
        line => format!("{margin}{line}\n"),
    };
    lines.iter().map(line).collect()
}
