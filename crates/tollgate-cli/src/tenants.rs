//! `--tenants`: entries of tenants from files, in the form in which the admin API lists them.
//!
//! Invariant: an entry has the same meaning here as in a store: the policy crate parses and
//! compiles it. A mistake is reported with its file, line and position, and all entries are
//! checked. A part of an entry that the policy does not know has no effect and is a warning, as in
//! a store, where the policy may have changed since. Deliberately absent: who may write an entry,
//! revisions, and today's time, which no decision here depends on.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use tollgate_policy::{MAX_TENANT_ID, Policy, Problem, TenantEntry};

use crate::command;
use crate::error::CommandError;
use crate::input;
use crate::source::{Compiled, Finding};

/// The longest file: room for a hundred thousand entries with a note each.
const MAX_FILE: usize = 64 << 20;

/// A page of `GET tenants`: <https://www.rfc-editor.org/rfc/rfc8259> with these members and no
/// others.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object with \"tenants\"")]
struct PageDoc<'a> {
    #[serde(borrow)]
    tenants: Vec<&'a RawValue>,
    #[serde(default)]
    next_after: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object with \"id\" and \"entry\"")]
struct ListedDoc<'a> {
    id: String,
    #[serde(borrow)]
    entry: &'a RawValue,
    /// From the store that listed the entry.
    #[serde(default, rename = "etag")]
    _etag: IgnoredAny,
    /// The parts without effect under the policy of the store that listed the entry.
    #[serde(default, rename = "without_effect")]
    _without_effect: IgnoredAny,
}

/// The entries that were given.
#[derive(Debug, Default)]
pub(crate) struct Tenants {
    /// Names and entries, in the order of the files.
    pub(crate) entries: Vec<(String, TenantEntry)>,
    places: Vec<Place>,
    /// The mistakes in the files.
    problems: Vec<Finding>,
    /// True when files were named.
    is_given: bool,
}

/// The position of an entry.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) file: String,
    pub(crate) line: usize,
    index: usize,
}

impl Place {
    /// A finding about the part of the entry at `path`, or about its name.
    fn finding(&self, path: &str, id: &str, message: &str) -> Finding {
        Finding {
            file: Some(self.file.clone()),
            surface: None,
            line: Some(self.line),
            path: format!("tenants[{}]{path}", self.index),
            message: format!("{message} (tenant {})", quoted(id)),
        }
    }

    /// A finding about an entry whose name cannot be read either.
    fn unnamed(&self, message: &str) -> Finding {
        let path = format!("tenants[{}]", self.index);
        Finding { path, ..of_file(&self.file, self.line, message) }
    }

    fn in_entry(&self, id: &str, Problem { path, message, .. }: &Problem) -> Finding {
        let dot = if path.is_empty() || path.starts_with('[') { "" } else { "." };
        self.finding(&format!(".entry{dot}{path}"), id, message)
    }
}

/// The result of checking entries under a policy.
#[derive(Debug, Default)]
pub(crate) struct EntryFindings {
    pub(crate) problems: Vec<Finding>,
    /// The parts that have no effect.
    pub(crate) warnings: Vec<Finding>,
}

