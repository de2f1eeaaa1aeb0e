//! The sums of the counts of all isolates, and the pages in which they are stored.
//!
//! Invariant: a sum never goes down while its series is kept. A series is kept until it has had no
//! count for a day. When [`MAX_SERIES`] are kept, new series are counted as rule
//! [`OTHER`](super::OTHER). Only changed pages are written: a page contains 256 series, so most
//! policies need one row.
//!
//! Deliberately absent: the store. Its owner asks for the changed pages, writes them together, and
//! sends no response before that.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use tollgate_storage::{Bytes, push_block};

use super::delta::{Delta, VERSION};
use super::policy::PolicyInForce;
use super::series::{MAX_SERIES, Series};

/// Series in one page.
const PAGE: u16 = 256;

/// An isolate whose last delta is older may be counted twice if it sends that again.
const FORGET_ISOLATE_AFTER_MIN: u32 = 60;

/// The most isolates whose sequences are remembered; the isolate that has been silent the longest
/// is forgotten.
const MAX_ISOLATES: usize = 4096;

/// A series without a count for a day is dropped.
const DROP_SERIES_AFTER_MIN: u32 = 24 * 60;

/// The result of adding a delta.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    /// It was added.
    Now,
    /// It had been added before.
    Before,
}

/// The sums.
#[derive(Debug, Default)]
pub struct Sums {
    pub(super) series: BTreeMap<Series, Cell>,
    isolates: Vec<Isolate>,
    pub(super) policy: PolicyInForce,
    /// The number of series of each page, and whether it must be written.
    pages: Vec<Page>,
    swept_at_min: u32,
}

/// One sum.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cell {
    pub(super) value: u64,
    /// The time of its last count, in minutes since 1970.
    seen_min: u32,
    page: u16,
}

#[derive(Clone, Copy, Debug)]
struct Isolate {
    id: u64,
    sequence: u64,
    seen_min: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Page {
    series: u16,
    changed: bool,
}

impl Sums {
    /// Adds the counts of an isolate, at `now_s` seconds since 1970, unless they were added before.
    pub fn add(&mut self, delta: &Delta, now_s: u64) -> Added {
        let now_min = minutes(now_s);
        self.sweep(now_min);
        let isolate = Isolate { id: delta.isolate, sequence: delta.sequence, seen_min: now_min };
        match self.isolates.iter_mut().find(|known| known.id == isolate.id) {
            Some(known) if known.sequence >= delta.sequence => return Added::Before,
            Some(known) => *known = isolate,
            None => self.isolates.push(isolate),
        }
        if delta.policy.version >= self.policy.version {
            self.policy = delta.policy;
        }
        self.touch(0);
        for (series, count) in &delta.counts {
            self.count(series, *count, now_min);
        }
        Added::Now
    }

    /// The numbers of the pages to write; call [`Sums::saved`] when they are written.
    pub fn changed(&self) -> impl Iterator<Item = u16> {
        (0_u16..).zip(&self.pages).filter(|(_, page)| page.changed).map(|(number, _)| number)
    }

    /// The bytes of a page.
    #[must_use]
    pub fn page(&self, number: u16) -> Vec<u8> {
        let mut bytes = vec![VERSION];
        if number == 0 {
            self.policy.encode(&mut bytes);
            let count = u16::try_from(self.isolates.len()).unwrap_or(u16::MAX);
            bytes.extend(count.to_le_bytes());
            for isolate in self.isolates.iter().take(usize::from(count)) {
                bytes.extend(isolate.id.to_le_bytes());
                bytes.extend(isolate.sequence.to_le_bytes());
                bytes.extend(isolate.seen_min.to_le_bytes());
            }
        }
        for (series, cell) in self.series.iter().filter(|(_, cell)| cell.page == number) {
            push_block(series.as_bytes(), &mut bytes);
            bytes.extend(cell.value.to_le_bytes());
            bytes.extend(cell.seen_min.to_le_bytes());
        }
        bytes
    }

