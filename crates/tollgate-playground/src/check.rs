//! The compiler's report on a policy, with places in its text.
//!
//! Invariant: problems, warnings and words are the policy's own; only places are added.

use core::ops::Range;

use serde::Serialize;
use tollgate_policy::explain::words;
use tollgate_policy::{CompiledQuota, Policy, Problem, Problems, QuotaSet, Surface};

use crate::locate::locate;
use crate::outline::{Node, outline};
use crate::tokens::tokens;
use crate::units::Units;

/// The result of `check`.
#[derive(Debug, Default, Serialize)]
pub(crate) struct CheckResult {
    /// True when the policy can be enforced: there are no problems.
    pub(crate) ok: bool,
    /// The problems, in the order of the document.
    pub(crate) problems: Vec<Finding>,
    /// Legal parts that are hardly intended; none while there are problems.
    pub(crate) warnings: Vec<Finding>,
    /// Where the client's address comes from, in words; empty while there are problems.
    pub(crate) client_ip: String,
    /// The requests to which no rule applies, in words.
    pub(crate) exempt: Vec<String>,
    /// The rules in words, in the order of the document; none while there are problems.
    pub(crate) rules: Vec<RuleInWords>,
}

/// A problem or a warning, and the text to underline.
#[derive(Debug, Serialize)]
pub(crate) struct Finding {
    /// `rules[2].quotas[0].window`; empty for the document itself.
    pub(crate) path: String,
    /// UTF-16 units of the text; `from` is not after `to`.
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) message: String,
}

/// A rule in words: the output of `tollgate check`.
#[derive(Debug, Serialize)]
pub(crate) struct RuleInWords {
    name: String,
    applies: String,
    key: String,
    on_missing: Option<&'static str>,
    quotas: Vec<QuotaInWords>,
    tiers: Vec<TierInWords>,
    cost: String,
    charge: String,
    mode: String,
    action: String,
    on_failure: &'static str,
}

#[derive(Debug, Serialize)]
struct TierInWords {
    name: String,
    applies: String,
    quotas: Vec<QuotaInWords>,
}

#[derive(Debug, Serialize)]
struct QuotaInWords {
    name: String,
    /// `100 per minute, burst 20, gcra`
    words: String,
    /// `at most 119 in any minute`
    bound: String,
    algorithm: &'static str,
    limit: u64,
    window_ms: u64,
    burst: u64,
    max_in_window: Option<u64>,
}

/// The hint for a text that may be YAML.
const NO_YAML: &str = "; YAML is not read here; `tollgate compile --json` converts it to JSON";

/// Compiles `text` for the surface with this name.
pub(crate) fn check(text: &str, surface: &str) -> CheckResult {
    let mut places = Places::new(text);
    let Some(surface) = Surface::parse(surface) else {
        let names = Surface::ALL.map(Surface::name).join(", ");
        let problem = Problem::new("", format!("there is no such surface; use {names}"));
        return CheckResult {
            problems: places.of(&Problems(vec![problem])),
            ..CheckResult::default()
        };
    };
    match tollgate_language::compile(text, surface) {
        Err(mut problems) => {
            if !text.trim_start_matches('\u{feff}').trim_start().starts_with(['{', '[']) {
                problems.0.iter_mut().for_each(|problem| problem.message.push_str(NO_YAML));
            }
            CheckResult { problems: places.of(&problems), ..CheckResult::default() }
        }
        Ok(policy) => CheckResult {
            ok: true,
            problems: Vec::new(),
            warnings: places.of(policy.warnings()),
            client_ip: policy.explain().client(),
            exempt: policy.explain().exempt(),
            rules: (0..policy.rules().len()).filter_map(|i| rule(&policy, i)).collect(),
        },
    }
}

/// The places of one text.
struct Places<'t> {
    text: &'t str,
    units: Units<'t>,
    root: Option<Node>,
}

impl<'t> Places<'t> {
    fn new(text: &'t str) -> Self {
        Self { text, units: Units::new(text), root: outline(text, &tokens(text)) }
    }

    fn of(&mut self, problems: &Problems) -> Vec<Finding> {
        let broken = broken_at(self.text);
        let find = |Problem { path, message, .. }: &Problem| {
            let range = match (broken, &self.root) {
                (Some(at), _) => self.text.get(at..).map_or(at..at, |rest| first(at, rest)),
                (None, Some(root)) => locate(root, path),
                (None, None) => first(0, self.text),
            };
            let (from, to) = (self.units.of(range.start), self.units.of(range.end));
            Finding { path: path.clone(), from, to, message: message.clone() }
        };
        problems.0.iter().map(find).collect()
    }
}

/// The first character of `rest`, which begins at `at`.
fn first(at: usize, rest: &str) -> Range<usize> {
    at..at.saturating_add(rest.chars().next().map_or(0, char::len_utf8))
}

