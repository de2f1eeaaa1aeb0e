//! From the document to the compiled policy: rules, groups of rules that share a key, and look-up.
//!
//! Invariant: compiling is the slow path: it may allocate and hash, deciding does not.

mod compiler;
mod names;
mod quotas;
mod subsumption;
pub(crate) mod tenant;
mod validate;
mod warnings;
mod white_space;

use core::cell::RefCell;

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
        let noted = RefCell::new(Noted::default());
        let root = At::root(&noted);
        let traits = surface.traits();
        let policy = Document::read(&node, &root).map(|read| {
            if root.noted() == 0 {
                validate::unreachable(&read, &root);
            }
            let mut compiler =
                compiler::Compiler::new(&read, &traits, stable_hash(&[document.as_bytes()]));
            compiler.rules(&read, &root);
            validate::errors(&read, &traits, &root);
            let warnings = warnings::warnings(&read, &compiler.policy, &traits);
            compiler.policy.warnings = warnings.in_order(&node);
            compiler.policy
        });
        let problems = noted.into_inner().in_order(&node);
        match policy {
            Some(policy) if problems.0.is_empty() => {
                debug_assert!(policy.is_whole(), "an index of a policy is out of range");
                Ok(policy)
            }
            _ => Err(problems),
        }
    }
}