    /// Takes a stored page; `None`, and nothing of it is taken, when these bytes are not a page.
    /// Every page is loaded before anything is added.
    #[must_use]
    pub fn load(&mut self, number: u16, bytes: &[u8]) -> Option<()> {
        let mut reader = Bytes(bytes);
        if reader.u8()? != VERSION {
            return None;
        }
        let mut head = None;
        if number == 0 {
            let policy = PolicyInForce::decode(&mut reader)?;
            let count = reader.u16()?;
            let isolate = |_| {
                let (id, sequence) = (reader.u64()?, reader.u64()?);
                Some(Isolate { id, sequence, seen_min: reader.u32()? })
            };
            let isolates: Option<Vec<_>> = (0..count).map(isolate).collect();
            head = Some((policy, isolates?));
        }
        let mut found = Vec::new();
        while !reader.0.is_empty() {
            let series = Series::parse(reader.block()?);
            let cell = Cell { value: reader.u64()?, seen_min: reader.u32()?, page: number };
            // Series of a later version, also from before a roll-back, are left out.
            found.extend(series.map(|series| (series, cell)));
        }
        if usize::from(number) >= MAX_SERIES || found.len() > usize::from(PAGE) {
            return None;
        }
        if let Some((policy, isolates)) = head {
            (self.policy, self.isolates) = (policy, isolates);
        }
        for (series, cell) in found {
            if !self.series.contains_key(&series) {
                self.page_mut(number).series = self.page_mut(number).series.saturating_add(1);
                self.series.insert(series, cell);
            }
        }
        Some(())
    }

    /// Everything is written.
    pub fn saved(&mut self) {
        self.pages.iter_mut().for_each(|page| page.changed = false);
    }

    /// Isolates that sent something within the minute before `now_s`, or the one before that.
    pub(super) fn isolates_at(&self, now_s: u64) -> u64 {
        let since = minutes(now_s).saturating_sub(1);
        let lately = self.isolates.iter().filter(|isolate| isolate.seen_min >= since);
        u64::try_from(lately.count()).unwrap_or(u64::MAX)
    }

    fn count(&mut self, series: &Series, count: u64, now_min: u32) {
        if count == 0 {
            return;
        }
        let has_room = self.series.len() < MAX_SERIES || self.series.contains_key(series);
        // There are few of those: one for each result and label without a name.
        let series = if has_room { series.clone() } else { series.other() };
        if let Some(cell) = self.series.get_mut(&series) {
            cell.value = cell.value.saturating_add(count);
            // A clock that was set back must not make it older.
            cell.seen_min = cell.seen_min.max(now_min);
            let page = cell.page;
            return self.touch(page);
        }
        let page = self.page_with_room();
        self.page_mut(page).series = self.page_mut(page).series.saturating_add(1);
        self.series.insert(series, Cell { value: count, seen_min: now_min, page });
        self.touch(page);
    }

    /// Forgets series without recent counts, once an hour.
    fn sweep(&mut self, now_min: u32) {
        if self.isolates.len() >= MAX_ISOLATES {
            let quietest = (0..).zip(&self.isolates).min_by_key(|(_, isolate)| isolate.seen_min);
            if let Some((quietest, _)) = quietest {
                self.isolates.swap_remove(quietest);
            }
        }
        if now_min < self.swept_at_min.saturating_add(60) {
            return;
        }
        self.swept_at_min = now_min;
        let is_young = |seen: u32, most: u32| now_min.saturating_sub(seen) <= most;
        self.isolates.retain(|isolate| is_young(isolate.seen_min, FORGET_ISOLATE_AFTER_MIN));
        let pages = &mut self.pages;
        self.series.retain(|_, cell| {
            let stays = is_young(cell.seen_min, DROP_SERIES_AFTER_MIN);
            if let (false, Some(page)) = (stays, pages.get_mut(usize::from(cell.page))) {
                *page = Page { series: page.series.saturating_sub(1), changed: true };
            }
            stays
        });
    }

    fn touch(&mut self, page: u16) {
        self.page_mut(page).changed = true;
    }

