//! A proxy's plugin configuration: a policy, with other policies for some routes, the servers that
//! the plugin sends requests to, or the key that it hashes keys with.
//!
//! Invariant: a document without the fields `policy` and `policies` is a policy, as it always was.
//! All mistakes of all parts are reported at once.

use core::cell::RefCell;

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use tollgate_core::Span;

use crate::document::plugin::{FleetDoc, HashKey, PolicyFromDoc};
use crate::json::node::Node;
use crate::json::place::{At, Noted};
use crate::json::problem::Problems;
use crate::json::reader::Fields;
use crate::policy::compiled::Policy;
use crate::policy::fleet::{fleet_secret, plugin_hash_key};
use crate::policy::surface::Surface;

/// The default timeout: many times what an authority nearby takes.
const TIMEOUT: Span = Span::from_millis(250);

/// The most policies that routes may name: each has tables of its own.
const MAX_NAMED: usize = 32;
/// The longest name of a policy.
const MAX_NAME: usize = 64;

/// The path at which servers and Workers have the policy in force.
const POLICY_PATH: &str = "/.well-known/tollgate/admin/policy";
/// The defaults of the interval between two requests for a policy, and of the wait for a response.
const EVERY: Span = Span::from_secs(5);
const POLICY_TIMEOUT: Span = Span::from_secs(5);

/// The configuration of a plugin.
#[derive(Clone, Debug)]
pub struct Plugin {
    /// The policy; when there are others, the policy of the routes that name none.
    pub policy: Policy,
    /// The policies that routes name: none, or up to 32, each name once.
    pub named: Vec<NamedPolicy>,
    /// The authority for the counts of a fleet.
    pub fleet: Option<Fleet>,
    /// The server for later policies.
    pub policy_from: Option<PolicyFrom>,
}

/// A policy that a route chooses by its name.
#[derive(Clone, Debug)]
pub struct NamedPolicy {
    /// 1 to 64 letters, digits, `-` and `_`.
    pub name: String,
    /// The only policy that is enforced there.
    pub policy: Policy,
}

/// The server that a plugin takes its policy from, once that server responds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyFrom {
    /// The cluster, by its name in the proxy's configuration.
    pub cluster: String,
    /// The host of the request.
    pub authority: String,
    /// Its path.
    pub path: String,
    /// The token that authorizes it.
    pub token: Option<String>,
    /// The longest time between two requests: 1 s to 1 h.
    pub every: Span,
    /// How long to wait for a response: 1 ms to 10 s.
    pub timeout: Span,
}

/// The authority from which a node requests the counts of a fleet.
#[derive(Clone, Debug)]
pub struct Fleet {
    /// The cluster, by its name in the proxy's configuration.
    pub cluster: String,
    /// The host of the request.
    pub authority: String,
    /// Its path.
    pub path: String,
    /// The token that authorizes it.
    pub token: Option<String>,
    /// The key that keys are hashed with: [`key_hash`](tollgate_storage::key_hash).
    pub secret: [u8; 16],
    /// How long to wait for a response: 1 ms to 10 s.
    pub timeout: Span,
}

impl Plugin {
    /// Compiles a plugin configuration: a policy, or an object with the field `policy` and with it
    /// `policies`, or `fleet` and `policy_from`, and `hash_key`, which is
    /// [set](Policy::set_hash_key) in all policies.
    ///
    /// # Errors
    /// Every mistake at once, in the document's order, each with its path.
    pub fn compile(document: &str, surface: Surface) -> Result<Self, Problems> {
        let node = Node::parse(document)?;
        let Node::Object(fields) = &node else {
            return Policy::compile(document, surface).map(Self::alone);
        };
        if !fields.iter().any(|(name, _)| name == "policy" || name == "policies") {
            return Policy::compile_node(&node, document, surface).map(Self::alone);
        }
        let noted = RefCell::new(Noted::default());
        let root = At::root(&noted);
        let names = ["policy", "policies", "fleet", "policy_from", "hash_key"];
        let read = Fields::open(&node, &root, &names);
        let fleet = read.as_ref().and_then(|read| read.read::<Option<FleetDoc>>("fleet", &root));
        let from = read.as_ref();
        let from = from.and_then(|it| it.read::<Option<PolicyFromDoc>>("policy_from", &root));
        let hash_key = read.as_ref();
        let hash_key = hash_key.and_then(|it| it.read::<Option<HashKey>>("hash_key", &root));
        let others = read.as_ref().and_then(|read| read.node("policies"));
        let at = root.field("policies");
        let named = others.map(|others| named(others, document, surface, &at));
        let is_asking = |(name, _): &(String, Node)| name == "fleet" || name == "policy_from";
        if others.is_some() && fields.iter().any(is_asking) {
            at.problem("cannot be combined with \"fleet\" and \"policy_from\": they are for one policy; leave them out, or give each policy a filter of its own".into());
        }
        let inner = read.and_then(|read| read.node("policy"));
        let at = root.field("policy");
        if inner.is_none() {
            at.problem("missing; it is for the routes that name none of \"policies\"".into());
        }
        let policy = inner.and_then(|inner| Policy::compile_at(inner, document, surface, &at));
        let problems = noted.into_inner().in_order(&node);
        match policy {
            Some(policy) if problems.0.is_empty() => {
                let policy_from = from.flatten().map(PolicyFrom::new);
                let (named, fleet) = (named.unwrap_or_default(), fleet.flatten().map(Fleet::new));
                let hash_key = hash_key.flatten().map(|text| plugin_hash_key(&text.0));
                Ok(Self { policy, named, fleet, policy_from }.with_hash_key(hash_key))
            }
            _ => Err(problems),
        }
    }