/// Where the text ceases to be JSON, in bytes; `None` when the whole text is JSON.
fn broken_at(text: &str) -> Option<usize> {
    let without_mark = text.strip_prefix('\u{feff}').unwrap_or(text);
    let skipped = text.len().saturating_sub(without_mark.len());
    let error = serde_json::from_str::<serde::de::IgnoredAny>(without_mark).err()?;
    let before: usize =
        without_mark.split_inclusive('\n').take(error.line().saturating_sub(1)).map(str::len).sum();
    // It counts the bytes that were read of the line, including the wrong one.
    let at = before.saturating_add(error.column()).saturating_sub(1);
    let at = at.saturating_add(skipped).min(text.len());
    Some((0..=at).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0))
}

fn rule(policy: &Policy, i: usize) -> Option<RuleInWords> {
    let (rule, words) = (policy.rules().get(i)?, policy.explain().rule(i)?);
    let set = |set: usize| policy.quota_sets().get(set);
    let tiers = words.tiers.into_iter().map(|tier| TierInWords {
        name: set(tier.quota_set).and_then(QuotaSet::tier).unwrap_or_default().to_owned(),
        applies: tier.applies,
        quotas: quotas(policy, set(tier.quota_set)),
    });
    Some(RuleInWords {
        name: rule.name().to_owned(),
        applies: words.applies,
        key: words.key,
        on_missing: words.on_missing,
        quotas: quotas(policy, set(words.quota_set)),
        tiers: tiers.collect(),
        cost: words.cost,
        charge: words.charge,
        mode: words.mode,
        action: words.action,
        on_failure: words.on_failure,
    })
}

fn quotas(policy: &Policy, set: Option<&QuotaSet>) -> Vec<QuotaInWords> {
    let rule = set.and_then(|set| policy.rules().get(set.rule()));
    let quota = |quota: &CompiledQuota| {
        let limiter = quota.limiter();
        QuotaInWords {
            name: quota.name().to_owned(),
            words: words::quota_with_source(quota),
            bound: words::bound_under(rule, limiter),
            algorithm: limiter.counts_by(),
            limit: limiter.limit(),
            window_ms: limiter.window().as_millis_ceil(),
            burst: limiter.capacity(),
            max_in_window: limiter.max_age().is_none().then(|| limiter.max_in_window()),
        }
    };
    set.map(|set| set.quotas().iter().map(quota).collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"{"version": 1, "rules": [
  {"name": "eäch😀", "key": ["client_ip"], "quotas": [{"limit": 10, "window": "1m"}]}
]}"#;

    /// The underlined text, counted as JavaScript does, and the reason.
    fn underlined(text: &str) -> Vec<(String, String)> {
        let units: Vec<u16> = text.encode_utf16().collect();
        let checked = check(text, "envoy");
        assert!(!checked.ok);
        let shown = |finding: Finding| {
            (String::from_utf16(&units[finding.from..finding.to]).unwrap(), finding.message)
        };
        checked.problems.into_iter().map(shown).collect()
    }

    // Guards: a policy in YAML that is rejected without a hint.
    #[test]
    fn yaml_is_refused_by_name() {
        for (text, is_yaml) in [("version: 1\nrules: []\n", true), ("# a", true), ("{", false)] {
            let [(_, message)] = &underlined(text)[..] else { panic!("one problem") };
            assert_eq!(message.ends_with(NO_YAML), is_yaml, "{message}");
        }
    }

    #[test]
    fn a_good_policy_is_explained_in_words() {
        let text = GOOD.replace("eäch😀", "each");
        let checked = check(&text, "envoy");
        assert!(checked.ok && checked.problems.is_empty());
        let [rule] = &checked.rules[..] else { panic!("{checked:?}") };
        assert_eq!((rule.name.as_str(), rule.key.as_str()), ("each", "client address"));
        assert_eq!(rule.quotas[0].words, "10 per minute, gcra");
        assert_eq!(rule.quotas[0].bound, "at most 19 in any minute");
        assert!(checked.client_ip.contains("the peer address"));
    }

    #[test]
    fn problems_are_where_their_values_are_whatever_the_letters_before() {
        let text = GOOD.replace("\"1m\"", "\"0s\"");
        let found = underlined(&text);
        assert_eq!(found[1].0, "\"window\": \"0s\"");
        assert!(found[1].1.starts_with("\"0s\" is too short"), "{found:?}");
        assert_eq!(found[0].0, "\"name\": \"eäch😀\"");
    }

    #[test]
    fn a_missing_field_is_reported_where_it_should_be() {
        let found = underlined(r#"{"version": 1, "rules": [{"name": "a"}]}"#);
        assert!(found.iter().all(|(text, _)| text == "{"), "{found:?}");
    }

    #[test]
    fn invalid_json_is_reported_where_it_begins() {
        for (text, wanted) in [
            ("{\"ä\": tru}", "}"),
            ("\u{feff}{\n  \"a\": 1,,\n}", ","),
            ("{\"a\": 1", "1"),
            ("", ""),
            ("{\"a\": 1} 😀", "😀"),
        ] {
            let found = underlined(text);
            assert_eq!(found.len(), 1);
            assert_eq!(found[0].0, wanted, "{text:?} {found:?}");
        }
    }

    #[test]
    fn a_surface_that_is_none_is_a_problem_and_not_a_crash() {
        let checked = check(GOOD, "moon");
        assert!(!checked.ok && checked.problems[0].message.contains("use envoy, worker"));
    }
}
