//! A deny rule that matches a request, as a plan keeps it.

use tollgate_http_syntax::malformed::Malformed;

/// A deny rule that matches the request, or may match it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MatchedDeny {
    /// The index of the rule.
    pub(crate) rule: u16,
    pub(crate) is_enforced: bool,
    /// Why it is unclear whether the rule matches.
    pub(crate) malformed: Option<Malformed>,
}
