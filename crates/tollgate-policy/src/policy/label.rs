//! The names of rules and plugins in metrics.
//!
//! Invariant: a label is one part of a dotted name, whatever it is made from. `compile::validate`
//! checks that two labels are different.

use alloc::string::String;

/// `name` as a part of a metric's name: a dot would end the part, and other characters confuse
/// exporters, so every character except letters, digits, `-` and `_` becomes `_`.
#[must_use]
pub fn metric_label(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_') { c } else { '_' };
    name.chars().map(plain).collect()
}
