//! What clients do about an answer: come again, or wait before they go on.
//!
//! Invariant: a client knows only what its response says: the fields, in whole seconds.

use tollgate_core::Span;

use crate::chance::Chance;

use super::document::{Retry, Wait};

/// What a client is told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// It is refused.
    pub is_refused: bool,
    /// `Retry-After`.
    pub retry_after: Option<Span>,
    /// How long the quota with the least left makes it wait for each request, by `RateLimit`:
    /// `t / r`, or `t` when nothing is left.
    pub pace: Option<Span>,
}

impl Told {
    /// Takes in a field of the response; others than `Retry-After` and `RateLimit` say nothing.
    pub fn field(&mut self, name: &str, value: &str) {
        match name {
            "retry-after" => self.retry_after = value.parse().ok().map(Span::from_secs),
            "ratelimit" => self.pace = value.split(',').filter_map(pace).max(),
            _ => {}
        }
    }
}

/// `"name";r=2;t=6` is 3 seconds for each request.
fn pace(item: &str) -> Option<Span> {
    let number = |name: &str| {
        let mut parameters = item.split(';').skip(1).map(str::trim);
        parameters.find_map(|one| one.strip_prefix(name)?.parse::<u64>().ok())
    };
    let (remaining, reset) = (number("r=")?, Span::from_secs(number("t=")?));
    Some(Span::from_nanos(reset.as_nanos().div_ceil(remaining.max(1))))
}

impl Retry {
    /// When a client that was refused for the `attempt`-th time, from 0, comes again.
    pub(super) fn after(&self, attempt: u64, told: &Told, chance: &mut Chance) -> Option<Span> {
        if attempt >= self.attempts.0 {
            return None;
        }
        let wait = match self.wait {
            Wait::RetryAfter => told.retry_after?,
            Wait::Fixed(wait) => wait.0,
            Wait::Backoff { first, most } => {
                let doublings = u32::try_from(attempt).unwrap_or(u32::MAX);
                let factor = 1_u64.checked_shl(doublings).unwrap_or(u64::MAX);
                first.0.saturating_mul(factor).min(most.0)
            }
        };
        Some(wait.saturating_add(chance.up_to(self.jitter.0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tightest_quota_sets_the_pace() {
        let mut told = Told::default();
        told.field("ratelimit-policy", r#""each";q=10;w=60"#);
        assert_eq!(told, Told::default());
        told.field("ratelimit", r#""each";r=2;t=6, "hour";r=5;t=60"#);
        assert_eq!(told.pace, Some(Span::from_secs(12)));
        told.field("ratelimit", r#""each";r=0;t=54"#);
        told.field("retry-after", "7");
        let retry_after = Some(Span::from_secs(7));
        assert_eq!(told, Told { is_refused: false, retry_after, pace: Some(Span::from_secs(54)) });
    }
}
