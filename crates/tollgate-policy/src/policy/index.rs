//! The rules that may apply to a request: by path in a trie over segments, by host in a map, and
//! the others [by a value](ByValue) of the request.
//!
//! Invariant: a look-up visits only entries that match the request, so its cost does not grow with
//! the number of rules that do not match. It only finds candidates; the plan checks the other
//! conditions. Requests only look names up, they never add any, so no client can fill a hash bucket
//! on purpose.

use alloc::vec::Vec;

use hashbrown::HashMap;

use crate::policy::by_value::{ByValue, in_order};
use crate::spec::conditions::Conditions;
use crate::spec::wanted::Host;
use tollgate_http_syntax::path::{Pattern, Segment, all};

/// Every rule, indexed under its most selective condition.
#[derive(Clone, Debug)]
pub(crate) struct Index {
    /// Patterns without a wildcard, as a whole: one look-up finds most paths.
    exact: HashMap<Vec<u8>, Vec<u16>>,
    /// Patterns whose only wildcard is `**`, by the number of segments before it.
    prefixes: Vec<HashMap<Vec<u8>, Vec<u16>>>,
    /// All other patterns.
    wildcards: Trie,
    hosts: HashMap<Vec<u8>, Vec<u16>>,
    /// By suffix, including its leading dot.
    suffixes: HashMap<Vec<u8>, Vec<u16>>,
    /// Bytes of the longest suffix. No longer part of a host is looked up, else the time for a host
    /// of dots would grow with the square of its length.
    longest_suffix: usize,
    /// Rules with neither a path nor a host condition, or with a condition for all paths.
    pub(crate) others: ByValue,
}

impl Index {
    pub(crate) fn new() -> Self {
        Self {
            exact: HashMap::new(),
            prefixes: Vec::new(),
            wildcards: Trie { nodes: Vec::new() },
            hosts: HashMap::new(),
            suffixes: HashMap::new(),
            longest_suffix: 0,
            others: ByValue::default(),
        }
    }

    /// Adds `rule`, and returns the condition that a look-up will have checked.
    pub(crate) fn insert(&mut self, when: Option<&Conditions>, rule: u16) -> IndexedBy {
        if let Some(paths) = when.and_then(Conditions::paths) {
            if !all(paths) {
                paths.iter().for_each(|pattern| self.insert_path(pattern, rule));
            } else if paths.iter().any(|pattern| pattern.captures().next().is_some()) {
                // Its path may name the tenant, whether or not the rule applies.
                self.others.always.push(rule);
            } else {
                self.others.insert(when, rule, &|_| false);
            }
            return IndexedBy::Path;
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
            return IndexedBy::Host;
        }
        self.others.insert(when, rule, &|_| false);
        IndexedBy::Nothing
    }

    fn insert_path(&mut self, pattern: &Pattern, rule: u16) {
        let depth = pattern.segments.len();
        let map = match pattern.literal() {
            None => return self.wildcards.insert(pattern, rule),
            Some(_) if !pattern.rest => &mut self.exact,
            Some(_) => {
                if self.prefixes.len() <= depth {
                    self.prefixes.resize_with(depth.saturating_add(1), HashMap::new);
                }
                match self.prefixes.get_mut(depth) {
                    Some(map) => map,
                    None => return,
                }
            }
        };
        map.entry(pattern.literal().unwrap_or_default()).or_default().push(rule);
    }

    /// Fills `out` with the candidates for a request, in order, each once: the rules that any
    /// reading of its path finds, and those that are always evaluated. Without a readable `host`,
    /// the rules of all hosts are candidates. The caller adds the rules that are looked up by a
    /// value. It has two callers, and the call of one of them decides every request.
    #[inline(always)]
    pub(crate) fn find<'p>(
        &self,
        host: Option<&[u8]>,
        readings: impl Iterator<Item = &'p [u8]>,
        out: &mut Vec<u16>,
    ) {
        out.clear();
        self.others.always.iter().for_each(|rule| out.push(*rule));
        for path in readings {
            append(&self.exact, path, out);
            for (map, prefix) in self.prefixes.iter().zip(prefixes(path)) {
                append(map, prefix, out);
            }
            if !self.wildcards.nodes.is_empty() {
                self.wildcards.walk(0, Some(path.strip_prefix(b"/").unwrap_or(path)), out);
            }
        }
        match host {
            Some(host) => self.find_host(host, out),
            None => out.extend(self.hosts.values().chain(self.suffixes.values()).flatten()),
        }
        in_order(out);
    }

    /// Appends the rules of every host that matches; some may be repeated.
    #[inline(always)]
    fn find_host(&self, host: &[u8], out: &mut Vec<u16>) {
        append(&self.hosts, host, out);
        if !self.suffixes.is_empty() {
            let first = host.len().saturating_sub(self.longest_suffix).max(1);
            let dots = host.iter().enumerate().skip(first).filter(|(_, b)| **b == b'.');
            for suffix in dots.filter_map(|(i, _)| host.get(i..)) {
                append(&self.suffixes, suffix, out);
            }
        }
    }
}

/// Appends the rules under `name`.
fn append(map: &HashMap<Vec<u8>, Vec<u16>>, name: &[u8], out: &mut Vec<u16>) {
    // One at a time: there are few.
    map.get(name).into_iter().flatten().for_each(|rule| out.push(*rule));
}

/// The parts of `path`, in normal form, before its first slash, its second slash and so on, and
/// finally all of it.
fn prefixes(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(i, _)| i);
    slashes.chain([path.len()]).filter_map(|end| path.get(..end))
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
        debug_assert!(at < self.nodes.len(), "a child is a node");
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

    /// Appends the rules of every pattern that matches; some may be repeated. `rest` is the part of
    /// the path not yet matched, `None` after the last segment. The depth is at most that of the
    /// longest pattern, 64.
    fn walk(&self, at: usize, rest: Option<&[u8]>, out: &mut Vec<u16>) {
        debug_assert!(at == 0 || at < self.nodes.len(), "a child is a node");
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

/// The condition that a look-up has already checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IndexedBy {
    Nothing,
    Path,
    Host,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::conditions::Condition;
    use alloc::string::String;

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

    /// The index finds exactly the patterns that match, wherever they are stored.
    #[test]
    fn what_is_found_is_what_matches() {
        const PIECES: [&str; 4] = ["", "/a", "/b", "/*"];
        let three = || (0..64_usize).map(|i| [i % 4, i / 4 % 4, i / 16].map(|piece| PIECES[piece]));
        let mut texts: Vec<String> = three()
            .flat_map(|[a, b, c]| ["", "/", "/**"].map(|end| [a, b, c, end].concat()))
            .collect();
        texts.retain(|text| !text.is_empty());
        texts.sort();
        texts.dedup();
        let patterns: Vec<Pattern> = texts.iter().map(|t| Pattern::parse(t).unwrap()).collect();
        let mut index = Index::new();
        for (pattern, rule) in patterns.iter().zip(0..) {
            let paths = Condition::Paths([pattern.clone()].into());
            index.insert(Some(&Conditions([paths].into())), rule);
        }
        let (mut found, mut compared) = (Vec::new(), 0);
        for path in texts.iter().map(|text| text.replace('*', "c")) {
            index.find(Some(b""), core::iter::once(path.as_bytes()), &mut found);
            let matching =
                patterns.iter().zip(0..).filter(|(p, _)| p.matches(path.as_bytes()).is_some());
            assert_eq!(found, matching.map(|(_, rule)| rule).collect::<Vec<u16>>(), "{path}");
            compared += found.len();
        }
        assert!(compared > 500, "{compared}");
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
