//! What a document may read of a request that not every surface knows.
//!
//! Invariant: what every surface knows (method, target, host, headers, address) is none of these.

/// A fact that a surface may not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// The name of the route.
    Route,
    /// The client's country.
    Country,
    /// The client's autonomous system number.
    Asn,
    /// Claims of a verified token.
    Claims,
}
