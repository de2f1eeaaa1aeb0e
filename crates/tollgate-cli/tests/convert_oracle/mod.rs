//! The documented decisions of `envoyproxy/ratelimit`, in the simplest form; and random
//! configurations and calls for it.
//!
//! Source: its README ("The configuration format", "Replaces", "ShadowMode", "Sharing thresholds
//! for wildcard matches", the examples). A counter is named by the domain, all entries and the
//! start of the window. Every hit is added to it, denied or not; a count above the limit is over
//! it.

use std::collections::BTreeMap;

use tollgate_test_support::Random;

use serde::Deserialize;

/// One call of the service.
#[derive(Clone, Debug)]
pub struct Call {
    pub domain: String,
    pub descriptors: Vec<Vec<(String, String)>>,
    /// `hits_addend`.
    pub hits: u64,
    /// Seconds since 1970.
    pub at: u64,
}

#[derive(Debug, Deserialize)]
struct Root {
    domain: String,
    #[serde(default)]
    descriptors: Vec<Node>,
}

#[derive(Debug, Deserialize)]
struct Node {
    key: String,
    #[serde(default)]
    value: String,
    rate_limit: Option<Limit>,
    #[serde(default)]
    descriptors: Vec<Node>,
    #[serde(default)]
    shadow_mode: bool,
    #[serde(default)]
    share_threshold: bool,
}

#[derive(Debug, Deserialize)]
struct Limit {
    #[serde(default)]
    unit: String,
    #[serde(default)]
    requests_per_unit: u64,
    #[serde(default)]
    unlimited: bool,
    #[serde(default)]
    name: String,
    #[serde(default)]
    replaces: Vec<Replaced>,
}

#[derive(Debug, Deserialize)]
struct Replaced {
    name: String,
}

/// The limit of a descriptor, and the name of its counter.
struct Found<'o> {
    limit: &'o Limit,
    is_shadow: bool,
    counted: Vec<(String, String)>,
}

pub struct Oracle {
    root: Root,
    /// As in that service: a denied hit is added, too.
    pub counts_refused: bool,
    counters: BTreeMap<(Vec<(String, String)>, u64), u64>,
}

impl Oracle {
    pub fn new(configuration: &str) -> Self {
        let root = serde_yaml_ng::from_str(configuration);
        Self {
            root: root.unwrap_or_else(|e| panic!("{e}\n{configuration}")),
            counts_refused: true,
            counters: BTreeMap::new(),
        }
    }

    /// The descriptors of the call that are over their limit.
    pub fn over(&mut self, call: &Call) -> Vec<bool> {
        let Self { root, counts_refused, counters } = self;
        if root.domain != call.domain {
            return vec![false; call.descriptors.len()];
        }
        let found: Vec<Option<Found<'_>>> =
            call.descriptors.iter().map(|entries| find(&root.descriptors, entries)).collect();
        let all = found.iter().flatten().flat_map(|found| &found.limit.replaces);
        let replaced: Vec<&str> = all.map(|replaced| replaced.name.as_str()).collect();
        let mut over = Vec::new();
        for found in &found {
            let counts = |found: &&Found<'_>| {
                let name = found.limit.name.as_str();
                !found.limit.unlimited && (name.is_empty() || !replaced.contains(&name))
            };
            let Some(Found { limit, is_shadow, counted }) = found.as_ref().filter(counts) else {
                over.push(false);
                continue;
            };
            let length = seconds(&limit.unit);
            let counter = (counted.clone(), call.at / length * length);
            let hits = counters.entry(counter).or_default();
            let after = *hits + call.hits;
            let is_over = after > limit.requests_per_unit;
            if !is_over || *counts_refused {
                *hits = after;
            }
            over.push(is_over && !is_shadow);
        }
        over
    }
}

/// The limit at the end of the entries' path through the tree.
fn find<'o>(level: &'o [Node], entries: &[(String, String)]) -> Option<Found<'o>> {
    let mut level = level;
    let mut counted = Vec::new();
    for (i, (key, value)) in entries.iter().enumerate() {
        let of_key = || level.iter().filter(|node| node.key == *key);
        let exact = of_key().find(|node| !node.value.is_empty() && node.value == *value);
        let pattern = || of_key().find(|node| node.value.contains('*') && like(&node.value, value));
        let node =
            exact.or_else(pattern).or_else(|| of_key().find(|node| node.value.is_empty()))?;
        let is_shared = node.share_threshold;
        counted.push((key.clone(), if is_shared { node.value.clone() } else { value.clone() }));
        if i + 1 == entries.len() {
            let limit = node.rate_limit.as_ref()?;
            return Some(Found { limit, is_shadow: node.shadow_mode, counted });
        }
        level = &node.descriptors;
    }
    None
}

