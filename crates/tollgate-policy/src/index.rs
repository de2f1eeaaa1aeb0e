//! Which rules may concern a path: a trie over pattern segments.
//!
//! Invariant: a look-up visits at most the trie nodes that agree with the path, so its cost does
//! not grow with the number of rules that do not match. It only finds candidates by path; the other
//! conditions are the plan's business.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::path::{Pattern, Segment};

/// The patterns of all rules.
#[derive(Clone, Debug)]
pub(crate) struct PathIndex {
    /// The first node is the root.
    nodes: Vec<Node>,
}

#[derive(Clone, Debug, Default)]
struct Node {
    literals: BTreeMap<Vec<u8>, usize>,
    any: Option<usize>,
    /// Rules with a pattern that ends here.
    ends: Vec<u16>,
    /// Rules with a pattern that ends here in `**`.
    rests: Vec<u16>,
}

impl PathIndex {
    pub(crate) fn new() -> Self {
        Self { nodes: alloc::vec![Node::default()] }
    }

    /// Adds `pattern` of `rule`.
    pub(crate) fn insert(&mut self, pattern: &Pattern, rule: u16) {
        let mut at = 0;
        for segment in &pattern.segments {
            at = self.child(at, segment);
        }
        if let Some(node) = self.nodes.get_mut(at) {
            let list = if pattern.rest { &mut node.rests } else { &mut node.ends };
            list.push(rule);
        }
    }

    fn child(&mut self, parent: usize, segment: &Segment) -> usize {
        let next = self.nodes.len();
        let Some(node) = self.nodes.get_mut(parent) else {
            return parent;
        };
        let child = match segment {
            Segment::Literal(bytes) => *node.literals.entry(bytes.clone()).or_insert(next),
            Segment::Any | Segment::Capture(_) => *node.any.get_or_insert(next),
        };
        if child == next {
            self.nodes.push(Node::default());
        }
        child
    }

    /// Appends to `out` the rules with a pattern that matches `path` (in normal form); a rule may
    /// come more than once.
    pub(crate) fn find(&self, path: &[u8], out: &mut Vec<u16>) {
        self.walk(0, Some(path.strip_prefix(b"/").unwrap_or(path)), out);
    }

    /// `rest`: the segments not yet matched; `None` when the last one was. As deep as the longest pattern (64).
    fn walk(&self, at: usize, rest: Option<&[u8]>, out: &mut Vec<u16>) {
        let Some(node) = self.nodes.get(at) else { return };
        out.extend_from_slice(&node.rests);
        let Some(rest) = rest else {
            out.extend_from_slice(&node.ends);
            return;
        };
        let slash = rest.iter().position(|b| *b == b'/');
        let (segment, after) = match slash.and_then(|i| rest.split_at_checked(i)) {
            Some((segment, after)) => (segment, after.get(1..)),
            None => (rest, None),
        };
        if let Some(child) = node.literals.get(segment) {
            self.walk(*child, after, out);
        }
        if let (Some(child), false) = (node.any, segment.is_empty()) {
            self.walk(child, after, out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(patterns: &[&str], path: &str, expected: &[u16]) {
        let mut index = PathIndex::new();
        for (i, pattern) in patterns.iter().enumerate() {
            index.insert(&Pattern::parse(pattern).unwrap(), u16::try_from(i).unwrap());
        }
        let mut found = Vec::new();
        index.find(path.as_bytes(), &mut found);
        found.sort_unstable();
        assert_eq!(found, expected, "{path} in {patterns:?}");
    }

    #[test]
    fn every_pattern_that_matches_is_found() {
        let patterns = ["/login", "/api/**", "/api/*/x", "/{a}/{b}", "/**", "/", "/api/", "/*"];
        check(&patterns, "/login", &[0, 4, 7]);
        check(&patterns, "/login/", &[4]);
        check(&patterns, "/api", &[1, 4, 7]);
        check(&patterns, "/api/", &[1, 4, 6]);
        check(&patterns, "/api/1", &[1, 3, 4]);
        check(&patterns, "/api/1/x", &[1, 2, 4]);
        check(&patterns, "/api/1/y", &[1, 4]);
        check(&patterns, "/", &[4, 5]);
        check(&patterns, "/apix", &[4, 7]);
    }
}
