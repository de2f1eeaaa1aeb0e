//! From the document to the policy: values that depend on each other are checked and numbered.
//!
//! Invariant: compiling is the slow path: it may allocate and hash; deciding does neither.

mod calendar;
mod closed;
mod combinations;
mod compiler;
mod concurrency;
mod costs;
mod fingerprint;
mod fleet_rules;
mod identities;
mod limit_from;
mod penalty;
pub(crate) mod plugin;
mod quotas;
mod regexes;
mod settings;
mod subsumption;
pub(crate) mod tenant;
mod validate;
mod warnings;

pub use fingerprint::fingerprint;

use alloc::format;
use core::cell::{Cell, RefCell};

use crate::compile::fingerprint::public_fingerprint;
use crate::compile::subsumption::MAX_COMPARED;
use crate::document::jwt::without_masked_keys;
use crate::document::root::Document;
use crate::json::node::{Node, whole};
use crate::json::place::{At, ProblemList, read_document};
use crate::json::reader::FromNode;
use crate::surface::traits;
use tollgate_policy::Policy;
use tollgate_policy::spec::{MAX_REGEXES, PolicySpec, Problems, Surface};

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
    read_document(node, |root| spec_at(node, document, surface, root))
}

/// The policy of a spec whose document has no problem.
fn built(spec: PolicySpec, surface: Surface) -> Result<Policy, Problems> {
    let policy = Policy::from_spec(spec, surface);
    debug_assert!(policy.is_some(), "a document without problems is a policy");
    policy.ok_or_else(|| {
        whole("has no mistake, but no policy could be made from it; please report this".into())
    })
}

/// The spec of `node`, which is at `root` of `document`. It is valid only when no problem was
/// noted.
fn spec_at(node: &Node, document: &str, surface: Surface, root: &At<'_>) -> Option<PolicySpec> {
    let mut read = Document::read(node, root)?;
    if read.case_insensitive_paths == Some(true) {
        settings::lower_patterns(&mut read);
    }
    if root.problem_count() == 0 {
        validate::unreachable(&read, root);
    }
    let fingerprints = (fingerprint(document), public_fingerprint(node));
    let traits = traits(surface);
    validate::errors(&read, surface, traits, root);
    let noted = RefCell::new(ProblemList::default());
    let warned = At::root(&noted);
    let left = Cell::new(MAX_COMPARED);
    warnings::of_document(&read, traits, &left, &warned);
    let mut spec = compiler::spec(read, surface, fingerprints, root);
    let regexes = spec.count_regexes();
    if regexes > MAX_REGEXES {
        root.field("rules").problem(format!(
            "have {regexes} different regular expressions with the rest of the policy; use at most {MAX_REGEXES}"
        ));
    }
    if let (Some(message), 1..) = (traits.searches, regexes) {
        warned.field("rules").problem(message.into());
    }
    warnings::of_spec(&spec, &left, &warned);
    spec.warnings = noted.into_inner().in_order(node).0;
    Some(spec)
}
