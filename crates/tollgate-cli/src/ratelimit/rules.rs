//! Converts the tree of descriptors to rules, of which at most one applies to any descriptor.
//!
//! Invariant: a descriptor belongs to the rule of the node at which the service would end. At each
//! level this is the node with its exact value, else the first pattern that matches it, else the
//! one without a value; and only if the descriptor has no more entries than levels. The service
//! never goes back to try another way. So a value that one node matches is excluded from its
//! neighbours, even where it leads to no limit.

use serde_json::json;

use super::config::{Config, Descriptor, Limit, Unit, Value};
use super::finding::{Findings, Kind, Place, shown};

/// A rule to be written for some descriptors: a limit, or an explicit absence of one.
pub(super) struct Candidate {
    pub(super) at: Place,
    /// The keys and values, in words.
    pub(super) path: String,
    /// The matching descriptors, as a rule's condition.
    pub(super) entries: String,
    /// The keys whose values are counted separately, in their order; if there are none, the keys
    /// with one value.
    pub(super) counted: Vec<String>,
    /// Requests per unit; `None` for unlimited.
    pub(super) quota: Option<(u32, Unit)>,
    pub(super) is_shadow: bool,
    pub(super) name: Option<String>,
    pub(super) replaces: Vec<String>,
}

/// One level of a descriptor on the way to a node.
#[derive(Clone)]
struct Step {
    key: String,
    words: String,
    /// `{"key": what its value must be}`
    entry: String,
    count: Count,
}

/// How the values that a step matches are counted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Count {
    /// There is one value.
    Fixed,
    /// All values share one count.
    Shared,
    /// Each value has its own count.
    Apart,
}

/// The most bytes of entries in all: the longest policy has this many, including everything else.
const MAX_ENTRIES: usize = 1 << 20;
/// The most bytes of values that are compared with patterns, so that a file that contains only
/// these two ends within a second.
const MAX_COMPARED: usize = 1 << 26;

/// All limits of a file, in its order.
pub(super) fn candidates(config: &Config, findings: &mut Findings) -> Vec<Candidate> {
    let mut found = CandidateSearch { candidates: Vec::new(), len: 0, compared: 0, findings };
    found.level(&config.descriptors, &mut Vec::new());
    if found.len > MAX_ENTRIES {
        let message = "the conditions of its limits take more than 1 MiB, the longest policy";
        found.findings.problem(config.at, message);
        return Vec::new();
    }
    if found.compared > MAX_COMPARED {
        let message = "has too many patterns and values on one level";
        found.findings.problem(config.at, message);
        return Vec::new();
    }
    found.candidates
}

struct CandidateSearch<'f> {
    candidates: Vec<Candidate>,
    /// Bytes of their entries.
    len: usize,
    /// Bytes of values that were compared with patterns.
    compared: usize,
    findings: &'f mut Findings,
}

impl CandidateSearch<'_> {
    fn level(&mut self, level: &[Descriptor], path: &mut Vec<Step>) {
        let size: usize = level.iter().map(|node| size_of(&node.value)).sum();
        for (i, node) in level.iter().enumerate() {
            if self.len > MAX_ENTRIES || self.compared > MAX_COMPARED {
                return;
            }
            if node.limit.is_none() && node.descriptors.is_empty() {
                continue;
            }
            if !matches!(node.value, Value::Exact(_)) {
                self.compared = self.compared.saturating_add(size);
            }
            let (before, after) = level.split_at(i);
            let others = || before.iter().chain(after.iter().skip(1)).filter(|o| o.key == node.key);
            let Some(not) = taken(node, before, others) else {
                let message = "is never reached: a pattern on its level matches every value";
                self.findings.note(Kind::Ignored, node.at, message);
                continue;
            };
            path.push(step(node, &not));
            if let Some(limit) = &node.limit {
                self.limit(node, limit, path);
            }
            self.level(&node.descriptors, path);
            path.pop();
        }
    }

    fn limit(&mut self, node: &Descriptor, limit: &Limit, path: &[Step]) {
        let entries = path.iter().map(|step| step.entry.as_str()).collect::<Vec<_>>().join(", ");
        self.len = self.len.saturating_add(entries.len());
        if limit.quota.is_none() {
            let message = "unlimited: no rule is for it, so no metric counts these requests";
            self.findings.note(Kind::NoEquivalent, limit.at, message);
        }
        let counted = self.counted(node, path);
        let words: Vec<&str> = path.iter().map(|step| step.words.as_str()).collect();
        self.candidates.push(Candidate {
            at: node.at,
            path: words.join("/"),
            entries: format!("[{entries}]"),
            counted,
            quota: limit.quota,
            is_shadow: node.is_shadow,
            name: limit.name.clone(),
            replaces: limit.replaces.clone(),
        });
    }

    /// The keys to count by, each once: the value of a key that occurs several times is all of its
    /// values.
    fn counted(&mut self, node: &Descriptor, path: &[Step]) -> Vec<String> {
        let mut keys: Vec<String> = Vec::new();
        for step in path.iter().filter(|step| step.count == Count::Apart) {
            if !keys.contains(&step.key) {
                keys.push(step.key.clone());
            }
        }
        let is_split = |step: &&Step| step.count == Count::Shared && keys.contains(&step.key);
        if let Some(step) = path.iter().find(is_split) {
            let key = shown(&step.key);
            let message = format!(
                "\"share_threshold\": {key} is in this descriptor twice and one of its values is counted separately, so all of them are"
            );
            self.findings.note(Kind::Differs, node.at, message);
        }
        if keys.is_empty() { fixed(path) } else { keys }
    }
}

