//! What a rule counts by of a path that servers read differently.
//!
//! Invariant: a path gives a rule one value, the same for every server that takes the rule's
//! resource for one, or it is in dispute and gives none.

use alloc::borrow::Cow;

use crate::document::conditions::Conditions;
use crate::document::key::KeyPart;
use crate::http::readings::Paths;
use crate::policy::group::Group;
use crate::policy::rule::Rule;

impl Rule {
    /// What the rule's path pattern captured as `name`, in the first reading of the path that
    /// matches.
    pub(crate) fn capture<'p>(&'p self, name: &str, paths: &'p Paths) -> Option<Cow<'p, [u8]>> {
        self.captures(name, paths).next()
    }

    /// True when the rule counts by the path and no reading of it goes for all: servers that read
    /// it differently would each give one resource two counts.
    pub(crate) fn is_in_dispute(&self, group: &Group, paths: &Paths) -> bool {
        if paths.is_one() {
            return false;
        }
        let mut tiers = self.tiers.iter().filter_map(|tier| tier.when.as_ref());
        let mut parts = group.key.iter();
        paths.is_disputed() && tiers.any(|when| when.paths().is_some())
            || parts.any(|part| self.reads_in_dispute(part, paths))
    }

    /// True when this key part is of the path, and no reading of it goes for all.
    pub(crate) fn reads_in_dispute(&self, part: &KeyPart, paths: &Paths) -> bool {
        match part {
            KeyPart::Path => paths.is_disputed(),
            KeyPart::PathParam(name) => self.captures_differ(name, paths),
            _ => false,
        }
    }

    /// True when a reading captures something else, unless the main one captures and nobody
    /// disputes it.
    fn captures_differ(&self, name: &str, paths: &Paths) -> bool {
        let mut captures = self.captures(name, paths);
        let first = captures.next();
        captures.any(|capture| Some(capture) != first)
            && (paths.is_disputed() || !self.matches(paths.main()))
    }

    fn matches(&self, path: &[u8]) -> bool {
        let mut patterns = self.when.iter().filter_map(Conditions::paths).flatten();
        patterns.any(|pattern| pattern.matches(path).is_some())
    }

    /// The same in every reading that matches.
    fn captures<'p>(&'p self, name: &str, paths: &'p Paths) -> impl Iterator<Item = Cow<'p, [u8]>> {
        let patterns = self.when.iter().filter_map(Conditions::paths).flatten();
        paths.all().filter_map(move |path| {
            let mut captures = patterns.clone().find_map(|pattern| pattern.matches(path))?;
            let (_, piece) = captures.find(|(captured, _)| *captured == name)?;
            Some(paths.comparable(piece))
        })
    }
}
