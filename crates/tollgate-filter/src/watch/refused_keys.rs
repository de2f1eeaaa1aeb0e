//! The keys that are denied most, in bounded memory: for a line in the log.
//!
//! Space-Saving (Metwally, Agrawal and El Abbadi, "Efficient computation of frequent and top-k
//! elements in data streams", 2005): a key that has no place takes that of the one with the fewest
//! denials, and its count. Invariant: [`PLACES`] keys, however many are denied; every key with more
//! than that part of all denials is among them; a count is too high by at most the count that was
//! taken over, which is stored with it. No key is here, only its keyed hash, as clients see it
//! (`pk`). Deliberately absent: the clock and the log.

use core::cmp::Reverse;
use core::fmt::Write;

use tollgate_policy::pk_text;

use crate::watch::labels::Labels;

/// Keys that are counted.
const PLACES: usize = 64;

/// Keys in a line.
const TOLD: usize = 5;

/// The denials of one worker since the last line.
#[derive(Default)]
pub struct RefusedKeys {
    all: u64,
    places: Vec<Place>,
}

/// The denials of one key by one rule.
#[derive(Clone, Copy)]
struct Place {
    rule: usize,
    pk: u64,
    count: u64,
    /// How many of them may be another key's.
    taken_over: u64,
}

impl RefusedKeys {
    /// The rule of this index denied a request; `key` is its key, if it has one.
    pub fn add(&mut self, rule: usize, pk: Option<u64>) {
        self.all = self.all.saturating_add(1);
        let Some(pk) = pk else { return };
        if let Some(place) = self.places.iter_mut().find(|it| it.pk == pk && it.rule == rule) {
            place.count = place.count.saturating_add(1);
            return;
        }
        let place = Place { rule, pk, count: 1, taken_over: 0 };
        if self.places.len() < PLACES {
            self.places.push(place);
        } else if let Some(least) = self.places.iter_mut().min_by_key(|place| place.count) {
            let taken_over = least.count;
            *least = Place { count: taken_over.saturating_add(1), taken_over, ..place };
        }
    }

    /// True when no request was denied.
    pub const fn is_empty(&self) -> bool {
        self.all == 0
    }

    /// The log line about this many seconds: how many were denied, and the keys that were denied
    /// most often.
    pub fn line(mut self, labels: &Labels, seconds: u64) -> String {
        let mut line = format!("{} refused in {seconds} s", self.all);
        for i in 0..TOLD {
            // The next of those few is selected each time, instead of a sort of its own.
            let places = self.places.iter().enumerate();
            let next = places.min_by_key(|(_, place)| Reverse(place.count)).map(|(at, _)| at);
            let Some(next) = next else { break };
            let place = self.places.remove(next);
            let before = if i == 0 { "; most of them:" } else { "," };
            let (rule, pk) = (labels.rule(place.rule), pk_text(place.pk));
            let least = place.count.saturating_sub(place.taken_over);
            let _ = write!(line, "{before} rule={rule} pk={pk} {least}"); // a text accepts every write
            if place.taken_over > 0 {
                let _ = write!(line, " to {}", place.count);
            }
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use tollgate_policy::Surface;

    use super::*;

    fn labels() -> Labels {
        let quotas = r#""key": [], "quotas": [{"limit": 1, "window": "1s"}]"#;
        let rules = format!(r#"{{"name": "log in", {quotas}}}, {{"name": "b", {quotas}}}"#);
        let document = format!(r#"{{"version": 1, "rules": [{rules}]}}"#);
        Labels::new(&tollgate_language::compile(&document, Surface::Envoy).expect("a policy"))
    }

    // Guards: memory that a sprayer of keys fills, and a client that hides behind one. 10,000 keys
    // are denied once each, and in between one of them 500 times, another 300 times.
    #[test]
    fn who_is_refused_most_is_found_among_many() {
        let mut keys = RefusedKeys::default();
        for i in 0..10_000_u64 {
            keys.add(0, Some(1_000_000 + i.wrapping_mul(0x9E37_79B9)));
            if i % 20 == 0 {
                keys.add(1, Some(7));
            }
            if i % 33 == 0 {
                keys.add(0, Some(8));
            }
        }
        assert_eq!(keys.places.len(), PLACES);
        for (pk, rule, count) in [(7, 1, 500), (8, 0, 304)] {
            let place = keys.places.iter().find(|it| it.pk == pk && it.rule == rule);
            let place = place.expect("it has a place");
            assert!((place.count - place.taken_over..=place.count).contains(&count), "{pk}");
        }
        let line = keys.line(&labels(), 60);
        assert!(line.starts_with("10804 refused in 60 s; most of them: rule="), "{line}");
        assert!(line.contains("rule=b pk=AAAAAAAAAAc= "), "{line}");
        assert_eq!(line.matches("pk=").count(), TOLD);
    }

    #[test]
    fn few_are_counted_exactly_and_a_refusal_without_a_key_too() {
        let mut keys = RefusedKeys::default();
        assert!(keys.is_empty());
        keys.add(0, None);
        keys.add(0, Some(1));
        keys.add(0, Some(1));
        keys.add(1, Some(1));
        assert!(!keys.is_empty());
        let expected = "4 refused in 7 s; most of them: rule=log_in pk=AAAAAAAAAAE= 2, \
                        rule=b pk=AAAAAAAAAAE= 1";
        assert_eq!(keys.line(&labels(), 7), expected);
    }
}
