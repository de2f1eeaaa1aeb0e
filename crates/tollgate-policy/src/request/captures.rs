//! The key of a rule for a path that servers read differently.
//!
//! Invariant: a path gives a rule one value, the same on every server for which the rule's resource
//! is one resource; or it is in dispute and gives none.

use alloc::borrow::Cow;

use crate::policy::group::Group;
use crate::policy::rule::Rule;
use crate::spec::conditions::Conditions;
use crate::spec::key::KeySource;
use crate::spec::key_item::KeyPart;
use tollgate_http_syntax::readings::Paths;

impl Rule {
    /// The value that the rule's path pattern captured as `name`, in the first reading of the path
    /// that matches.
    pub(crate) fn capture<'p>(&'p self, name: &str, paths: &'p Paths) -> Option<Cow<'p, [u8]>> {
        self.captures(name, paths).next()
    }

    /// True when the rule counts by the path and no single reading is valid for all servers: with
    /// any reading, some server would have two counts for one resource.
    pub(crate) fn is_in_dispute(&self, group: &Group, paths: &Paths) -> bool {
        if paths.is_one() {
            return false;
        }
        let mut tiers = self.tiers.iter().filter_map(|tier| tier.when.as_ref());
        let mut parts = group.spec.key.iter();
        paths.is_disputed() && tiers.any(|when| when.paths().is_some())
            || parts.any(|part| self.reads_in_dispute(part, paths))
    }

    /// True when this key part is from the path, and no single reading is valid for all servers.
    pub(crate) fn reads_in_dispute(&self, part: &KeyPart, paths: &Paths) -> bool {
        match &part.source {
            KeySource::Path => paths.is_disputed(),
            KeySource::PathParam(name) => self.captures_differ(name, paths),
            KeySource::ClientIp
            | KeySource::Method
            | KeySource::Host
            | KeySource::Country
            | KeySource::Asn
            | KeySource::Route
            | KeySource::Header(..)
            | KeySource::Cookie(..)
            | KeySource::Query(..)
            | KeySource::JwtClaim(_)
            | KeySource::Descriptor(_)
            | KeySource::Metadata(_)
            | KeySource::ClientCertificate(_)
            | KeySource::Cloudflare(_) => false,
        }
    }

    /// True when readings capture different values, unless the main one matches and the path is not
    /// disputed.
    fn captures_differ(&self, name: &str, paths: &Paths) -> bool {
        let mut captures = self.captures(name, paths);
        let first = captures.next();
        captures.any(|capture| Some(capture) != first)
            && (paths.is_disputed() || !self.matches(paths.main()))
    }

    fn matches(&self, path: &[u8]) -> bool {
        let mut patterns = self.terms.when.iter().filter_map(Conditions::paths).flatten();
        patterns.any(|pattern| pattern.matches(path).is_some())
    }

    /// The captured value in every reading that matches.
    fn captures<'p>(&'p self, name: &str, paths: &'p Paths) -> impl Iterator<Item = Cow<'p, [u8]>> {
        let patterns = self.terms.when.iter().filter_map(Conditions::paths).flatten();
        paths.all().filter_map(move |path| {
            let mut captures = patterns.clone().find_map(|pattern| pattern.matches(path))?;
            let (_, piece) = captures.find(|(captured, _)| *captured == name)?;
            Some(paths.comparable(piece))
        })
    }
}