impl Tenants {
    /// Reads the files, each a page of the list in their order.
    pub(crate) fn read(paths: &[PathBuf]) -> Result<Self, CommandError> {
        let mut tenants = Self { is_given: !paths.is_empty(), ..Self::default() };
        // From the page before: the name after which the next one begins.
        let mut after: Option<(String, String)> = None;
        for path in paths {
            let (file, text) = text_of(path)?;
            let page: PageDoc<'_> = match object(&text) {
                Ok(page) => page,
                Err(error) => {
                    let message = format!(
                        "is not a list of tenants, as GET tenants gives it: {}",
                        wrong(&error)
                    );
                    tenants.problems.push(of_file(&file, error.line(), &message));
                    after = None;
                    continue;
                }
            };
            let first = tenants.add(&file, &text, &page.tenants);
            if let Some((last, before)) = after.take()
                && first.is_none_or(|first| first <= last)
            {
                tenants.problems.push(unfinished(&before, &last));
            }
            after = page.next_after.map(|last| (last, file));
        }
        tenants.problems.extend(after.map(|(last, file)| unfinished(&file, &last)));
        Ok(tenants)
    }

    /// Reads the files for policies that decide with them. A mistake ends the command; a part
    /// without effect is a warning.
    pub(crate) fn load(paths: &[PathBuf], policies: &[&Policy]) -> Result<Self, CommandError> {
        let tenants = Self::read(paths)?;
        let with_tenants: Vec<&&Policy> =
            policies.iter().filter(|it| it.tenants().is_some()).collect();
        // If one of two policies has no tenants, only the findings of the other matter.
        let judged = if with_tenants.is_empty() { policies.iter().collect() } else { with_tenants };
        for policy in judged {
            let EntryFindings { problems, warnings } = tenants.judge(policy);
            if !problems.is_empty() {
                return Err(command::refuse(&problems, ""));
            }
            command::warn(&warnings, "");
        }
        Ok(tenants)
    }

    /// Adds the mistakes of the entries under it to the compiled policy.
    pub(crate) fn judge_with(&self, mut compiled: Compiled) -> Compiled {
        // All surfaces compile the same rules from one document.
        if let Some((_, policy)) = compiled.policies.first() {
            let EntryFindings { problems, warnings } = self.judge(policy);
            compiled.problems.extend(problems);
            compiled.warnings.extend(warnings);
        } else {
            compiled.problems.extend(self.problems.iter().cloned());
        }
        compiled
    }

    /// True when files were named.
    pub(crate) const fn are_given(&self) -> bool {
        self.is_given
    }

    /// The mistakes of the entries under `policy`, and their parts without effect.
    pub(crate) fn judge(&self, policy: &Policy) -> EntryFindings {
        let mut judged =
            EntryFindings { problems: self.problems.clone(), ..EntryFindings::default() };
        let Some(tenants) = policy.tenants() else {
            judged.problems.extend(self.is_given.then(no_tenants));
            return judged;
        };
        let mut seen: BTreeMap<String, &Place> = BTreeMap::new();
        for ((id, entry), place) in self.entries.iter().zip(&self.places) {
            let is_named = !matches!(&**id, "" | "." | "..") && !id.contains(char::is_control);
            match tenants.name(id).filter(|_| is_named) {
                None => judged.problems.push(place.finding(
                    ".id",
                    id,
                    &format!(
                        "cannot be the name of a request's tenant; use at most {MAX_TENANT_ID} bytes"
                    ),
                )),
                Some(name) => {
                    if let Some(Place { file, line, .. }) = seen.insert(name, place) {
                        let message = format!("is given twice; it is also at {file}:{line}");
                        judged.problems.push(place.finding(".id", id, &message));
                    }
                }
            }
            for problem in &tollgate_language::without_effect(policy, entry).0 {
                judged.warnings.push(place.in_entry(id, problem));
            }
        }
        judged
    }

    /// The entry of the tenant `name` ([`tollgate_policy::Tenants::name_of`]), and its position.
    pub(crate) fn find(&self, policy: &Policy, name: &str) -> Option<(&Place, &TenantEntry)> {
        let all = self.entries.iter().zip(&self.places);
        let mut named = all.filter(|((id, _), _)| {
            policy.tenants().and_then(|tenants| tenants.name(id)).as_deref() == Some(name)
        });
        named.next().map(|((_, entry), place)| (place, entry))
    }

    /// Adds the entries of a page; returns the name of the first of them.
    fn add(&mut self, file: &str, text: &str, listed: &[&RawValue]) -> Option<String> {
        let (mut line, mut counted, mut first) = (1_usize, 0_usize, None);
        for (index, raw) in listed.iter().enumerate() {
            line = line.saturating_add(lines(text, counted, raw.get()));
            counted = offset(text, raw.get());
            let mut place = Place { file: file.to_owned(), line, index };
            let ListedDoc { id, entry, .. } = match object(raw.get()) {
                Ok(listed) => listed,
                Err(error) => {
                    place.line = line.saturating_add(error.line().saturating_sub(1));
                    self.problems.push(place.unnamed(&wrong(&error)));
                    continue;
                }
            };
            first.get_or_insert_with(|| id.clone());
            place.line = line.saturating_add(lines(raw.get(), 0, entry.get()));
            match tollgate_language::tenant_entry(entry.get().as_bytes()) {
                Ok(entry) => {
                    self.entries.push((id, entry));
                    self.places.push(place);
                }
                Err(wrong) => {
                    let found = wrong.0.iter().map(|problem| place.in_entry(&id, problem));
                    self.problems.extend(found);
                }
            }
        }
        first
    }
}

/// Parses an object; rejects a list, which serde would accept.
fn object<'t, T: Deserialize<'t>>(text: &'t str) -> Result<T, serde_json::Error> {
    if text.trim_ascii_start().starts_with('[') {
        return Err(serde::de::Error::custom("this is a list, not an object"));
    }
    serde_json::from_str(text)
}

/// The position of `piece` in `text`, which contains it.
fn offset(text: &str, piece: &str) -> usize {
    piece.as_ptr().addr().saturating_sub(text.as_ptr().addr())
}

/// The number of lines that end in `text` between `start` and `piece`.
fn lines(text: &str, start: usize, piece: &str) -> usize {
    let between = text.get(start..offset(text, piece)).unwrap_or_default();
    between.bytes().filter(|byte| *byte == b'\n').count()
}

/// The finding for entries under a policy without tenants.
fn no_tenants() -> Finding {
    Finding {
        file: None,
        surface: None,
        line: None,
        path: "tenant".to_owned(),
        message: "is missing: the policy does not define the tenant of a request, so --tenants has no effect"
            .to_owned(),
    }
}

/// The text of a file, and the file's name.
fn text_of(path: &Path) -> Result<(String, String), CommandError> {
    let file = path.display().to_string();
    if path.as_os_str() == "-" {
        return Err(CommandError::Misuse(
            "--tenants reads files, not the standard input".to_owned(),
        ));
    }
    let bytes = input::bytes_of(path, MAX_FILE)?;
    if bytes.len() > MAX_FILE {
        return Err(CommandError::Misuse(format!(
            "{file} is longer than 64 MiB; give it as several pages, each with --tenants"
        )));
    }
    let text = String::from_utf8(bytes)
        .map_err(|_| CommandError::Misuse(format!("{file} is not UTF-8")))?;
    let plain = text.strip_prefix('\u{feff}').map(str::to_owned);
    Ok((file, plain.unwrap_or(text)))
}

/// The message of serde, without the position, which is printed before it.
fn wrong(error: &serde_json::Error) -> String {
    let message = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    message.strip_suffix(&place).unwrap_or(&message).to_owned()
}

fn unfinished(file: &str, last: &str) -> Finding {
    let message = format!(
        "more entries follow {}, since next_after is not null: give the next page with another --tenants",
        quoted(last)
    );
    Finding { path: "next_after".to_owned(), ..of_file(file, 0, &message) }
}

fn of_file(file: &str, line: usize, message: &str) -> Finding {
    Finding {
        file: Some(file.to_owned()),
        surface: None,
        line: Some(line).filter(|line| *line > 0),
        path: String::new(),
        message: message.to_owned(),
    }
}

/// A name as JSON writes it, which cannot move the cursor.
fn quoted(name: &str) -> String {
    serde_json::to_string(name).unwrap_or_default()
}
