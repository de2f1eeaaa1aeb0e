//! What holds for all rules of a policy: how requests are read, and what is said to clients.
//!
//! Invariant: every default of the document is filled in.

use crate::document::root::{BodyFormat, HeaderGeneration};
use crate::document::scalar::HeaderName;
use crate::http::address::Prefixes;
use crate::http::readings::EscapedSlashes;
use crate::http::repeated::Repeated;
use crate::policy::client_address::ClientAddress;

/// What a request is read with.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) client: ClientAddress,
    pub(crate) prefixes: Prefixes,
    pub(crate) country_header: Option<HeaderName>,
    pub(crate) asn_header: Option<HeaderName>,
    /// What several values mean where nothing else is said.
    pub(crate) repeated: Repeated,
    /// Worker: where the token is that is verified, and what several of them mean.
    pub(crate) token: Option<(HeaderName, Repeated)>,
    pub(crate) escaped_slashes: EscapedSlashes,
    pub(crate) reads_path: bool,
    pub(crate) reads_host: bool,
}

/// What is said to clients.
#[derive(Clone, Debug)]
pub(crate) struct Response {
    pub(crate) headers: HeaderGeneration,
    /// `RateLimit-Policy` goes with the fields of the drafts.
    pub(crate) policy: bool,
    pub(crate) on_allow: bool,
    pub(crate) body: BodyFormat,
    pub(crate) jitter: tollgate_core::Span,
    pub(crate) partition_key: bool,
    /// What partition keys are hashed with before they are reported to clients.
    pub(crate) hash_key: Option<[u8; 16]>,
}