    fn page_with_room(&self) -> u16 {
        let full = self.pages.iter().take_while(|page| page.series >= PAGE).count();
        u16::try_from(full).unwrap_or(u16::MAX)
    }

    /// The page, made if there is none.
    fn page_mut(&mut self, number: u16) -> &mut Page {
        let place = usize::from(number);
        if self.pages.len() <= place {
            self.pages.resize(place.saturating_add(1), Page::default());
        }
        #[expect(clippy::indexing_slicing, reason = "the line before made it")]
        &mut self.pages[place]
    }
}

/// Whole minutes; exact until the year 10,135.
fn minutes(seconds: u64) -> u32 {
    u32::try_from(seconds / 60).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use alloc::format;
    use alloc::string::String;

    use super::*;
    use crate::metrics::Family;
    use crate::store::policy::Source;

    const NOW: u64 = 1_780_000_000;

    fn rule(name: &str, result: &str) -> Series {
        Series::new(Family::Decisions, &[name, "", "", result])
    }

    fn delta(isolate: u64, sequence: u64, counts: &[(Series, u64)]) -> Delta {
        Delta { isolate, sequence, policy: PolicyInForce::default(), counts: counts.to_vec() }
    }

    fn value(sums: &Sums, series: &Series) -> Option<u64> {
        sums.series.get(series).map(|cell| cell.value)
    }

    /// Stored and read again, as by an object that was evicted.
    fn again(sums: &Sums) -> Sums {
        let mut read = Sums::default();
        let pages = u16::try_from(sums.pages.len()).expect("few");
        for number in 0..pages {
            assert_eq!(read.load(number, &sums.page(number)), Some(()), "{number}");
        }
        read
    }

    #[test]
    fn a_delta_that_comes_again_is_not_counted_again_even_by_another_object() {
        let allowed = rule("api", "allowed");
        let mut sums = Sums::default();
        let first = delta(1, 1, &[(allowed.clone(), 5)]);
        assert_eq!(sums.add(&first, NOW), Added::Now);
        assert_eq!(sums.add(&first, NOW), Added::Before);
        let mut sums = again(&sums);
        assert_eq!(sums.add(&first, NOW), Added::Before);
        assert_eq!(sums.add(&delta(2, 1, &[(allowed.clone(), 7)]), NOW), Added::Now);
        assert_eq!(sums.add(&delta(1, 2, &[(allowed.clone(), 1)]), NOW), Added::Now);
        assert_eq!(sums.add(&delta(1, 1, &[(allowed.clone(), 5)]), NOW), Added::Before);
        assert_eq!(value(&sums, &allowed), Some(13));
        assert_eq!(sums.isolates_at(NOW), 2);
        assert_eq!(sums.isolates_at(NOW + 180), 0);
    }

    #[test]
    fn only_pages_that_changed_are_written() {
        let mut sums = Sums::default();
        let names: Vec<String> = (0..600).map(|i| format!("rule {i}")).collect();
        let all: Vec<_> = names.iter().map(|name| (rule(name, "denied"), 1)).collect();
        sums.add(&delta(1, 1, &all), NOW);
        assert_eq!(sums.changed().collect::<Vec<_>>(), [0, 1, 2]);
        sums.saved();
        assert_eq!(sums.changed().count(), 0);
        // Page 0 has the sequences, so it is always among them.
        sums.add(&delta(1, 2, &all[..1]), NOW);
        assert_eq!(sums.changed().collect::<Vec<_>>(), [0]);
        sums.add(&delta(1, 3, &all[599..]), NOW);
        assert_eq!(sums.changed().collect::<Vec<_>>(), [0, 2]);
        let read = again(&sums);
        for (place, (series, _)) in all.iter().enumerate() {
            let expected = if place == 0 || place == 599 { 2 } else { 1 };
            assert_eq!(value(&read, series), Some(expected), "{place}");
        }
        assert_eq!(read.series.len(), 600);
        assert_eq!(read.changed().count(), 0, "what was read is stored");
    }

    #[test]
    fn there_is_a_most_and_what_comes_then_is_counted_as_other() {
        let mut sums = Sums::default();
        let names: Vec<String> = (0..MAX_SERIES + 50).map(|i| format!("rule {i}")).collect();
        let all: Vec<_> = names.iter().map(|name| (rule(name, "denied"), 2)).collect();
        for (i, some) in (1..).zip(all.chunks(1000)) {
            sums.add(&delta(1, i, some), NOW);
        }
        assert_eq!(sums.series.len(), MAX_SERIES + 1);
        assert_eq!(value(&sums, &rule(super::super::OTHER, "denied")), Some(100));
        assert_eq!(value(&sums, &all[9_999].0), Some(2));
        let pages: Vec<usize> = sums.changed().map(|number| sums.page(number).len()).collect();
        assert_eq!(pages.len(), 40);
        assert!(pages.iter().all(|len| *len < 16_384), "{pages:?}");
        // Dropped series make room, in the pages where they were.
        let later = NOW + 25 * 3600;
        sums.add(&delta(1, 100, &[(rule("new", "denied"), 1)]), later);
        assert_eq!(sums.series.len(), 1);
        assert_eq!(again(&sums).series.len(), 1);
    }

    #[test]
    fn a_series_is_held_for_a_day_after_its_last_count() {
        let (quiet, busy) = (rule("gone", "denied"), rule("api", "allowed"));
        let mut sums = Sums::default();
        sums.add(&delta(1, 1, &[(quiet.clone(), 1), (busy.clone(), 1)]), NOW);
        for hour in 1..=24 {
            sums.add(&delta(1, 1 + hour, &[(busy.clone(), 1)]), NOW + hour * 3600);
            assert_eq!(value(&sums, &quiet), Some(1), "{hour}");
        }
        sums.saved();
        sums.add(&delta(1, 30, &[(busy.clone(), 1)]), NOW + 25 * 3600);
        assert_eq!(value(&sums, &quiet), None);
        assert_eq!(value(&sums, &busy), Some(26));
        // A clock that was set back drops nothing, and one that jumps comes back.
        sums.add(&delta(1, 31, &[(busy.clone(), 1)]), 0);
        sums.add(&delta(1, 32, &[]), NOW + 26 * 3600);
        assert_eq!(value(&sums, &busy), Some(27));
    }

    #[test]
    fn the_newest_policy_is_told_and_isolates_are_bounded() {
        let mut sums = Sums::default();
        let policy = |version, source| PolicyInForce { version, fingerprint: 5, source };
        let mut exported = delta(1, 1, &[]);
        exported.policy = policy(7, Source::Written);
        sums.add(&exported, NOW);
        exported = delta(2, 1, &[]);
        exported.policy = policy(6, Source::Deployed);
        sums.add(&exported, NOW);
        assert_eq!(again(&sums).policy, policy(7, Source::Written));
        for isolate in 10..10_000 {
            sums.add(&delta(isolate, 1, &[]), NOW);
        }
        assert!(sums.isolates.len() <= MAX_ISOLATES, "{}", sums.isolates.len());
        let read = again(&sums);
        assert_eq!(read.isolates.len(), sums.isolates.len());
    }

    #[test]
    fn any_bytes_are_a_page_or_none() {
        let mut sums = Sums::default();
        sums.add(&delta(1, 1, &[(rule("api", "allowed"), 5)]), NOW);
        let bytes = sums.page(0);
        for length in 0..bytes.len() {
            let mut read = Sums::default();
            if read.load(0, &bytes[..length]).is_none() {
                assert!(read.series.is_empty() && read.isolates.is_empty(), "{length}");
            }
        }
        assert_eq!(Sums::default().load(u16::MAX, &[1]), None, "there is no such page");
        for seed in 0..2_000_u64 {
            let random = |i: u64| seed.wrapping_mul(6_364_136_223_846_793_005).rotate_left(7) ^ i;
            let random: Vec<u8> = (0..seed % 90).map(|i| random(i).to_le_bytes()[1]).collect();
            let mut read = Sums::default();
            let _ = read.load(0, &[&[1][..], &random].concat());
            let _ = Delta::decode(&[&[1][..], &random].concat());
        }
    }
}
