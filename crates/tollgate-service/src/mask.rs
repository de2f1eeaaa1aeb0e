//! The keys of tokens in a document: masked before it leaves, and restored by their names.
//!
//! Invariant: nothing of an item of `jwt.keys` leaves but its `kid`, wherever and however it is
//! written. A masked key in a new document is the key of that name in the policy in force, or the
//! document is rejected. A key is never blank.
//!
//! A masked key is `{"kid":"k1","masked":true}`; one whose `kid` is missing, or not its own, is
//! named by its place: `{"index":0,"masked":true}`.

use alloc::borrow::ToOwned;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Range;

use serde::Serialize;
use tollgate_policy::{Problem, Problems};

use crate::document::{Members, items, place, without_mark};

/// The replacement for a value that is not a key at a place of keys; no document in force has one.
const MASKED: &str = "{\"masked\":true}";

/// The name of a key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum KeyName {
    /// By its own name.
    Kid(String),
    /// By its place in the list.
    Index(usize),
}

/// A masked value, and its place in its document.
struct Secret<'a> {
    range: Range<usize>,
    text: &'a str,
    /// The list, and the value's index in it; `None` when the value replaces a list.
    item: Option<(usize, usize)>,
}

/// `text` with its keys masked, all else byte for byte; `None` when it is not a JSON object.
pub(crate) fn masked(text: &str) -> Option<String> {
    let text = without_mark(text);
    let secrets = secrets(text)?;
    let names = names(&secrets);
    let masks = secrets.iter().zip(names).map(|(secret, name)| (secret, mask(name.as_ref())));
    Some(spliced(text, masks.map(|(secret, mask)| (secret.range.clone(), mask))))
}

/// The keys of a document: their names, and their text as written.
pub(crate) fn keys(text: &str) -> Vec<(KeyName, &str)> {
    let secrets = secrets(without_mark(text)).unwrap_or_default();
    let names = names(&secrets);
    let keys = secrets.into_iter().zip(names);
    keys.filter_map(|(secret, name)| Some((name?, secret.text))).collect()
}

/// `text` with every masked key as it is in `current`.
///
/// # Errors
/// Each masked key that has no name, that names no current key, or that names the same key as
/// another.
pub(crate) fn unmasked(text: &str, current: &str) -> Result<String, Problems> {
    let text = without_mark(text);
    let secrets = secrets(text).unwrap_or_default();
    let known: BTreeMap<KeyName, &str> = keys(current).into_iter().collect();
    let (mut used, mut pieces, mut problems) = (BTreeSet::new(), Vec::new(), Problems::default());
    for secret in &secrets {
        let (Some(members), Some((_, item))) = (Members::of(secret.text), secret.item) else {
            continue; // the compiler reports the mistake in it
        };
        if members.get("masked").is_none() {
            continue;
        }
        let found = reference(&members).map_err(ToOwned::to_owned).and_then(|name| {
            let key = known.get(&name);
            let key = key.ok_or("names no key of the policy in force; write the key out")?;
            if used.insert(name) {
                Ok(*key)
            } else {
                Err("names the same key as another".to_owned())
            }
        });
        match found {
            Ok(key) => pieces.push((secret.range.clone(), key.to_owned())),
            Err(wrong) => problems.0.push(Problem::new(&format!("jwt.keys[{item}]"), wrong)),
        }
    }
    if problems.0.is_empty() { Ok(spliced(text, pieces.into_iter())) } else { Err(problems) }
}

/// `problems` without the contents of the keys.
pub(crate) fn discreet(problems: Problems) -> Problems {
    let hide = |problem: Problem| {
        if problem.path != "jwt" && !problem.path.starts_with("jwt.keys") {
            return problem;
        }
        Problem { message: "is wrong; `tollgate check` shows the reason".to_owned(), ..problem }
    };
    Problems(problems.0.into_iter().map(hide).collect())
}

/// The name that a masked key has.
fn reference(members: &Members<'_>) -> Result<KeyName, &'static str> {
    let wrong = "is masked, so it has \"masked\": true and \"kid\" or \"index\", as it was read";
    let is_masked = members.0.len() == 2 && members.get("masked") == Some("true");
    let kid = members.text("kid").map(KeyName::Kid);
    let index = || members.get("index").and_then(|index| index.parse().ok()).map(KeyName::Index);
    kid.or_else(index).filter(|_| is_masked).ok_or(wrong)
}

/// Every value at a place where keys are, in the order of the document.
fn secrets(text: &str) -> Option<Vec<Secret<'_>>> {
    let root = Members::of(text)?;
    let mut found = Vec::new();
    let mut add = |value, item| {
        // The parser returned a slice of the text, so this is always there.
        let range = place(text, value);
        debug_assert!(range.is_some(), "a value stands outside of its document");
        found.extend(range.map(|range| Secret { range, text: value, item }));
    };
    for jwt in root.all("jwt") {
        let Some(members) = Members::of(jwt) else {
            add(jwt, None);
            continue;
        };
        for (list, value) in members.all("keys").enumerate() {
            match items(value) {
                Some(items) => {
                    items.into_iter().enumerate().for_each(|(i, item)| add(item, Some((list, i))));
                }
                None => add(value, None),
            }
        }
    }
    Some(found)
}

/// The name of each of `secrets`; `None` for a value that is not a key.
fn names(secrets: &[Secret<'_>]) -> Vec<Option<KeyName>> {
    let kid = |secret: &Secret<'_>| {
        let members = Members::of(secret.text)?;
        let mut kids = members.all("kid");
        let first = kids.next()?;
        serde_json::from_str::<String>(first).ok().filter(|_| kids.next().is_none())
    };
    let kids: Vec<Option<String>> = secrets.iter().map(kid).collect();
    let mut seen = BTreeSet::new();
    let twice: BTreeSet<&String> = kids.iter().flatten().filter(|kid| !seen.insert(*kid)).collect();
    let name = |(secret, kid): (&Secret<'_>, &Option<String>)| {
        let (_, index) = secret.item?;
        let own = kid.as_ref().filter(|kid| !twice.contains(kid)).cloned();
        Some(own.map_or(KeyName::Index(index), KeyName::Kid))
    };
    secrets.iter().zip(&kids).map(name).collect()
}

fn mask(name: Option<&KeyName>) -> String {
    match name {
        Some(KeyName::Kid(kid)) => {
            let kid = serde_json::to_string(kid).unwrap_or_default();
            format!("{{\"kid\":{kid},\"masked\":true}}")
        }
        Some(KeyName::Index(index)) => format!("{{\"index\":{index},\"masked\":true}}"),
        None => MASKED.to_owned(),
    }
}

/// `text` with each range, in their order, replaced.
fn spliced(text: &str, pieces: impl Iterator<Item = (Range<usize>, String)>) -> String {
    let (mut out, mut end) = (String::with_capacity(text.len()), 0);
    for (range, piece) in pieces {
        out.push_str(text.get(end..range.start).unwrap_or_default());
        out.push_str(&piece);
        end = range.end;
    }
    out.push_str(text.get(end..).unwrap_or_default());
    out
}
