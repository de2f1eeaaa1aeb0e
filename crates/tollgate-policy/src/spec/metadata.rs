//! A path in a proxy's metadata.
//!
//! Invariant: it is the name of a filter, then at least one name within what that filter has set.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use crate::spec::scalar::Name;

/// The most names of a path in metadata.
pub const MAX_METADATA: usize = 8;

/// The filters of Envoy that copy what a client has sent into metadata of their own name.
const COPIES: [&str; 2] =
    ["envoy.filters.http.header_to_metadata", "envoy.filters.http.json_to_metadata"];

/// A path in the proxy's metadata, 2 to [`MAX_METADATA`] names: the filter that sets it, then the
/// names in what it has set.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MetadataPath(pub Vec<String>);

impl MetadataPath {
    /// True for names that are a path.
    #[must_use]
    pub fn is_one(names: &[String]) -> bool {
        (2..=MAX_METADATA).contains(&names.len()) && names.iter().all(|name| Name::is_one(name))
    }

    /// True when the value is inside of another that the filter has set.
    #[cfg(feature = "explain")]
    pub(crate) const fn is_nested(&self) -> bool {
        self.0.len() > 2
    }

    /// True when the filter copies it from the request, as the client sent it.
    pub(crate) fn is_of_client(&self) -> bool {
        self.0.first().is_some_and(|filter| COPIES.contains(&filter.as_str()))
    }
}

/// Its names with slashes between them: `envoy.filters.http.ext_authz/tenant/id`.
impl fmt::Display for MetadataPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, name) in self.0.iter().enumerate() {
            f.write_str(if i == 0 { "" } else { "/" })?;
            f.write_str(name)?;
        }
        Ok(())
    }
}
