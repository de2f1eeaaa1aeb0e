//! The reaction of clients to a response: they retry, or wait before they continue.
//!
//! Invariant: a client knows only the fields of its response, in whole seconds.

use tollgate_core::Span;

use crate::simulator::random::Random;

use super::document::{Retry, Wait};

/// The parts of a response that a client acts on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientResponse {
    /// The request is denied.
    pub is_refused: bool,
    /// `Retry-After`.
    pub retry_after: Option<Span>,
    /// The wait per request for the quota with the least remaining units, by `RateLimit`: `t / r`,
    /// or `t` when nothing is left.
    pub pace: Option<Span>,
}

impl ClientResponse {
    /// Reads a field of the response; all but `Retry-After` and `RateLimit` are ignored.
    pub fn field(&mut self, name: &str, value: &str) {
        match name {
            "retry-after" => self.retry_after = value.parse().ok().map(Span::from_secs),
            "ratelimit" => self.pace = value.split(',').filter_map(pace).max(),
            _ => {}
        }
    }
}

/// `"name";r=2;t=6` is 3 seconds per request.
fn pace(item: &str) -> Option<Span> {
    let number = |name: &str| {
        let mut parameters = item.split(';').skip(1).map(str::trim);
        parameters.find_map(|one| one.strip_prefix(name)?.parse::<u64>().ok())
    };
    let (remaining, reset) = (number("r=")?, Span::from_secs(number("t=")?));
    Some(Span::from_nanos(reset.as_nanos().div_ceil(remaining.max(1))))
}

impl Retry {
    /// When a client retries after its denial number `attempt`, counted from 0.
    pub(super) fn after(
        &self,
        attempt: u64,
        response: &ClientResponse,
        random: &mut Random,
    ) -> Option<Span> {
        if attempt >= self.attempts.0 {
            return None;
        }
        let wait = match self.wait {
            Wait::RetryAfter => response.retry_after?,
            Wait::Fixed(wait) => wait.0,
            Wait::Backoff { first, most } => {
                let doublings = u32::try_from(attempt).unwrap_or(u32::MAX);
                let factor = 1_u64.checked_shl(doublings).unwrap_or(u64::MAX);
                first.0.saturating_mul(factor).min(most.0)
            }
        };
        Some(wait.saturating_add(random.up_to(self.jitter.0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tightest_quota_sets_the_pace() {
        let mut response = ClientResponse::default();
        response.field("ratelimit-policy", r#""each";q=10;w=60"#);
        assert_eq!(response, ClientResponse::default());
        response.field("ratelimit", r#""each";r=2;t=6, "hour";r=5;t=60"#);
        assert_eq!(response.pace, Some(Span::from_secs(12)));
        response.field("ratelimit", r#""each";r=0;t=54"#);
        response.field("retry-after", "7");
        let retry_after = Some(Span::from_secs(7));
        assert_eq!(
            response,
            ClientResponse { is_refused: false, retry_after, pace: Some(Span::from_secs(54)) }
        );
    }
}
