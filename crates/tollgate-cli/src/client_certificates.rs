//! How a filter chain of an Envoy configuration verifies the certificates of clients.
//!
//! Invariant: "not verified" is only reported of settings with which Envoy 1.40 accepts a
//! certificate that any client can write. Names that come from a control plane are not judged.

use tollgate_yaml::{Node, Reading};

/// The certificates that a filter chain accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClientCertificates {
    /// Those of the authorities that it names, or the file does not contain its settings.
    Verified,
    /// Any, also of a client that has written it: the line of the setting.
    Any(usize),
    /// It asks for none, so no request has one: the line of the filter chain.
    Never(usize),
}

impl ClientCertificates {
    /// Those of this filter chain.
    pub(crate) fn of(chain: &Node, reading: Reading) -> Self {
        let Some(socket) = field(chain, ["transport_socket", "transportSocket"], reading) else {
            return Self::Never(chain.line);
        };
        let context = field(socket, ["typed_config", "typedConfig"], reading);
        let Some(context) = context.filter(|it| is_tls(it)) else { return Self::Verified };
        let common = field(context, ["common_tls_context", "commonTlsContext"], reading);
        let none = Self::Never(chain.line);
        let Some(common) = common else { return none };
        let sds = ["validation_context_sds_secret_config", "validationContextSdsSecretConfig"];
        let combined = ["combined_validation_context", "combinedValidationContext"];
        let default = ["default_validation_context", "defaultValidationContext"];
        let combined = field(common, combined, reading);
        let own = field(common, ["validation_context", "validationContext"], reading);
        let own = own.or(combined.and_then(|it| field(it, default, reading)));
        match own {
            Some(own) => Self::of_context(own, reading),
            None if combined.is_some() || field(common, sds, reading).is_some() => Self::Verified,
            None => none,
        }
    }

    fn of_context(context: &Node, reading: Reading) -> Self {
        let names = ["trust_chain_verification", "trustChainVerification"];
        let verification = field(context, names, reading);
        match verification.and_then(Node::text) {
            Some("ACCEPT_UNTRUSTED" | "1") => {
                Self::Any(verification.map_or(context.line, |it| it.line))
            }
            _ => Self::Verified,
        }
    }
}

/// A field in either spelling; `None` when it is left out.
fn field<'n>(node: &'n Node, names: [&str; 2], reading: Reading) -> Option<&'n Node> {
    names.iter().find_map(|name| node.get(name)).filter(|it| !it.is_null(reading))
}

/// True for TLS itself: another transport socket may contain it.
fn is_tls(context: &Node) -> bool {
    let of = context.get("@type").and_then(Node::text);
    of.is_some_and(|of| of.ends_with(".DownstreamTlsContext"))
}
