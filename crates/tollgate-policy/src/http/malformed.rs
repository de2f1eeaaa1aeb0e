//! Why a request cannot be read: what a rule counts by has no one meaning.
//!
//! Invariant: such a request is refused with 400 by every rule that is enforced and would have to
//! guess, before anything is loaded or charged. Whichever meaning we took, the origin might take
//! the other, and its client would have a count of its own for every spelling. The words name
//! places, never values.

/// What cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// Something that has one value is given more than once, with values that differ.
    Repeated,
    /// A control character stands where a value is read.
    Control,
    /// What names the host is no authority.
    Authority,
    /// The base64 of a user's name and password is none.
    Credentials,
    /// The path, by which the rule counts: servers differ in what it is, not only in its slashes.
    Path,
}

impl Malformed {
    /// What is reported to the client.
    #[must_use]
    pub const fn detail(self) -> &'static str {
        match self {
            Self::Repeated => "a field that is read as one value is given several that differ",
            Self::Control => "a field holds a control character",
            Self::Authority => "the host is not a name or an address, and perhaps a port",
            Self::Credentials => "the credentials are not base64",
            Self::Path => "the path is another one to other servers; send it without dot segments",
        }
    }
}