/// The keys of a limit that does not separate clients: the keys with one value, which names its
/// count. Without a key all such limits would share one stored value, and every request would wait
/// for it.
fn fixed(path: &[Step]) -> Vec<String> {
    let is_shared =
        |key: &str| path.iter().any(|step| step.count == Count::Shared && step.key == key);
    let mut keys: Vec<String> = Vec::new();
    for step in path.iter().filter(|step| step.count == Count::Fixed) {
        // All values of a key are counted, so a key that others share is left out.
        if !keys.contains(&step.key) && !is_shared(&step.key) {
            keys.push(step.key.clone());
        }
    }
    keys
}

/// The cost of comparing a value.
const fn size_of(value: &Value) -> usize {
    match value {
        Value::Default => 1,
        Value::Exact(text) | Value::Pattern(text) => text.len().saturating_add(1),
    }
}

/// The part of the values of `node` that its siblings match; `None` when that is all of them.
fn taken<'l, O: Iterator<Item = &'l Descriptor>>(
    node: &Descriptor,
    before: &'l [Descriptor],
    others: impl Fn() -> O,
) -> Option<Vec<&'l Value>> {
    let exact = others().filter(|other| match &other.value {
        Value::Exact(text) => node.value.takes(text),
        Value::Default | Value::Pattern(_) => false,
    });
    let is_pattern = |other: &&Descriptor| matches!(other.value, Value::Pattern(_));
    let patterns: Vec<&Value> = match node.value {
        Value::Exact(_) => return Some(Vec::new()),
        Value::Default => others().filter(is_pattern).map(|other| &other.value).collect(),
        Value::Pattern(_) => {
            let same = before.iter().filter(|other| other.key == node.key);
            same.filter(is_pattern).map(|other| &other.value).collect()
        }
    };
    let is_all =
        |value: &&&Value| matches!(value, Value::Pattern(p) if p.bytes().all(|b| b == b'*'));
    if patterns.iter().any(|value| is_all(&value)) {
        return None;
    }
    Some(exact.map(|other| &other.value).chain(patterns).collect())
}

fn step(node: &Descriptor, not: &[&Value]) -> Step {
    let key = &node.key;
    let (words, count) = match &node.value {
        Value::Default => (key.clone(), Count::Apart),
        Value::Exact(text) => (format!("{key}={text}"), Count::Fixed),
        Value::Pattern(text) if node.shares => (format!("{key}={text}"), Count::Shared),
        Value::Pattern(text) => (format!("{key}={text}"), Count::Apart),
    };
    let entry = format!("{{ {}: {} }}", json!(key), wanted(&node.value, not));
    Step { key: key.clone(), words, entry, count }
}

/// The condition on a value, without the values that siblings match.
fn wanted(value: &Value, not: &[&Value]) -> String {
    let own = form(value);
    let not = match not {
        [] => return own.unwrap_or_else(|| "\"*\"".to_owned()),
        [one] => form(one).unwrap_or_default(),
        several => {
            let forms: Vec<String> = several.iter().filter_map(|value| form(value)).collect();
            format!("[{}]", forms.join(", "))
        }
    };
    let own = own.as_deref().and_then(|own| own.strip_prefix("{ ")?.strip_suffix(" }"));
    let comma = if own.is_some() { ", " } else { "" };
    format!("{{ {}{comma}\"not\": {not} }}", own.unwrap_or_default())
}

/// A value as a condition writes it; `None` for any value.
fn form(value: &Value) -> Option<String> {
    match value {
        Value::Default => None,
        Value::Exact(text) => Some(json!(text).to_string()),
        Value::Pattern(text) if text.bytes().all(|byte| byte == b'*') => None,
        Value::Pattern(text) => Some(match text.split_once('*') {
            Some((prefix, "")) => format!("{{ \"prefix\": {} }}", json!(prefix)),
            _ => format!("{{ \"like\": {} }}", json!(text)),
        }),
    }
}
