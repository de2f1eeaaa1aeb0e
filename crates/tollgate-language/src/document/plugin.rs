//! Settings of a proxy's plugin in addition to the policy: the servers for fleet counts and for
//! later policies.
//!
//! Invariant: they are not part of the policy, which is the same document for the proxy and for the
//! authority that counts. No message repeats a secret.

use alloc::format;
use alloc::string::String;

use crate::document::scalar::parse_span;
use crate::json::node::Node;
use crate::json::place::At;
use crate::json::reader::{FromNode, record, schema};
use tollgate_core::Span;
use tollgate_policy::plugin::{MAX_TIMEOUT, MIN_TIMEOUT, is_visible};

record! {
    /// The server from which the filter requests the counts of rules with "scope": "fleet".
    FleetDoc {
        /// The name of the authority's cluster in Envoy's configuration.
        cluster: Visible<1, 256>,
        /// The host in requests to the authority; the cluster's name by default.
        authority: Option<Visible<1, 256>>,
        /// The path for lease requests; /lease by default.
        path: Option<Visible<1, 1024>>,
        /// The token, sent as "Bearer" in the authorization header.
        token: Option<Visible<1, 4096>>,
        /// The secret with which keys are hashed before they leave the proxy; the same in the whole
        /// fleet.
        secret: Visible<16, 256>,
        /// The longest wait for a response; 250ms by default.
        timeout: Option<Timeout>,
    }
}

record! {
    /// The server from which the filter gets later policies.
    PolicyFromDoc {
        /// The name of the server's cluster in Envoy's configuration.
        cluster: Visible<1, 256>,
        /// The host in requests to the server; the cluster's name by default.
        authority: Option<Visible<1, 256>>,
        /// The path of the policy; /.well-known/tollgate/admin/policy by default.
        path: Option<Visible<1, 1024>>,
        /// The server's FOLLOW_TOKEN, sent as "Bearer" in the authorization header.
        token: Option<Visible<1, 4096>>,
        /// The interval between requests to the server; 5s by default.
        every: Option<Every>,
        /// The longest wait for a response; 5s by default.
        timeout: Option<Timeout>,
    }
}

/// The key with which a filter hashes keys before it reports them; see
/// [`plugin_hash_key`](tollgate_policy::plugin_hash_key).
pub(crate) type HashKey = Visible<16, 256>;

/// The interval between requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Every(pub(crate) Span);

/// The shortest interval: a change takes effect within this time.
const MIN_EVERY: Span = Span::from_secs(1);
const MAX_EVERY: Span = Span::from_secs(3600);

impl FromNode for Every {
    fn read(node: &Node, at: &At<'_>) -> Option<Self> {
        let span = if let Node::Text(text) = node { parse_span(text) } else { None };
        match span.filter(|span| (MIN_EVERY..=MAX_EVERY).contains(span)) {
            Some(span) => Some(Self(span)),
            None => at.not_text(node, "an interval; use 1s to 1h, such as \"5s\""),
        }
    }

    schema!({"type": "string", "pattern": "^[0-9]+(ms|s|m|h)$"});
}

/// A text of `MIN` to `MAX` visible characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Visible<const MIN: usize, const MAX: usize>(pub(crate) String);

impl<const MIN: usize, const MAX: usize> FromNode for Visible<MIN, MAX> {
    fn read(node: &Node, at: &At<'_>) -> Option<Self> {
        if let Node::Text(text) = node
            && is_visible(text, MIN, MAX)
        {
            return Some(Self(text.clone()));
        }
        // It may be a secret, in the wrong place or in the right one.
        at.problem(format!("must be {MIN} to {MAX} visible ASCII characters"));
        None
    }

    schema!({"type": "string", "minLength": MIN, "maxLength": MAX, "pattern": "^[!-~]*$"});
}

/// The longest wait for a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Timeout(pub(crate) Span);

impl FromNode for Timeout {
    fn read(node: &Node, at: &At<'_>) -> Option<Self> {
        let span = if let Node::Text(text) = node { parse_span(text) } else { None };
        match span.filter(|span| (MIN_TIMEOUT..=MAX_TIMEOUT).contains(span)) {
            Some(span) => Some(Self(span)),
            None => at.not_text(node, "a timeout; use 1ms to 10s, such as \"250ms\""),
        }
    }

    schema!({"type": "string", "pattern": "^[0-9]+(ms|s)$"});
}