/// Tries every length for the first star.
fn like(pattern: &str, text: &str) -> bool {
    match pattern.chars().next() {
        None => text.is_empty(),
        Some('*') => (0..=text.len())
            .filter(|at| text.is_char_boundary(*at))
            .any(|at| like(&pattern[1..], &text[at..])),
        Some(c) => text.starts_with(c) && like(&pattern[c.len_utf8()..], &text[c.len_utf8()..]),
    }
}

fn seconds(unit: &str) -> u64 {
    match unit.to_lowercase().as_str() {
        "second" => 1,
        "minute" => 60,
        "hour" => 3_600,
        "day" => 86_400,
        "week" => 7 * 86_400,
        "month" => 30 * 86_400,
        "year" => 365 * 86_400,
        other => panic!("no unit: {other}"),
    }
}

/// Configurations and calls of one sequence of random numbers.
pub struct Generator(Random);

/// The keys of the first level, and of those below it: one may occur twice in a descriptor.
const KEYS: [[&str; 3]; 2] = [["a", "b", "c"], ["a", "d", "e"]];
const VALUES: [&str; 10] = ["", "", "x", "y", "xy", "x*", "*y", "x*y", "*", "x*z*y"];
const SENT: [&str; 8] = ["", "x", "y", "xy", "xzy", "yx", "z", "xyy"];

impl Generator {
    pub const fn new(seed: u64) -> Self {
        Self(Random::new(seed))
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.0.below(end)
    }

    fn one<'t>(&mut self, of: &[&'t str]) -> &'t str {
        self.0.pick::<&str>(of)
    }

    pub fn configuration(&mut self) -> String {
        let mut text = "domain: d\ndescriptors:\n".to_owned();
        self.level(0, &mut text);
        text
    }

    fn level(&mut self, depth: usize, text: &mut String) {
        let indent = "  ".repeat(depth);
        let mut seen = Vec::new();
        for _ in 0..=2 + self.below(5) {
            let (key, value) = (self.one(&KEYS[depth.min(1)]), self.one(&VALUES));
            if seen.contains(&(key, value)) {
                continue;
            }
            seen.push((key, value));
            text.push_str(&format!("{indent}- key: {key}\n"));
            if !value.is_empty() {
                text.push_str(&format!("{indent}  value: '{value}'\n"));
            }
            if value.contains('*') && self.below(3) == 0 {
                text.push_str(&format!("{indent}  share_threshold: true\n"));
            }
            if self.below(4) > 0 {
                let limit = self.limit();
                text.push_str(&format!("{indent}  rate_limit: {limit}\n"));
                if self.below(6) == 0 {
                    text.push_str(&format!("{indent}  shadow_mode: true\n"));
                }
            }
            if depth < 2 && self.below(3) == 0 {
                text.push_str(&format!("{indent}  descriptors:\n"));
                self.level(depth + 1, text);
            }
        }
    }

    fn limit(&mut self) -> String {
        if self.below(8) == 0 {
            return "{unlimited: true, replaces: [{name: one}]}".to_owned();
        }
        let unit = self.one(&["second", "minute", "Hour", "DAY", "week", "month", "year"]);
        let count = self.below(5);
        let name = match self.below(6) {
            0 => ", name: one",
            1 => ", name: two",
            2 => ", replaces: [{name: one}]",
            3 => ", name: two, replaces: [{name: one}, {name: none}]",
            _ => "",
        };
        format!("{{unit: {unit}, requests_per_unit: {count}{name}}}")
    }

    /// A call of up to `most` hits.
    pub fn call(&mut self, at: u64, most: u64) -> Call {
        let domain = if self.below(20) == 0 { "e" } else { "d" }.to_owned();
        let descriptors = (0..=self.below(3)).map(|_| self.descriptor()).collect();
        Call { domain, descriptors, hits: 1 + self.below(most), at }
    }

    fn descriptor(&mut self) -> Vec<(String, String)> {
        let more = [0, 0, 0, 1, 1, 2][usize::try_from(self.below(6)).unwrap()];
        let entry = |depth: usize| {
            let key = self.one(&KEYS[depth.min(1)]).to_owned();
            (key, self.one(&SENT).to_owned())
        };
        (0..=more).map(entry).collect()
    }
}
