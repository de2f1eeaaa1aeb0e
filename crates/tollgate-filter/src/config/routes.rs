//! The policies of routes that name one, and the choice of the request's policy.
//!
//! Invariant: a route has the policy that it names, and no other. A route that names an unknown
//! policy has none, so its requests are denied and not allowed. A configuration with one policy
//! makes no host call for this. Deliberately absent: the name of a route when the host does not
//! return it, which counts as no name.

use std::cell::Cell;
use std::rc::Rc;

use crate::host::proxy::Proxy;

/// Where a route names its policy: `metadata: { filter_metadata: { tollgate: { policy: ... } } }`.
pub const NAME: &[u8] = b"xds\0route_metadata\0filter_metadata\0tollgate\0policy";

/// Logged once per worker and configuration.
const UNKNOWN: &str = "tollgate: a route names a policy that is not among \"policies\"; its requests are answered with \
    500 (tollgate_unknown_policy)";

/// Policies by the names that routes have for them.
pub struct Routes<P> {
    named: Vec<(Box<str>, Rc<P>)>,
    /// True once the log shows that a name is unknown.
    warned: Cell<bool>,
}

/// The policy of a request.
pub enum RoutePolicy<P> {
    /// The route's own policy.
    Named(Rc<P>),
    /// The policy of all other routes.
    Default,
    /// Unknown.
    Unknown,
}

impl<P> Routes<P> {
    /// Those of these names.
    pub const fn new(named: Vec<(Box<str>, Rc<P>)>) -> Self {
        Self { named, warned: Cell::new(false) }
    }

    /// All of them.
    pub fn policies(&self) -> impl Iterator<Item = &P> {
        self.named.iter().map(|(_, policy)| &**policy)
    }

    /// The policy of the request of the current context.
    pub fn choose<H: Proxy>(&self, host: &H) -> RoutePolicy<P> {
        if self.named.is_empty() { RoutePolicy::Default } else { self.choose_named(host) }
    }

    #[inline(never)]
    fn choose_named<H: Proxy>(&self, host: &H) -> RoutePolicy<P> {
        let Some(name) = host.property(NAME) else { return RoutePolicy::Default };
        let named = self.named.iter().find(|(known, _)| known.as_bytes() == name);
        if let Some((_, policy)) = named {
            return RoutePolicy::Named(Rc::clone(policy));
        }
        if !self.warned.replace(true) {
            host.log_error(UNKNOWN);
        }
        RoutePolicy::Unknown
    }
}
