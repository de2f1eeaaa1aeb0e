//! The header lines of a message, as the host hands them over.
//!
//! Invariant: values are bytes, and every line counts. A host that has to copy hands over one map
//! ([`HeaderMap`](crate::wire::header_map::HeaderMap)); one that need not is asked by name.

use std::borrow::Cow;

/// Lines of headers or trailers.
pub trait HeaderLines {
    /// True for lines that [`HeaderLines::read`] need not copy.
    const ARE_LENT: bool = false;
    /// The values of `name`, joined by `, `; `None` when there is no such line.
    fn joined(&self, name: &str) -> Option<Cow<'_, [u8]>>;
    /// Hands the same to `read`, which makes no host call; does not when there is no such line.
    fn read(&self, name: &str, read: &mut dyn FnMut(&[u8])) {
        if let Some(value) = self.joined(name) {
            read(&value);
        }
    }
}
