//! From the document to the policy: values that depend on each other are checked and numbered.
//!
//! Invariant: compiling is the slow path: it may allocate and hash; deciding does neither.

mod compiler;
mod identities;
mod names;
pub(crate) mod plugin;
mod public;
mod quotas;
mod reported;
mod settings;
mod subsumption;
pub(crate) mod tenant;
mod together;
mod validate;
mod warnings;
mod white_space;

use core::cell::{Cell, RefCell};

use crate::compile::subsumption::MAX_COMPARED;
use crate::document::masked::without_masked_keys;
use crate::document::root::Document;
use crate::json::node::{Node, whole};
use crate::json::place::{At, Noted};
use crate::json::reader::FromNode;
use crate::surface::traits;
use tollgate_policy::Policy;
use tollgate_policy::spec::{PolicySpec, Problems, Surface, stable_hash};

/// Compiles a document for a surface.
///
/// # Errors
/// Every mistake of the document at once, in its order, each with its path.
pub fn compile(document: &str, surface: Surface) -> Result<Policy, Problems> {
    built(spec(document, surface)?, surface)
}

/// Reads and checks a document for a surface: what the policy consists of, before
/// [`Policy::from_spec`] makes it.
///
/// # Errors
/// Every mistake of the document at once, in its order, each with its path.
pub fn spec(document: &str, surface: Surface) -> Result<PolicySpec, Problems> {
    let node = Node::parse(document)?;
    if traits(surface).verifies_tokens {
        return spec_of(&node, document, surface);
    }
    spec_of(&without_masked_keys(node), document, surface)
}

/// The spec of `node`, which is all of `document`.
fn spec_of(node: &Node, document: &str, surface: Surface) -> Result<PolicySpec, Problems> {
    let noted = RefCell::new(Noted::default());
    let spec = spec_at(node, document, surface, &At::root(&noted));
    let problems = noted.into_inner().in_order(node);
    spec.filter(|_| problems.0.is_empty()).ok_or(problems)
}

/// The policy of a spec whose document has no problem.
fn built(spec: PolicySpec, surface: Surface) -> Result<Policy, Problems> {
    let policy = Policy::from_spec(spec, surface);
    debug_assert!(policy.is_some(), "a document without problems is a policy");
    policy.ok_or_else(|| {
        whole("has no mistake and yet no policy follows from it; please report this".into())
    })
}

/// The spec of `node`, which is at `root` of `document`. It is valid only when no problem was
/// noted.
fn spec_at(node: &Node, document: &str, surface: Surface, root: &At<'_>) -> Option<PolicySpec> {
    let read = Document::read(node, root)?;
    if root.noted() == 0 {
        validate::unreachable(&read, root);
    }
    let fingerprints = (stable_hash(&[document.as_bytes()]), public::public_fingerprint(node));
    let traits = traits(surface);
    validate::errors(&read, surface, traits, root);
    let noted = RefCell::new(Noted::default());
    let warned = At::root(&noted);
    let left = Cell::new(MAX_COMPARED);
    warnings::of_document(&read, traits, &left, &warned);
    let mut spec = compiler::spec(read, surface, fingerprints, root);
    warnings::of_spec(&spec, &left, &warned);
    spec.warnings = noted.into_inner().in_order(node).0;
    Some(spec)
}
