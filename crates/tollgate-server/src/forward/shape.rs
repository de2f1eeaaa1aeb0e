//! The protocol of a path.
//!
//! Invariant: the path alone determines it, as it was sent: the client's path or query, which
//! proxies append to it, cannot change the protocol.

use crate::http::protocols::Protocols;

/// The prefix of every path.
const PREFIX: &str = "/forward-auth/";

/// How a proxy describes the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Envoy's `ext_authz` over HTTP: method, path and fields are the request's own, and its path
    /// follows ours.
    Envoy,
    /// nginx's `auth_request`: X-Original-Method and X-Original-URI. It accepts success, 401 and
    /// 403.
    Nginx,
    /// Traefik, Caddy and others: X-Forwarded-Method, -Uri, -Host and -For.
    Forwarded,
}

impl Shape {
    /// The protocol of a target, and the rest of the target after the protocol's path.
    pub(crate) fn of(target: &str) -> Option<(Self, &str)> {
        let rest = target.strip_prefix(PREFIX)?;
        let end = rest.find(['/', '?', '*']).unwrap_or(rest.len());
        let (name, behind) = rest.split_at_checked(end)?;
        let shape = match name {
            "envoy" => Self::Envoy,
            "nginx" => Self::Nginx,
            "forwarded" => Self::Forwarded,
            _ => return None,
        };
        Some((shape, behind))
    }

    /// True when it is switched on.
    pub(crate) const fn is_spoken(self, protocols: Protocols) -> bool {
        match self {
            Self::Envoy => protocols.ext_authz_http,
            Self::Nginx => protocols.nginx,
            Self::Forwarded => protocols.forward_auth,
        }
    }

    /// The protocol's name in the settings.
    pub(crate) const fn protocol(self) -> &'static str {
        match self {
            Self::Envoy => "ext_authz_http",
            Self::Nginx => "nginx",
            Self::Forwarded => "forward_auth",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_says_whose_protocol_it_is() {
        let rows = [
            ("/forward-auth/nginx", Some((Shape::Nginx, ""))),
            ("/forward-auth/nginx?a=b", Some((Shape::Nginx, "?a=b"))),
            ("/forward-auth/forwarded?shape=nginx", Some((Shape::Forwarded, "?shape=nginx"))),
            ("/forward-auth/envoy/", Some((Shape::Envoy, "/"))),
            ("/forward-auth/envoy//a/../b?c", Some((Shape::Envoy, "//a/../b?c"))),
            ("/forward-auth/envoy/forward-auth/nginx", Some((Shape::Envoy, "/forward-auth/nginx"))),
            ("/forward-auth/envoy*", Some((Shape::Envoy, "*"))),
            ("/forward-auth/envoy", Some((Shape::Envoy, ""))),
            ("/forward-auth/envoy2/", None),
            ("/forward-auth/Envoy/", None),
            ("/forward-auth//envoy/", None),
            ("/forward-auth/", None),
            ("/forward-auth", None),
            ("//forward-auth/nginx", None),
            ("/check", None),
        ];
        for (target, expected) in rows {
            assert_eq!(Shape::of(target), expected, "{target}");
        }
    }
}
