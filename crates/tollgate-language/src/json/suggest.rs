//! Suggestions for an unknown name.
//!
//! Invariant: the nearest name if it is near, or else all of them.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use tollgate_policy::spec::quoted_text;

/// `unknown field "whne"; did you mean "when"?`, or the list of allowed names.
pub(crate) fn unknown(what: &str, name: &str, known: &[&str]) -> String {
    let given = quoted_text(name);
    match nearest(name, known) {
        Some(near) if near.eq_ignore_ascii_case(name) => {
            format!("unknown {what} {given}; did you mean \"{near}\"? names are in lower case")
        }
        Some(near) => format!("unknown {what} {given}; did you mean \"{near}\"?"),
        None => format!("unknown {what} {given}; use {}", one_of(known)),
    }
}

/// The name that was perhaps meant, in any case: the one of `known`, which are in lower case, that
/// is at most two edits away. `whne` is `when`.
#[must_use]
pub fn nearest<'k>(name: &str, known: &[&'k str]) -> Option<&'k str> {
    let name = name.to_ascii_lowercase();
    let nearest = known.iter().map(|k| (distance(&name, k), *k)).min_by_key(|(d, _)| *d);
    nearest.filter(|(d, near)| *d <= 2 && *d < near.chars().count()).map(|(_, near)| near)
}

/// `"a", "b" or "c"`.
pub(crate) fn one_of(names: &[&str]) -> String {
    let mut out = String::new();
    for (i, name) in names.iter().enumerate() {
        if i > 0 {
            out.push_str(if i.saturating_add(1) == names.len() { " or " } else { ", " });
        }
        out.push_str(&format!("\"{name}\""));
    }
    out
}

/// The Levenshtein distance, or 3 when the lengths alone differ by more than 2: enough for a hint.
fn distance(a: &str, b: &str) -> usize {
    if a.chars().count().abs_diff(b.chars().count()) > 2 {
        return 3;
    }
    let mut row: Vec<usize> = (0..=b.chars().count()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = i;
        let mut left = i.saturating_add(1);
        for (above, y) in row.iter_mut().skip(1).zip(b.chars()) {
            let cost = diagonal.saturating_add(usize::from(x != y));
            diagonal = *above;
            left = cost.min(above.saturating_add(1)).min(left.saturating_add(1));
            *above = left;
        }
        if let Some(first) = row.first_mut() {
            *first = i.saturating_add(1);
        }
    }
    row.last().copied().unwrap_or(0)
}
