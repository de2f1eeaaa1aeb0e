//! Reads values one after the other, from texts with their places.
//!
//! Invariant: every mistake is noted with its place, and reading continues with some value that is
//! never used.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

use tollgate_policy::{Problem, Problems};

use crate::config::sources::Sources;

/// Takes values one by one, and notes mistakes.
pub(crate) struct Reader<'a> {
    pub(crate) sources: &'a Sources,
    problems: &'a mut Problems,
}

impl<'a> Reader<'a> {
    pub(crate) const fn new(sources: &'a Sources, problems: &'a mut Problems) -> Self {
        Self { sources, problems }
    }

    pub(crate) fn text(&self, name: &str) -> Option<String> {
        self.sources.get(name).map(|given| given.text).filter(|text| !text.is_empty())
    }

    pub(crate) fn wrong(&mut self, name: &str, message: &str) {
        let place = self.sources.get(name).map_or_else(|| name.to_owned(), |given| given.place);
        self.problems.0.push(Problem::new(&place, message.to_owned()));
    }

    /// The value that `read` returns for a setting; if it returns none, `fallback` and a mistake.
    pub(crate) fn read<T>(
        &mut self,
        name: &str,
        wanted: &str,
        fallback: T,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> T {
        let Some(text) = self.text(name) else { return fallback };
        read(&text).unwrap_or_else(|| {
            let shown: String = text.chars().take(80).collect();
            self.wrong(name, &format!("{shown:?} {wanted}"));
            fallback
        })
    }

    pub(crate) fn number(&mut self, name: &str, range: RangeInclusive<usize>) -> usize {
        let (least, most) = (*range.start(), *range.end());
        let wanted = format!("is not a whole number from {least} to {most}");
        self.read(name, &wanted, least, |text| text.parse().ok().filter(|n| range.contains(n)))
    }

    pub(crate) fn seconds(&mut self, name: &str, least: usize) -> Duration {
        let seconds = self.number(name, least..=3600);
        Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
    }

    pub(crate) fn address(&mut self, name: &str) -> SocketAddr {
        let wanted = "is not an address; use one such as \"127.0.0.1:8080\" or \"[::]:8080\"";
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 0));
        self.read(name, wanted, nowhere, |text| text.parse().ok())
    }
}
