//! A proxy's plugin configuration: a policy, and beside it whom the plugin asks.
//!
//! Invariant: a document without the field `policy` is a policy, as it always was. All mistakes of
//! both parts are reported at once.

use core::cell::RefCell;

use alloc::string::String;
use tollgate_core::Span;

use crate::document::plugin::{FleetDoc, PolicyFromDoc};
use crate::json::node::Node;
use crate::json::place::{At, Noted};
use crate::json::problem::Problems;
use crate::json::reader::Fields;
use crate::policy::compiled::Policy;
use crate::policy::fleet::fleet_secret;
use crate::policy::surface::Surface;

/// Unless the configuration says it: many times what an authority nearby takes.
const TIMEOUT: Span = Span::from_millis(250);

/// Where servers and Workers have the policy in force.
const POLICY_PATH: &str = "/.well-known/tollgate/admin/policy";
/// Unless the configuration says it: between two questions for a policy, and for one to come.
const EVERY: Span = Span::from_secs(5);
const POLICY_TIMEOUT: Span = Span::from_secs(5);

/// What a plugin is configured with.
#[derive(Clone, Debug)]
pub struct Plugin {
    /// The policy.
    pub policy: Policy,
    /// Whom to ask for the counts of a fleet.
    pub fleet: Option<Fleet>,
    /// Whom to ask for later policies.
    pub policy_from: Option<PolicyFrom>,
}

/// The server that a plugin takes its policy from, once that answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyFrom {
    /// The cluster, as the proxy's configuration calls it.
    pub cluster: String,
    /// The host of the question.
    pub authority: String,
    /// Its path.
    pub path: String,
    /// What it is authorized with.
    pub token: Option<String>,
    /// The longest time between two questions: 1 s to 1 h.
    pub every: Span,
    /// For how long an answer is waited for: 1 ms to 10 s.
    pub timeout: Span,
}

/// Whom a node asks for the counts of a fleet.
#[derive(Clone, Debug)]
pub struct Fleet {
    /// The cluster, as the proxy's configuration calls it.
    pub cluster: String,
    /// The host of the question.
    pub authority: String,
    /// Its path.
    pub path: String,
    /// What it is authorized with.
    pub token: Option<String>,
    /// What keys are hashed with: [`key_hash`](crate::key_hash).
    pub secret: [u8; 16],
    /// For how long an answer is waited for: 1 ms to 10 s.
    pub timeout: Span,
}

impl Plugin {
    /// Compiles a plugin configuration: a policy, or an object with the fields `policy`, `fleet`
    /// and `policy_from`.
    ///
    /// # Errors
    /// Every mistake at once, in the document's order, each with its path.
    pub fn compile(document: &str, surface: Surface) -> Result<Self, Problems> {
        let node = Node::parse(document)?;
        let Node::Object(fields) = &node else {
            return Policy::compile(document, surface).map(Self::alone);
        };
        if !fields.iter().any(|(name, _)| name == "policy") {
            return Policy::compile_node(&node, document, surface).map(Self::alone);
        }
        let noted = RefCell::new(Noted::default());
        let root = At::root(&noted);
        let read = Fields::open(&node, &root, &["policy", "fleet", "policy_from"]);
        let fleet = read.as_ref().and_then(|read| read.read::<Option<FleetDoc>>("fleet", &root));
        let from = read.as_ref();
        let from = from.and_then(|it| it.read::<Option<PolicyFromDoc>>("policy_from", &root));
        let inner = read.and_then(|read| read.node("policy"));
        let policy = inner.and_then(|inner| {
            let at = root.field("policy");
            Policy::compile_at(inner, document, surface, &at)
        });
        let problems = noted.into_inner().in_order(&node);
        match policy {
            Some(policy) if problems.0.is_empty() => {
                let policy_from = from.flatten().map(PolicyFrom::new);
                Ok(Self { policy, fleet: fleet.flatten().map(Fleet::new), policy_from })
            }
            _ => Err(problems),
        }
    }

    const fn alone(policy: Policy) -> Self {
        Self { policy, fleet: None, policy_from: None }
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
