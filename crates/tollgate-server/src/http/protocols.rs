//! The protocols in addition to `POST /check`.
//!
//! Invariant: a protocol that is not switched on is not available. Switching one on also restricts
//! the policy: none of these protocols reports a response, so rules that charge by it are mistakes
//! then, and only then. Some of these protocols take any success for permission.

use crate::policy::active::ProtocolRestrictions;

/// Declares the protocols: their description, field, and name in the settings.
macro_rules! protocols {
    ($($(#[doc = $doc:literal])* $field:ident, $name:literal;)*) => {
        /// The protocols that are switched on.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Protocols {
            $($(#[doc = $doc])* pub $field: bool,)*
        }

        impl Protocols {
            /// Every name.
            #[cfg(test)]
            const NAMES: &[&str] = &[$($name),*];

            /// Reads `ratelimit,ext_authz`.
            pub(crate) fn parse(text: &str) -> Option<Self> {
                let mut protocols = Self::default();
                for name in text.split(',') {
                    match name.trim() {
                        $($name => protocols.$field = true,)*
                        _ => return None,
                    }
                }
                Some(protocols)
            }

            /// A protocol that is switched on and reports no response; `None` when there is none.
            #[must_use]
            pub const fn without_responses(&self) -> Option<&'static str> {
                $(if self.$field {
                    return Some($name);
                })*
                None
            }
        }
    };
}

protocols! {
    /// Envoy's rate limit service, version 3, over gRPC.
    rate_limit, "ratelimit";
    /// Envoy's external authorization, version 3, over gRPC.
    ext_authz, "ext_authz";
    /// Envoy's external authorization over HTTP.
    ext_authz_http, "ext_authz_http";
    /// nginx's `auth_request`.
    nginx, "nginx";
    /// Forward auth as Traefik and Caddy use it.
    forward_auth, "forward_auth";
}

impl Protocols {
    /// The error message for a mistake in a list of protocols.
    pub(crate) const WANTED: &str = "is not a list of protocols; use one or more of \"ratelimit\", \
        \"ext_authz\", \"ext_authz_http\", \"nginx\" and \"forward_auth\", with commas";

    /// The restrictions that these settings put on a policy; `without_ids` is the setting without
    /// which no id can be sealed.
    #[must_use]
    pub const fn restrictions(&self, without_ids: Option<&'static str>) -> ProtocolRestrictions {
        let (without_responses, passes_success) = (self.without_responses(), self.passes_success());
        ProtocolRestrictions { without_responses, passes_success, without_ids }
    }

    /// A protocol that is switched on and takes any success for permission; `None` when there is
    /// none.
    #[must_use]
    pub const fn passes_success(&self) -> Option<&'static str> {
        let Self { ext_authz_http, nginx, forward_auth, .. } = *self;
        let over_http =
            Self { rate_limit: false, ext_authz: false, ext_authz_http, nginx, forward_auth };
        over_http.without_responses()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_names_protocols() {
        let none = Protocols::default();
        let (rate_limit, ext_authz, nginx) = (true, true, true);
        let rows = [
            ("ratelimit", Some(Protocols { rate_limit, ..none })),
            ("ext_authz", Some(Protocols { ext_authz, ..none })),
            ("ext_authz, ratelimit", Some(Protocols { rate_limit, ext_authz, ..none })),
            ("nginx , ext_authz", Some(Protocols { ext_authz, nginx, ..none })),
            ("grpc", None),
            ("ratelimit,", None),
            ("Ratelimit", None),
            ("", None),
        ];
        for (text, expected) in rows {
            assert_eq!(Protocols::parse(text), expected, "{text}");
        }
        assert_eq!((none.without_responses(), none.passes_success()), (None, None));
    }

    #[test]
    fn each_has_a_name_that_says_what_it_cannot() {
        for name in Protocols::NAMES {
            let one = Protocols::parse(name).expect(name);
            assert_eq!(one.without_responses(), Some(*name));
            let is_http = !matches!(*name, "ratelimit" | "ext_authz");
            assert_eq!(one.passes_success(), is_http.then_some(*name));
            assert!(Protocols::WANTED.contains(&format!("\"{name}\"")), "{name}");
        }
    }
}
