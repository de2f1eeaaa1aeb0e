//! A rule that denies every request that its conditions select.
//!
//! Invariant: its decision depends on the request alone. Such a rule has no key, no quotas and no
//! state, so nothing is loaded, charged or waited for. It is a type of its own, because no setting
//! of a rule that counts has a meaning for it.

use alloc::string::String;

use crate::spec::action::Reply;
use crate::spec::coded::fields;
use crate::spec::conditions::Conditions;
use crate::spec::scalar::{Bounded, Name};
use tollgate_http_syntax::path::Pattern;

/// The status of a denial by a rule that names none: 403 (RFC 9110, 15.5.4).
pub const DENY_STATUS: Bounded<200, 599> = Bounded(403);

fields! {
    /// A rule that denies.
    #[derive(Clone, Debug)]
    pub struct DenyRule {
        /// Its name, unique among all rules of the policy.
        name: String,
        /// Its index among all rules of the document, which are in one list.
        place: u16,
        /// Conditions that must all hold; without conditions it denies every request.
        when: Option<Conditions>,
        /// Conditions that exclude a request when all of them hold.
        unless: Option<Conditions>,
        /// False in shadow mode: the requests are counted, never denied.
        is_enforced: bool,
        /// The response to a denied request.
        reply: Reply,
    } if |it| Name::is_one(&it.name) && (400..=599).contains(&it.reply.status.0)
}

impl DenyRule {
    /// The rule's name, %x20-7E, at most 64 characters.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its index in the document's `rules`.
    #[must_use]
    pub fn place(&self) -> usize {
        self.place.into()
    }

    /// The paths by which it is looked up.
    pub(crate) fn paths(&self) -> &[Pattern] {
        self.when.as_ref().and_then(Conditions::paths).unwrap_or_default()
    }
}

/// The index among all rules of the document of the counting rule with this index.
pub(crate) fn place_of(deny: &[DenyRule], rule: usize) -> usize {
    deny.iter().fold(rule, |place, deny| {
        if usize::from(deny.place) <= place { place.saturating_add(1) } else { place }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn counting_rules_have_the_places_between_deny_rules() {
        let deny: Vec<DenyRule> = [0, 2, 3]
            .map(|place| DenyRule {
                name: "a".into(),
                place,
                when: None,
                unless: None,
                is_enforced: true,
                reply: Reply { status: DENY_STATUS, body: None },
            })
            .into();
        let places: Vec<usize> = (0..3).map(|rule| place_of(&deny, rule)).collect();
        assert_eq!(places, [1, 4, 5]);
        assert_eq!(place_of(&[], 7), 7);
    }
}
