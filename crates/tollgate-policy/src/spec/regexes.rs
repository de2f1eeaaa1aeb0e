//! All regular expressions of a policy.
//!
//! Invariant: expressions with the same text share one program.

use alloc::vec::Vec;

use crate::spec::action::Action;
use crate::spec::bounds::MAX_REGEXES;
use crate::spec::conditions::{Condition, Conditions};
use crate::spec::descriptor::{EntryMatcher, Form};
use crate::spec::policy::PolicySpec;
use crate::spec::regex::Regex;
use crate::spec::wanted::Matcher;
use tollgate_http_syntax::sort::sort_by;

impl PolicySpec {
    /// All its regular expressions, in conditions and in keys.
    fn regexes(&mut self) -> impl Iterator<Item = &mut Regex> {
        let of_rules = self.rules.iter_mut().flat_map(|rule| {
            let tiers = rule.tiers.iter_mut().flat_map(|tier| &mut tier.when);
            let priorities = match &mut rule.terms.action {
                Action::Delay(delay) => delay.priority.as_mut_slice(),
                Action::Deny(_) | Action::Mark(_) | Action::Respond(_) => &mut [],
            };
            rule.terms.when.iter_mut().chain(&mut rule.terms.unless).chain(tiers).chain(priorities)
        });
        let of_deny = self.deny.iter_mut().flat_map(|it| it.when.iter_mut().chain(&mut it.unless));
        let conditions = self.exempt.iter_mut().chain(of_rules).chain(of_deny);
        let parts = self.groups.iter_mut().flat_map(|group| &mut group.key).chain(&mut self.tenant);
        conditions.flat_map(Conditions::regexes).chain(parts.filter_map(|part| part.regex.as_mut()))
    }

    /// The number of its regular expressions whose texts differ.
    pub fn count_regexes(&mut self) -> usize {
        let mut texts: Vec<&str> = self.regexes().map(|regex| regex.text()).collect();
        sort_by(&mut texts, Ord::cmp);
        texts.dedup();
        texts.len()
    }

    /// Gives every regular expression its program: one for all with the same text. False for more
    /// expressions than a policy may have, or where there are none in this build.
    pub(crate) fn compile_regexes(&mut self) -> bool {
        let mut programs = Programs::default();
        self.regexes().all(|regex| programs.give(regex))
    }
}

/// The programs of a policy: one for all expressions with the same text.
#[derive(Debug, Default)]
pub(crate) struct Programs(Vec<Regex>);

impl Programs {
    /// Gives `regex` its program; false for more than [`MAX_REGEXES`] different expressions.
    pub(crate) fn give(&mut self, regex: &mut Regex) -> bool {
        if let Some(known) = self.0.iter().find(|known| **known == *regex) {
            regex.share(known);
            return true;
        }
        if regex.build().is_err() {
            return false;
        }
        self.0.push(regex.clone());
        self.0.len() <= MAX_REGEXES
    }
}

impl Conditions {
    /// Their regular expressions.
    fn regexes(&mut self) -> impl Iterator<Item = &mut Regex> {
        self.0.iter_mut().flat_map(Condition::regexes)
    }
}

impl Condition {
    /// Its regular expressions.
    fn regexes(&mut self) -> Vec<&mut Regex> {
        match self {
            Self::Header(_, wanted) | Self::Query(_, wanted) => {
                wanted.items_mut().filter_map(Matcher::regex).collect()
            }
            Self::Descriptor(_, wanted) => {
                wanted.iter_mut().flat_map(EntryMatcher::regexes).collect()
            }
            Self::Entries(list) | Self::Beside(list) => {
                let entries = list.iter_mut().flat_map(|entries| &mut entries.0);
                entries.flat_map(|it| &mut it.wanted).flat_map(EntryMatcher::regexes).collect()
            }
            Self::Methods(_) | Self::Hosts(_) | Self::Paths(_) | Self::ClientCidrs(_) => Vec::new(),
            Self::Routes(_) | Self::Countries(_) | Self::Asns(_) | Self::Domain(_) => Vec::new(),
        }
    }
}

impl EntryMatcher {
    /// Its regular expressions.
    fn regexes(&mut self) -> impl Iterator<Item = &mut Regex> {
        [&mut self.form].into_iter().chain(&mut self.not).filter_map(Form::regex)
    }
}

impl Form {
    const fn regex(&mut self) -> Option<&mut Regex> {
        match self {
            Self::Plain(matcher) => matcher.regex(),
            Self::Like(_) => None,
        }
    }
}

impl Matcher {
    /// Its regular expression.
    const fn regex(&mut self) -> Option<&mut Regex> {
        match self {
            Self::Match(regex) => Some(regex),
            Self::Present | Self::Exact(_) | Self::Prefix(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn one_program_serves_equal_texts_and_their_number_is_bounded() {
        let mut programs = Programs::default();
        for round in 0..3 {
            for i in 0..MAX_REGEXES {
                let mut regex = Regex::new(&i.to_string()).unwrap();
                assert!(programs.give(&mut regex), "{round} {i}");
                assert!(regex.is_match(b"0123456789") || i > 9, "{i}");
            }
            assert_eq!(programs.0.len(), MAX_REGEXES);
        }
        assert!(!programs.give(&mut Regex::new("a").unwrap()));
    }
}
