//! Rules that a client can evade with a new value for their key.
//!
//! Invariant: clients can certainly write the named values unless a proxy sets them; another rule
//! is reported as a backing only when that is certain. Deliberately absent: whether a proxy sets
//! the value, which a policy does not contain.

use alloc::vec::Vec;

use crate::explain::rules::Explain;
use crate::policy::rule::Rule;
use crate::spec::action::Action;
use crate::spec::conditions::Conditions;
use crate::spec::key::Origin;
use crate::spec::key_item::{KeyPart, items};
use crate::spec::mode::Mode;
use crate::spec::on_missing::OnMissing;

/// The most alternatives of conditions that are compared; beyond it no rule backs another.
const MAX_COMPARED: usize = 50_000;

impl<'p> Explain<'p> {
    /// The indexes of rules whose key has a part that the client writes (a header, a cookie, a
    /// query parameter), and that no other rule backs: one that limits at least the same requests
    /// by a key that a client cannot choose. A client with a new value for each request has a new
    /// count for each.
    #[must_use]
    pub fn unbacked_rules(&self) -> Vec<usize> {
        let mut left = MAX_COMPARED;
        let mut backs = |one: &Rule, other: &Rule| {
            other.is_certain() && self.has_certain_key(other) && one.implies(other, &mut left)
        };
        let written = self.0.rules.iter().enumerate().filter(|(_, rule)| self.is_written(rule));
        let written: Vec<(usize, &Rule)> = written.collect();
        let unbacked = written
            .into_iter()
            .filter(|(_, rule)| !self.0.rules.iter().any(|other| backs(rule, other)));
        unbacked.map(|(index, _)| index).collect()
    }

    /// True when the client can choose by which part of its key the rule counts it.
    #[must_use]
    pub fn lets_clients_choose(&self, rule: usize) -> bool {
        let rule = self.0.rules.get(rule);
        let mut items = rule.into_iter().flat_map(|rule| items(self.key_of_rule(rule)));
        items.any(|item| item.is_choice() && item.origin() == Origin::Client)
    }

    fn key_of_rule(&self, rule: &Rule) -> &[KeyPart] {
        self.0.groups.get(usize::from(rule.terms.group)).map_or(&[], |group| &group.spec.key)
    }

    /// True when the client can choose the count that limits it.
    fn is_written(&self, rule: &Rule) -> bool {
        let group = self.0.groups.get(usize::from(rule.terms.group));
        !matches!(rule.terms.action, Action::Mark(_))
            && group.is_some_and(|group| group.value_len > 0)
            && items(self.key_of_rule(rule)).any(|item| item.origin() == Origin::Client)
    }

    /// True when no client can evade the count of a request.
    fn has_certain_key(&self, rule: &Rule) -> bool {
        let of_document = self.0.settings.spec.prefixes;
        // A client has a whole /64, and with it any number of longer prefixes.
        let is_one_client =
            |part: &KeyPart| part.prefixes(of_document).is_none_or(|prefixes| prefixes.ipv6 <= 64);
        items(self.key_of_rule(rule)).all(|item| match item.origin() {
            Origin::Connection => item.parts.iter().all(is_one_client),
            Origin::Verified => rule.terms.on_missing != OnMissing::Skip,
            Origin::Target | Origin::Client => false,
        })
    }
}

impl Rule {
    /// True when it denies or delays for every key.
    const fn is_certain(&self) -> bool {
        matches!(self.terms.mode, Mode::Enforce) && !matches!(self.terms.action, Action::Mark(_))
    }

    /// True when `other` applies wherever this rule does; false when unsure.
    fn implies(&self, other: &Self, left: &mut usize) -> bool {
        let none = Conditions::default();
        let mut holds = |these: Option<&Conditions>, those: Option<&Conditions>| {
            let Some(those) = those else { return true };
            let these = these.unwrap_or(&none);
            let rest = left.checked_sub(those.comparisons(these));
            *left = rest.unwrap_or(0);
            rest.is_some() && those.are_implied_by(these)
        };
        // Requests that `other` leaves out must be left out by this rule, too.
        let leaves_out = match (&other.terms.unless, &self.terms.unless) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(others), Some(own)) => holds(Some(others), Some(own)),
        };
        leaves_out && holds(self.terms.when.as_ref(), other.terms.when.as_ref())
    }
}
