//! Regular expressions of a build without the feature `regex`: there are none.
//!
//! Invariant: the type has no value, so no code for expressions is in such a module.

use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Range;

use crate::spec::bounds::NO_REGEXES;
use crate::spec::coded::{Reader, shape};
use crate::spec::policy::PolicySpec;

/// A regular expression: this build has none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Regex {}

impl Regex {
    /// No expression.
    ///
    /// # Errors
    /// There are none in this build; a sentence without its subject.
    pub fn new(_: &str) -> Result<Self, String> {
        Err(NO_REGEXES.into())
    }

    /// Its text.
    pub const fn text(&self) -> &str {
        match *self {}
    }

    /// The number of its groups that capture.
    pub const fn groups(&self) -> usize {
        match *self {}
    }

    /// True when a key part has an empty value for some value that matches.
    pub const fn may_be_empty(&self) -> bool {
        match *self {}
    }

    /// True when each of its alternatives begins with `^` and ends with `$`.
    pub const fn is_anchored(&self) -> bool {
        match *self {}
    }

    /// True when `value` matches anywhere.
    pub const fn is_match(&self, _: &[u8]) -> bool {
        match *self {}
    }

    /// Where `value` has the group, or else the whole match.
    pub const fn part(&self, _: &[u8]) -> Option<Range<usize>> {
        match *self {}
    }
}

impl Regex {
    /// The shape of an expression, so that a policy without any is read.
    pub(crate) const SHAPE: u64 = shape(&["regular expression"], &[]);

    /// Appends it.
    pub(crate) fn write(&self, _: &mut Vec<u8>) {
        match *self {}
    }

    /// There is none to read.
    pub(crate) const fn read(from: &mut Reader<'_>) -> Option<Self> {
        from.fail();
        None
    }
}

impl PolicySpec {
    /// The number of its regular expressions.
    pub const fn count_regexes(&mut self) -> usize {
        0
    }

    /// There is nothing to compile.
    pub(crate) const fn compile_regexes(&mut self) -> bool {
        true
    }
}
