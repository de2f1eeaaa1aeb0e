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

use crate::compile::{built, compile, spec_at, spec_of};
use crate::document::plugin::{FleetDoc, HashKey, PolicyFromDoc};
use crate::json::node::Node;
use crate::json::place::{At, ProblemList};
use crate::json::reader::Fields;
use tollgate_policy::plugin::{Fleet, MAX_NAME, MAX_NAMED, NamedPolicy, PolicyFrom};
use tollgate_policy::spec::{PolicySpec, Problems, Surface};
use tollgate_policy::{Plugin, fleet_secret, plugin_hash_key};

/// The default timeout: many times what an authority nearby takes.
const TIMEOUT: Span = Span::from_millis(250);

/// The path at which servers and Workers have the policy in force.
const POLICY_PATH: &str = "/.well-known/tollgate/admin/policy";
/// The defaults of the interval between two requests for a policy, and of the wait for a response.
const EVERY: Span = Span::from_secs(5);
const POLICY_TIMEOUT: Span = Span::from_secs(5);

/// Compiles a plugin configuration: a policy, or an object with the field `policy` and with it
/// `policies`, or `fleet` and `policy_from`, and `hash_key`, which is
/// [set](tollgate_policy::Policy::set_hash_key) in all policies.
///
/// # Errors
/// Every mistake at once, in the document's order, each with its path.
pub fn compile_plugin(document: &str, surface: Surface) -> Result<Plugin, Problems> {
    let node = Node::parse(document)?;
    let Node::Object(fields) = &node else {
        return compile(document, surface).map(Plugin::alone);
    };
    if !fields.iter().any(|(name, _)| name == "policy" || name == "policies") {
        return built(spec_of(&node, document, surface)?, surface).map(Plugin::alone);
    }
    let noted = RefCell::new(ProblemList::default());
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
    let uses_server = |(name, _): &(String, Node)| name == "fleet" || name == "policy_from";
    if others.is_some() && fields.iter().any(uses_server) {
        at.problem("cannot be combined with \"fleet\" and \"policy_from\": they are for one policy; leave them out, or give each policy its own filter".into());
    }
    let inner = read.and_then(|read| read.node("policy"));
    let at = root.field("policy");
    if inner.is_none() {
        at.problem("is missing; it applies to the routes that name none of \"policies\"".into());
    }
    let spec = inner.and_then(|inner| spec_at(inner, document, surface, &at));
    let problems = noted.into_inner().in_order(&node);
    match spec {
        Some(spec) if problems.0.is_empty() => {
            let policy = built(spec, surface)?;
            let policy_from = from.flatten().map(PolicyFrom::from);
            let fleet = fleet.flatten().map(Fleet::from);
            let hash_key = hash_key.flatten().map(|text| plugin_hash_key(&text.0));
            let named = named
                .into_iter()
                .flatten()
                .map(|(name, spec)| Ok(NamedPolicy { name, policy: built(spec, surface)? }));
            let named = named.collect::<Result<_, Problems>>()?;
            Ok(Plugin { policy, named, fleet, policy_from }.with_hash_key(hash_key))
        }
        _ => Err(problems),
    }
}

/// The policies in `node` that routes may choose; valid only when no problem was noted.
fn named(node: &Node, document: &str, surface: Surface, at: &At<'_>) -> Vec<(String, PolicySpec)> {
    let Node::Object(fields) = node else {
        let _: Option<()> = at.wrong(node, "an object of names and their policies");
        return Vec::new();
    };
    if !(1..=MAX_NAMED).contains(&fields.len()) {
        at.problem(format!("has {} policies; give 1 to {MAX_NAMED}", fields.len()));
        return Vec::new();
    }
    let read = fields.iter().enumerate().filter_map(|(i, (name, node))| {
        let at = at.user_field(name);
        if !NamedPolicy::is_name(name) {
            at.problem(format!(
                "is not a valid name; use 1 to {MAX_NAME} of a-z, A-Z, 0-9, \"-\" and \"_\""
            ));
        }
        if fields.iter().take(i).any(|(earlier, _)| earlier == name) {
            at.problem("is given twice; give it once".into());
        }
        Some((name.clone(), spec_at(node, document, surface, &at)?))
    });
    read.collect()
}

impl From<FleetDoc> for Fleet {
    fn from(doc: FleetDoc) -> Self {
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

impl From<PolicyFromDoc> for PolicyFrom {
    fn from(doc: PolicyFromDoc) -> Self {
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
