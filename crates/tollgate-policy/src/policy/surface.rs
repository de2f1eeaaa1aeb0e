//! Where a policy is enforced.
//!
//! Invariant: a surface is known only while a document is compiled.

/// Where a policy is enforced: what a document may ask for, and the default of `client_ip`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Surface {
    /// The Envoy filter.
    Envoy,
    /// The Cloudflare Worker.
    Worker,
}
