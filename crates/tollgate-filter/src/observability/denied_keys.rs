//! The keys that are denied most, in bounded memory: for a line in the log.
//!
//! Space-Saving (Metwally, Agrawal and El Abbadi, "Efficient computation of frequent and top-k
//! elements in data streams", 2005): a key that has no slot takes that of the one with the fewest
//! denials, and its count. Invariant: [`SLOTS`] keys, however many are denied; every key with more
//! than that part of all denials is among them; a count is too high by at most the count that was
//! taken over, which is stored with it. No key is here, only its keyed hash, as clients see it
//! (`pk`). Deliberately absent: the clock and the log.

use core::cmp::Reverse;
use core::fmt::Write;

use tollgate_policy::pk_text;

use crate::observability::labels::Labels;

/// Keys that are counted.
const SLOTS: usize = 64;

/// Keys in a line.
const MAX_REPORTED: usize = 5;

/// The denials of one worker since the last line.
#[derive(Default)]
pub struct DeniedKeys {
    all: u64,
    slots: Vec<Slot>,
}

/// The denials of one key by one rule.
#[derive(Clone, Copy)]
struct Slot {
    rule: usize,
    pk: u64,
    count: u64,
    /// How many of them may be another key's.
    inherited: u64,
}

impl DeniedKeys {
    /// A request was denied: by the rule of this index, for the key of this hash, if it has one.
    pub fn add(&mut self, key: Option<(usize, u64)>) {
        self.all = self.all.saturating_add(1);
        let Some((rule, pk)) = key else { return };
        if let Some(slot) = self.slots.iter_mut().find(|it| it.pk == pk && it.rule == rule) {
            slot.count = slot.count.saturating_add(1);
            return;
        }
        let slot = Slot { rule, pk, count: 1, inherited: 0 };
        if self.slots.len() < SLOTS {
            self.slots.push(slot);
        } else if let Some(least) = self.slots.iter_mut().min_by_key(|slot| slot.count) {
            let inherited = least.count;
            *least = Slot { count: inherited.saturating_add(1), inherited, ..slot };
        }
    }

    /// True when no request was denied.
    pub const fn is_empty(&self) -> bool {
        self.all == 0
    }

    /// The log line about this many seconds: how many were denied, and the keys that were denied
    /// most often.
    pub fn line(mut self, labels: &Labels, seconds: u64) -> String {
        let mut line = format!("{} denied in {seconds} s", self.all);
        for i in 0..MAX_REPORTED {
            // The next of those few is selected each time, instead of a sort of its own.
            let slots = self.slots.iter().enumerate();
            let next = slots.min_by_key(|(_, slot)| Reverse(slot.count)).map(|(at, _)| at);
            let Some(next) = next else { break };
            let slot = self.slots.remove(next);
            let before = if i == 0 { "; most of them:" } else { "," };
            let (rule, pk) = (labels.rule(slot.rule), pk_text(slot.pk));
            let least = slot.count.saturating_sub(slot.inherited);
            let _ = write!(line, "{before} rule={rule} pk={pk} {least}"); // a text accepts every write
            if slot.inherited > 0 {
                let _ = write!(line, " to {}", slot.count);
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
    fn the_key_that_is_denied_most_is_found_among_many() {
        let mut keys = DeniedKeys::default();
        for i in 0..10_000_u64 {
            keys.add(Some((0, 1_000_000 + i.wrapping_mul(0x9E37_79B9))));
            if i % 20 == 0 {
                keys.add(Some((1, 7)));
            }
            if i % 33 == 0 {
                keys.add(Some((0, 8)));
            }
        }
        assert_eq!(keys.slots.len(), SLOTS);
        for (pk, rule, count) in [(7, 1, 500), (8, 0, 304)] {
            let slot = keys.slots.iter().find(|it| it.pk == pk && it.rule == rule);
            let slot = slot.expect("it has a slot");
            assert!((slot.count - slot.inherited..=slot.count).contains(&count), "{pk}");
        }
        let line = keys.line(&labels(), 60);
        assert!(line.starts_with("10804 denied in 60 s; most of them: rule="), "{line}");
        assert!(line.contains("rule=b pk=AAAAAAAAAAc= "), "{line}");
        assert_eq!(line.matches("pk=").count(), MAX_REPORTED);
    }

    #[test]
    fn few_are_counted_exactly_and_a_refusal_without_a_key_too() {
        let mut keys = DeniedKeys::default();
        assert!(keys.is_empty());
        keys.add(None);
        keys.add(Some((0, 1)));
        keys.add(Some((0, 1)));
        keys.add(Some((1, 1)));
        assert!(!keys.is_empty());
        let expected = "4 denied in 7 s; most of them: rule=log_in pk=AAAAAAAAAAE= 2, \
                        rule=b pk=AAAAAAAAAAE= 1";
        assert_eq!(keys.line(&labels(), 7), expected);
    }
}
