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
