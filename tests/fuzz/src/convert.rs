//! Any texts as configurations of `envoyproxy/ratelimit`, the input of `tollgate convert`.
//!
//! A corpus file is one file of a configuration or several, with a line `===` between them.
//! Invariant checked: for any input there are problems with messages, or a policy that a server
//! accepts without a warning; and at most one of its rules applies to any descriptor. A crate that
//! includes this module has the command line's `ratelimit` at its root.

use std::borrow::Cow;
use std::net::IpAddr;

use crate::ratelimit::{Converted, File, Kind, convert};
use tollgate_policy::{Entry, Facts, Plan, Policy, Surface};

/// The most bytes of a file.
const MOST: usize = 1 << 20;
/// The number of words of the configuration from which descriptors are built.
const WORDS: usize = 12;

pub fn check(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let file = |(number, text): (usize, &str)| File {
        name: format!("{number}.yaml"),
        text: text.to_owned(),
    };
    let files = text.split("\n===\n").enumerate().map(file).collect();
    let Converted { policy, findings } = convert(files, &[], MOST);
    let problems = findings.iter().filter(|finding| finding.kind == Kind::Problem).count();
    assert_eq!(policy.is_none(), problems > 0);
    assert!(findings.len() < 4_000);
    for finding in &findings {
        let len = finding.message.len();
        assert!((1..2_000).contains(&len), "{}", finding.message);
        assert!(finding.place.is_none_or(|place| place.line > 0 && place.column > 0));
    }
    let Some(document) = policy else { return };
    let policy = tollgate_language::compile(&document, Surface::Server).expect("a policy");
    assert!(policy.warnings().0.is_empty() || policy.rules().is_empty(), "{}", policy.warnings());
    at_most_one_rule(&text, &policy);
}

/// Every descriptor of two words of the text, and of two pairs of them.
fn at_most_one_rule(text: &str, policy: &Policy) {
    let is_border = |c: char| c.is_whitespace() || "{}[],:\"'-".contains(c);
    let mut words: Vec<&str> = text.split(is_border).filter(|word| !word.is_empty()).collect();
    words.sort_unstable();
    words.dedup();
    words.truncate(WORDS);
    words.push("");
    let mut plan = Plan::new();
    for domain in &words {
        for (i, key) in words.iter().enumerate() {
            for value in &words {
                let next = words.get(i + 1).unwrap_or(key);
                for entries in [vec![(*key, *value)], vec![(*key, *value), (*next, *value)]] {
                    let asked = DescriptorRequest { domain, entries };
                    policy.plan(&asked, &mut plan);
                    let rules = plan.outcome(policy).rules().count();
                    assert!(rules <= 1, "{rules} rules are for {:?} of {domain}", asked.entries);
                }
            }
        }
    }
}

/// One descriptor, without other facts.
struct DescriptorRequest<'w> {
    domain: &'w str,
    entries: Vec<(&'w str, &'w str)>,
}

impl Facts for DescriptorRequest<'_> {
    fn method(&self) -> Cow<'_, [u8]> {
        Cow::default()
    }
    fn target(&self) -> Cow<'_, [u8]> {
        Cow::default()
    }
    fn header(&self, _: &str) -> Option<Cow<'_, [u8]>> {
        None
    }
    fn peer(&self) -> Option<IpAddr> {
        None
    }
    fn domain(&self) -> Option<Cow<'_, [u8]>> {
        Some(self.domain.as_bytes().into())
    }
    fn entry(&self, index: usize) -> Option<Entry<'_>> {
        let (key, value) = self.entries.get(index)?;
        Some(Entry::new(key.as_bytes(), value.as_bytes()))
    }
}
