//! The differences between two policies: shown before a policy is put in force, and in short in the
//! history.
//!
//! Invariant: names and numbers of quotas only, never a value of the document, so nothing secret is
//! in it. The number of rows is bounded, and the number of omitted rows is included. The effect on
//! the counts follows from the identity of stored states: the rule's key, its name, the tier's and
//! the quota's.

use alloc::borrow::ToOwned;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use serde::Serialize;
use tollgate_policy::{CompiledQuota, Policy};

use crate::document::{Members, compact, rules, without_mark};
use crate::mask::{KeyName, keys};
use crate::store::policy::Summary;

/// The most rows of each kind in a response.
const MAX_ROWS: usize = 1000;

/// The most names of each kind in the history, and the most characters of one.
const MAX_NAMES: usize = 20;
const MAX_NAME: usize = 64;

/// The differences.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Changes {
    rules: RuleChanges,
    /// Members of the document other than `rules` and `jwt.keys`.
    settings: Vec<String>,
    jwt_keys: KeyChanges,
    quotas: Vec<QuotaChange>,
    /// The number of omitted rows.
    more: usize,
}

/// Changed rules, by their names.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
struct RuleChanges {
    added: Vec<String>,
    removed: Vec<String>,
    changed: Vec<RuleChange>,
}

/// Changed keys of tokens, by their names.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
struct KeyChanges {
    added: Vec<KeyName>,
    removed: Vec<KeyName>,
    changed: Vec<KeyName>,
}

/// A rule that has changed.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct RuleChange {
    name: String,
    /// Its members that have changed.
    members: Vec<String>,
}

/// A quota that has changed, or whose counts are not kept.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct QuotaChange {
    rule: String,
    tier: Option<String>,
    quota: String,
    before: Option<Parameters>,
    after: Option<Parameters>,
    counts: Counts,
}

/// The parameters of a quota.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Parameters {
    algorithm: &'static str,
    /// Of `sliding-buckets`.
    #[serde(skip_serializing_if = "Option::is_none")]
    buckets: Option<u16>,
    limit: u64,
    window_ms: u64,
    burst: u64,
    strict: bool,
    weighted: bool,
    /// The calendar whose windows it counts in; `window_ms` is then the longest of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    calendar: Option<String>,
}

/// The effect on the counts of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Counts {
    /// It is carried over.
    Kept,
    /// Every client starts again from zero.
    Fresh,
    /// It is no longer counted.
    Forgotten,
}

/// A document, and its compiled policy.
#[derive(Clone, Copy)]
pub(crate) struct Compiled<'a> {
    pub(crate) text: &'a str,
    /// `None` when it does not compile, as an old version may not.
    pub(crate) policy: Option<&'a Policy>,
}

impl Changes {
    /// The differences from `before` to `after`.
    pub(crate) fn between(before: Compiled<'_>, after: Compiled<'_>) -> Self {
        let mut changes = Self::default();
        changes.documents(without_mark(before.text), without_mark(after.text));
        changes.keys(before.text, after.text);
        changes.quotas(before.policy, after.policy);
        changes.bound();
        changes
    }

    /// The same in names, for the history.
    pub(crate) fn summary(&self) -> Summary {
        let mut more = self.more;
        let mut short = |names: &mut dyn Iterator<Item = &String>| {
            let all: Vec<&String> = names.collect();
            more = more.saturating_add(all.len().saturating_sub(MAX_NAMES));
            let first = all.into_iter().take(MAX_NAMES);
            first.map(|name| name.chars().take(MAX_NAME).collect::<String>()).collect::<Vec<_>>()
        };
        let keys = &self.jwt_keys;
        let has_keys =
            [&keys.added, &keys.removed, &keys.changed].into_iter().any(|k| !k.is_empty());
        let key_member = "jwt.keys".to_owned();
        let settings = self.settings.iter().chain(has_keys.then_some(&key_member));
        let mut summary = Summary {
            added: short(&mut self.rules.added.iter()),
            removed: short(&mut self.rules.removed.iter()),
            changed: short(&mut self.rules.changed.iter().map(|rule| &rule.name)),
            settings: short(&mut settings.into_iter()),
            more: 0,
        };
        summary.more = u32::try_from(more).unwrap_or(u32::MAX);
        summary
    }

    /// Rules and settings, as they are written.
    fn documents(&mut self, before: &str, after: &str) {
        let (Some(before), Some(after)) = (Members::of(before), Members::of(after)) else { return };
        let (old, new): (BTreeMap<_, _>, BTreeMap<_, _>) =
            (rules(&before).into_iter().collect(), rules(&after).into_iter().collect());
        let gone = old.keys().filter(|name| !new.contains_key(*name));
        self.rules.removed = gone.cloned().collect();
        for (name, rule) in new {
            let Some(earlier) = old.get(&name) else {
                self.rules.added.push(name);
                continue;
            };
            let members = different(Members::of(earlier), Members::of(&rule));
            if !members.is_empty() {
                self.rules.changed.push(RuleChange { name, members });
            }
        }
        let of_jwt = |root: &Members<'_>| root.get("jwt").map(ToOwned::to_owned);
        let (jwt_before, jwt_after) = (of_jwt(&before), of_jwt(&after));
        self.settings = different(Some(before), Some(after));
        self.settings.retain(|name| name != "rules" && name != "jwt");
        let members = |jwt: &Option<String>| -> Option<Vec<(String, String)>> {
            let members = Members::of(jwt.as_deref()?)?;
            let others = members.0.into_iter().filter(|(name, _)| name != "keys");
            Some(others.map(|(name, value)| (name, compact(value.get()))).collect())
        };
        if members(&jwt_before).unwrap_or_default() != members(&jwt_after).unwrap_or_default() {
            self.settings.push("jwt".to_owned());
        }
    }

