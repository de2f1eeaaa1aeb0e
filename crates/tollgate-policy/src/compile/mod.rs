//! From the document to the compiled policy: rules, groups of rules that share a key, and look-up.
//!
//! Invariant: compiling is the slow path: it may allocate and hash; deciding does neither.

mod compiler;
mod fallbacks;
mod identities;
mod names;
mod parts;
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

use core::cell::RefCell;

use crate::document::masked::without_masked_keys;
use crate::document::root::Document;
use crate::json::node::Node;
use crate::json::place::{At, Noted};
use crate::json::problem::Problems;
use crate::json::reader::FromNode;
use crate::policy::compiled::Policy;
use crate::policy::surface::Surface;
use crate::stable_hash::stable_hash;

impl Policy {
    /// Compiles a document for a surface.
    ///
    /// # Errors
    /// Every mistake of the document at once, in its order, each with its path.
    pub fn compile(document: &str, surface: Surface) -> Result<Self, Problems> {
        let node = Node::parse(document)?;
        if surface.traits().verifies_tokens {
            return Self::compile_node(&node, document, surface);
        }
        Self::compile_node(&without_masked_keys(node), document, surface)
    }

    /// Compiles `node`, which is all of `document`.
    fn compile_node(node: &Node, document: &str, surface: Surface) -> Result<Self, Problems> {
        let noted = RefCell::new(Noted::default());
        let policy = Self::compile_at(node, document, surface, &At::root(&noted));
        let problems = noted.into_inner().in_order(node);
        match policy {
            Some(policy) if problems.0.is_empty() => Ok(policy),
            _ => Err(problems),
        }
    }

    /// Compiles `node`, which is at `root` of `document`. The result is valid only when no problem
    /// was noted.
    fn compile_at(node: &Node, document: &str, surface: Surface, root: &At<'_>) -> Option<Self> {
        let traits = surface.traits();
        let read = Document::read(node, root)?;
        if root.noted() == 0 {
            validate::unreachable(&read, root);
        }
        let mut compiler =
            compiler::Compiler::new(&read, surface, stable_hash(&[document.as_bytes()]));
        compiler.policy.public_fingerprint = public::public_fingerprint(node);
        compiler.rules(&read, root);
        validate::errors(&read, &traits, root);
        let warnings = warnings::warnings(&read, &compiler.policy, &traits);
        compiler.policy.warnings = warnings.in_order(node);
        debug_assert!(root.noted() > 0 || compiler.policy.is_whole(), "an index is out of range");
        Some(compiler.policy)
    }
}
