//! Reasons why a request cannot be read: the value that a rule counts by is ambiguous.
//!
//! Invariant: every enforced rule that would have to guess denies such a request with 400, before
//! any state is loaded or charged. If one meaning were chosen, the origin might use the other, and
//! a client would have a separate count for every spelling. The words name places, never values.

/// The reason why a request cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// A fact that has one value is given more than once, with values that differ.
    Repeated,
    /// A control character in a value that is read.
    Control,
    /// The text that names the host is not an authority.
    Authority,
    /// The base64 of a user's name and password is not valid.
    Credentials,
    /// The path, by which the rule counts: servers differ in more than its slashes.
    Path,
    /// A value is too long to be compared with a regular expression.
    Long,
}

impl Malformed {
    /// The text that is reported to the client.
    #[must_use]
    pub const fn detail(self) -> &'static str {
        match self {
            Self::Repeated => "a field that is read as one value is given several that differ",
            Self::Control => "a field holds a control character",
            Self::Authority => "the host is not a name or an address, and perhaps a port",
            Self::Credentials => "the credentials are not base64",
            Self::Path => "the path is another one to other servers; send it without dot segments",
            Self::Long => "a field that is compared with a pattern is longer than 2048 bytes",
        }
    }
}
