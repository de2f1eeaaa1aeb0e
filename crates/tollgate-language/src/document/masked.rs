//! Masked `jwt.keys` in a policy that was read from an operator's API.
//!
//! Invariant: a masked key verifies nothing, so only a surface that verifies no tokens accepts a
//! document with one. Deliberately absent: a rule for which readers may see keys.

use crate::json::node::Node;

/// `document` without masked keys.
pub(crate) fn without_masked_keys(mut document: Node) -> Node {
    let Node::Object(fields) = &mut document else { return document };
    for (_, jwt) in fields.iter_mut().filter(|(name, _)| name == "jwt") {
        let Node::Object(members) = jwt else { continue };
        members.retain_mut(|(name, keys)| {
            let Node::List(keys) = keys else { return true };
            if name != "keys" || !keys.iter().any(is_masked) {
                return true;
            }
            keys.retain(|key| !is_masked(key));
            !keys.is_empty()
        });
    }
    document
}

fn is_masked(key: &Node) -> bool {
    let Node::Object(members) = key else { return false };
    let is_known = |name: &str| matches!(name, "masked" | "kid" | "index");
    members.len() == 2
        && members.iter().all(|(name, _)| is_known(name))
        && members.iter().any(|(name, value)| name == "masked" && *value == Node::Bool(true))
}
