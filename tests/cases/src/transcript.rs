//! Cases as text: the difference of a surface, and all responses of a case.
//!
//! Invariant: every message names the case, the event, the request and the policy, so the case can
//! be repeated.

use tollgate_policy::Surface;

use crate::case::{Case, Event};
use crate::reference::{Expected, HASH_KEY, Reference};

impl Case {
    /// The message when a surface's response to the event `index` differs from the expected one.
    pub fn difference(
        &self,
        surface: &str,
        index: usize,
        expected: &Expected,
        actual: &str,
    ) -> String {
        format!(
            "{surface} differs in case {} (tollgate_cases::Case::new), event {index}, at {} ms\n\
             policy: {}\nrequest: {:?}\n--- expected\n{}--- {surface}\n{actual}",
            self.number, expected.at_ms, self.policy, self.events[index], expected.seen
        )
    }
}

/// The case `number` with the responses of the reference here, for comparison with another target.
pub fn transcript(number: u32) -> String {
    let case = Case::new(number);
    let mut text = format!("case {number}, policy: {}\n", case.policy);
    for (index, expected) in Reference::new(&case, Surface::Envoy, HASH_KEY).enumerate() {
        let Event { request, .. } = &case.events[index];
        let Expected { at_ms, seen, rules, .. } = expected;
        text.push_str(&format!("\n{index} at {at_ms} ms: {request:?}\n{rules:?}\n{seen}"));
    }
    text
}
