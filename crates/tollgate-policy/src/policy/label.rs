//! What rules and plugins are called in the names of metrics.
//!
//! Invariant: one part of a dotted name, whatever it is made of. That two are not one is for
//! `compile::validate` to say.

use alloc::string::String;

/// `name` as a part of a metric's name: a dot would end it, and other signs confuse exporters, so
/// all but letters, digits, `-` and `_` are `_`.
#[must_use]
pub fn metric_label(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_') { c } else { '_' };
    name.chars().map(plain).collect()
}
