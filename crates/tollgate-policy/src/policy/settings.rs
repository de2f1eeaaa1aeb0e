//! The settings for all rules of a policy: how requests are read, and which fields are sent to
//! clients.
//!
//! Invariant: every default of the document is filled in.

use crate::spec::client_ip::ClientAddress;
use crate::spec::response::{BodyFormat, HeaderGeneration};
use crate::spec::scalar::HeaderName;
use tollgate_http_syntax::address::Prefixes;
use tollgate_http_syntax::readings::EscapedSlashes;
use tollgate_http_syntax::repeated::Repeated;

/// The settings for reading a request.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) client: ClientAddress,
    pub(crate) prefixes: Prefixes,
    pub(crate) country_header: Option<HeaderName>,
    pub(crate) asn_header: Option<HeaderName>,
    /// The default interpretation of several values.
    pub(crate) repeated: Repeated,
    /// Worker: the header of the token that is verified, and the interpretation of several of them.
    pub(crate) token: Option<(HeaderName, Repeated)>,
    pub(crate) escaped_slashes: EscapedSlashes,
    pub(crate) reads_path: bool,
    pub(crate) reads_host: bool,
}

/// The settings for the fields sent to clients.
#[derive(Clone, Debug)]
pub(crate) struct Response {
    pub(crate) headers: HeaderGeneration,
    /// `RateLimit-Policy` is sent with the fields of the drafts.
    pub(crate) policy: bool,
    pub(crate) on_allow: bool,
    pub(crate) body: BodyFormat,
    pub(crate) jitter: tollgate_core::Span,
    pub(crate) partition_key: bool,
    /// The key with which partition keys are hashed before they are reported to clients.
    pub(crate) hash_key: Option<[u8; 16]>,
}
