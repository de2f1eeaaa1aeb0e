//! The surfaces that enforce a policy.
//!
//! Invariant: the surface is known only while a document is compiled and while its policy is built;
//! no decision depends on it.

use crate::spec::bounds::MAX_VALUE_LEN;

/// The surface that enforces a policy. It decides what a document may use, and the default of
/// `client_ip`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Surface {
    /// The Envoy filter.
    Envoy,
    /// The Cloudflare Worker.
    Worker,
    /// A program that embeds Tollgate and supplies every fact ([`Facts`](crate::Facts)).
    Library,
    /// A service that receives descriptions of requests, as `tollgate_language` reads them.
    Server,
}

impl Surface {
    /// Every surface.
    pub const ALL: [Self; 4] = [Self::Envoy, Self::Worker, Self::Library, Self::Server];

    /// Bytes of the longest value that it can store.
    #[must_use]
    pub const fn longest_value(self) -> usize {
        match self {
            Self::Envoy => MAX_VALUE_LEN,
            Self::Worker | Self::Library | Self::Server => usize::MAX,
        }
    }

    /// True when another process, which may not answer, keeps the counts of the fleet.
    #[must_use]
    pub const fn asks_authority(self) -> bool {
        matches!(self, Self::Envoy)
    }

    /// Its name on a command line, such as `envoy`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Envoy => "envoy",
            Self::Worker => "worker",
            Self::Library => "library",
            Self::Server => "server",
        }
    }

    /// The surface with this name.
    ///
    /// ```
    /// use tollgate_policy::Surface;
    /// for surface in Surface::ALL {
    ///     assert_eq!(Surface::parse(surface.name()), Some(surface));
    /// }
    /// assert_eq!(Surface::parse("Envoy"), None);
    /// ```
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|surface| surface.name() == name)
    }
}
