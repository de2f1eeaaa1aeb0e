//! What may have been meant by a name that is not known.
//!
//! Invariant: the nearest name if it is near, or else all of them.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::json::quote::quoted_text;

/// `unknown field "whne"; did you mean "when"?`, or the list of what is allowed.
pub(crate) fn unknown(what: &str, name: &str, known: &[&str]) -> String {
    let nearest = known.iter().map(|k| (distance(name, k), k)).min_by_key(|(d, _)| *d);
    match nearest {
        Some((d, k)) if d <= 2 && d < k.chars().count() => {
            format!("unknown {what} {}; did you mean \"{k}\"?", quoted_text(name))
        }
        _ => format!("unknown {what} {}; use {}", quoted_text(name), one_of(known)),
    }
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