    fn keys(&mut self, before: &str, after: &str) {
        let (old, new): (BTreeMap<_, _>, BTreeMap<_, _>) =
            (keys(before).into_iter().collect(), keys(after).into_iter().collect());
        self.jwt_keys.removed =
            old.keys().filter(|name| !new.contains_key(*name)).cloned().collect();
        for (name, key) in new {
            match old.get(&name) {
                None => self.jwt_keys.added.push(name),
                Some(earlier) if compact(earlier) != compact(key) => {
                    self.jwt_keys.changed.push(name)
                }
                Some(_) => {}
            }
        }
    }

    fn quotas(&mut self, before: Option<&Policy>, after: Option<&Policy>) {
        let (mut old, new) = (quotas(before), quotas(after));
        for (name, quota) in new {
            let earlier = old.remove(&name);
            let is_kept = earlier.as_ref().is_some_and(|earlier| earlier.key == quota.key);
            if is_kept && earlier.as_ref() == Some(&quota) {
                continue;
            }
            let counts = if is_kept { Counts::Kept } else { Counts::Fresh };
            let before = earlier.map(|earlier| earlier.parameters);
            self.quotas.push(QuotaChange::new(name, before, Some(quota.parameters), counts));
        }
        for (name, quota) in old {
            let before = Some(quota.parameters);
            self.quotas.push(QuotaChange::new(name, before, None, Counts::Forgotten));
        }
    }

    /// Keeps this many rows, and counts the others.
    fn bound(&mut self) {
        fn cut<T>(rows: &mut Vec<T>, more: &mut usize) {
            *more = more.saturating_add(rows.len().saturating_sub(MAX_ROWS));
            rows.truncate(MAX_ROWS);
        }
        let (rules, keys, more) = (&mut self.rules, &mut self.jwt_keys, &mut self.more);
        cut(&mut rules.added, more);
        cut(&mut rules.removed, more);
        cut(&mut rules.changed, more);
        cut(&mut keys.added, more);
        cut(&mut keys.removed, more);
        cut(&mut keys.changed, more);
        cut(&mut self.quotas, more);
    }
}

/// Rule, tier and name of a quota: with the rule's key, the identity of its states.
type QuotaName = (String, Option<String>, String);

impl QuotaChange {
    fn new(
        (rule, tier, quota): QuotaName,
        before: Option<Parameters>,
        after: Option<Parameters>,
        counts: Counts,
    ) -> Self {
        Self { rule, tier, quota, before, after, counts }
    }
}

/// A quota, and the identity of the key that it counts by.
#[derive(PartialEq, Eq)]
struct Counted {
    key: u64,
    parameters: Parameters,
}

fn quotas(policy: Option<&Policy>) -> BTreeMap<QuotaName, Counted> {
    let mut all = BTreeMap::new();
    let Some(policy) = policy else { return all };
    for set in policy.quota_sets() {
        let Some(rule) = policy.rules().get(set.rule()) else { continue };
        let key = policy.groups().get(rule.group()).map_or(0, |group| group.identity());
        for quota in set.quotas() {
            let tier = set.tier().map(ToOwned::to_owned);
            let name = (rule.name().to_owned(), tier, quota.name().to_owned());
            all.insert(name, Counted { key, parameters: Parameters::of(quota) });
        }
    }
    all
}

impl Parameters {
    fn of(quota: &CompiledQuota) -> Self {
        let (parameters, algorithm) = (quota.limiter().quota(), quota.limiter().algorithm());
        Self {
            algorithm: quota.limiter().counts_by(),
            buckets: algorithm.buckets(),
            limit: parameters.limit(),
            window_ms: parameters.window().as_millis_ceil(),
            burst: parameters.burst(),
            strict: parameters.is_strict(),
            weighted: algorithm.is_weighted(),
            calendar: quota.limiter().calendar().map(|calendar| format!("{calendar}")),
        }
    }
}

/// The names of the members that differ between two objects, in alphabetical order.
fn different(before: Option<Members<'_>>, after: Option<Members<'_>>) -> Vec<String> {
    let members = |object: Option<Members<'_>>| -> BTreeMap<String, String> {
        let all = object.map(|members| members.0).unwrap_or_default();
        all.into_iter().map(|(name, value)| (name, compact(value.get()))).collect()
    };
    let (before, after) = (members(before), members(after));
    let all = before.keys().chain(after.keys().filter(|name| !before.contains_key(*name)));
    let mut names: Vec<String> =
        all.filter(|name| before.get(*name) != after.get(*name)).cloned().collect();
    names.sort();
    names
}
