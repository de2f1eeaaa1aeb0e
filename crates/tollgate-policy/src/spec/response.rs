//! The fields and bodies of responses to clients.

/// The body of a denial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyFormat {
    /// Problem details (RFC 9457).
    ProblemJson,
    /// One line of plain text.
    Text,
    /// No body.
    Empty,
}

/// A generation of rate limit header fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderGeneration {
    /// draft-ietf-httpapi-ratelimit-headers-11.
    Draft11,
    /// draft-ietf-httpapi-ratelimit-headers-07.
    Draft7,
    /// draft-ietf-httpapi-ratelimit-headers-06.
    Draft6,
    /// The X-RateLimit-* fields, reset in seconds.
    XRateLimit,
    /// Only Retry-After.
    Off,
}

impl HeaderGeneration {
    /// True when the fields are lists with a member per quota, so that one response can contain the
    /// fields of several requests.
    #[must_use]
    pub const fn lists_quotas(self) -> bool {
        matches!(self, Self::Draft11)
    }
}
