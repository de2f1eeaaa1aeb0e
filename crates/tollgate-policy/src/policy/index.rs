//! Which rules may concern a request: by path in a trie over segments, by host in a map.
//!
//! Invariant: a look-up visits what agrees with the request, so its cost does not grow with the
//! number of rules that do not match. It only finds candidates; the other conditions are the plan's
//! business. Requests only look names up, they never add any, so nobody can fill a hash bucket on purpose.

use alloc::vec::Vec;

use hashbrown::HashMap;

use crate::document::conditions::Conditions;
use crate::document::wanted::Host;
use crate::http::path::{Pattern, Segment};

/// Every rule, under the most telling of its conditions.
#[derive(Clone, Debug)]
pub(crate) struct Index {
    /// Patterns without a wildcard, whole: most paths are found by one look.
    exact: HashMap<Vec<u8>, Vec<u16>>,
    paths: Trie,
    hosts: HashMap<Vec<u8>, Vec<u16>>,
    /// By suffix with its leading dot.
    suffixes: HashMap<Vec<u8>, Vec<u16>>,
    /// Bytes of the longest of them: more of a host is not looked up, or a host of dots would take time by its square.
    longest_suffix: usize,
    /// Rules with neither a path nor a host condition.
    always: Vec<u16>,
}

impl Index {
    pub(crate) fn new() -> Self {
        Self {
            exact: HashMap::new(),
            paths: Trie { nodes: Vec::new() },
            hosts: HashMap::new(),
            suffixes: HashMap::new(),
            longest_suffix: 0,
            always: Vec::new(),
        }
    }

    /// Adds `rule`, and says which of its conditions a look-up will have checked.
    pub(crate) fn insert(&mut self, when: Option<&Conditions>, rule: u16) -> Known {
        if let Some(paths) = when.and_then(Conditions::paths) {
            for pattern in paths {
                match pattern.exact() {
                    Some(path) => self.exact.entry(path).or_default().push(rule),
                    None => self.paths.insert(pattern, rule),
                }
            }
            return Known::Path;
        }
        if let Some(hosts) = when.and_then(Conditions::hosts) {
            for host in hosts {
                let (map, name) = match host {
                    Host::Exact(name) => (&mut self.hosts, name),
                    Host::Suffix(name) => {
                        self.longest_suffix = self.longest_suffix.max(name.len());
                        (&mut self.suffixes, name)
                    }
                };
                map.entry(name.clone()).or_default().push(rule);
            }
            return Known::Host;
        }
        self.always.push(rule);
        Known::Nothing
    }

    /// Fills `out` with the candidates for a request, in order, each once: those that any of the readings of
    /// its path finds. A `host` of which nobody knows what it is may be any.
    pub(crate) fn find<'p>(
        &self,
        host: Option<&[u8]>,
        readings: impl Iterator<Item = &'p [u8]>,
        out: &mut Vec<u16>,
    ) {
        out.clear();
        out.extend_from_slice(&self.always);
        for path in readings {
            out.extend(self.exact.get(path).into_iter().flatten());
            self.paths.walk(0, Some(path.strip_prefix(b"/").unwrap_or(path)), out);
        }
        match host {
            Some(host) => self.find_host(host, out),
            None => out.extend(self.hosts.values().chain(self.suffixes.values()).flatten()),
        }
        if out.len() > 1 {
            out.sort_unstable();
            out.dedup();
        }
    }

    /// Appends the rules of every host that matches, some perhaps twice.
    fn find_host(&self, host: &[u8], out: &mut Vec<u16>) {
        if let Some(rules) = self.hosts.get(host) {
            out.extend_from_slice(rules);
        }
        if !self.suffixes.is_empty() {
            let first = host.len().saturating_sub(self.longest_suffix).max(1);
            let dots = host.iter().enumerate().skip(first).filter(|(_, b)| **b == b'.');
            for suffix in dots.filter_map(|(i, _)| host.get(i..)) {
                out.extend(self.suffixes.get(suffix).into_iter().flatten());
            }
        }
    }
}

/// Patterns by segment; the first node is the root.
#[derive(Clone, Debug)]
struct Trie {
    nodes: Vec<Node>,
}

#[derive(Clone, Debug, Default)]
struct Node {
    literals: HashMap<Vec<u8>, usize>,
    any: Option<usize>,
    /// Rules with a pattern that ends here.
    ends: Vec<u16>,
    /// Rules with a pattern that ends here in `**`.
    rests: Vec<u16>,
}

impl Trie {
    fn insert(&mut self, pattern: &Pattern, rule: u16) {
        if self.nodes.is_empty() {
            self.nodes.push(Node::default());
        }
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

    /// Appends the rules of every pattern that matches, some perhaps twice. `rest` is what is not yet
    /// matched; `None` after the last segment. As deep as the longest pattern, 64.
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

/// Which condition a look-up has already found to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    Nothing,
    Path,
    Host,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::conditions::Condition;

    fn check(conditions: &[Conditions], host: &str, path: &str, expected: &[u16]) {
        let mut index = Index::new();
        for (i, when) in conditions.iter().enumerate() {
            index.insert(Some(when), u16::try_from(i).unwrap());
        }
        let mut found = Vec::new();
        index.find(Some(host.as_bytes()), core::iter::once(path.as_bytes()), &mut found);
        assert_eq!(found, expected, "{host} {path}");
    }

    #[test]
    fn every_path_that_matches_is_found() {
        let conditions = ["/login", "/api/**", "/api/*/x", "/{a}/{b}", "/**", "/", "/api/", "/*"]
            .map(|pattern| {
                Conditions([Condition::Paths([Pattern::parse(pattern).unwrap()].into())].into())
            });
        check(&conditions, "", "/login", &[0, 4, 7]);
        check(&conditions, "", "/login/", &[4]);
        check(&conditions, "", "/api", &[1, 4, 7]);
        check(&conditions, "", "/api/", &[1, 4, 6]);
        check(&conditions, "", "/api/1", &[1, 3, 4]);
        check(&conditions, "", "/api/1/x", &[1, 2, 4]);
        check(&conditions, "", "/api/1/y", &[1, 4]);
        check(&conditions, "", "/", &[4, 5]);
        check(&conditions, "", "/apix", &[4, 7]);
    }

    #[test]
    fn every_host_that_matches_is_found() {
        let exact = |name: &str| Host::Exact(name.into());
        let suffix = |name: &str| Host::Suffix(name.into());
        let conditions =
            [exact("a.example.com"), suffix(".example.com"), suffix(".com"), exact("example.com")]
                .map(|host| Conditions([Condition::Hosts([host].into())].into()));
        check(&conditions, "a.example.com", "/", &[0, 1, 2]);
        check(&conditions, "b.c.example.com", "/", &[1, 2]);
        check(&conditions, "example.com", "/", &[2, 3]);
        check(&conditions, ".com", "/", &[]);
        check(&conditions, "", "/", &[]);
        let mut index = Index::new();
        for (when, i) in conditions.iter().zip(0..) {
            index.insert(Some(when), i);
        }
        let mut found = Vec::new();
        index.find(None, core::iter::empty(), &mut found);
        assert_eq!(found, [0, 1, 2, 3], "nobody knows which");
    }
}