    /// The same plugin, with this secret in all policies.
    pub(crate) fn with_hash_key(mut self, key: Option<[u8; 16]>) -> Self {
        if let Some(key) = key {
            self.policy.set_hash_key(key);
            self.named.iter_mut().for_each(|named| named.policy.set_hash_key(key));
        }
        self
    }

    /// A policy with no other settings.
    #[must_use]
    pub const fn alone(policy: Policy) -> Self {
        Self { policy, named: Vec::new(), fleet: None, policy_from: None }
    }
}

/// The policies in `node` that routes may choose; valid only when no problem was noted.
fn named(node: &Node, document: &str, surface: Surface, at: &At<'_>) -> Vec<NamedPolicy> {
    let Node::Object(fields) = node else {
        let _: Option<()> = at.wrong(node, "an object of names and their policies");
        return Vec::new();
    };
    if !(1..=MAX_NAMED).contains(&fields.len()) {
        at.problem(format!("has {} policies; give 1 to {MAX_NAMED}", fields.len()));
        return Vec::new();
    }
    let read = fields.iter().enumerate().filter_map(|(i, (name, node))| {
        let at = at.own(name);
        if !NamedPolicy::is_name(name) {
            at.problem(format!(
                "is no name; use 1 to {MAX_NAME} of a-z, A-Z, 0-9, \"-\" and \"_\""
            ));
        }
        if fields.iter().take(i).any(|(earlier, _)| earlier == name) {
            at.problem("is given twice; give it once".into());
        }
        let policy = Policy::compile_at(node, document, surface, &at)?;
        Some(NamedPolicy { name: name.clone(), policy })
    });
    read.collect()
}

impl NamedPolicy {
    /// True for a valid name of a policy.
    pub(crate) fn is_name(name: &str) -> bool {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        (1..=MAX_NAME).contains(&name.len()) && name.bytes().all(is_plain)
    }

    /// True when there are at most as many as allowed, and each name occurs once.
    pub(crate) fn are_apart(all: &[Self]) -> bool {
        let mut rest = all;
        while let Some((one, others)) = rest.split_first() {
            if others.iter().any(|other| other.name == one.name) {
                return false;
            }
            rest = others;
        }
        (1..=MAX_NAMED).contains(&all.len())
    }
}

impl Fleet {
    fn new(doc: FleetDoc) -> Self {
        let FleetDoc { cluster, authority, path, token, secret, timeout } = doc;
        Self {
            authority: authority.map_or_else(|| cluster.0.clone(), |it| it.0),
            cluster: cluster.0,
            path: path.map_or_else(|| "/lease".into(), |it| it.0),
            token: token.map(|it| it.0),
            secret: fleet_secret(&secret.0),
            timeout: timeout.map_or(TIMEOUT, |it| it.0),
        }
    }
}

impl PolicyFrom {
    fn new(doc: PolicyFromDoc) -> Self {
        let PolicyFromDoc { cluster, authority, path, token, every, timeout } = doc;
        Self {
            authority: authority.map_or_else(|| cluster.0.clone(), |it| it.0),
            cluster: cluster.0,
            path: path.map_or_else(|| POLICY_PATH.into(), |it| it.0),
            token: token.map(|it| it.0),
            every: every.map_or(EVERY, |it| it.0),
            timeout: timeout.map_or(POLICY_TIMEOUT, |it| it.0),
        }
    }
}
